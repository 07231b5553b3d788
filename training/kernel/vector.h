// Sixteen floats as one value, for the instruction set that the including file was compiled for.
//
// Every operation rounds like the scalar one, in each lane alone, and a product is fused with a sum only where `fma`
// says so. A lane's result is therefore the same bits whether sixteen lanes are one AVX-512 register, two AVX2
// registers or sixteen scalars: models do not depend on the processor.
//
// The including file sets CLICKTOWER_AVX512 or CLICKTOWER_AVX2 (or neither) and the namespace CLICKTOWER_ISA. Nothing
// here may use the standard library's templates: their inline functions, compiled for one instruction set, could be
// the copy that the linker keeps for a processor without it.
#pragma once
#include <stdint.h>
#if defined(CLICKTOWER_AVX512) || defined(CLICKTOWER_AVX2)
#include <immintrin.h>
#endif

#define CLICKTOWER_INLINE inline __attribute__((always_inline))

namespace CLICKTOWER_ISA {

constexpr int LANES = 16;

#if defined(CLICKTOWER_AVX512)

struct Vector { __m512 v; };
CLICKTOWER_INLINE Vector load(const float* from) { return {_mm512_loadu_ps(from)}; }
CLICKTOWER_INLINE void store(float* to, Vector a) { _mm512_storeu_ps(to, a.v); }
CLICKTOWER_INLINE Vector all(float a) { return {_mm512_set1_ps(a)}; }
CLICKTOWER_INLINE Vector fma(Vector a, Vector b, Vector c) { return {_mm512_fmadd_ps(a.v, b.v, c.v)}; }
CLICKTOWER_INLINE Vector operator+(Vector a, Vector b) { return {_mm512_add_ps(a.v, b.v)}; }
CLICKTOWER_INLINE Vector operator-(Vector a, Vector b) { return {_mm512_sub_ps(a.v, b.v)}; }
CLICKTOWER_INLINE Vector operator*(Vector a, Vector b) { return {_mm512_mul_ps(a.v, b.v)}; }
CLICKTOWER_INLINE Vector operator/(Vector a, Vector b) { return {_mm512_div_ps(a.v, b.v)}; }
CLICKTOWER_INLINE Vector lesser(Vector a, Vector b) { return {_mm512_min_ps(a.v, b.v)}; }
CLICKTOWER_INLINE Vector greater(Vector a, Vector b) { return {_mm512_max_ps(a.v, b.v)}; }

#elif defined(CLICKTOWER_AVX2)

struct Vector { __m256 low, high; };
CLICKTOWER_INLINE Vector load(const float* from) { return {_mm256_loadu_ps(from), _mm256_loadu_ps(from + 8)}; }
CLICKTOWER_INLINE void store(float* to, Vector a) { _mm256_storeu_ps(to, a.low); _mm256_storeu_ps(to + 8, a.high); }
CLICKTOWER_INLINE Vector all(float a) { return {_mm256_set1_ps(a), _mm256_set1_ps(a)}; }
CLICKTOWER_INLINE Vector fma(Vector a, Vector b, Vector c) {
    return {_mm256_fmadd_ps(a.low, b.low, c.low), _mm256_fmadd_ps(a.high, b.high, c.high)};
}
#define CLICKTOWER_PAIRWISE(name, op) \
    CLICKTOWER_INLINE Vector name(Vector a, Vector b) { return {op(a.low, b.low), op(a.high, b.high)}; }
CLICKTOWER_PAIRWISE(operator+, _mm256_add_ps)
CLICKTOWER_PAIRWISE(operator-, _mm256_sub_ps)
CLICKTOWER_PAIRWISE(operator*, _mm256_mul_ps)
CLICKTOWER_PAIRWISE(operator/, _mm256_div_ps)
CLICKTOWER_PAIRWISE(lesser, _mm256_min_ps)
CLICKTOWER_PAIRWISE(greater, _mm256_max_ps)
#undef CLICKTOWER_PAIRWISE

#else

typedef float Lanes __attribute__((vector_size(64)));
struct Vector { Lanes v; };
CLICKTOWER_INLINE Vector load(const float* from) { Vector r; __builtin_memcpy(&r.v, from, 64); return r; }
CLICKTOWER_INLINE void store(float* to, Vector a) { __builtin_memcpy(to, &a.v, 64); }
CLICKTOWER_INLINE Vector all(float a) { return {a - Lanes{}}; }
CLICKTOWER_INLINE Vector fma(Vector a, Vector b, Vector c) {
    for (int i = 0; i < LANES; ++i) c.v[i] = __builtin_fmaf(a.v[i], b.v[i], c.v[i]);
    return c;
}
CLICKTOWER_INLINE Vector operator+(Vector a, Vector b) { return {a.v + b.v}; }
CLICKTOWER_INLINE Vector operator-(Vector a, Vector b) { return {a.v - b.v}; }
CLICKTOWER_INLINE Vector operator*(Vector a, Vector b) { return {a.v * b.v}; }
CLICKTOWER_INLINE Vector operator/(Vector a, Vector b) { return {a.v / b.v}; }
CLICKTOWER_INLINE Vector lesser(Vector a, Vector b) { return {a.v < b.v ? a.v : b.v}; }  // of NaN: b, as x86 has it
CLICKTOWER_INLINE Vector greater(Vector a, Vector b) { return {a.v > b.v ? a.v : b.v}; }

#endif

// The sum of sixteen lanes, always as the same tree.
CLICKTOWER_INLINE float sum(Vector a) {
    float lane[LANES];
    store(lane, a);
    for (int width = LANES / 2; width; width /= 2)
        for (int i = 0; i < width; ++i) lane[i] += lane[i + width];
    return lane[0];
}

// tanh as x P(x²) / Q(x²), a fit of our own over |x| <= 9 with least squares reweighted towards the largest error:
// 2e-8 relative before rounding, 3e-7 absolute in floats, where tanh itself rounds to 1 within 3e-8. Returned as a
// quotient, so that gates can share a division. A NaN stays one: x86's minimum returns its second argument for it.
struct Quotient { Vector over, under; };
CLICKTOWER_INLINE Quotient tanh_quotient(Vector x) {
    x = lesser(all(9.0f), greater(all(-9.0f), x));
    Vector u = x * x;
    Vector p = fma(all(0x1.cad936p-27f), u, all(0x1.59c206p-16f));
    p = fma(p, u, all(0x1.ca2bdap-9f));
    p = fma(p, u, all(0x1.120b08p-3f));
    p = fma(p, u, all(1.0f));
    Vector q = fma(all(0x1.a17dd8p-21f), u, all(0x1.588546p-12f));
    q = fma(q, u, all(0x1.a7f7a2p-6f));
    q = fma(q, u, all(0x1.de5acep-2f));
    q = fma(q, u, all(1.0f));
    return {x * p, q};
}
CLICKTOWER_INLINE Vector tanh(Vector x) { Quotient t = tanh_quotient(x); return t.over / t.under; }
// Two tanh with one division, which costs as much as a dozen products.
CLICKTOWER_INLINE void tanh_pair(Vector& x, Vector& y) {
    const Quotient a = tanh_quotient(x), b = tanh_quotient(y);
    const Vector inverse = all(1.0f) / (a.under * b.under);
    x = a.over * (b.under * inverse);
    y = b.over * (a.under * inverse);
}
// Three tanh with one division. Each divisor is between 1 and 2.4e3 (|x| <= 9), so their product is far from overflow.
CLICKTOWER_INLINE void tanh_triple(Vector& x, Vector& y, Vector& z) {
    const Quotient a = tanh_quotient(x), b = tanh_quotient(y), c = tanh_quotient(z);
    const Vector ab = a.under * b.under, inverse = all(1.0f) / (ab * c.under), without_c = c.under * inverse;
    x = a.over * (b.under * without_c);
    y = b.over * (a.under * without_c);
    z = c.over * (ab * inverse);
}
// sigmoid(x) = 1/2 + tanh(x/2) / 2
CLICKTOWER_INLINE Vector sigmoid_of(Vector half_tanh) { return fma(half_tanh, all(0.5f), all(0.5f)); }

}  // namespace CLICKTOWER_ISA
