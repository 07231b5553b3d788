// The CRC-32 of many texts: what zlib's crc32 gives, and beam_jobs.engine.exchange.bucket_of numbers buckets by.
#include <array>
#include <cstdint>
#include <cstring>

namespace {

constexpr uint32_t POLYNOMIAL = 0xEDB88320;  // of ISO 3309, its bits in reverse
constexpr int AT_ONCE = 8;

// TABLES[k][byte]: the remainder of that byte with k zero bytes behind it.
constexpr std::array<std::array<uint32_t, 256>, AT_ONCE> tables() {
    std::array<std::array<uint32_t, 256>, AT_ONCE> made{};
    for (uint32_t byte = 0; byte < 256; ++byte) {
        uint32_t remainder = byte;
        for (int bit = 0; bit < 8; ++bit) remainder = remainder >> 1 ^ (remainder & 1 ? POLYNOMIAL : 0);
        made[0][byte] = remainder;
    }
    for (int k = 1; k < AT_ONCE; ++k) {
        for (uint32_t byte = 0; byte < 256; ++byte) {
            const uint32_t before = made[k - 1][byte];
            made[k][byte] = before >> 8 ^ made[0][before & 0xFF];
        }
    }
    return made;
}

constexpr auto TABLES = tables();

uint32_t crc32(const uint8_t* at, const uint8_t* end) {
    uint32_t crc = ~0u;
    for (; end - at >= AT_ONCE; at += AT_ONCE) {
        crc ^= at[0] | at[1] << 8 | at[2] << 16 | static_cast<uint32_t>(at[3]) << 24;
        crc = TABLES[7][crc & 0xFF] ^ TABLES[6][crc >> 8 & 0xFF] ^ TABLES[5][crc >> 16 & 0xFF] ^ TABLES[4][crc >> 24] ^
              TABLES[3][at[4]] ^ TABLES[2][at[5]] ^ TABLES[1][at[6]] ^ TABLES[0][at[7]];
    }
    for (; at < end; ++at) crc = crc >> 8 ^ TABLES[0][(crc ^ *at) & 0xFF];
    return ~crc;
}

}  // namespace

extern "C" {

// Text i is data[offsets[i]] to data[offsets[i + 1]]; its hash goes to hashes[i].
void text_hashes(const uint8_t* data, const int32_t* offsets, int64_t num_texts, uint64_t* hashes) {
    for (int64_t i = 0; i < num_texts; ++i) hashes[i] = crc32(data + offsets[i], data + offsets[i + 1]);
}
}
