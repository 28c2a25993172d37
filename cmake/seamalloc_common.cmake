# SPDX-License-Identifier: Apache-2.0
# Flags and targets that every room uses: seam::options (warnings, sanitizers, include root), seam::cuda (cuda.h),
# and seam_test(), which makes one CMocka program a test with its labels.

add_library(seam_options INTERFACE)
add_library(seam::options ALIAS seam_options)
target_include_directories(seam_options INTERFACE ${CMAKE_SOURCE_DIR} ${CMAKE_SOURCE_DIR}/include
                                                  ${CMAKE_BINARY_DIR}/include)
target_compile_definitions(seam_options INTERFACE _GNU_SOURCE)
target_compile_options(seam_options INTERFACE -Wall -Wextra -Wshadow -Wpointer-arith -Wundef -Wvla
  $<$<COMPILE_LANGUAGE:C>:-Wstrict-prototypes -Wmissing-prototypes -Wwrite-strings>)
if(SEAMALLOC_WERROR)
  target_compile_options(seam_options INTERFACE -Werror)
endif()
if(SEAMALLOC_SANITIZE)
  target_compile_options(seam_options INTERFACE -fsanitize=${SEAMALLOC_SANITIZE} -fno-omit-frame-pointer
                                                -fno-sanitize-recover=all
                         # Programs in C load the plug-in: they have no part of the sanitizer that is for C++ alone.
                         $<$<COMPILE_LANGUAGE:CXX>:-fno-sanitize=function,vptr>)
  target_link_options(seam_options INTERFACE -fsanitize=${SEAMALLOC_SANITIZE})
endif()

# A shared library names all that it needs; clang leaves the sanitizers' own names to the program.
set(SEAMALLOC_NO_UNDEFINED -Wl,-z,defs)
if(SEAMALLOC_SANITIZE)
  set(SEAMALLOC_NO_UNDEFINED "")
endif()

# cuda.h: the pinned headers that the set-up unpacks under build/deps, else a toolkit.
find_path(SEAMALLOC_CUDA_H_DIR cuda.h
  HINTS ${SEAMALLOC_CUDA_INCLUDE_DIR} ${CMAKE_SOURCE_DIR}/build/deps/cuda/include
  PATHS /usr/local/cuda/include NO_DEFAULT_PATH)
if(NOT SEAMALLOC_CUDA_H_DIR)
  message(FATAL_ERROR "cuda.h was not found. Run scripts/build, which fetches the CUDA headers, "
                      "or set -DSEAMALLOC_CUDA_INCLUDE_DIR to the folder that holds it.")
endif()
add_library(seam_cuda INTERFACE)
add_library(seam::cuda ALIAS seam_cuda)
target_include_directories(seam_cuda SYSTEM INTERFACE ${SEAMALLOC_CUDA_H_DIR})

# seam_test(NAME name SOURCES a.c ... LIBS lib ... LABELS unit ... [ARGS ...])
function(seam_test)
  cmake_parse_arguments(T "" "NAME;TIMEOUT" "SOURCES;LIBS;LABELS;ARGS" ${ARGN})
  add_executable(test_${T_NAME} ${T_SOURCES})
  target_link_libraries(test_${T_NAME} PRIVATE ${T_LIBS} seam::options seam::cuda cmocka jansson seam_host_malloc)
  add_test(NAME ${T_NAME} COMMAND test_${T_NAME} ${T_ARGS})
  if(NOT T_TIMEOUT)
    set(T_TIMEOUT 300)
  endif()
  set_tests_properties(${T_NAME} PROPERTIES LABELS "${T_LABELS}" TIMEOUT ${T_TIMEOUT} SKIP_RETURN_CODE 77)
endfunction()

# Executables take their host memory from jemalloc; sanitizers need their own.
add_library(seam_host_malloc INTERFACE)
if(NOT SEAMALLOC_SANITIZE)
  target_link_libraries(seam_host_malloc INTERFACE -Wl,--no-as-needed jemalloc -Wl,--as-needed)
endif()
