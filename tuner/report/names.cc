// SPDX-License-Identifier: Apache-2.0
//
// The words for shapes, configs and places: what differs is said, what is the same for all is not.
#include "core/strings.h"
#include "tuner/report/evidence.h"

namespace kvr::report {
namespace {

// As Pairs read them.
std::string Joined(const std::map<std::string, std::string>& pairs) {
  std::string text;
  for (const auto& [name, value] : pairs) {
    StrAppend(&text, text.empty() ? "" : ",", name, value.empty() ? "" : "=", value);
  }
  return text;
}
}  // namespace

std::map<std::string, std::string> Pairs(std::string_view text) {
  std::map<std::string, std::string> pairs;
  if (text.empty()) return pairs;
  for (std::string_view piece : Split(text, ',')) {
    const size_t equals = piece.find('=');
    const bool pair = equals != std::string_view::npos;
    pairs[std::string(piece.substr(0, equals))] = pair ? piece.substr(equals + 1) : "";
  }
  return pairs;
}

ShortNames::ShortNames(const std::set<std::string>& texts) {
  if (texts.empty()) return;
  common_ = Pairs(*texts.begin());
  for (const std::string& text : texts) {
    const std::map<std::string, std::string> pairs = Pairs(text);
    std::erase_if(common_, [&](const auto& pair) {
      const auto it = pairs.find(pair.first);
      return it == pairs.end() || it->second != pair.second;
    });
  }
}

std::string ShortNames::operator()(const std::string& text) const {
  std::map<std::string, std::string> pairs = Pairs(text);
  std::erase_if(pairs, [&](const auto& pair) {
    const auto it = common_.find(pair.first);
    return it != common_.end() && it->second == pair.second;
  });
  return Joined(pairs);
}

std::string Evidence::Shape(const std::string& axes) const {
  if (axes.empty()) return "any shape";
  std::string name = shapes(axes);
  if (!name.empty()) return name;
  // There is one shape: what it is not by default tells most.
  for (const auto& [axis, value] : Pairs(axes)) {
    const int index = op == nullptr ? -1 : op->AxisIndex(axis);
    if (index >= 0) {
      const AxisSpec& spec = op->axes[static_cast<size_t>(index)];
      if (spec.is_const || StrCat(spec.default_value) == value) continue;
    }
    StrAppend(&name, name.empty() ? "" : ",", axis, "=", value);
  }
  return name.empty() ? "the default shape" : name;
}

std::string Evidence::Key(const std::string& axes) const {
  const std::string name = shapes(axes);
  return name.empty() ? axes : name;
}

Contestant Evidence::Short(const std::string& variant, const std::string& config) const {
  if (IsDefault(variant, config)) return {variant, ""};
  const auto known = defaults.find(variant);
  if (known != defaults.end()) {
    // Told by what it has otherwise.
    const std::map<std::string, std::string> usual = Pairs(known->second);
    std::map<std::string, std::string> pairs = Pairs(config);
    std::erase_if(pairs, [&](const auto& pair) {
      const auto it = usual.find(pair.first);
      return it != usual.end() && it->second == pair.second;
    });
    if (!pairs.empty()) return {variant, Joined(pairs)};
  }
  const auto it = configs.find(variant);
  return {variant, it == configs.end() ? config : it->second(config)};
}

Contestant Evidence::Whole(const std::string& variant, const std::string& config) const {
  return {variant, IsDefault(variant, config) ? "" : config};
}

bool Evidence::IsDefault(const std::string& variant, const std::string& config) const {
  const auto it = defaults.find(variant);
  return it != defaults.end() && it->second == config;
}

std::string Evidence::Place(int place) const {
  const std::string& name = places[static_cast<size_t>(place)].device_name;
  int same = 0, before = 0;
  for (int other : used) {
    if (places[static_cast<size_t>(other)].device_name != name) continue;
    ++same;
    before += other < place ? 1 : 0;
  }
  return same > 1 ? StrCat(name, " #", before + 1) : name;
}

std::string Evidence::Where(int place, const std::string& mode) const {
  const std::string device = used.size() > 1 ? Place(place) : "";
  const std::string how = several_modes ? mode : "";
  return StrCat(device, !device.empty() && !how.empty() ? ", " : "", how);
}
std::string Listed(const std::vector<std::string>& items) {
  std::string text;
  for (size_t i = 0; i < items.size(); ++i) {
    StrAppend(&text, i == 0 ? "" : i + 1 == items.size() ? " and " : ", ", items[i]);
  }
  return text;
}

std::string Plural(size_t count, std::string_view noun) {
  return StrCat(count, " ", noun, count == 1 ? "" : "s");
}
}  // namespace kvr::report
