// What the gradients of all towers share: memory, weights, words in and out (gradient.cpp, sums.cpp).
#pragma once
#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>
#include <numeric>
#include <vector>

#include "interface.h"

constexpr int64_t ALIGNMENT = 16;  // floats: a cache line

// Rows are read from all over: in pages of 2 MiB, where the system has them, their addresses are found sooner.
struct Free {
    void operator()(float* floats) const { std::free(floats); }
};
using Floats = std::unique_ptr<float[], Free>;
inline Floats in_large_pages(int64_t count) {
    constexpr size_t PAGE = size_t{1} << 21;
    const size_t bytes = (count * sizeof(float) + PAGE - 1) / PAGE * PAGE;
    auto* made = static_cast<float*>(std::aligned_alloc(PAGE, bytes));
    if (!made) throw std::bad_alloc();
#if defined(MADV_HUGEPAGE)
    madvise(made, bytes, MADV_HUGEPAGE);
#endif
    return Floats(made);
}

// Floats for one use, grown but never shrunk or cleared. What is handed out is lost at the next reset.
class Arena {
  public:
    void reset() { used_ = 0; block_ = 0; }
    float* take(int64_t count) {
        count = (count + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
        while (block_ < blocks_.size() && used_ + count > blocks_[block_].size) { ++block_; used_ = 0; }
        if (block_ == blocks_.size()) {
            const int64_t size = count > BLOCK ? count + count / 4 : BLOCK;
            blocks_.push_back({in_large_pages(size), size});
            used_ = 0;
        }
        used_ += count;
        return blocks_[block_].floats.get() + used_ - count;
    }

  private:
    static constexpr int64_t BLOCK = 1 << 20;
    struct Block { Floats floats; int64_t size; };
    std::vector<Block> blocks_;
    size_t block_ = 0;
    int64_t used_ = 0;
};

inline thread_local Arena scratch;

// A tower's parts but W. Of DSSM `bias` is b, `packed` and `packed_t` are W_s, and `peepholes` is b_s.
struct Weights {
    Cell cell;
    int32_t directions;
    std::vector<float> packed, packed_t, bias, peepholes;

    int64_t columns() const { return cell.columns() * directions; }
    int64_t dimensions() const { return cell.kind == DSSM ? cell.outputs : int64_t(cell.cells) * directions; }
    int64_t peephole_floats() const { return cell.num_peepholes() * dimensions(); }
    // Rows of a tower's matrix below the table (training.model.parameters): W_rec, b, peepholes; of DSSM b, W_s, b_s.
    int64_t dense_rows() const {
        const auto rows = [this](int64_t floats) { return (floats + columns() - 1) / columns(); };
        if (cell.kind == BAG) return 0;
        if (cell.kind == DSSM) return 1 + cell.outputs + rows(cell.outputs);
        return cell.cells + 1 + rows(peephole_floats());
    }
    Direction direction(int32_t number) const {
        const int64_t size = cell.columns() * cell.cells;
        return {cell, packed.data() + number * size, packed_t.data() + number * size,
                peepholes.data() + number * cell.cells, dimensions()};
    }
    Layer layer() const { return {cell.cells, cell.outputs, packed.data(), packed_t.data(), peepholes.data()}; }
};

// The gradient of one micro-batch.
struct Workspace {
    struct Side {
        std::vector<int32_t> rows;
        Floats values;
        int64_t capacity = 0;

        // Room for the rows of W that a batch touches, then the dense ones, which are returned and zero.
        float* prepare(const Batch& batch, const Weights& weights, int64_t table_rows) {
            const int64_t sparse = batch.num_rows(), dense = weights.dense_rows(), columns = weights.columns();
            rows.assign(batch.rows.begin(), batch.rows.end());
            rows.resize(sparse + dense);
            std::iota(rows.begin() + sparse, rows.end(), static_cast<int32_t>(table_rows));
            if (const int64_t count = (sparse + dense) * columns; count > capacity) {
                capacity = count + count / 4;
                values = in_large_pages(capacity);
            }
            float* at = values.get() + sparse * columns;
            std::memset(at, 0, dense * columns * sizeof(float));
            return at;
        }
    } sides[2];
};

// W l of each distinct word, [words, columns], plus `start` unless that is nullptr.
inline float* word_inputs(const TowerPoint& tower, const Batch& batch, const float* start) {
    const int64_t columns = tower.weights->columns();
    float* inputs = scratch.take(batch.num_words() * columns);
    instructions().gather_sum({inputs, columns, batch.num_words(), batch.word_offsets.data(),
                               batch.word_trigrams.data(), tower.place, tower.table, columns, columns, start});
    return inputs;
}

// The gradient of each row of W from those of all distinct words.
inline void scatter_words(const Batch& batch, const float* by_word, int64_t columns, float* rows) {
    instructions().gather_sum({rows, columns, batch.num_rows(), batch.row_word_offsets.data(),
                               batch.row_words.data(), nullptr, by_word, columns, columns, nullptr});
}

// The loss of a task's pairs, with room for its gradient.
inline ClickLoss click_loss_of(const PairTask& task, const float* queries, const float* documents, int64_t d) {
    const int64_t pairs = task.queries->num_texts(), texts = task.documents->num_texts();
    return {queries, documents, task.candidates, task.pair_weights, task.num_candidates, d, task.gamma,
            scratch.take(pairs * d), scratch.take(texts * d), scratch.take(texts), scratch.take(texts),
            scratch.take(2 * PAIRS_AT_ONCE * task.num_candidates)};
}

// Towers that add up all words at once (sums.cpp), as tower_encode and pair_gradients have them.
void encode_sums(const TowerPoint& tower, const Batch& batch, float* out);
double sums_gradient(Workspace& workspace, const PairTask& task);
