// A tower over a batch, and a micro-batch from words to the gradient of every parameter, by one thread:
//
//   W l + b of each distinct word  ->  prefixes, then chunks of texts through the steps  ->  loss  ->  back through them
//   ->  gradient of each distinct word  ->  of each trigram's row
//
// A sum has one order, given by the batch alone, so a micro-batch has the same gradient on any thread.
#include <algorithm>
#include <cstring>
#include <memory>

#include "crew.h"
#include "gradient.h"

namespace {

const Batch::Ints& words_of(const Batch& batch, int32_t direction) {
    return direction ? batch.packed_words_reversed : batch.packed_words;
}

Steps steps_of(const Batch& batch, int32_t chunk, int32_t direction) {
    const int32_t first = batch.chunk_steps[chunk];
    const int32_t begin = batch.chunk_sequences[chunk];
    return {batch.chunk_sequences[chunk + 1] - begin, batch.chunk_steps[chunk + 1] - first - 1,
            batch.begins.data() + begin, batch.step_rows.data() + first, words_of(batch, direction).data()};
}

int64_t largest_chunk(const Batch& batch) {
    int64_t most = 0;
    for (int32_t c = 0; c < batch.num_chunks(); ++c)
        most = std::max<int64_t>(most, batch.chunk_sequences[c + 1] - batch.chunk_sequences[c]);
    return most;
}

// A tower's way forward over a batch, chunk by chunk, those of prefixes first.
struct Forward {
    const Batch& batch;
    const Weights& weights;
    const int64_t d = weights.cell.cells, columns = weights.columns(), dimensions = weights.dimensions();
    const int32_t num_prefix_chunks = batch.num_prefix_chunks();
    const float* inputs;  // W l + b of each distinct word
    float *last, *temporary;
    Prefixes prefixes;

    Forward(const TowerPoint& tower, const Batch& batch) : batch(batch), weights(*tower.weights) {
        inputs = word_inputs(tower, batch, weights.bias.data());
        last = scratch.take(largest_chunk(batch) * dimensions);
        temporary = scratch.take(largest_chunk(batch) * (2 * d + std::max(d, weights.cell.columns())));
        prefixes = {scratch.take(batch.num_prefixes() * d), scratch.take(batch.num_prefixes() * d), nullptr, nullptr};
    }

    // What is kept for the way back goes to traces[direction], unless that is nullptr; y of each text to `texts`, as the
    // batch's caller numbers them.
    void run(int32_t chunk, const Trace* traces, float* texts) const {
        const int32_t first = batch.chunk_sequences[chunk];
        const bool of_prefixes = chunk < num_prefix_chunks;  // and then there is one direction
        for (int32_t number = 0; number < weights.directions; ++number) {
            const Steps steps = steps_of(batch, chunk, number);
            instructions().forward(weights.direction(number), steps, prefixes,
                                   inputs + number * weights.cell.columns(), columns,
                                   of_prefixes ? prefixes.y + first * d : last + number * d, dimensions,
                                   of_prefixes ? prefixes.c + first * d : temporary,
                                   traces ? traces + number : nullptr, temporary + steps.num_sequences * d);
        }
        if (of_prefixes) return;
        for (int32_t i = first; i < batch.chunk_sequences[chunk + 1]; ++i)
            std::memcpy(texts + batch.order[i - batch.num_prefixes()] * dimensions, last + (i - first) * dimensions,
                        dimensions * sizeof(float));
    }
};

// And back. From chunk `first_turn` on each goes forward and back before the next one does, so that all share the memory
// of what only those two ways need: it stays in the cache.
struct Pass : Forward {
    int32_t first_turn;
    float *texts, *by_word;
    Trace traces[2];

