// Which of many vectors may be among the k nearest to a query, found with their copies of eight bits.
//
// What a row is ranked by, its dot product with the query (less half its own square, for distances), lies between `low`
// and `high`: that of its copy, less or more what the copy can be off. Where k rows have a `low` of at least `floor`, the
// k-th largest is not below it, so a row whose `high` is cannot be among them. Exactness is the caller's, who computes
// the few that are left.
#include <algorithm>
#include <cmath>
#include <functional>

#include "interface.h"

constexpr int64_t BLOCK_ROWS = 128;

extern "C" int64_t nearest_candidates(const Int8Rows* rows, const Int16Query* query, const int64_t* starts,
                                      const int64_t* ends, int64_t num_ranges, int64_t k, float* lows, float* highs,
                                      int32_t* places) {
    int64_t found = 0, held = 0;  // of highs and places; of lows, a heap of the k largest with the least on top
    float floor = -INFINITY;
    int32_t dots[BLOCK_ROWS];
    float reach[BLOCK_ROWS], high[BLOCK_ROWS];
    for (int64_t range = 0; range < num_ranges; ++range)
        for (int64_t first = starts[range]; first < ends[range]; first += BLOCK_ROWS) {
            const int64_t num_rows = std::min(BLOCK_ROWS, ends[range] - first);
            instructions().dot_rows(rows->codes + first * rows->dimensions, num_rows, rows->dimensions, query->codes,
                                    dots);
            for (int64_t i = 0; i < num_rows; ++i) {  // without a branch, for the compiler to make vectors of
                reach[i] = query->per_error * rows->errors[first + i] + query->always;
                high[i] = static_cast<float>(dots[i]) * rows->scales[first + i] + reach[i];
            }
            if (rows->half_squares)
                for (int64_t i = 0; i < num_rows; ++i)
                    high[i] -= query->per_half_square * rows->half_squares[first + i];
            for (int64_t i = 0; i < num_rows; ++i) {
                if (high[i] < floor) continue;
                highs[found] = high[i];
                places[found++] = static_cast<int32_t>(first + i);
                const float low = high[i] - 2 * reach[i];
                if (held < k) {
                    lows[held++] = low;
                } else if (low > floor) {
                    std::pop_heap(lows, lows + k, std::greater<float>());
                    lows[k - 1] = low;
                } else {
                    continue;
                }
                std::push_heap(lows, lows + held, std::greater<float>());
                if (held == k) floor = lows[0];
            }
        }
    int64_t kept = 0;
    for (int64_t i = 0; i < found; ++i)
        if (highs[i] >= floor) places[kept++] = places[i];
    return kept;
}
