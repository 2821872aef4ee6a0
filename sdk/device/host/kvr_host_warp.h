// SPDX-License-Identifier: Apache-2.0
//
// Votes, shuffles, matches and reductions: collectives (kvr_host.h) over one Exchange per lane.
#pragma once

#include "kvr_host_cuda.h"

namespace kvr_host_detail {

// What a lane brings to a shuffle, vote or match, and takes from it.
struct Exchange {
  u64 in;
  u64 out;
  const kvr_host_lane* self;
  unsigned source;  // of a shuffle: the lane to read
};

KVR_HOST_COLLECTIVE inline void Meet(void* const*) {}

KVR_HOST_COLLECTIVE inline void Shuffle(void* const* lanes) {
  for (int i = 0; i < 32; ++i) {
    Exchange* me = static_cast<Exchange*>(lanes[i]);
    if (me == nullptr) continue;
    const Exchange* from = static_cast<const Exchange*>(lanes[me->source]);
    if (from == nullptr) {
      kvr_host_fail(me->self, "a shuffle reads a lane that its mask does not name", 0);
    }
    me->out = from->in;
  }
}

KVR_HOST_COLLECTIVE inline void Ballot(void* const* lanes) {
  u64 votes = 0;
  for (int i = 0; i < 32; ++i) {
    const Exchange* e = static_cast<const Exchange*>(lanes[i]);
    if (e != nullptr && e->in != 0) votes |= u64{1} << i;
  }
  for (int i = 0; i < 32; ++i) {
    if (lanes[i] != nullptr) static_cast<Exchange*>(lanes[i])->out = votes;
  }
}

KVR_HOST_COLLECTIVE inline void MatchAny(void* const* lanes) {
  for (int i = 0; i < 32; ++i) {
    Exchange* me = static_cast<Exchange*>(lanes[i]);
    if (me == nullptr) continue;
    me->out = 0;
    for (int j = 0; j < 32; ++j) {
      const Exchange* e = static_cast<const Exchange*>(lanes[j]);
      if (e != nullptr && e->in == me->in) me->out |= u64{1} << j;
    }
  }
}

template <class T, class Op>
KVR_HOST_COLLECTIVE void Reduce(void* const* lanes) {
  T value{};
  bool first = true;
  for (int i = 0; i < 32; ++i) {
    const Exchange* e = static_cast<const Exchange*>(lanes[i]);
    if (e == nullptr) continue;
    const T in = FromBits<T>(e->in);
    value = first ? in : Op::Apply(value, in);
    first = false;
  }
  for (int i = 0; i < 32; ++i) {
    if (lanes[i] != nullptr) static_cast<Exchange*>(lanes[i])->out = Bits<u64>(value);
  }
}

__forceinline__ u64 Collect(kvr_host_fn fn, unsigned mask, u64 in, unsigned source,
                            const char* name) {
  const kvr_host_lane* self = kvr_host_self();
  Exchange exchange{in, 0, self, source};
  kvr_host_collective(self, mask, fn, &exchange, name, kvr_host_site());
  return exchange.out;
}

struct Add {
  template <class T>
  static T Apply(T a, T b) {
    return a + b;
  }
};
struct Min {
  template <class T>
  static T Apply(T a, T b) {
    return b < a ? b : a;
  }
};
struct Max {
  template <class T>
  static T Apply(T a, T b) {
    return a < b ? b : a;
  }
};
struct And {
  template <class T>
  static T Apply(T a, T b) {
    return a & b;
  }
};
struct Or {
  template <class T>
  static T Apply(T a, T b) {
    return a | b;
  }
};
struct Xor {
  template <class T>
  static T Apply(T a, T b) {
    return a ^ b;
  }
};

}  // namespace kvr_host_detail

