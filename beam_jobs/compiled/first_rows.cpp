// Which rows of hashes are the first with theirs: exact repeats of log lines are told by it.
#include <cstdint>
#include <cstring>
#include <new>
#include <vector>

namespace {

constexpr int64_t HASH_BYTES = 16;
constexpr uint32_t EMPTY = UINT32_MAX;

}  // namespace

extern "C" {

// is_first[i] is 1 where no row before i has the same 16 bytes, else 0. Hashes are SHA-256's, so their own bits say where
// in the table they stand. Fewer than 2^31 rows; 0 where there is no memory for the table.
int32_t first_rows(const char* hashes, int64_t num_rows, uint8_t* is_first) {
    uint64_t size = 16;
    while (size < 2 * static_cast<uint64_t>(num_rows)) size *= 2;
    std::vector<uint32_t> rows;  // by the place of their hash, or the next free one
    try {
        rows.assign(size, EMPTY);
    } catch (const std::bad_alloc&) {
        return 0;
    }
    for (int64_t row = 0; row < num_rows; ++row) {
        const char* hash = hashes + row * HASH_BYTES;
        uint64_t place;
        std::memcpy(&place, hash, sizeof(place));
        place &= size - 1;
        while (rows[place] != EMPTY && std::memcmp(hashes + rows[place] * HASH_BYTES, hash, HASH_BYTES) != 0) {
            place = (place + 1) & (size - 1);
        }
        is_first[row] = rows[place] == EMPTY;
        if (is_first[row]) rows[place] = static_cast<uint32_t>(row);
    }
    return 1;
}
}
