# SPDX-License-Identifier: Apache-2.0
#
# What an install is, on one page. core/install_layout.h finds all of it from the executable,
# or from libkvr.so.
# `cpack -G TGZ` in the build tree writes one archive a component; they unpack into one directory:
#
#   kvr     the command, libkvr.so with kvr.h and kvr.py, the built-in variants, what plugins need to
#           be built
#   host    lib/libkvr_host.so, the host device: Clang is in it
#   tests   the GPU tests and bench/'s scripts, to be run on the GPU machine: tests/run.sh
#   bench   benchmarks of KVR itself; the only part that needs the machine's libstdc++

# A build tree has the same layout: what is not built lies there as links to the sources.
foreach(link IN ITEMS sdk=share/kvr/sdk .venv=.venv python=python
    devices/profiles=share/kvr/profiles tests/tuner/faulty=share/kvr/tests/faulty)
  string(REGEX MATCH "(.*)=(.*)" _ ${link})
  set(source ${CMAKE_SOURCE_DIR}/${CMAKE_MATCH_1})
  set(name ${CMAKE_BINARY_DIR}/${CMAKE_MATCH_2})
  if(NOT IS_SYMLINK ${name})
    get_filename_component(directory ${name} DIRECTORY)
    file(MAKE_DIRECTORY ${directory})
    file(CREATE_LINK ${source} ${name} SYMBOLIC)
  endif()
endforeach()

# Without --prefix an install stays inside the build tree: no accident writes to /usr.
if(CMAKE_INSTALL_PREFIX_INITIALIZED_TO_DEFAULT)
  set(CMAKE_INSTALL_PREFIX ${CMAKE_BINARY_DIR}/install CACHE PATH "Where to install" FORCE)
endif()

install(TARGETS kvr kvr-worker RUNTIME DESTINATION bin)

# For programs that call KVR: find_package(KVR) with kvr::kvr, pkg-config kvr, or PYTHONPATH.
get_target_property(kvr_c_type kvr_c TYPE)
if(kvr_c_type STREQUAL "SHARED_LIBRARY")
  install(TARGETS kvr_c EXPORT KVRTargets LIBRARY DESTINATION lib INCLUDES DESTINATION include)
endif()
install(FILES ${CMAKE_SOURCE_DIR}/api/kvr.h DESTINATION include)
install(FILES ${CMAKE_SOURCE_DIR}/python/kvr.py DESTINATION python)

if(TARGET kvr_host)
  install(TARGETS kvr_host LIBRARY DESTINATION lib COMPONENT host)
endif()
install(DIRECTORY ${CMAKE_SOURCE_DIR}/devices/profiles DESTINATION share/kvr
  FILES_MATCHING PATTERN "*.toml")

# For who builds plugins: find_package(KVR) or pkg-config kvr.
install(DIRECTORY ${CMAKE_SOURCE_DIR}/sdk/device DESTINATION share/kvr/sdk)
install(FILES ${CMAKE_SOURCE_DIR}/sdk/kvr_plugin.h DESTINATION include)
install(TARGETS kvr_plugin_sdk EXPORT KVRTargets)
install(EXPORT KVRTargets NAMESPACE kvr:: DESTINATION lib/cmake/KVR)
include(CMakePackageConfigHelpers)
configure_package_config_file(${CMAKE_SOURCE_DIR}/packaging/KVRConfig.cmake.in
  ${CMAKE_BINARY_DIR}/KVRConfig.cmake INSTALL_DESTINATION lib/cmake/KVR)
write_basic_package_version_file(${CMAKE_BINARY_DIR}/KVRConfigVersion.cmake
  COMPATIBILITY SameMinorVersion ARCH_INDEPENDENT)
install(FILES ${CMAKE_BINARY_DIR}/KVRConfig.cmake ${CMAKE_BINARY_DIR}/KVRConfigVersion.cmake
    ${CMAKE_SOURCE_DIR}/cmake/KVRPlugin.cmake
  DESTINATION lib/cmake/KVR)