    // The texts from number `num_shared` on take turns.
    Pass(const TowerPoint& tower, const Batch& batch, int64_t num_shared) : Forward(tower, batch) {
        first_turn = num_prefix_chunks;
        while (first_turn < batch.num_chunks() && first_text(first_turn) < num_shared) ++first_turn;
        texts = scratch.take(batch.num_texts() * dimensions);
        by_word = zeros(batch.num_words() * columns);
        prefixes.by_y = zeros(batch.num_prefixes() * d);
        prefixes.by_c = zeros(batch.num_prefixes() * d);
        const Cell& cell = weights.cell;
        int64_t kept = 0;
        for (int32_t c = first_turn; c < batch.num_chunks(); ++c)
            kept = std::max(kept, packed_end(c) - packed_begin(c));
        kept += packed_begin(first_turn);
        for (int32_t number = 0; number < weights.directions; ++number)
            traces[number] = {scratch.take(kept * cell.columns()),
                              cell.kind == LSTM ? scratch.take(kept * d) : nullptr, scratch.take(kept * d),
                              cell.forget_gate || cell.peepholes ? scratch.take(kept * d) : nullptr};
    }

    static float* zeros(int64_t count) {
        float* made = scratch.take(count);
        std::memset(made, 0, count * sizeof(float));
        return made;
    }

    // The first text of a chunk that is not of prefixes, in sorted order.
    int64_t first_text(int32_t chunk) const { return batch.chunk_sequences[chunk] - batch.num_prefixes(); }
    int64_t packed_begin(int32_t chunk) const { return chunk ? packed_end(chunk - 1) : 0; }
    int64_t packed_end(int32_t chunk) const { return batch.step_rows[batch.chunk_steps[chunk + 1] - 1]; }

    // Where a packed row would be in memory that holds what takes no turns and one chunk.
    Trace trace(int32_t number, int32_t chunk) const {
        Trace found = traces[number];
        if (chunk > first_turn) {
            const int64_t left_out = packed_begin(chunk) - packed_begin(first_turn);
            found.gates -= left_out * weights.cell.columns();
            for (float** kept : {&found.squashed, &found.previous, &found.state})
                if (*kept) *kept -= left_out * d;
        }
        return found;
    }

    void forward(int32_t chunk) const {
        const Trace kept[2] = {trace(0, chunk), trace(weights.directions - 1, chunk)};
        run(chunk, kept, texts);
    }

    // The rows below the table are `dense`, zero before the first chunk.
    void backward(int32_t chunk, const float* by_texts, int32_t max_steps, float* dense) const {
        const int32_t first = batch.chunk_sequences[chunk], end = batch.chunk_sequences[chunk + 1];
        const bool of_prefixes = chunk < num_prefix_chunks;
        if (!of_prefixes)
            for (int32_t i = first; i < end; ++i)
                std::memcpy(last + (i - first) * dimensions,
                            by_texts + batch.order[i - batch.num_prefixes()] * dimensions, dimensions * sizeof(float));
        const int64_t direction_columns = weights.cell.columns();
        for (int32_t number = 0; number < weights.directions; ++number) {
            const Trace kept = trace(number, chunk);
            float* by_c = of_prefixes ? prefixes.by_c + first * d : temporary;
            if (!of_prefixes) std::memset(by_c, 0, (end - first) * d * sizeof(float));
            instructions().backward(weights.direction(number), steps_of(batch, chunk, number), prefixes, kept,
                                    of_prefixes ? prefixes.by_y + first * d : last + number * d, dimensions, by_c,
                                    max_steps, by_word + number * direction_columns,
                                    dense + number * direction_columns, columns,
                                    dense + (d + 1) * columns + number * d, temporary + (end - first) * d);
        }
    }

    // Those of prefixes, when all texts went back: longer before shorter.
    void backward_prefixes(float* dense) const {
        for (int32_t chunk = num_prefix_chunks; chunk--;) backward(chunk, nullptr, 0, dense);
    }

