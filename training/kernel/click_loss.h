// The loss of clicked documents against unclicked ones, and its gradient (training/click_loss.py: eq. 3-5 and 7).
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

CLICKTOWER_INLINE void inverse_lengths(const float* rows, int64_t num_rows, int64_t d, float* inverse) {
    for (int64_t r = 0; r < num_rows; ++r) {
        const float length = sqrtf(dot(rows + r * d, rows + r * d, d));
        inverse[r] = length > 0 ? 1 / length : length == length ? 0 : length;  // a NaN stays one
    }
}

// With R = q·e / (|q| |e|), dR/dq = e / (|q| |e|) - R q / |q|², and the same with the roles exchanged. The parts along
// q and e themselves are gathered as numbers, and added at the end.
static double click_loss(const ClickLoss& in) {
    const int64_t d = in.d, num = in.num_candidates;
    float *query_scale = in.scratch, *document_scale = query_scale + in.num_pairs;
    float *document_along = document_scale + in.num_documents, *share = document_along + in.num_documents;
    float* similarity = share + num;
    inverse_lengths(in.queries, in.num_pairs, d, query_scale);
    inverse_lengths(in.documents, in.num_documents, d, document_scale);
    // Documents are numbered from the first one given.
    const auto number = [&](int32_t candidate) { return candidate - in.first_document; };
    for (int64_t i = 0; i < in.num_documents; ++i) document_along[i] = 0;
    for (int64_t i = 0; i < in.num_documents * d; i += LANES) store(in.by_document + i, all(0.0f));
    double losses = 0;
    for (int64_t pair = 0; pair < in.num_pairs; ++pair) {
        const int32_t* candidates = in.candidates + pair * num;
        const float *query = in.queries + pair * d, weight = in.weights ? in.weights[pair] : 1;
        float most = -INFINITY;
        for (int64_t c = 0; c < num; ++c) {
            if (candidates[c] < 0) continue;
            const int64_t document = number(candidates[c]);
            similarity[c] =
                dot(query, in.documents + document * d, d) * query_scale[pair] * document_scale[document];
            if (!(similarity[c] <= most)) most = similarity[c];
        }
        double total = 0;
        for (int64_t c = 0; c < num; ++c) {
            share[c] = candidates[c] < 0 ? 0 : expf(in.gamma * (similarity[c] - most));
            total += share[c];
        }
        losses += weight * (log(total) + double(in.gamma) * (most - similarity[0]));
        float *by_query = in.by_query + pair * d, along = 0;
        for (int64_t i = 0; i < d; i += LANES) store(by_query + i, all(0.0f));
        for (int64_t c = 0; c < num; ++c) {
            if (candidates[c] < 0) continue;
            const int64_t document = number(candidates[c]);
            const float by = weight * in.gamma * (static_cast<float>(share[c] / total) - (c == 0));
            const float both = by * query_scale[pair] * document_scale[document];
            add_scaled(by_query, both, in.documents + document * d, d);
            add_scaled(in.by_document + document * d, both, query, d);
            along += by * similarity[c];
            document_along[document] += by * similarity[c];
        }
        add_scaled(by_query, -along * query_scale[pair] * query_scale[pair], query, d);
    }
    for (int64_t i = 0; i < in.num_documents; ++i)
        add_scaled(in.by_document + i * d, -document_along[i] * document_scale[i] * document_scale[i],
                   in.documents + i * d, d);
    return losses;
}

}  // namespace CLICKTOWER_ISA
