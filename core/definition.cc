// SPDX-License-Identifier: Apache-2.0
#include "core/definition.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <set>
#include <vector>

#include "core/expr.h"
#include "core/key_policy.h"
#include "core/names.h"
#include "core/status.h"
#include "core/strings.h"

namespace kvr {
namespace {

using Json = nlohmann::ordered_json;  // order of axes and tensors is part of the contract
using Keys = absl::Span<const std::string_view>;

constexpr std::string_view kTopKeys[] = {"name",      "op_type", "description", "tags",
                                         "axes",      "inputs",  "outputs",     "constraints",
                                         "reference", "init",    "check",       "kvr"};
constexpr std::string_view kAxisKeys[] = {"type", "value", "description"};
constexpr std::string_view kTensorKeys[] = {"shape", "dtype", "description", "optional", "param"};
constexpr std::string_view kKvrKeys[] = {"axis_defaults", "scalar_defaults", "key_policy"};

// Words of the expression language, which an axis could not be told from.
constexpr std::string_view kReserved[] = {"and", "or", "not", "if"};

class Reader {
 public:
  explicit Reader(std::string_view file) : file_(file) {}

  absl::StatusOr<OpSpec> Read(std::string_view text) {
    Json json;
    KVR_RETURN_IF_ERROR(ParseJson(text, &json));
    KVR_RETURN_IF_ERROR(CheckKeys(json, "", kTopKeys));
    KVR_RETURN_IF_ERROR(Text(json, "", "name", true, &op_.name));
    KVR_RETURN_IF_ERROR(Text(json, "", "op_type", true, &op_.op_type));
    KVR_RETURN_IF_ERROR(Text(json, "", "description", false, &op_.description));
    std::string unused;  // checked, not kept
    for (std::string_view python : {"reference", "init", "check"}) {
      KVR_RETURN_IF_ERROR(Text(json, "", python, false, &unused));
    }
    if (!IsIdentifier(op_.name)) {
      return Fail("name", StrCat(Quoted(op_.name), " is no name"),
                  "use letters, digits and '_', not starting with a digit");
    }
    KVR_RETURN_IF_ERROR(TextList(json, "tags", &op_.tags));
    KVR_RETURN_IF_ERROR(ReadAxes(json));
    KVR_RETURN_IF_ERROR(ReadTensors(json, "inputs", &op_.inputs));
    KVR_RETURN_IF_ERROR(ReadTensors(json, "outputs", &op_.outputs));
    if (op_.outputs.empty()) return Fail("outputs", "is empty", "name at least one output");
    if (op_.tensor_count() > kMaxTensors) {
      return Fail("outputs", StrCat("inputs and outputs are ", op_.tensor_count(), " tensors"),
                  StrCat("at most ", kMaxTensors));
    }
    KVR_RETURN_IF_ERROR(ReadConstraints(json));
    op_.LinkAttributes();
    KVR_RETURN_IF_ERROR(ReadKvr(json));
    op_.LinkAttributes();  // with the defaults that were read
    return std::move(op_);
  }

 private:
  absl::Status Fail(std::string_view field, std::string_view what, std::string_view fix) const {
    return ErrorAt(absl::StatusCode::kInvalidArgument, file_, 0, 0,
                   field.empty() ? std::string(what) : StrCat(field, ": ", what), fix);
  }
  absl::Status Fail(std::string_view field, const absl::Status& status) const {
    return Fail(field, What(status), Fix(status));
  }

  static std::string Join(std::string_view path, std::string_view key) {
    return path.empty() ? std::string(key) : StrCat(path, ".", key);
  }

