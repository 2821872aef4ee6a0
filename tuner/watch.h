// SPDX-License-Identifier: Apache-2.0
//
// Tells of bundles, plugin libraries and files whose content has changed and rests.
//
// inotify only wakes it, beside a look every few seconds for network file systems: what has changed
// is decided by looking, so that no editor's way of replacing a file, no lost event and no symlink
// that is switched has a rule of its own. A change is told once its files have been the same for
// `rest`, and their content differs from what was told last, or was there when the watch began.
// What does not parse yet (`parses`) is given ten times `rest` before it is told all the same: a
// half-written file gets its other half, and a wrong one its error.
//
// Passed over: temporary files of editors (names that begin with '.' or '#', or end in '~', ".tmp",
// ".swp", ...), and symlinks that lead out of the directory. A directory or file that is deleted is
// waited for; nothing is told of that.
//
// Threading: the functions from any thread; `changed` and `parses` are called on the watcher's own.
// The destructor waits for that.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace kvr {

class Watcher {
 public:
  struct Place {
    enum class Kind { kBundle, kLibrary, kFile } kind;
    std::string path;
  };
  using Changed = std::function<void(const Place&)>;
  using Parses = std::function<bool(const Place&)>;

  static absl::StatusOr<std::unique_ptr<Watcher>> Create(absl::Duration rest, Changed changed,
                                                         Parses parses);
  ~Watcher();

  // Each plugin below `directory`, as plugins/scan.h finds them. Refused: no directory, or one that
  // plugins may not come from (plugins/files.h).
  absl::Status AddDirectory(const std::string& directory);
  // It need not exist yet; its directory must.
  absl::Status AddFile(const std::string& path);

 private:
  struct State;
  explicit Watcher(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace kvr
