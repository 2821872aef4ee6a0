// SPDX-License-Identifier: Apache-2.0
//
// Strict reading of one TOML table. The legal keys are stated first; an unknown key, a missing
// required one or a wrong type is an error at its place. Only the first error counts: after it
// every getter answers empty, so that a reader is straight-line code and asks for the status at
// its end.
//
// Threading: a reader belongs to one thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "plugins/manifest.h"
#include "plugins/toml.h"

namespace kvr::bundle {

// The first error of a whole manifest, shared by the readers of its tables.
struct Outcome {
  absl::Status status;
  void Fail(const absl::Status& error) {
    if (status.ok()) status = error;
  }
  bool ok() const { return status.ok(); }
};

class TomlTable {
 public:
  // `what` is what errors call the table: "kernel", "tunable 'WARPS'", or "" for the top level.
  TomlTable(const toml::table& table, std::string_view file, std::string_view what,
            absl::Span<const std::string_view> keys, Outcome* outcome);

  std::optional<Text> String(std::string_view key);
  Text RequiredString(std::string_view key);
  std::optional<Text> Expression(std::string_view key);  // a string, or an integer
  std::optional<Flag> Bool(std::string_view key);
  std::optional<int64_t> Integer(std::string_view key);
  std::optional<std::vector<Text>> Strings(std::string_view key);
  std::optional<std::vector<Text>> Expressions(std::string_view key, size_t most);
  std::optional<std::vector<int64_t>> Integers(std::string_view key);
  const toml::table* Table(std::string_view key);
  // [[key]]: an array of tables; empty where absent.
  std::vector<const toml::table*> Tables(std::string_view key);

  bool Has(std::string_view key) const;
  const Place& place() const { return place_; }
  Place PlaceOf(std::string_view key) const;
  void Missing(std::string_view key, std::string_view example);

 private:
  const toml::node* Find(std::string_view key) const;
  std::optional<Text> ToText(std::string_view key, const toml::node& node, bool expression);
  void WrongType(std::string_view key, const toml::node& node, std::string_view wanted);

  const toml::table& table_;
  std::string file_;
  std::string what_;
  Place place_;
  Outcome* outcome_;
};

Place PlaceIn(std::string_view file, const toml::source_region& region);

// "an integer", "a string", ...: for "... found".
std::string_view TypeName(const toml::node& node);

}  // namespace kvr::bundle
