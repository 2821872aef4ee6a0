# SPDX-License-Identifier: Apache-2.0
#
# kvr_add_plugin(): bundles, operation definitions and code as one shared library that KVR loads.
# In an install find_package(KVR) provides it.
#
#   kvr_add_plugin(my_kernels                      # target my_kernels, file my_kernels.so
#     VERSION 1.0.0                                # default: the project's
#     BUNDLES scale_rows/fast scale_rows/wide      # directories with a variant.toml
#     DEFINITIONS scale_rows/definition.json       # operations of its own
#     SOURCES plugin.c                             # C or C++ with kvr_plugin_v1 (kvr_plugin.h);
#                                                  # none: the plugin is data alone
#     LINK m)                                      # libraries of the sources
#
# Every file of a bundle that a manifest could name goes in, under its path from the current source
# directory, or from the bundle's parent where the bundle lies elsewhere; SOURCES, build trees and
# hidden files stay out. Editing, adding or removing one rebuilds the library. It exports
# kvr_plugin_v1 and nothing else, holds no path of this machine, and has no RPATH.

function(kvr_add_plugin name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "VERSION" "BUNDLES;DEFINITIONS;SOURCES;LINK")
  set(where "kvr_add_plugin(${name})")
  if(arg_UNPARSED_ARGUMENTS)
    message(FATAL_ERROR "${where}: unknown arguments: ${arg_UNPARSED_ARGUMENTS}")
  endif()
  if(NOT name MATCHES "^[A-Za-z0-9_][A-Za-z0-9._-]*$")
    message(FATAL_ERROR "${where}: the name may hold letters, digits and ._- only")
  endif()
  if(NOT arg_VERSION)
    set(arg_VERSION "${PROJECT_VERSION}")
  endif()
  if(NOT arg_VERSION MATCHES "^[0-9]+\\.[0-9]+\\.[0-9]+$")
    message(FATAL_ERROR "${where}: version '${arg_VERSION}': give VERSION MAJOR.MINOR.PATCH")
  endif()
  if(NOT arg_BUNDLES AND NOT arg_DEFINITIONS)
    message(FATAL_ERROR "${where}: nothing to wrap: give BUNDLES or DEFINITIONS")
  endif()

  set(sources)
  foreach(source IN LISTS arg_SOURCES)
    get_filename_component(source "${source}" ABSOLUTE)
    list(APPEND sources "${source}")
  endforeach()

  # `files` and, at the same position, `names`: what they are called in the plugin.
  set(files)
  set(names)
  foreach(bundle IN LISTS arg_BUNDLES)
    get_filename_component(bundle "${bundle}" ABSOLUTE)
    if(NOT EXISTS "${bundle}/variant.toml")
      message(FATAL_ERROR "${where}: no variant.toml in ${bundle}")
    endif()
    kvr_plugin_base_("${bundle}" base)
    kvr_plugin_files_("${bundle}" found)
    if(sources)
      list(REMOVE_ITEM found ${sources})
    endif()
    foreach(file IN LISTS found)
      file(RELATIVE_PATH file_name "${base}" "${file}")
      list(APPEND files "${file}")
      list(APPEND names "${file_name}")
    endforeach()
  endforeach()
  foreach(definition IN LISTS arg_DEFINITIONS)
    get_filename_component(definition "${definition}" ABSOLUTE)
    get_filename_component(directory "${definition}" DIRECTORY)
    get_filename_component(file_name "${definition}" NAME)
    if(NOT EXISTS "${definition}" OR NOT file_name STREQUAL "definition.json")
      message(FATAL_ERROR "${where}: ${definition} is no file named definition.json")
    endif()
    kvr_plugin_base_("${directory}" base)
    file(RELATIVE_PATH file "${base}" "${definition}")
    list(APPEND files "${definition}")
    list(APPEND names "${file}")
  endforeach()
  set(unique ${names})
  list(REMOVE_DUPLICATES unique)
  if(NOT unique STREQUAL names)
    message(FATAL_ERROR "${where}: two of the files have one name: ${names}")
  endif()

  # One generated file holds the records. C where the project has it.
  get_property(languages GLOBAL PROPERTY ENABLED_LANGUAGES)
  set(suffix cc)
  if("C" IN_LIST languages)
    set(suffix c)
  endif()
  set(records "/* Written by ${where}. */\n#include \"kvr_plugin.h\"\n\n")
  string(APPEND records "KVR_PLUGIN(\"${name}\", \"${arg_VERSION}\");\n")
  foreach(file file_name IN ZIP_LISTS files names)
    # Through a string of C into one of the assembler.
    string(REPLACE "\\" "\\\\\\\\" file "${file}")
    string(REPLACE "\"" "\\\\\\\"" file "${file}")
    string(APPEND records "KVR_PLUGIN_FILE(\"${file_name}\", \"${file}\");\n")
  endforeach()
  set(exports "{ local: *; };\n")
  if(sources)
    # A library that has code but not the entry point fails to link.
    string(APPEND records "\nextern const kvr_plugin* (*const kvr_entry_point)(void);\n"
      "const kvr_plugin* (*const kvr_entry_point)(void) = kvr_plugin_v1;\n")
    set(exports "{ global: kvr_plugin_v1; local: *; };\n")
  endif()
  set(generated "${CMAKE_CURRENT_BINARY_DIR}/${name}.plugin.${suffix}")
  set(map "${CMAKE_CURRENT_BINARY_DIR}/${name}.plugin.map")
  file(CONFIGURE OUTPUT "${generated}" CONTENT "${records}" @ONLY)
  file(CONFIGURE OUTPUT "${map}" CONTENT "${exports}" @ONLY)
  # The compiler does not report what .incbin reads.
  set_source_files_properties("${generated}" PROPERTIES
    OBJECT_DEPENDS "${files}" COMPILE_OPTIONS "-fno-lto")

  add_library(${name} MODULE "${generated}" ${sources})
  target_link_libraries(${name} PRIVATE kvr::plugin_sdk ${arg_LINK})
  set_target_properties(${name} PROPERTIES
    PREFIX "" SUFFIX ".so" LINK_DEPENDS "${map}"
    C_VISIBILITY_PRESET hidden CXX_VISIBILITY_PRESET hidden VISIBILITY_INLINES_HIDDEN ON
    BUILD_WITH_INSTALL_RPATH ON INSTALL_RPATH "" INSTALL_RPATH_USE_LINK_PATH OFF)
  # A second copy of the library, loaded after a rebuild, must not share statics with the first.
  target_compile_options(${name} PRIVATE
    $<$<AND:$<COMPILE_LANGUAGE:CXX>,$<CXX_COMPILER_ID:GNU>>:-fno-gnu-unique>)
  get_target_property(includes kvr::plugin_sdk INTERFACE_INCLUDE_DIRECTORIES)
  list(FILTER includes EXCLUDE REGEX "^\\$")
  foreach(path IN LISTS includes ITEMS "${CMAKE_SOURCE_DIR}" "${CMAKE_BINARY_DIR}")
    target_compile_options(${name} PRIVATE "-ffile-prefix-map=${path}=.")
  endforeach()
  target_link_options(${name} PRIVATE "-Wl,--version-script=${map}" -Wl,--as-needed)
  # A sanitizer's runtime comes from the executable.
  if(NOT "${CMAKE_C_FLAGS} ${CMAKE_CXX_FLAGS}" MATCHES "-fsanitize")
    target_link_options(${name} PRIVATE -Wl,-z,defs)
  endif()
