// The sum of many rows' SHA-256: what schemas.shard.LogicalDigest adds up.
#include <charconv>
#include <cstdint>
#include <string>

#include "sha256.h"

namespace {

constexpr char BETWEEN = '\n';
constexpr size_t MOST_DIGITS = 20;  // of an int64, with its sign

}  // namespace

// A column of texts, value i of which is bytes[offsets[i]] to bytes[offsets[i + 1]]; or of numbers, then without bytes.
struct DigestColumn {
    const char* bytes;
    const int32_t* offsets;
    const int64_t* numbers;
};

extern "C" {

int32_t compiled_interface() { return 5; }  // of all functions here; raised with every change of them

// Adds the digests of rows to sums[8], word by word, so that up to 2^32 of them cannot overflow. A row is its values as
// text, one after the other with a line end between two. `plain`: see sha256.h.
void row_digests(const DigestColumn* columns, int32_t num_columns, int64_t num_rows, int32_t plain, uint64_t* sums) {
    std::string rooms[2];
    const auto text = [&](int64_t row) {
        std::string& room = rooms[row % 2];
        room.clear();
        for (int32_t i = 0; i < num_columns; ++i) {
            const DigestColumn& column = columns[i];
            if (i) room += BETWEEN;
            if (column.numbers) {
                char digits[MOST_DIGITS];
                room.append(digits, std::to_chars(digits, digits + MOST_DIGITS, column.numbers[row]).ptr);
            } else {
                room.append(column.bytes + column.offsets[row], column.bytes + column.offsets[row + 1]);
            }
        }
        return std::string_view(room);
    };
    uint32_t digests[2][SHA256_WORDS];
    for (int64_t row = 0; row < num_rows; row += 2) {
        const bool is_last = row + 1 == num_rows;
        const std::string_view here = text(row);
        if (is_last) {
            sha256(here, digests[0], plain);
        } else {
            sha256_of_two(here, text(row + 1), digests[0], digests[1], plain);
        }
        for (size_t word = 0; word < SHA256_WORDS; ++word) {
            sums[word] += digests[0][word];
            if (!is_last) sums[word] += digests[1][word];
        }
    }
}
}
