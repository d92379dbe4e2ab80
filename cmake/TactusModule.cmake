# The standard headers (pch.h) are precompiled once for all modules and once, with GoogleTest's, for all tests: both of
# one set of flags. What a module adds to them must not change what a header says.

# Sources of one target are compiled 36 at a time (docs/build.md): their names without linkage must differ, as if they
# were in one file. Sources with flags of their own are compiled alone. A change of one file compiles those beside it
# again, so the preset `dev` does without.
function(tactus_unity target)
  if(TACTUS_UNITY)
    set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 36)
  endif()
endfunction()

# What fuzzers call: in the preset fuzz_ci it alone has sanitizers, which are half of clang's compile time, and of kernels'
# five sixths. Fuzzers of model files compute nothing: they link kernels and call none.
set(TACTUS_FUZZED base results_obs results_report compute_tensor compute_config compute_weights compute_model language_text engine_kv_store cost fleet_balance http fleet_router api)
set(TACTUS_NOT_FUZZED compute_kernels)
function(tactus_fuzzed_flags target)
  target_compile_options(${target} PRIVATE ${TACTUS_FUZZED_FLAGS})
endfunction()

# Libraries and programs that share the precompiled header, which one set of flags made: that of shared code, for all.
function(tactus_pch target)
  if(NOT TACTUS_PCH)
    return()
  endif()
  set(pch tactus_pch)
  if(TACTUS_FUZZED_FLAGS)
    string(REGEX REPLACE "^tactus_" "" name ${target})
    if(name IN_LIST TACTUS_FUZZED)
      set(pch tactus_fuzzed_pch)
    endif()
  endif()
  if(NOT TARGET ${pch})
    add_library(${pch} OBJECT ${CMAKE_SOURCE_DIR}/cmake/pch.cc)
    target_link_libraries(${pch} PRIVATE tactus_flags)
    target_precompile_headers(${pch} PRIVATE ${CMAKE_SOURCE_DIR}/cmake/pch.h)
    if(pch STREQUAL tactus_fuzzed_pch)
      tactus_fuzzed_flags(${pch})
    endif()
  endif()
  get_target_property(type ${target} TYPE)
  if(type STREQUAL EXECUTABLE)
    set_target_properties(${target} PROPERTIES POSITION_INDEPENDENT_CODE OFF)
    target_compile_options(${target} PRIVATE -fPIC)
  endif()
  target_precompile_headers(${target} REUSE_FROM ${pch})
endfunction()

