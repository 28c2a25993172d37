# SPDX-License-Identifier: Apache-2.0
# What `cmake --install` lays down: the public headers, libseamalloc.so, and the two ways to find them, pkg-config and
# CMake's find_package. Everything can be moved afterwards: no file names the folder it was installed to.
include(CMakePackageConfigHelpers)

set(SEAMALLOC_PACKAGE_DIR ${CMAKE_INSTALL_LIBDIR}/cmake/seamalloc)
install(TARGETS seamalloc EXPORT seamalloc-targets
        LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}
        INCLUDES DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(DIRECTORY include/seamalloc DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} FILES_MATCHING PATTERN "*.h")
# Headers that the build writes, where there are any.
install(DIRECTORY ${CMAKE_BINARY_DIR}/include/seamalloc DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} OPTIONAL
        FILES_MATCHING PATTERN "*.h")

install(EXPORT seamalloc-targets NAMESPACE seamalloc:: DESTINATION ${SEAMALLOC_PACKAGE_DIR})
configure_package_config_file(cmake/seamalloc-config.cmake.in ${CMAKE_BINARY_DIR}/seamalloc-config.cmake
                              INSTALL_DESTINATION ${SEAMALLOC_PACKAGE_DIR})
# Until 1.0 each minor version may change what programs see.
write_basic_package_version_file(${CMAKE_BINARY_DIR}/seamalloc-config-version.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_BINARY_DIR}/seamalloc-config.cmake ${CMAKE_BINARY_DIR}/seamalloc-config-version.cmake
        DESTINATION ${SEAMALLOC_PACKAGE_DIR})

file(RELATIVE_PATH SEAMALLOC_PC_TO_PREFIX /prefix/${CMAKE_INSTALL_LIBDIR}/pkgconfig /prefix)
configure_file(cmake/seamalloc.pc.in ${CMAKE_BINARY_DIR}/seamalloc.pc @ONLY)
install(FILES ${CMAKE_BINARY_DIR}/seamalloc.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
# Policies as files, to begin one's own from.
install(DIRECTORY policies/presets DESTINATION ${CMAKE_INSTALL_DATADIR}/seamalloc OPTIONAL
        FILES_MATCHING PATTERN "*.conf")
install(FILES LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR})
