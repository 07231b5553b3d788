// The recurrent towers of a chunk of sequences, forward and backward (training/towers/recurrent.py says what).
//
// Forward, a step multiplies y(t-1) of the active texts [A, d] by W_rec: a tile of texts times one group of columns is
// summed in registers, starting from W l + b, and the nonlinearities follow while the sums are still there: the
// columns of a group are all gates of the same 16 cells. Groups go around tiles: a group's weights stay in the first
// level cache while all texts pass. Backward, a step's gradient is multiplied by W_rec transposed in the same way, and
// W_rec's gradient is added up while the step's rows are in the cache.
//
// Every sum runs over its terms in one order, whatever the tile: no result depends on how texts are grouped.
#pragma once
#include "instructions.h"
#include "vector.h"

namespace CLICKTOWER_ISA {

// TILE: texts of a tile, WIDE: vectors of a group at most. The sums of a tile, a row of b and a factor have to fit in the
// registers: 8 x 3 of AVX-512's 32; of AVX2's 16, two for a vector, 6 x 1. So narrow a group's rows of b also stay in a
// first level cache of 32 KiB.
#if defined(CLICKTOWER_AVX512)
constexpr int TILE = 8, WIDE = 4;
#elif defined(CLICKTOWER_AVX2)
constexpr int TILE = 6, WIDE = 1;
#else
constexpr int TILE = 1, WIDE = 4;
#endif

// c[m][n] += Σ_k a[m][k] b[k][n], or = with FROM_ZERO, for M rows and N vectors: element (m, n) of c is at
// m * c_row + n * c_column, of a at m * a_row + k * a_step, of b at k * b_row + 16 n. A function of its own, so that
// nothing else wants the registers that hold the sums.
template <int M, int N, bool FROM_ZERO>
__attribute__((noinline)) void multiply_group(float* c, int64_t c_row, int64_t c_column, const float* a, int64_t a_row,
                                              int64_t a_step, const float* b, int64_t b_row, int64_t k) {
    Vector sums[M][N];
#pragma GCC unroll 8
    for (int m = 0; m < M; ++m)
#pragma GCC unroll 8
        for (int n = 0; n < N; ++n) sums[m][n] = FROM_ZERO ? all(0.0f) : load(c + m * c_row + n * c_column);
    for (int64_t i = 0; i < k; ++i, a += a_step, b += b_row) {
        Vector column[N];
#pragma GCC unroll 8
        for (int n = 0; n < N; ++n) column[n] = load(b + LANES * n);
#pragma GCC unroll 8
        for (int m = 0; m < M; ++m) {
            const Vector factor = all(a[m * a_row]);
#pragma GCC unroll 8
            for (int n = 0; n < N; ++n) sums[m][n] = fma(factor, column[n], sums[m][n]);
        }
    }
#pragma GCC unroll 8
    for (int m = 0; m < M; ++m)
#pragma GCC unroll 8
        for (int n = 0; n < N; ++n) store(c + m * c_row + n * c_column, sums[m][n]);
}

// The same for any N: vectors that do not fit at once, the gates of a group of cells, come one after the other.
template <int M, int N, bool FROM_ZERO>
CLICKTOWER_INLINE void multiply(float* c, int64_t c_row, int64_t c_column, const float* a, int64_t a_row, int64_t a_step,
                                const float* b, int64_t b_row, int64_t k) {
    constexpr int AT_ONCE = N <= WIDE ? N : 1;
    for (int n = 0; n < N; n += AT_ONCE)
        multiply_group<M, AT_ONCE, FROM_ZERO>(c + n * c_column, c_row, c_column, a, a_row, a_step, b + n * LANES, b_row, k);
}

// body.tile<M>(first) for tiles that cover `count` rows, at most M each and as even as can be: nine rows are five and
// four, since a tile of one or two has too few sums to keep the multipliers busy.
template <int M, class Body>
CLICKTOWER_INLINE void one_tile(int64_t first, int64_t rows, const Body& body) {
    if (rows == M) return body.template tile<M>(first);
    if constexpr (M > 1) one_tile<M - 1>(first, rows, body);
}
template <int M, class Body>
CLICKTOWER_INLINE void in_tiles(int64_t first, int64_t count, const Body& body) {
    for (int64_t tiles = (count + M - 1) / M; tiles; --tiles) {
        const int64_t rows = (count + tiles - 1) / tiles;
        one_tile<M>(first, rows, body);
        first += rows;
        count -= rows;
    }
}

// ------------------------------------------------------------------ cells

// N: vectors of a group. column(g, n): where vector n of group g stands among the gates' columns.
template <bool FORGET, bool PEEPHOLES>
struct Lstm {
    static constexpr int N = FORGET ? 4 : 3;
    static constexpr int FORGETS = FORGET ? 1 : 0;
    static constexpr int IN = 1 + FORGETS, CANDIDATE = 2 + FORGETS;
    static constexpr bool KEEPS_STATE = FORGET || PEEPHOLES;
    static int64_t groups(int64_t d) { return d / LANES; }
    static int64_t column(int64_t d, int64_t group, int n) { return n * d + LANES * group; }

