# Runs at `cmake --install`: writes the man pages and completion scripts of `tactus_program` into the folder `texts`, from
# where they are installed (TactusInstall.cmake). What this machine cannot make is left out, with a message.
foreach(shell_file IN ITEMS bash:tactus zsh:_tactus fish:tactus.fish)
  string(REPLACE ":" ";" shell_file ${shell_file})
  list(GET shell_file 0 shell)
  list(GET shell_file 1 file)
  file(REMOVE_RECURSE ${texts}/${shell})
  file(MAKE_DIRECTORY ${texts}/${shell})
  execute_process(COMMAND ${tactus_program} completion ${shell}
                  OUTPUT_FILE ${texts}/${shell}/${file} RESULT_VARIABLE result ERROR_VARIABLE error)
  if(NOT result EQUAL 0)
    file(REMOVE ${texts}/${shell}/${file})
    message(WARNING "The completion script for ${shell} is not installed: ${tactus_program}: ${result} ${error}")
  endif()
endforeach()

file(REMOVE_RECURSE ${texts}/man)
file(MAKE_DIRECTORY ${texts}/man)
if(NOT python)
  message(WARNING "The man pages are not installed: there is no Python to run tools/make_man.py")
  return()
endif()
execute_process(COMMAND ${python} ${CMAKE_CURRENT_LIST_DIR}/../tools/make_man.py ${tactus_program} ${texts}/man
                RESULT_VARIABLE result ERROR_VARIABLE error)
if(NOT result EQUAL 0)
  file(GLOB pages ${texts}/man/*.1)
  file(REMOVE ${pages})
  message(WARNING "The man pages are not installed: tools/make_man.py: ${result} ${error}")
endif()
