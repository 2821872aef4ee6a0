// SPDX-License-Identifier: Apache-2.0
//
// How the host device calls a kernel: KVR_HOST_ENTRY_(i, name expression) at the end of a unit
// defines `kvr_entry_<i>`, which takes the launch's argument pointers; a table with the sizes of
// its parameters (devices/host/loaded_module.h reads it); and a variable that names the kernel,
// whose name the other two get (jit/clang/entries.cc).
#pragma once

namespace kvr_host_detail {

struct ParamTable {
  unsigned count;
  unsigned bytes[32];
};

template <int... kIndex>
struct Indices {};

template <auto kKernel>
struct Entry;

template <class... Params, void (*kKernel)(Params...)>
struct Entry<kKernel> {
  static_assert(sizeof...(Params) <= 32, "a kernel has at most 32 parameters");
  static constexpr ParamTable kParams = {sizeof...(Params), {sizeof(Params)...}};

  static void Run(void* const* params) {
    Call(params, __make_integer_seq<IndicesOf, int, sizeof...(Params)>());
  }

 private:
  template <class, int... kIndex>
  using IndicesOf = Indices<kIndex...>;

  template <int... kIndex>
  static void Call([[maybe_unused]] void* const* params, Indices<kIndex...>) {
    kKernel(*static_cast<Params*>(params[kIndex])...);
  }
};

}  // namespace kvr_host_detail

#define KVR_HOST_ENTRY_(index, ...)                                                               \
  extern "C" __attribute__((used)) void kvr_entry_##index(void* const* params) {                  \
    kvr_host_detail::Entry<&__VA_ARGS__>::Run(params);                                            \
  }                                                                                               \
  extern "C" __attribute__((used)) const kvr_host_detail::ParamTable kvr_entry_##index##_params = \
      kvr_host_detail::Entry<&__VA_ARGS__>::kParams;                                              \
  extern "C" __attribute__((used)) const auto kvr_entry_##index##_kernel = &__VA_ARGS__;
