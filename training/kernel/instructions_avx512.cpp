// For x86 processors with AVX512; instructions.cpp asks the processor before it calls anything here.
#if defined(__x86_64__)
#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx2,fma,avx512f,avx512dq,avx512bw,avx512vl"))), apply_to = function)
#else
#pragma GCC target("avx2,fma,avx512f,avx512dq,avx512bw,avx512vl")
#endif
#define CLICKTOWER_AVX512
#define CLICKTOWER_ISA avx512
#include "instructions.inc"

const Instructions AVX512 = CLICKTOWER_TABLE("avx512");
#if defined(__clang__)
#pragma clang attribute pop
#endif
#endif
