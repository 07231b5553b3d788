#include "sha256.h"

#include <algorithm>
#include <cstring>

#if defined(__x86_64__) && defined(__GNUC__)
#include <immintrin.h>
#endif

namespace {

constexpr size_t BLOCK = 64;
constexpr uint32_t START[SHA256_WORDS] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                               0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
alignas(16) constexpr uint32_t ROUND[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

// Blocks of one text, or of several in parallel: `states` and the beginnings of the blocks, one per text.
using Compress = void (*)(uint32_t* const* states, const uint8_t* const* blocks, size_t num_blocks);

uint32_t rotated(uint32_t value, int bits) { return value >> bits | value << (32 - bits); }

uint32_t big_endian(const uint8_t* bytes) {
    return uint32_t(bytes[0]) << 24 | uint32_t(bytes[1]) << 16 | uint32_t(bytes[2]) << 8 | bytes[3];
}

// Section 6.2.2, as it is printed.
void compress_one(uint32_t* state, const uint8_t* block) {
    uint32_t w[64];
    for (int t = 0; t < 16; ++t) w[t] = big_endian(block + 4 * t);
    for (int t = 16; t < 64; ++t) {
        const uint32_t s0 = rotated(w[t - 15], 7) ^ rotated(w[t - 15], 18) ^ (w[t - 15] >> 3);
        const uint32_t s1 = rotated(w[t - 2], 17) ^ rotated(w[t - 2], 19) ^ (w[t - 2] >> 10);
        w[t] = s1 + w[t - 7] + s0 + w[t - 16];
    }
    uint32_t a = state[0], b = state[1], c = state[2], d = state[3];
    uint32_t e = state[4], f = state[5], g = state[6], h = state[7];
    for (int t = 0; t < 64; ++t) {
        const uint32_t big1 = rotated(e, 6) ^ rotated(e, 11) ^ rotated(e, 25);
        const uint32_t big0 = rotated(a, 2) ^ rotated(a, 13) ^ rotated(a, 22);
        const uint32_t t1 = h + big1 + ((e & f) ^ (~e & g)) + ROUND[t] + w[t];
        const uint32_t t2 = big0 + ((a & b) ^ (a & c) ^ (b & c));
        h = g, g = f, f = e, e = d + t1, d = c, c = b, b = a, a = t1 + t2;
    }
    state[0] += a, state[1] += b, state[2] += c, state[3] += d;
    state[4] += e, state[5] += f, state[6] += g, state[7] += h;
}

template <int TEXTS>
void compress_plain(uint32_t* const* states, const uint8_t* const* blocks, size_t num_blocks) {
    for (int text = 0; text < TEXTS; ++text) {
        for (size_t block = 0; block < num_blocks; ++block) compress_one(states[text], blocks[text] + block * BLOCK);
    }
}

#if defined(__x86_64__) && defined(__GNUC__)

// The same, four rounds at a time, of one or two texts. The instructions keep the state as the words ABEF and CDGH,
// highest first. Each waits for the one before, so two texts in parallel take 1.5 times as long as one.
template <int TEXTS>
__attribute__((target("sha,sse4.1"))) void compress_sha(
    uint32_t* const* states, const uint8_t* const* blocks, size_t num_blocks) {
    const __m128i swap = _mm_set_epi64x(0x0c0d0e0f08090a0bLL, 0x0405060700010203LL);
    __m128i abef[TEXTS], cdgh[TEXTS], w[TEXTS][4];
#pragma GCC unroll 2
    for (int text = 0; text < TEXTS; ++text) {
        const __m128i* state = reinterpret_cast<const __m128i*>(states[text]);
        const __m128i cdab = _mm_shuffle_epi32(_mm_loadu_si128(state), 0xB1);
        const __m128i efgh = _mm_shuffle_epi32(_mm_loadu_si128(state + 1), 0x1B);
        abef[text] = _mm_alignr_epi8(cdab, efgh, 8);
        cdgh[text] = _mm_blend_epi16(efgh, cdab, 0xF0);
    }
    for (size_t block = 0; block < num_blocks; ++block) {
        __m128i abef_before[TEXTS], cdgh_before[TEXTS];
#pragma GCC unroll 2
        for (int text = 0; text < TEXTS; ++text) {
            abef_before[text] = abef[text], cdgh_before[text] = cdgh[text];
            const __m128i* words = reinterpret_cast<const __m128i*>(blocks[text] + block * BLOCK);
#pragma GCC unroll 4
            for (int i = 0; i < 4; ++i) w[text][i] = _mm_shuffle_epi8(_mm_loadu_si128(words + i), swap);
        }
#pragma GCC unroll 16
        for (int i = 0; i < 16; ++i) {
            const __m128i k = _mm_load_si128(reinterpret_cast<const __m128i*>(ROUND) + i);
#pragma GCC unroll 2
            for (int text = 0; text < TEXTS; ++text) {
                __m128i& now = w[text][i & 3];
                if (i >= 4) {  // words 4i to 4i + 3 from the sixteen before them
                    const __m128i last = w[text][(i + 3) & 3];
                    const __m128i seventh = _mm_alignr_epi8(last, w[text][(i + 2) & 3], 4);
                    now = _mm_add_epi32(_mm_sha256msg1_epu32(now, w[text][(i + 1) & 3]), seventh);
                    now = _mm_sha256msg2_epu32(now, last);
                }
                const __m128i sum = _mm_add_epi32(now, k);
                cdgh[text] = _mm_sha256rnds2_epu32(cdgh[text], abef[text], sum);
                abef[text] = _mm_sha256rnds2_epu32(abef[text], cdgh[text], _mm_shuffle_epi32(sum, 0x0E));
            }
        }
#pragma GCC unroll 2
        for (int text = 0; text < TEXTS; ++text) {
            abef[text] = _mm_add_epi32(abef[text], abef_before[text]);
            cdgh[text] = _mm_add_epi32(cdgh[text], cdgh_before[text]);
        }
    }
#pragma GCC unroll 2
    for (int text = 0; text < TEXTS; ++text) {
        const __m128i feba = _mm_shuffle_epi32(abef[text], 0x1B);
        const __m128i dchg = _mm_shuffle_epi32(cdgh[text], 0xB1);
        __m128i* state = reinterpret_cast<__m128i*>(states[text]);
        _mm_storeu_si128(state, _mm_blend_epi16(feba, dchg, 0xF0));
        _mm_storeu_si128(state + 1, _mm_alignr_epi8(dchg, feba, 8));
    }
}

bool has_sha() {
    unsigned eax = 7, ebx = 0, ecx = 0, edx = 0;  // leaf 7: bit 29 of ebx
    __asm__("cpuid" : "+a"(eax), "=b"(ebx), "+c"(ecx), "=d"(edx));
    return ebx >> 29 & 1 && __builtin_cpu_supports("sse4.1");
}

const bool has_instructions = has_sha();

Compress chosen(int texts, bool plain) {
    if (plain || !has_instructions) return texts == 2 ? compress_plain<2> : compress_plain<1>;
    return texts == 2 ? compress_sha<2> : compress_sha<1>;
}

#else

Compress chosen(int texts, bool) { return texts == 2 ? compress_plain<2> : compress_plain<1>; }

#endif

// A text as blocks: those that are whole where it lies, and the rest with its end and its length (section 5.1.1).
struct Blocks {
    const uint8_t* whole;
    size_t num_whole, num_last;
    uint8_t last[2 * BLOCK] = {};

    explicit Blocks(std::string_view text)
        : whole(reinterpret_cast<const uint8_t*>(text.data())), num_whole(text.size() / BLOCK) {
        const size_t rest = text.size() % BLOCK;
        if (rest) std::memcpy(last, whole + num_whole * BLOCK, rest);
        last[rest] = 0x80;
        num_last = rest + 9 <= BLOCK ? 1 : 2;
        const size_t size = num_last * BLOCK;
        for (int i = 0; i < 8; ++i) last[size - 1 - i] = static_cast<uint8_t>(uint64_t(text.size()) * 8 >> (8 * i));
    }
};

}  // namespace

void sha256(std::string_view text, uint32_t* digest, bool plain) {
    const Blocks blocks(text);
    const uint8_t* last = blocks.last;
    std::memcpy(digest, START, sizeof START);
    const Compress compress = chosen(1, plain);
    compress(&digest, &blocks.whole, blocks.num_whole);
    compress(&digest, &last, blocks.num_last);
}

void sha256_of_two(std::string_view one, std::string_view other, uint32_t* digest, uint32_t* other_digest, bool plain) {
    const Blocks texts[2] = {Blocks(one), Blocks(other)};
    uint32_t* digests[2] = {digest, other_digest};
    const Compress compress = chosen(1, plain), compress_two = chosen(2, plain);
    // As many blocks as both have, then what one has more.
    const auto add = [&](const uint8_t* const* blocks, const size_t* num_blocks) {
        const size_t both = std::min(num_blocks[0], num_blocks[1]);
        compress_two(digests, blocks, both);
        for (int text = 0; text < 2; ++text) {
            const uint8_t* more = blocks[text] + both * BLOCK;
            compress(&digests[text], &more, num_blocks[text] - both);
        }
    };
    for (uint32_t* each : digests) std::memcpy(each, START, sizeof START);
    const uint8_t* const whole[2] = {texts[0].whole, texts[1].whole};
    const size_t num_whole[2] = {texts[0].num_whole, texts[1].num_whole};
    add(whole, num_whole);
    const uint8_t* const last[2] = {texts[0].last, texts[1].last};
    const size_t num_last[2] = {texts[0].num_last, texts[1].num_last};
    add(last, num_last);
}