    // The gradient of each row of W, and of b, from those of all distinct words.
    void scatter(float* rows, float* by_bias) {
        scatter_words(batch, by_word, columns, rows);
        static thread_local std::vector<int32_t> all_words;
        while (static_cast<int32_t>(all_words.size()) < batch.num_words())
            all_words.push_back(static_cast<int32_t>(all_words.size()));
        const int32_t ends[2] = {0, batch.num_words()};
        instructions().gather_sum(
            {by_bias, columns, 1, ends, all_words.data(), nullptr, by_word, columns, columns, nullptr});
    }
};

Weights* packed(const Cell& cell, int32_t directions, const float* recurrent, const float* bias,
                const float* peepholes) {
    auto made = std::make_unique<Weights>(Weights{cell, directions, {}, {}, {}, {}});
    if (cell.kind == BAG) return made.release();
    made->bias.assign(bias, bias + made->columns());
    if (cell.kind == DSSM) {
        made->packed.resize(int64_t(cell.cells) * cell.outputs);
        made->packed_t.resize(made->packed.size());
        made->peepholes.assign(peepholes, peepholes + cell.outputs);
        instructions().pack_layer(made->layer(), recurrent, made->packed.data(), made->packed_t.data());
        return made.release();
    }
    const int64_t size = cell.columns() * cell.cells;
    made->packed.resize(size * directions);
    made->packed_t.resize(size * directions);
    if (peepholes) made->peepholes.assign(peepholes, peepholes + made->peephole_floats());
    for (int32_t number = 0; number < directions; ++number)
        instructions().pack(cell, recurrent + number * cell.columns(), made->columns(),
                            made->packed.data() + number * size, made->packed_t.data() + number * size);
    return made.release();
}

}  // namespace

extern "C" Weights* weights_new(const Cell* cell, int32_t directions, const float* recurrent, const float* bias,
                                const float* peepholes) {
    return unless_full<Weights*>(nullptr, [&] { return packed(*cell, directions, recurrent, bias, peepholes); });
}
extern "C" void weights_free(Weights* weights) { delete weights; }

extern "C" Workspace* workspace_new() { return unless_full<Workspace*>(nullptr, [] { return new Workspace; }); }
extern "C" void workspace_free(Workspace* workspace) { delete workspace; }
extern "C" void workspace_addend(const Workspace* workspace, int32_t side, Addend* addend) {
    const auto& chosen = workspace->sides[side];
    *addend = {chosen.rows.data(), chosen.values.get(), static_cast<int64_t>(chosen.rows.size())};
}

extern "C" int32_t tower_encode(const TowerPoint* tower, const Batch* batch, float* out) {
    return unless_full<int32_t>(-1, [&] {
        scratch.reset();
        if (tower->weights->cell.adds_up()) return encode_sums(*tower, *batch, out), 0;
        const Forward forward(*tower, *batch);
        for (int32_t chunk = 0; chunk < batch->num_chunks(); ++chunk) forward.run(chunk, nullptr, out);
        return 0;
    });
}

