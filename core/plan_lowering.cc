// SPDX-License-Identifier: Apache-2.0
//
// PlanProgram → PlanCode. Everything is evaluated in the order of PlanProgram::Evaluate, so that
// the first thing that fails is the same.
#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstring>
#include <map>
#include <tuple>
#include <utility>

#include "core/plan_code_internal.h"

namespace kvr {

class PlanCode::Lowering {
 public:
  Lowering(PlanCode* code, const PlanProgram& program, const DeviceInfo& device)
      : out_(*code), program_(program), device_(device) {}

  void Lower(const OpSpec& op);

 private:
  // A constant is its index with this bit set, until the registers before it are counted.
  static constexpr uint16_t kConstantBit = 0x8000;
  static constexpr size_t kMaxInstructions = 4096;
  using Register = uint16_t;
  using Key = std::tuple<Op, uint8_t, Register, Register>;

  Register Constant(int64_t value);
  bool IsConstant(Register r) const { return (r & kConstantBit) != 0; }
  int64_t ValueOf(Register r) const { return out_.constants_[r & ~kConstantBit]; }
  Register Fresh();
  size_t Emit(Op op, Register a = 0, Register b = 0, uint16_t to = 0, size_t field = 0);
  size_t Here() const { return out_.code_.size(); }
  void Land(size_t jump) { out_.code_[jump].to = static_cast<uint16_t>(Here()); }

  // The register that holds `op` of a and b: folded, or known already, or computed now.
  Register Compute(Op op, Register a, Register b, uint8_t field = 0);
  static Op OpOf(Expr::Op op);
  Register Unary(Expr::Op op, Register a);
  Register Binary(Expr::Op op, Register a, Register b);
  Register Lowered(const Expr& expr);
  Register Range(const Expr& expr, size_t begin, size_t end);

  // What was computed since `mark` is not known behind a jump over it.
  size_t Mark() const { return order_.size(); }
  void Forget(size_t mark);

  void LowerKernel(size_t index);
  void Extents(const std::array<Expr, 3>& exprs, int64_t least, const std::array<int64_t, 3>& most,
               size_t field, std::array<Register, 3>* extents);
  void LimitVolume(const std::array<Register, 3>& extents, int64_t most);
  void Store(const Expr& expr, DType dtype, size_t field);
  void LowerMaps();
  void Resolve(size_t function_values);

