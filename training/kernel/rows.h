// Rows of tables and gradients: gathered and summed, moved, stepped, and added up over micro-batches.
#pragma once
#include "instructions.h"
#include "vector.h"

namespace CLICKTOWER_ISA {

constexpr int AT_ONCE = 6;  // vectors of a row that are summed in registers together, or 8 where these divide a row
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
    if (g.columns % (8 * LANES) == 0)
        for (; column < g.columns; column += 8 * LANES) gather_columns<8>(g, column);
    for (; column + AT_ONCE * LANES <= g.columns; column += AT_ONCE * LANES) gather_columns<AT_ONCE>(g, column);
    for (; column + 2 * LANES <= g.columns; column += 2 * LANES) gather_columns<2>(g, column);
    for (; column < g.columns; column += LANES) gather_columns<1>(g, column);
}

// ------------------------------------------------------------------ update

// A row of the parameters and of the velocity, some rows before its turn: rows are anywhere, which no processor foresees.
CLICKTOWER_INLINE void prefetch_row(const TouchedRows& of, int64_t r) {
    if (r >= of.num_rows) return;
    const int64_t at = of.rows[r] * of.columns;
    for (int64_t c = 0; c < of.columns; c += LANES) {
        __builtin_prefetch(of.parameters + at + c);
        __builtin_prefetch(of.velocity + at + c);
    }
}

static void look_ahead(const TouchedRows& of, int64_t first, int64_t last) {
    for (int64_t r = first; r < last; ++r) {
        prefetch_row(of, r + 2);
        const float *p = of.parameters + of.rows[r] * of.columns, *v = of.velocity + of.rows[r] * of.columns;
        const Vector by_velocity = all(of.gain[r] + of.decay[r]);
        float* to = of.ahead + r * of.columns;
        for (int64_t c = 0; c < of.columns; c += LANES) store(to + c, fma(load(v + c), by_velocity, load(p + c)));
        if (of.rows[r] < of.num_places) of.place[of.rows[r]] = static_cast<int32_t>(r);
    }
}

static void step(const TouchedRows& of, int64_t first, int64_t last, float by_gradient) {
    for (int64_t r = first; r < last; ++r) {
        prefetch_row(of, r + 2);
        float *p = of.parameters + of.rows[r] * of.columns, *v = of.velocity + of.rows[r] * of.columns;
        const float* gradient = of.gradient + r * of.columns;
        const Vector gain = all(of.gain[r]), decay = all(of.decay[r]), by = all(by_gradient);
        for (int64_t c = 0; c < of.columns; c += LANES) {
            const Vector before = load(v + c), after = fma(load(gradient + c), by, before * decay);
            store(v + c, after);
            store(p + c, fma(before, gain, load(p + c)) + after);
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
    Fixed sum;
    CLICKTOWER_INLINE FixedSum() : sum(no_sum()) {}
    CLICKTOWER_INLINE void add(Vector value) { add_fixed(sum, value); }
    CLICKTOWER_INLINE void keep(int64_t* to) const { store_fixed(to, sum); }
};
struct FloatSum {
    Vector sum;
    CLICKTOWER_INLINE FloatSum() : sum(all(0.0f)) {}
    CLICKTOWER_INLINE void add(Vector value) { sum = sum + value; }
    CLICKTOWER_INLINE void keep(float* to) const { store(to, sum); }
};

static void squares(const TouchedRows& of, int64_t first, int64_t last) {
    for (int64_t r = first; r < last; ++r) {
        Vector squares = all(0.0f);
        for (int64_t c = 0; c < of.columns; c += LANES) {
            const Vector value = load(of.gradient + r * of.columns + c);
            squares = fma(value, value, squares);
        }
        of.squares[r] = sum(squares);
    }
}

CLICKTOWER_INLINE void row_from_fixed(const TouchedRows& of, int64_t r, const int64_t* fixed) {
    for (int64_t c = 0; c < of.columns; c += LANES) store(of.gradient + r * of.columns + c, to_floats(fixed + c));
    squares(of, r, r + 1);
}

static void from_fixed(const TouchedRows& of, int64_t first, int64_t last) {
    for (int64_t r = first; r < last; ++r) row_from_fixed(of, r, of.fixed + r * of.columns);
}

// Adds up rows first to last, one after the other; to(r) is where the sums of row r go, finish(r) gets them there. A
// value that is not below the limit is not added, and its addend is marked.
template <class Sum, class To, class Finish>
CLICKTOWER_INLINE void sum_rows(const TouchedRows& of, int64_t first, int64_t last, const To& to,
                                const Finish& finish) {
    // Each addend's first row that is not below the current one.
    auto* next = static_cast<int64_t*>(__builtin_alloca(of.num_addends * sizeof(int64_t)));
    auto* whose = static_cast<int64_t*>(__builtin_alloca(of.num_addends * sizeof(int64_t)));
    auto** mine = static_cast<const float**>(__builtin_alloca(of.num_addends * sizeof(float*)));
    for (int64_t a = 0; a < of.num_addends; ++a) {
        int64_t low = 0, high = first < last ? of.addends[a].num_rows : 0;
        while (low < high) {
            const int64_t middle = (low + high) / 2;
            if (of.addends[a].rows[middle] < of.rows[first]) low = middle + 1;
            else high = middle;
        }
        next[a] = low;
    }
    const Vector most = all(of.limit);
    for (int64_t r = first; r < last; ++r) {
        int64_t found = 0;
        for (int64_t a = 0; a < of.num_addends; ++a) {
            const Addend& addend = of.addends[a];
            if (next[a] >= addend.num_rows || addend.rows[next[a]] != of.rows[r]) continue;
            mine[found] = addend.values + next[a]++ * of.columns;
            whose[found++] = a;
            // The rows of an addend that are needed follow one another, though not at once.
            if (next[a] < addend.num_rows)
                for (int64_t c = 0; c < of.columns; c += LANES) __builtin_prefetch(mine[found - 1] + of.columns + c);
        }
        auto* sums = to(r);
        for (int64_t c = 0; c < of.columns; c += LANES) {
            Sum sum;
            for (int64_t a = 0; a < found; ++a) {
                const Vector value = load(mine[a] + c);
                if (all_below(value, most)) sum.add(value);
                else __atomic_store_n(of.misfits + whose[a], 1, __ATOMIC_RELAXED);  // by any thread
            }
            sum.keep(sums + c);
        }
        finish(r);
    }
}

static void sum_to_fixed(const TouchedRows& of, int64_t first, int64_t last) {
    sum_rows<FixedSum>(of, first, last, [&](int64_t r) { return of.fixed + r * of.columns; }, [](int64_t) {});
}

static void sum_in_order(const TouchedRows& of, int64_t first, int64_t last) {
    sum_rows<FloatSum>(of, first, last, [&](int64_t r) { return of.gradient + r * of.columns; },
                       [&](int64_t r) { squares(of, r, r + 1); });
}

static void sum_exactly(const TouchedRows& of, int64_t first, int64_t last, int64_t* one_row) {
    sum_rows<FixedSum>(of, first, last, [&](int64_t) { return one_row; },
                       [&](int64_t r) { row_from_fixed(of, r, one_row); });
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