static double loss_and_gradient(Workspace* workspace, const PairTask* task) {
    scratch.reset();
    if (task->query.weights->cell.adds_up()) return sums_gradient(*workspace, *task);
    const int64_t pairs = task->queries->num_texts();
    Pass queries(task->query, *task->queries, pairs), documents(task->document, *task->documents, task->num_shared);
    const ClickLoss losses = click_loss_of(*task, queries.texts, documents.texts, queries.dimensions);
    float *by_query = losses.by_query, *by_document = losses.by_document;
    Workspace::Side *query_side = &workspace->sides[0], *document_side = &workspace->sides[1];
    float* query_dense = query_side->prepare(queries.batch, queries.weights, task->table_rows);
    float* document_dense = document_side->prepare(documents.batch, documents.weights, task->table_rows);

    for (int32_t chunk = 0; chunk < queries.batch.num_chunks(); ++chunk) queries.forward(chunk);
    const int32_t num_chunks = documents.batch.num_chunks(), first_turn = documents.first_turn;
    for (int32_t chunk = 0; chunk < first_turn; ++chunk) documents.forward(chunk);
    instructions().begin_documents(losses, 0, task->num_shared);
    double loss = 0;
    int64_t pair = 0;
    for (int32_t chunk = first_turn; chunk < num_chunks; ++chunk) {
        documents.forward(chunk);
        const int64_t first = documents.first_text(chunk), end = documents.first_text(chunk + 1);
        const int64_t next_pair = task->pair_ends[chunk - first_turn];
        instructions().begin_documents(losses, first, end);
        loss += instructions().click_loss(losses, pair, next_pair);
        instructions().end_documents(losses, first, end);
        pair = next_pair;
        documents.backward(chunk, by_document, task->max_steps, document_dense);
    }
    loss += instructions().click_loss(losses, pair, pairs);
    instructions().end_documents(losses, 0, task->num_shared);
    for (int32_t chunk = documents.num_prefix_chunks; chunk < first_turn; ++chunk)
        documents.backward(chunk, by_document, task->max_steps, document_dense);
    documents.backward_prefixes(document_dense);
    for (int32_t chunk = queries.num_prefix_chunks; chunk < queries.batch.num_chunks(); ++chunk)
        queries.backward(chunk, by_query, task->max_steps, query_dense);
    queries.backward_prefixes(query_dense);

    queries.scatter(query_side->values.get(), query_dense + queries.d * queries.columns);
    documents.scatter(document_side->values.get(), document_dense + documents.d * documents.columns);
    return loss;
}

extern "C" Crew* crew_new(int32_t num_threads) {
    return unless_full<Crew*>(nullptr, [&] { return new Crew(num_threads); });
}
extern "C" void crew_free(Crew* crew) { delete crew; }

extern "C" int32_t pair_gradients(Crew* crew, Workspace* const* workspaces, const PairTask* tasks, int64_t num_tasks,
                                  double* losses) {
    return unless_full<int32_t>(-1, [&] {
        crew->share_out(num_tasks, [&](int64_t t) { losses[t] = loss_and_gradient(workspaces[t], tasks + t); });
        return 0;
    });
}

namespace {

constexpr int64_t ROWS_OF_RANGE = 256;  // no number depends on it

// do_range(range) for ranges of all rows of some stretches; -1 where there is no memory, otherwise 0.
template <class DoRange>
int32_t in_ranges(Crew* crew, const Stretch* stretches, int64_t num_stretches, const DoRange& do_range) {
    return unless_full<int32_t>(-1, [&] {
        std::vector<Stretch> ranges;
        for (int64_t s = 0; s < num_stretches; ++s)
            for (Stretch left = stretches[s]; left.first < left.last; left.first += ROWS_OF_RANGE) {
                ranges.push_back(left);
                ranges.back().last = std::min(left.first + ROWS_OF_RANGE, left.last);
            }
        crew->share_out(ranges.size(), [&](int64_t i) { do_range(ranges[i]); });
        return 0;
    });
}

}  // namespace

extern "C" int32_t rows_make(Crew* crew, const Stretch* stretches, int64_t num_stretches, int32_t what) {
    const Instructions& with = instructions();
    return in_ranges(crew, stretches, num_stretches, [&](const Stretch& range) {
        const TouchedRows& of = *range.of;
        switch (what) {
            case LOOK_AHEAD: return with.look_ahead(of, range.first, range.last);
            case SUM_TO_FIXED: return with.sum_to_fixed(of, range.first, range.last);
            case SUM_IN_ORDER: return with.sum_in_order(of, range.first, range.last);
            case SUM_EXACTLY: {
                std::vector<int64_t> one_row(of.columns);
                return with.sum_exactly(of, range.first, range.last, one_row.data());
            }
            case FROM_FIXED: return with.from_fixed(of, range.first, range.last);
            case SQUARES: return with.squares(of, range.first, range.last);
            case STEP: return with.step(of, range.first, range.last, range.by_gradient);
        }
    });
}
