# All external dependencies. Versions are Debian 12's; docs/reference/third_party.md lists the licence and purpose
# of each.
set(CMAKE_FIND_PACKAGE_PREFER_CONFIG ON)
set(Boost_NO_WARN_NEW_VERSIONS ON)
find_package(Threads REQUIRED)
find_package(fmt 9 REQUIRED)
find_package(nlohmann_json 3.11 REQUIRED)
find_package(Boost 1.81 REQUIRED)
find_package(ZLIB 1.2 REQUIRED)   # inputs may be gzipped
find_package(ICU 72 REQUIRED COMPONENTS uc i18n)
find_package(prometheus-cpp REQUIRED COMPONENTS core)
find_package(PkgConfig REQUIRED)
pkg_check_modules(pcre2 REQUIRED IMPORTED_TARGET libpcre2-8)
pkg_check_modules(tomlplusplus REQUIRED IMPORTED_TARGET tomlplusplus)
pkg_check_modules(libarchive REQUIRED IMPORTED_TARGET libarchive>=3.6)   # run files
pkg_check_modules(sqlite3 REQUIRED IMPORTED_TARGET sqlite3>=3.40)
pkg_check_modules(libcurl REQUIRED IMPORTED_TARGET libcurl>=7.85)       # downloads of models
pkg_check_modules(libcrypto REQUIRED IMPORTED_TARGET libcrypto>=3.0)   # their hashes
pkg_check_modules(libssl REQUIRED IMPORTED_TARGET libssl>=3.0)         # TLS of listeners and clients
# For the prompt of `tactus run`. Optional: without it `run` reads plain lines.
pkg_check_modules(libedit IMPORTED_TARGET libedit>=3.1)
if(NOT libedit_FOUND)
  message(WARNING "no libedit: `tactus run` has no line editing (libedit-dev)")
endif()
# For the endpoint picker (src/fleet/picker). Optional: without it `tactus epp` reports what is missing. Calls
# pkg-config once: pkg_check_modules calls it twenty times, each taking half a second for gRPC's hundred packages.
execute_process(COMMAND ${PKG_CONFIG_EXECUTABLE} --cflags --libs "grpc++ >= 1.51" "protobuf >= 3.21"
                RESULT_VARIABLE grpcpp_missing OUTPUT_VARIABLE grpcpp_flags ERROR_QUIET OUTPUT_STRIP_TRAILING_WHITESPACE)
if(NOT grpcpp_missing)
  separate_arguments(grpcpp_compile UNIX_COMMAND "${grpcpp_flags}")
  set(grpcpp_link ${grpcpp_compile})
  list(FILTER grpcpp_compile INCLUDE REGEX "^-[ID]")
  list(FILTER grpcpp_link EXCLUDE REGEX "^-[ID]")
  add_library(tactus_grpcpp INTERFACE)
  target_compile_options(tactus_grpcpp INTERFACE ${grpcpp_compile})
  target_link_libraries(tactus_grpcpp INTERFACE ${grpcpp_link})
endif()
find_program(TACTUS_PROTOC protoc)
find_program(TACTUS_GRPC_CPP_PLUGIN grpc_cpp_plugin)
if(TARGET tactus_grpcpp AND TACTUS_PROTOC AND TACTUS_GRPC_CPP_PLUGIN)
  set(TACTUS_HAS_GRPC ON)
else()
  set(TACTUS_HAS_GRPC OFF)
  message(WARNING "no gRPC: `tactus epp` is not built (libgrpc++-dev, protobuf-compiler-grpc, libprotobuf-dev)")
endif()
if(TACTUS_BUILD_TESTS)
  find_package(GTest 1.12 REQUIRED)
endif()
if(TACTUS_BUILD_BENCH)
  find_package(benchmark 1.7 REQUIRED)
endif()
