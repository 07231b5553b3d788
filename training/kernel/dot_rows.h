// Dot products of rows of eight bits with a query of sixteen, in whole numbers: any order of sums gives the same, so
// the compiler may choose it, and the plain loop becomes a multiplication of 16 or 32 pairs at once.
#pragma once
#include <stdint.h>

namespace CLICKTOWER_ISA {

static void dot_rows(const int8_t* codes, int64_t num_rows, int64_t dimensions, const int16_t* query, int32_t* dots) {
    for (int64_t r = 0; r < num_rows; ++r, codes += dimensions) {
        int32_t dot = 0;
        for (int64_t d = 0; d < dimensions; ++d) dot += int32_t(codes[d]) * int32_t(query[d]);
        dots[r] = dot;
    }
}

}  // namespace CLICKTOWER_ISA
