// SPDX-License-Identifier: Apache-2.0
#include "plugins/manifest.h"

#include <algorithm>
#include <limits>
#include <set>
#include <tuple>
#include <utility>

#include "absl/strings/ascii.h"
#include "core/names.h"
#include "core/plan.h"
#include "core/status.h"
#include "core/strings.h"
#include "plugins/files.h"
#include "plugins/library.h"
#include "plugins/toml_guard.h"
#include "plugins/toml_table.h"

namespace kvr::bundle {
namespace {

using absl::StatusCode;

constexpr size_t kMaxNameBytes = 64;
constexpr size_t kMaxOpNameBytes = 128;

constexpr std::string_view kTopKeys[] = {"schema",
                                         "op",
                                         "name",
                                         "version",
                                         "semantics",
                                         "baseline",
                                         "description",
                                         "targets",
                                         "sources",
                                         "headers",
                                         "cubins",
                                         "launch_function",
                                         "plan_values",
                                         "constraints",
                                         "key_policy",
                                         "host_skip_reason",
                                         "extends",
                                         "tunables",
                                         "let",
                                         "workspace",
                                         "tensor_map",
                                         "kernel",
                                         "reference_function"};
constexpr std::string_view kExtendsKeys[] = {"op", "variant", "version"};
constexpr std::string_view kTunableKeys[] = {"values", "default", "scope", "description"};
constexpr std::string_view kRegionKeys[] = {"name", "dtype", "elements", "zeroed"};
constexpr std::string_view kTensorMapKeys[] = {"name", "tensor", "shape", "box", "swizzle"};
constexpr std::string_view kKernelKeys[] = {"name", "entry", "grid",       "block", "cluster",
                                            "smem", "when",  "attributes", "args"};
constexpr std::string_view kAttributeKeys[] = {"cooperative", "programmatic"};

bool IsName(std::string_view text, bool upper) {
  if (text.empty() || text.size() > kMaxNameBytes) return false;
  auto letter = [upper](char c) { return upper ? c >= 'A' && c <= 'Z' : c >= 'a' && c <= 'z'; };
  if (!letter(text[0])) return false;
  return std::all_of(text.begin(), text.end(),
                     [&](char c) { return letter(c) || c == '_' || (c >= '0' && c <= '9'); });
}

void CheckName(std::string_view kind, const Text& name, bool upper, Outcome* outcome) {
  if (!outcome->ok() || IsName(name.value, upper)) return;
  outcome->Fail(Invalid(name.at, StrCat(kind, " name ", Quoted(name.value), " is not legal"),
                        StrCat("names match ", upper ? "[A-Z][A-Z0-9_]*" : "[a-z][a-z0-9_]*",
                               ", at most ", kMaxNameBytes, " characters")));
}

bool IsNumber(std::string_view text) {
  return !text.empty() && text.size() <= 9 && (text == "0" || text[0] != '0') &&
         std::all_of(text.begin(), text.end(),
                     [](unsigned char c) { return absl::ascii_isdigit(c); });
}

bool IsVersion(std::string_view text) {
  const std::vector<std::string_view> parts = Split(text, '.');
  return parts.size() == 3 && std::all_of(parts.begin(), parts.end(), IsNumber);
}

template <typename Entry>
void CheckCount(const std::vector<Entry>& entries, size_t limit, std::string_view kind,
                const Place& at, Outcome* outcome) {
  if (entries.size() <= limit) return;
  outcome->Fail(Invalid(at, StrCat(entries.size(), " ", kind), StrCat("at most ", limit)));
}

// Entries in the order the file states them; toml++ keeps tables sorted by key.
std::vector<std::pair<const toml::key*, const toml::node*>> InOrder(const toml::table& table) {
  std::vector<std::pair<const toml::key*, const toml::node*>> entries;
  for (auto it = table.begin(); it != table.end(); ++it) {
    entries.emplace_back(&it->first, &it->second);
  }
  std::sort(entries.begin(), entries.end(), [](const auto& a, const auto& b) {
    const auto& x = a.first->source().begin;
    const auto& y = b.first->source().begin;
    return std::tie(x.line, x.column) < std::tie(y.line, y.column);
  });
  return entries;
}

class Parser {
 public:
  Parser(std::string_view file, Outcome* outcome) : file_(file), outcome_(outcome) {}

