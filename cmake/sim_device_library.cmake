# SPDX-License-Identifier: Apache-2.0
# sim_device_library(TARGET FILE): makes a library part of the simulated device: build/PRESET/sim/lib/FILE, which looks
# for the driver beside itself and, from the folder of another wheel, in that of the CUDA wheel.
function(sim_device_library target file)
  get_filename_component(extension ${file} EXT)
  string(REPLACE "${extension}" "" name ${file})
  set_target_properties(${target} PROPERTIES
    PREFIX "" OUTPUT_NAME ${name} SUFFIX ${extension} NO_SONAME TRUE
    LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/sim/lib
    BUILD_WITH_INSTALL_RPATH TRUE INSTALL_RPATH "$ORIGIN;$ORIGIN/../../cu13/lib")
  target_link_libraries(${target} PRIVATE seam::options seam::cuda seam_libcuda)
  target_link_options(${target} PRIVATE -Wl,-soname,${file} ${SEAMALLOC_NO_UNDEFINED})
endfunction()
