// SPDX-License-Identifier: Apache-2.0
#include "jit/signature.h"

#include <llvm/Support/FormatVariadic.h>

#include <algorithm>
#include <optional>

#include "core/status.h"
#include "jit/scan.h"

namespace kvr {
namespace {

// Standard headers are not assumed: NVRTC has none, and the unit may include none.
constexpr std::string_view kPrelude = R"(namespace kvr_signature {
template <class T> struct Plain { using type = T; };
template <> struct Plain<long> { using type = long long; };
template <class T> struct Plain<const T> { using type = const typename Plain<T>::type; };
template <class T> struct Plain<T*> { using type = typename Plain<T>::type*; };
template <class A, class B> struct Same { static constexpr bool value = false; };
template <class A> struct Same<A, A> { static constexpr bool value = true; };
template <int I, class... P> struct At { using type = void; };
template <class P0, class... P> struct At<0, P0, P...> { using type = P0; };
template <int I, class P0, class... P> struct At<I, P0, P...> : At<I - 1, P...> {};
// A wrong count is reported once, not again by every parameter after the gap.
template <int N, int I, class E, class... P> struct Takes {
  static constexpr bool value =
      sizeof...(P) != N || Same<typename Plain<typename At<I, P...>::type>::type, E>::value;
};
}  // namespace kvr_signature
)";

// What the assertion compares with; needs no header for the integer types.
std::string CanonicalName(DType dtype) {
  if (dtype == DType::kI64) return "long long";
  if (dtype == DType::kU8) return "unsigned char";
  return std::string(DTypeCudaName(dtype));
}

std::string TypeOf(const OpSpec& op, const ArgSpec& arg, const std::string& element) {
  switch (arg.kind) {
    case ArgSpec::Kind::kTensor: {
      bool input = arg.index < static_cast<int>(op.inputs.size());
      return (input ? "const " : "") + element + "*";
    }
    case ArgSpec::Kind::kTensorMap:
      return "CUtensorMap";
    case ArgSpec::Kind::kWorkspace:
      return element + "*";
    case ArgSpec::Kind::kScalar:
    case ArgSpec::Kind::kValue:
      return element;
  }
  return element;
}

// As the body of a C++ string literal.
std::string Escaped(std::string_view text) {
  std::string out;
  for (char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    out += c;
  }
  return out;
}

std::string_view BaseName(std::string_view path) {
  size_t slash = path.rfind('/');
  return slash == path.npos ? path : path.substr(slash + 1);
}

struct Found {
  const BundleFile* file = nullptr;
  KernelDefinition kernel;
};

// The definition of `entry`'s kernel: the one with as many parameters as are passed, if there are
// several of that name.
Found Locate(const Unit& unit, std::string_view entry, size_t argument_count) {
  Found best;
  int best_rank = 0;
  for (const BundleFile& file : unit.files) {
    for (KernelDefinition& kernel : FindKernels(*file.original, UnqualifiedName(entry))) {
      int rank =
          1 + (kernel.is_definition ? 2 : 0) + (kernel.parameters.size() == argument_count ? 1 : 0);
      if (rank <= best_rank) continue;
      best_rank = rank;
      best = {&file, std::move(kernel)};
    }
  }
  return best;
}

class Writer {
 public:
  explicit Writer(Unit* unit) : unit_(unit) {}

  // `code`, reported at `site`. Only the file's own name enters the text: no path.
  void At(const SourceSite& site, std::string_view code) {
    unit_->text += llvm::formatv("#line {0} \"{1}\"\n{2}\n", std::max(site.line, 1),
                                 Escaped(name_in_text(site.file)), llvm::StringRef(code))
                       .str();
  }
  void Code(std::string_view code) { (unit_->text += code) += '\n'; }
  void Assert(const SourceSite& site, std::string_view condition, std::string message) {
    std::replace(message.begin(), message.end(), '\n', ' ');
    std::string code = "static_assert(";
    code += condition;
    code += ", \"" + Escaped(message) + "\");";
    At(site, code);
    unit_->assertions.push_back({message, site});
  }

 private:
  std::string_view name_in_text(std::string_view file) const {
    for (const BundleFile& known : unit_->files)
      if (known.name == file) return file;
    return BaseName(file);
  }
  Unit* unit_;
};

absl::Status CheckArguments(const OpSpec& op, const Variant& variant, const KernelSpec& kernel) {
  for (const ArgSpec& arg : kernel.args) {
    int limit = 0;
    switch (arg.kind) {
      case ArgSpec::Kind::kTensor:
      case ArgSpec::Kind::kScalar:
        limit = op.tensor_count();
        break;
      case ArgSpec::Kind::kWorkspace:
        limit = static_cast<int>(variant.plan.regions.size());
        break;
      case ArgSpec::Kind::kTensorMap:
        limit = static_cast<int>(variant.plan.tensor_maps.size());
        break;
      case ArgSpec::Kind::kValue:
        continue;
    }
    if (arg.index < 0 || arg.index >= limit) {
      return ErrorAt(absl::StatusCode::kInvalidArgument, kernel.file, kernel.line, 0,
                     "kernel '" + kernel.name + "': argument '" + arg.text +
                         "' names nothing that the op or the workspace has",
                     "name a tensor of " + op.name + " or a [[workspace]] of the manifest");
    }
  }
  return absl::OkStatus();
}

