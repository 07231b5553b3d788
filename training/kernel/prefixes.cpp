// Length by length: the texts that share all words so far are told apart by their next one, in a hash table.
#include "prefixes.h"

#include <cstddef>

namespace {

// What may become a prefix: how many texts begin so, and its number once it is one.
struct Candidate {
    int64_t word;
    int32_t before, part, count, number;
};

struct Candidates {
    std::vector<Candidate> found;
    Batch::Ints slots;  // of the hash table, which candidate; -1: none
    size_t mask = 0;

    void clear(size_t most) {
        size_t size = 16;
        while (size < 2 * most) size *= 2;
        slots.assign(size, -1);
        mask = size - 1;
        found.clear();
    }

    int32_t find(int64_t word, int32_t before, int32_t part) {
        uint64_t hash = (static_cast<uint64_t>(word) << 32 ^ static_cast<uint32_t>(before)) * 0x9E3779B97F4A7C15u;
        for (size_t at = (hash ^ hash >> 32) & mask;; at = (at + 1) & mask) {
            int32_t& slot = slots[at];
            if (slot < 0) {
                slot = static_cast<int32_t>(found.size());
                found.push_back({word, before, part, 0, -1});
            }
            if (found[slot].word == word && found[slot].before == before) return slot;
        }
    }
};

}  // namespace

void find_prefixes(std::vector<Text>& texts, const TextPart* parts, const std::vector<int64_t>& word_base,
                   std::vector<Prefix>& prefixes, Batch::Ints& level_ends) {
    static thread_local Candidates candidates;
    static thread_local Batch::Ints active, chosen;  // texts that share all their words so far; the candidate of each
    prefixes.clear();
    level_ends.clear();
    active.clear();
    for (size_t text = 0; text < texts.size(); text++)
        if (texts[text].length > 1) active.push_back(static_cast<int32_t>(text));
    for (int32_t length = 1; active.size() > 1; length++) {
        candidates.clear(active.size());
        chosen.clear();
        for (int32_t at : active) {
            const Text& text = texts[at];
            const int32_t word = text.words[length - 1];
            if (word < 0 || word >= parts[text.part].num_words) throw Failure{OUT_OF_RANGE};
            chosen.push_back(candidates.find(word_base[text.part] + word, text.prefix, text.part));
            candidates.found[chosen.back()].count++;
        }
        for (Candidate& candidate : candidates.found) {
            if (candidate.count < 2) continue;
            candidate.number = static_cast<int32_t>(prefixes.size());
            const int64_t word = candidate.word - word_base[candidate.part];
            prefixes.push_back({candidate.before, candidate.part, static_cast<int32_t>(word)});
        }
        size_t kept = 0;
        for (size_t i = 0; i < active.size(); i++) {
            Text& text = texts[active[i]];
            const int32_t number = candidates.found[chosen[i]].number;
            if (number < 0) continue;
            text.prefix = number;
            text.shared = length;
            if (text.length > length + 1) active[kept++] = active[i];
        }
        active.resize(kept);
        if (static_cast<size_t>(level_ends.empty() ? 0 : level_ends.back()) == prefixes.size()) break;
        level_ends.push_back(static_cast<int32_t>(prefixes.size()));
    }
}
