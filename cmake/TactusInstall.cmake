# `cmake --install build/release --prefix P`: the program with its man pages and completion scripts, one shared library
# with the public headers, and a package configuration, so that an external project needs two lines:
#   find_package(tactus REQUIRED)
#   target_link_libraries(app PRIVATE tactus::tactus)
include(CMakePackageConfigHelpers)

if(TARGET tactus_engine)
  # The modules are static libraries. The shared library contains all objects of the public API's modules (engine,
  # base), and of the others those that are needed.
  add_library(tactus_shared SHARED $<TARGET_OBJECTS:tactus_engine> $<TARGET_OBJECTS:tactus_base>)
  set_target_properties(tactus_shared PROPERTIES OUTPUT_NAME tactus EXPORT_NAME tactus
    VERSION ${PROJECT_VERSION} SOVERSION ${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR})
  target_compile_features(tactus_shared PUBLIC cxx_std_20)
  target_include_directories(tactus_shared INTERFACE $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
  target_link_libraries(tactus_shared PRIVATE $<BUILD_INTERFACE:tactus_engine>)

  install(TARGETS tactus_shared EXPORT tactusTargets LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT lib)
  install(DIRECTORY ${CMAKE_SOURCE_DIR}/include/tactus DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} COMPONENT lib)
  install(EXPORT tactusTargets NAMESPACE tactus:: DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/tactus COMPONENT lib)
  configure_package_config_file(${CMAKE_SOURCE_DIR}/cmake/tactusConfig.cmake.in ${CMAKE_BINARY_DIR}/tactusConfig.cmake
    INSTALL_DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/tactus)
  write_basic_package_version_file(${CMAKE_BINARY_DIR}/tactusConfigVersion.cmake COMPATIBILITY SameMinorVersion)
  install(FILES ${CMAKE_BINARY_DIR}/tactusConfig.cmake ${CMAKE_BINARY_DIR}/tactusConfigVersion.cmake
    DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/tactus COMPONENT lib)
endif()
# llguidance's library, as fetched by scripts/get_llguidance.sh; loaded at run time from lib/tactus next to bin and lib.
set(cache "$ENV{TACTUS_CACHE_DIR}")
if(NOT cache)
  set(cache "$ENV{XDG_CACHE_HOME}")
  if(NOT cache)
    set(cache "$ENV{HOME}/.cache")
  endif()
  string(APPEND cache "/tactus")
endif()
find_file(TACTUS_LLGUIDANCE libllguidance-1.9.1.so PATHS "${cache}/lib" NO_DEFAULT_PATH
          DOC "llguidance's library, installed with the program; not needed to build")
if(TACTUS_LLGUIDANCE)
  install(FILES ${TACTUS_LLGUIDANCE} DESTINATION lib/tactus COMPONENT program)
endif()
# The CUDA backend, loaded at run time from there as well.
if(TARGET tactus_cuda)
  install(TARGETS tactus_cuda LIBRARY DESTINATION lib/tactus COMPONENT program)
  install(TARGETS tactus_cuda LIBRARY DESTINATION lib/tactus COMPONENT lib OPTIONAL)
endif()
if(TARGET tactus)
  install(TARGETS tactus tactus-tools tactus-grammar RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT program)
  # the library looks for it there
  install(TARGETS tactus-grammar RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT lib OPTIONAL)
endif()
if(TARGET tactus-epp)
  install(TARGETS tactus-epp RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT program)
endif()
# The program writes its man pages and completion scripts while it is installed, so that a build costs nothing more.
if(TARGET tactus AND CMAKE_CROSSCOMPILING)
  message(STATUS "Man pages and completion scripts are not installed: a cross-compiled program does not run here")
elseif(TARGET tactus)
  find_package(Python3 COMPONENTS Interpreter)
  set(texts ${CMAKE_BINARY_DIR}/installed_texts)
  # Not named `program`: generated scripts compare with the component of that name and would read the variable.
  install(CODE "set(tactus_program \"$<TARGET_FILE:tactus>\")\nset(python \"${Python3_EXECUTABLE}\")\nset(texts \"${texts}\")"
          COMPONENT program)
  install(SCRIPT ${CMAKE_SOURCE_DIR}/cmake/WriteTexts.cmake COMPONENT program)
  install(DIRECTORY ${texts}/man/ DESTINATION ${CMAKE_INSTALL_MANDIR}/man1 COMPONENT program)
  install(DIRECTORY ${texts}/bash/ DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions COMPONENT program)
  install(DIRECTORY ${texts}/zsh/ DESTINATION ${CMAKE_INSTALL_DATADIR}/zsh/site-functions COMPONENT program)
  install(DIRECTORY ${texts}/fish/ DESTINATION ${CMAKE_INSTALL_DATADIR}/fish/vendor_completions.d COMPONENT program)
endif()
