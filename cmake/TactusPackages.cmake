# `cpack` in a build folder with all programs makes the Debian package: the programs, their man pages and completion
# scripts, the units of deploy/systemd and their configuration. scripts/package.sh builds the folder and calls it.
set(systemd ${CMAKE_SOURCE_DIR}/deploy/systemd)
# Absolute, and excluded from `cmake --install`: only a package owns /etc.
install(FILES ${systemd}/tactus-serve@.service ${systemd}/tactus-route.service ${systemd}/tactus.target
  DESTINATION /lib/systemd/system COMPONENT service EXCLUDE_FROM_ALL)
install(FILES ${systemd}/serve.toml ${systemd}/route.toml DESTINATION /etc/tactus COMPONENT service EXCLUDE_FROM_ALL)
install(FILES ${systemd}/sysusers.conf DESTINATION /usr/lib/sysusers.d RENAME tactus.conf COMPONENT service EXCLUDE_FROM_ALL)
install(FILES ${systemd}/tmpfiles.conf DESTINATION /usr/lib/tmpfiles.d RENAME tactus.conf COMPONENT service EXCLUDE_FROM_ALL)
install(FILES ${CMAKE_SOURCE_DIR}/deploy/debian/copyright DESTINATION /usr/share/doc/tactus COMPONENT service EXCLUDE_FROM_ALL)
install(FILES ${CMAKE_SOURCE_DIR}/CHANGELOG.md DESTINATION /usr/share/doc/tactus COMPONENT service EXCLUDE_FROM_ALL)

set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME tactus)
set(CPACK_PACKAGE_VENDOR "Tactus")
set(CPACK_PACKAGE_CONTACT "The Tactus authors")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "LLM serving engine, router and simulator")
set(CPACK_DEBIAN_PACKAGE_DESCRIPTION "Serves language models on CPUs by OpenAI's and Anthropic's APIs, with
schedulers that keep objectives for latency. Has a router for many replicas,
and a simulator with the same schedulers. Units of systemd are installed but
not started.")
set(CPACK_PACKAGE_VERSION ${PROJECT_VERSION})
set(CPACK_SET_DESTDIR ON)
set(CPACK_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
set(CPACK_PRE_BUILD_SCRIPTS ${CMAKE_SOURCE_DIR}/cmake/DebianFiles.cmake)
set(CPACK_COMPONENTS_ALL program service)
set(CPACK_COMPONENTS_GROUPING ALL_COMPONENTS_IN_ONE)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION net)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_DEPENDS "passwd")
set(CPACK_DEBIAN_PACKAGE_RECOMMENDS "ca-certificates, systemd")
set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION ON)
set(CPACK_DEBIAN_PACKAGE_CONTROL_EXTRA ${CMAKE_SOURCE_DIR}/deploy/debian/conffiles
  ${CMAKE_SOURCE_DIR}/deploy/debian/postinst ${CMAKE_SOURCE_DIR}/deploy/debian/prerm
  ${CMAKE_SOURCE_DIR}/deploy/debian/postrm)
include(CPack)