# tactus_module(NAME core_kv SOURCES a.cc b.cc DEPS base [LIBS fmt::fmt ...])
#   A static library tactus_<name> from src/<name>/. DEPS are other modules (they must be lower in the dependency
#   table that tests/lint checks); LIBS are outside libraries.
function(tactus_module)
  cmake_parse_arguments(M "" "NAME" "SOURCES;DEPS;LIBS" ${ARGN})
  add_library(tactus_${M_NAME} STATIC ${M_SOURCES})
  add_library(tactus::${M_NAME} ALIAS tactus_${M_NAME})
  target_include_directories(tactus_${M_NAME} PUBLIC
    $<BUILD_INTERFACE:${CMAKE_SOURCE_DIR}/src>
    $<BUILD_INTERFACE:${CMAKE_SOURCE_DIR}/include>
    $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
  target_link_libraries(tactus_${M_NAME} PRIVATE $<BUILD_INTERFACE:tactus_flags>)
  foreach(dep IN LISTS M_DEPS)
    target_link_libraries(tactus_${M_NAME} PUBLIC tactus_${dep})
  endforeach()
  target_link_libraries(tactus_${M_NAME} PUBLIC ${M_LIBS})
  if(TACTUS_FUZZED_FLAGS AND M_NAME IN_LIST TACTUS_FUZZED)
    foreach(dep IN LISTS M_DEPS)
      if(NOT dep IN_LIST TACTUS_FUZZED AND NOT dep IN_LIST TACTUS_NOT_FUZZED)
        message(FATAL_ERROR "module ${M_NAME} is fuzzed, so ${dep} belongs to TACTUS_FUZZED (cmake/TactusModule.cmake)")
      endif()
    endforeach()
    tactus_fuzzed_flags(tactus_${M_NAME})
    target_link_options(tactus_${M_NAME} INTERFACE ${TACTUS_FUZZED_FLAGS})
  endif()
  tactus_unity(tactus_${M_NAME})
  tactus_pch(tactus_${M_NAME})
  set_property(GLOBAL APPEND PROPERTY TACTUS_MODULES tactus_${M_NAME})
endfunction()

include(GoogleTest)

# Tests call optimised code and need not be it themselves: a third of their compile time.
function(tactus_test_flags target)
  target_compile_options(${target} PRIVATE $<$<CONFIG:Release>:-O0>)
endfunction()

# main() of every test program and the paths of the sources, made on first use.
function(tactus_test_main)
  if(TARGET tactus_test_main)
    return()
  endif()
  get_filename_component(root ${CMAKE_CURRENT_FUNCTION_LIST_DIR}/.. ABSOLUTE)
  set(support ${root}/tests/support)
  add_library(tactus_test_main STATIC ${support}/test_main.cc ${support}/source_path.cc)
  set_source_files_properties(${support}/source_path.cc PROPERTIES COMPILE_DEFINITIONS TACTUS_SOURCE_DIR="${root}")
  set_source_files_properties(${support}/test_main.cc PROPERTIES COMPILE_DEFINITIONS TACTUS_PROGRAMS="${CMAKE_BINARY_DIR}")
  target_include_directories(tactus_test_main PRIVATE ${root}/tests)
  target_link_libraries(tactus_test_main PUBLIC GTest::gtest PRIVATE tactus_flags)
  tactus_test_flags(tactus_test_main)
  if(TACTUS_PCH)
    # As programs are compiled, or they could not use its header.
    set_target_properties(tactus_test_main PROPERTIES POSITION_INDEPENDENT_CODE OFF)
    target_compile_options(tactus_test_main PRIVATE -fPIE)
    target_precompile_headers(tactus_test_main PRIVATE ${root}/cmake/pch.h <gtest/gtest.h>)
  endif()
endfunction()

# tactus_test(NAME kv_test SOURCES block_pool_test.cc ... DEPS core_kv [LABELS fast|slow] [TIMEOUT s])
#   One GoogleTest executable per module: few links, quick to build. Label `fast` (default) runs in CI. Every test case is
#   a test of ctest, `kv_test.Suite.Case`, so that one that skips itself is shown as skipped, with its name.
#   A file whose names are in another one too has a namespace of its own, named as the file (docs/build.md).
function(tactus_test)
  cmake_parse_arguments(T "" "NAME;TIMEOUT" "SOURCES;DEPS;LIBS;LABELS" ${ARGN})
  tactus_test_main()
  add_executable(${T_NAME} ${T_SOURCES})
  tactus_test_flags(${T_NAME})
  target_include_directories(${T_NAME} PRIVATE ${CMAKE_CURRENT_FUNCTION_LIST_DIR}/../tests)
  target_link_libraries(${T_NAME} PRIVATE tactus_flags tactus_test_main ${T_LIBS})
  foreach(dep IN LISTS T_DEPS)
    target_link_libraries(${T_NAME} PRIVATE tactus_${dep})
  endforeach()
  tactus_unity(${T_NAME})
  if(TACTUS_PCH)
    target_precompile_headers(${T_NAME} REUSE_FROM tactus_test_main)
  endif()
  if(NOT T_LABELS)
    set(T_LABELS fast)
  endif()
  if(NOT T_TIMEOUT)
    set(T_TIMEOUT 300)
  endif()
  # Under ThreadSanitizer some tests take minutes on an idle machine already.
  if(TACTUS_SANITIZE)
    math(EXPR T_TIMEOUT "${T_TIMEOUT} * 4")
  endif()
  # Discovered when ctest starts: a build needs no run of its own results, and sanitizer builds no options for it.
  gtest_discover_tests(${T_NAME} TEST_PREFIX ${T_NAME}. NO_PRETTY_VALUES DISCOVERY_MODE PRE_TEST DISCOVERY_TIMEOUT 60
                       PROPERTIES LABELS ${T_LABELS} TIMEOUT ${T_TIMEOUT})
endfunction()
