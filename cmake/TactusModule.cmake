# tactus_module(NAME kv SOURCES a.cc b.cc DEPS base [LIBS fmt::fmt ...])
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
  if(TACTUS_PCH)
    target_precompile_headers(tactus_${M_NAME} PRIVATE ${CMAKE_SOURCE_DIR}/cmake/pch.h)
  endif()
  set_property(GLOBAL APPEND PROPERTY TACTUS_MODULES tactus_${M_NAME})
endfunction()

include(GoogleTest)

# tactus_test(NAME kv_test SOURCES block_pool_test.cc ... DEPS kv [LABELS fast|slow] [TIMEOUT s])
#   One GoogleTest executable per module: few links, quick to build. Label `fast` (default) runs in CI. Every test case is
#   a test of ctest, `kv_test.Suite.Case`, so that one that skips itself is shown as skipped, with its name.
function(tactus_test)
  cmake_parse_arguments(T "" "NAME;TIMEOUT" "SOURCES;DEPS;LIBS;LABELS" ${ARGN})
  set(support ${CMAKE_CURRENT_FUNCTION_LIST_DIR}/../tests/support)
  add_executable(${T_NAME} ${T_SOURCES} ${support}/test_main.cc ${support}/source_path.cc)
  get_filename_component(root ${CMAKE_CURRENT_FUNCTION_LIST_DIR}/.. ABSOLUTE)
  set_source_files_properties(${support}/source_path.cc PROPERTIES COMPILE_DEFINITIONS TACTUS_SOURCE_DIR="${root}")
  target_include_directories(${T_NAME} PRIVATE ${CMAKE_CURRENT_FUNCTION_LIST_DIR}/../tests)
  target_link_libraries(${T_NAME} PRIVATE tactus_flags GTest::gtest ${T_LIBS})
  foreach(dep IN LISTS T_DEPS)
    target_link_libraries(${T_NAME} PRIVATE tactus_${dep})
  endforeach()
  if(TACTUS_PCH)
    target_precompile_headers(${T_NAME} PRIVATE ${CMAKE_SOURCE_DIR}/cmake/pch.h <gtest/gtest.h>)
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
