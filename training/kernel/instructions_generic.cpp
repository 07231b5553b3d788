// For processors that are not x86: the compiler makes vectors of what it can (NEON has the fused multiply-add). An x86
// processor without AVX2 has none: there this would be slower than the reference path, and is left out.
#if !defined(__x86_64__) || defined(CLICKTOWER_GENERIC)
#define CLICKTOWER_ISA generic
#include "instructions.inc"

const Instructions GENERIC = CLICKTOWER_TABLE("generic");
#endif