  Manifest Parse(const toml::table& root) {
    Manifest m;
    m.at = Place{file_, 0, 0};
    TomlTable top(root, file_, "", kTopKeys, outcome_);
    CheckSchema(top);
    m.op = top.RequiredString("op");
    m.name = top.RequiredString("name");
    m.version = top.RequiredString("version");
    CheckOpName(m.op);
    CheckName("variant", m.name, false, outcome_);
    if (outcome_->ok() && !IsVersion(m.version.value)) {
      outcome_->Fail(Invalid(m.version.at,
                             StrCat("version ", Quoted(m.version.value), " is not a version"),
                             "give MAJOR.MINOR.PATCH, as in \"1.0.0\""));
    }
    m.baseline = top.Bool("baseline");
    m.description = top.String("description");
    m.semantics = top.String("semantics");
    m.host_skip_reason = top.String("host_skip_reason");
    m.key_policy = top.String("key_policy");
    m.targets = top.Strings("targets");
    m.constraints = top.Strings("constraints");
    if (m.constraints) {
      CheckCount(*m.constraints, kMaxConstraints, "constraints", top.PlaceOf("constraints"),
                 outcome_);
    }
    if (const toml::table* extends = top.Table("extends")) m.extends = ParseExtends(*extends);
    ParseFiles(top, &m);
    if (const toml::table* cubins = top.Table("cubins")) ParseCubins(*cubins, &m);
    m.launch_function = top.Bool("launch_function");
    m.reference_function = top.Bool("reference_function");
    m.plan_values = top.Strings("plan_values");
    CheckPlanValues(top, m);
    if (const toml::table* tunables = top.Table("tunables")) ParseTunables(*tunables, &m);
    if (const toml::table* lets = top.Table("let")) ParseLets(*lets, &m);
    for (const toml::table* region : top.Tables("workspace")) ParseRegion(*region, &m);
    CheckCount(m.regions, kMaxRegions, "workspace regions", top.PlaceOf("workspace"), outcome_);
    for (const toml::table* map : top.Tables("tensor_map")) ParseTensorMap(*map, &m);
    CheckCount(m.tensor_maps, kMaxTensorMaps, "tensor maps", top.PlaceOf("tensor_map"), outcome_);
    for (const toml::table* kernel : top.Tables("kernel")) ParseKernel(*kernel, &m);
    CheckCount(m.kernels, kMaxKernels, "kernels", top.PlaceOf("kernel"), outcome_);
    return m;
  }

 private:
  // The definition's name, which published ones write in other letters, too.
  void CheckOpName(const Text& op) {
    if (!outcome_->ok() || (IsIdentifier(op.value) && op.value.size() <= kMaxOpNameBytes)) return;
    outcome_->Fail(Invalid(op.at, StrCat("op name ", Quoted(op.value), " is not legal"),
                           StrCat("names of operations match [A-Za-z_][A-Za-z0-9_]*, at most ",
                                  kMaxOpNameBytes, " characters")));
  }

  void CheckSchema(TomlTable& top) {
    if (!top.Has("schema")) top.Missing("schema", "schema = 1");
    const std::optional<int64_t> schema = top.Integer("schema");
    if (schema && *schema != 1) {
      outcome_->Fail(Invalid(top.PlaceOf("schema"), StrCat("schema ", *schema, " is unknown"),
                             "this kvr reads schema 1: state schema = 1, or take a newer kvr"));
    }
  }

  ExtendsEntry ParseExtends(const toml::table& table) {
    TomlTable reader(table, file_, "extends", kExtendsKeys, outcome_);
    ExtendsEntry extends{reader.String("op"), reader.RequiredString("variant"),
                         reader.RequiredString("version")};
    if (extends.op) CheckOpName(*extends.op);
    CheckName("variant", extends.variant, false, outcome_);
    if (outcome_->ok() && !IsNumber(extends.version.value)) {
      outcome_->Fail(Invalid(
          extends.version.at,
          StrCat("extends: version ", Quoted(extends.version.value), " is not a major version"),
          "give the major version alone, as in { variant = \"baseline\", version = \"1\" }"));
    }
    return extends;
  }

