// SPDX-License-Identifier: Apache-2.0
//
// A small operation, variants made in memory, and a compiler that emits nothing, for target "null":
// what the registry does is real, the kernels are not.
#pragma once

#include <atomic>
#include <cstdlib>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/status.h"
#include "devices/null/null.h"
#include "jit/compiler.h"
#include "jit/jit.h"
#include "registry/catalog.h"
#include "registry/dispatcher.h"

namespace kvr {

// out[n] = alpha * x[n] + y[n]
class AxpyOp : public Operation {
 public:
  AxpyOp();
  const OpSpec& spec() const override { return spec_; }
  absl::Status Generate(const AxisVector&, uint64_t, absl::Span<const TensorView>) const override {
    return absl::OkStatus();
  }
  absl::StatusOr<std::vector<ReferenceOutput>> Reference(const AxisVector&,
                                                         absl::Span<const TensorView>,
                                                         int) const override {
    return std::vector<ReferenceOutput>{};
  }
  int64_t MinimumBytes(const AxisVector& axes) const override { return 12 * axes[0]; }

 private:
  OpSpec spec_;
};

// One kernel of ceildiv(n, BLOCK) blocks, at most CTAS, and a zeroed workspace of 4 bytes a block.
// Tunables: BLOCK {64, 128, 256} compile, CTAS {1024, 2048} launch.
std::shared_ptr<Variant> AxpyVariant(const std::string& name, bool baseline = false,
                                     const std::string& constraint = "");
// "half": approximate, with a quality tunable K0 {1, 2, 3}.
std::shared_ptr<Variant> ApproximateVariant();

class NullCompiler : public Compiler {
 public:
  explicit NullCompiler(std::atomic<int>* compiles) : compiles_(compiles) {}
  const std::string& identity() const override { return identity_; }
  bool Supports(std::string_view target, std::string* reason) const override;
  std::vector<std::string> targets() const override { return {"null"}; }
  std::string Options(std::string_view) const override { return ""; }
  bool concurrent() const override { return true; }
  const std::vector<HeaderRoot>& header_roots() const override { return roots_; }
  absl::StatusOr<CompiledUnit> Compile(const Unit& unit, std::string_view target) override;

 private:
  std::atomic<int>* compiles_;
  std::string identity_ = "null compiler 1";
  std::vector<HeaderRoot> roots_;
};

// Catalog {baseline, wide}, a null device and a Jit, ready to dispatch.
struct World {
  World();
  explicit World(std::vector<std::shared_ptr<Variant>> variants);

  std::unique_ptr<Dispatcher> Dispatch(DispatcherOptions options = {}) {
    return std::make_unique<Dispatcher>(catalog, *device, *jit, std::move(options));
  }
  // n -> variant, under policy "n:pow2" unless stated.
  GenerationPtr Select(const std::vector<std::pair<int64_t, std::string>>& selections,
                       int64_t number = 1, const std::string& policy = "n:pow2") const;

  Catalog catalog;
  std::unique_ptr<NullDevice> device;
  std::atomic<int> compiles{0};
  BinaryCache cache{""};
  std::unique_ptr<Jit> jit;
};

// x, y, alpha, out of length n.
struct AxpyTensors {
  explicit AxpyTensors(int64_t n);
  std::vector<TensorView> views;
  std::vector<float> memory;
  float alpha = 2;
};

}  // namespace kvr
