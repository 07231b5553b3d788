// The loss of clicked documents against unclicked ones, and its gradient (training/trainer/click_loss.py: eq. 3-5 and 7).
#pragma once
#include <math.h>
#include "instructions.h"
#include "vector.h"

namespace CLICKTOWER_ISA {

CLICKTOWER_INLINE float dot(const float* a, const float* b, int64_t d) {
    Vector products = all(0.0f);
    for (int64_t c = 0; c < d; c += LANES) products = fma(load(a + c), load(b + c), products);
    return sum(products);
}

// to += factor * row
CLICKTOWER_INLINE void add_scaled(float* to, float factor, const float* row, int64_t d) {
    const Vector factors = all(factor);
    for (int64_t c = 0; c < d; c += LANES) store(to + c, fma(factors, load(row + c), load(to + c)));
}

CLICKTOWER_INLINE float inverse_length(const float* row, int64_t d) {
    const float length = sqrtf(dot(row, row, d));
    return length > 0 ? 1 / length : length == length ? 0 : length;  // a NaN stays one
}

// With R = q·e / (|q| |e|), dR/dq = e / (|q| |e|) - R q / |q|², and the same with the roles exchanged. The parts along
// q and e themselves are gathered as numbers, and added at the end.
static void begin_documents(const ClickLoss& in, int64_t first, int64_t end) {
    for (int64_t i = first; i < end; ++i) {
        in.document_scale[i] = inverse_length(in.documents + i * in.d, in.d);
        in.document_along[i] = 0;
    }
    for (int64_t i = first * in.d; i < end * in.d; i += LANES) store(in.by_document + i, all(0.0f));
}

static void end_documents(const ClickLoss& in, int64_t first, int64_t end) {
    for (int64_t i = first; i < end; ++i) {
        const float scale = in.document_scale[i];
        add_scaled(in.by_document + i * in.d, -in.document_along[i] * scale * scale, in.documents + i * in.d, in.d);
    }
}

// The dot products of M queries with two documents each, d numbers a row.
template <int M>
CLICKTOWER_INLINE void dots(const float* queries, const float* one, const float* other, int64_t d, float (&of_one)[M],
                            float (&of_other)[M]) {
    Vector products[2][M];
    for (int m = 0; m < M; ++m) products[0][m] = products[1][m] = all(0.0f);
    for (int64_t c = 0; c < d; c += LANES) {
        const Vector first = load(one + c), second = load(other + c);
#pragma GCC unroll 8
        for (int m = 0; m < M; ++m) {
            const Vector query = load(queries + m * d + c);
            products[0][m] = fma(query, first, products[0][m]);
            products[1][m] = fma(query, second, products[1][m]);
        }
    }
    for (int m = 0; m < M; ++m) of_one[m] = sum(products[0][m]), of_other[m] = sum(products[1][m]);
}

#if defined(CLICKTOWER_AVX512)
constexpr int LOSS_VECTORS = 4;  // of a row, whose sums of M queries are in registers
#else
constexpr int LOSS_VECTORS = 1;
#endif

// The loss of M pairs from `pair` on, which read documents together where candidates 1 to C - 1 of all of them are the
// same, or none: a document then comes from the cache once. Sums have the order that each pair alone would have.
template <int M>
CLICKTOWER_INLINE double losses_of(const ClickLoss& in, int64_t pair) {
    const int64_t d = in.d, num = in.num_candidates;
    const int32_t* candidates = in.candidates + pair * num;
    const float* queries = in.queries + pair * d;
    float *shares = in.scratch, *similarities = shares + M * num, *by_queries = in.by_query + pair * d;
    float query_scale[M], along[M], most[M];
    for (int m = 0; m < M; ++m) {
        query_scale[m] = inverse_length(queries + m * d, d);
        along[m] = 0;
        most[m] = -INFINITY;
    }
    // The document of candidate c of any pair that has one.
    const auto shared = [candidates, num](int64_t c) {
        int32_t document = -1;
        for (int m = 0; m < M && document < 0; ++m) document = candidates[m * num + c];
        return document;
    };
    const int64_t first_shared = M > 1 ? 1 : num;
    for (int64_t c = 0; c < first_shared; ++c)
        for (int m = 0; m < M; ++m)
            if (const int64_t document = candidates[m * num + c]; document >= 0)
                similarities[m * num + c] =
                    dot(queries + m * d, in.documents + document * d, d) * query_scale[m] * in.document_scale[document];
    for (int64_t c = first_shared; c < num; c += 2) {
        const int64_t document[2] = {shared(c), c + 1 < num ? shared(c + 1) : -1};
        const float* rows[2];
        for (int i = 0; i < 2; ++i) rows[i] = document[i] < 0 ? queries : in.documents + document[i] * d;
        float products[2][M];
        dots<M>(queries, rows[0], rows[1], d, products[0], products[1]);
        for (int i = 0; i < 2; ++i)
            for (int m = 0; m < M && document[i] >= 0; ++m)
                similarities[m * num + c + i] = products[i][m] * query_scale[m] * in.document_scale[document[i]];
    }
    double losses = 0;
    for (int m = 0; m < M; ++m) {
        float *share = shares + m * num, *similarity = similarities + m * num, weight = in.weights ? in.weights[pair + m] : 1;
        for (int64_t c = 0; c < num; ++c)
            if (candidates[m * num + c] >= 0 && !(similarity[c] <= most[m])) most[m] = similarity[c];
        double total = 0;
        for (int64_t c = 0; c < num; ++c) {
            share[c] = candidates[m * num + c] < 0 ? 0 : expf(in.gamma * (similarity[c] - most[m]));
            total += share[c];
        }
        losses += weight * (log(total) + double(in.gamma) * (most[m] - similarity[0]));
        // A share becomes what its document and the query are multiplied by.
        for (int64_t c = 0; c < num; ++c) {
            const int64_t document = candidates[m * num + c];
            if (document < 0) continue;  // its share is 0
            const float by = weight * in.gamma * (static_cast<float>(share[c] / total) - (c == 0));
            share[c] = by * query_scale[m] * in.document_scale[document];
            along[m] += by * similarity[c];
            in.document_along[document] += by * similarity[c];
        }
    }
    for (int64_t i = 0; i < M * d; i += LANES) store(by_queries + i, all(0.0f));
    for (int64_t c = 0; c < first_shared; ++c)
        for (int m = 0; m < M; ++m)
            if (const int64_t document = candidates[m * num + c]; document >= 0) {
                add_scaled(by_queries + m * d, shares[m * num + c], in.documents + document * d, d);
                add_scaled(in.by_document + document * d, shares[m * num + c], queries + m * d, d);
            }
    for (int64_t column = 0; first_shared < num && column < d; column += LOSS_VECTORS * LANES) {
        const int vectors = (d - column) / LANES < LOSS_VECTORS ? (d - column) / LANES : LOSS_VECTORS;
        Vector by_query[M][LOSS_VECTORS], query[M][LOSS_VECTORS];
        for (int m = 0; m < M; ++m)
            for (int v = 0; v < vectors; ++v) {
                by_query[m][v] = load(by_queries + m * d + column + v * LANES);
                query[m][v] = load(queries + m * d + column + v * LANES);
            }
        for (int64_t c = first_shared; c < num; ++c) {
            const int64_t document = shared(c);
            if (document < 0) continue;
            const float* row = in.documents + document * d + column;
            float* by_row = in.by_document + document * d + column;
#pragma GCC unroll 8
            for (int v = 0; v < LOSS_VECTORS; ++v) {
                if (v >= vectors) break;
                const Vector at = load(row + v * LANES);
                Vector by = load(by_row + v * LANES);
#pragma GCC unroll 8
                for (int m = 0; m < M; ++m) {
                    const Vector factor = all(shares[m * num + c]);
                    by_query[m][v] = fma(factor, at, by_query[m][v]);
                    by = fma(factor, query[m][v], by);
                }
                store(by_row + v * LANES, by);
            }
        }
        for (int m = 0; m < M; ++m)
            for (int v = 0; v < vectors; ++v) store(by_queries + m * d + column + v * LANES, by_query[m][v]);
    }
    for (int m = 0; m < M; ++m)
        add_scaled(by_queries + m * d, -along[m] * query_scale[m] * query_scale[m], queries + m * d, d);
    return losses;
}

// Whether candidates 1 to C - 1 of so many pairs are the same, or none.
static bool share_candidates(const ClickLoss& in, int64_t pair, int64_t pairs) {
    const int64_t num = in.num_candidates;
    const int32_t* candidates = in.candidates + pair * num;
    for (int64_t c = 1; c < num; ++c) {
        int32_t document = -1;
        for (int64_t m = 0; m < pairs; ++m) {
            const int32_t mine = candidates[m * num + c];
            if (mine >= 0 && document >= 0 && mine != document) return false;
            if (mine >= 0) document = mine;
        }
    }
    return true;
}

static double click_loss(const ClickLoss& in, int64_t first, int64_t end) {
    double losses = 0;
    for (int64_t pair = first; pair < end;) {
        const bool together = end - pair >= PAIRS_AT_ONCE && share_candidates(in, pair, PAIRS_AT_ONCE);
        losses += together ? losses_of<PAIRS_AT_ONCE>(in, pair) : losses_of<1>(in, pair);
        pair += together ? PAIRS_AT_ONCE : 1;
    }
    return losses;
}

}  // namespace CLICKTOWER_ISA
