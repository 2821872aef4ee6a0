# SPDX-License-Identifier: Apache-2.0
#
# std/* as one C++ table, name and content. Re-run by the build when a file changes or appears.
file(GLOB kvr_std_headers CONFIGURE_DEPENDS ${CMAKE_CURRENT_LIST_DIR}/std/*)
list(FILTER kvr_std_headers EXCLUDE REGEX "README.md$")
set(kvr_std_table "")
foreach(path IN LISTS kvr_std_headers)
  get_filename_component(name "${path}" NAME)
  file(READ "${path}" content)
  string(APPEND kvr_std_table "    {\"${name}\", R\"kvr(${content})kvr\"},\n")
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS "${path}")
endforeach()
configure_file(${CMAKE_CURRENT_LIST_DIR}/std_headers.cc.in ${CMAKE_CURRENT_BINARY_DIR}/std_headers.cc
               @ONLY)
