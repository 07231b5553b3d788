// Portable code, of which the compiler makes vectors where it can: for processors that are not x86 (NEON has the fused
// multiply-add), and on x86 for the tests, where each multiply-add may be a call of the C library.
#define CLICKTOWER_ISA generic
#include "instructions.inc"

const Instructions GENERIC = CLICKTOWER_TABLE("generic");
