// Rows regrouped by a number that each has: where each row goes, and a column's values put there. Rows are read in their
// order and written to as many places as there are groups, which caches are made for; to gather them would be to read
// all over a column for each group.
#include <cstdint>
#include <cstring>

namespace {

template <size_t WIDTH>
void scatter(const char* values, int64_t num_rows, const int32_t* places, char* into) {
    for (int64_t row = 0; row < num_rows; ++row) {
        std::memcpy(into + places[row] * static_cast<int64_t>(WIDTH), values + row * static_cast<int64_t>(WIDTH), WIDTH);
    }
}

// Up to 16 bytes by two copies that overlap: nothing beyond `length` is written, since that may belong to another group.
void copy_text(char* into, const char* from, size_t length) {
    if (length > 16) {
        std::memcpy(into, from, length);
    } else if (length >= 8) {
        uint64_t head, tail;
        std::memcpy(&head, from, 8);
        std::memcpy(&tail, from + length - 8, 8);
        std::memcpy(into, &head, 8);
        std::memcpy(into + length - 8, &tail, 8);
    } else if (length >= 4) {
        uint32_t head, tail;
        std::memcpy(&head, from, 4);
        std::memcpy(&tail, from + length - 4, 4);
        std::memcpy(into, &head, 4);
        std::memcpy(into + length - 4, &tail, 4);
    } else {
        for (size_t byte = 0; byte < length; ++byte) into[byte] = from[byte];
    }
}

}  // namespace

extern "C" {

// Row i of group g goes to places[i], the next of g: next_places[g] is where its first one goes, and is moved on.
void grouped_places(const int64_t* groups, int64_t num_rows, int64_t* next_places, int32_t* places) {
    for (int64_t row = 0; row < num_rows; ++row) places[row] = static_cast<int32_t>(next_places[groups[row]]++);
}

// Values of `width` bytes, one of 1, 2, 4, 8, 16; 0 for any other, of which nothing is done.
int32_t grouped_values(const char* values, int32_t width, int64_t num_rows, const int32_t* places, char* into) {
    switch (width) {
        case 1: scatter<1>(values, num_rows, places, into); return 1;
        case 2: scatter<2>(values, num_rows, places, into); return 1;
        case 4: scatter<4>(values, num_rows, places, into); return 1;
        case 8: scatter<8>(values, num_rows, places, into); return 1;
        case 16: scatter<16>(values, num_rows, places, into); return 1;
        default: return 0;
    }
}

// Bits from bit `first` on, or as many set ones where `bits` is null; `into` holds zeros.
void grouped_bits(const uint8_t* bits, int64_t first, int64_t num_rows, const int32_t* places, uint8_t* into) {
    for (int64_t row = 0; row < num_rows; ++row) {
        const int64_t bit = first + row;
        const int is_set = bits ? bits[bit >> 3] >> (bit & 7) & 1 : 1;
        into[places[row] >> 3] |= static_cast<uint8_t>(is_set << (places[row] & 7));
    }
}

// The lengths of texts, each one place behind its own: their running sum are the offsets of the regrouped column.
void grouped_lengths(const int32_t* offsets, int64_t num_rows, const int32_t* places, int32_t* into) {
    for (int64_t row = 0; row < num_rows; ++row) into[places[row] + 1] = offsets[row + 1] - offsets[row];
}

// The bytes of texts, to where the regrouped column's offsets say.
void grouped_texts(const char* bytes, const int32_t* offsets, int64_t num_rows, const int32_t* places,
                   const int32_t* into_offsets, char* into) {
    for (int64_t row = 0; row < num_rows; ++row) {
        copy_text(into + into_offsets[places[row]], bytes + offsets[row],
                  static_cast<size_t>(offsets[row + 1] - offsets[row]));
    }
}
}
