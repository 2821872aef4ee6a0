// SPDX-License-Identifier: Apache-2.0
//
// Finding NVRTC and the headers of its release. The release of the library is read off the name of
// its builtins (libnvrtc-builtins.so.13.0), so a candidate is judged without loading it.
#include <dirent.h>
#include <dlfcn.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <optional>
#include <system_error>

#include "core/install_layout.h"
#include "core/status.h"
#include "jit/nvrtc/nvrtc.h"

namespace kvr {
namespace {

constexpr int kOldestMajor = 12, kNewestMajor = 13;

bool IsFile(const std::string& path) {
  struct stat s;
  return stat(path.c_str(), &s) == 0 && S_ISREG(s.st_mode);
}
bool IsDirectory(const std::string& path) {
  struct stat s;
  return stat(path.c_str(), &s) == 0 && S_ISDIR(s.st_mode);
}

std::string Environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

struct Release {
  int major = 0, minor = 0;
  std::string Text() const { return std::to_string(major) + "." + std::to_string(minor); }
  bool operator==(const Release&) const = default;
};

// "#define CUDA_VERSION 13000" in cuda.h, or the runtime's spelling of it.
std::optional<Release> HeaderRelease(const std::vector<std::string>& includes) {
  for (const std::string& include : includes) {
    for (const char* name : {"/cuda.h", "/cuda_runtime_api.h"}) {
      std::ifstream file(include + name);
      std::string line;
      while (std::getline(file, line)) {
        for (std::string_view macro : {"#define CUDA_VERSION ", "#define CUDART_VERSION "}) {
          size_t at = line.find(macro);
          if (at == std::string::npos) continue;
          int version = std::atoi(line.c_str() + at + macro.size());
          if (version >= 1000) return Release{version / 1000, version % 1000 / 10};
        }
      }
    }
  }
  return std::nullopt;
}

// The builtins of `major` in `directory`: "libnvrtc-builtins.so.13.0", its release from its name.
std::optional<std::pair<std::string, Release>> FindBuiltins(const std::string& directory,
                                                            int major) {
  constexpr std::string_view kPrefix = "libnvrtc-builtins.so.";
  std::optional<std::pair<std::string, Release>> best;
  DIR* handle = opendir(directory.c_str());
  if (handle == nullptr) return best;
  while (dirent* entry = readdir(handle)) {
    std::string name = entry->d_name;
    if (name.compare(0, kPrefix.size(), kPrefix) != 0) continue;
    Release release;
    // A full version "12.4.127" counts as 12.4.
    if (std::sscanf(name.c_str() + kPrefix.size(), "%d.%d", &release.major, &release.minor) != 2 ||
        release.major != major)
      continue;
    if (!best || release.minor > best->second.minor) best = {directory + "/" + name, release};
  }
  closedir(handle);
  return best;
}

// Where a candidate's parts may lie.
struct Candidate {
  std::string origin;
  std::vector<std::string> libraries, includes;
};

Candidate Toolkit(const std::string& origin, const std::string& home) {
  Candidate candidate{origin, {}, {}};
  for (const char* lib : {"/lib64", "/lib", "/targets/x86_64-linux/lib", "/targets/sbsa-linux/lib"})
    candidate.libraries.push_back(home + lib);
  for (const char* include :
       {"/include", "/targets/x86_64-linux/include", "/targets/sbsa-linux/include"}) {
    candidate.includes.push_back(home + include);
    candidate.includes.push_back(home + include + "/cccl");
  }
  return candidate;
}

// NVIDIA's PyPI wheels: one tree per major release since 13, one per component before.
Candidate Wheels(const std::string& origin, const std::string& site_packages) {
  std::string nvidia = site_packages;
  if (IsDirectory(nvidia + "/nvidia")) nvidia += "/nvidia";
  Candidate candidate = Toolkit(origin, nvidia + "/cu13");
  candidate.libraries.push_back(nvidia + "/cuda_nvrtc/lib");
  for (const char* part : {"/cuda_runtime/include", "/cuda_cccl/include", "/cuda_nvcc/include"})
    candidate.includes.push_back(nvidia + part);
  return candidate;
}

bool LooksLikeWheels(const std::string& directory) {
  return IsDirectory(directory + "/nvidia") || IsDirectory(directory + "/cu13") ||
         IsDirectory(directory + "/cuda_nvrtc");
}

// The candidate as a toolchain, or what it lacks.
absl::StatusOr<Toolchain> Examine(const Candidate& candidate) {
  Toolchain toolchain;
  toolchain.origin = candidate.origin;
  for (const std::string& include : candidate.includes)
    if (IsDirectory(include)) toolchain.includes.push_back(include);
  auto lacks = [](const std::string& what) {
    return absl::NotFoundError(absl::string_view(what.data(), what.size()));
  };
  std::string wrong = "no libnvrtc.so.13 or .12";
  for (int major = kNewestMajor; major >= kOldestMajor; --major) {
    for (const std::string& directory : candidate.libraries) {
      std::string library = directory + "/libnvrtc.so." + std::to_string(major);
      if (!IsFile(library)) continue;
      auto builtins = FindBuiltins(directory, major);
      if (!builtins) {
        wrong = library + " without its libnvrtc-builtins";
        continue;
      }
      std::optional<Release> headers = HeaderRelease(toolchain.includes);
      if (!headers) {
        wrong = library + " without headers (cuda.h)";
        continue;
      }
      if (*headers != builtins->second) {
        wrong = library + " is of release " + builtins->second.Text() + ", the headers of " +
                headers->Text();
        continue;
      }
      toolchain.library = library;
      toolchain.builtins = builtins->first;
      toolchain.major = headers->major;
      toolchain.minor = headers->minor;
      return toolchain;
    }
  }
  return lacks(wrong);
}

// What the loader itself would take (ldconfig, LD_LIBRARY_PATH), with the toolkit around it.
std::optional<Candidate> FromLoader() {
  for (int major = kNewestMajor; major >= kOldestMajor; --major) {
    std::string name = "libnvrtc.so." + std::to_string(major);
    void* handle = dlopen(name.c_str(), RTLD_LAZY | RTLD_LOCAL);
    if (handle == nullptr) continue;
    Dl_info info;
    void* symbol = dlsym(handle, "nvrtcVersion");
    if (symbol == nullptr || dladdr(symbol, &info) == 0) continue;
    std::string directory(info.dli_fname);
    directory.resize(std::min(directory.rfind('/'), directory.size()));
    Candidate candidate = Toolkit("the loader's path", directory + "/..");
    candidate.libraries.insert(candidate.libraries.begin(), directory);
    candidate.includes.push_back("/usr/include");  // a distribution's own packages
    return candidate;
  }
  return std::nullopt;
}

}  // namespace

std::string WheelsDirectory() {
  if (std::string named = Environment("KVR_WHEELS"); !named.empty()) return named;
  std::error_code error;
  std::filesystem::directory_iterator python(InstallPath(".venv/lib"), error);
  for (; !error && python != std::filesystem::directory_iterator(); python.increment(error)) {
    const std::filesystem::path packages = python->path() / "site-packages";
    if (IsDirectory(packages / "nvidia")) return packages;
  }
  return "";
}

absl::StatusOr<Toolchain> FindToolchain(const ToolchainOptions& options) {
  if (std::string hidden = Environment("KVR_NO_CUDA"); !hidden.empty() && hidden != "0") {
    return Error(absl::StatusCode::kNotFound, "CUDA is hidden by KVR_NO_CUDA=" + hidden,
                 "unset KVR_NO_CUDA");
  }
  std::string looked;
  auto examine = [&](const Candidate& candidate, const std::string& place) {
    absl::StatusOr<Toolchain> toolchain = Examine(candidate);
    if (!toolchain.ok()) {
      looked += (looked.empty() ? "" : "; ") + candidate.origin + " (" + place + "): ";
      looked += std::string(What(toolchain.status()));
    }
    return toolchain;
  };
  auto directory = [&](const std::string& origin, const std::string& place) {
    return examine(LooksLikeWheels(place) ? Wheels(origin, place) : Toolkit(origin, place), place);
  };
  auto failed = [&] {
    const std::string venv = InstallPath(".venv");
    return Error(
        absl::StatusCode::kNotFound, "no usable NVRTC: " + looked,
        "set KVR_CUDA_HOME to a CUDA 12 or 13 toolkit, or get NVIDIA's wheels: python3 -m "
        "venv '" +
            venv + "' && '" + venv +
            "/bin/pip' install --no-deps "
            "nvidia-cuda-nvrtc==13.0.* nvidia-cuda-runtime==13.0.* nvidia-cuda-crt==13.0.* "
            "nvidia-cuda-cccl==13.0.*");
  };

  std::string pinned = options.cuda_home;
  if (pinned.empty()) pinned = Environment("KVR_CUDA_HOME");
  if (!pinned.empty()) {
    absl::StatusOr<Toolchain> toolchain = directory("KVR_CUDA_HOME", pinned);
    return toolchain.ok() ? toolchain : failed();
  }
  std::string wheels = options.wheels.empty() ? WheelsDirectory() : options.wheels;
  const std::pair<std::string, std::string> places[] = {
      {"CUDA_HOME", Environment("CUDA_HOME")},
      {"wheels", wheels},
      {"default", "/usr/local/cuda"},
  };
  for (const auto& [origin, place] : places) {
    if (place.empty()) continue;
    absl::StatusOr<Toolchain> toolchain = directory(origin, place);
    if (toolchain.ok()) return toolchain;
  }
  if (std::optional<Candidate> candidate = FromLoader()) {
    absl::StatusOr<Toolchain> toolchain = examine(*candidate, candidate->libraries.front());
    if (toolchain.ok()) return toolchain;
  } else {
    looked += "; the loader's path: no libnvrtc.so.13 or .12";
  }
  return failed();
}

}  // namespace kvr
