// The text contract in C++ (schemas/text_contract.py defines it): words, and the trigram ids of a word.
//
// Lower case, white space and control characters are decided here for ASCII only. A text with any other byte must come
// already normalised and cut, its words with a space between them, as schemas.text_contract decides.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

constexpr size_t PADDING = 8;  // bytes that may be read behind a word

// One text and where its words are.
struct Line {
    struct Word {
        uint32_t begin, length;
    };
    std::vector<char> bytes;  // in lower case, PADDING behind it
    std::vector<Word> words;

    // At most 2^31 bytes. A-Z are lowered and control characters dropped unless the text is `normalised`.
    void read(const char* text, size_t length, bool normalised);
};

// Appends the ids of a word's trigrams, in reading order.
void append_trigrams(const char* word, size_t length, uint64_t table_rows, std::vector<uint32_t>& ids);

// Texts as a table: list i of words is words[word_offsets[i]] to words[word_offsets[i + 1]], trigrams alike.
struct Tokens {
    std::vector<int64_t> word_offsets;     // [texts + 1]
    std::vector<int32_t> words;            // distinct words, numbered as they first appear
    std::vector<int64_t> trigram_offsets;  // [distinct words + 1]
    std::vector<uint32_t> trigrams;
};

extern "C" {
// Which of some texts have a byte that is not ASCII, ascending; returns how many. Text i is data[offsets[i]] to
// data[offsets[i + 1]].
int64_t find_not_ascii(const char* data, const int64_t* offsets, int64_t num_texts, int64_t* found);

// The tokens of texts, where text replaced[j] (ascending) is read as the normalised text j of other_data instead.
// nullptr where there is no memory, or a text is too long, for them.
Tokens* tokens_new(const char* data, const int64_t* offsets, int64_t num_texts, const char* other_data,
                   const int64_t* other_offsets, const int64_t* replaced, int64_t num_replaced, uint64_t table_rows);
void tokens_free(Tokens* tokens);
// The array of a number (the order of the members above) as pointer and length.
const void* tokens_array(const Tokens* tokens, int32_t number, int64_t* length);
}