  void ParseFiles(TomlTable& top, Manifest* m) {
    std::set<std::string, std::less<>> seen;
    for (std::string_view key : {"sources", "headers"}) {
      std::vector<FileEntry>& files = key == "sources" ? m->sources : m->headers;
      for (Text& name : top.Strings(key).value_or(std::vector<Text>())) {
        if (!outcome_->ok()) return;
        if (absl::Status status = CheckFileName(name.value); !status.ok()) {
          outcome_->Fail(At(name.at, status));
        } else if (!seen.insert(name.value).second) {
          outcome_->Fail(Invalid(name.at, StrCat("file '", name.value, "' is named twice"),
                                 "name each file once, as a source or as a header"));
        }
        files.push_back({std::move(name), "", ""});
      }
    }
    if (seen.size() > static_cast<size_t>(kMaxBundleFiles)) {
      outcome_->Fail(Invalid(top.PlaceOf("sources"), StrCat(seen.size(), " files"),
                             StrCat("at most ", kMaxBundleFiles)));
    }
  }

  // { sm_90a = "scale.sm_90a.cubin" }
  void ParseCubins(const toml::table& table, Manifest* m) {
    const auto entries = InOrder(table);
    std::vector<std::string_view> keys;  // targets, which admission knows
    for (const auto& [key, node] : entries) keys.push_back(key->str());
    TomlTable reader(table, file_, "cubins", keys, outcome_);
    for (const auto& [key, node] : entries) {
      std::optional<Text> name = reader.String(key->str());
      if (!outcome_->ok()) return;
      if (absl::Status status = CheckFileName(name->value); !status.ok()) {
        outcome_->Fail(At(name->at, status));
      }
      m->cubins.push_back(
          {{std::string(key->str()), PlaceIn(file_, key->source())}, {*std::move(name), "", ""}});
    }
  }

  void CheckPlanValues(const TomlTable& top, const Manifest& m) {
    if (!m.plan_values) return;
    CheckCount(*m.plan_values, kMaxPlanValues, "plan values", top.PlaceOf("plan_values"), outcome_);
    std::set<std::string_view> seen;
    for (const Text& name : *m.plan_values) {
      CheckName("plan value", name, false, outcome_);
      if (!seen.insert(name.value).second) {
        outcome_->Fail(Invalid(name.at, StrCat("plan value '", name.value, "' is named twice"),
                               "name each value once, in the order of the plan function"));
      }
    }
  }

  void ParseTunables(const toml::table& table, Manifest* m) {
    for (const auto& [key, node] : InOrder(table)) {
      if (!outcome_->ok()) return;
      const Text name{std::string(key->str()), PlaceIn(file_, key->source())};
      CheckName("tunable", name, true, outcome_);
      if (node->as_table() == nullptr) {
        outcome_->Fail(Invalid(name.at,
                               StrCat("tunable ", Quoted(name.value), " is ", TypeName(*node)),
                               "write [tunables.NAME] with values, default and scope"));
        return;
      }
      m->tunables.push_back(ParseTunable(name, *node->as_table()));
    }
    CheckCount(m->tunables, kMaxTunables, "tunables", PlaceIn(file_, table.source()), outcome_);
  }

  TunableEntry ParseTunable(const Text& name, const toml::table& table) {
    TomlTable reader(table, file_, StrCat("tunable '", name.value, "'"), kTunableKeys, outcome_);
    TunableEntry entry;
    entry.at = name.at;
    Tunable& tunable = entry.tunable;
    tunable.name = name.value;
    if (!reader.Has("values")) reader.Missing("values", "values = [16, 32]");
    tunable.values = reader.Integers("values").value_or(std::vector<int64_t>());
    if (!reader.Has("default")) reader.Missing("default", "default = one of its values");
    tunable.default_value = reader.Integer("default").value_or(0);
    const Text scope = reader.RequiredString("scope");
    tunable.description = reader.String("description").value_or(Text{}).value;
    if (!outcome_->ok()) return entry;

    if (absl::StatusOr<Scope> parsed = ParseScope(scope.value); parsed.ok()) {
      tunable.scope = *parsed;
    } else {
      outcome_->Fail(At(scope.at, parsed.status()));
    }
    CheckValues(tunable, reader);
    return entry;
  }