configure_file(${CMAKE_SOURCE_DIR}/packaging/kvr.pc.in ${CMAKE_BINARY_DIR}/kvr.pc @ONLY)
install(FILES ${CMAKE_BINARY_DIR}/kvr.pc DESTINATION lib/pkgconfig)

# Reading, and the licences of what is linked in.
install(FILES ${CMAKE_SOURCE_DIR}/README.md ${CMAKE_SOURCE_DIR}/LICENSE DESTINATION share/doc/kvr)
install(DIRECTORY ${CMAKE_SOURCE_DIR}/docs ${CMAKE_SOURCE_DIR}/examples DESTINATION share/doc/kvr)
install(DIRECTORY ${CMAKE_SOURCE_DIR}/variants/mla_sparse_decode ${CMAKE_SOURCE_DIR}/variants/null
  DESTINATION share/doc/kvr/variants)
install(DIRECTORY ${CMAKE_SOURCE_DIR}/bench/results DESTINATION share/doc/kvr/bench)
foreach(package IN ITEMS libabsl-dev libboost-dev libcli11-dev libtomlplusplus-dev
    nlohmann-json3-dev llvm-19-dev libzstd-dev zlib1g-dev libsqlite3-dev libsqlitecpp-dev
    libspdlog-dev libfmt-dev libgtest-dev libbenchmark-dev)
  if(EXISTS /usr/share/doc/${package}/copyright)
    file(REAL_PATH /usr/share/doc/${package}/copyright copyright)
    install(FILES ${copyright} DESTINATION share/doc/kvr/licences RENAME ${package})
  endif()
endforeach()

if(KVR_TESTS)
  install(PROGRAMS ${CMAKE_SOURCE_DIR}/packaging/run_tests.sh DESTINATION tests RENAME run.sh
    COMPONENT tests)
  install(PROGRAMS ${CMAKE_SOURCE_DIR}/tests/python/torch_gpu_test.py DESTINATION tests COMPONENT tests)
  install(DIRECTORY ${CMAKE_SOURCE_DIR}/tests/tuner/faulty DESTINATION share/kvr/tests
    COMPONENT tests)
  install(DIRECTORY ${CMAKE_SOURCE_DIR}/bench/ DESTINATION bench COMPONENT tests
    USE_SOURCE_PERMISSIONS FILES_MATCHING PATTERN "*.sh" PATTERN "*.py" PATTERN results EXCLUDE
    PATTERN variants EXCLUDE PATTERN rooflines EXCLUDE PATTERN kernels EXCLUDE)
endif()

set(CPACK_GENERATOR TGZ)
set(CPACK_PACKAGE_NAME kvr)
set(CPACK_PACKAGE_FILE_NAME kvr-${PROJECT_VERSION}-linux-x86_64)
set(CPACK_PACKAGE_VENDOR KVR)
set(CPACK_STRIP_FILES ON)
set(CPACK_ARCHIVE_COMPONENT_INSTALL ON)
set(CPACK_COMPONENT_INCLUDE_TOPLEVEL_DIRECTORY ON)
set(CPACK_COMPONENTS_GROUPING IGNORE)
set(CPACK_COMPONENTS_ALL kvr)
set(CPACK_ARCHIVE_KVR_FILE_NAME ${CPACK_PACKAGE_FILE_NAME})
if(TARGET kvr_host)
  list(APPEND CPACK_COMPONENTS_ALL host)
  set(CPACK_ARCHIVE_HOST_FILE_NAME kvr-host-${PROJECT_VERSION}-linux-x86_64)
endif()
if(KVR_TESTS)
  list(APPEND CPACK_COMPONENTS_ALL tests)
  set(CPACK_ARCHIVE_TESTS_FILE_NAME kvr-tests-${PROJECT_VERSION}-linux-x86_64)
endif()
if(TARGET kvr-dispatch-bench)
  list(APPEND CPACK_COMPONENTS_ALL bench)
  set(CPACK_ARCHIVE_BENCH_FILE_NAME kvr-bench-${PROJECT_VERSION}-linux-x86_64)
endif()
include(CPack)