std::string Count(size_t n, std::string_view noun) {
  return std::to_string(n) + " " + std::string(noun) + (n == 1 ? "" : "s");
}

// The checks stand in a template over the kernel's type, specialised for what needs checking. A
// kernel of exactly the expected type, the usual case, costs one comparison; an entry that names no
// kernel is one error, where it is named, and not one more for every check.
void CheckKernel(const OpSpec& op, const KernelSpec& kernel, int index, const Found& found,
                 const SourceSite& site, Writer* writer) {
  const std::string check = std::string(kSignatureCheck) + std::to_string(index);
  const size_t count = kernel.args.size();
  std::string passed, types;
  for (const ArgSpec& arg : kernel.args) {
    passed += (passed.empty() ? "" : ", ") + arg.text;
    types += (types.empty() ? "" : ", ") + TypeOf(op, arg, CanonicalName(arg.dtype));
  }
  const std::string made = " static constexpr bool made = true; };";
  writer->Code("template <class F, bool = kvr_signature::Same<F, void (*)(" + types +
               ")>::value> struct " + check + " {" + made);
  writer->Code("template <class... P> struct " + check + "<void (*)(P...), false> {");
  std::string takes =
      found.file == nullptr ? "" : " takes " + Count(found.kernel.parameters.size(), "parameter");
  writer->Assert(site, "sizeof...(P) == " + std::to_string(count),
                 "kernel '" + kernel.name + "'" + takes + (takes.empty() ? ":" : ", but") +
                     " the manifest passes " + std::to_string(count) + ": " + passed);

  // Where the source does not spell the parameters one by one (a macro), the kernel's name serves.
  bool spelled = found.file != nullptr && found.kernel.parameters.size() == count;
  for (size_t i = 0; i < count; ++i) {
    const ArgSpec& arg = kernel.args[i];
    SourceSite where = site;
    std::string is = ": ";
    if (spelled) {
      const KernelDefinition::Parameter& parameter = found.kernel.parameters[i];
      where = {site.file, parameter.at.line, parameter.at.column};
      is = " is '" + parameter.text + "', but ";
    }
    const std::string type = TypeOf(op, arg, CanonicalName(arg.dtype));
    std::string condition =
        llvm::formatv("kvr_signature::Takes<{0}, {1}, {2}, P...>::value", count, i, type).str();
    std::string needs = "'" + ParameterType(op, arg) + "'";
    if (arg.kind == ArgSpec::Kind::kWorkspace) {  // one kernel writes it, another may only read it
      condition += llvm::formatv(" || kvr_signature::Takes<{0}, {1}, const {2}, P...>::value",
                                 count, i, type)
                       .str();
      needs += " or 'const " + ParameterType(op, arg) + "'";
    }
    writer->Assert(where, condition,
                   "kernel '" + kernel.name + "': parameter " + std::to_string(i + 1) + is +
                       "the manifest passes '" + arg.text + "', which needs " + needs);
  }
  writer->Code(made);
  writer->At(site, "static_assert(" + check + "<decltype(&" + kernel.entry + ")>::made);");
}

}  // namespace

std::string ParameterType(const OpSpec& op, const ArgSpec& arg) {
  bool by_value = arg.kind == ArgSpec::Kind::kValue || arg.kind == ArgSpec::Kind::kScalar;
  return TypeOf(
      op, arg,
      by_value && arg.dtype == DType::kI64 ? "long long" : std::string(DTypeCudaName(arg.dtype)));
}

std::vector<std::string> TypeHeaders(const PlanProgram& plan) {
  std::vector<std::string> headers;
  auto add = [&](std::string_view header) {
    if (std::find(headers.begin(), headers.end(), header) == headers.end())
      headers.emplace_back(header);
  };
  for (const KernelSpec& kernel : plan.kernels) {
    for (const ArgSpec& arg : kernel.args) {
      if (arg.kind == ArgSpec::Kind::kTensorMap) add("cuda.h");
      if (arg.dtype == DType::kBF16) add("cuda_bf16.h");
      if (arg.dtype == DType::kF16) add("cuda_fp16.h");
      if (arg.dtype == DType::kF8E4M3 || arg.dtype == DType::kF8E8M0) add("cuda_fp8.h");
    }
  }
  return headers;
}

absl::Status AddSignatureChecks(const OpSpec& op, const Variant& variant, Unit* unit) {
  Writer writer(unit);
  unit->text += kPrelude;
  int index = 0;
  for (const KernelSpec& kernel : variant.plan.kernels) {
    KVR_RETURN_IF_ERROR(CheckArguments(op, variant, kernel));
    Found found = Locate(*unit, kernel.entry, kernel.args.size());
    SourceSite site{kernel.file.empty() ? "variant.toml" : kernel.file, kernel.line, 0};
    if (found.file != nullptr) {
      site = {found.file->name, found.kernel.name.line, found.kernel.name.column};
    }
    CheckKernel(op, kernel, index++, found, site, &writer);
    if (std::find(unit->entries.begin(), unit->entries.end(), kernel.entry) ==
        unit->entries.end()) {
      unit->entries.push_back(kernel.entry);
      unit->entry_sites.push_back(site);
    }
  }
  return absl::OkStatus();
}

}  // namespace kvr
