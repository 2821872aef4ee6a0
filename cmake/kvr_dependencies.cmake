# SPDX-License-Identifier: Apache-2.0
#
# Everything KVR links, found once. What ends up inside a binary that travels to a GPU server is
# linked statically: Abseil, Boost, LLVM's Support library.

find_program(KVR_CCACHE ccache)
if(KVR_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${KVR_CCACHE})
endif()

find_package(Threads REQUIRED)

# Debian's Abseil config names the shared objects; the archives lie beside them.
find_package(absl REQUIRED)
get_directory_property(kvr_imported IMPORTED_TARGETS)
foreach(target IN LISTS kvr_imported)
  if(target MATCHES "^absl::")
    foreach(property IMPORTED_LOCATION IMPORTED_LOCATION_NONE IMPORTED_LOCATION_RELEASE
                     IMPORTED_LOCATION_RELWITHDEBINFO)
      get_target_property(location ${target} ${property})
      if(location MATCHES "\\.so[0-9.]*$")
        string(REGEX REPLACE "\\.so[0-9.]*$" ".a" archive ${location})
        if(EXISTS ${archive})
          set_target_properties(${target} PROPERTIES ${property} ${archive})
        endif()
      endif()
    endforeach()
  endif()
endforeach()

set(Boost_USE_STATIC_LIBS ON)
find_package(Boost 1.74 REQUIRED COMPONENTS filesystem context)

# LLVM's Support library alone, static, without the whole of LLVM's CMake machinery: hashing,
# source diagnostics, formatting. `kvr_llvm_object` adds the ELF reader (0.4 MB of a binary).
find_path(KVR_LLVM_INCLUDE llvm/Support/BLAKE3.h
  HINTS ${KVR_LLVM_ROOT}/include /usr/lib/llvm-19/include REQUIRED)
find_library(KVR_LLVM_SUPPORT NAMES libLLVMSupport.a
  HINTS ${KVR_LLVM_ROOT}/lib /usr/lib/llvm-19/lib REQUIRED)
get_filename_component(KVR_LLVM_LIBDIR ${KVR_LLVM_SUPPORT} DIRECTORY)

add_library(kvr_llvm_support INTERFACE)
target_include_directories(kvr_llvm_support SYSTEM INTERFACE ${KVR_LLVM_INCLUDE})
find_library(KVR_ZSTD NAMES libzstd.a zstd REQUIRED)
find_library(KVR_ZLIB NAMES libz.a z REQUIRED)
target_link_libraries(kvr_llvm_support INTERFACE
  ${KVR_LLVM_SUPPORT} ${KVR_LLVM_LIBDIR}/libLLVMDemangle.a ${KVR_ZSTD} ${KVR_ZLIB}
  Threads::Threads ${CMAKE_DL_LIBS})
# Imported, not named by path: so CMake links it before what it needs.
add_library(kvr_llvm_object STATIC IMPORTED)
set_target_properties(kvr_llvm_object PROPERTIES
  IMPORTED_LOCATION ${KVR_LLVM_LIBDIR}/libLLVMObject.a
  INTERFACE_LINK_LIBRARIES "kvr_llvm_binary_format;kvr_llvm_support")
add_library(kvr_llvm_binary_format STATIC IMPORTED)
set_target_properties(kvr_llvm_binary_format PROPERTIES
  IMPORTED_LOCATION ${KVR_LLVM_LIBDIR}/libLLVMBinaryFormat.a
  INTERFACE_LINK_LIBRARIES "${KVR_LLVM_LIBDIR}/libLLVMTargetParser.a;kvr_llvm_support")

find_package(benchmark QUIET)  # optional: bench/ is built where it is

# The ledger's database, linked statically: it goes where the tuner goes.
find_path(KVR_SQLITE_INCLUDE SQLiteCpp/SQLiteCpp.h REQUIRED)
find_library(KVR_SQLITECPP NAMES libSQLiteCpp.a SQLiteCpp REQUIRED)
find_library(KVR_SQLITE NAMES libsqlite3.a sqlite3 REQUIRED)
add_library(kvr_sqlite INTERFACE)
target_include_directories(kvr_sqlite SYSTEM INTERFACE ${KVR_SQLITE_INCLUDE})
target_link_libraries(kvr_sqlite INTERFACE ${KVR_SQLITECPP} ${KVR_SQLITE} Threads::Threads
  ${CMAKE_DL_LIBS} m)

# Logs, header-only, its fmt too. Debian's spdlog expects a fmt beside it.
find_path(KVR_SPDLOG_INCLUDE spdlog/spdlog.h REQUIRED)
find_path(KVR_FMT_INCLUDE fmt/core.h REQUIRED)
add_library(kvr_spdlog INTERFACE)
target_include_directories(kvr_spdlog SYSTEM INTERFACE ${KVR_SPDLOG_INCLUDE} ${KVR_FMT_INCLUDE})
target_compile_definitions(kvr_spdlog INTERFACE SPDLOG_FMT_EXTERNAL FMT_HEADER_ONLY)

find_package(nlohmann_json REQUIRED)
find_package(CLI11 REQUIRED)
find_path(KVR_TOMLPP_INCLUDE toml++/toml.h REQUIRED)
add_library(kvr_tomlpp INTERFACE)
target_include_directories(kvr_tomlpp SYSTEM INTERFACE ${KVR_TOMLPP_INCLUDE})
target_compile_definitions(kvr_tomlpp INTERFACE TOML_HEADER_ONLY=1)

# Driver API, NVRTC and device headers: from a toolkit or NVIDIA's PyPI wheels; only cuda.h and
# nvrtc.h are needed to build, and nothing of CUDA is linked. Without them KVR builds host-only.
set(kvr_cuda_hints ${KVR_CUDA_HOME})
if(DEFINED ENV{CUDA_HOME})
  list(APPEND kvr_cuda_hints $ENV{CUDA_HOME})
endif()
if(NOT KVR_NO_SYSTEM_CUDA)
  list(APPEND kvr_cuda_hints /usr/local/cuda)
endif()
find_path(KVR_CUDA_INCLUDE NAMES nvrtc.h PATHS ${kvr_cuda_hints} PATH_SUFFIXES include NO_DEFAULT_PATH)
