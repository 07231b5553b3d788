// BLAKE2b (RFC 7693) of many short texts, cut to 64 bits: with a key and a personalisation, or without.
#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>

namespace {

constexpr int64_t BLOCK_BYTES = 128;
constexpr size_t WORDS = 8;
constexpr int ROUNDS = 12;
constexpr uint64_t DIGEST_BYTES = 8;

constexpr std::array<uint64_t, WORDS> START = {  // of SHA-512
    0x6a09e667f3bcc908, 0xbb67ae8584caa73b, 0x3c6ef372fe94f82b, 0xa54ff53a5f1d36f1,
    0x510e527fade682d1, 0x9b05688c2b3e6c1f, 0x1f83d9abfb41bd6b, 0x5be0cd19137e2179,
};

constexpr uint8_t SIGMA[10][16] = {
    {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}, {14, 10, 4, 8, 9, 15, 13, 6, 1, 12, 0, 2, 11, 7, 5, 3},
    {11, 8, 12, 0, 5, 2, 15, 13, 10, 14, 3, 6, 7, 1, 9, 4}, {7, 9, 3, 1, 13, 12, 11, 14, 2, 6, 5, 10, 4, 0, 15, 8},
    {9, 0, 5, 7, 2, 4, 10, 15, 14, 1, 11, 12, 6, 8, 3, 13}, {2, 12, 6, 10, 0, 11, 8, 3, 4, 13, 7, 5, 15, 14, 1, 9},
    {12, 5, 1, 15, 14, 13, 4, 10, 0, 7, 6, 3, 9, 2, 8, 11}, {13, 11, 7, 14, 12, 1, 3, 9, 5, 0, 15, 4, 8, 6, 2, 10},
    {6, 15, 14, 9, 11, 3, 0, 8, 12, 2, 13, 7, 1, 4, 10, 5}, {10, 2, 8, 4, 7, 6, 1, 5, 15, 11, 9, 14, 3, 12, 13, 0},
};

using State = std::array<uint64_t, WORDS>;

uint64_t rotate(uint64_t word, int bits) { return word >> bits | word << (64 - bits); }

void mix(uint64_t& a, uint64_t& b, uint64_t& c, uint64_t& d, uint64_t x, uint64_t y) {
    a += b + x;
    d = rotate(d ^ a, 32);
    c += d;
    b = rotate(b ^ c, 24);
    a += b + y;
    d = rotate(d ^ a, 16);
    c += d;
    b = rotate(b ^ c, 63);
}

// `before`: the bytes hashed by the end of this block, of which there are no more than 2^63.
void compress(State& state, const uint8_t* block, uint64_t before, bool is_last) {
    uint64_t words[16];
    std::memcpy(words, block, BLOCK_BYTES);
    uint64_t v[16];
    for (size_t i = 0; i < WORDS; ++i) v[i] = state[i], v[i + WORDS] = START[i];
    v[12] ^= before;
    if (is_last) v[14] = ~v[14];
    for (int round = 0; round < ROUNDS; ++round) {
        const uint8_t* s = SIGMA[round % 10];
        mix(v[0], v[4], v[8], v[12], words[s[0]], words[s[1]]);
        mix(v[1], v[5], v[9], v[13], words[s[2]], words[s[3]]);
        mix(v[2], v[6], v[10], v[14], words[s[4]], words[s[5]]);
        mix(v[3], v[7], v[11], v[15], words[s[6]], words[s[7]]);
        mix(v[0], v[5], v[10], v[15], words[s[8]], words[s[9]]);
        mix(v[1], v[6], v[11], v[12], words[s[10]], words[s[11]]);
        mix(v[2], v[7], v[8], v[13], words[s[12]], words[s[13]]);
        mix(v[3], v[4], v[9], v[14], words[s[14]], words[s[15]]);
    }
    for (size_t i = 0; i < WORDS; ++i) state[i] ^= v[i] ^ v[i + WORDS];
}

// Hashes whole blocks and then a last one, filled with zeros, which also stands for no bytes at all.
uint64_t hash(State state, const uint8_t* text, int64_t length, uint64_t before) {
    for (; length > BLOCK_BYTES; text += BLOCK_BYTES, length -= BLOCK_BYTES) {
        compress(state, text, before += BLOCK_BYTES, false);
    }
    uint8_t last[BLOCK_BYTES] = {};
    std::copy(text, text + length, last);
    compress(state, last, before + static_cast<uint64_t>(length), true);
    return state[0];
}

}  // namespace

extern "C" {

// hashes[i]: the digest of 8 bytes, the first one lowest, of data[offsets[i]] to data[offsets[i + 1]]. `key`: up to 64
// bytes. `person`: 16 bytes.
void keyed_hashes(const uint8_t* key, int32_t key_bytes, const uint8_t* person, const uint8_t* data,
                  const int32_t* offsets, int64_t num_texts, uint64_t* hashes) {
    State state = START;
    state[0] ^= DIGEST_BYTES | static_cast<uint64_t>(key_bytes) << 8 | 1 << 16 | 1 << 24;  // fanout and depth are 1
    uint64_t personal[2];
    std::memcpy(personal, person, sizeof(personal));
    state[6] ^= personal[0];
    state[7] ^= personal[1];
    uint8_t key_block[BLOCK_BYTES] = {};
    std::copy(key, key + key_bytes, key_block);
    State keyed = state;  // every text follows the same key
    if (key_bytes) compress(keyed, key_block, BLOCK_BYTES, false);
    for (int64_t i = 0; i < num_texts; ++i) {
        const int64_t length = offsets[i + 1] - offsets[i];
        if (key_bytes && !length) {  // then the key is the last block
            State only = state;
            compress(only, key_block, BLOCK_BYTES, true);
            hashes[i] = only[0];
        } else {
            hashes[i] = hash(keyed, data + offsets[i], length, key_bytes ? BLOCK_BYTES : 0);
        }
    }
}
}
