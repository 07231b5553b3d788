// SHA-256 (FIPS 180-4), with the processor's own instructions where it has them.
#pragma once

#include <cstddef>
#include <cstdint>

constexpr size_t SHA256_WORDS = 8;

// The digest of a text as words, the highest first. `plain`: without these instructions.
void sha256(const char* text, size_t length, uint32_t* digest, bool plain = false);
