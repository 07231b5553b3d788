// The index of a batch of texts as the kernels read it: which word stands where, which trigrams a word has, and
// that relation the other way round for the gradient. Nothing here depends on parameters.
//
// The words that two texts or more begin with are their prefix (prefixes.h), and computed once: a text goes on from
// the state that its longest prefix ends in, with words of its own, at least one. A prefix is the one that is a word
// shorter and a last word, so prefixes of one length, a level, are sequences of one word each, and texts are sequences
// of their own words: both go on from a prefix or from nothing, and are computed alike. Sequences are numbered prefixes
// first, shorter before longer, then texts.
//
// Texts are sorted by their number of own words, longest first, ties with a prefix before those without one, then in the
// caller's order. Levels and sorted texts are cut into chunks of at most CHUNK_TEXTS consecutive sequences: what one
// thread keeps in its cache while it steps through them. Texts of groups come after the others, a chunk a group. Within a chunk sequences are aligned to their last words: at
// step s of S (the words of the chunk's longest one) those with at least S - s words are active, and they come first in
// the chunk. Padding does not exist, and all of a chunk's last states are complete at its last step.
//
// Packed rows are the words of all sequences in that arrangement: chunk after chunk, within it step after step, within a
// step the active sequences. The word of the i-th one of chunk c at step s is in packed row
// step_rows[chunk_steps[c] + s] + i; a prefix's number is its packed row.
#pragma once

#include <cstdint>
#include <vector>

constexpr int32_t CHUNK_TEXTS = 128;

struct Batch {
    using Ints = std::vector<int32_t>;

    Ints order;            // [texts] sorted text i is text order[i] of the caller
    Ints begins;           // [sequences] the prefix that each goes on from; -1: from nothing
    Ints chunk_sequences;  // [chunks + 1] the first sequence of each chunk, then the number of sequences
    Ints chunk_steps;      // [chunks + 1] where each chunk's steps begin in step_rows: chunk c has
                           //   chunk_steps[c + 1] - chunk_steps[c] - 1 steps
    Ints step_rows;        // for each chunk the first packed row of each of its steps, then the row after its last one

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
    int32_t num_prefixes() const { return static_cast<int32_t>(begins.size() - order.size()); }
    int32_t num_chunks() const { return static_cast<int32_t>(chunk_sequences.size()) - 1; }
    // Those of prefixes, which come first.
    int32_t num_prefix_chunks() const {
        int32_t chunk = 0;
        while (chunk_sequences[chunk] < num_prefixes()) chunk++;
        return chunk;
    }
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

enum BatchOptions : int32_t { FOR_GRADIENT = 1, BOTH_DIRECTIONS = 2, SHARED_PREFIXES = 4 };
enum BatchError : int32_t { NO_ERROR = 0, NO_WORDS = 1, OUT_OF_RANGE = 2, TOO_LARGE = 3 };

extern "C" {
// The batch of the texts of some parts, one part after the other; nullptr and *error where there is none. `place`
// (nullptr: as they come) is what the caller calls each text. With a `group` above 0 each run of so many texts, as the
// caller calls them, is a chunk of its own, sorted within: what is computed of one run need not wait for another. The
// runs begin with text `ungrouped`; those before it are sorted and cut as they are without groups. Texts that are read
// both ways share no prefixes: they would have to be arranged twice.
Batch* batch_new(const TextPart* parts, int64_t num_parts, const int32_t* place, int32_t ungrouped, int32_t group,
                 int32_t options, int32_t* error);
void batch_free(Batch* batch);
// The array of a number (the order of the members above) as pointer and length.
const int32_t* batch_array(const Batch* batch, int32_t number, int64_t* length);
}
