// What the kernels do, once for each instruction set, as a table of functions that the rest calls (instructions_*.cpp).
#pragma once
#include <stdint.h>

constexpr int32_t CELL_BLOCK = 16;  // cells are a multiple of it

enum Kind : int32_t { RNN, LSTM, BAG, DSSM };

// A recurrent tower's cell (training.towers.recurrent), or a tower that adds up words (training.towers.bag).
struct Cell {
    int32_t cells;        // d; of DSSM the hidden units
    int32_t kind;
    int32_t forget_gate;  // f is there, otherwise f = 1
    int32_t peepholes;
    int32_t outputs;      // d of DSSM
    bool adds_up() const { return kind == BAG || kind == DSSM; }
    int32_t gates() const { return kind == LSTM ? 3 + forget_gate : 1; }
    int64_t columns() const { return int64_t(gates()) * cells; }
    // Peephole vectors in the order of their gates (output, forget, input).
    int32_t num_peepholes() const { return peepholes ? 2 + forget_gate : 0; }
};

// One direction of a tower, with its weights where the kernels want them.
struct Direction {
    Cell cell;
    const float* packed;     // W_rec as pack lays it out for the forward pass
    const float* packed_t;   // W_rec transposed, for the backward pass
    const float* peepholes;  // [num_peepholes, d], a gate's `peephole_stride` floats after the one before
    int64_t peephole_stride;
};

// y = tanh(tanh(x) W + bias), W packed in both forms by pack_layer.
struct Layer {
    int64_t inputs, outputs;
    const float *packed, *packed_t, *bias;
};

// By what is added to x in every row, by W [inputs, outputs], and by the bias: these are added to.
struct LayerGradient {
    float *by_inputs, *by_matrix, *by_bias;
};

// The sequences of one chunk (batch.h) in one direction.
struct Steps {
    int32_t num_sequences, num_steps;
    const int32_t* begins;     // [num_sequences] the prefix that each goes on from; -1: from nothing
    const int32_t* step_rows;  // [num_steps + 1]
    const int32_t* words;      // of all packed rows
};

// The states that prefixes end in, [prefixes, d] each, and the gradient by them, to which those that go on from them add.
struct Prefixes {
    float *y, *c, *by_y, *by_c;
};

// What the forward pass leaves for the backward pass, in packed rows of the whole batch.
struct Trace {
    float* gates;     // [packed, gates * d], after the nonlinearities
    float* squashed;  // [packed, d], tanh(c); LSTM only
    float* previous;  // [packed, d], y(t-1), zero where a sequence begins with nothing before it
    float* state;     // [packed, d], c(t); with a forget gate or peepholes only
};

// Sums of rows: out[r] = start + Σ from[place[list[j]]], j from offsets[r] to offsets[r + 1]; `place` and `start` may
// be nullptr. `columns` is a multiple of 16; strides are in floats.
struct GatherSum {
    float* out;
    int64_t out_stride, num_out;
    const int32_t *offsets, *list, *place;
    const float* from;
    int64_t from_stride, columns;
    const float* start;
};

constexpr int PAIRS_AT_ONCE = 4;  // that read the candidates they share together

// A loss of pairs (training.trainer.click_loss): queries [pairs, d], documents [documents, d], candidates [pairs, C]. A document
// is begun before the first pair that has it, and ended after the last.
struct ClickLoss {
    const float *queries, *documents;
    const int32_t* candidates;
    const float* weights;  // [pairs] or nullptr
    int64_t num_candidates, d;
    float gamma;
    float *by_query, *by_document;
    float *document_scale, *document_along;  // [documents]
    float* scratch;                          // 2 * PAIRS_AT_ONCE * num_candidates floats
};

// Rows of one tower's gradient from one micro-batch: `rows` ascending, values [num_rows, columns].
struct Addend {
    const int32_t* rows;
    const float* values;
    int64_t num_rows;
};

