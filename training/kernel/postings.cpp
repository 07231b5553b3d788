// The best titles for the words of a query (training/ranking/bm25.py), by what each word adds to the score of those that
// have it.
//
// Titles are taken a block at a time, so that the scores that are added up stay in the cache; within a block words in
// their order, so that a score is the sum that NumPy makes. Of an entry eight bytes are read, one after the other.
#include <algorithm>
#include <cmath>
#include <functional>
#include <vector>

#include "interface.h"

constexpr int32_t BLOCK_TITLES = 16384;

static int64_t best(const Postings* postings, const int64_t* starts, const int64_t* ends, int64_t num_words, int64_t k,
                    float* heap, int32_t* titles, float* scores) {
    std::vector<int64_t> at(starts, starts + num_words), next(num_words);
    std::vector<float> of_block(BLOCK_TITLES, 0.0f);
    int64_t found = 0, held = 0;  // of titles and scores; of the heap of the k largest scores with the least on top
    float floor = -INFINITY;
    for (;;) {
        int32_t first = INT32_MAX;  // the lowest title that is left
        for (int64_t word = 0; word < num_words; ++word)
            if (at[word] < ends[word]) first = std::min(first, postings->titles[at[word]]);
        if (first == INT32_MAX) break;
        const int64_t last = int64_t{first} + BLOCK_TITLES;
        for (int64_t word = 0; word < num_words; ++word) {
            int64_t entry = at[word];
            for (; entry < ends[word] && postings->titles[entry] < last; ++entry)
                of_block[postings->titles[entry] - first] += postings->parts[entry];
            next[word] = entry;
        }
        for (int64_t word = 0; word < num_words; ++word) {
            for (int64_t entry = at[word]; entry < next[word]; ++entry) {
                const int32_t title = postings->titles[entry];
                const float score = of_block[title - first];
                of_block[title - first] = 0.0f;  // for the next block; and the words that come know that it was seen
                if (score == 0.0f || score < floor) continue;  // a part is above 0
                titles[found] = title;
                scores[found++] = score;
                if (held < k) {
                    heap[held++] = score;
                } else if (score > floor) {
                    std::pop_heap(heap, heap + k, std::greater<float>());
                    heap[k - 1] = score;
                } else {
                    continue;
                }
                std::push_heap(heap, heap + held, std::greater<float>());
                if (held == k) floor = heap[0];
            }
            at[word] = next[word];
        }
    }
    int64_t kept = 0;
    for (int64_t i = 0; i < found; ++i)
        if (scores[i] >= floor) {
            titles[kept] = titles[i];
            scores[kept++] = scores[i];
        }
    return kept;
}

extern "C" int64_t postings_best(const Postings* postings, const int64_t* starts, const int64_t* ends, int64_t num_words,
                                 int64_t k, float* heap, int32_t* titles, float* scores) {
    return unless_full<int64_t>(-1, [&] { return best(postings, starts, ends, num_words, k, heap, titles, scores); });
}
