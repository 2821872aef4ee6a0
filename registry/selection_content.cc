// SPDX-License-Identifier: Apache-2.0
#include "registry/selection_content.h"

#include <initializer_list>
#include <limits>
#include <set>
#include <utility>
#include <vector>

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

absl::StatusOr<StoredSelection> ParseSelection(const json& object, std::string_view place) {
  KVR_RETURN_IF_ERROR(CheckFields(
      object, place,
      {"key", "variant", "version", "variant_fingerprint", "config", "binary", "evidence"}));
  StoredSelection selection;
  KVR_ASSIGN_OR_RETURN(selection.variant, Text(object, "variant", place));
  KVR_ASSIGN_OR_RETURN(selection.version, Text(object, "version", place));
  KVR_ASSIGN_OR_RETURN(selection.variant_fingerprint, Hash(object, "variant_fingerprint", place));
  KVR_ASSIGN_OR_RETURN(selection.config, Integers(object.at("config"), StrCat(place, ".config")));
  KVR_ASSIGN_OR_RETURN(selection.binary, Hash(object, "binary", place));
  KVR_ASSIGN_OR_RETURN(selection.evidence,
                       ParseEvidence(object.at("evidence"), StrCat(place, ".evidence")));
  return selection;
}

}  // namespace

Fingerprint SelectionContent::Digest() const {
  std::map<std::string, OpIdentity> identities;
  for (const auto& [name, op] : ops) {
    OpIdentity& identity = identities[name];
    identity.key_policy = op.key_policy;
    for (const auto& [key, s] : op.by_key) {
      identity.by_key[AxesText(key)] = {s.variant, s.version, s.variant_fingerprint.Hex(),
                                        ConfigText(s.config), s.binary.Hex()};
    }
  }
  return GenerationDigest(device_model, target, identities);
}

SelectionContent ContentOf(const Generation& generation) {
  SelectionContent content{.device_model = generation.device_model(),
                           .target = generation.target(),
                           .number = generation.number()};
  for (const auto& [name, op] : generation.ops()) {
    SelectionContent::Op& stored = content.ops[name];
    stored.key_policy = op.policy.text();
    for (const auto& [key, s] : op.selections) {
      stored.by_key[op.policy.Named(key)] = {
          s.variant->name, s.variant->version, s.variant->fingerprint,
          s.config,        s.binary,           s.evidence};
    }
  }
  return content;
}

std::string SelectionJson(const SelectionContent& content) {
  json ops = json::object();
  for (const auto& [name, op] : content.ops) {
    json selections = json::array();
    for (const auto& [key, s] : op.by_key) {
      selections.push_back({{"key", key},
                            {"variant", s.variant},
                            {"version", s.version},
                            {"variant_fingerprint", s.variant_fingerprint.Hex()},
                            {"config", s.config},
                            {"binary", s.binary.Hex()},
                            {"evidence", EvidenceJson(s.evidence)}});
    }
    ops[name] = {{"key_policy", op.key_policy}, {"selections", std::move(selections)}};
  }
  const json document = {{"kind", kKind},
                         {"schema", kSchema},
                         {"device_model", content.device_model},
                         {"target", content.target},
                         {"generation", content.number},
                         {"digest", content.Digest().Hex()},
                         {"ops", std::move(ops)}};
  // Bytes that are no UTF-8 (a device name from a broken driver) must not throw here.
  return document.dump(2, ' ', false, json::error_handler_t::replace) + "\n";
}

absl::StatusOr<SelectionContent> ParseSelectionContent(std::string_view text,
                                                       std::string_view origin) {
  KVR_ASSIGN_OR_RETURN(const json document, ParseStrict(text, origin));
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
  SelectionContent content;
  KVR_ASSIGN_OR_RETURN(content.device_model, Text(document, "device_model", origin));
  KVR_ASSIGN_OR_RETURN(content.target, Text(document, "target", origin));
  KVR_ASSIGN_OR_RETURN(content.number,
                       Integer(document.at("generation"), StrCat(origin, ".generation")));
  KVR_ASSIGN_OR_RETURN(const Fingerprint stated, Hash(document, "digest", origin));
  if (!document.at("ops").is_object()) return Bad(StrCat(origin, ".ops"), "not an object");
  for (const auto& [name, object] : document.at("ops").items()) {
    const std::string place = StrCat(origin, ".ops.", name);
    KVR_RETURN_IF_ERROR(CheckFields(object, place, {"key_policy", "selections"}));
    SelectionContent::Op& op = content.ops[name];
    KVR_ASSIGN_OR_RETURN(op.key_policy, Text(object, "key_policy", place));
    if (!object.at("selections").is_array()) return Bad(place, "field 'selections' is not a list");
    for (size_t i = 0; i < object.at("selections").size(); ++i) {
      const std::string at = StrCat(place, ".selections[", i, "]");
      const json& object_at = object.at("selections")[i];
      KVR_ASSIGN_OR_RETURN(StoredSelection selection, ParseSelection(object_at, at));
      KVR_ASSIGN_OR_RETURN(const Axes key, Integers(object_at.at("key"), StrCat(at, ".key")));
      if (!op.by_key.emplace(key, std::move(selection)).second) {
        return Bad(at, StrCat("key {", AxesText(key), "} is given twice"));
      }
    }
  }
  if (const Fingerprint digest = content.Digest(); digest != stated) {
    return Error(absl::StatusCode::kDataLoss,
                 StrCat(origin, ": digest ", stated.Short(), " does not match the content (",
                        digest.Short(), ")"),
                 kRegenerate);
  }
  return content;
}

}  // namespace kvr
