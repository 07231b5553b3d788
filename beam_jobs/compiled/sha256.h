// SHA-256 (FIPS 180-4), with the processor's own instructions where it has them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

constexpr size_t SHA256_WORDS = 8;

// The digest of a text as words, the highest first. `plain`: without these instructions.
void sha256(std::string_view text, uint32_t* digest, bool plain = false);

// Those of two texts: half as long again as one, where both are as long and the processor has these instructions.
void sha256_of_two(
    std::string_view one, std::string_view other, uint32_t* digest, uint32_t* other_digest, bool plain = false);