  void CheckValues(const Tunable& tunable, const TomlTable& reader) {
    auto fail = [&](std::string_view key, std::string_view what, std::string_view fix) {
      outcome_->Fail(
          Invalid(reader.PlaceOf(key), StrCat("tunable '", tunable.name, "' ", what), fix));
    };
    const std::vector<int64_t>& values = tunable.values;
    if (values.empty()) return fail("values", "has no values", "give at least one integer");
    if (values.size() > static_cast<size_t>(kMaxValues)) {
      return fail("values", StrCat("has ", values.size(), " values"),
                  StrCat("at most ", kMaxValues));
    }
    if (std::set<int64_t>(values.begin(), values.end()).size() != values.size()) {
      return fail("values", "has a value twice", "state each value once");
    }
    if (std::find(values.begin(), values.end(), tunable.default_value) == values.end()) {
      fail("default",
           StrCat("has default ", tunable.default_value, ", which is not among its values"),
           StrCat("take one of ", StrJoin(values, ", ")));
    }
  }

  void ParseLets(const toml::table& table, Manifest* m) {
    const auto entries = InOrder(table);
    std::vector<std::string_view> keys;  // every name is legal here, as far as the table goes
    for (const auto& [key, node] : entries) keys.push_back(key->str());
    TomlTable reader(table, file_, "let", keys, outcome_);
    for (const auto& [key, node] : entries) {
      const Text name{std::string(key->str()), PlaceIn(file_, key->source())};
      CheckName("let", name, false, outcome_);
      const std::optional<Text> value = reader.Expression(key->str());
      if (!outcome_->ok()) return;
      m->lets.push_back({name, *value});
    }
    CheckCount(m->lets, kMaxLets, "let values", PlaceIn(file_, table.source()), outcome_);
  }

  template <typename Entry>
  void CheckDuplicate(const std::vector<Entry>& entries, const Text& name, std::string_view kind) {
    for (const Entry& entry : entries) {
      if (outcome_->ok() && entry.name.value == name.value) {
        outcome_->Fail(
            Invalid(name.at, StrCat(kind, " '", name.value, "' is stated twice"),
                    StrCat("give it another name; the first is in line ", entry.name.at.line)));
      }
    }
  }

  void ParseRegion(const toml::table& table, Manifest* m) {
    TomlTable reader(table, file_, "workspace", kRegionKeys, outcome_);
    RegionEntry region;
    region.name = reader.RequiredString("name");
    CheckName("workspace", region.name, false, outcome_);
    CheckDuplicate(m->regions, region.name, "workspace");
    region.dtype = reader.String("dtype");
    region.elements = reader.Expression("elements");
    region.zeroed = reader.Bool("zeroed");
    m->regions.push_back(std::move(region));
  }

  void ParseTensorMap(const toml::table& table, Manifest* m) {
    TomlTable reader(table, file_, "tensor_map", kTensorMapKeys, outcome_);
    TensorMapEntry map;
    map.name = reader.RequiredString("name");
    CheckName("tensor map", map.name, false, outcome_);
    CheckDuplicate(m->tensor_maps, map.name, "tensor map");
    map.tensor = reader.String("tensor");
    map.shape = reader.Expressions("shape", kMaxTensorMapRank);
    map.box = reader.Expressions("box", kMaxTensorMapRank);
    map.swizzle = reader.Integer("swizzle");
    if (map.swizzle && *map.swizzle != 0 && *map.swizzle != 32 && *map.swizzle != 64 &&
        *map.swizzle != 128) {
      outcome_->Fail(
          Invalid(reader.PlaceOf("swizzle"),
                  StrCat("tensor map '", map.name.value, "': swizzle ", *map.swizzle, " is none"),
                  "give 0, 32, 64 or 128 bytes"));
    }
    m->tensor_maps.push_back(std::move(map));
  }

  void ParseKernel(const toml::table& table, Manifest* m) {
    TomlTable reader(table, file_, "kernel", kKernelKeys, outcome_);
    KernelEntry kernel;
    kernel.name = reader.RequiredString("name");
    CheckName("kernel", kernel.name, false, outcome_);
    CheckDuplicate(m->kernels, kernel.name, "kernel");
    kernel.entry = reader.String("entry");
    kernel.grid = reader.Expressions("grid", 3);
    kernel.block = reader.Expressions("block", 3);
    kernel.cluster = reader.Expressions("cluster", 3);
    kernel.smem = reader.Expression("smem");
    kernel.when = reader.Expression("when");
    kernel.args = reader.Strings("args");
    if (const toml::table* attributes = reader.Table("attributes")) {
      TomlTable flags(*attributes, file_, StrCat("kernel '", kernel.name.value, "' attributes"),
                      kAttributeKeys, outcome_);
      kernel.cooperative = flags.Bool("cooperative");
      kernel.programmatic = flags.Bool("programmatic");
    }
    m->kernels.push_back(std::move(kernel));
  }

