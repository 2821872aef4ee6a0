// SPDX-License-Identifier: Apache-2.0
//
// kvr bench decode: tokens a second of a synthetic stack of decode layers, a line for each
// concurrency; with --ab, whether one selection of kernels is faster there than another. The exit
// code is then the verdict.
#include <algorithm>
#include <cmath>

#include "absl/strings/str_format.h"
#include "api/decode/bench.h"
#include "cli/live_verdict.h"
#include "cli/progress_bar.h"
#include "cli/samples.h"
#include "cli/selections.h"
#include "cli/table.h"
#include "cli/work.h"
#include "core/names.h"
#include "core/status.h"
#include "core/strings.h"
#include "core/throttle.h"

namespace kvr::cli {
namespace {

constexpr char kSynthetic[] =
    "synthetic: kernels and launch path only, no model, sampling or network";

struct DecodeOptions : OpOptions {
  std::string shape, selections, concurrency;
  std::vector<std::string> ab;
  DecodeBenchOptions bench;
  DecodeAbOptions rules;
  double band = 0;  // percent
  int sessions = 0;
};

// A request of a run that was interrupted may have ended, or none.
bool HasLatency(const DecodeRun& run) { return run.p50_latency_s > 0; }

Json RunJson(int side, const DecodeRun& run) {
  return {{"side", side == 0 ? "a" : "b"},
          {"concurrency", run.concurrency},
          {"requests", run.requests},
          {"max_tokens", run.max_tokens},
          {"tokens_per_s", NumberJson(run.tokens_per_s)},
          {"per_request", HasLatency(run) ? NumberJson(run.per_request) : Json()},
          {"p50_latency_s", HasLatency(run) ? Json(run.p50_latency_s) : Json()},
          {"p99_latency_s", HasLatency(run) ? Json(run.p99_latency_s) : Json()},
          {"tokens", run.tokens},
          {"errors", run.errors},
          {"what", run.what},
          {"wall_s", run.wall_s},
          {"steps", run.steps},
          {"p50_step_us", run.p50_step_us > 0 ? Json(run.p50_step_us) : Json()},
          {"active_experts", run.checked_steps > 0 ? Json(run.active_experts) : Json()},
          {"checked_steps", run.checked_steps},
          {"cancelled", run.cancelled}};
}

Json SideJson(const DecodeContestant& contestant, const DecodeSide& side) {
  Json served = Json::array(), dropped = Json::array();
  for (const DecodeServed& one : side.served()) {
    served.push_back({{"op", one.op},
                      {"variant", one.variant},
                      {"config", ConfigJson(one.config)},
                      {"why", one.why},
                      {"num_tokens", one.buckets}});
  }
  for (const DroppedSelection& drop : side.dropped()) {
    dropped.push_back({{"op", drop.op},
                       {"variant", drop.variant},
                       {"key", AxesJson(drop.key)},
                       {"reason", drop.reason}});
  }
  return {{"selections", contestant.selection_file},
          {"digest", side.digest()},
          {"parts", contestant.parts},
          {"changes", contestant.changes},
          {"served", std::move(served)},
          {"dropped", std::move(dropped)}};
}

Json ComparisonJson(const DecodeComparison& comparison, bool ship) {
  return {
      {"kind", ship ? "ship" : "quick"},
      {"block", comparison.block},
      {"seed", comparison.seed},
      {"concurrencies", LiveBucketsJson(comparison.verdict)},
      {"verdict", LiveAnswer(comparison.verdict)},
      {"ship", comparison.verdict.ship},
      {"reason", comparison.verdict.reason},
      {"what", comparison.what},
      {"conclusion", LiveConclusion(comparison.verdict, ship)},
      {"rounds", comparison.verdict.rounds},
      {"errors", comparison.verdict.errors},
      {"throttled", comparison.throttle_bits != 0 ? ThrottleText(comparison.throttle_bits) : ""},
      {"seconds", comparison.seconds},
      {"cancelled", comparison.cancelled}};
}

Json HeaderJson(const DecodeBench& bench, const DecodeBenchOptions& options) {
  return {{"synthetic", kSynthetic},
          {"device", DeviceJson(bench.device())},
          {"shape",
           {{"name", options.shape.name},
            {"layers", options.layers},
            {"input_sets", options.input_sets},
            {"context", options.shape.context},
            {kDecodeAttention, AxesJson(options.shape.attention)},
            {kDecodeMoe, AxesJson(options.shape.moe)}}},
          {"sides", Json::array()}};
}

// What results of `served` depend on; none of what is exact.
std::optional<ApproximateOptIn> Approximate(const Catalog& catalog, const DecodeServed& served) {
  const absl::StatusOr<VariantPtr> variant = catalog.Find(served.op, served.variant);
  if (!variant.ok() || (*variant)->semantics == Semantics::kExact) return std::nullopt;
  return OptInFor(**variant, served.config);
}

// "B's results are approximate: `kvr verify ...` says how far off", for each such variant.
std::vector<std::string> ApproximateRemarks(const GlobalOptions& global, const Catalog& catalog,
                                            const DecodeBench& bench,
                                            const DecodeBenchOptions& options, int side) {
  std::vector<std::string> remarks;
  for (const DecodeServed& one : bench.side(side).served()) {
    const std::optional<ApproximateOptIn> approximate = Approximate(catalog, one);
    if (!approximate) continue;
    std::string command = "kvr verify";
    for (const std::string& root : global.plugins) StrAppend(&command, " --plugins ", root);
    StrAppend(&command, " ", one.op, " --variant ", one.variant);
    for (const auto& [name, value] : one.config) {
      StrAppend(&command, " --set ", name, "=", value);
    }
    StrAppend(&command, " --axes ",
              AxesText(bench.stack().AxesOf(
                  one.op, *std::max_element(one.buckets.begin(), one.buckets.end()))),
              " --device ", options.device);
    remarks.push_back(StrCat(side == 0 ? "A" : "B", "'s results are approximate (",
                             OptInText(*approximate), "): `", command, "` says how far off"));
  }
  return remarks;
}

void PrintSide(const Catalog& catalog, const DecodeBench& bench, const DecodeBenchOptions& options,
               int index) {
  const DecodeSide& side = bench.side(index);
  const DecodeContestant& contestant = index == 0 ? options.a : *options.b;
  const std::string digest = side.digest();
  Print(StrCat(bench.sides() == 1 ? ""
               : index == 0       ? "A: "
                                  : "B: ",
               contestant.selection_file.empty() ? "no selection file"
               : digest.empty()                  ? StrCat(contestant.selection_file, ": empty")
                                : StrCat(contestant.selection_file, ", digest ", digest),
               "\n"));
  for (const DecodeServed& one : side.served()) {
    const std::optional<ApproximateOptIn> approximate = Approximate(catalog, one);
    const std::string values =
        approximate ? StrCat("approximate, ", OptInText(*approximate)) : std::string("");
    Print(Wrap(StrCat(one.op, " at num_tokens=", StrJoin(one.buckets, ","), ": ", one.variant, " ",
                      ShortConfig(catalog, one.op, one.variant, one.config), ", ", one.why,
                      values.empty() ? "" : "; ", values),
               TerminalWidth(), 2));
  }
  for (const DroppedSelection& drop : side.dropped()) {
    Print(Wrap(StrCat("dropped: the selection of ", drop.variant, " for ", AxesText(drop.key), ": ",
                      drop.reason),
               TerminalWidth(), 2));
  }
}

void PrintHeader(const DecodeBench& bench, const DecodeBenchOptions& options) {
  const DeviceInfo& device = bench.device();
  Print(Wrap(StrCat("kvr bench decode, ", kSynthetic), TerminalWidth(), 0));
  Print(Wrap(
      StrCat(device.name, ", driver ", device.driver, "; ", options.shape.name, ": ",
             options.shape.description, "; ", Count(static_cast<size_t>(options.layers), "layer"),
             ", ", Count(static_cast<size_t>(options.input_sets), "input set")),
      TerminalWidth(), 0));
  for (const char* op : {kDecodeAttention, kDecodeMoe}) {
    Print(
        Wrap(StrCat(op, " ", AxesText(options.shape.of(op)), ": ", Bytes(bench.stack().BytesOf(op)),
                    op == kDecodeMoe ? " of weights a layer" : " of cache a layer"),
             TerminalWidth(), 2));
  }
  if (options.device == "auto" && device.kind == "host") {
    Print("no GPU answers (`kvr doctor` says why), so this runs on the host\n");
  }
  Print(HostRemark(device));
  std::fflush(stdout);
}

void PrintRun(const DecodeBenchOptions& options, int side, const DecodeRun& run) {
  const char* const label = !options.b ? "" : side == 0 ? "A: " : "B: ";
  const auto of_requests = [&](int digits, double value, const char* unit) {
    return HasLatency(run) ? absl::StrFormat("%.*f%s", digits, value, unit) : "-";
  };
  Print(
      absl::StrFormat("%sC=%d n=%d max_tokens=%d | agg=%.1f tok/s | per-req~%s | "
                      "p50 lat=%s | p99 %s | toks=%d errs=%d wall=%.2fs%s\n",
                      label, run.concurrency, run.requests, run.max_tokens, run.tokens_per_s,
                      of_requests(1, run.per_request, ""), of_requests(3, run.p50_latency_s, "s"),
                      of_requests(3, run.p99_latency_s, "s"), run.tokens, run.errors, run.wall_s,
                      run.cancelled ? " | interrupted" : ""));
  if (run.checked_steps == 0) {
    std::fflush(stdout);
    return;
  }
  Print(
      Wrap(absl::StrFormat("%.1f of %d experts active on average, a step %s; %s checked: %s",
                           run.active_experts, options.shape.moe.at("num_experts"),
                           Microseconds(run.p50_step_us),
                           Count(static_cast<size_t>(run.checked_steps), "step"),
                           run.errors == 0 ? "finite, and the same in a second replay" : run.what),
           TerminalWidth(), 2));
  std::fflush(stdout);
}

void PrintComparison(const DecodeComparison& comparison, bool ship,
                     const std::vector<std::string>& remarks) {
  const LiveVerdict& verdict = comparison.verdict;
  PrintLiveBuckets(verdict, ship, "C");
  Print(Wrap(absl::StrFormat("times of steps at a full batch; %s of four blocks of %d steps, %s; "
                             "%d steps of A and %d of B count, %d errors; %.1f s",
                             Count(static_cast<size_t>(verdict.rounds), "round"), comparison.block,
                             ship ? "each session with fresh loads of both" : "one load of each",
                             verdict.steps[0], verdict.steps[1],
                             verdict.errors[0] + verdict.errors[1], comparison.seconds),
             TerminalWidth(), 0));
  if (!comparison.what.empty()) Print(Wrap(comparison.what, TerminalWidth(), 0));
  if (comparison.throttle_bits != 0) {
    Print(StrCat("throttled meanwhile: ", ThrottleText(comparison.throttle_bits), "\n"));
  }
  Print("\n");
  for (const std::string& remark : remarks) Print(StrCat(remark, "\n"));  // commands to copy
  std::string conclusion = LiveConclusion(verdict, ship);
  constexpr std::string_view kBucket = "every bucket";
  if (const size_t at = conclusion.find(kBucket); at != std::string::npos) {
    conclusion.replace(at, kBucket.size(), "every concurrency");
  }
  Print(Wrap(StrCat("B against A: ", conclusion), TerminalWidth(), 0));
}

absl::StatusOr<std::vector<int64_t>> ParseConcurrency(const std::string& text) {
  std::vector<int64_t> numbers;
  for (size_t at = 0; at <= text.size();) {
    const size_t comma = std::min(text.find(',', at), text.size());
    const absl::StatusOr<int64_t> number =
        ParseInteger(text.substr(at, comma - at), /*negative=*/false);
    if (!number.ok()) {
      return Error(absl::StatusCode::kInvalidArgument,
                   StrCat("--concurrency ", Quoted(text), ": ",
                          comma == at ? "there is nothing between two commas, or at an end"
                                      : What(number.status())),
                   "as in 48,64");
    }
    numbers.push_back(*number);
    at = comma + 1;
  }
  return numbers;
}

// Parts of B, over those of A.
absl::Status FillB(const std::vector<std::string>& ab, DecodeBenchOptions* bench) {
  if (ab.empty()) return absl::OkStatus();
  bench->b = bench->a;
  std::string file;
  for (const std::string& part : ab) {
    if (part == "same") {
      if (ab.size() == 1) return absl::OkStatus();
      return Error(absl::StatusCode::kInvalidArgument,
                   "--ab same says that B is A, and another --ab that it is not",
                   "leave one of them out");
    }
    KVR_RETURN_IF_ERROR(AddChange(part, &*bench->b));
    if (NamesOp(part)) continue;
    if (!file.empty()) {
      return Error(absl::StatusCode::kInvalidArgument,
                   StrCat("--ab: the selection file of B is said twice: ", file, " and ", part),
                   "say it once");
    }
    file = part;
  }
  return absl::OkStatus();
}

// The same variants with the same values, at every batch size.
bool NothingDiffers(const DecodeBench& bench) {
  const auto of = [&](int side) {
    std::map<std::pair<std::string, int64_t>, std::pair<std::string, Config>> serves;
    for (const DecodeServed& one : bench.side(side).served()) {
      for (const int64_t bucket : one.buckets) {
        serves[{one.op, bucket}] = {one.variant, one.config};
      }
    }
    return serves;
  };
  return of(0) == of(1);
}

absl::Status FillOptions(DecodeOptions* options) {
  DecodeBenchOptions& bench = options->bench;
  bench.device = options->device;
  KVR_ASSIGN_OR_RETURN(bench.shape, FindDecodeShape(options->shape));
  for (const std::string& text : options->axes) {
    KVR_RETURN_IF_ERROR(ChangeDecodeAxes(text, &bench.shape));
  }
  bench.a.selection_file = options->selections;
  KVR_ASSIGN_OR_RETURN(bench.a.approximate, OptIns(*options));
  if (!options->concurrency.empty()) {
    KVR_ASSIGN_OR_RETURN(bench.concurrency, ParseConcurrency(options->concurrency));
  }
  for (const bool variant : {true, false}) {
    for (const std::string& part : variant ? options->variants : options->pins) {
      const size_t brace = part.find('{'), equals = part.find('=');
      if (!NamesOp(part) || variant == (equals < brace)) {
        return Error(
            absl::StatusCode::kInvalidArgument,
            StrCat(variant ? "--variant " : "--set ", Quoted(part), " is no ",
                   variant ? "variant" : "value of a tunable", " of an operation of the stack"),
            variant ? "as in mla_sparse_decode/w8{TARGET_CTAS=512}" : "as in moe_decode/DEPTH=128");
      }
      bench.a.parts.push_back(part);
    }
  }
  KVR_RETURN_IF_ERROR(FillB(options->ab, &bench));
  if (options->sessions > 0) {
    if (!options->rules.rules.ship) {
      return Error(absl::StatusCode::kInvalidArgument,
                   "--sessions is given, but a quick verdict has one session",
                   "add --ship, or leave --sessions out");
    }
    options->rules.rules.sessions = options->sessions;
  }
  if (options->band > 0) options->rules.rules.band = std::log1p(options->band / 100);
  return absl::OkStatus();
}

absl::StatusOr<int> RunDecode(const GlobalOptions& global, DecodeOptions options) {
  KVR_RETURN_IF_ERROR(FillOptions(&options));
  DecodeBenchOptions& bench_options = options.bench;
  bench_options.cancel = CancelOnInterrupt();
  ProgressBar progress(global.json);
  bench_options.progress = &progress;
  KVR_ASSIGN_OR_RETURN(std::unique_ptr<Platform> platform, OpenPlatform(global));
  KVR_ASSIGN_OR_RETURN(std::unique_ptr<DecodeBench> bench,
                       DecodeBench::Open(*platform, bench_options));
  Json json = HeaderJson(*bench, bench_options);
  if (!global.json) PrintHeader(*bench, bench_options);
  if (const absl::Status loaded = bench->Load(); !loaded.ok()) {
    if (absl::IsCancelled(loaded)) return Interrupted();
    return loaded;
  }
  progress.Wipe();
  for (int side = 0; side < bench->sides(); ++side) {
    json["sides"].push_back(
        SideJson(side == 0 ? bench_options.a : *bench_options.b, bench->side(side)));
    if (!global.json) PrintSide(platform->catalog(), *bench, bench_options, side);
  }
  if (!global.json) Print("\n");
  std::fflush(stdout);
  if (bench_options.b && options.ab.front() != "same" && NothingDiffers(*bench)) {
    return Error(absl::StatusCode::kInvalidArgument, "B is A: nothing differs",
                 "give another --ab, or --ab same to see what no difference looks like");
  }
  if (const absl::Status filled = bench->Fill(); !filled.ok()) {
    if (absl::IsCancelled(filled)) return Interrupted();
    return filled;
  }

  bool failed = false, cancelled = false;
  json["runs"] = Json::array();
  for (const int64_t concurrency : bench_options.concurrency) {
    for (int side = 0; side < bench->sides() && !cancelled; ++side) {
      KVR_ASSIGN_OR_RETURN(const DecodeRun run, bench->Run(side, concurrency));
      progress.Wipe();
      failed |= run.errors > 0;
      cancelled |= run.cancelled || bench_options.cancel->load();
      if (run.steps == 0) continue;  // it did nothing that could be told
      json["runs"].push_back(RunJson(side, run));
      if (!global.json) PrintRun(bench_options, side, run);
    }
  }
  int code = ExitCode(global, platform->catalog(), failed);
  if (bench_options.b && !cancelled) {
    const bool ship = options.rules.rules.ship;
    const absl::StatusOr<DecodeComparison> compared = bench->Compare(options.rules);
    if (absl::IsCancelled(compared.status())) return Interrupted();
    KVR_RETURN_IF_ERROR(compared.status());
    const DecodeComparison& comparison = *compared;
    progress.Wipe();
    cancelled = comparison.cancelled;
    std::vector<std::string> remarks;
    for (int side = 0; side < 2; ++side) {
      for (std::string& remark :
           ApproximateRemarks(global, platform->catalog(), *bench, bench_options, side)) {
        remarks.push_back(std::move(remark));
      }
    }
    if (!cancelled || comparison.verdict.rounds > 0) {
      json["ab"] = ComparisonJson(comparison, ship);
      json["ab"]["approximate"] = remarks;
      if (!global.json) PrintComparison(comparison, ship, remarks);
    }
    if (code == kDone) code = CodeOf(comparison.verdict.verdict);
  }
  if (global.json) PrintJson(json);
  return cancelled ? Interrupted() : code;
}

void AddDecode(CLI::App& group, Commands& commands) {
  auto options = std::make_shared<DecodeOptions>();
  CLI::App* sub = Subcommand(
      group, "decode",
      "Tokens a second of a synthetic stack of decode layers (attention and experts), a line for "
      "each concurrency; with --ab also a verdict between two choices of kernels",
      "kvr bench decode --shape qwen3-30b-a3b --concurrency 48,96 "
      "--set mla_sparse_decode/TARGET_CTAS=256 --ab mla_sparse_decode/TARGET_CTAS=512 --ship",
      "0 done, without errors; with --ab: 0 WIN, B is faster (--ship: SHIP); 3 EQUIVALENT; 4 LOSS; "
      "5 INCONCLUSIVE; 6 INVALID");
  const auto list = [&](const char* name, std::vector<std::string>* texts, const char* what,
                        const char* type) {
    return sub->add_option(name, *texts, what)
        ->type_name(type)
        ->allow_extra_args(false)
        ->take_all();
  };
  sub->add_option("--shape", options->shape,
                  StrCat("what a layer looks like: ", StrJoin(DecodeShapeNames(), ", ")))
      ->type_name("NAME")
      ->default_val("qwen3-30b-a3b");
  list("--axes", &options->axes,
       "axes of an operation in place of the shape's, as in moe_decode/correlation=0; repeatable",
       "OP/A=N,...");
  sub->add_option("--layers", options->bench.layers, "of attention and experts each (4)")
      ->type_name("N")
      ->check(CLI::Range(1, 1024));
  sub->add_option("--concurrency", options->concurrency,
                  "requests at once, 1 to 512, for each number a line (48,64,80,96)")
      ->type_name("C,...");
  sub->add_option("--requests", options->bench.requests, "in all (4 for each of those at once)")
      ->type_name("N")
      ->check(CLI::Range(1, 1 << 24));
  sub->add_option("--max-tokens", options->bench.max_tokens, "of each request (256)")
      ->type_name("N")
      ->check(CLI::Range(1, 1 << 24));
  sub->add_option("--input-sets", options->bench.input_sets, "inputs that steps take in turn (8)")
      ->type_name("N")
      ->check(CLI::Range(2, 1024));
  options->AddDevice(sub);
  AddSelections(sub, &options->selections);
  list("--variant", &options->variants, "serve this variant; repeatable", "OP/NAME[{A=V,...}]");
  list("--set", &options->pins, "give a tunable this value; repeatable", "OP/TUNABLE=VALUE");
  options->AddApproximate(sub);
  sub->get_option("--approximate")->type_name("OP/VARIANT{A=V,...}");
  CLI::Option* ab = list(
      "--ab", &options->ab,
      "compare with B, which is A (what the options above say) but for this: a selection file, a "
      "variant, a tunable, or 'same'; repeatable",
      "FILE|OP/NAME[{...}]|OP/TUNABLE=V");
  sub->add_flag("--ship", options->rules.rules.ship,
                "16 sessions with fresh loads, and one verdict over all concurrencies")
      ->needs(ab);
  sub->add_option("--block", options->rules.block,
                  "steps at each concurrency before the other's turn (16)")
      ->check(CLI::Range(2, 4096))
      ->needs(ab);
  sub->add_option("--rounds", options->rules.rules.rounds,
                  "of four blocks: at most (160), or with --ship of each session (4)")
      ->check(CLI::Range(1, 1000000))
      ->needs(ab);
  sub->add_option("--sessions", options->sessions, "of a ship verdict (16); fewer never ship")
      ->check(CLI::Range(2, 10000))
      ->needs(ab);
  sub->add_option("--band", options->band, "percent that a quick verdict takes for noise (1)")
      ->check(CLI::Range(0.1, 50.0))
      ->needs(ab);
  sub->add_option("--seed", options->rules.seed, "of the turns; drawn anew when left out")
      ->check(CLI::NonNegativeNumber)
      ->needs(ab);
  sub->callback([&commands, options] {
    commands.run = [&commands, options] { return RunDecode(commands.global, *options); };
  });
}

}  // namespace

void AddBench(CLI::App& app, Commands& commands) {
  CLI::App* group = Subcommand(app, "bench", "What the kernels are worth together",
                               "kvr bench decode --concurrency 48,96");
  group->require_subcommand(1);
  AddDecode(*group, commands);
}

}  // namespace kvr::cli
