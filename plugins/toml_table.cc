// SPDX-License-Identifier: Apache-2.0
#include "plugins/toml_table.h"

#include <algorithm>

#include "core/names.h"
#include "core/status.h"
#include "core/strings.h"

namespace kvr::bundle {

Place PlaceIn(std::string_view file, const toml::source_region& region) {
  return {std::string(file), static_cast<int>(region.begin.line),
          static_cast<int>(region.begin.column)};
}

std::string_view TypeName(const toml::node& node) {
  switch (node.type()) {
    case toml::node_type::table:
      return "a table";
    case toml::node_type::array:
      return node.is_array_of_tables() ? "an array of tables" : "an array";
    case toml::node_type::string:
      return "a string";
    case toml::node_type::integer:
      return "an integer";
    case toml::node_type::floating_point:
      return "a floating-point number";
    case toml::node_type::boolean:
      return "a boolean";
    default:
      return "a date or time";
  }
}

TomlTable::TomlTable(const toml::table& table, std::string_view file, std::string_view what,
                     absl::Span<const std::string_view> keys, Outcome* outcome)
    : table_(table),
      file_(file),
      what_(what.empty() ? "" : StrCat(what, ": ")),
      place_(PlaceIn(file, table.source())),
      outcome_(outcome) {
  for (auto&& [key, value] : table) {
    if (std::find(keys.begin(), keys.end(), key.str()) != keys.end()) continue;
    absl::Status unknown = UnknownName("key", key.str(), keys);
    outcome_->Fail(At(PlaceIn(file_, key.source()), unknown.code(), StrCat(what_, What(unknown)),
                      Fix(unknown)));
  }
}

const toml::node* TomlTable::Find(std::string_view key) const {
  return outcome_->ok() ? table_.get(key) : nullptr;
}

bool TomlTable::Has(std::string_view key) const { return table_.get(key) != nullptr; }

Place TomlTable::PlaceOf(std::string_view key) const {
  const toml::node* node = table_.get(key);
  return node == nullptr ? place_ : PlaceIn(file_, node->source());
}

void TomlTable::Missing(std::string_view key, std::string_view example) {
  outcome_->Fail(
      Invalid(place_, StrCat(what_, "key '", key, "' is missing"), StrCat("state ", example)));
}

void TomlTable::WrongType(std::string_view key, const toml::node& node, std::string_view wanted) {
  outcome_->Fail(Invalid(PlaceIn(file_, node.source()),
                         StrCat(what_, "'", key, "' is ", TypeName(node)),
                         StrCat("give ", wanted)));
}

std::optional<Text> TomlTable::ToText(std::string_view key, const toml::node& node,
                                      bool expression) {
  Text text{"", PlaceIn(file_, node.source())};
  if (const auto* integer = node.as_integer(); integer != nullptr && expression) {
    text.value = StrCat(integer->get());
    return text;
  }
  const auto* string = node.as_string();
  if (string == nullptr) {
    WrongType(key, node, expression ? "an expression as a string, or an integer" : "a string");
    return std::nullopt;
  }
  text.value = string->get();
  if (text.value.size() > static_cast<size_t>(kMaxTextBytes)) {
    outcome_->Fail(Invalid(text.at,
                           StrCat(what_, "'", key, "' is longer than ", kMaxTextBytes, " bytes"),
                           "shorten it"));
    return std::nullopt;
  }
  // Manifests end up on terminals and in generated code.
  const bool control = std::any_of(text.value.begin(), text.value.end(),
                                   [](unsigned char c) { return c < 0x20 || c == 0x7f; });
  if (control) {
    outcome_->Fail(Invalid(
        text.at, StrCat(what_, "'", key, "' holds a control character: ", Quoted(text.value)),
        "write it on one line of plain text"));
    return std::nullopt;
  }
  return text;
}

std::optional<Text> TomlTable::String(std::string_view key) {
  const toml::node* node = Find(key);
  return node == nullptr ? std::nullopt : ToText(key, *node, false);
}

Text TomlTable::RequiredString(std::string_view key) {
  if (!Has(key)) Missing(key, StrCat(key, " = \"...\""));
  return String(key).value_or(Text{"", place_});
}

std::optional<Text> TomlTable::Expression(std::string_view key) {
  const toml::node* node = Find(key);
  return node == nullptr ? std::nullopt : ToText(key, *node, true);
}

std::optional<Flag> TomlTable::Bool(std::string_view key) {
  const toml::node* node = Find(key);
  if (node == nullptr) return std::nullopt;
  if (const auto* value = node->as_boolean()) {
    return Flag{value->get(), PlaceIn(file_, node->source())};
  }
  WrongType(key, *node, "true or false");
  return std::nullopt;
}

std::optional<int64_t> TomlTable::Integer(std::string_view key) {
  const toml::node* node = Find(key);
  if (node == nullptr) return std::nullopt;
  if (const auto* value = node->as_integer()) return value->get();
  WrongType(key, *node, "an integer");
  return std::nullopt;
}

std::optional<std::vector<Text>> TomlTable::Strings(std::string_view key) {
  const toml::node* node = Find(key);
  if (node == nullptr) return std::nullopt;
  const toml::array* array = node->as_array();
  if (array == nullptr) {
    WrongType(key, *node, "an array of strings");
    return std::nullopt;
  }
  std::vector<Text> texts;
  for (const toml::node& element : *array) {
    texts.push_back(ToText(key, element, false).value_or(Text{}));
  }
  return texts;
}

std::optional<std::vector<Text>> TomlTable::Expressions(std::string_view key, size_t most) {
  const toml::node* node = Find(key);
  if (node == nullptr) return std::nullopt;
  const toml::array* array = node->as_array();
  if (array == nullptr || array->empty() || array->size() > most) {
    outcome_->Fail(Invalid(PlaceIn(file_, node->source()),
                           array == nullptr
                               ? StrCat(what_, "'", key, "' is ", TypeName(*node))
                               : StrCat(what_, "'", key, "' has ", array->size(), " dimensions"),
                           StrCat("give an array of 1 to ", most, " expressions, as in ", key,
                                  " = [\"num_tokens\"]")));
    return std::nullopt;
  }
  std::vector<Text> texts;
  for (const toml::node& element : *array) {
    texts.push_back(ToText(key, element, true).value_or(Text{}));
  }
  return texts;
}

std::optional<std::vector<int64_t>> TomlTable::Integers(std::string_view key) {
  const toml::node* node = Find(key);
  if (node == nullptr) return std::nullopt;
  const toml::array* array = node->as_array();
  if (array == nullptr) {
    WrongType(key, *node, "an array of integers");
    return std::nullopt;
  }
  std::vector<int64_t> values;
  for (const toml::node& element : *array) {
    const auto* value = element.as_integer();
    if (value == nullptr) {
      WrongType(key, element, "integers only (a switch is 0 or 1)");
      return std::nullopt;
    }
    values.push_back(value->get());
  }
  return values;
}

const toml::table* TomlTable::Table(std::string_view key) {
  const toml::node* node = Find(key);
  if (node == nullptr) return nullptr;
  if (node->as_table() == nullptr) WrongType(key, *node, StrCat("a table, as in [", key, "]"));
  return node->as_table();
}

std::vector<const toml::table*> TomlTable::Tables(std::string_view key) {
  std::vector<const toml::table*> tables;
  const toml::node* node = Find(key);
  if (node == nullptr) return tables;
  const toml::array* array = node->as_array();
  if (array == nullptr) {
    WrongType(key, *node, StrCat("tables written as [[", key, "]]"));
    return tables;
  }
  for (const toml::node& element : *array) {
    const toml::table* table = element.as_table();
    if (table == nullptr) {
      WrongType(key, element, StrCat("tables written as [[", key, "]]"));
      return {};
    }
    tables.push_back(table);
  }
  return tables;
}

}  // namespace kvr::bundle
