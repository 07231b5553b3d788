// Which instruction set the kernels run with: the widest that this processor has, or one of its others if asked for.
#include "instructions.h"

#include <cstring>

#include "interface.h"

namespace {

const Instructions* const* of_this_machine() {
    static const Instructions* found[4] = {};
    int count = 0;
#if defined(__x86_64__)
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("fma"))
        found[count++] = &AVX512;
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) found[count++] = &AVX2;
#else
    found[count++] = &GENERIC;
#endif
    return found;
}

const Instructions* chosen = of_this_machine()[0];

}  // namespace

const Instructions& instructions() { return *chosen; }

extern "C" int32_t kernel_interface() { return 7; }  // library.py has the same number

extern "C" const char* kernel_instructions() { return chosen ? chosen->name : ""; }

extern "C" int32_t kernel_choose(const char* name) {
    for (auto* found = of_this_machine(); *found; ++found)
        if (!std::strcmp((*found)->name, name)) {
            chosen = *found;
            return 1;
        }
    return 0;
}

extern "C" double kernel_fma_peak(double seconds) { return chosen->fma_peak(seconds); }
