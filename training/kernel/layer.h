// A layer of tanh units above another one (DSSM), forward and backward, in blocks of rows that stay in the cache.
#pragma once
#include "instructions.h"
#include "recurrent.h"
#include "vector.h"

namespace CLICKTOWER_ISA {

constexpr int64_t LAYER_ROWS = 64;

static void pack_layer(const Layer& layer, const float* matrix, float* packed, float* packed_t) {
    const int64_t columns = LANES * group_of(layer.outputs);
    for (int64_t first = 0; first < layer.outputs; first += columns)
        for (int64_t k = 0; k < layer.inputs; ++k, packed += columns) copy(packed, matrix + k * layer.outputs + first, columns);
    pack_transposed(layer.inputs, layer.outputs, matrix, layer.outputs, packed_t);
}

// y += x W, columns of one group of N vectors.
template <int N>
struct ThroughLayer {
    const float *x, *packed;
    int64_t inputs, outputs;
    float* y;
    int64_t group;

    template <int M>
    CLICKTOWER_INLINE void tile(int64_t first) const {
        multiply<M, N, false>(y + first * outputs + group * N * LANES, outputs, LANES, x + first * inputs, inputs, 1,
                              packed + group * inputs * N * LANES, N * LANES, inputs);
    }
};

struct LayerForward {
    const Layer& layer;
    const float* x;
    int64_t rows;
    float* y;
    template <int N> void with() const {
        ThroughLayer<N> through{x, layer.packed, layer.inputs, layer.outputs, y, 0};
        for (; through.group < layer.outputs / (LANES * N); ++through.group) in_tiles<TILE>(0, rows, through);
    }
};

static void layer(const Layer& layer, float* x, int64_t rows, float* y) {
    const int64_t inputs = layer.inputs, outputs = layer.outputs;
    for (int64_t first = 0; first < rows; first += LAYER_ROWS, x += LAYER_ROWS * inputs, y += LAYER_ROWS * outputs) {
        const int64_t count = rows - first < LAYER_ROWS ? rows - first : LAYER_ROWS;
        for (int64_t i = 0; i < count * inputs; i += LANES) store(x + i, tanh(load(x + i)));
        for (int64_t row = 0; row < count; ++row) copy(y + row * outputs, layer.bias, outputs);
        for_group(outputs, LayerForward{layer, x, count, y});
        for (int64_t i = 0; i < count * outputs; i += LANES) store(y + i, tanh(load(y + i)));
    }
}

// by *= 1 - activation²; each row is added to `sum`.
CLICKTOWER_INLINE void through_tanh(float* by, const float* activation, int64_t rows, int64_t columns, float* sum) {
    for (int64_t row = 0; row < rows; ++row)
        for (int64_t c = 0; c < columns; c += LANES) {
            const Vector at = load(activation + row * columns + c);
            const Vector by_argument = load(by + row * columns + c) * (all(1.0f) - at * at);
            store(by + row * columns + c, by_argument);
            store(sum + c, load(sum + c) + by_argument);
        }
}

static void layer_back(const Layer& layer, const float* hidden, const float* y, int64_t rows, float* by_y, float* by_x,
                       const LayerGradient& gradient) {
    const int64_t inputs = layer.inputs, outputs = layer.outputs;
    for (int64_t first = 0; first < rows; first += LAYER_ROWS) {
        const int64_t count = rows - first < LAYER_ROWS ? rows - first : LAYER_ROWS;
        through_tanh(by_y, y, count, outputs, gradient.by_bias);
        for_group(inputs, MultiplyBack{inputs, outputs, layer.packed_t, by_y, count, by_x});
        for_group(outputs, MultiplyOuter{inputs, outputs, hidden, by_y, count, gradient.by_matrix, outputs});
        through_tanh(by_x, hidden, count, inputs, gradient.by_inputs);
        hidden += LAYER_ROWS * inputs, by_x += LAYER_ROWS * inputs;
        y += LAYER_ROWS * outputs, by_y += LAYER_ROWS * outputs;
    }
}

}  // namespace CLICKTOWER_ISA