    // `sums`: of one text; c and y of 16 cells; `peephole` of the same cells, gate after gate `stride` floats apart.
    static CLICKTOWER_INLINE void activate(Vector (&sums)[N], Vector& c, Vector& squashed, Vector& y, const float* peephole,
                                           int64_t stride) {
        const Vector half = all(0.5f);
        if constexpr (PEEPHOLES) {
            sums[IN] = fma(load(peephole + IN * stride), c, sums[IN]);
            if constexpr (FORGET) sums[1] = fma(load(peephole + stride), c, sums[1]);
        }
        Vector out = sums[0] * half, in = sums[IN] * half, candidate = sums[CANDIDATE];
        // The output gate's peephole looks at c(t), so its tanh waits; with it or the forget gate's three share a
        // division, without both two do.
        if constexpr (FORGET) {
            Vector keep = sums[1] * half;
            tanh_triple(keep, in, candidate);
            sums[1] = sigmoid_of(keep);
        } else if constexpr (PEEPHOLES) {
            tanh_pair(in, candidate);
        } else {
            tanh_triple(out, in, candidate);
        }
        sums[IN] = sigmoid_of(in);
        sums[CANDIDATE] = candidate;
        if constexpr (FORGET) c = fma(sums[1], c, sums[IN] * candidate);
        else c = fma(sums[IN], candidate, c);
        squashed = c;
        if constexpr (PEEPHOLES) out = fma(load(peephole), c, sums[0]) * half;
        if constexpr (FORGET || PEEPHOLES) tanh_pair(out, squashed);
        else squashed = tanh(c);
        sums[0] = sigmoid_of(out);
        y = sums[0] * squashed;
    }

    // Gates (after their nonlinearities) become the gradient by their arguments; by_c that by c(t-1).
    static CLICKTOWER_INLINE void differentiate(Vector (&gates)[N], Vector by_y, Vector& by_c, Vector squashed, Vector c,
                                         Vector previous_c, const float* peephole, float* by_peephole,
                                                int64_t stride) {
        const Vector one = all(1.0f);
        Vector out = gates[0], in = gates[IN], candidate = gates[CANDIDATE];
        Vector through = by_y * out;
        Vector by_out = through * squashed * (one - out);  // by_y tanh(c) o (1 - o)
        by_c = fma(through, one - squashed * squashed, by_c);
        if constexpr (PEEPHOLES) {
            by_c = fma(by_out, load(peephole), by_c);
            store(by_peephole, fma(by_out, c, load(by_peephole)));
        }
        Vector by_product = by_c * in;
        gates[0] = by_out;
        gates[IN] = by_product * candidate * (one - in);
        gates[CANDIDATE] = by_product * (one - candidate * candidate);
        if constexpr (FORGET) {
            Vector keep = gates[1];
            gates[1] = by_c * previous_c * keep * (one - keep);
            by_c = by_c * keep;
        }
        if constexpr (PEEPHOLES) {
            by_c = fma(gates[IN], load(peephole + IN * stride), by_c);
            store(by_peephole + IN * stride, fma(gates[IN], previous_c, load(by_peephole + IN * stride)));
            if constexpr (FORGET) {
                by_c = fma(gates[1], load(peephole + stride), by_c);
                store(by_peephole + stride, fma(gates[1], previous_c, load(by_peephole + stride)));
            }
        }
    }
};

template <int GROUP>
struct Rnn {
    static constexpr int N = GROUP;
    static int64_t groups(int64_t d) { return d / (LANES * GROUP); }
    static int64_t column(int64_t, int64_t group, int n) { return LANES * (group * GROUP + n); }
};

template <class C> struct IsLstm { static constexpr bool value = false; };
template <bool F, bool P> struct IsLstm<Lstm<F, P>> { static constexpr bool value = true; };

// Texts of a tile: as many as leave registers free for the columns' weights.
template <int N> constexpr int tile_rows() { return N > 3 && WIDE > 3 && TILE > 1 ? TILE / 2 : TILE; }

// ------------------------------------------------------------------ forward

template <class C>
struct ForwardStep {
    const Direction& direction;
    const float* inputs;
    int64_t input_stride;
    const int32_t* words;  // of the step's rows
    int64_t active, known;  // sequences that have a word, and those that have a y(t-1)
    int64_t rows_left;      // of this step and those to come
    const float* previous;  // y(t-1), [A, d]
    float *gates, *squashed, *state;  // trace rows of the step, or nullptr
    float* c;                         // [A, d]
    float* y;
    int64_t y_stride;
    int64_t group;

