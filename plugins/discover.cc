// SPDX-License-Identifier: Apache-2.0
#include "plugins/discover.h"

#include <algorithm>
#include <filesystem>
#include <set>
#include <system_error>
#include <utility>

#include "core/status.h"
#include "core/strings.h"

namespace kvr::bundle {
namespace {

namespace fs = std::filesystem;

absl::Status Unreadable(const fs::path& path, const std::error_code& error) {
  const bool missing = error == std::errc::no_such_file_or_directory;
  return Error(missing ? absl::StatusCode::kNotFound : absl::StatusCode::kPermissionDenied,
               StrCat("'", path.string(), "' cannot be read: ", error.message()),
               "give what exists and you may read");
}

// A manifest of any kind, dangling symlinks too: whether it can be read is said later, by name.
bool HoldsManifest(const fs::path& directory) {
  std::error_code error;
  return fs::symlink_status(directory / "variant.toml", error).type() != fs::file_type::not_found;
}

class Finder {
 public:
  explicit Finder(std::vector<Rejection>* rejections) : rejections_(rejections) {}

  void Scan(const std::string& root) {
    found_in_root_ = false;
    const size_t rejected = rejections_->size();
    std::error_code error;
    if (fs::is_regular_file(root, error)) return Add(root, /*is_library=*/true);
    Visit(root, 2);
    if (found_in_root_ || rejections_->size() > rejected) return;
    rejections_->push_back(
        {root, Error(absl::StatusCode::kNotFound, StrCat("'", root, "' holds no plugin"),
                     "give a compiled plugin (*.so), a bundle, or a directory with *.so, "
                     "<variant>/variant.toml or <op>/<variant>/variant.toml")});
  }

  std::vector<Found> TakeFound() { return std::move(found_); }

 private:
  void Visit(const fs::path& directory, int levels_below) {
    if (HoldsManifest(directory)) return Add(directory, /*is_library=*/false);
    if (levels_below == 0) return;
    const bool is_root = levels_below == 2;
    std::error_code error;
    std::vector<fs::path> below;
    fs::directory_iterator it(directory, error), end;
    for (; !error && it != end; it.increment(error)) {
      std::error_code ignored;
      if (it->path().filename().string().starts_with('.')) continue;
      // A library of any kind, dangling symlinks too, as with manifests.
      const bool library = is_root && it->path().extension() == ".so";
      if (library || it->is_directory(ignored)) below.push_back(it->path());
    }
    if (error) {
      rejections_->push_back({directory.string(), Unreadable(directory, error)});
      return;
    }
    std::sort(below.begin(), below.end(),
              [](const fs::path& a, const fs::path& b) { return a.native() < b.native(); });
    for (const fs::path& path : below) {
      std::error_code ignored;
      if (fs::is_directory(path, ignored)) {
        Visit(path, levels_below - 1);
      } else {
        Add(path, /*is_library=*/true);
      }
    }
  }

  void Add(const fs::path& path, bool is_library) {
    found_in_root_ = true;
    std::error_code error;
    const fs::path canonical = fs::canonical(path, error);
    if (error) {
      rejections_->push_back({path.string(), Unreadable(path, error)});
    } else if (seen_.insert(canonical.string()).second) {
      found_.push_back({canonical.string(), is_library});
    }
  }

  std::vector<Rejection>* rejections_;
  std::vector<Found> found_;
  std::set<std::string> seen_;
  bool found_in_root_ = false;
};

}  // namespace

std::vector<Found> FindPlugins(absl::Span<const std::string> roots,
                               std::vector<Rejection>* rejections) {
  Finder finder(rejections);
  for (const std::string& root : roots) finder.Scan(root);
  return finder.TakeFound();
}

}  // namespace kvr::bundle
