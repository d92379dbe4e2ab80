# The CUDA backend (src/compute/cuda): whether libtactus_cuda.so is built, and for which cards. CMAKE_CUDA_COMPILER,
# CUDACXX or PATH names nvcc; without these the one that `scripts/setup.sh cuda` installs is used.
set(default OFF)
if(TACTUS_CUDA OR NOT DEFINED CACHE{TACTUS_CUDA} AND NOT TACTUS_SANITIZE AND NOT TACTUS_BUILD_FUZZERS)
  if(NOT CMAKE_CUDA_COMPILER AND NOT DEFINED ENV{CUDACXX})
    file(GLOB installed ${CMAKE_SOURCE_DIR}/.venv-cuda/lib/python3*/site-packages/nvidia/cu13/bin)
    find_program(TACTUS_NVCC nvcc HINTS ENV PATH PATHS ${installed} DOC "The CUDA compiler")
    if(TACTUS_NVCC)
      set(CMAKE_CUDA_COMPILER ${TACTUS_NVCC})
    endif()
  endif()
  include(CheckLanguage)
  check_language(CUDA)
  if(CMAKE_CUDA_COMPILER)
    set(default ON)
  endif()
endif()
option(TACTUS_CUDA "Build libtactus_cuda.so, the CUDA backend (needs nvcc 12.8 or later)" ${default})
set(TACTUS_CUDA_ARCHITECTURES "80;86;89;90a;100a;120a" CACHE STRING
    "Compute capabilities of the cards that libtactus_cuda.so has code for")
option(TACTUS_FLASHINFER "Compile FlashInfer's attention kernels into libtactus_cuda.so" OFF)
if(NOT TACTUS_CUDA)
  return()
endif()

# Two thirds of a kernel's compile time go to intermediate code. 8.6 takes 8.0's, which it would get itself; with the code
# of another architecture the registers of some kernel spill on each of the later ones.
set(CMAKE_CUDA_ARCHITECTURES OFF)
set(codes)
foreach(architecture IN LISTS TACTUS_CUDA_ARCHITECTURES)
  set(intermediate ${architecture})
  if(architecture STREQUAL 86 AND 80 IN_LIST TACTUS_CUDA_ARCHITECTURES)
    set(intermediate 80)
  endif()
  list(APPEND codes "-gencode=arch=compute_${intermediate},code=sm_${architecture}")
endforeach()
set(CMAKE_CUDA_STANDARD 17)  # nvcc 13.0 with GCC 12 fails on some C++20
set(CMAKE_CUDA_STANDARD_REQUIRED ON)
set(CMAKE_CUDA_EXTENSIONS OFF)
set(CMAKE_CUDA_RUNTIME_LIBRARY Static)
if(TACTUS_CCACHE AND NOT CMAKE_CUDA_COMPILER_LAUNCHER)
  set(CMAKE_CUDA_COMPILER_LAUNCHER ${CMAKE_CXX_COMPILER_LAUNCHER})
endif()
enable_language(CUDA)
# Flags of kernels: warnings as for the rest, and an error for registers that spill into memory.
add_library(tactus_cuda_flags INTERFACE)
target_compile_options(tactus_cuda_flags INTERFACE ${codes} -O3 -Xptxas=-warn-spills -Xcompiler=-ffp-contract=off)
if(TACTUS_WARNINGS)
  target_compile_options(tactus_cuda_flags INTERFACE -Xcompiler=-Wall,-Wextra
    $<$<BOOL:${TACTUS_WERROR}>:-Werror=all-warnings -Xptxas=-Werror>)
else()
  target_compile_options(tactus_cuda_flags INTERFACE -w)
endif()

# FlashInfer's headers, which `scripts/setup.sh flashinfer` installs. They need the versions of CCCL that come with them,
# ahead of the toolkit's.
add_library(tactus_cuda_flashinfer_flags INTERFACE)
target_compile_options(tactus_cuda_flashinfer_flags INTERFACE ${codes} -O3 -w)
if(TACTUS_FLASHINFER)
  file(GLOB installed ${CMAKE_SOURCE_DIR}/.venv-flashinfer/lib/python3*/site-packages)
  find_path(TACTUS_FLASHINFER_DIR flashinfer/data/include/flashinfer/attention/prefill.cuh HINTS ${installed}
            NO_DEFAULT_PATH DOC "The folder that has the Python package flashinfer")
  if(NOT TACTUS_FLASHINFER_DIR)
    message(FATAL_ERROR "TACTUS_FLASHINFER needs FlashInfer's headers: run scripts/setup.sh flashinfer")
  endif()
  set(data ${TACTUS_FLASHINFER_DIR}/flashinfer/data)
  target_include_directories(tactus_cuda_flashinfer_flags SYSTEM BEFORE INTERFACE ${data}/cccl/libcudacxx/include
    ${data}/cccl/cub ${data}/cccl/thrust ${data}/include)
  target_compile_definitions(tactus_cuda_flashinfer_flags INTERFACE TACTUS_FLASHINFER)
  target_compile_options(tactus_cuda_flashinfer_flags INTERFACE --expt-relaxed-constexpr)
endif()
