// SPDX-License-Identifier: Apache-2.0
#include "jit/jit.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <new>
#include <thread>
#include <unordered_map>

#include "core/fair_lock.h"
#include "core/status.h"
#include "jit/includes.h"
#include "jit/prebuilt.h"
#include "jit/sdk.h"
#include "jit/template.h"

namespace kvr {
namespace {

// Enters every key: raise it when the rendered text or an entry's meaning changes in a way that the
// other fields do not show.
constexpr std::string_view kSchema = "kvr-jit-1";

// One key being built, by the thread that came first.
struct Flight {
  std::mutex mutex;
  std::condition_variable landed_changed;
  bool landed = false;
  absl::Status status;
  BinaryPtr binary;
  bool compiled = false;
};

struct KeyHash {
  size_t operator()(const Fingerprint& f) const {
    size_t h;
    __builtin_memcpy(&h, f.bytes.data(), sizeof h);
    return h;
  }
};

struct Backend {
  explicit Backend(std::unique_ptr<Compiler> c)
      : compiler(std::move(c)), headers(compiler->header_roots()) {}
  std::unique_ptr<Compiler> compiler;
  HeaderIndex headers;
  std::mutex serial;  // held through Compile where the compiler is not concurrent
};

struct Prepared {
  Unit rendered;               // includes not resolved
  Unit unit;                   // whole; empty without a backend
  Backend* backend = nullptr;  // null: nothing here compiles this, a layer has it
  Fingerprint key;
};

std::vector<HeaderRoot> OwnHeaders() {
  const absl::StatusOr<std::string> sdk = FindSdkDir();
  return sdk.ok() ? std::vector<HeaderRoot>{{*sdk, {}}} : std::vector<HeaderRoot>{};
}

// What a failure says in front: the unit's text names no variant, so it is added for each caller.
absl::Status InContext(const Variant& variant, const Config& config, std::string_view target,
                       const absl::Status& status) {
  std::string context = variant.op + "/" + variant.name + " {" +
                        ConfigText(CompileScope(config, variant.tunables)) + "} for ";
  context += target;
  return WithContext(context, status);
}

absl::StatusOr<Built> BuildPrebuilt(const Variant& variant, const Config& config,
                                    std::string_view target) {
  absl::StatusOr<BinaryPtr> binary = PrebuiltFor(variant, target);
  if (!binary.ok()) return InContext(variant, config, target, binary.status());
  return Built{*std::move(binary), /*cache_hit=*/true, 0};
}

}  // namespace

struct Jit::State {
  explicit State(int max_compiles) : places(max_compiles) {}

  std::vector<std::unique_ptr<Backend>> backends;
  std::unique_ptr<BinaryCache> own_cache;  // where the caller gave none
  BinaryCache* cache = nullptr;
  HeaderIndex own_headers{OwnHeaders()};
  FairLock places;  // of those that compile

  std::mutex mutex;  // never held through a compile
  std::unordered_map<Fingerprint, std::shared_ptr<Flight>, KeyHash> flights;
  std::unordered_map<Fingerprint, absl::Status, KeyHash> failures;
  Stats stats;

