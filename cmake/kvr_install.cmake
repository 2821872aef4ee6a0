# SPDX-License-Identifier: Apache-2.0
#
# What an install is, on one page. core/install_layout.h finds all of it from the executable, so a
# build tree has the same layout: what is not built lies there as links to the sources.

foreach(link IN ITEMS
    "share/kvr/variants|variants" "share/kvr/sdk|sdk" "share/kvr/profiles|devices/profiles"
    ".venv|.venv")
  string(REPLACE "|" ";" pair ${link})
  list(GET pair 0 name)
  list(GET pair 1 source)
  if(NOT IS_SYMLINK ${CMAKE_BINARY_DIR}/${name})
    get_filename_component(directory ${CMAKE_BINARY_DIR}/${name} DIRECTORY)
    file(MAKE_DIRECTORY ${directory})
    file(CREATE_LINK ${CMAKE_SOURCE_DIR}/${source} ${CMAKE_BINARY_DIR}/${name} SYMBOLIC)
  endif()
endforeach()

# Without --prefix an install stays inside the build tree: no accident writes to /usr.
if(CMAKE_INSTALL_PREFIX_INITIALIZED_TO_DEFAULT)
  set(CMAKE_INSTALL_PREFIX ${CMAKE_BINARY_DIR}/install CACHE PATH "Where to install" FORCE)
endif()

install(TARGETS kvr kvr-worker RUNTIME DESTINATION bin)
if(TARGET kvr_host)
  install(TARGETS kvr_host LIBRARY DESTINATION lib)
endif()
install(DIRECTORY ${CMAKE_SOURCE_DIR}/devices/profiles DESTINATION share/kvr FILES_MATCHING PATTERN "*.toml")
install(DIRECTORY ${CMAKE_SOURCE_DIR}/variants/ DESTINATION share/kvr/variants
  FILES_MATCHING PATTERN "*.toml" PATTERN "*.cu" PATTERN "*.cuh" PATTERN common EXCLUDE)
install(DIRECTORY ${CMAKE_SOURCE_DIR}/sdk/device DESTINATION share/kvr/sdk)
