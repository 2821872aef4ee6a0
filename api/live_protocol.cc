// SPDX-License-Identifier: Apache-2.0
#include "api/live_protocol.h"

#include <set>
#include <utility>

#include "core/status.h"
#include "core/strings.h"
#include "registry/publication.h"
#include "tuner/swapper.h"

namespace kvr {
namespace {

constexpr std::pair<std::string_view, LiveRequest::Command> kCommands[] = {
    {"status", LiveRequest::Command::kStatus},     {"swap", LiveRequest::Command::kSwap},
    {"rollback", LiveRequest::Command::kRollback}, {"ab", LiveRequest::Command::kAb},
    {"stop", LiveRequest::Command::kStop},         {"forget", LiveRequest::Command::kForget}};

absl::Status Wrong(std::string_view what, std::string_view fix) {
  return Error(absl::StatusCode::kInvalidArgument, StrCat("the request: ", what), fix);
}

// The fields of one object; what nobody asked for is an error.
class Fields {
 public:
  explicit Fields(const LiveJson& json) : json_(json) {}

  const LiveJson* Find(const std::string& name) {
    asked_.insert(name);
    const auto it = json_.find(name);
    return it == json_.end() ? nullptr : &*it;
  }
  void Text(const std::string& name, std::string* value) {
    if (const LiveJson* field = Find(name)) {
      if (Must(field->is_string(), name, "a text")) *value = field->get<std::string>();
      Must(value->size() <= 4096 && value->find('\0') == std::string::npos, name,
           "at most 4096 bytes without NUL");
    }
  }
  void Bool(const std::string& name, bool* value) {
    if (const LiveJson* field = Find(name)) {
      if (Must(field->is_boolean(), name, "true or false")) *value = field->get<bool>();
    }
  }
  template <typename Integer>
  void Number(const std::string& name, Integer least, Integer most, Integer* value) {
    const LiveJson* field = Find(name);
    if (field == nullptr) return;
    const bool fits = field->is_number_unsigned() &&
                      field->get<uint64_t>() >= static_cast<uint64_t>(least) &&
                      field->get<uint64_t>() <= static_cast<uint64_t>(most);
    if (Must(fits, name, StrCat("an integer from ", least, " to ", most))) {
      *value = static_cast<Integer>(field->get<uint64_t>());
    }
  }
  bool Must(bool holds, std::string_view name, std::string_view what) {
    if (!holds && status_.ok()) {
      status_ = Wrong(StrCat("field '", name, "' is not ", what), StrCat("give ", what));
    }
    return holds;
  }
  const absl::Status& status() const { return status_; }
  absl::Status Done() const {
    KVR_RETURN_IF_ERROR(status_);
    for (const auto& [name, value] : json_.items()) {
      if (asked_.count(name) > 0) continue;
      return Wrong(StrCat("field '", name.substr(0, 64), "' is unknown"),
                   StrCat("leave it out; there are: ", StrJoin(asked_, ", ")));
    }
    return absl::OkStatus();
  }

