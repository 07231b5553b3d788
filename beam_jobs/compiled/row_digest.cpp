// The sum of many texts' SHA-256: what schemas.shard.LogicalDigest adds up.
#include "sha256.h"

extern "C" {

int32_t compiled_interface() { return 3; }  // of all functions here; raised with every change of them

// Adds the digests of texts to sums[8], word by word, so that up to 2^32 of them cannot overflow. Text i is
// data[offsets[i]] to data[offsets[i + 1]]. `plain`: see sha256.h.
void row_digests(const char* data, const int32_t* offsets, int64_t num_texts, int32_t plain, uint64_t* sums) {
    const auto text = [&](int64_t i) {
        return std::string_view(data + offsets[i], static_cast<size_t>(offsets[i + 1] - offsets[i]));
    };
    uint32_t digests[2][SHA256_WORDS];
    for (int64_t i = 0; i < num_texts; i += 2) {
        const bool is_last = i + 1 == num_texts;
        if (is_last) {
            sha256(text(i), digests[0], plain);
        } else {
            sha256_of_two(text(i), text(i + 1), digests[0], digests[1], plain);
        }
        for (size_t word = 0; word < SHA256_WORDS; ++word) {
            sums[word] += digests[0][word];
            if (!is_last) sums[word] += digests[1][word];
        }
    }
}
}