  // The JSON library keeps the last of duplicate keys in silence, so they are counted as it reads.
  absl::Status ParseJson(std::string_view text, Json* json) const {
    std::vector<std::set<std::string>> open;
    std::string duplicate;
    auto watch = [&](int, Json::parse_event_t event, Json& parsed) {
      if (event == Json::parse_event_t::object_start) open.emplace_back();
      if (event == Json::parse_event_t::object_end) open.pop_back();
      if (event == Json::parse_event_t::key) {
        const std::string& key = parsed.get_ref<const std::string&>();
        if (!open.back().insert(key).second && duplicate.empty()) duplicate = key;
      }
      return true;
    };
    try {
      *json = Json::parse(text, watch);
    } catch (const Json::parse_error& error) {
      size_t at = std::min(text.size(), error.byte > 0 ? error.byte - 1 : 0);
      std::string_view before = text.substr(0, at);
      int line = 1 + static_cast<int>(std::count(before.begin(), before.end(), '\n'));
      int column = static_cast<int>(at - (before.rfind('\n') + 1)) + 1;  // npos + 1 is 0
      return ErrorAt(absl::StatusCode::kInvalidArgument, file_, line, column, "this is no JSON",
                     "correct the text here: a missing quote, comma or bracket, or a trailing one");
    } catch (const Json::exception& error) {
      return Fail("", StrCat("cannot be read: ", error.what()), "give UTF-8 JSON text");
    }
    if (!duplicate.empty()) {
      return Fail("", StrCat("the key ", Quoted(duplicate), " appears twice in one object"),
                  "give each key once");
    }
    return absl::OkStatus();
  }

  absl::Status CheckKeys(const Json& json, std::string_view path, Keys keys) const {
    if (!json.is_object()) {
      return Fail(path, StrCat("is ", json.type_name(), ", not an object"), "write {...}");
    }
    for (const auto& [key, value] : json.items()) {
      if (std::find(keys.begin(), keys.end(), std::string_view(key)) == keys.end()) {
        return Fail(path, UnknownName("key", key, keys));
      }
    }
    return absl::OkStatus();
  }

  absl::Status Text(const Json& json, std::string_view path, std::string_view key, bool required,
                    std::string* text) const {
    auto found = json.find(std::string(key));
    if (found == json.end()) {
      if (!required) return absl::OkStatus();
      return Fail(Join(path, key), "is missing", StrCat("add \"", key, "\": \"...\""));
    }
    if (!found->is_string() || (required && found->get_ref<const std::string&>().empty())) {
      return Fail(Join(path, key), StrCat("is ", found->is_string() ? "empty" : found->type_name()),
                  "write text in quotes");
    }
    *text = found->get<std::string>();
    return absl::OkStatus();
  }

  absl::Status TextList(const Json& json, const std::string& key,
                        std::vector<std::string>* list) const {
    auto found = json.find(key);
    if (found == json.end() || found->is_null()) return absl::OkStatus();
    bool good = found->is_array();
    if (good) {
      for (const Json& item : *found) {
        good = good && item.is_string();
        if (good) list->push_back(item.get<std::string>());
      }
    }
    if (!good) return Fail(key, "is no list of texts", "write [\"...\", \"...\"]");
    return absl::OkStatus();
  }

  // An integer of the JSON, within [least, 2^63).
  absl::Status Integer(const Json& json, std::string_view path, int64_t least,
                       int64_t* value) const {
    bool good =
        json.is_number_integer() &&
        !(json.is_number_unsigned() && json.get<uint64_t>() > static_cast<uint64_t>(INT64_MAX));
    if (good) *value = json.get<int64_t>();
    if (good && *value >= least) return absl::OkStatus();
    return Fail(path, StrCat("is ", Shown(json)), StrCat("give an integer of at least ", least));
  }

  static std::string Shown(const Json& json) {
    return Quoted(json.dump(-1, ' ', false, Json::error_handler_t::replace));
  }

  absl::Status ReadAxes(const Json& json) {
    auto axes = json.find("axes");
    if (axes == json.end() || !axes->is_object()) {
      return Fail("axes", axes == json.end() ? "is missing" : "is no object",
                  "write \"axes\": {\"num_tokens\": {\"type\": \"var\"}}");
    }
    if (axes->size() > static_cast<size_t>(kMaxAxes)) {
      return Fail("axes", StrCat("has ", axes->size(), " axes"), StrCat("at most ", kMaxAxes));
    }
    for (const auto& [name, spec] : axes->items()) {
      const std::string path = StrCat("axes.", name);
      KVR_RETURN_IF_ERROR(CheckName(path, name));
      KVR_RETURN_IF_ERROR(CheckKeys(spec, path, kAxisKeys));
      AxisSpec axis{.name = name};
      std::string type;
      KVR_RETURN_IF_ERROR(Text(spec, path, "type", true, &type));
      KVR_RETURN_IF_ERROR(Text(spec, path, "description", false, &axis.description));
      auto value = spec.find("value");
      if (type == "const") {
        if (value != spec.end()) {
          KVR_RETURN_IF_ERROR(Integer(*value, Join(path, "value"), 1, &axis.value));
          axis.is_const = true;
          axis.default_value = axis.value;
        }
      } else if (type != "var") {
        return Fail(Join(path, "type"), UnknownName("axis type", type, {"var", "const"}));
      } else if (value != spec.end()) {
        return Fail(Join(path, "value"), "stands in a var axis",
                    "make the axis const, or give a default in kvr.axis_defaults");
      }
      op_.axes.push_back(std::move(axis));
    }
    return absl::OkStatus();
  }

