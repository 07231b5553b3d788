// Texts of a batch that begin with the same words: what they have in common is computed once (batch.h).
#pragma once

#include <cstdint>
#include <vector>

#include "batch.h"

struct Failure {
    BatchError error;
};

// One text as it is taken: its words in its table, and what it shares.
struct Text {
    const int32_t* words;
    int32_t length;
    int32_t part;
    int32_t prefix = -1;  // the longest prefix that it goes on from; -1: none
    int32_t shared = 0;   // the words of that prefix
    int32_t own() const { return length - shared; }
};

// A prefix is the one before it (-1: nothing) and a word of a part's table.
struct Prefix {
    int32_t before, part, word;
};

// Finds each prefix that two texts or more go on from, all of one word, then all of two, and so on, those of one length
// in the order in which `texts` meet them. A text goes on from a prefix if it has a word after it. `level_ends`: for
// each length the number of prefixes up to it. `word_base`: of each part, so that two parts of one table name a word
// alike. Time is proportional to the words that are shared, and the texts.
void find_prefixes(std::vector<Text>& texts, const TextPart* parts, const std::vector<int64_t>& word_base,
                   std::vector<Prefix>& prefixes, Batch::Ints& level_ends);
