// SPDX-License-Identifier: Apache-2.0
//
// The include resolver. Compilers report no dependencies that could be trusted, so KVR finds them
// itself: every #include reachable over every conditional branch, from the bundle's own files,
// then a compiler's header roots in order. The compiler is then given that set in memory and no
// search path at all. A name found nowhere is recorded in Unit::missing, not fatal: most sit in
// branches that are not taken.
//
// A file is read, hashed and scanned once per HeaderIndex, on first use; the snapshot holds until
// Revalidate, so a key computed twice in a process is the same key.
//
// Quoted includes look in the includer's directory first, then like angled ones. Because the
// in-memory set knows files by one name only, a directive that resolves to another name than it
// spells (relative, "../") is rewritten in the snapshot, line numbers kept. Computed includes
// (#include MACRO) and absolute names are not followed: in the bundle's own files RenderUnit
// refuses them (jit/directives.h).
//
// Threading: all functions may be called concurrently.
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "jit/compiler.h"
#include "jit/unit.h"

namespace kvr {

// An #include as written; `begin` is where the name starts in the text, delimiter excluded.
struct IncludeDirective {
  std::string name;
  bool quoted = false;
  size_t begin = 0;
};

// Every #include directive of `text` that spells its name, in all branches.
std::vector<IncludeDirective> ScanIncludes(std::string_view text);

class HeaderIndex {
 public:
  explicit HeaderIndex(std::vector<HeaderRoot> roots);
  ~HeaderIndex();

  // Completes unit->headers, unit->missing and unit->fingerprint. Bundle files that nothing
  // includes are dropped.
  void Resolve(Unit* unit);

  // Forgets snapshots whose file changed, appeared or went away; true if there was any.
  bool Revalidate();

  int64_t files_read() const;  // for tests and reports

 private:
  struct Entry;
  std::shared_ptr<const Entry> Find(const std::string& name);

  const std::vector<HeaderRoot> roots_;
  mutable std::mutex mutex_;
  std::unordered_map<std::string, std::shared_ptr<const Entry>> entries_;
  int64_t files_read_ = 0;
};

}  // namespace kvr
