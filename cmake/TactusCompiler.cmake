# Flags of every target. Instruction sets are chosen per kernel file (src/compute/kernels), never globally, so that one
# binary runs on every x86-64 or Arm machine and selects its kernels at run time.
add_library(tactus_flags INTERFACE)
target_compile_options(tactus_flags INTERFACE
  -ffp-contract=off)           # the same source gives the same bits on every build
# Warnings cost compile time and do not help first-time builders: only `dev` and `ci` enable them.
if(TACTUS_WARNINGS)
  target_compile_options(tactus_flags INTERFACE
    -Wall -Wextra -Wpedantic -Wshadow -Wnon-virtual-dtor -Wno-missing-field-initializers
    $<$<BOOL:${TACTUS_WERROR}>:-Werror>)
else()
  target_compile_options(tactus_flags INTERFACE -w)
endif()
# These warnings of GCC 12 depend on its inlining, even on the length of the source path, and are false positives on
# plain std::string concatenation (GCC bugs 105329 and 105651): shown, but not errors.
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
  target_compile_options(tactus_flags INTERFACE -Wno-error=array-bounds -Wno-error=restrict
    -Wno-error=maybe-uninitialized -Wno-error=stringop-overflow -Wno-error=stringop-overread
    -Wno-error=dangling-pointer -Wno-error=use-after-free -Wno-error=free-nonheap-object
    -Wno-error=mismatched-new-delete -Wno-error=nonnull)
endif()
# The compiler's garbage collector runs less often: saves a few percent of its time for some 100 MB.
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  target_compile_options(tactus_flags INTERFACE --param=ggc-min-heapsize=524288)
endif()
# A unity source triggers the warning for unnamed namespaces in headers, but belongs to one program.
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND TACTUS_UNITY)
  target_compile_options(tactus_flags INTERFACE -Wno-subobject-linkage)
endif()
if(TACTUS_SANITIZE)
  target_compile_options(tactus_flags INTERFACE -fsanitize=${TACTUS_SANITIZE} -fno-omit-frame-pointer)
  target_link_options(tactus_flags INTERFACE -fsanitize=${TACTUS_SANITIZE})
  target_compile_definitions(tactus_flags INTERFACE TACTUS_DCHECKS=1)
else()
  target_compile_definitions(tactus_flags INTERFACE $<$<CONFIG:Debug>:TACTUS_DCHECKS=1>)
endif()

find_program(TACTUS_CCACHE ccache)
if(TACTUS_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  # ccache needs these sloppiness settings to cache compilations with a precompiled header; a base directory without
  # hashing the current one lets two clones share the cache.
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CMAKE_COMMAND} -E env CCACHE_BASEDIR=${CMAKE_SOURCE_DIR} CCACHE_NOHASHDIR=1
      CCACHE_SLOPPINESS=pch_defines,time_macros,include_file_mtime,include_file_ctime ${TACTUS_CCACHE})
endif()
if(TACTUS_PCH AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  add_compile_options(-fpch-preprocess)
endif()
