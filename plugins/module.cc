// SPDX-License-Identifier: Apache-2.0
//
// A private copy is loaded, never the plugin's own file: the dynamic loader takes two files of one
// path or inode for one library, and one that is overwritten while it is mapped kills the process.
#include "plugins/module.h"

#include <fcntl.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <exception>
#include <filesystem>
#include <utility>

#define BOOST_DLL_USE_STD_FS
#include <boost/dll/shared_library.hpp>

#include "core/status.h"
#include "core/strings.h"
#include "plugins/scratch_directory.h"

namespace kvr {
namespace {

namespace dll = boost::dll;
namespace fs = std::filesystem;

absl::Status CannotCopy(std::string_view directory, int error) {
  return Error(absl::StatusCode::kUnavailable,
               StrCat("cannot be copied into ", directory, " to be loaded: ", std::strerror(error)),
               "make room there, or let TMPDIR name another directory");
}

// The library's content in a file of its own, gone with the object.
class PrivateCopy {
 public:
  absl::Status Write(std::string_view content, const fs::path& original) {
    // The loader remembers names of what is loaded, and a directory's name may come again.
    static std::atomic<uint64_t> copies = 0;
    auto directory = ScratchDirectory::Create("plugin");
    if (!directory.ok()) {
      return WithContext("to load it, a copy is needed", directory.status());
    }
    directory_ = *std::move(directory);
    file_ = StrCat(directory_->path(), "/", copies.fetch_add(1), "-", original.filename().string());
    const int fd = open(file_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0700);
    if (fd < 0) return CannotCopy(directory_->path(), errno);
    int failed = 0;
    while (!content.empty() && failed == 0) {
      const ssize_t written = write(fd, content.data(), content.size());
      if (written > 0) content.remove_prefix(static_cast<size_t>(written));
      if (written < 0 && errno != EINTR) failed = errno;
    }
    if (close(fd) != 0 && failed == 0) failed = errno;
    return failed == 0 ? absl::OkStatus() : CannotCopy(directory_->path(), failed);
  }

  const std::string& file() const { return file_; }

 private:
  std::unique_ptr<ScratchDirectory> directory_;
  std::string file_;
};

// What the loader said, of the plugin's own file: "cannot be loaded: undefined symbol: x".
absl::Status CannotLoad(std::string_view why, const std::string& copy) {
  constexpr std::string_view kBefore = "dlerror system message: ";
  if (const size_t at = why.find(kBefore); at != std::string_view::npos) {
    why.remove_prefix(at + kBefore.size());
    why = why.substr(0, why.rfind(')'));
  }
  if (why.starts_with(copy)) why.remove_prefix(copy.size());
  while (why.starts_with(':') || why.starts_with(' ')) why.remove_prefix(1);
  const bool no_exec = why.find("failed to map") != std::string_view::npos;
  return Error(absl::StatusCode::kFailedPrecondition, StrCat("cannot be loaded: ", why),
               no_exec ? "let TMPDIR name a directory on a file system that allows execution"
                       : "link it with what it needs; $ORIGIN is not its directory (ldd FILE)");
}

}  // namespace

struct PluginModule::Handle {
  dll::shared_library library;
};

PluginModule::PluginModule(std::unique_ptr<Handle> handle) : handle_(std::move(handle)) {}
PluginModule::~PluginModule() = default;

absl::StatusOr<std::unique_ptr<const PluginModule>> PluginModule::Load(std::string_view content,
                                                                       const std::string& path,
                                                                       uint32_t abi_minor) {
  PrivateCopy copy;
  KVR_RETURN_IF_ERROR(copy.Write(content, path));
  auto handle = std::make_unique<Handle>();
  try {
    handle->library.load(copy.file(), dll::load_mode::rtld_now | dll::load_mode::rtld_local);
  } catch (const std::exception& error) {
    return CannotLoad(error.what(), copy.file());
  }
  std::unique_ptr<PluginModule> module(new PluginModule(std::move(handle)));
  if (!module->handle_->library.has("kvr_plugin_v1")) {
    return Error(absl::StatusCode::kInvalidArgument, "defines no exported kvr_plugin_v1",
                 "put KVR_EXPORT before its definition");
  }
  const kvr_plugin* plugin = nullptr;
  try {
    plugin = module->handle_->library.get<const kvr_plugin*()>("kvr_plugin_v1")();
  } catch (...) {
    return Error(absl::StatusCode::kInvalidArgument, "throws from kvr_plugin_v1",
                 "return a pointer to a constant");
  }
  KVR_ASSIGN_OR_RETURN(module->code_, CheckPlugin(plugin, abi_minor));
  return module;
}

const kvr_operation* PluginModule::FindOperation(std::string_view name) const {
  for (const kvr_operation& operation : code_.operations) {
    if (name == operation.name) return &operation;
  }
  return nullptr;
}

const kvr_variant* PluginModule::FindVariant(std::string_view op, std::string_view name) const {
  for (const kvr_variant& variant : code_.variants) {
    if (op == variant.op && name == variant.name) return &variant;
  }
  return nullptr;
}

}  // namespace kvr
