// The index of a batch of texts as the kernels read it: which word stands where, which trigrams a word has, and
// that relation the other way round for the gradient. Nothing here depends on parameters.
//
// Texts are sorted by their number of words, longest first, ties in the caller's order, and cut into chunks of at most
// CHUNK_TEXTS consecutive sorted texts: what one thread keeps in its cache while it steps through them. Within a chunk
// texts are aligned to their last words: at step s of S (the words of the chunk's longest text) the texts with at
// least S - s words are active, and they are a prefix of the chunk. Padding does not exist, and all embeddings of a
// chunk are complete at its last step.
//
// Packed rows are the words of all texts in that arrangement: chunk after chunk, within it step after step, within a
// step the active texts. The word of the i-th text of chunk c at step s is in packed row
// step_rows[chunk_steps[c] + s] + i.
#pragma once

#include <cstdint>
#include <vector>

constexpr int32_t CHUNK_TEXTS = 128;

struct Batch {
    using Ints = std::vector<int32_t>;

    Ints order;        // [texts] sorted text i is text order[i] of the caller
    Ints chunk_texts;  // [chunks + 1] the first sorted text of each chunk, then the number of texts
    Ints chunk_steps;  // [chunks + 1] where each chunk's steps begin in step_rows: chunk c has
                       //   chunk_steps[c + 1] - chunk_steps[c] - 1 steps
    Ints step_rows;    // for each chunk the first packed row of each of its steps, then the row after its last one

    Ints packed_words;           // [packed] the distinct word in each packed row
    Ints packed_words_reversed;  // [packed] the same texts read right to left; empty unless asked for

    // Distinct words are numbered in the order in which packed_words meets them. Words of different tables are
    // different words.
    Ints word_offsets;   // [words + 1] where each word's trigrams begin in word_trigrams and word_rows
    Ints word_trigrams;  // the trigram ids of all distinct words, in reading order, as often as they occur

    // For the gradient; empty unless asked for:
    Ints rows;                           // [rows] the distinct trigram ids, ascending
    Ints word_rows;                      // [as word_trigrams] each trigram's place in rows
    Ints row_word_offsets;  // [rows + 1] the distinct words of each row, ascending, a word as often as it has the
    Ints row_words;         //   trigram

    int32_t num_texts() const { return static_cast<int32_t>(order.size()); }
    int32_t num_chunks() const { return static_cast<int32_t>(chunk_texts.size()) - 1; }
    int32_t num_packed() const { return static_cast<int32_t>(packed_words.size()); }
    int32_t num_words() const { return static_cast<int32_t>(word_offsets.size()) - 1; }
    int32_t num_rows() const { return static_cast<int32_t>(rows.size()); }
};

// Some texts of one table: list i of words is words[word_offsets[i]] to words[word_offsets[i + 1]], rows of trigrams,
// which is a list of lists alike.
struct TextPart {
    const int64_t* word_offsets;
    const int32_t* words;
    const int64_t* trigram_offsets;
    const uint32_t* trigrams;
    int64_t num_texts;     // in the table
    int64_t num_words;     // in the table
    const int64_t* index;  // [num_taken] the texts taken
    int64_t num_taken;
};

enum BatchOptions : int32_t { FOR_GRADIENT = 1, BOTH_DIRECTIONS = 2 };
enum BatchError : int32_t { NO_ERROR = 0, NO_WORDS = 1, OUT_OF_RANGE = 2, TOO_LARGE = 3 };

extern "C" {
// The batch of the texts of some parts, one part after the other; nullptr and *error where there is none. `place`
// (nullptr: as they come) is what the caller calls each text. With a `group` each run of so many texts, as the caller
// calls them, is a chunk of its own, sorted within: what is computed of one run need not wait for another.
Batch* batch_new(const TextPart* parts, int64_t num_parts, const int32_t* place, int32_t group, int32_t options,
                 int32_t* error);
void batch_free(Batch* batch);
// The array of a number (the order of the members above) as pointer and length.
const int32_t* batch_array(const Batch* batch, int32_t number, int64_t* length);
}