// The rows of a tower that an update touches (ascending; all rows of all addends are among them), R of them with G
// columns each, and what becomes of them. What a caller does not use may be nullptr.
struct TouchedRows {
    float *parameters, *velocity;  // of the whole tower
    const int64_t* rows;           // [R]
    const float *gain, *decay;     // [R] what brings a row up to date (training.trainer.optimisers)
    float* ahead;                  // [R, G] where the gradient is taken
    int32_t* place;                // [num_places] which of them a row of the tower is
    const Addend* addends;         // the gradients of micro-batches
    int32_t* misfits;              // [num_addends] set to 1 where a value is not below `limit` in size
    int64_t* fixed;                // [R, G] their sum in 64-bit fixed point with 2^-40 as its unit: the same in any order
    float* gradient;               // [R, G] their sum
    double* squares;               // [R] of each row of `gradient`
    int64_t num_rows, columns, num_places, num_addends;
    float limit;
};

struct Instructions {
    const char* name;

    // W_rec [d, gates * d] with `stride` floats a row -> both packed forms, each gates * d * d floats.
    void (*pack)(const Cell&, const float* recurrent, int64_t stride, float* packed, float* packed_t);
    // y at the last word of each sequence of a chunk: last[i * last_stride]; and c: c[i * d]. `inputs`: W l + b of each
    // distinct word. `scratch`: 2 * num_sequences * d floats. Without a trace nothing is kept for a backward pass.
    void (*forward)(const Direction&, const Steps&, const Prefixes&, const float* inputs, int64_t input_stride,
                    float* last, int64_t last_stride, float* c, const Trace* trace, float* scratch);
    // Adds to W_rec's gradient [d, gates * d], to `by_inputs` [words, gates * d], both with `stride` floats a row, to the
    // peepholes' (laid out as they are) and to that of prefixes: last step first, within a step in the order of the
    // sequences. `by_last`, `by_c` [num_sequences, d]: by y and c at the last words; by_c is used up. Gradients reach
    // back `max_steps` steps from the last word, if there are no prefixes. Scratch: num_sequences * (1 + gates) * d.
    void (*backward)(const Direction&, const Steps&, const Prefixes&, const Trace&, const float* by_last,
                     int64_t by_last_stride, float* by_c, int32_t max_steps, float* by_inputs, float* by_recurrent,
                     int64_t stride, float* by_peepholes, float* scratch);
    void (*pack_layer)(const Layer&, const float* matrix, float* packed, float* packed_t);
    // x [rows, inputs] becomes its tanh; y [rows, outputs].
    void (*layer)(const Layer&, float* x, int64_t rows, float* y);
    // From by_y, which is used up; `hidden` is tanh(x). by_x: [rows, inputs].
    void (*layer_back)(const Layer&, const float* hidden, const float* y, int64_t rows, float* by_y, float* by_x,
                       const LayerGradient&);
    void (*gather_sum)(const GatherSum&);
    void (*begin_documents)(const ClickLoss&, int64_t first, int64_t end);  // by_document: zero
    double (*click_loss)(const ClickLoss&, int64_t first, int64_t end);    // of some pairs: the sum of the losses
    void (*end_documents)(const ClickLoss&, int64_t first, int64_t end);    // by_document is complete

    // Of the touched rows first to last.
    void (*look_ahead)(const TouchedRows&, int64_t first, int64_t last);
    void (*step)(const TouchedRows&, int64_t first, int64_t last, float by_gradient);  // eq. 6; by_gradient: -ε, scaled
    void (*sum_to_fixed)(const TouchedRows&, int64_t first, int64_t last);
    void (*sum_in_order)(const TouchedRows&, int64_t first, int64_t last);  // in floats, in the order of the addends
    // In fixed point, then as floats. `one_row`: columns integers of scratch.
    void (*sum_exactly)(const TouchedRows&, int64_t first, int64_t last, int64_t* one_row);
    void (*from_fixed)(const TouchedRows&, int64_t first, int64_t last);
    void (*squares)(const TouchedRows&, int64_t first, int64_t last);

    // dots[r] = Σ codes[r * dimensions + d] * query[d], in whole numbers: the caller sees to it that they fit.
    void (*dot_rows)(const int8_t* codes, int64_t num_rows, int64_t dimensions, const int16_t* query, int32_t* dots);

    double (*fma_peak)(double seconds);  // GFLOP/s of fused multiply-adds on registers, one thread
};

extern const Instructions AVX2, AVX512, GENERIC;  // those that this machine's build has (instructions_*.cpp)