  absl::StatusOr<Backend*> BackendFor(std::string_view target) const;
  absl::StatusOr<Prepared> Prepare(const OpSpec& op, const Variant& variant, const Config& config,
                                   std::string_view target);
  Fingerprint Source(Unit rendered);
  absl::StatusOr<CompiledUnit> Compile(const Prepared& prepared, std::string_view target);
  void Fly(const Prepared& prepared, std::string_view target, Flight* flight);
};

absl::StatusOr<Backend*> Jit::State::BackendFor(std::string_view target) const {
  std::string reasons;
  for (const auto& backend : backends) {
    std::string reason;
    if (backend->compiler->Supports(target, &reason)) return backend.get();
    if (!reason.empty()) reasons += (reasons.empty() ? "" : "; ") + reason;
  }
  if (reasons.empty()) reasons = "there is no compiler";
  return Error(absl::StatusCode::kUnimplemented,
               "nothing here compiles for " + std::string(target) + ": " + reasons,
               "install CUDA's NVRTC for sm_ targets, KVR's host module for \"host\", or set "
               "KVR_CACHE_LAYERS to a layer that `kvr cache export` made for it");
}

absl::StatusOr<Prepared> Jit::State::Prepare(const OpSpec& op, const Variant& variant,
                                             const Config& config, std::string_view target) {
  std::string reason;
  if (!variant.Supports(target, &reason)) {
    return Error(absl::StatusCode::kUnimplemented, reason, "choose a target that it supports");
  }
  Prepared prepared;
  const absl::StatusOr<Backend*> backend = BackendFor(target);
  KVR_ASSIGN_OR_RETURN(prepared.rendered, RenderUnit(op, variant, config));
  if (!backend.ok()) {
    const std::optional<Fingerprint> key = cache->FindSource(Source(prepared.rendered), target);
    if (!key.has_value()) return backend.status();
    prepared.key = *key;
    return prepared;
  }
  prepared.backend = *backend;
  prepared.unit = prepared.rendered;
  prepared.backend->headers.Resolve(&prepared.unit);
  const Fingerprint& unit = prepared.unit.fingerprint;
  prepared.key = Hasher()
                     .Field("schema", kSchema)
                     .Field("compiler", prepared.backend->compiler->identity())
                     .Field("target", target)
                     .Field("options", prepared.backend->compiler->Options(target))
                     .Field("unit", unit)
                     .Finish();
  return prepared;
}

// What names a binary where no compiler is: two toolkits give one source two binaries.
Fingerprint Jit::State::Source(Unit rendered) {
  own_headers.Resolve(&rendered);
  const Fingerprint& unit = rendered.fingerprint;
  return Hasher().Field("schema", kSchema).Field("unit", unit).Finish();
}

absl::StatusOr<CompiledUnit> Jit::State::Compile(const Prepared& prepared,
                                                 std::string_view target) {
  Compiler& compiler = *prepared.backend->compiler;
  std::unique_lock<std::mutex> serial(prepared.backend->serial, std::defer_lock);
  if (!compiler.concurrent()) serial.lock();
  // The last thing to wait for: whoever has a place compiles and waits for nobody.
  const std::lock_guard<FairLock> place(places);
  absl::StatusOr<CompiledUnit> compiled = compiler.Compile(prepared.unit, target);
  if (!compiled.ok()) return compiled;
  const size_t kernels = compiled->kernels.size(), wanted = prepared.unit.entries.size();
  if (compiled->bytes.empty() || kernels != wanted) {
    return Error(absl::StatusCode::kInternal,
                 compiler.identity() + " reported success but gave " +
                     std::to_string(compiled->bytes.size()) + " bytes and " +
                     std::to_string(kernels) + " of " + std::to_string(wanted) + " kernels",
                 "use another release of the compiler");
  }
  return compiled;
}

// Fills the flight's outcome: from the cache, else from the compiler.
void Jit::State::Fly(const Prepared& prepared, std::string_view target, Flight* flight) {
  flight->binary = cache->Get(prepared.key);
  if (prepared.backend == nullptr) {
    const bool right = flight->binary != nullptr && flight->binary->target == target &&
                       flight->binary->source == Source(prepared.rendered);
    if (right) return;
    flight->binary = nullptr;
    flight->status = Error(absl::StatusCode::kDataLoss,
                           "nothing here compiles for " + std::string(target) +
                               ", and the cache layer that lists this binary does not have it (" +
                               prepared.key.Short() + ")",
                           "`kvr cache verify` says what is wrong; export the layer anew");
    return;
  }
  if (flight->binary != nullptr) return;
  const std::unique_ptr<KeyLock> lock = cache->Claim(prepared.key, &flight->binary);
  if (flight->binary != nullptr) return;
  flight->compiled = true;
  absl::StatusOr<CompiledUnit> compiled = Compile(prepared, target);
  if (!compiled.ok()) {
    flight->status = compiled.status();
    return;
  }
  auto binary = std::make_shared<Binary>();
  binary->key = prepared.key;
  binary->source = Source(prepared.rendered);
  binary->content = FingerprintOf(compiled->bytes);
  binary->target = std::string(target);
  binary->compiler = prepared.backend->compiler->identity();
  binary->bytes = std::move(compiled->bytes);
  binary->kernels = std::move(compiled->kernels);
  cache->Put(binary, prepared.unit.name);
  flight->binary = std::move(binary);
}

Jit::Jit(std::vector<std::unique_ptr<Compiler>> compilers, BinaryCache* cache, int max_compiles)
    : state_(std::make_unique<State>(
          max_compiles > 0 ? max_compiles
                           : static_cast<int>(std::max(1u, std::thread::hardware_concurrency())))) {
  for (auto& compiler : compilers)
    state_->backends.push_back(std::make_unique<Backend>(std::move(compiler)));
  if (cache == nullptr) {
    state_->own_cache = std::make_unique<BinaryCache>("");
    cache = state_->own_cache.get();
  }
  state_->cache = cache;
}

Jit::~Jit() = default;

bool Jit::CanCompile(std::string_view target, std::string* reason) const {
  absl::StatusOr<Backend*> backend = state_->BackendFor(target);
  if (!backend.ok() && reason != nullptr) *reason = std::string(What(backend.status()));
  return backend.ok();
}

bool Jit::LayersHave(std::string_view target) const { return state_->cache->ListsTarget(target); }

std::vector<std::string> Jit::targets() const {
  std::vector<std::string> all;
  for (const auto& backend : state_->backends)
    for (std::string& target : backend->compiler->targets())
      if (std::find(all.begin(), all.end(), target) == all.end()) all.push_back(std::move(target));
  return all;
}

std::string Jit::Identity(std::string_view target) const {
  absl::StatusOr<Backend*> backend = state_->BackendFor(target);
  return backend.ok() ? (*backend)->compiler->identity() : "";
}

absl::StatusOr<Fingerprint> Jit::Key(const OpSpec& op, const Variant& variant, const Config& config,
                                     std::string_view target) {
  if (!variant.is_compiled()) {
    KVR_ASSIGN_OR_RETURN(const Built built, BuildPrebuilt(variant, config, target));
    return built.binary->key;
  }
  absl::StatusOr<Prepared> prepared = state_->Prepare(op, variant, config, target);
  if (!prepared.ok()) return InContext(variant, config, target, prepared.status());
  return prepared->key;
}

absl::StatusOr<Built> Jit::Build(const OpSpec& op, const Variant& variant, const Config& config,
                                 std::string_view target) {
  if (!variant.is_compiled()) return BuildPrebuilt(variant, config, target);
  const auto begin = std::chrono::steady_clock::now();
  absl::StatusOr<Prepared> prepared = state_->Prepare(op, variant, config, target);
  if (!prepared.ok()) return InContext(variant, config, target, prepared.status());
  const Fingerprint& key = prepared->key;

  std::shared_ptr<Flight> flight;
  bool leader = false;
  {
    std::lock_guard<std::mutex> lock(state_->mutex);
    ++state_->stats.builds;
    if (auto failed = state_->failures.find(key); failed != state_->failures.end())
      return InContext(variant, config, target, failed->second);
    std::shared_ptr<Flight>& slot = state_->flights[key];
    leader = slot == nullptr;
    if (leader) slot = std::make_shared<Flight>();
    flight = slot;
    state_->stats.joined += !leader;
  }
  if (leader) {
    // Whatever happens, the threads that wait for this flight must be told.
    const auto thrown = [&](absl::StatusCode code, const std::string& what, std::string_view fix) {
      flight->binary = nullptr;
      flight->status = Error(code, "the compiler or the cache threw: " + what, fix);
    };
    constexpr std::string_view kReport = "report this with the variant's bundle";
    try {
      state_->Fly(*prepared, target, flight.get());
    } catch (const std::bad_alloc& e) {
      thrown(absl::StatusCode::kResourceExhausted, e.what(), "free memory, then try again");
    } catch (const std::exception& e) {
      thrown(absl::StatusCode::kInternal, e.what(), kReport);
    } catch (...) {
      thrown(absl::StatusCode::kInternal, "something that is no std::exception", kReport);
    }
    {
      // The flight leaves the map only now that the cache, or the failure, answers for it: whoever
      // comes next finds one of them.
      std::lock_guard<std::mutex> lock(state_->mutex);
      state_->stats.compiles += flight->compiled;
      if (!flight->status.ok()) {
        ++state_->stats.failures;
        if (!absl::IsResourceExhausted(flight->status)) {
          state_->failures.emplace(key, flight->status);
        }
      }
      state_->flights.erase(key);
    }
    std::lock_guard<std::mutex> lock(flight->mutex);
    flight->landed = true;
    flight->landed_changed.notify_all();
  } else {
    std::unique_lock<std::mutex> lock(flight->mutex);
    flight->landed_changed.wait(lock, [&] { return flight->landed; });
  }
  if (!flight->status.ok()) return InContext(variant, config, target, flight->status);
  const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - begin;
  return Built{flight->binary, !flight->compiled, took.count()};
}

BinaryPtr Jit::Lookup(const Fingerprint& key) { return state_->cache->Get(key); }

void Jit::Reload() {
  for (const auto& backend : state_->backends) backend->headers.Revalidate();
  state_->own_headers.Revalidate();
  std::lock_guard<std::mutex> lock(state_->mutex);
  state_->failures.clear();
}

Jit::Stats Jit::stats() const {
  std::lock_guard<std::mutex> lock(state_->mutex);
  return state_->stats;
}

}  // namespace kvr