  absl::Status CheckName(std::string_view path, std::string_view name) const {
    if (!IsIdentifier(name)) {
      return Fail(path, StrCat(Quoted(name), " is no name"),
                  "use letters, digits and '_', not starting with a digit");
    }
    if (std::find(std::begin(kReserved), std::end(kReserved), name) != std::end(kReserved)) {
      return Fail(path, StrCat("'", name, "' is a word of the expression language"),
                  "choose another name");
    }
    return absl::OkStatus();
  }

  absl::Status ReadTensors(const Json& json, const std::string& key,
                           std::vector<TensorSpec>* tensors) {
    auto found = json.find(key);
    if (found == json.end() || !found->is_object()) {
      return Fail(key, found == json.end() ? "is missing" : "is no object",
                  StrCat("write \"", key,
                         "\": {\"x\": {\"shape\": [\"num_tokens\"], \"dtype\": \"float32\"}}"));
    }
    for (const auto& [name, spec] : found->items()) {
      const std::string path = StrCat(key, ".", name);
      KVR_RETURN_IF_ERROR(CheckName(path, name));
      KVR_RETURN_IF_ERROR(CheckKeys(spec, path, kTensorKeys));
      TensorSpec tensor{.name = name};
      std::string param;
      KVR_RETURN_IF_ERROR(Text(spec, path, "description", false, &tensor.description));
      KVR_RETURN_IF_ERROR(Text(spec, path, "param", false, &param));
      KVR_RETURN_IF_ERROR(ReadDType(spec, path, &tensor));
      KVR_RETURN_IF_ERROR(ReadShape(spec, path, &tensor));
      if (auto optional = spec.find("optional"); optional != spec.end()) {
        if (!optional->is_boolean()) {
          return Fail(Join(path, "optional"), StrCat("is ", Shown(*optional)),
                      "write true or false");
        }
        tensor.optional = optional->get<bool>();
      }
      if (tensor.is_scalar && key == "outputs") {
        return Fail(Join(path, "shape"), "is null: an output scalar",
                    "give a shape, as in []: outputs are written through pointers");
      }
      tensors->push_back(std::move(tensor));
    }
    return absl::OkStatus();
  }

  absl::Status ReadDType(const Json& spec, const std::string& path, TensorSpec* tensor) const {
    std::string name;
    KVR_RETURN_IF_ERROR(Text(spec, path, "dtype", true, &name));
    if (name == "unknown") {
      tensor->any_dtype = true;
      return absl::OkStatus();
    }
    absl::StatusOr<DType> dtype = ParseDType(name);
    if (!dtype.ok()) return Fail(Join(path, "dtype"), dtype.status());
    tensor->dtype = *dtype;
    return absl::OkStatus();
  }

  absl::Status ReadShape(const Json& spec, const std::string& path, TensorSpec* tensor) const {
    const std::string field = Join(path, "shape");
    auto shape = spec.find("shape");
    if (shape == spec.end()) {
      return Fail(field, "is missing", "list axis names, or write null for a scalar");
    }
    tensor->is_scalar = shape->is_null();
    if (tensor->is_scalar) return absl::OkStatus();
    if (!shape->is_array() || shape->size() > static_cast<size_t>(kMaxRank)) {
      return Fail(field, StrCat("is ", Shown(*shape)),
                  StrCat("list at most ", kMaxRank, " axis names, or write null for a scalar"));
    }
    std::vector<std::string_view> names;
    for (const AxisSpec& axis : op_.axes) names.push_back(axis.name);
    for (const Json& item : *shape) {
      if (!item.is_string()) {
        return Fail(field, StrCat("holds ", Shown(item)), "list axis names in quotes");
      }
      const std::string& name = item.get_ref<const std::string&>();
      const int index = op_.AxisIndex(name);
      if (index < 0) return Fail(field, UnknownName("axis", name, names));
      tensor->axes.push_back(index);
    }
    return absl::OkStatus();
  }

