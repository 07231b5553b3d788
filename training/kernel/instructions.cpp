// Which instruction set the kernels run with: the widest that pays on this processor, or the one that the environment
// variable CLICKTOWER_INSTRUCTIONS names, if the processor has it. All of them give the same bytes.
#include "instructions.h"

#include <cstdlib>
#include <cstring>

#include "interface.h"

namespace {

// Widest first. The portable code is there on every machine, to be tested on it.
const Instructions* const* of_this_machine() {
    static const Instructions* found[4] = {};
    int count = 0;
#if defined(__x86_64__)
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("fma"))
        found[count++] = &AVX512;
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) found[count++] = &AVX2;
#endif
    found[count++] = &GENERIC;
    return found;
}

const Instructions* named(const char* name) {
    for (auto* found = of_this_machine(); *found; ++found)
        if (!std::strcmp((*found)->name, name)) return *found;
    return nullptr;
}

const Instructions* first_choice() {
    const char* asked = std::getenv("CLICKTOWER_INSTRUCTIONS");
    if (asked && *asked) return named(asked);
    const Instructions* widest = of_this_machine()[0];
#if defined(__x86_64__)
    if (widest == &GENERIC) return nullptr;  // an x86 processor without AVX2: the reference path is faster
#endif
    return widest;
}

const Instructions* chosen = first_choice();

}  // namespace

const Instructions& instructions() { return *chosen; }

extern "C" int32_t kernel_interface() { return 13; }  // kernel_library.py has the same number

extern "C" const char* kernel_instructions() { return chosen ? chosen->name : ""; }

extern "C" int32_t kernel_choose(const char* name) {
    const Instructions* found = named(name);
    if (found) chosen = found;
    return found != nullptr;
}

extern "C" double kernel_fma_peak(double seconds) { return chosen->fma_peak(seconds); }
