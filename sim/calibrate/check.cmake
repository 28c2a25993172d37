# SPDX-License-Identifier: Apache-2.0
# Runs the probe on the simulated device, then once more with its own output as the cost file.
set(ENV{LD_LIBRARY_PATH} ${LIBRARIES})
set(ENV{SEAMALLOC_SIM_MIB} 4096)
execute_process(COMMAND ${PROBE} OUTPUT_FILE ${OUT} RESULT_VARIABLE code)
if(code)
  message(FATAL_ERROR "the probe failed: ${code}")
endif()
file(READ ${OUT} text)
foreach(line "a prefix of a handle maps: no" "an inner part of a handle maps: no"
        "a second mapping shows the same bytes: yes" "one unmap over two whole mappings: yes"
        "cuMemCreate [0-9]+ 0 [0-9]+"
        "cuMemSetAccess [0-9]+ [0-9]+ [0-9]+" "cuEventQuery [0-9]+")
  if(NOT text MATCHES "${line}")
    message(FATAL_ERROR "the probe did not print \"${line}\":\n${text}")
  endif()
endforeach()
set(ENV{SEAMALLOC_SIM_COST} ${OUT})
execute_process(COMMAND ${PROBE} OUTPUT_QUIET RESULT_VARIABLE code)
if(code)
  message(FATAL_ERROR "the simulator does not take the probe's own cost file: ${code}")
endif()
