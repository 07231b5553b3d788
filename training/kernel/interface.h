// What Python calls (training/kernel/kernel_library.py): plain functions and structs. Batches are in batch.h.
#pragma once
#include <cstdint>
#include <new>
#include <stdexcept>

#include "batch.h"
#include "instructions.h"

const Instructions& instructions();  // of the processor; only where kernel_instructions() is not ""

// What a call gives, or `none` where there is no memory for it: no exception may cross into Python.
template <class Result, class Call> Result unless_full(Result none, Call call) noexcept {
    try {
        return call();
    } catch (const std::bad_alloc&) {
        return none;
    } catch (const std::length_error&) {
        return none;
    }
}

struct Weights;    // a tower's dense parameters, packed (gradient.cpp)
struct Workspace;  // one micro-batch's gradient
class Crew;        // threads (crew.h)

// A tower at one point of parameter space: the rows of W that a batch needs, and the packed rest. Trigram t's row of
// gates is table[place[t]], or table[t] without `place`.
struct TowerPoint {
    const Weights* weights;
    const float* table;
    const int32_t* place;
};

// One micro-batch. A document may be a candidate of several pairs.
struct PairTask {
    TowerPoint query, document;
    const Batch *queries, *documents;
    const int32_t* candidates;  // [pairs, num_candidates], the clicked one first; -1: none
    const float* pair_weights;  // [pairs] or nullptr
    int64_t num_candidates;
    float gamma;
    int32_t max_steps;  // T; 0: no limit
    int64_t table_rows;
    // Documents numbered below `num_shared` may be candidates of any pair. The others are in groups (batch.h), each of
    // all that its own pairs have besides: group g is of the pairs before pair_ends[g] that are of none before it.
    int64_t num_shared;
    const int64_t* pair_ends;  // [groups]
};

// Vectors in eight bits (kernel_library.py): row r is about scales[r] * codes[r], and its distance from that is at most
// errors[r]. It is ranked by its dot product with the query, less half_squares[r] where there are such.
struct Int8Rows {
    const int8_t* codes;  // [rows, dimensions]
    const float *scales, *errors;
    const float* half_squares;  // [rows] or nullptr
    int64_t dimensions;
};

// A query in sixteen bits, whose unit is so long that 1 is `per_half_square` of it; and how far what row r is ranked by
// can be from the exact one, in that unit: per_error * errors[r] + always.
struct Int16Query {
    const int16_t* codes;
    float per_error, always, per_half_square;
};

// What each word of a collection adds to the scores of the titles that have it (kernel_library.py): a word's entries lie side
// by side, its titles ascending.
struct Postings {
    const int32_t* titles;
    const float* parts;  // above 0
};

// The words of a query, each with its entries and the largest part among them.
struct QueryWords {
    const int64_t *starts, *ends;
    const float* largest;
    int64_t num_words;
};

// Some of a tower's touched rows, and -ε times the scale of their gradient.
struct Stretch {
    const TouchedRows* of;
    int64_t first, last;
    float by_gradient;
};
enum MadeOfRows : int32_t { LOOK_AHEAD, SUM_TO_FIXED, SUM_IN_ORDER, SUM_EXACTLY, FROM_FIXED, SQUARES, STEP };

// What needs memory says so where there is none: by nullptr, or a number below 0.
extern "C" {
int32_t kernel_interface();                  // of these functions; raised with every change
const char* kernel_instructions();           // "" where this processor has none of those that were built
int32_t kernel_choose(const char* name);     // 0: this processor does not have it
double kernel_fma_peak(double seconds);      // GFLOP/s of one thread

// recurrent [d, directions * G], bias [directions * G], peepholes [num_peepholes, directions * d] or nullptr
Weights* weights_new(const Cell* cell, int32_t directions, const float* recurrent, const float* bias,
                     const float* peepholes);
void weights_free(Weights*);

// y of each text: out[text * directions * d], texts as the batch's caller numbers them.
int32_t tower_encode(const TowerPoint* tower, const Batch* batch, float* out);

Workspace* workspace_new();
void workspace_free(Workspace*);
Crew* crew_new(int32_t num_threads);
void crew_free(Crew*);
// The sum of the pairs' losses of each task; its gradient stays in its workspace until that is used again.
int32_t pair_gradients(Crew*, Workspace* const*, const PairTask*, int64_t num_tasks, double* losses);
// side 0: query, 1: document.
void workspace_addend(const Workspace*, int32_t side, Addend* addend);
// `what`: of MadeOfRows.
int32_t rows_make(Crew*, const Stretch*, int64_t num_stretches, int32_t what);

// The rows that may be among the k nearest of those in some ranges: their number, and which as `places`. Scratch: lows
// [k]; highs and places have room for all rows of the ranges.
int64_t nearest_candidates(const Int8Rows*, const Int16Query*, const int64_t* starts, const int64_t* ends,
                           int64_t num_ranges, int64_t k, float* lows, float* highs, int32_t* places);

// The k best titles by the sum of their entries of some words, and all that tie with the k-th: their number, and which as
// `titles` and `scores`, in no order. Scratch: heap [k]; titles and scores have room for all entries of the words.
int64_t postings_best(const Postings*, const QueryWords*, int64_t k, float* heap, int32_t* titles, float* scores);
// The sums of some titles, in any order; fastest if they ascend.
void postings_scores(const Postings*, const QueryWords*, const int32_t* titles, int64_t num_titles, float* scores);
}
