# SPDX-License-Identifier: Apache-2.0

# Warnings are errors in KVR's own code; dependencies come in as SYSTEM includes.
add_library(kvr_warnings INTERFACE)
target_compile_options(kvr_warnings INTERFACE
  $<$<COMPILE_LANGUAGE:C>:-Wall -Wextra -Wshadow -Werror>
  $<$<COMPILE_LANGUAGE:CXX>:-Wall -Wextra -Wshadow -Wnon-virtual-dtor -Woverloaded-virtual
    -Wno-missing-field-initializers -Werror>
  # g++ 12 sees overlapping copies in string concatenation that are not there (GCC bug 105651).
  $<$<CXX_COMPILER_ID:GNU>:-Wno-restrict>)
target_include_directories(kvr_warnings INTERFACE ${CMAKE_SOURCE_DIR})

# kvr_house(name SOURCES a.cc b.cc LINK absl::status ...): a static library of one house.
function(kvr_house name)
  cmake_parse_arguments(arg "" "" "SOURCES;LINK;PRIVATE" ${ARGN})
  add_library(kvr_${name} STATIC ${arg_SOURCES})
  target_link_libraries(kvr_${name} PUBLIC ${arg_LINK} PRIVATE kvr_warnings ${arg_PRIVATE})
  target_include_directories(kvr_${name} PUBLIC ${CMAKE_SOURCE_DIR})
endfunction()

# Seconds, of every test: the end of what hangs, and of nothing else. Where six tests share one core
# the slowest takes 440, and a machine may be slower still.
set(kvr_test_timeout 3600)

# kvr_test(name SOURCES a_test.cc LINK kvr_core LABELS slow): one GoogleTest executable, run by
# CTest as one test, labelled. KVR_SOURCE_DIR and KVR_BIN_DIR tell it where things lie; a test with
# label gpu is also installed, and finds what it needs through core/install_layout.h.
function(kvr_test name)
  cmake_parse_arguments(arg "" "" "SOURCES;LINK;LABELS;ENVIRONMENT" ${ARGN})
  add_executable(${name} ${arg_SOURCES})
  target_link_libraries(${name} PRIVATE ${arg_LINK} kvr_warnings GTest::gtest GTest::gmock GTest::gtest_main)
  target_include_directories(${name} PRIVATE ${CMAKE_SOURCE_DIR})
  target_compile_definitions(${name} PRIVATE
    KVR_SOURCE_DIR="${CMAKE_SOURCE_DIR}" KVR_BIN_DIR="${CMAKE_RUNTIME_OUTPUT_DIRECTORY}")
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
  add_test(NAME ${name} COMMAND ${name})
  set_tests_properties(${name} PROPERTIES TIMEOUT ${kvr_test_timeout} LABELS "${arg_LABELS}"
    SKIP_RETURN_CODE 77)
  if("gpu" IN_LIST arg_LABELS)
    install(TARGETS ${name} RUNTIME DESTINATION tests COMPONENT tests)
  endif()
  if(arg_ENVIRONMENT)
    set_tests_properties(${name} PROPERTIES ENVIRONMENT "${arg_ENVIRONMENT}")
  endif()
endfunction()
