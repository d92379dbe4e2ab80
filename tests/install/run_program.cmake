# Installs the program under DESTDIR, as packages do, and checks that its man pages and completion scripts are there.
file(REMOVE_RECURSE ${WORK_DIR})
execute_process(COMMAND ${CMAKE_COMMAND} -E env DESTDIR=${WORK_DIR}/stage
                        ${CMAKE_COMMAND} --install ${BUILD_DIR} --prefix ${WORK_DIR}/prefix --component program
                RESULT_VARIABLE result OUTPUT_VARIABLE output ERROR_VARIABLE output)
if(NOT result EQUAL 0)
  message(FATAL_ERROR "install: exit ${result}\n${output}")
endif()
foreach(expected IN ITEMS
    "bin/tactus=."
    "share/man/man1/tactus.1=tactus-serve|serve"
    "share/man/man1/tactus-serve.1=max\\\\-num\\\\-seqs"
    "share/man/man1/tactus-sim-sweep.1=vary"
    "share/bash-completion/completions/tactus=complete .*_tactus tactus"
    "share/zsh/site-functions/_tactus=#compdef tactus"
    "share/fish/vendor_completions.d/tactus.fish=complete -c tactus")
  string(REGEX MATCH "^([^=]*)=(.*)$" found "${expected}")
  set(file ${WORK_DIR}/stage${WORK_DIR}/prefix/${CMAKE_MATCH_1})
  set(words ${CMAKE_MATCH_2})
  if(NOT EXISTS ${file})
    message(FATAL_ERROR "${file} is not installed\n${output}")
  endif()
  file(STRINGS ${file} lines REGEX "${words}" LIMIT_COUNT 1)
  if(NOT lines)
    message(FATAL_ERROR "${file} does not contain ${words}")
  endif()
endforeach()