  PlanCode& out_;
  const PlanProgram& program_;
  const DeviceInfo& device_;
  std::vector<Register> slots_;
  std::map<int64_t, Register> constant_ids_;
  std::map<Key, Register> known_;
  std::vector<Key> order_;
  size_t registers_ = 0;
  bool too_large_ = false;
};

PlanCode::Lowering::Register PlanCode::Lowering::Constant(int64_t value) {
  const auto [it, fresh] = constant_ids_.try_emplace(
      value, static_cast<Register>(kConstantBit | (out_.constants_.size() % kMaxInstructions)));
  if (fresh) out_.constants_.push_back(value);
  too_large_ |= out_.constants_.size() >= kMaxRegisters;
  return it->second;
}

PlanCode::Lowering::Register PlanCode::Lowering::Fresh() {
  too_large_ |= registers_ >= kMaxRegisters;
  return static_cast<Register>(registers_++ % kMaxRegisters);
}

size_t PlanCode::Lowering::Emit(Op op, Register a, Register b, uint16_t to, size_t field) {
  if (Here() >= kMaxInstructions) {
    too_large_ = true;
    return Here() - 1;
  }
  out_.code_.push_back({op, static_cast<uint8_t>(field), to, a, b});
  return Here() - 1;
}

void PlanCode::Lowering::Forget(size_t mark) {
  for (; order_.size() > mark; order_.pop_back()) known_.erase(order_.back());
}

PlanCode::Lowering::Register PlanCode::Lowering::Compute(Op op, Register a, Register b,
                                                         uint8_t field) {
  const Key key{op, field, a, b};
  if (const auto it = known_.find(key); it != known_.end()) return it->second;
  const Register to = Fresh();
  Emit(op, a, b, to, field);
  known_.emplace(key, to);
  order_.push_back(key);
  return to;
}

PlanCode::Op PlanCode::Lowering::OpOf(Expr::Op op) {
  switch (op) {
#define KVR_CASE(name) \
  case Expr::Op::name: \
    return Op::name;
    KVR_PLAN_ARITHMETIC(KVR_CASE)
#undef KVR_CASE
    default:
      return Op::kFail;
  }
}

PlanCode::Lowering::Register PlanCode::Lowering::Unary(Expr::Op op, Register a) {
  if (IsConstant(a)) {
    int64_t value = 0;
    if (!Expr::Unary(op, ValueOf(a), &value)) Emit(Op::kFail);
    return Constant(value);
  }
  return Compute(OpOf(op), a, a);
}

PlanCode::Lowering::Register PlanCode::Lowering::Binary(Expr::Op op, Register a, Register b) {
  if (IsConstant(a) && IsConstant(b)) {
    int64_t value = 0;
    if (!Expr::Binary(op, ValueOf(a), ValueOf(b), &value)) Emit(Op::kFail);
    return Constant(value);
  }
  const int64_t right = IsConstant(b) ? ValueOf(b) : 0;
  if (right == 1) {
    if (op == Expr::Op::kMod) return Constant(0);
    if (op == Expr::Op::kFloorDiv || op == Expr::Op::kCeilDiv || op == Expr::Op::kMultiply) {
      return a;
    }
  }
  if (right > 0 && std::has_single_bit(static_cast<uint64_t>(right))) {
    const auto bits = static_cast<uint8_t>(std::countr_zero(static_cast<uint64_t>(right)));
    if (op == Expr::Op::kFloorDiv) return Compute(Op::kShift, a, a, bits);
    if (op == Expr::Op::kCeilDiv) return Compute(Op::kCeilShift, a, a, bits);
    if (op == Expr::Op::kMod) return Compute(Op::kMask, a, a, bits);
  }
  const bool commutes = op == Expr::Op::kAdd || op == Expr::Op::kMultiply || op == Expr::Op::kMin ||
                        op == Expr::Op::kMax;
  if (commutes && a > b) std::swap(a, b);
  return Compute(OpOf(op), a, b);
}

PlanCode::Lowering::Register PlanCode::Lowering::Lowered(const Expr& expr) {
  return Range(expr, 0, expr.nodes_.size());
}

// Nodes [begin, end) leave one value. if(c, a, b) is c, jump-if-zero to b, a, jump behind b, b.
PlanCode::Lowering::Register PlanCode::Lowering::Range(const Expr& expr, size_t begin, size_t end) {
  std::vector<Register> stack;
  const auto pop = [&] {
    const Register top = stack.back();
    stack.pop_back();
    return top;
  };
  for (size_t i = begin; i < end; ++i) {
    const Expr::Node& node = expr.nodes_[i];
    switch (node.op) {
      case Expr::Op::kConst:
        stack.push_back(Constant(node.value));
        break;
      case Expr::Op::kSlot:
        stack.push_back(slots_[static_cast<size_t>(node.value)]);
        break;
      case Expr::Op::kNegate:
      case Expr::Op::kNot:
      case Expr::Op::kPow2Ceil:
        stack.push_back(Unary(node.op, pop()));
        break;
      case Expr::Op::kJumpIfZero: {
        const auto otherwise = static_cast<size_t>(node.value);
        const auto behind = static_cast<size_t>(expr.nodes_[otherwise - 1].value);
        const Register condition = pop();
        if (IsConstant(condition)) {
          stack.push_back(ValueOf(condition) != 0 ? Range(expr, i + 1, otherwise - 1)
                                                  : Range(expr, otherwise, behind));
        } else {
          const Register result = Fresh();
          const size_t mark = Mark();
          const size_t branch = Emit(Op::kJumpIfZero, condition);
          Emit(Op::kMove, Range(expr, i + 1, otherwise - 1), 0, result);
          Forget(mark);
          const size_t jump = Emit(Op::kJump);
          Land(branch);
          Emit(Op::kMove, Range(expr, otherwise, behind), 0, result);
          Forget(mark);
          Land(jump);
          stack.push_back(result);
        }
        i = behind - 1;
        break;
      }
      default: {
        Register right;
        if (node.right == Expr::Right::kStack) {
          right = pop();
        } else {
          right = node.right == Expr::Right::kSlot ? slots_[static_cast<size_t>(node.value)]
                                                   : Constant(node.value);
        }
        const Register left = pop();
        stack.push_back(Binary(node.op, left, right));
      }
    }
  }
  return stack.back();
}

void PlanCode::Lowering::Extents(const std::array<Expr, 3>& exprs, int64_t least,
                                 const std::array<int64_t, 3>& most, size_t field,
                                 std::array<Register, 3>* extents) {
  for (size_t i = 0; i < 3; ++i) {
    const Register extent = (*extents)[i] = Lowered(exprs[i]);
    if (!IsConstant(extent)) {
      Emit(Op::kExtent, extent, Constant(least), Constant(most[i]), field + i);
      continue;
    }
    const int64_t value = ValueOf(extent);
    if (value < least || value > most[i]) Emit(Op::kUnfit);
    const auto stored = static_cast<uint32_t>(value);
    std::memcpy(reinterpret_cast<std::byte*>(&out_.kernels_.back()) + (field + i) * 4, &stored,
                sizeof stored);
  }
}

// Their ranges are checked by now: the product does not overflow.
void PlanCode::Lowering::LimitVolume(const std::array<Register, 3>& extents, int64_t most) {
  const Register area = Binary(Expr::Op::kMultiply, extents[0], extents[1]);
  const Register volume = Binary(Expr::Op::kMultiply, area, extents[2]);
  if (!IsConstant(volume)) {
    Emit(Op::kInRange, volume, Constant(1), Constant(most));
  } else if (ValueOf(volume) > most) {
    Emit(Op::kUnfit);
  }
}

void PlanCode::Lowering::Store(const Expr& expr, DType dtype, size_t field) {
  const Register value = Lowered(expr);
  Emit(dtype == DType::kI32 ? Op::kStoreI32 : Op::kStore, value, 0, 0, field);
}

void PlanCode::Lowering::LowerKernel(size_t index) {
  constexpr auto kField = [](size_t offset) { return offset / 4; };
  const KernelSpec& kernel = program_.kernels[index];
  out_.kernels_.emplace_back().kernel = static_cast<int>(index);

  const Register when = Lowered(kernel.when);
  if (IsConstant(when) && ValueOf(when) == 0) return;
  const size_t mark = Mark();
  std::vector<size_t> skips;
  if (!IsConstant(when)) skips.push_back(Emit(Op::kJumpIfZero, when));
  Emit(Op::kKernel, 0, 0, 0, index);

  std::array<Register, 3> grid, block, cluster;
  Extents(kernel.grid, 0, kGridLimit, kField(offsetof(KernelLaunch, grid)), &grid);
  bool may_be_empty = false, empty = false;
  for (Register extent : grid) {
    may_be_empty |= !IsConstant(extent);
    empty |= IsConstant(extent) && ValueOf(extent) == 0;
  }
  if (may_be_empty) skips.push_back(Emit(Op::kJumpIfEmpty));
  if (!empty) {
    Extents(kernel.block, 1, kBlockLimit, kField(offsetof(KernelLaunch, block)), &block);
    LimitVolume(block, device_.max_threads_per_block);
    Extents(kernel.cluster, 1, kBlockLimit, kField(offsetof(KernelLaunch, cluster)), &cluster);
    LimitVolume(cluster, std::max(1, device_.max_cluster_size));
    for (size_t i = 0; i < 3; ++i) {
      const Register rest = Binary(Expr::Op::kMod, grid[i], cluster[i]);
      if (IsConstant(rest) && ValueOf(rest) == 0) continue;
      Emit(Op::kInRange, rest, Constant(0), Constant(0));
    }
    const Register smem = Lowered(kernel.smem);
    if (IsConstant(smem)) {
      out_.kernels_.back().smem = ValueOf(smem);
      if (ValueOf(smem) < 0 || ValueOf(smem) > device_.smem_per_block) Emit(Op::kUnfit);
    } else {
      Emit(Op::kInRange, smem, Constant(0), Constant(device_.smem_per_block));
      Emit(Op::kStore, smem, 0, 0, kField(offsetof(KernelLaunch, smem)));
    }
    for (size_t i = 0; i < kernel.args.size(); ++i) {
      const ArgSpec& arg = kernel.args[i];
      if (arg.kind != ArgSpec::Kind::kValue) continue;
      Store(arg.value, arg.dtype, kField(offsetof(KernelLaunch, values)) + 2 * i);
    }
    Emit(Op::kKernelDone);
  }
  for (size_t skip : skips) Land(skip);
  Forget(mark);
}

void PlanCode::Lowering::LowerMaps() {
  if (program_.tensor_maps.empty()) return;
  const size_t skip = Emit(Op::kMaps);
  for (size_t i = 0; i < program_.tensor_maps.size(); ++i) {
    const TensorMapSpec& map = program_.tensor_maps[i];
    Emit(Op::kMap, 0, 0, 0, i);
    for (size_t d = 0; d < map.box.size(); ++d) {
      Emit(Op::kMapShape, Lowered(map.shape[d]), 0, 0, d);
      Emit(Op::kMapBox, Lowered(map.box[d]), 0, 0, d);
    }
    Emit(Op::kMapDone);
  }
  Land(skip);
}

// Constants lie behind the plan function's values, results behind the constants.
void PlanCode::Lowering::Resolve(size_t function_values) {
  const size_t constants = kMaxAxes + function_values;
  const size_t results = out_.constants_.size();
  too_large_ |= registers_ + results > kMaxRegisters;
  const auto number = [&](uint16_t* r) {
    if (IsConstant(*r)) {
      *r = static_cast<uint16_t>(constants + (*r & ~kConstantBit));
    } else if (*r >= constants) {
      *r = static_cast<uint16_t>(*r + results);
    }
  };
  for (Instruction& at : out_.code_) {
    number(&at.a);
    number(&at.b);
    const bool to_is_register = at.op < Op::kJump || at.op == Op::kInRange || at.op == Op::kExtent;
    if (to_is_register) number(&at.to);
  }
}

void PlanCode::Lowering::Lower(const OpSpec& op) {
  for (int i = 0; i < program_.axis_count; ++i) {
    const auto axis = static_cast<size_t>(i);
    slots_.push_back(axis < op.axes.size() && op.axes[axis].is_const ? Constant(op.axes[axis].value)
                                                                     : static_cast<Register>(i));
  }
  for (int64_t value : out_.tunable_values_) slots_.push_back(Constant(value));
  slots_.push_back(Constant(device_.sms));
  slots_.push_back(Constant(device_.smem_per_block));
  registers_ = kMaxAxes;
  const size_t function_values = program_.function != nullptr ? program_.function_values.size() : 0;
  for (size_t i = 0; i < function_values; ++i) slots_.push_back(Fresh());

  for (const PlanProgram::Let& let : program_.lets) slots_.push_back(Lowered(let.value));
  for (const Expr& constraint : program_.constraints) {
    const Register met = Lowered(constraint);
    if (!IsConstant(met)) {
      Emit(Op::kRequire, met);
    } else if (ValueOf(met) == 0) {
      Emit(Op::kUnfit);
    }
  }
  for (size_t i = 0; i < program_.regions.size(); ++i) {
    const RegionSpec& region = program_.regions[i];
    Emit(Op::kRegion, Lowered(region.elements), Constant(DTypeSize(region.dtype)), 0, i);
  }
  for (size_t i = 0; i < program_.kernels.size(); ++i) LowerKernel(i);
  LowerMaps();
  const bool clears = !program_.kernels.empty();
  Emit(Op::kFinish, 0, 0, static_cast<uint16_t>(clears ? program_.regions.size() : 0));
  Resolve(function_values);
  out_.constants_.resize((out_.constants_.size() + 7) / 8 * 8);
  if (too_large_) {
    out_.constants_.clear();
    out_.code_ = {{Op::kFail, 0, 0, 0, 0}};
  }
}

PlanCode::PlanCode(const PlanProgram& program, const OpSpec& op,
                   absl::Span<const int64_t> tunable_values, const DeviceInfo& device)
    : program_(&program),
      tunable_values_(tunable_values.begin(), tunable_values.end()),
      device_(&device) {
  if (!program.CheckSizes(tunable_values.size()).ok()) {
    code_ = {{Op::kFail, 0, 0, 0, 0}};
    return;
  }
  Lowering(this, program, device).Lower(op);
}

}  // namespace kvr
