# CPack runs this before it packs (CPACK_PRE_BUILD_SCRIPTS): Debian wants man pages and the changelog compressed. -n
# leaves out the time, so that equal files are packed equally.
set(stage ${CPACK_TEMPORARY_INSTALL_DIRECTORY})
file(GLOB_RECURSE pages ${stage}/*.1)
list(FILTER pages INCLUDE REGEX "/man/man1/")
if(NOT pages)
  message(FATAL_ERROR "There are no man pages in ${stage}: see the messages of WriteTexts.cmake")
endif()
file(GLOB_RECURSE changelog ${stage}/CHANGELOG.md)
execute_process(COMMAND gzip -9nf ${pages} ${changelog} COMMAND_ERROR_IS_FATAL ANY)