  absl::Status ReadConstraints(const Json& json) {
    std::vector<std::string> all;
    KVR_RETURN_IF_ERROR(TextList(json, "constraints", &all));
    SymbolTable symbols;
    for (size_t i = 0; i < op_.axes.size(); ++i) symbols[op_.axes[i].name] = static_cast<int>(i);
    for (std::string& text : all) {
      if (ReadsTensor(text)) {
        op_.data_constraints.push_back(std::move(text));
        continue;
      }
      absl::StatusOr<Expr> parsed = Expr::Parse(text, symbols);
      if (!parsed.ok()) return Fail("constraints", parsed.status());
      op_.constraints.push_back(std::move(text));
    }
    return absl::OkStatus();
  }

  // Does an identifier of `text` name a tensor and no axis?
  bool ReadsTensor(std::string_view text) const {
    auto in_word = [](char c) {
      return IsIdentifier(std::string_view(&c, 1)) || ('0' <= c && c <= '9');
    };
    for (size_t begin = 0; begin < text.size();) {
      size_t end = begin;
      while (end < text.size() && in_word(text[end])) ++end;
      std::string_view word = text.substr(begin, end - begin);
      if (!word.empty() && op_.TensorIndex(word) >= 0 && op_.AxisIndex(word) < 0) return true;
      begin = std::max(end, begin + 1);
    }
    return false;
  }

  absl::Status ReadKvr(const Json& json) {
    auto kvr = json.find("kvr");
    if (kvr == json.end()) return absl::OkStatus();
    KVR_RETURN_IF_ERROR(CheckKeys(*kvr, "kvr", kKvrKeys));
    if (auto defaults = kvr->find("axis_defaults"); defaults != kvr->end()) {
      std::vector<std::string_view> names;
      for (const AxisSpec& axis : op_.axes)
        if (!axis.is_const) names.push_back(axis.name);
      KVR_RETURN_IF_ERROR(CheckKeys(*defaults, "kvr.axis_defaults", names));
      for (const auto& [name, value] : defaults->items()) {
        KVR_RETURN_IF_ERROR(Integer(value, StrCat("kvr.axis_defaults.", name), 0,
                                    &op_.axes[op_.AxisIndex(name)].default_value));
      }
    }
    if (auto defaults = kvr->find("scalar_defaults"); defaults != kvr->end()) {
      std::vector<std::string_view> names;
      for (const TensorSpec& input : op_.inputs)
        if (input.is_scalar) names.push_back(input.name);
      KVR_RETURN_IF_ERROR(CheckKeys(*defaults, "kvr.scalar_defaults", names));
      for (const auto& [name, value] : defaults->items()) {
        if (!value.is_number()) {
          return Fail(StrCat("kvr.scalar_defaults.", name), StrCat("is ", Shown(value)),
                      "give a number");
        }
        TensorSpec& input = op_.inputs[op_.TensorIndex(name)];
        if (input.attribute >= 0) {
          return Fail(StrCat("kvr.scalar_defaults.", name), "is an attribute: an axis as well",
                      "give its default in axis_defaults");
        }
        input.scalar_default = value.get<double>();
      }
    }
    // Without defaults of its own a published definition loads whatever it demands of its axes.
    if (kvr->contains("axis_defaults")) {
      if (absl::Status met = ResolveAxes(op_, {}).status(); !met.ok()) {
        return Fail("kvr.axis_defaults", What(met), "give defaults that meet every constraint");
      }
    }
    KVR_RETURN_IF_ERROR(Text(*kvr, "kvr", "key_policy", false, &op_.key_policy));
    absl::StatusOr<KeyPolicy> policy = KeyPolicy::Parse(op_.key_policy, op_);
    if (!policy.ok()) return Fail("kvr.key_policy", policy.status());
    return absl::OkStatus();
  }

  std::string file_;
  OpSpec op_;
};

}  // namespace

absl::StatusOr<OpSpec> ParseDefinition(std::string_view json, std::string_view file) {
  return Reader(file).Read(json);
}

}  // namespace kvr