 private:
  const LiveJson& json_;
  std::set<std::string> asked_;
  absl::Status status_;
};

// One field of the four must be there.
absl::Status CheckTarget(const LiveTarget& target, bool of_swap) {
  const int given = !target.digest.empty() + !target.selection_file.empty() +
                    !target.variant.empty() + !target.bundle.empty();
  if (given != 1) {
    return Wrong(
        given == 0 ? "it does not say what should serve" : "it says twice what should serve",
        of_swap ? "give one of selection_file, op and variant, bundle"
                : "give one of digest, selection_file, op and variant");
  }
  if (target.variant.empty() != target.op.empty()) {
    return Wrong("op and variant go together", "give both");
  }
  for (const std::string& path : {target.selection_file, target.bundle}) {
    if (path.empty() || path[0] == '/') continue;
    return Wrong(StrCat("'", path, "' is a relative path"),
                 "give an absolute one: the program has a working directory of its own");
  }
  return absl::OkStatus();
}

void ReadTarget(Fields& fields, LiveTarget* target, bool of_swap) {
  fields.Text("selection_file", &target->selection_file);
  fields.Text("op", &target->op);
  fields.Text("variant", &target->variant);
  fields.Text(of_swap ? "bundle" : "digest", of_swap ? &target->bundle : &target->digest);
}

absl::Status ReadSide(Fields& fields, const std::string& name, LiveTarget* side) {
  const LiveJson* json = fields.Find(name);
  if (json == nullptr) return absl::OkStatus();
  if (!fields.Must(json->is_object(), name, "an object")) return absl::OkStatus();
  Fields of_side(*json);
  *side = {};
  ReadTarget(of_side, side, /*of_swap=*/false);
  KVR_RETURN_IF_ERROR(of_side.Done());
  return CheckTarget(*side, /*of_swap=*/false);
}

void ReadKeys(Fields& fields, std::vector<Axes>* keys) {
  const LiveJson* list = fields.Find("keys");
  constexpr std::string_view kWhat = "a list of keys, as in [{\"topk\": 512}]";
  if (list == nullptr || !fields.Must(list->is_array(), "keys", kWhat)) return;
  for (const LiveJson& json : *list) {
    if (!fields.Must(json.is_object(), "keys", kWhat)) return;
    Axes& key = keys->emplace_back();
    for (const auto& [axis, value] : json.items()) {
      if (!fields.Must(value.is_number_unsigned() && value.get<uint64_t>() <= INT64_MAX, "keys",
                       kWhat)) {
        return;
      }
      key[axis] = value.get<int64_t>();
    }
  }
}

void ReadSeconds(Fields& fields, double* seconds) {
  const LiveJson* field = fields.Find("seconds");
  constexpr double kMost = 7 * 24 * 3600;
  if (field == nullptr ||
      !fields.Must(field->is_number() && field->get<double>() >= 0 && field->get<double>() <= kMost,
                   "seconds", "a number up to a week")) {
    return;
  }
  *seconds = field->get<double>();
}

LiveJson SideJson(const LiveTarget& target) {
  LiveJson json = LiveJson::object();
  const auto add = [&](const char* name, const std::string& value) {
    if (!value.empty()) json[name] = value;
  };
  add("digest", target.digest);
  add("selection_file", target.selection_file);
  add("op", target.op);
  add("variant", target.variant);
  add("bundle", target.bundle);
  return json;
}

std::string_view StateName(SwapResult::State state) {
  switch (state) {
    case SwapResult::State::kWaiting:
      return "waiting";
    case SwapResult::State::kRunning:
      return "running";
    case SwapResult::State::kPublished:
      return "published";
    case SwapResult::State::kUnchanged:
      return "unchanged";
    case SwapResult::State::kFailed:
      return "failed";
  }
  return "failed";
}

}  // namespace

std::string LiveTargetText(const LiveTarget& target) {
  if (!target.digest.empty()) return target.digest;
  if (!target.selection_file.empty()) return target.selection_file;
  if (!target.bundle.empty()) return target.bundle;
  return StrCat(target.op, "/", target.variant);
}

absl::StatusOr<LiveRequest> ParseLiveRequest(std::string_view line) {
  const LiveJson json = LiveJson::parse(line, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) {
    return Wrong("it is no JSON object", "send one in a line, as in {\"command\": \"status\"}");
  }
  Fields fields(json);
  std::string name;
  fields.Text("command", &name);
  KVR_RETURN_IF_ERROR(fields.status());
  LiveRequest request;
  bool known = false;
  std::vector<std::string_view> names;
  for (const auto& [candidate, command] : kCommands) {
    names.push_back(candidate);
    if (candidate != name) continue;
    request.command = command;
    known = true;
  }
  if (!known) {
    return Wrong(StrCat("command '", std::string_view(name).substr(0, 64), "' is unknown"),
                 StrCat("there are: ", StrJoin(names, ", ")));
  }
  switch (request.command) {
    case LiveRequest::Command::kStatus:
      fields.Bool("selections", &request.selections);
      break;
    case LiveRequest::Command::kSwap:
      ReadTarget(fields, &request.target, /*of_swap=*/true);
      ReadKeys(fields, &request.keys);
      fields.Bool("verify", &request.verify);
      fields.Bool("canary", &request.canary);
      fields.Bool("wait", &request.wait);
      KVR_RETURN_IF_ERROR(fields.Done());
      KVR_RETURN_IF_ERROR(CheckTarget(request.target, /*of_swap=*/true));
      if (!request.keys.empty() && request.target.variant.empty()) {
        return Wrong("keys are for a variant", "give op and variant, or leave keys out");
      }
      break;
    case LiveRequest::Command::kRollback:
      request.target.digest = "previous";
      fields.Text("digest", &request.target.digest);
      fields.Bool("wait", &request.wait);
      fields.Must(!request.target.digest.empty(), "digest", "a digest, 'baseline' or 'previous'");
      break;
    case LiveRequest::Command::kAb:
      request.ab.a.digest = "current";
      KVR_RETURN_IF_ERROR(ReadSide(fields, "a", &request.ab.a));
      KVR_RETURN_IF_ERROR(ReadSide(fields, "b", &request.ab.b));
      fields.Number("block", 1, kLongestBlock, &request.ab.block);
      fields.Number("warmup", 0, kLongestBlock - 1, &request.ab.warmup);
      ReadSeconds(fields, &request.ab.seconds);
      fields.Number("seed", uint64_t{0}, UINT64_MAX, &request.ab.seed);
      KVR_RETURN_IF_ERROR(fields.Done());
      KVR_RETURN_IF_ERROR(CheckTarget(request.ab.b, /*of_swap=*/false));
      if (request.ab.warmup >= request.ab.block) {
        return Wrong(StrCat("a block of ", request.ab.block, " steps has no more than ",
                            request.ab.warmup, " of warm-up"),
                     "give a longer block, or a shorter warm-up");
      }
      break;
    case LiveRequest::Command::kStop:
    case LiveRequest::Command::kForget:
      break;
  }
  KVR_RETURN_IF_ERROR(fields.Done());
  return request;
}

LiveJson LiveRequestJson(const LiveRequest& request) {
  LiveJson json = LiveJson::object();
  for (const auto& [name, command] : kCommands) {
    if (command == request.command) json["command"] = name;
  }
  switch (request.command) {
    case LiveRequest::Command::kStatus:
      if (request.selections) json["selections"] = true;
      break;
    case LiveRequest::Command::kSwap:
      json.update(SideJson(request.target));
      for (const Axes& key : request.keys) {
        LiveJson axes = LiveJson::object();
        for (const auto& [axis, value] : key) axes[axis] = value;
        json["keys"].push_back(std::move(axes));
      }
      json["verify"] = request.verify;
      json["canary"] = request.canary;
      json["wait"] = request.wait;
      break;
    case LiveRequest::Command::kRollback:
      json["digest"] = request.target.digest;
      json["wait"] = request.wait;
      break;
    case LiveRequest::Command::kAb:
      json["a"] = SideJson(request.ab.a);
      json["b"] = SideJson(request.ab.b);
      json["block"] = request.ab.block;
      json["warmup"] = request.ab.warmup;
      json["seconds"] = request.ab.seconds;
      json["seed"] = request.ab.seed;
      break;
    case LiveRequest::Command::kStop:
    case LiveRequest::Command::kForget:
      break;
  }
  return json;
}

SwapRequest ToSwapRequest(const LiveRequest& request, std::string who) {
  SwapRequest swap;
  const LiveTarget& target = request.target;
  swap.selection_file = target.selection_file;
  swap.op = target.op;
  swap.variant = target.variant;
  swap.bundle = target.bundle;
  swap.rollback = target.digest;
  swap.keys = request.keys;
  swap.verify = request.verify;
  swap.canary = request.canary;
  swap.trigger = !target.digest.empty()           ? "rollback"
                 : !target.bundle.empty()         ? "bundle"
                 : !target.selection_file.empty() ? "selection-file"
                                                  : "api";
  swap.who = std::move(who);
  return swap;
}

LiveJson SwapJson(const SwapResult& result) {
  LiveJson json = {{"id", result.id},
                   {"state", StateName(result.state)},
                   {"step", result.step},
                   {"before", result.before},
                   {"after", result.after},
                   {"changes", result.changes},
                   {"build_ms", result.build_ms},
                   {"verify_ms", result.verify_ms},
                   {"publish_ms", result.publish_ms}};
  if (result.state == SwapResult::State::kFailed) {
    json["error"] = LiveErrorJson(result.status);
    json["error"].erase("event");
  }
  return json;
}

LiveJson PublicationJson(const PublicationRecord& record) {
  return {
      {"time", record.time},       {"trigger", record.trigger}, {"who", record.who},
      {"before", record.before},   {"after", record.after},     {"changes", record.changes},
      {"outcome", record.outcome}, {"reason", record.reason},   {"prepare_ms", record.prepare_ms}};
}

LiveJson LiveErrorJson(const absl::Status& status) {
  return {{"event", "error"},
          {"code", absl::StatusCodeToString(status.code())},
          {"what", std::string(What(status))},
          {"fix", std::string(Fix(status))}};
}

absl::Status LiveErrorOf(const LiveJson& event) {
  const auto text = [&](const char* name) {
    const auto it = event.find(name);
    return it != event.end() && it->is_string() ? it->get<std::string>() : std::string();
  };
  const std::string name = text("code");
  absl::StatusCode code = absl::StatusCode::kUnknown;
  for (int number = 1; number <= 16; ++number) {
    const auto candidate = static_cast<absl::StatusCode>(number);
    if (absl::StatusCodeToString(candidate) == name) code = candidate;
  }
  return Error(code, text("what"), text("fix"));
}

std::string LiveLine(const LiveJson& json) {
  return json.dump(-1, ' ', false, LiveJson::error_handler_t::replace);
}

}  // namespace kvr