  std::string file_;
  Outcome* outcome_;
};

class FileLoader {
 public:
  explicit FileLoader(const BundleFiles& files) : files_(files) {}

  absl::Status Load(FileEntry* file, absl::StatusOr<std::string> content) {
    if (!content.ok()) return At(file->name.at, content.status());
    total_ += static_cast<int64_t>(content->size());
    if (total_ > kMaxBundleBytes) {
      return At(file->name.at, StatusCode::kResourceExhausted,
                StrCat("the bundle's files exceed ", kMaxBundleBytes >> 20, " MiB together"),
                "leave out what no kernel needs");
    }
    file->content = *std::move(content);
    file->path = files_.FilePath(file->name.value);
    return absl::OkStatus();
  }

  absl::Status LoadAll(Manifest* m) {
    for (std::vector<FileEntry>* files : {&m->sources, &m->headers}) {
      for (FileEntry& file : *files) {
        KVR_RETURN_IF_ERROR(Load(&file, files_.ReadText(file.name.value, kMaxSourceBytes)));
      }
    }
    for (CubinEntry& cubin : m->cubins) {
      KVR_RETURN_IF_ERROR(Load(&cubin.file, files_.Read(cubin.file.name.value, kMaxCubinBytes)));
    }
    return absl::OkStatus();
  }

 private:
  const BundleFiles& files_;
  int64_t total_ = 0;
};

}  // namespace

absl::Status At(const Place& place, StatusCode code, std::string_view what, std::string_view fix) {
  return ErrorAt(code, place.file, place.line, place.column, what, fix);
}

absl::Status At(const Place& place, const absl::Status& status) {
  return At(place, status.code(), What(status), Fix(status));
}

absl::Status Invalid(const Place& place, std::string_view what, std::string_view fix) {
  return At(place, StatusCode::kInvalidArgument, what, fix);
}

std::string Manifest::ParentName() const {
  const std::string& parent = extends->variant.value;
  return ParentOp() == op.value ? parent : StrCat(ParentOp(), "/", parent);
}

absl::StatusOr<Manifest> ParseManifest(std::string_view text, std::string_view file) {
  KVR_RETURN_IF_ERROR(CheckDots(text, file));
  constexpr std::string_view kFix =
      "correct the line; strings are quoted, and a key or table is stated once";
  try {
    const toml::parse_result parsed = toml::parse(text);
    if (!parsed) {
      const toml::parse_error& error = parsed.error();
      return Invalid(PlaceIn(file, error.source()), StrCat("not TOML: ", error.description()),
                     kFix);
    }
    Outcome outcome;
    Manifest manifest = Parser(file, &outcome).Parse(parsed.table());
    if (!outcome.ok()) return outcome.status;
    return manifest;
  } catch (const TomlAssertion&) {
    return Invalid({std::string(file), 0, 0},
                   "not TOML: a key or a value is missing where a bracket or '=' stands", kFix);
  }
}

absl::StatusOr<Manifest> ReadBundle(const BundleFiles& files,
                                    std::shared_ptr<const PluginLibrary> library) {
  KVR_ASSIGN_OR_RETURN(const std::string text, files.ReadText(kManifestName, kMaxManifestBytes));
  KVR_ASSIGN_OR_RETURN(Manifest manifest, ParseManifest(text, files.FilePath(kManifestName)));
  manifest.directory = files.path();
  manifest.plugin = library == nullptr ? files.path().substr(files.path().rfind('/') + 1)
                                       : library->section().name;
  KVR_RETURN_IF_ERROR(FileLoader(files).LoadAll(&manifest));
  if (manifest.HasPlanFunction()) manifest.plan_code = {library, manifest.name.value};
  if (manifest.HasLaunchFunction()) manifest.launch_code = {library, manifest.name.value};
  if (manifest.HasReferenceFunction()) manifest.reference_code = {library, manifest.name.value};
  return manifest;
}

}  // namespace kvr::bundle
