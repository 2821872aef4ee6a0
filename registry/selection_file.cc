// SPDX-License-Identifier: Apache-2.0
#include "registry/selection_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <initializer_list>
#include <limits>
#include <set>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "core/names.h"
#include "core/status.h"
#include "core/strings.h"
#include "nlohmann/json.hpp"
#include "registry/digest.h"

namespace kvr {
namespace {

using nlohmann::json;

constexpr int kSchema = 1;
constexpr std::string_view kKind = "kvr-selections";
constexpr int64_t kMaxFileBytes = int64_t{64} << 20;
constexpr std::string_view kRegenerate =
    "write the file anew with `kvr tune`; do not edit it by hand";

absl::Status Bad(std::string_view place, std::string_view what) {
  return Error(absl::StatusCode::kInvalidArgument, StrCat(place, ": ", what), kRegenerate);
}

// An object with exactly these fields.
absl::Status CheckFields(const json& object, std::string_view place,
                         std::initializer_list<std::string_view> fields) {
  if (!object.is_object()) return Bad(place, "not an object");
  for (std::string_view field : fields) {
    if (!object.contains(field)) return Bad(place, StrCat("field '", field, "' is missing"));
  }
  for (const auto& [name, value] : object.items()) {
    bool known = false;
    for (std::string_view field : fields) known |= field == name;
    if (!known) return Bad(place, StrCat("unknown field ", Quoted(name)));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> Text(const json& object, const char* field, std::string_view place) {
  const json& value = object.at(field);
  if (!value.is_string()) return Bad(place, StrCat("field '", field, "' is not a string"));
  return value.get<std::string>();
}

absl::StatusOr<int64_t> Integer(const json& value, std::string_view place) {
  if (!value.is_number_integer() ||
      (value.is_number_unsigned() && value.get<uint64_t>() > uint64_t{INT64_MAX})) {
    return Bad(place, "not a 64-bit integer");
  }
  return value.get<int64_t>();
}

absl::StatusOr<std::map<std::string, int64_t>> Integers(const json& object,
                                                        std::string_view place) {
  if (!object.is_object()) return Bad(place, "not an object");
  std::map<std::string, int64_t> values;
  for (const auto& [name, value] : object.items()) {
    KVR_ASSIGN_OR_RETURN(values[name], Integer(value, StrCat(place, ".", name)));
  }
  return values;
}

absl::StatusOr<Fingerprint> Hash(const json& object, const char* field, std::string_view place) {
  KVR_ASSIGN_OR_RETURN(const std::string hex, Text(object, field, place));
  absl::StatusOr<Fingerprint> fingerprint = Fingerprint::FromHex(hex);
  if (!fingerprint.ok()) return WithContext(StrCat(place, ".", field), fingerprint.status());
  return fingerprint;
}

// JSON alone keeps the last of two equal names; a file that says two things is refused.
absl::StatusOr<json> ParseStrict(std::string_view text, std::string_view origin) {
  std::vector<std::set<std::string>> scopes;
  std::string duplicate;
  const json::parser_callback_t watch = [&](int, json::parse_event_t event, json& parsed) {
    if (event == json::parse_event_t::object_start) scopes.emplace_back();
    if (event == json::parse_event_t::object_end) scopes.pop_back();
    if (event == json::parse_event_t::key &&
        !scopes.back().insert(parsed.get<std::string>()).second && duplicate.empty()) {
      duplicate = parsed.get<std::string>();
    }
    return true;
  };
  try {
    json document = json::parse(text.begin(), text.end(), watch);
    if (!duplicate.empty())
      return Bad(origin, StrCat("field ", Quoted(duplicate), " is given twice"));
    return document;
  } catch (const json::exception& e) {
    return Bad(origin, StrCat("not JSON: ", std::string_view(e.what())));
  }
}

struct FileSelection {
  Axes key;
  std::string variant, version;
  Fingerprint variant_fingerprint;
  Config config;
  Fingerprint binary;
  Evidence evidence;
};

// Of an interval: JSON has no infinity, null stands for it.
absl::StatusOr<double> Bound(const json& value, double infinity, std::string_view place) {
  if (value.is_null()) return infinity;
  if (!value.is_number()) return Bad(place, "not a number");
  return value.get<double>();
}

absl::StatusOr<Evidence> ParseEvidence(const json& object, std::string_view place) {
  // Both or neither: what a verdict is of belongs to it.
  if (object.is_object() && object.contains("verdict")) {
    KVR_RETURN_IF_ERROR(CheckFields(object, place,
                                    {"median_us", "tried", "device", "date", "verdict", "kind",
                                     "incumbent", "gain_low", "gain_high"}));
  } else {
    KVR_RETURN_IF_ERROR(CheckFields(object, place, {"median_us", "tried", "device", "date"}));
  }
  Evidence evidence;
  if (!object.at("median_us").is_number()) {
    return Bad(place, "field 'median_us' is not a number");
  }
  evidence.median_us = object.at("median_us").get<double>();
  KVR_ASSIGN_OR_RETURN(const int64_t tried, Integer(object.at("tried"), StrCat(place, ".tried")));
  if (tried < 0 || tried > INT32_MAX) return Bad(place, "field 'tried' is out of range");
  evidence.tried = static_cast<int>(tried);
  KVR_ASSIGN_OR_RETURN(evidence.device, Text(object, "device", place));
  KVR_ASSIGN_OR_RETURN(evidence.date, Text(object, "date", place));
  if (!object.contains("verdict")) return evidence;
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  KVR_ASSIGN_OR_RETURN(evidence.verdict, Text(object, "verdict", place));
  KVR_ASSIGN_OR_RETURN(evidence.kind, Text(object, "kind", place));
  KVR_ASSIGN_OR_RETURN(evidence.incumbent, Text(object, "incumbent", place));
  KVR_ASSIGN_OR_RETURN(evidence.gain_low,
                       Bound(object.at("gain_low"), -kInfinity, StrCat(place, ".gain_low")));
  KVR_ASSIGN_OR_RETURN(evidence.gain_high,
                       Bound(object.at("gain_high"), kInfinity, StrCat(place, ".gain_high")));
  return evidence;
}

json EvidenceJson(const Evidence& evidence) {
  json object = {{"median_us", evidence.median_us},
                 {"tried", evidence.tried},
                 {"device", evidence.device},
                 {"date", evidence.date}};
  if (evidence.verdict.empty()) return object;
  object["verdict"] = evidence.verdict;
  object["kind"] = evidence.kind;
  object["incumbent"] = evidence.incumbent;
  object["gain_low"] = evidence.gain_low;  // infinity is dumped as null
  object["gain_high"] = evidence.gain_high;
  return object;
}

absl::StatusOr<FileSelection> ParseSelection(const json& object, std::string_view place) {
  KVR_RETURN_IF_ERROR(CheckFields(
      object, place,
      {"key", "variant", "version", "variant_fingerprint", "config", "binary", "evidence"}));
  FileSelection selection;
  KVR_ASSIGN_OR_RETURN(selection.key, Integers(object.at("key"), StrCat(place, ".key")));
  KVR_ASSIGN_OR_RETURN(selection.variant, Text(object, "variant", place));
  KVR_ASSIGN_OR_RETURN(selection.version, Text(object, "version", place));
  KVR_ASSIGN_OR_RETURN(selection.variant_fingerprint, Hash(object, "variant_fingerprint", place));
  KVR_ASSIGN_OR_RETURN(selection.config, Integers(object.at("config"), StrCat(place, ".config")));
  KVR_ASSIGN_OR_RETURN(selection.binary, Hash(object, "binary", place));
  KVR_ASSIGN_OR_RETURN(selection.evidence,
                       ParseEvidence(object.at("evidence"), StrCat(place, ".evidence")));
  return selection;
}

struct FileOp {
  std::string key_policy;
  std::map<std::string, FileSelection> by_key;  // by AxesText
};

struct FileContent {
  std::string model, target;
  int64_t number = 0;
  Fingerprint digest;
  std::map<std::string, FileOp> ops;
};

absl::StatusOr<FileContent> ParseContent(const json& document, std::string_view origin) {
  // The schema first: a newer file is told apart from a damaged one.
  if (!document.is_object() || !document.contains("schema") || !document.contains("kind") ||
      document.at("kind") != kKind) {
    return Bad(origin, "not a KVR selection file");
  }
  if (document.at("schema") != kSchema) {
    return Error(
        absl::StatusCode::kFailedPrecondition,
        StrCat(origin, ": schema ", document.at("schema").dump(), ", this KVR reads ", kSchema),
        "read it with the KVR that wrote it, or tune again");
  }
  KVR_RETURN_IF_ERROR(
      CheckFields(document, origin,
                  {"kind", "schema", "device_model", "target", "generation", "digest", "ops"}));
  FileContent content;
  KVR_ASSIGN_OR_RETURN(content.model, Text(document, "device_model", origin));
  KVR_ASSIGN_OR_RETURN(content.target, Text(document, "target", origin));
  KVR_ASSIGN_OR_RETURN(content.number,
                       Integer(document.at("generation"), StrCat(origin, ".generation")));
  KVR_ASSIGN_OR_RETURN(content.digest, Hash(document, "digest", origin));
  if (!document.at("ops").is_object()) return Bad(StrCat(origin, ".ops"), "not an object");
  for (const auto& [name, object] : document.at("ops").items()) {
    const std::string place = StrCat(origin, ".ops.", name);
    KVR_RETURN_IF_ERROR(CheckFields(object, place, {"key_policy", "selections"}));
    FileOp& op = content.ops[name];
    KVR_ASSIGN_OR_RETURN(op.key_policy, Text(object, "key_policy", place));
    if (!object.at("selections").is_array()) return Bad(place, "field 'selections' is not a list");
    for (size_t i = 0; i < object.at("selections").size(); ++i) {
      const std::string at = StrCat(place, ".selections[", i, "]");
      KVR_ASSIGN_OR_RETURN(FileSelection selection, ParseSelection(object.at("selections")[i], at));
      const std::string key = AxesText(selection.key);
      if (!op.by_key.emplace(key, std::move(selection)).second) {
        return Bad(at, StrCat("key {", key, "} is given twice"));
      }
    }
  }
  return content;
}

Fingerprint DigestOf(const FileContent& content) {
  std::map<std::string, OpIdentity> ops;
  for (const auto& [name, op] : content.ops) {
    OpIdentity& identity = ops[name];
    identity.key_policy = op.key_policy;
    for (const auto& [key, s] : op.by_key) {
      identity.by_key[key] = {s.variant, s.version, s.variant_fingerprint.Hex(),
                              ConfigText(s.config), s.binary.Hex()};
    }
  }
  return GenerationDigest(content.model, content.target, ops);
}

// Why the file's selection does not hold for what the catalog has; empty: it does.
std::string WhyStale(const Catalog& catalog, const std::string& op, const FileSelection& selection,
                     VariantPtr* variant) {
  absl::StatusOr<VariantPtr> found = catalog.Find(op, selection.variant);
  if (!found.ok()) return std::string(What(found.status()));
  if ((*found)->fingerprint != selection.variant_fingerprint) {
    return StrCat("variant '", selection.variant, "' has changed since it was measured (",
                  selection.version, " ", selection.variant_fingerprint.Short(), ", now ",
                  (*found)->version, " ", (*found)->fingerprint.Short(), ")");
  }
  *variant = *std::move(found);
  return "";
}

std::string ErrnoText() { return std::strerror(errno); }

}  // namespace

std::string SelectionJson(const Generation& generation) {
  json ops = json::object();
  for (const auto& [name, op] : generation.ops()) {
    json selections = json::array();
    for (const auto& [key, s] : Sorted(op)) {
      selections.push_back({{"key", op.policy.Named(key)},
                            {"variant", s->variant->name},
                            {"version", s->variant->version},
                            {"variant_fingerprint", s->variant->fingerprint.Hex()},
                            {"config", s->config},
                            {"binary", s->binary.Hex()},
                            {"evidence", EvidenceJson(s->evidence)}});
    }
    ops[name] = {{"key_policy", op.policy.text()}, {"selections", std::move(selections)}};
  }
  const json document = {{"kind", kKind},
                         {"schema", kSchema},
                         {"device_model", generation.device_model()},
                         {"target", generation.target()},
                         {"generation", generation.number()},
                         {"digest", generation.digest().Hex()},
                         {"ops", std::move(ops)}};
  // Bytes that are no UTF-8 (a device name from a broken driver) must not throw here.
  return document.dump(2, ' ', false, json::error_handler_t::replace) + "\n";
}

absl::StatusOr<LoadedSelections> ParseSelectionJson(std::string_view text, std::string_view origin,
                                                    const Catalog& catalog,
                                                    const DeviceInfo& device) {
  KVR_ASSIGN_OR_RETURN(const json document, ParseStrict(text, origin));
  KVR_ASSIGN_OR_RETURN(const FileContent content, ParseContent(document, origin));
  if (const Fingerprint digest = DigestOf(content); digest != content.digest) {
    return Error(absl::StatusCode::kDataLoss,
                 StrCat(origin, ": digest ", content.digest.Short(),
                        " does not match the content (", digest.Short(), ")"),
                 kRegenerate);
  }
  if (content.model != device.model || content.target != device.target) {
    return Error(absl::StatusCode::kFailedPrecondition,
                 StrCat(origin, ": tuned on ", content.model, " (", content.target,
                        "), this device is ", device.model, " (", device.target, ")"),
                 "use the file of this device model, or tune here");
  }

  LoadedSelections loaded;
  loaded.file_digest = content.digest;
  GenerationBuilder builder(content.model, content.target);
  for (const auto& [name, op] : content.ops) {
    const std::string place = StrCat(origin, ".ops.", name);
    const absl::StatusOr<const Catalog::Op*> known = catalog.FindOp(name);
    if (!known.ok()) {
      for (const auto& [key, s] : op.by_key) {
        loaded.dropped.push_back({name, s.variant, s.key, std::string(What(known.status()))});
      }
      continue;
    }
    absl::StatusOr<KeyPolicy> policy = KeyPolicy::Parse(op.key_policy, (*known)->spec());
    if (!policy.ok()) return WithContext(StrCat(place, ".key_policy"), policy.status());
    builder.SetPolicy(name, *policy);
    for (const auto& [key_text, s] : op.by_key) {
      const absl::StatusOr<BucketedKey> key = policy->FromNamed(s.key);
      if (!key.ok()) return WithContext(StrCat(place, ": key {", key_text, "}"), key.status());
      Selection selection{.config = s.config, .binary = s.binary, .evidence = s.evidence};
      std::string stale = WhyStale(catalog, name, s, &selection.variant);
      if (!stale.empty()) {
        loaded.dropped.push_back({name, s.variant, s.key, std::move(stale)});
        continue;
      }
      // The same code, but the bundle no longer offers this value or this target.
      if (absl::Status status = builder.Select(name, *key, std::move(selection)); !status.ok()) {
        loaded.dropped.push_back({name, s.variant, s.key, std::string(What(status))});
      }
    }
  }
  loaded.generation = builder.Build(content.number);
  return loaded;
}

absl::Status WriteSelectionFile(const Generation& generation, const std::string& path) {
  static std::atomic<int> counter{0};
  const std::string text = SelectionJson(generation);
  const std::string aside = StrCat(path, ".tmp.", static_cast<int64_t>(getpid()), ".", counter++);
  const auto failed = [&](std::string_view step) {
    return Error(absl::StatusCode::kUnavailable,
                 StrCat("cannot ", step, " ", path, ": ", ErrnoText()),
                 "name a file in a directory that exists and that you may write");
  };
  const int fd = open(aside.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
  if (fd < 0) return failed("write");
  bool done = false;
  absl::Cleanup tidy = [&] {
    if (!done) unlink(aside.c_str());
  };
  const char* at = text.data();
  size_t left = text.size();
  while (left > 0) {
    const ssize_t n = write(fd, at, left);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) {
      absl::Status status = failed("write");
      close(fd);
      return status;
    }
    at += n;
    left -= static_cast<size_t>(n);
  }
  if (fsync(fd) != 0) {
    absl::Status status = failed("flush");
    close(fd);
    return status;
  }
  if (close(fd) != 0) return failed("close");
  if (rename(aside.c_str(), path.c_str()) != 0) return failed("replace");
  done = true;
  return absl::OkStatus();
}

absl::StatusOr<LoadedSelections> ReadSelectionFile(const std::string& path, const Catalog& catalog,
                                                   const DeviceInfo& device) {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) {
    return Error(
        errno == ENOENT ? absl::StatusCode::kNotFound : absl::StatusCode::kPermissionDenied,
        StrCat("cannot read selection file ", path, ": ", ErrnoText()),
        "name a file that `kvr tune` wrote");
  }
  absl::Cleanup close_file = [fd] { close(fd); };
  struct stat info {};
  if (fstat(fd, &info) != 0 || !S_ISREG(info.st_mode) || info.st_size > kMaxFileBytes) {
    return Error(absl::StatusCode::kInvalidArgument,
                 StrCat(path, " is not a regular file of at most ", kMaxFileBytes >> 20, " MiB"),
                 "name a file that `kvr tune` wrote");
  }
  if ((info.st_mode & S_IWOTH) != 0) {
    return Error(absl::StatusCode::kPermissionDenied, StrCat(path, " may be written by anybody"),
                 StrCat("chmod o-w ", path));
  }
  std::string text(static_cast<size_t>(info.st_size), '\0');
  size_t have = 0;
  while (have < text.size()) {
    const ssize_t n = read(fd, text.data() + have, text.size() - have);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) break;  // shorter than it was: the parser says so
    have += static_cast<size_t>(n);
  }
  text.resize(have);
  return ParseSelectionJson(text, path, catalog, device);
}

}  // namespace kvr