    template <int M>
    CLICKTOWER_INLINE void tile(int64_t first) const {
        const int64_t d = direction.cell.cells, columns = direction.cell.columns();
        float buffer[M * C::N * LANES];
        for (int m = 0; m < M; ++m) {
            const float* input = inputs + words[first + m] * input_stride;
#pragma GCC unroll 8
            for (int n = 0; n < C::N; ++n)
                store(buffer + (m * C::N + n) * LANES, load(input + C::column(d, group, n)));
        }
        // The next texts' words are anywhere in `inputs`: asked for now, they are here when this product is done. After
        // a group's last text comes the next group's first one, after the last group's the next step's.
        int64_t next = first + M, then = group;
        if (next >= active) next = ++then < C::groups(d) ? 0 : active;
        if (then == C::groups(d)) then = 0;
        for (int64_t row = next; row < next + M && row < rows_left; ++row)
#pragma GCC unroll 8
            for (int n = 0; n < C::N; ++n)
                __builtin_prefetch(inputs + words[row] * input_stride + C::column(d, then, n));
        if (first < known)
            multiply<M, C::N, false>(buffer, C::N * LANES, LANES, previous + first * d, d, 1,
                                     direction.packed + group * d * C::N * LANES, C::N * LANES, d);
        for (int m = 0; m < M; ++m) {
            const int64_t row = first + m;
            Vector sums[C::N];
#pragma GCC unroll 8
            for (int n = 0; n < C::N; ++n) sums[n] = load(buffer + (m * C::N + n) * LANES);
            if constexpr (IsLstm<C>::value) {
                const int64_t cell = LANES * group;
                float* mine = c + row * d + cell;
                Vector memory = load(mine), tanh_c, result;
                C::activate(sums, memory, tanh_c, result, direction.peepholes + cell, direction.peephole_stride);
                store(mine, memory);
                store(y + row * y_stride + cell, result);
                if (gates) {
                    store(squashed + row * d + cell, tanh_c);
                    if constexpr (C::KEEPS_STATE) store(state + row * d + cell, memory);
                }
            } else {
#pragma GCC unroll 8
                for (int n = 0; n < C::N; ++n) {
                    sums[n] = tanh(sums[n]);
                    store(y + row * y_stride + C::column(d, group, n), sums[n]);
                }
            }
            if (gates) {
#pragma GCC unroll 8
                for (int n = 0; n < C::N; ++n) store(gates + row * columns + C::column(d, group, n), sums[n]);
            }
        }
    }
};

CLICKTOWER_INLINE void zero(float* from, int64_t count) {
    for (int64_t i = 0; i < count; i += LANES) store(from + i, all(0.0f));
}

CLICKTOWER_INLINE void copy(float* to, const float* from, int64_t count) {
    for (int64_t i = 0; i < count; i += LANES) store(to + i, load(from + i));
}

CLICKTOWER_INLINE void add(float* to, const float* from, int64_t count) {
    for (int64_t i = 0; i < count; i += LANES) store(to + i, load(to + i) + load(from + i));
}

// Of the active sequences, of which some have begun before, those that have a y(t-1): without a prefix comes last.
CLICKTOWER_INLINE int64_t with_state(const Steps& steps, int64_t begun, int64_t active) {
    while (active > begun && steps.begins[active - 1] < 0) --active;
    return active;
}

template <class C>
void forward_with(const Direction& direction, const Steps& steps, const Prefixes& prefixes, const float* inputs,
                  int64_t input_stride, float* last, int64_t last_stride, float* c, const Trace* trace,
                  float* scratch) {
    const int64_t d = direction.cell.cells, columns = direction.cell.columns();
    // Without a trace y(t-1) is held twice by turns: a step reads one and writes the other.
    float* turns[2] = {scratch, scratch + steps.num_sequences * d};
    int64_t begun = 0;
    for (int32_t s = 0; s < steps.num_steps; ++s) {
        const int64_t row = steps.step_rows[s], active = steps.step_rows[s + 1] - row;
        const bool ends = s + 1 == steps.num_steps;
        float* previous = trace ? trace->previous + row * d : turns[s & 1];
        for (int64_t i = begun; i < active; ++i) {
            const int64_t from = steps.begins[i] * d;
            if (from < 0) {
                zero(previous + i * d, d);
                zero(c + i * d, d);
            } else {
                copy(previous + i * d, prefixes.y + from, d);
                copy(c + i * d, prefixes.c + from, d);
            }
        }
        ForwardStep<C> step{direction, inputs, input_stride, steps.words + row, active,
                            with_state(steps, begun, active),
                            steps.step_rows[steps.num_steps] - row, previous,
                            trace ? trace->gates + row * columns : nullptr,
                            trace && trace->squashed ? trace->squashed + row * d : nullptr,
                            trace && trace->state ? trace->state + row * d : nullptr, c,
                            ends ? last : trace ? trace->previous + (row + active) * d : turns[(s + 1) & 1],
                            ends ? last_stride : d, 0};
        for (; step.group < C::groups(d); ++step.group) in_tiles<tile_rows<C::N>()>(0, active, step);
        begun = active;
    }
}

// ------------------------------------------------------------------ backward

// by_y[m] = gradient[m] W_recᵀ, columns of one group of N vectors.
template <int N>
struct BackThroughWeights {
    const float* gradient;
    int64_t columns;
    const float* packed_t;
    float* by_y;
    int64_t d, group;

