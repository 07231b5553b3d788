// Builds a Batch (batch.h) in time proportional to what it holds: counting sorts, marks and prefix sums.
#include "batch.h"

#include <algorithm>
#include <limits>
#include <memory>
#include <new>

#include "prefixes.h"

namespace {

using Ints = Batch::Ints;
constexpr int64_t LARGEST = std::numeric_limits<int32_t>::max();

// Kept by each thread: what is as large as a table is cleared where it was used, never as a whole.
struct Scratch {
    std::vector<Text> texts, sorted;
    std::vector<Prefix> prefixes;
    Ints level_ends;                 // of the prefixes of each length
    std::vector<int64_t> word_base;  // of each part: where its table's words begin in number
    Ints number;                     // of each word of the tables its distinct number, -1: none yet
    std::vector<int64_t> distinct;   // for each distinct word its place in number
    Ints distinct_part;
    std::vector<uint64_t> touched;  // a bit for each trigram id, all zero between batches
    Ints place;                     // of each touched trigram id in rows
    Ints cursor;
};

// Makes number all -1 again, also where a batch fails half-way.
struct Renumbered {
    Scratch& scratch;
    ~Renumbered() {
        for (int64_t at : scratch.distinct) scratch.number[at] = -1;
        scratch.distinct.clear();
        scratch.distinct_part.clear();
    }
};

// The texts of all parts, each checked to be in its table and to have a word.
void take_texts(const TextPart* parts, int64_t num_parts, Scratch& scratch) {
    scratch.texts.clear();
    scratch.word_base.clear();
    int64_t num_table_words = 0, num_packed = 0;
    for (int64_t p = 0; p < num_parts; p++) {
        const TextPart& part = parts[p];
        const TextPart* same = std::find_if(parts, parts + p, [&](const TextPart& other) {
            return other.trigrams == part.trigrams && other.trigram_offsets == part.trigram_offsets;
        });
        scratch.word_base.push_back(same == parts + p ? num_table_words : scratch.word_base[same - parts]);
        if (same == parts + p) num_table_words += part.num_words;
        for (int64_t i = 0; i < part.num_taken; i++) {
            const int64_t row = part.index[i];
            if (row < 0 || row >= part.num_texts) throw Failure{OUT_OF_RANGE};
            const int64_t length = part.word_offsets[row + 1] - part.word_offsets[row];
            if (length <= 0) throw Failure{NO_WORDS};
            num_packed += length;
            if (num_packed > LARGEST) throw Failure{TOO_LARGE};
            __builtin_prefetch(part.words + part.word_offsets[row]);  // read after the texts are sorted
            scratch.texts.push_back(
                {part.words + part.word_offsets[row], static_cast<int32_t>(length), static_cast<int32_t>(p)});
        }
    }
    if (scratch.texts.empty()) throw Failure{NO_WORDS};
    if (static_cast<int64_t>(scratch.number.size()) < num_table_words) scratch.number.resize(num_table_words, -1);
}

// Sums in place: counts[i + 1] of each i -> where each i begins, and the end of the last.
void starts(Ints& counts) {
    int32_t sum = 0;
    for (int32_t& count : counts) count = sum += count;
}

// batch.order and scratch.sorted: most own words first, then those with a prefix, then as they are.
void sort_by_length(Scratch& scratch, Batch& batch) {
    const std::vector<Text>& texts = scratch.texts;
    int32_t longest = 0;
    for (const Text& text : texts) longest = std::max(longest, text.own());
    const auto key = [&](const Text& text) { return 2 * (longest - text.own()) + (text.prefix < 0); };
    Ints& begin = scratch.cursor;
    begin.assign(2 * longest + 1, 0);  // begin[key + 1] counts, then begin[key] begins
    for (const Text& text : texts) begin[key(text) + 1]++;
    starts(begin);
    batch.order.resize(texts.size());
    scratch.sorted.resize(texts.size());
    for (size_t i = 0; i < texts.size(); i++) {
        const int32_t at = begin[key(texts[i])]++;
        batch.order[at] = static_cast<int32_t>(i);
        scratch.sorted[at] = texts[i];
    }
}

// Keeps that order within runs of `group` texts from `ungrouped` on, as the caller numbers them, and puts one run after
// the other, behind the texts that are in none.
void gather_groups(int32_t ungrouped, int32_t group, const int32_t* place, Scratch& scratch, Batch& batch) {
    const int32_t num_texts = batch.num_texts();
    const auto group_of = [&](int32_t text) {
        const int32_t called = place ? place[text] : text;
        if (called < 0 || called >= num_texts) throw Failure{OUT_OF_RANGE};
        return called < ungrouped ? 0 : 1 + (called - ungrouped) / group;
    };
    Ints& begin = scratch.cursor;
    begin.assign((num_texts - ungrouped + group - 1) / group + 2, 0);
    for (int32_t i = 0; i < num_texts; i++) begin[group_of(i) + 1]++;
    starts(begin);
    const Ints order = std::move(batch.order);
    const std::vector<Text> sorted = scratch.sorted;
    batch.order.resize(num_texts);
    for (int32_t i = 0; i < num_texts; i++) {
        const int32_t at = begin[group_of(order[i])]++;
        batch.order[at] = order[i];
        scratch.sorted[at] = sorted[i];
    }
}

// Chunks of the prefixes and of the sorted texts, and what each sequence goes on from.
void cut_in_chunks(const Scratch& scratch, int32_t ungrouped, int32_t group, Batch& batch) {
    const std::vector<Text>& sorted = scratch.sorted;
    for (const Prefix& prefix : scratch.prefixes) batch.begins.push_back(prefix.before);
    for (const Text& text : sorted) batch.begins.push_back(text.prefix);
    const int32_t num_prefixes = static_cast<int32_t>(scratch.prefixes.size());
    const int32_t num_texts = static_cast<int32_t>(sorted.size());
    int32_t row = 0;
    batch.chunk_steps.push_back(0);
    const auto end_chunk = [&](int32_t first) {
        batch.chunk_sequences.push_back(first);
        batch.step_rows.push_back(row);
        batch.chunk_steps.push_back(static_cast<int32_t>(batch.step_rows.size()));
    };
    for (int32_t level_end : scratch.level_ends) {
        while (row < level_end) {
            const int32_t first = row;
            batch.step_rows.push_back(row);
            row = std::min(row + CHUNK_TEXTS, level_end);
            end_chunk(first);
        }
    }
    for (int32_t first = 0, end; first < num_texts; first = end) {
        int32_t active = 0;
        end = first < ungrouped ? std::min(first + CHUNK_TEXTS, ungrouped) : std::min(first + group, num_texts);
        for (int32_t left = sorted[first].own(); left > 0; left--) {  // words from this step to the last
            while (first + active < end && sorted[first + active].own() >= left) active++;
            batch.step_rows.push_back(row);
            row += active;
        }
        end_chunk(num_prefixes + first);
    }
    batch.chunk_sequences.push_back(num_prefixes + num_texts);
}

// The distinct number of a word, or a new one.
int32_t number_of(int32_t part, int32_t word, const TextPart* parts, Scratch& scratch) {
    if (word < 0 || word >= parts[part].num_words) throw Failure{OUT_OF_RANGE};
    const int64_t at = scratch.word_base[part] + word;
    int32_t& number = scratch.number[at];
    if (number < 0) {
        scratch.distinct_part.push_back(part);
        scratch.distinct.push_back(at);
        number = static_cast<int32_t>(scratch.distinct.size()) - 1;
    }
    return number;
}

// packed_words of one direction.
void pack(const TextPart* parts, bool reversed, const Batch& batch, Scratch& scratch, Ints& packed) {
    packed.resize(batch.step_rows.back());
    for (size_t row = 0; row < scratch.prefixes.size(); row++)
        packed[row] = number_of(scratch.prefixes[row].part, scratch.prefixes[row].word, parts, scratch);
    for (int32_t chunk = batch.num_prefix_chunks(); chunk < batch.num_chunks(); chunk++) {
        const Text* texts = scratch.sorted.data() + batch.chunk_sequences[chunk] - batch.num_prefixes();
        const int32_t* rows = batch.step_rows.data() + batch.chunk_steps[chunk];
        const int32_t num_steps = batch.chunk_steps[chunk + 1] - batch.chunk_steps[chunk] - 1;
        for (int32_t step = 0; step < num_steps; step++) {
            const int32_t left = num_steps - step;
            for (int32_t row = rows[step]; row < rows[step + 1]; row++) {
                const Text& text = texts[row - rows[step]];
                packed[row] =
                    number_of(text.part, text.words[reversed ? left - 1 : text.length - left], parts, scratch);
            }
        }
    }
}

void take_trigrams(const TextPart* parts, const Scratch& scratch, Batch& batch) {
    const auto offsets_of = [&](size_t word) {
        const int32_t part = scratch.distinct_part[word];
        return parts[part].trigram_offsets + (scratch.distinct[word] - scratch.word_base[part]);
    };
    const size_t num_words = scratch.distinct.size();
    batch.word_offsets.resize(num_words + 1);
    int64_t num_trigrams = 0;
    for (size_t word = 0; word < num_words; word++) {
        const int64_t* offsets = offsets_of(word);
        num_trigrams += offsets[1] - offsets[0];
        if (num_trigrams > LARGEST) throw Failure{TOO_LARGE};
        batch.word_offsets[word + 1] = static_cast<int32_t>(num_trigrams);
        __builtin_prefetch(parts[scratch.distinct_part[word]].trigrams + offsets[0]);
    }
    batch.word_trigrams.resize(num_trigrams);
    uint32_t highest = 0;
    for (size_t word = 0; word < num_words; word++) {
        const uint32_t* trigrams = parts[scratch.distinct_part[word]].trigrams + *offsets_of(word);
        const int32_t begin = batch.word_offsets[word], end = batch.word_offsets[word + 1];
        for (int32_t at = begin; at < end; at++) {
            const uint32_t id = trigrams[at - begin];
            highest = std::max(highest, id);
            batch.word_trigrams[at] = static_cast<int32_t>(id);
        }
    }
    if (highest > LARGEST) throw Failure{OUT_OF_RANGE};
}

void find_rows(Scratch& scratch, Batch& batch) {
    int32_t highest = 0;
    for (int32_t id : batch.word_trigrams) highest = std::max(highest, id);
    const size_t num_bits = static_cast<size_t>(highest) + 1, num_marks = (num_bits + 63) / 64;
    if (scratch.touched.size() < num_marks) scratch.touched.resize(num_marks, 0);
    if (scratch.place.size() < num_bits) scratch.place.resize(num_bits);
    batch.word_rows.resize(batch.word_trigrams.size());
    batch.rows.reserve(std::min(batch.word_trigrams.size(), num_bits));  // nothing below fails and leaves a mark
    for (int32_t id : batch.word_trigrams) scratch.touched[id >> 6] |= uint64_t{1} << (id & 63);
    for (size_t mark = 0; mark < num_marks; mark++) {
        for (uint64_t bits = scratch.touched[mark]; bits; bits &= bits - 1) {
            const int32_t id = static_cast<int32_t>(mark * 64 + __builtin_ctzll(bits));
            scratch.place[id] = batch.num_rows();
            batch.rows.push_back(id);
        }
        scratch.touched[mark] = 0;
    }
    for (size_t i = 0; i < batch.word_rows.size(); i++) batch.word_rows[i] = scratch.place[batch.word_trigrams[i]];
}

// For each row the words that have its trigram: the transpose of word_rows.
void invert_rows(Ints& cursor, Batch& batch) {
    batch.row_word_offsets.assign(batch.num_rows() + 1, 0);
    for (int32_t row : batch.word_rows) batch.row_word_offsets[row + 1]++;
    starts(batch.row_word_offsets);
    cursor.assign(batch.row_word_offsets.begin(), batch.row_word_offsets.end() - 1);
    batch.row_words.resize(batch.word_rows.size());
    for (int32_t word = 0; word < batch.num_words(); word++)
        for (int32_t i = batch.word_offsets[word]; i < batch.word_offsets[word + 1]; i++)
            batch.row_words[cursor[batch.word_rows[i]]++] = word;
}

std::unique_ptr<Batch> build(const TextPart* parts, int64_t num_parts, const int32_t* place, int32_t ungrouped,
                             int32_t group, int32_t options) {
    static thread_local Scratch scratch;
    take_texts(parts, num_parts, scratch);
    scratch.prefixes.clear();
    scratch.level_ends.clear();
    if (options & SHARED_PREFIXES)
        find_prefixes(scratch.texts, parts, scratch.word_base, scratch.prefixes, scratch.level_ends);
    auto batch = std::make_unique<Batch>();
    sort_by_length(scratch, *batch);
    if (!group || ungrouped > batch->num_texts()) ungrouped = batch->num_texts();
    if (ungrouped < batch->num_texts()) gather_groups(ungrouped, group, place, scratch, *batch);
    cut_in_chunks(scratch, ungrouped, group, *batch);
    if (place)
        for (int32_t& text : batch->order) text = place[text];
    const Renumbered renumbered{scratch};
    pack(parts, false, *batch, scratch, batch->packed_words);
    if (options & BOTH_DIRECTIONS) {
        pack(parts, true, *batch, scratch, batch->packed_words_reversed);
    }
    take_trigrams(parts, scratch, *batch);
    if (options & FOR_GRADIENT) {
        find_rows(scratch, *batch);
        invert_rows(scratch.cursor, *batch);
    }
    return batch;
}

}  // namespace

extern "C" {

Batch* batch_new(const TextPart* parts, int64_t num_parts, const int32_t* place, int32_t ungrouped, int32_t group,
                 int32_t options, int32_t* error) {
    *error = NO_ERROR;
    try {
        return build(parts, num_parts, place, ungrouped, group, options).release();
    } catch (const Failure& failure) {
        *error = failure.error;
    } catch (const std::bad_alloc&) {
        *error = TOO_LARGE;
    }
    return nullptr;
}

void batch_free(Batch* batch) { delete batch; }

const int32_t* batch_array(const Batch* batch, int32_t number, int64_t* length) {
    static constexpr Ints Batch::*ARRAYS[] = {
        &Batch::order, &Batch::begins, &Batch::chunk_sequences, &Batch::chunk_steps, &Batch::step_rows,
        &Batch::packed_words, &Batch::packed_words_reversed, &Batch::word_offsets, &Batch::word_trigrams,
        &Batch::rows, &Batch::word_rows,
        &Batch::row_word_offsets, &Batch::row_words,
    };
    const Ints& array = batch->*ARRAYS[number];
    *length = static_cast<int64_t>(array.size());
    return array.data();
}
}
