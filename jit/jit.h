// SPDX-License-Identifier: Apache-2.0
//
// (variant, config, target) → binary. Renders the unit, resolves its includes, computes the key,
// and takes the binary from the cache or compiles it.
//
// Key = schema, compiler identity, exact target, options, the rendered unit, and name and content
// of every header it may include. No paths, no times: moving the tree or the cache keeps hits,
// changing any included header misses.
//
// Source = the rendered unit, its bundle's files and KVR's own device headers; no compiler, no
// toolkit. Where nothing compiles for a target, it finds the binary that a prebuilt layer lists for
// it (jit/cache_layer.h), so a machine without a compiler builds what the layer's maker built.
//
// Threading: all functions may be called concurrently. One compile per key across threads: others
// wait for it and share its outcome; across processes too where the cache's lock can be had. A
// failure reaches every waiter and is remembered, so asking again fails at once with the same
// message, until Reload; but not that memory ran out (kResourceExhausted). Of all callers together
// so many compilers run at a time as there are processors, in the order in which they were asked;
// who waits for another's compile holds none of these places.
// Capture safety: Build is illegal while a stream captures; callers ask the device first.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/binary.h"
#include "core/config.h"
#include "core/op.h"
#include "core/variant.h"
#include "jit/cache.h"
#include "jit/compiler.h"

namespace kvr {

struct Built {
  BinaryPtr binary;
  bool cache_hit = false;   // no compiler ran for this call or the one it waited for
  double milliseconds = 0;  // of this call, waiting included
};

class Jit {
 public:
  // The first compiler that supports a target compiles for it. `cache` may be null: binaries then
  // live as long as the Jit. It must outlive the Jit. `max_compiles` at a time; 0: the processors.
  Jit(std::vector<std::unique_ptr<Compiler>> compilers, BinaryCache* cache, int max_compiles = 0);
  ~Jit();
  Jit(const Jit&) = delete;
  Jit& operator=(const Jit&) = delete;

  // Why not, from every compiler asked.
  bool CanCompile(std::string_view target, std::string* reason = nullptr) const;
  // A prebuilt layer lists binaries for it: some builds need no compiler.
  bool LayersHave(std::string_view target) const;
  std::vector<std::string> targets() const;
  std::string Identity(std::string_view target) const;  // of the compiler for it; empty: none

  // `config`: at least the tunables that enter the source. Errors: kUnimplemented where the variant
  // or every compiler refuses the target; kInvalidArgument for a fault in the variant's files, at
  // its file and line; each names variant, config and target. A variant that is not compiled gives
  // the binary it brings (jit/prebuilt.h), which is not stored.
  absl::StatusOr<Built> Build(const OpSpec& op, const Variant& variant, const Config& config,
                              std::string_view target);

  // The key Build would use. Compiles nothing.
  absl::StatusOr<Fingerprint> Key(const OpSpec& op, const Variant& variant, const Config& config,
                                  std::string_view target);

  // The cache's entry for a known key (selection files name binaries by key). Null: a miss.
  BinaryPtr Lookup(const Fingerprint& key);

  // Reads changed headers anew and forgets failures.
  void Reload();

  struct Stats {
    int64_t builds = 0, compiles = 0, failures = 0, joined = 0;  // joined: waited for another's
  };
  Stats stats() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace kvr
