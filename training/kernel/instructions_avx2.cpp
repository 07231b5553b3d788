// For x86 processors with AVX2; instructions.cpp asks the processor before it calls anything here.
#if defined(__x86_64__)
#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx2,fma"))), apply_to = function)
#else
#pragma GCC target("avx2,fma")
#endif
#define CLICKTOWER_AVX2
#define CLICKTOWER_ISA avx2
#include "instructions.inc"

const Instructions AVX2 = CLICKTOWER_TABLE("avx2");
#if defined(__clang__)
#pragma clang attribute pop
#endif
#endif