endfunction()

# The files beneath a directory that a manifest may name. Build trees are not looked into: what
# changes there would make CMake run again at every build.
function(kvr_plugin_files_ directory files)
  set(all)
  file(GLOB entries CONFIGURE_DEPENDS LIST_DIRECTORIES TRUE "${directory}/*")
  foreach(entry IN LISTS entries)
    get_filename_component(entry_name "${entry}" NAME)
    if(NOT entry_name MATCHES "^[A-Za-z0-9_-][A-Za-z0-9._-]*$" OR entry_name STREQUAL "CMakeLists.txt")
      continue()
    elseif(NOT IS_DIRECTORY "${entry}")
      list(APPEND all "${entry}")
    elseif(NOT entry STREQUAL CMAKE_BINARY_DIR AND NOT EXISTS "${entry}/CMakeCache.txt")
      kvr_plugin_files_("${entry}" nested)
      list(APPEND all ${nested})
    endif()
  endforeach()
  set(${files} "${all}" PARENT_SCOPE)
endfunction()

# What names in a plugin are relative to: the current source directory, or the parent of what lies
# outside of it (or is it).
function(kvr_plugin_base_ directory base)
  set(${base} "${CMAKE_CURRENT_SOURCE_DIR}" PARENT_SCOPE)
  string(FIND "${directory}/" "${CMAKE_CURRENT_SOURCE_DIR}/" at)
  if(NOT at EQUAL 0 OR directory STREQUAL CMAKE_CURRENT_SOURCE_DIR)
    get_filename_component(parent "${directory}" DIRECTORY)
    set(${base} "${parent}" PARENT_SCOPE)
  endif()
endfunction()