    template <int M>
    CLICKTOWER_INLINE void tile(int64_t first) const {
        multiply<M, N, true>(by_y + first * d + group * N * LANES, d, LANES, gradient + first * columns, columns, 1,
                             packed_t + group * columns * N * LANES, N * LANES, columns);
    }
};

// by_recurrent[cells, columns] += previous[rows, cells]ᵀ gradient[rows, columns]
template <int N>
struct AddOuterProducts {
    const float *previous, *gradient;
    int64_t d, columns, rows;
    float* by_recurrent;
    int64_t stride, group;

    template <int M>
    CLICKTOWER_INLINE void tile(int64_t first) const {
        multiply<M, N, false>(by_recurrent + first * stride + group * N * LANES, stride, LANES, previous + first, 1, d,
                              gradient + group * N * LANES, columns, rows);
    }
};

// Vectors of a group in the backward products: the same for pack and for both of them.
CLICKTOWER_INLINE int group_of(int64_t d) {
    return WIDE == 1 ? 1 : d % (3 * LANES) == 0 ? 3 : d % (2 * LANES) == 0 ? 2 : 1;
}

// call.with<N>() for the vectors of a group.
template <class Call>
CLICKTOWER_INLINE void for_group(int64_t d, const Call& call) {
    switch (group_of(d)) {
        case 3: return call.template with<3>();
        case 2: return call.template with<2>();
        default: return call.template with<1>();
    }
}

// [d, columns] with `stride` floats a row, transposed in groups of rows as BackThroughWeights reads it.
CLICKTOWER_INLINE void pack_transposed(int64_t d, int64_t columns, const float* matrix, int64_t stride, float* packed_t) {
    const int64_t width = LANES * group_of(d);
    for (int64_t first = 0; first < d; first += width)
        for (int64_t k = 0; k < columns; ++k)
            for (int64_t row = first; row < first + width; ++row) *packed_t++ = matrix[row * stride + k];
}

// by_y = gradient matrixᵀ
struct MultiplyBack {
    int64_t d, columns;
    const float *packed_t, *gradient;
    int64_t rows;
    float* by_y;
    template <int N> void with() const {
        BackThroughWeights<N> back{gradient, columns, packed_t, by_y, d, 0};
        for (; back.group < d / (LANES * N); ++back.group) in_tiles<TILE>(0, rows, back);
    }
};

// by_matrix += previousᵀ gradient
struct MultiplyOuter {
    int64_t d, columns;
    const float *previous, *gradient;
    int64_t rows;
    float* by_matrix;
    int64_t stride;
    template <int N> void with() const {
        AddOuterProducts<N> outer{previous, gradient, d, columns, rows, by_matrix, stride, 0};
        for (; outer.group < columns / (LANES * N); ++outer.group) in_tiles<TILE>(0, d, outer);
    }
};

// to[words[i]] += gradient[i], one row after the other: a word that is often there stays in the cache. The next ones are
// asked for before their turn.
CLICKTOWER_INLINE void add_by_word(float* to, int64_t to_stride, const int32_t* words, const float* gradient,
                                   int64_t rows, int64_t columns) {
    constexpr int AHEAD = 6;
    for (int64_t i = 0; i < rows; ++i, gradient += columns) {
        if (i + AHEAD < rows)
            for (int64_t n = 0; n < columns; n += LANES) __builtin_prefetch(to + words[i + AHEAD] * to_stride + n, 1);
        add(to + words[i] * to_stride, gradient, columns);
    }
}

constexpr int64_t ROWS_AHEAD = 3;  // of a trace: read last step first, it is nothing that a processor foresees
template <class C>
CLICKTOWER_INLINE void prefetch_row(const Trace& trace, int64_t row, int64_t d) {
    const auto prefetch = [row](const float* kept, int64_t count) {
        for (int64_t n = 0; n < count; n += LANES) __builtin_prefetch(kept + row * count + n);
    };
    prefetch(trace.gates, C::groups(d) * C::N * LANES);
    prefetch(trace.previous, d);
    if constexpr (IsLstm<C>::value) {
        prefetch(trace.squashed, d);
        if constexpr (C::KEEPS_STATE) prefetch(trace.state, d);
    }
}

template <class C>
void backward_with(const Direction& direction, const Steps& steps, const Prefixes& prefixes, const Trace& trace,
                   const float* by_last, int64_t by_last_stride, float* by_c, int32_t max_steps, float* by_inputs,
                   float* by_recurrent, int64_t stride, float* by_peepholes, float* scratch) {
    const int64_t d = direction.cell.cells, columns = direction.cell.columns();
    float *by_y = scratch, *gradient = scratch + steps.num_sequences * d;  // by W l(t) + b of a step
    for (int64_t i = 0; i < steps.num_sequences; ++i) copy(by_y + i * d, by_last + i * by_last_stride, d);
    const int32_t first = max_steps && max_steps < steps.num_steps ? steps.num_steps - max_steps : 0;
    for (int32_t s = steps.num_steps - 1; s >= first; --s) {
        const int64_t start = steps.step_rows[s], active = steps.step_rows[s + 1] - start;
        const int64_t begun = s ? start - steps.step_rows[s - 1] : 0;
        for (int64_t i = 0; i < active; ++i) {
            const int64_t row = start + i;
            if (i + ROWS_AHEAD < active) prefetch_row<C>(trace, row + ROWS_AHEAD, d);
            for (int64_t group = 0; group < C::groups(d); ++group) {
                const float* mine = trace.gates + row * columns;
                Vector gates[C::N];
#pragma GCC unroll 8
                for (int n = 0; n < C::N; ++n) gates[n] = load(mine + C::column(d, group, n));
                if constexpr (IsLstm<C>::value) {
                    const int64_t cell = LANES * group;
                    Vector down = load(by_c + i * d + cell), c = all(0.0f), previous_c = all(0.0f);
                    if constexpr (C::KEEPS_STATE) {
                        c = load(trace.state + row * d + cell);
                        if (i < begun) previous_c = load(trace.state + (row - begun) * d + cell);
                        else if (steps.begins[i] >= 0) previous_c = load(prefixes.c + steps.begins[i] * d + cell);
                    }
                    C::differentiate(gates, load(by_y + i * d + cell), down, load(trace.squashed + row * d + cell), c,
                                     previous_c, direction.peepholes + cell, by_peepholes + cell,
                                     direction.peephole_stride);
                    store(by_c + i * d + cell, down);
                } else {
#pragma GCC unroll 8
                    for (int n = 0; n < C::N; ++n)
                        gates[n] = load(by_y + i * d + C::column(d, group, n)) * (all(1.0f) - gates[n] * gates[n]);
                }
#pragma GCC unroll 8
                for (int n = 0; n < C::N; ++n) store(gradient + i * columns + C::column(d, group, n), gates[n]);
            }
        }
        add_by_word(by_inputs, stride, steps.words + start, gradient, active, columns);
        const int64_t known = with_state(steps, begun, active);
        if (!known) continue;
        // The gradient of W_rec counts the first step kept too; what lies before it is cut off.
        const float* previous = trace.previous + start * d;
        for_group(d, MultiplyBack{d, columns, direction.packed_t, gradient, known, by_y});
        for_group(d, MultiplyOuter{d, columns, previous, gradient, known, by_recurrent, stride});
        for (int64_t i = begun; i < known; ++i) {
            const int64_t to = steps.begins[i] * d;
            if (to < 0) continue;
            add(prefixes.by_y + to, by_y + i * d, d);
            add(prefixes.by_c + to, by_c + i * d, d);
        }
    }
}

// ------------------------------------------------------------------ by cell

template <class C>
void pack_with(int64_t d, int64_t columns, const float* recurrent, int64_t stride, float* packed, float* packed_t) {
    for (int64_t group = 0; group < C::groups(d); ++group)
        for (int64_t k = 0; k < d; ++k)
            for (int n = 0; n < C::N; ++n, packed += LANES)
                store(packed, load(recurrent + k * stride + C::column(d, group, n)));
    pack_transposed(d, columns, recurrent, stride, packed_t);
}

// call<C>() of the cell's own type.
template <class Call>
CLICKTOWER_INLINE void for_cell(const Cell& cell, const Call& call) {
    if (cell.kind == LSTM) {
        if (cell.forget_gate && cell.peepholes) return call.template with<Lstm<true, true>>();
        if (cell.forget_gate) return call.template with<Lstm<true, false>>();
        if (cell.peepholes) return call.template with<Lstm<false, true>>();
        return call.template with<Lstm<false, false>>();
    }
    switch (group_of(cell.cells)) {
        case 3: return call.template with<Rnn<3>>();
        case 2: return call.template with<Rnn<2>>();
        default: return call.template with<Rnn<1>>();
    }
}

struct Pack {
    const Cell& cell;
    const float* recurrent;
    int64_t stride;
    float *packed, *packed_t;
    template <class C> void with() const {
        pack_with<C>(cell.cells, cell.columns(), recurrent, stride, packed, packed_t);
    }
};
static void pack(const Cell& cell, const float* recurrent, int64_t stride, float* packed, float* packed_t) {
    for_cell(cell, Pack{cell, recurrent, stride, packed, packed_t});
}

struct Forward {
    const Direction& direction;
    const Steps& steps;
    const Prefixes& prefixes;
    const float* inputs;
    int64_t input_stride;
    float* last;
    int64_t last_stride;
    float* c;
    const Trace* trace;
    float* scratch;
    template <class C> void with() const {
        forward_with<C>(direction, steps, prefixes, inputs, input_stride, last, last_stride, c, trace, scratch);
    }
};
static void forward(const Direction& direction, const Steps& steps, const Prefixes& prefixes, const float* inputs,
                    int64_t input_stride, float* last, int64_t last_stride, float* c, const Trace* trace,
                    float* scratch) {
    for_cell(direction.cell,
             Forward{direction, steps, prefixes, inputs, input_stride, last, last_stride, c, trace, scratch});
}

struct Backward {
    const Direction& direction;
    const Steps& steps;
    const Prefixes& prefixes;
    const Trace& trace;
    const float* by_last;
    int64_t by_last_stride;
    float* by_c;
    int32_t max_steps;
    float *by_inputs, *by_recurrent;
    int64_t stride;
    float *by_peepholes, *scratch;
    template <class C> void with() const {
        backward_with<C>(direction, steps, prefixes, trace, by_last, by_last_stride, by_c, max_steps, by_inputs,
                         by_recurrent, stride, by_peepholes, scratch);
    }
};
static void backward(const Direction& direction, const Steps& steps, const Prefixes& prefixes, const Trace& trace,
                     const float* by_last, int64_t by_last_stride, float* by_c, int32_t max_steps,
                     float* by_inputs, float* by_recurrent, int64_t stride, float* by_peepholes, float* scratch) {
    for_cell(direction.cell, Backward{direction, steps, prefixes, trace, by_last, by_last_stride, by_c, max_steps,
                                      by_inputs, by_recurrent, stride, by_peepholes, scratch});
}

}  // namespace CLICKTOWER_ISA
