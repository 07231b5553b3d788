// Rows of tables and gradients: gathered and summed, moved, stepped, and added up over micro-batches.
#pragma once
#include "instructions.h"
#include "vector.h"

namespace CLICKTOWER_ISA {

constexpr int AT_ONCE = 6;  // vectors of a row that are summed in registers together
constexpr int AHEAD = 6;    // rows that are asked for before their turn comes

// ------------------------------------------------------------------ gather and sum

template <int N>
CLICKTOWER_INLINE void gather_columns(const GatherSum& g, int64_t column) {
    const int32_t end = g.offsets[g.num_out];
    for (int64_t r = 0; r < g.num_out; ++r) {
        float* out = g.out + r * g.out_stride + column;
        Vector sums[N];
#pragma GCC unroll 8
        for (int n = 0; n < N; ++n)
            sums[n] = g.start ? load(g.start + column + n * LANES) : all(0.0f);
        for (int32_t j = g.offsets[r]; j < g.offsets[r + 1]; ++j) {
            if (j + AHEAD < end) {
                const int32_t later = g.place ? g.place[g.list[j + AHEAD]] : g.list[j + AHEAD];
                const float* there = g.from + later * g.from_stride + column;
#pragma GCC unroll 8
                for (int n = 0; n < N; ++n) __builtin_prefetch(there + n * LANES);
            }
            const int32_t at = g.place ? g.place[g.list[j]] : g.list[j];
            const float* row = g.from + at * g.from_stride + column;
#pragma GCC unroll 8
            for (int n = 0; n < N; ++n) sums[n] = sums[n] + load(row + n * LANES);
        }
#pragma GCC unroll 8
        for (int n = 0; n < N; ++n) store(out + n * LANES, sums[n]);
    }
}

static void gather_sum(const GatherSum& g) {
    int64_t column = 0;
    for (; column + AT_ONCE * LANES <= g.columns; column += AT_ONCE * LANES) gather_columns<AT_ONCE>(g, column);
    for (; column < g.columns; column += LANES) gather_columns<1>(g, column);
}

// ------------------------------------------------------------------ update

// A row that is `columns` floats of each, some rows before its turn: rows are anywhere, which no processor foresees.
CLICKTOWER_INLINE void prefetch_row(const float* parameters, const float* velocity, const int64_t* rows, int64_t r,
                                    int64_t num_rows, int64_t columns) {
    if (r + 2 >= num_rows) return;
    const int64_t at = rows[r + 2] * columns;
    for (int64_t c = 0; c < columns; c += LANES) {
        __builtin_prefetch(parameters + at + c);
        __builtin_prefetch(velocity + at + c);
    }
}

static void move_rows(const float* parameters, const float* velocity, const int64_t* rows, int64_t num_rows,
                      int64_t columns, const float* by_velocity, float* to) {
    for (int64_t r = 0; r < num_rows; ++r, to += columns) {
        prefetch_row(parameters, velocity, rows, r, num_rows, columns);
        const float *p = parameters + rows[r] * columns, *v = velocity + rows[r] * columns;
        const Vector by = all(by_velocity[r]);
        for (int64_t c = 0; c < columns; c += LANES) store(to + c, fma(load(v + c), by, load(p + c)));
    }
}

static void step_rows(float* parameters, float* velocity, const int64_t* rows, int64_t num_rows, int64_t columns,
                      const float* gain, const float* decay, const float* gradient, float step, float scale) {
    const Vector by_gradient = all(-step * scale);
    for (int64_t r = 0; r < num_rows; ++r, gradient += columns) {
        prefetch_row(parameters, velocity, rows, r, num_rows, columns);
        float *p = parameters + rows[r] * columns, *v = velocity + rows[r] * columns;
        const Vector gains = all(gain[r]), decays = all(decay[r]);
        for (int64_t c = 0; c < columns; c += LANES) {
            const Vector before = load(v + c), after = fma(load(gradient + c), by_gradient, before * decays);
            store(v + c, after);
            store(p + c, fma(before, gains, load(p + c)) + after);
        }
    }
}

// ------------------------------------------------------------------ sums over micro-batches

constexpr float UNIT = 0x1p-40f, UNITS = 0x1p40f;

// Values times 2^40, cut to integers, added to sums[0..15]; true where all are below `limit` in size.
#if defined(CLICKTOWER_AVX512)
struct Fixed { __m512i low, high; };
CLICKTOWER_INLINE Fixed no_sum() { return {_mm512_setzero_si512(), _mm512_setzero_si512()}; }
CLICKTOWER_INLINE void add_fixed(Fixed& sum, Vector value) {
    const __m512 scaled = _mm512_mul_ps(value.v, _mm512_set1_ps(UNITS));
    const __m256 low = _mm512_castps512_ps256(scaled), high = _mm512_extractf32x8_ps(scaled, 1);
    sum.low = _mm512_add_epi64(sum.low, _mm512_cvttps_epi64(low));
    sum.high = _mm512_add_epi64(sum.high, _mm512_cvttps_epi64(high));
}
CLICKTOWER_INLINE void store_fixed(int64_t* to, Fixed sum) {
    _mm512_storeu_si512(to, sum.low);
    _mm512_storeu_si512(to + 8, sum.high);
}
CLICKTOWER_INLINE bool all_below(Vector value, Vector limit) {
    return _mm512_cmp_ps_mask(_mm512_abs_ps(value.v), limit.v, _CMP_LT_OQ) == 0xFFFF;
}
CLICKTOWER_INLINE Vector to_floats(const int64_t* from) {
    const __m256 low = _mm512_cvtepi64_ps(_mm512_loadu_si512(from));
    const __m256 high = _mm512_cvtepi64_ps(_mm512_loadu_si512(from + 8));
    return {_mm512_mul_ps(_mm512_insertf32x8(_mm512_castps256_ps512(low), high, 1), _mm512_set1_ps(UNIT))};
}
#else
struct Fixed { int64_t lane[LANES]; };
CLICKTOWER_INLINE Fixed no_sum() { return {}; }
CLICKTOWER_INLINE void add_fixed(Fixed& sum, Vector value) {
    float lane[LANES];
    store(lane, value * all(UNITS));
    for (int i = 0; i < LANES; ++i) sum.lane[i] += static_cast<int64_t>(lane[i]);
}
CLICKTOWER_INLINE void store_fixed(int64_t* to, const Fixed& sum) {
    for (int i = 0; i < LANES; ++i) to[i] = sum.lane[i];
}
CLICKTOWER_INLINE bool all_below(Vector value, Vector limit) {
    float lane[LANES], most[LANES];
    store(lane, value);
    store(most, limit);
    bool below = true;
    for (int i = 0; i < LANES; ++i) below &= __builtin_fabsf(lane[i]) < most[i];
    return below;
}
CLICKTOWER_INLINE Vector to_floats(const int64_t* from) {
    float lane[LANES];
    for (int i = 0; i < LANES; ++i) lane[i] = static_cast<float>(from[i]) * UNIT;
    return load(lane);
}
#endif

struct FixedSum {
    using Number = int64_t;
    Fixed sum;
    CLICKTOWER_INLINE FixedSum() : sum(no_sum()) {}
    CLICKTOWER_INLINE void add(Vector value) { add_fixed(sum, value); }
    CLICKTOWER_INLINE void keep(int64_t* to) const { store_fixed(to, sum); }
};
struct FloatSum {
    using Number = float;
    Vector sum;
    CLICKTOWER_INLINE FloatSum() : sum(all(0.0f)) {}
    CLICKTOWER_INLINE void add(Vector value) { sum = sum + value; }
    CLICKTOWER_INLINE void keep(float* to) const { store(to, sum); }
};

CLICKTOWER_INLINE double square_sum(const float* row, int64_t columns) {
    Vector squares = all(0.0f);
    for (int64_t c = 0; c < columns; c += LANES) {
        const Vector value = load(row + c);
        squares = fma(value, value, squares);
    }
    return sum(squares);
}

static void squares(const float* rows, int64_t num_rows, int64_t columns, double* squares) {
    for (int64_t r = 0; r < num_rows; ++r) squares[r] = square_sum(rows + r * columns, columns);
}

static void from_fixed(const int64_t* sums, int64_t num_rows, int64_t columns, float* to, double* squares) {
    for (int64_t r = 0; r < num_rows; ++r, to += columns) {
        for (int64_t c = 0; c < columns; c += LANES) store(to + c, to_floats(sums + r * columns + c));
        squares[r] = square_sum(to, columns);
    }
}

// The sums at rows first to last of `rows`, one after the other; finish(row from `first`, its sums) gets each where
// `sums` is, which moves by `stride` a row. A value that is not below the limit is not added, and its addend is marked.
template <class Sum, class Finish>
CLICKTOWER_INLINE void sum_rows(const RowSum& in, typename Sum::Number* sums, int64_t stride, const Finish& finish) {
    // Each addend's first row that is not below the current one.
    auto* next = static_cast<int64_t*>(__builtin_alloca(in.num_addends * sizeof(int64_t)));
    auto* whose = static_cast<int64_t*>(__builtin_alloca(in.num_addends * sizeof(int64_t)));
    auto** mine = static_cast<const float**>(__builtin_alloca(in.num_addends * sizeof(float*)));
    for (int64_t a = 0; a < in.num_addends; ++a) {
        int64_t low = 0, high = in.first < in.last ? in.addends[a].num_rows : 0;
        while (low < high) {
            const int64_t middle = (low + high) / 2;
            if (in.addends[a].rows[middle] < in.rows[in.first]) low = middle + 1;
            else high = middle;
        }
        next[a] = low;
    }
    const Vector most = all(in.limit);
    for (int64_t r = in.first; r < in.last; ++r, sums += stride) {
        int64_t found = 0;
        for (int64_t a = 0; a < in.num_addends; ++a) {
            const Addend& addend = in.addends[a];
            if (next[a] >= addend.num_rows || addend.rows[next[a]] != in.rows[r]) continue;
            mine[found] = addend.values + next[a]++ * in.columns;
            whose[found++] = a;
            // The rows of an addend that are needed follow one another, though not at once.
            if (next[a] < addend.num_rows)
                for (int64_t c = 0; c < in.columns; c += LANES) __builtin_prefetch(mine[found - 1] + in.columns + c);
        }
        for (int64_t c = 0; c < in.columns; c += LANES) {
            Sum sum;
            for (int64_t a = 0; a < found; ++a) {
                const Vector value = load(mine[a] + c);
                if (all_below(value, most)) sum.add(value);
                else in.misfits[whose[a]] = 1;
            }
            sum.keep(sums + c);
        }
        finish(r - in.first, sums);
    }
}

static void sum_exactly(const RowSum& in, int64_t* sums) {
    sum_rows<FixedSum>(in, sums, in.columns, [](int64_t, int64_t*) {});
}

static void sum_fast(const RowSum& in, float* sums, double* row_squares) {
    sum_rows<FloatSum>(in, sums, in.columns, [&](int64_t row, float* sum) {
        if (row_squares) row_squares[row] = square_sum(sum, in.columns);
    });
}

static void sum_exactly_to_floats(const RowSum& in, int64_t* one_row, float* to, double* row_squares) {
    sum_rows<FixedSum>(in, one_row, 0, [&](int64_t row, int64_t* sum) {
        from_fixed(sum, 1, in.columns, to + row * in.columns, row_squares + row);
    });
}

// ------------------------------------------------------------------ the machine

// Chains of fused multiply-adds that never leave the registers, for about as many seconds of processor time as asked.
static double fma_peak(double seconds) {
    constexpr int CHAINS = TILE == 8 ? 16 : 6;
    Vector chain[CHAINS];
    for (int i = 0; i < CHAINS; ++i) chain[i] = all(1.0f + 0.001f * i);
    const Vector factor = all(0.999f), offset = all(0.001f);
    struct timespec start, now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &start);
    double elapsed = 0;
    int64_t rounds = 0;
    while (elapsed < seconds) {
        for (int64_t i = 0; i < 100000; ++i) {
#pragma GCC unroll 16
            for (int n = 0; n < CHAINS; ++n) chain[n] = fma(chain[n], factor, offset);
        }
        rounds += 100000;
        clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
        elapsed = (now.tv_sec - start.tv_sec) + 1e-9 * (now.tv_nsec - start.tv_nsec);
    }
    Vector rest = chain[0];
    for (int i = 1; i < CHAINS; ++i) rest = rest + chain[i];
    volatile float kept = sum(rest);  // without a use of the result the loop would go
    (void)kept;
    return 2.0 * LANES * CHAINS * rounds / elapsed * 1e-9;
}

}  // namespace CLICKTOWER_ISA
