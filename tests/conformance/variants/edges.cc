// SPDX-License-Identifier: Apache-2.0
#include "tests/conformance/variants/edges.h"

#include <algorithm>
#include <functional>
#include <set>
#include <string_view>

#include "core/axes.h"
#include "core/strings.h"

namespace kvr {
namespace {

// What one process can address.
constexpr int64_t kAddressSpace = int64_t{1} << 47;

// Shapes that an operation's own arithmetic makes awkward, beside those that follow from its axes;
// for all ops whose name begins so, as far as they are legal. Axes left out take their defaults.
const struct {
  std::string_view ops, axes;
} kAwkward[] = {
    {"mla_sparse_decode", "num_tokens=1,num_qo_heads=1,page_size=1,num_pages=1,topk=1"},
    {"mla_sparse_decode", "num_tokens=1,num_qo_heads=128,page_size=16,num_pages=8,topk=37"},
    {"mla_sparse_decode", "num_tokens=3,num_qo_heads=17,page_size=64,num_pages=2,topk=130"},
    {"mla_sparse_decode", "num_tokens=1,num_qo_heads=16,page_size=64,num_pages=9,topk=577"},
    {"mla_sparse_decode", "num_tokens=19,num_qo_heads=1,page_size=3,num_pages=5,topk=33"},
    {"mla_sparse_decode_fp8",
     "num_tokens=1,num_qo_heads=1,page_size=2,num_pages=1,topk=1,extra_page_size=2,"
     "extra_num_pages=1,extra_topk=1"},
    {"mla_sparse_decode_fp8",
     "num_tokens=3,num_qo_heads=17,page_size=64,num_pages=2,topk=130,extra_page_size=16,"
     "extra_num_pages=3,extra_topk=33"},
    {"mla_sparse_decode_fp8",
     "num_tokens=1,num_qo_heads=128,page_size=64,num_pages=9,topk=577,extra_page_size=64,"
     "extra_num_pages=2,extra_topk=65"},
    {"mla_sparse_decode_fp8",
     "num_tokens=19,num_qo_heads=1,page_size=4,num_pages=5,topk=7,extra_page_size=0,"
     "extra_num_pages=0,extra_topk=0"},
};

std::vector<size_t> FreeAxes(const OpSpec& op) {
  std::vector<size_t> axes;
  for (size_t i = 0; i < op.axes.size(); ++i) {
    if (!op.axes[i].is_const) axes.push_back(i);
  }
  return axes;
}

bool TensorsCanExist(const OpSpec& op, const AxisVector& axes) {
  for (int t = 0; t < op.tensor_count(); ++t) {
    const TensorSpec& tensor = op.tensor(t);
    __int128 bytes = DTypeSize(tensor.dtype);
    for (int axis : tensor.axes) {
      bytes *= axes[axis];
      if (bytes > kAddressSpace) return false;
    }
  }
  return true;
}

// Legal shapes, each once, in the order added.
class Shapes {
 public:
  explicit Shapes(const OpSpec& op) : op_(op) {}
  void Add(const AxisVector& axes) {
    if (IsLegal(op_, axes) && seen_.insert(axes).second) shapes_.push_back(axes);
  }
  void AddWith(AxisVector axes, size_t axis, int64_t value) {
    axes[axis] = value;
    Add(axes);
  }
  std::vector<AxisVector> Take() { return std::move(shapes_); }

