# tactus_module(NAME kv SOURCES a.cc b.cc DEPS base [LIBS fmt::fmt ...])
#   A static library tactus_<name> from src/<name>/. DEPS are other modules (they must be lower in the dependency
#   table that tests/lint checks); LIBS are outside libraries.
function(tactus_module)
  cmake_parse_arguments(M "" "NAME" "SOURCES;DEPS;LIBS" ${ARGN})
  foreach(source IN LISTS M_SOURCES)  # DEV-ONLY
    if(NOT EXISTS ${CMAKE_CURRENT_SOURCE_DIR}/${source})  # DEV-ONLY
      message(WARNING "missing ${source}")  # DEV-ONLY
      list(REMOVE_ITEM M_SOURCES ${source})  # DEV-ONLY
    endif()  # DEV-ONLY
  endforeach()  # DEV-ONLY
  if(NOT M_SOURCES)  # DEV-ONLY
    set(M_SOURCES ${CMAKE_SOURCE_DIR}/cmake/shared_library.cc)  # DEV-ONLY
  endif()  # DEV-ONLY
  add_library(tactus_${M_NAME} STATIC ${M_SOURCES})
  add_library(tactus::${M_NAME} ALIAS tactus_${M_NAME})
  target_include_directories(tactus_${M_NAME} PUBLIC
    $<BUILD_INTERFACE:${CMAKE_SOURCE_DIR}/src>
    $<BUILD_INTERFACE:${CMAKE_SOURCE_DIR}/include>
    $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
  target_link_libraries(tactus_${M_NAME} PRIVATE $<BUILD_INTERFACE:tactus_flags>)
  foreach(dep IN LISTS M_DEPS)
    if(EXISTS ${CMAKE_SOURCE_DIR}/src/${dep}/CMakeLists.txt)  # DEV-ONLY
    target_link_libraries(tactus_${M_NAME} PUBLIC tactus_${dep})
    endif()  # DEV-ONLY
  endforeach()
  target_link_libraries(tactus_${M_NAME} PUBLIC ${M_LIBS})
  if(TACTUS_PCH)
    target_precompile_headers(tactus_${M_NAME} PRIVATE ${CMAKE_SOURCE_DIR}/cmake/pch.h)
  endif()
  set_property(GLOBAL APPEND PROPERTY TACTUS_MODULES tactus_${M_NAME})
endfunction()

# tactus_test(NAME kv_test SOURCES block_pool_test.cc ... DEPS kv [LABELS fast|slow] [TIMEOUT s])
#   One GoogleTest executable per module: few links, quick to build. Label `fast` (default) runs in CI.
function(tactus_test)
  cmake_parse_arguments(T "" "NAME;TIMEOUT" "SOURCES;DEPS;LIBS;LABELS" ${ARGN})
  foreach(source IN LISTS T_SOURCES)  # DEV-ONLY
    if(NOT EXISTS ${CMAKE_CURRENT_SOURCE_DIR}/${source})  # DEV-ONLY
      list(REMOVE_ITEM T_SOURCES ${source})  # DEV-ONLY
    endif()  # DEV-ONLY
  endforeach()  # DEV-ONLY
  if(NOT T_SOURCES)  # DEV-ONLY
    return()  # DEV-ONLY
  endif()  # DEV-ONLY
  add_executable(${T_NAME} ${T_SOURCES})
  target_include_directories(${T_NAME} PRIVATE ${CMAKE_SOURCE_DIR}/tests)
  target_link_libraries(${T_NAME} PRIVATE tactus_flags GTest::gtest_main ${T_LIBS})
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
  target_compile_definitions(${T_NAME} PRIVATE TACTUS_SOURCE_DIR="${CMAKE_SOURCE_DIR}")
  add_test(NAME ${T_NAME} COMMAND ${T_NAME} --gtest_brief=1)
  set_tests_properties(${T_NAME} PROPERTIES LABELS "${T_LABELS}" TIMEOUT ${T_TIMEOUT})
endfunction()
