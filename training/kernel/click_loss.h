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

static double click_loss(const ClickLoss& in, int64_t first, int64_t end) {
    const int64_t d = in.d, num = in.num_candidates;
    float *share = in.scratch, *similarity = share + num;
    double losses = 0;
    for (int64_t pair = first; pair < end; ++pair) {
        const int32_t* candidates = in.candidates + pair * num;
        const float *query = in.queries + pair * d, weight = in.weights ? in.weights[pair] : 1;
        const float query_scale = inverse_length(query, d);
        float most = -INFINITY;
        for (int64_t c = 0; c < num; ++c) {
            if (candidates[c] < 0) continue;
            const int64_t document = candidates[c];
            similarity[c] = dot(query, in.documents + document * d, d) * query_scale * in.document_scale[document];
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
            const int64_t document = candidates[c];
            const float by = weight * in.gamma * (static_cast<float>(share[c] / total) - (c == 0));
            const float both = by * query_scale * in.document_scale[document];
            add_scaled(by_query, both, in.documents + document * d, d);
            add_scaled(in.by_document + document * d, both, query, d);
            along += by * similarity[c];
            in.document_along[document] += by * similarity[c];
        }
        add_scaled(by_query, -along * query_scale * query_scale, query, d);
    }
    return losses;
}

}  // namespace CLICKTOWER_ISA
