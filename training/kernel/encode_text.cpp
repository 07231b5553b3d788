// One short text, from its bytes to its vector: what a query being served needs. Nothing is allocated after the first
// texts, no word is looked up, and the numbers are those the text has in any batch.
#include <numeric>

#include "interface.h"
#include "tokenise.h"

namespace {

// A batch of one text, its words numbered as they come, a repeated one too.
struct OneText {
    Line line;
    std::vector<uint32_t> trigrams;
    Batch batch;

    // Returns the number of words. From word `max_words` on (0: no limit) they are one bag, or dropped.
    int32_t read(const char* text, size_t length, bool normalised, uint64_t table_rows, int32_t max_words, bool merge) {
        line.read(text, length, normalised);
        const int32_t found = static_cast<int32_t>(line.words.size());
        const int32_t kept = max_words && found > max_words ? max_words : found;
        trigrams.clear();
        batch.word_offsets.assign(1, 0);
        for (int32_t word = 0; word < (merge ? found : kept); ++word) {
            append_trigrams(line.bytes.data() + line.words[word].begin, line.words[word].length, table_rows, trigrams);
            if (word >= kept) batch.word_offsets.pop_back();
            batch.word_offsets.push_back(static_cast<int32_t>(trigrams.size()));
        }
        batch.word_trigrams.assign(trigrams.begin(), trigrams.end());
        batch.order.assign(1, 0);
        batch.begins.assign(1, -1);
        batch.chunk_sequences = {0, 1};
        batch.chunk_steps = {0, kept + 1};
        batch.step_rows.resize(kept + 1);
        std::iota(batch.step_rows.begin(), batch.step_rows.end(), 0);
        batch.packed_words.assign(batch.step_rows.begin(), batch.step_rows.end() - 1);
        batch.packed_words_reversed.assign(batch.packed_words.rbegin(), batch.packed_words.rend());
        return kept;
    }
};

}  // namespace

// The vector of a UTF-8 text, below 2^31 bytes: a `normalised` one with a space between its words, or an ASCII one as
// it is. Returns the number of its words; without any, `out` stays as it is.
extern "C" int32_t text_encode(const TowerPoint* tower, const char* text, int64_t length, int32_t normalised,
                               int64_t table_rows, int32_t max_words, int32_t merge, float* out) {
    return unless_full<int32_t>(-1, [&] {
        static thread_local OneText one;
        const int32_t words = one.read(text, length, normalised, table_rows, max_words, merge);
        return words && tower_encode(tower, &one.batch, out) < 0 ? -1 : words;
    });
}
