// Functions that are also compiled for wider vectors; the program selects one version at its start. All versions round
// alike, because no operation is contracted (cmake/TactusCompiler.cmake). Sanitizers are not initialised by then.
#pragma once

#if defined(__x86_64__) && defined(__gnu_linux__) && defined(__GNUC__) && !defined(__clang__) && \
    !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define TACTUS_CLONES __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define TACTUS_CLONES
#endif
