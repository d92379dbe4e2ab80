# Installs the library into an empty prefix, builds a small outside program against it and runs the program.
file(REMOVE_RECURSE ${WORK_DIR})
foreach(step IN ITEMS
    "${CMAKE_COMMAND};--install;${BUILD_DIR};--prefix;${WORK_DIR}/prefix;--component;lib"
    "${CMAKE_COMMAND};-S;${SOURCE_DIR}/outside;-B;${WORK_DIR}/build;-DCMAKE_PREFIX_PATH=${WORK_DIR}/prefix;-DCMAKE_CXX_COMPILER=${CXX}"
    "${CMAKE_COMMAND};--build;${WORK_DIR}/build"
    "${WORK_DIR}/build/outside;${SOURCE_DIR}/outside/model")
  execute_process(COMMAND ${step} RESULT_VARIABLE result OUTPUT_VARIABLE output ERROR_VARIABLE output)
  if(NOT result EQUAL 0)
    message(FATAL_ERROR "${step}: exit ${result}\n${output}")
  endif()
endforeach()
message("${output}")