__forceinline__ void __syncwarp(unsigned mask = 0xffffffffu) {
  kvr_host_collective(kvr_host_self(), mask, &kvr_host_detail::Meet, nullptr, "__syncwarp",
                      kvr_host_site());
}
// Calls in two branches must not become one call after them.
[[clang::nomerge]] inline __attribute__((noinline, convergent)) unsigned __activemask() {
  return kvr_host_active_mask(kvr_host_self(), __builtin_return_address(0));
}
__forceinline__ unsigned __ballot_sync(unsigned mask, int predicate) {
  return static_cast<unsigned>(
      kvr_host_detail::Collect(&kvr_host_detail::Ballot, mask, predicate != 0, 0, "__ballot_sync"));
}
__forceinline__ int __any_sync(unsigned mask, int predicate) {
  return kvr_host_detail::Collect(&kvr_host_detail::Ballot, mask, predicate != 0, 0,
                                  "__any_sync") != 0;
}
__forceinline__ int __all_sync(unsigned mask, int predicate) {
  return kvr_host_detail::Collect(&kvr_host_detail::Ballot, mask, predicate == 0, 0,
                                  "__all_sync") == 0;
}
template <class T>
__forceinline__ unsigned __match_any_sync(unsigned mask, T value) {
  return static_cast<unsigned>(kvr_host_detail::Collect(
      &kvr_host_detail::MatchAny, mask, kvr_host_detail::Bits<kvr_host_detail::u64>(value), 0,
      "__match_any_sync"));
}
template <class T>
__forceinline__ unsigned __match_all_sync(unsigned mask, T value, int* all) {
  const unsigned same = __match_any_sync(mask, value);
  *all = __all_sync(mask, same == mask);
  return *all ? mask : 0;
}

namespace kvr_host_detail {
template <class T>
__forceinline__ T ShuffleFrom(unsigned mask, T value, int source, const char* name) {
  static_assert(sizeof(T) <= 8, "shuffles move 4 or 8 bytes");
  return FromBits<T>(
      Collect(&Shuffle, mask, Bits<u64>(value), static_cast<unsigned>(source), name));
}
}  // namespace kvr_host_detail

// `width`: a power of two up to 32; lanes outside the segment give a lane its own value.
template <class T>
__forceinline__ T __shfl_sync(unsigned mask, T value, int source, int width = 32) {
  const int lane = static_cast<int>(kvr_host_detail::LaneId());
  return kvr_host_detail::ShuffleFrom(mask, value, (lane & ~(width - 1)) | (source & (width - 1)),
                                      "__shfl_sync");
}
template <class T>
__forceinline__ T __shfl_up_sync(unsigned mask, T value, unsigned delta, int width = 32) {
  const int lane = static_cast<int>(kvr_host_detail::LaneId());
  const int source = lane - static_cast<int>(delta);
  return kvr_host_detail::ShuffleFrom(mask, value, source < (lane & ~(width - 1)) ? lane : source,
                                      "__shfl_up_sync");
}
template <class T>
__forceinline__ T __shfl_down_sync(unsigned mask, T value, unsigned delta, int width = 32) {
  const int lane = static_cast<int>(kvr_host_detail::LaneId());
  const int source = lane + static_cast<int>(delta);
  return kvr_host_detail::ShuffleFrom(mask, value, source > (lane | (width - 1)) ? lane : source,
                                      "__shfl_down_sync");
}
template <class T>
__forceinline__ T __shfl_xor_sync(unsigned mask, T value, int lane_mask, int width = 32) {
  const int lane = static_cast<int>(kvr_host_detail::LaneId());
  const int source = lane ^ lane_mask;
  return kvr_host_detail::ShuffleFrom(mask, value, source > (lane | (width - 1)) ? lane : source,
                                      "__shfl_xor_sync");
}

#define KVR_HOST_REDUCE_(name, type, op)                                                        \
  __forceinline__ type name(unsigned mask, type value) {                                        \
    namespace detail = kvr_host_detail;                                                         \
    return detail::FromBits<type>(detail::Collect(&detail::Reduce<type, detail::op>, mask,      \
                                                  detail::Bits<detail::u64>(value), 0, #name)); \
  }
KVR_HOST_REDUCE_(__reduce_add_sync, unsigned, Add)
KVR_HOST_REDUCE_(__reduce_add_sync, int, Add)
KVR_HOST_REDUCE_(__reduce_min_sync, unsigned, Min)
KVR_HOST_REDUCE_(__reduce_min_sync, int, Min)
KVR_HOST_REDUCE_(__reduce_max_sync, unsigned, Max)
KVR_HOST_REDUCE_(__reduce_max_sync, int, Max)
KVR_HOST_REDUCE_(__reduce_and_sync, unsigned, And)
KVR_HOST_REDUCE_(__reduce_or_sync, unsigned, Or)
KVR_HOST_REDUCE_(__reduce_xor_sync, unsigned, Xor)
#undef KVR_HOST_REDUCE_
