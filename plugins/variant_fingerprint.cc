// SPDX-License-Identifier: Apache-2.0
#include "core/strings.h"
#include "plugins/admit.h"
#include "plugins/library.h"

namespace kvr::bundle {
namespace {

void HashExtents(Hasher* hasher, std::string_view tag, const std::array<Expr, 3>& extents) {
  for (const Expr& extent : extents) hasher->Field(tag, extent.text());
}

}  // namespace

Fingerprint FingerprintVariant(const Variant& v, absl::Span<const CodeEntry* const> code) {
  Hasher hasher;
  hasher.Field("schema", "1").Field("op", v.op);
  hasher.Field("semantics", v.semantics == Semantics::kExact ? "exact" : "approximate");
  for (const Tunable& tunable : v.tunables) {
    hasher.Field("tunable", tunable.name).Field("scope", ScopeName(tunable.scope));
  }
  for (const SourceFile& file : v.sources) {
    hasher.Field("source", file.name).Field("content", file.content);
  }
  for (const SourceFile& file : v.headers) {
    hasher.Field("header", file.name).Field("content", file.content);
  }
  for (const PrebuiltBinary& cubin : v.cubins) {
    hasher.Field("cubin", cubin.target).Field("content", cubin.file.content);
  }
  for (const CodeEntry* entry : code) {
    if (entry->library == nullptr) continue;
    hasher.Field("code", entry->variant).Field("library", entry->library->fingerprint().Hex());
  }
  for (const std::string& value : v.plan.function_values) hasher.Field("plan value", value);
  if (v.has_launch_function) hasher.Field("launch function", "1");
  if (v.has_reference_function) hasher.Field("reference function", "1");
  for (const Expr& constraint : v.plan.constraints) hasher.Field("constraint", constraint.text());
  for (const PlanProgram::Let& let : v.plan.lets) {
    hasher.Field("let", let.name).Field("value", let.value.text());
  }
  for (const RegionSpec& region : v.plan.regions) {
    hasher.Field("region", region.name).Field("dtype", DTypeName(region.dtype));
    hasher.Field("elements", region.elements.text()).Field("zeroed", region.zeroed ? "1" : "0");
  }
  for (const TensorMapSpec& map : v.plan.tensor_maps) {
    hasher.Field("tensor map", map.name).Field("tensor", StrCat(map.tensor));
    for (const Expr& extent : map.shape) hasher.Field("shape", extent.text());
    for (const Expr& extent : map.box) hasher.Field("box", extent.text());
    hasher.Field("swizzle", StrCat(map.swizzle));
  }
  for (const KernelSpec& kernel : v.plan.kernels) {
    hasher.Field("kernel", kernel.name).Field("entry", kernel.entry);
    HashExtents(&hasher, "grid", kernel.grid);
    HashExtents(&hasher, "block", kernel.block);
    HashExtents(&hasher, "cluster", kernel.cluster);
    hasher.Field("smem", kernel.smem.text()).Field("when", kernel.when.text());
    hasher.Field("cooperative", kernel.attributes.cooperative ? "1" : "0");
    hasher.Field("programmatic", kernel.attributes.programmatic ? "1" : "0");
    for (const ArgSpec& arg : kernel.args) hasher.Field("arg", arg.text);
  }
  return hasher.Finish();
}

}  // namespace kvr::bundle
