// SPDX-License-Identifier: Apache-2.0
//
// Where a C++ file names other files. Exact about what stands in comments, literals and raw
// strings, and about spliced lines and digraphs; all conditional branches count. Trigraphs are not
// read: no compiler here honours them.
//
// Threading: pure functions.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "jit/unit.h"

namespace kvr {

struct FileReference {
  std::string_view keyword;  // "#include", "#include_next", "#import", "#embed", "import",
                             // "__has_include", "__has_include_next", "__has_embed"; the
                             // assembler's ".incbin" and ".include" in a literal, without name
  std::string name;          // as written, delimiters excluded; empty: not a literal <...> or "..."
  bool quoted = false;
  size_t site = 0;   // where the reference stands in the text
  size_t begin = 0;  // where the name starts
};
std::vector<FileReference> FindFileReferences(std::string_view text);

// Refuses what would let one of the bundle's own files read a file that the key does not hash, or
// ask for it: an absolute name, a name that only the preprocessor can compute, #include_next,
// #import, #embed, .incbin. NVRTC opens these on the disk whatever its options say, and so does the
// host's assembler. Who hides one on purpose (by pasting or concatenation) is not caught. Headers
// of a toolkit are held to none of it. kInvalidArgument at the author's line and column. `unit` is
// as RenderUnit makes it: its headers are the bundle's.
absl::Status CheckFileReferences(const Unit& unit);

}  // namespace kvr