 private:
  const OpSpec& op_;
  std::set<AxisVector> seen_;
  std::vector<AxisVector> shapes_;
};

// The bounds that the policy has for `axis`, found by asking it: those that are their own bucket
// and not their successor's. None where every value is its own.
std::vector<int64_t> BucketsOf(const KeyPolicy& policy, AxisVector axes, size_t axis,
                               int64_t largest) {
  const auto bucket = [&](int64_t value) {
    axes[axis] = value;
    return policy.Representative(axes)[axis];
  };
  std::vector<int64_t> bounds;
  int64_t own = 0;
  for (int64_t value = 1; value <= largest; ++value) {
    if (bucket(value) != value) continue;
    ++own;
    bounds.push_back(value);
  }
  if (own == largest) bounds.clear();
  return bounds;
}

AxisVector Defaults(const OpSpec& op) {
  AxisVector axes{};
  for (size_t i = 0; i < op.axes.size(); ++i) {
    axes[i] = op.axes[i].is_const ? op.axes[i].value : op.axes[i].default_value;
  }
  return axes;
}

using Predicate = std::function<bool(const AxisVector&)>;

// `axes` with the largest allowed value of `axis`: by doubling, then by halves. Only the limit of
// the first range is found, which is what constraints state.
AxisVector Enlarged(AxisVector axes, size_t axis, const Predicate& allowed) {
  int64_t good = axes[axis];
  const auto fits = [&](int64_t value) {
    axes[axis] = value;
    return allowed(axes);
  };
  int64_t bad = std::max<int64_t>(1, good) * 2;
  while (bad < kAddressSpace && fits(bad)) {
    good = bad;
    bad *= 2;
  }
  while (bad - good > 1) {
    const int64_t middle = good + (bad - good) / 2;
    (fits(middle) ? good : bad) = middle;
  }
  axes[axis] = good;
  return axes;
}

}  // namespace

bool IsLegal(const OpSpec& op, const AxisVector& axes) {
  return ResolveAxes(op, NamedAxes(op, axes)).ok() && TensorsCanExist(op, axes);
}

AxisVector SmallShape(const OpSpec& op) {
  AxisVector all = Defaults(op);
  for (size_t axis : FreeAxes(op)) all[axis] = 3;
  if (IsLegal(op, all)) return all;
  // Constraints tie the axes to each other: from the defaults down, one at a time, twice.
  AxisVector shape = Defaults(op);
  for (int round = 0; round < 2; ++round) {
    for (size_t axis : FreeAxes(op)) {
      for (int64_t value : {3, 2, 4, 1, 5, 6, 8, 12, 16, 32, 64}) {
        AxisVector smaller = shape;
        smaller[axis] = value;
        if (shape[axis] > 3 && value < shape[axis] && IsLegal(op, smaller)) {
          shape = smaller;
          break;
        }
      }
    }
  }
  return shape;
}

std::vector<AxisVector> EdgeShapes(const OpSpec& op, const KeyPolicy& policy, int64_t largest) {
  const AxisVector small = SmallShape(op);
  Shapes shapes(op);
  shapes.Add(small);
  for (size_t axis : FreeAxes(op)) {
    for (int64_t value : {0, 1, 2, 7, 13}) shapes.AddWith(small, axis, value);
    for (int64_t bound : BucketsOf(policy, small, axis, largest)) {
      for (int64_t beside : {-1, 0, 1}) shapes.AddWith(small, axis, bound + beside);
    }
  }
  return shapes.Take();
}

std::vector<AxisVector> TileShapes(const OpSpec& op, absl::Span<const int64_t> tiles,
                                   int64_t largest) {
  constexpr int64_t kPrimes[] = {5, 11, 3, 7, 37, 13, 17, 2};
  const AxisVector small = SmallShape(op);
  Shapes shapes(op);
  AxisVector primes = small;
  size_t next = 0;
  for (size_t axis : FreeAxes(op)) primes[axis] = kPrimes[next++ % std::size(kPrimes)];
  shapes.Add(primes);
  for (int64_t tile : tiles) {
    if (tile < 2 || tile > largest) continue;
    for (size_t axis : FreeAxes(op)) {
      for (int64_t beside : {-1, 0, 1}) shapes.AddWith(small, axis, tile + beside);
    }
  }
  return shapes.Take();
}

std::vector<AxisVector> AwkwardShapes(const OpSpec& op) {
  Shapes shapes(op);
  for (const auto& awkward : kAwkward) {
    if (op.name.rfind(awkward.ops, 0) != 0) continue;
    const absl::StatusOr<AxisVector> axes = ResolveAxes(op, ParseAxes(awkward.axes).value());
    if (axes.ok()) shapes.Add(*axes);
  }
  return shapes.Take();
}

std::vector<AxisVector> EmptyShapes(const OpSpec& op) {
  Shapes shapes(op);
  for (size_t axis : FreeAxes(op)) {
    AxisVector axes = SmallShape(op);
    axes[axis] = 0;
    const std::vector<TensorView> tensors = TensorShapes(op, axes);
    const auto outputs = tensors.begin() + static_cast<int64_t>(op.inputs.size());
    if (std::all_of(outputs, tensors.end(), [](const auto& t) { return t.elements() == 0; })) {
      shapes.Add(axes);
    }
  }
  return shapes.Take();
}

std::vector<AxisVector> LargestShapes(const OpSpec& op, const Predicate& allowed) {
  const Predicate both = [&](const AxisVector& axes) { return IsLegal(op, axes) && allowed(axes); };
  const std::vector<size_t> axes = FreeAxes(op);
  Shapes shapes(op);
  for (const AxisVector& others : {SmallShape(op), Defaults(op)}) {
    for (size_t first = 0; first < axes.size(); ++first) {
      for (int bits : {15, 16, 20, 24, 28, 30, 31, 32, 36, 40, 44}) {
        for (int64_t beside : {-1, 0, 1}) {
          shapes.AddWith(others, axes[first], (int64_t{1} << bits) + beside);
        }
      }
      const AxisVector large = Enlarged(others, axes[first], both);
      shapes.Add(large);
      AxisVector larger = large;
      for (size_t step = 1; step < axes.size(); ++step) {
        const size_t second = axes[(first + step) % axes.size()];
        shapes.Add(Enlarged(large, second, both));
        larger = Enlarged(larger, second, both);
        shapes.Add(larger);
      }
    }
  }
  return shapes.Take();
}

std::vector<Config> ConfigsToTry(absl::Span<const Tunable> tunables) {
  std::vector<Config> configs = {DefaultConfig(tunables)};
  for (const Tunable& tunable : tunables) {
    for (int64_t value : tunable.values) {
      const bool at_end = value == tunable.values.front() || value == tunable.values.back();
      if (value == tunable.default_value || (tunable.scope == Scope::kQuality && !at_end)) continue;
      configs.push_back(configs.front());
      configs.back()[tunable.name] = value;
    }
  }
  return configs;
}

std::string ShapeText(const OpSpec& op, const AxisVector& axes) {
  Axes named;
  for (size_t axis : FreeAxes(op)) named[op.axes[axis].name] = axes[axis];
  return AxesText(named);
}

}  // namespace kvr
