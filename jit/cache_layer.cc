// SPDX-License-Identifier: Apache-2.0
#include "jit/cache_layer.h"

#include <errno.h>
#include <string.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "core/status.h"
#include "core/strings.h"
#include "jit/cache.h"

namespace kvr {
namespace {

using absl::StatusCode;
using Json = nlohmann::ordered_json;

constexpr char kKind[] = "kvr-cache-layer";
constexpr int64_t kMaxManifestBytes = 64 << 20;

std::string ManifestPath(const std::string& directory) { return directory + "/manifest.json"; }

std::vector<std::string> Distinct(const std::vector<LayerBinary>& binaries,
                                  std::string LayerBinary::*field) {
  std::set<std::string> values;
  for (const LayerBinary& binary : binaries) values.insert(binary.*field);
  return {values.begin(), values.end()};
}

LayerBinary Described(const BinaryCache::Info& info) {
  return {info.key, info.source, info.label, info.target, info.compiler, info.file_bytes};
}

// What lies in the directory now: its manifest never lists what is not there.
int WriteManifest(const std::string& directory) {
  LayerManifest manifest;
  for (const BinaryCache::Info& info : BinaryCache(directory).List()) {
    if (info.valid()) manifest.binaries.push_back(Described(info));
  }
  std::sort(manifest.binaries.begin(), manifest.binaries.end(),
            [](const LayerBinary& a, const LayerBinary& b) {
              return a.label != b.label ? a.label < b.label : a.key < b.key;
            });
  Json binaries = Json::array();
  for (const LayerBinary& binary : manifest.binaries) {
    binaries.push_back({{"key", binary.key.Hex()},
                        {"source", binary.source.Hex()},
                        {"label", binary.label},
                        {"target", binary.target},
                        {"compiler", binary.compiler},
                        {"bytes", binary.bytes}});
  }
  const Json json = {{"kind", kKind},
                     {"schema", 1},
                     {"targets", manifest.targets()},
                     {"compilers", manifest.compilers()},
                     {"binaries", std::move(binaries)}};
  return WriteAtomically(CacheFiles::System(), ManifestPath(directory),
                         json.dump(1, ' ', false, Json::error_handler_t::replace) + "\n");
}

absl::Status CannotWrite(const std::string& directory, int error) {
  return Error(StatusCode::kUnavailable, StrCat(directory, " cannot be written: ", strerror(error)),
               "name a directory with space that you may write");
}

}  // namespace

std::vector<std::string> LayerManifest::targets() const {
  return Distinct(binaries, &LayerBinary::target);
}
std::vector<std::string> LayerManifest::compilers() const {
  return Distinct(binaries, &LayerBinary::compiler);
}

absl::StatusOr<LayerManifest> ReadManifest(const std::string& directory, CacheFiles& files) {
  const std::string path = ManifestPath(directory);
  const auto refuse = [&](std::string_view what) {
    return Error(StatusCode::kDataLoss, StrCat(path, " ", what), "export the layer anew");
  };
  const WholeFile file = ReadWhole(files, path, kMaxManifestBytes);
  if (file.damage.empty() && (file.error == ENOENT || file.error == ENOTDIR)) {
    return Error(StatusCode::kNotFound, StrCat("there is no ", path),
                 "name a directory that `kvr cache export` made");
  }
  if (!file.damage.empty()) return refuse(file.damage);
  if (file.error != 0) return refuse(StrCat("cannot be read: ", strerror(file.error)));
  const Json json = Json::parse(file.content, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) return refuse("is no JSON object");
  if (json.value("kind", Json()) != kKind || json.value("schema", Json()) != 1) {
    return refuse(StrCat("is no ", kKind, " of schema 1"));
  }
  const Json binaries = json.value("binaries", Json());
  if (!binaries.is_array()) return refuse("lists no binaries");
  LayerManifest manifest;
  for (const Json& item : binaries) {
    const auto text = [&](const char* name) {
      const Json value = item.is_object() ? item.value(name, Json()) : Json();
      return value.is_string() ? value.get<std::string>() : std::string();
    };
    const absl::StatusOr<Fingerprint> key = Fingerprint::FromHex(text("key")),
                                      source = Fingerprint::FromHex(text("source"));
    const Json bytes = item.is_object() ? item.value("bytes", Json()) : Json();
    if (!key.ok() || !source.ok() || text("target").empty() || !bytes.is_number_integer()) {
      return refuse(
          StrCat("has no key, source, target and bytes in binary ", manifest.binaries.size()));
    }
    manifest.binaries.push_back(
        {*key, *source, text("label"), text("target"), text("compiler"), bytes.get<int64_t>()});
  }
  return manifest;
}

bool LayerFilter::Takes(const LayerBinary& binary) const {
  const auto in = [](const std::vector<std::string>& list, std::string_view value) {
    return list.empty() || std::find(list.begin(), list.end(), value) != list.end();
  };
  return in(targets, binary.target) && in(ops, binary.op());
}

namespace {

// Copies what the filter takes. An entry is encoded anew from what was verified, so nothing that
// lay around it travels. `error`: errno of the first write that failed; nothing follows it.
Transfer Copy(const std::vector<BinaryCache::Info>& entries, const LayerFilter& filter,
              const EntryStore& to, int* error) {
  Transfer transfer;
  std::set<Fingerprint> seen;
  for (const BinaryCache::Info& info : entries) {
    const EntryStore from(info.layer, CacheFiles::System());
    if (!info.valid()) {
      transfer.refused.emplace_back(from.PathOf(info.key), info.damage);
      continue;
    }
    if (!filter.Takes(Described(info)) || !seen.insert(info.key).second) continue;
    if (to.Read(info.key, /*use=*/false).binary != nullptr) {
      ++transfer.present;
      continue;
    }
    const CacheEntry entry = from.Read(info.key, /*use=*/false);
    if (entry.binary == nullptr) continue;  // trimmed meanwhile
    const std::string content = EncodeEntry(*entry.binary, entry.label);
    *error = to.Write(info.key, content);
    if (*error != 0) return transfer;
    ++transfer.copied;
    transfer.bytes += static_cast<int64_t>(content.size());
  }
  return transfer;
}

}  // namespace

absl::StatusOr<Transfer> ExportLayer(const BinaryCache& from, const std::string& directory,
                                     const LayerFilter& filter) {
  const std::vector<std::string> inside = NamesIn(directory);
  const bool layer =
      std::find(inside.begin(), inside.end(), kCacheLayout.substr(1)) != inside.end();
  if (!inside.empty() && !layer) {
    return Error(StatusCode::kInvalidArgument,
                 StrCat(directory, " has other things in it: ", inside[0]),
                 "name a new or an empty directory, or a layer to add to");
  }
  int error = MakeDirectories(CacheFiles::System(), StrCat(directory, kCacheLayout));
  if (error != 0) return CannotWrite(directory, error);
  const EntryStore to(directory, CacheFiles::System());
  Transfer transfer = Copy(from.List(), filter, to, &error);
  if (error == 0) error = WriteManifest(directory);
  if (error != 0) return CannotWrite(directory, error);
  return transfer;
}

absl::StatusOr<Transfer> ImportLayer(const std::string& directory, BinaryCache& to,
                                     const LayerFilter& filter) {
  if (to.root().empty()) {
    return Error(StatusCode::kFailedPrecondition, "there is no cache directory to import into",
                 "set KVR_CACHE_DIR");
  }
  const std::vector<std::string> inside = NamesIn(directory);
  if (std::find(inside.begin(), inside.end(), kCacheLayout.substr(1)) == inside.end()) {
    return Error(StatusCode::kNotFound,
                 StrCat(directory, " is no cache layer: it has no ", kCacheLayout.substr(1), "/"),
                 "name a directory that `kvr cache export` made");
  }
  const std::vector<BinaryCache::Info> entries = BinaryCache(directory).List();
  const absl::StatusOr<LayerManifest> manifest = ReadManifest(directory);
  if (!manifest.ok() && !absl::IsNotFound(manifest.status())) return manifest.status();
  int error = 0;
  Transfer transfer = Copy(entries, filter, to.store(), &error);
  if (error != 0) return CannotWrite(to.root(), error);
  if (manifest.ok()) {
    std::set<Fingerprint> there;
    for (const BinaryCache::Info& info : entries) there.insert(info.key);
    const EntryStore from(directory, CacheFiles::System());
    for (const LayerBinary& binary : manifest->binaries) {
      if (there.count(binary.key) != 0 || !filter.Takes(binary)) continue;
      transfer.refused.emplace_back(from.PathOf(binary.key),
                                    StrCat("is missing: the manifest lists ", binary.label));
    }
  }
  return transfer;
}

}  // namespace kvr
