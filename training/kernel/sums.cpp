// Towers that add up all words of a text at once (training/towers/bag.py): the bag, and DSSM, which has two layers above it.
//
//   W l of each distinct word  ->  their sum in each text  (->  tanh  ->  W_s, tanh)  ->  loss  ->  the same way back
//
// They need neither steps nor chunks: both sums, over the words of a text and over the texts of a word, are lists.
#include "gradient.h"

namespace {

// A list of numbers for each of some things.
struct Lists {
    std::vector<int32_t> offsets, values;

    // `each(add)` calls add(thing, value) for every value, twice the same, in the order they shall have.
    template <class Each>
    Lists(int32_t num_things, int32_t num_values, const Each& each) : offsets(num_things + 1), values(num_values) {
        each([this](int32_t thing, int32_t) { ++offsets[thing + 1]; });
        std::partial_sum(offsets.begin(), offsets.end(), offsets.begin());
        std::vector<int32_t> next(offsets.begin(), offsets.end() - 1);
        each([this, &next](int32_t thing, int32_t value) { values[next[thing]++] = value; });
    }
};

// The distinct words of each text, in sorted order, in reading order. Texts share no prefixes here.
Lists words_of_texts(const Batch& batch) {
    return {batch.num_texts(), batch.num_packed(), [&batch](const auto& add) {
        for (int32_t chunk = 0; chunk < batch.num_chunks(); ++chunk)
            for (int32_t step = batch.chunk_steps[chunk]; step + 1 < batch.chunk_steps[chunk + 1]; ++step)
                for (int32_t row = batch.step_rows[step]; row < batch.step_rows[step + 1]; ++row)
                    add(batch.chunk_sequences[chunk] + row - batch.step_rows[step], batch.packed_words[row]);
    }};
}

Lists texts_of_words(const Batch& batch, const Lists& words) {
    return {batch.num_words(), batch.num_packed(), [&](const auto& add) {
        for (int32_t text = 0; text < batch.num_texts(); ++text)
            for (int32_t at = words.offsets[text]; at < words.offsets[text + 1]; ++at) add(words.values[at], text);
    }};
}

// The texts of a batch through a tower, in sorted order.
struct Sums {
    const Batch& batch;
    const Weights& weights;
    const int64_t columns = weights.columns(), dimensions = weights.dimensions(), num_texts = batch.num_texts();
    const bool has_layers = weights.cell.kind == DSSM;
    const Lists words;
    float *sums, *texts;  // [texts, columns], the hidden units of DSSM; [texts, dimensions]

    Sums(const TowerPoint& tower, const Batch& batch)
        : batch(batch), weights(*tower.weights), words(words_of_texts(batch)) {
        const float* inputs = word_inputs(tower, batch, nullptr);
        texts = scratch.take(num_texts * dimensions);
        sums = has_layers ? scratch.take(num_texts * columns) : texts;
        instructions().gather_sum({sums, columns, num_texts, words.offsets.data(), words.values.data(), nullptr,
                                   inputs, columns, columns, has_layers ? weights.bias.data() : nullptr});
        if (has_layers) instructions().layer(weights.layer(), sums, num_texts, texts);
    }

    // The embeddings, as the batch's caller numbers texts.
    void write(float* out) const {
        for (int64_t i = 0; i < num_texts; ++i)
            std::memcpy(out + batch.order[i] * dimensions, texts + i * dimensions, dimensions * sizeof(float));
    }

    // `by_callers`: by the embeddings, as the caller numbers texts. The rows below the table are `dense`, zero before.
    void backward(const float* by_callers, float* rows, float* dense) const {
        float* by_texts = scratch.take(num_texts * dimensions);
        for (int64_t i = 0; i < num_texts; ++i)
            std::memcpy(by_texts + i * dimensions, by_callers + batch.order[i] * dimensions, dimensions * sizeof(float));
        float* by_sums = by_texts;
        if (has_layers) {
            by_sums = scratch.take(num_texts * columns);
            instructions().layer_back(weights.layer(), sums, texts, num_texts, by_texts, by_sums,
                                      {dense, dense + columns, dense + columns * (1 + dimensions)});
        }
        const Lists texts_of = texts_of_words(batch, words);
        float* by_word = scratch.take(batch.num_words() * columns);
        instructions().gather_sum({by_word, columns, batch.num_words(), texts_of.offsets.data(),
                                   texts_of.values.data(), nullptr, by_sums, columns, columns, nullptr});
        scatter_words(batch, by_word, columns, rows);
    }
};

}  // namespace

void encode_sums(const TowerPoint& tower, const Batch& batch, float* out) { Sums(tower, batch).write(out); }

double sums_gradient(Workspace& workspace, const PairTask& task) {
    const Sums queries(task.query, *task.queries), documents(task.document, *task.documents);
    float* of_queries = scratch.take(queries.num_texts * queries.dimensions);
    float* of_documents = scratch.take(documents.num_texts * documents.dimensions);
    queries.write(of_queries);
    documents.write(of_documents);
    const ClickLoss losses = click_loss_of(task, of_queries, of_documents, queries.dimensions);
    Workspace::Side &query_side = workspace.sides[0], &document_side = workspace.sides[1];
    float* query_dense = query_side.prepare(queries.batch, queries.weights, task.table_rows);
    float* document_dense = document_side.prepare(documents.batch, documents.weights, task.table_rows);
    instructions().begin_documents(losses, 0, documents.num_texts);
    const double loss = instructions().click_loss(losses, 0, queries.num_texts);
    instructions().end_documents(losses, 0, documents.num_texts);
    queries.backward(losses.by_query, query_side.values.get(), query_dense);
    documents.backward(losses.by_document, document_side.values.get(), document_dense);
    return loss;
}
