// SPDX-License-Identifier: Apache-2.0
#include "cli/command.h"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>

#include "cli/ledger.h"
#include "core/status.h"
#include "core/strings.h"
#include "tuner/worker/try_plugin.h"

namespace kvr::cli {

void OpOptions::AddOp(CLI::App* app) {
  app->add_option("OP", op, "operation, as `kvr list` names it")->required();
}

void OpOptions::AddAxes(CLI::App* app) {
  app->add_option("--axes", axes,
                  "shape, as in num_tokens=96,topk=512, or several, as in num_tokens=1..8; "
                  "repeatable; an axis left out takes the operation's default")
      ->type_name("A=N,...")
      ->allow_extra_args(false)
      ->take_all();
}

void OpOptions::AddVariants(CLI::App* app) {
  app->add_option("--variant", variants, "only this variant; repeatable")
      ->type_name("NAME")
      ->allow_extra_args(false)
      ->take_all();
  app->add_option("--set", pins, "give a tunable this value; repeatable")
      ->type_name("TUNABLE=VALUE")
      ->allow_extra_args(false)
      ->take_all();
}

void OpOptions::AddApproximate(CLI::App* app) {
  app->add_option("--approximate", approximate,
                  "take this approximate variant's results for right, with these values of its "
                  "quality tunables; repeatable")
      ->type_name("[OP/]VARIANT{A=V,...}")
      ->allow_extra_args(false)
      ->take_all();
}

void OpOptions::AddDevice(CLI::App* app) {
  app->add_option("--device", device, "cuda, cuda:N, host, null, or auto: a GPU if one answers")
      ->type_name("NAME");
}

void OpOptions::AddProfile(CLI::App* app) {
  app->add_option("--profile", profile, "a described device instead of a real one")
      ->type_name("NAME");
}

void OpOptions::AddTargets(CLI::App* app) {
  app->add_option("--target", targets, "what to compile for, as in sm_90a,sm_120a,host")
      ->type_name("T,...");
}

void OpOptions::AddAll(CLI::App* app) {
  app->add_flag("--all", all, "every config of each variant, not its default alone");
}

void OpOptions::AddWorker(CLI::App* app) {
  app->add_option("--memory", memory_mib, "most device memory to use, MiB")
      ->type_name("MIB")
      ->check(CLI::Range(1, 1 << 24));  // 16 TiB
  app->add_option("--timeout", timeout_s, "seconds that one config's kernels may take")
      ->type_name("S")
      ->check(CLI::Range(0.1, 86400.0));  // a day
}

void OpOptions::AddLedger(CLI::App* app) { cli::AddLedger(app, &ledger); }

void OpOptions::AddMeasuring(CLI::App* app) {
  app->add_option("--mode", mode,
                  "how launches are timed: graph or eager, with the L2 cache cold or hot; "
                  "graph,cold if left out")
      ->type_name("MODE");
  app->add_option("--budget", budget,
                  "time to take at most, as in 60s or 5m; what is known by then is reported")
      ->type_name("T");
}

CLI::App* Subcommand(CLI::App& app, const std::string& name, const std::string& description,
                     const std::string& example, const std::string& codes) {
  CLI::App* sub = app.add_subcommand(name, description);
  sub->footer("Example:\n  " + example + "\n\nExit codes: " + codes +
              "; 1 it ran and something is wrong, or what --plugins names "
              "was refused; 2 the command line or an input is wrong; 130 interrupted.");
  sub->fallthrough();  // --json and --plugins may follow the subcommand
  return sub;
}

// UTF-8 has no byte below 0x80 but ASCII; its own control characters begin with 0xc2.
std::string Shown(std::string_view text) {
  std::string shown(text);
  for (size_t i = 0; i < shown.size(); ++i) {
    const auto byte = static_cast<unsigned char>(shown[i]);
    const bool control = (byte < 0x20 && byte != '\n' && byte != '\t') || byte == 0x7f;
    const bool c1 =
        byte == 0xc2 && i + 1 < shown.size() && static_cast<unsigned char>(shown[i + 1]) < 0xa0;
    if (control || c1) shown[i] = '?';
    if (c1) shown[i + 1] = '?';
  }
  return shown;
}

void NameRefused(const Catalog& catalog) {
  for (const Rejection& rejection : catalog.rejections()) {
    const std::string what = Shown(What(rejection.status)), fix = Shown(Fix(rejection.status));
    std::fprintf(stderr, "kvr: refused: %s\n  %s\n", what.c_str(), fix.c_str());
  }
}

int ExitCode(const GlobalOptions& global, const Catalog& catalog, bool failed) {
  // Rejections lie below a root: in its directory, or in its file ("x.so:op/variant.toml").
  const auto whole = [](const std::string& path) {
    std::error_code error;
    std::string canonical = std::filesystem::weakly_canonical(path, error).string();
    while (canonical.size() > 1 && canonical.back() == '/') canonical.pop_back();
    return canonical;
  };
  for (const std::string& root : global.plugins) {
    const std::string named = whole(root);
    const auto is_below = [&](const std::string& path) {
      return path == named || (path.starts_with(named) && path.size() > named.size() &&
                               (path[named.size()] == '/' || path[named.size()] == ':'));
    };
    for (const Rejection& rejection : catalog.rejections()) {
      // A manifest that is a link lies where the link is, wherever that points.
      const std::filesystem::path path(rejection.path);
      const std::string directory = whole(path.parent_path().string());
      failed |= is_below(whole(rejection.path)) ||
                is_below(StrCat(directory, "/", path.filename().string()));
    }
  }
  return failed ? kFailed : kDone;
}

absl::StatusOr<std::unique_ptr<Platform>> OpenPlatform(const GlobalOptions& global,
                                                       bool name_refused) {
  PlatformOptions options;
  options.plugin_roots = global.plugins;
  options.check_plugin = TryPlugin;
  KVR_ASSIGN_OR_RETURN(std::unique_ptr<Platform> platform, Platform::Open(options));
  if (name_refused) NameRefused(platform->catalog());
  return platform;
}

absl::StatusOr<std::vector<VariantPtr>> ChosenVariants(const Catalog& catalog,
                                                       const OpOptions& options) {
  KVR_ASSIGN_OR_RETURN(const Catalog::Op* op, catalog.FindOp(options.op));
  if (options.variants.empty()) return op->variants;
  std::vector<VariantPtr> chosen;
  for (const std::string& name : options.variants) {
    KVR_ASSIGN_OR_RETURN(VariantPtr variant, catalog.Find(options.op, name));
    chosen.push_back(std::move(variant));
  }
  return chosen;
}

absl::StatusOr<std::vector<AxisVector>> ChosenShapes(const OpSpec& op, const OpOptions& options) {
  std::vector<AxisVector> shapes;
  for (const std::string& text : options.axes) {
    KVR_ASSIGN_OR_RETURN(const std::vector<Axes> expanded, ExpandAxes(text));
    for (const Axes& axes : expanded) {
      KVR_ASSIGN_OR_RETURN(AxisVector resolved, ResolveAxes(op, axes));
      shapes.push_back(resolved);
    }
  }
  if (shapes.empty()) {
    KVR_ASSIGN_OR_RETURN(AxisVector resolved, ResolveAxes(op, {}));
    shapes.push_back(resolved);
  }
  return shapes;
}

Json ConfigJson(const Config& config) {
  Json json = Json::object();
  for (const auto& [name, value] : config) json[name] = value;
  return json;
}

Json AxesJson(const Axes& axes) { return ConfigJson(axes); }

Json BytesJson(int64_t bytes) { return bytes < 0 ? Json(nullptr) : Json(bytes); }

Json ErrorJson(const absl::Status& status) {
  return {{"code", absl::StatusCodeToString(status.code())},
          {"what", std::string(What(status))},
          {"fix", std::string(Fix(status))}};
}

void Print(std::string_view text) {
  const std::string shown = Shown(text);
  std::fwrite(shown.data(), 1, shown.size(), stdout);
}

absl::Status FlushOutput() {
  if (std::fflush(stdout) == 0 && std::ferror(stdout) == 0) return absl::OkStatus();
  return Error(absl::StatusCode::kDataLoss,
               StrCat("standard output cannot be written: ", std::strerror(errno)),
               "free space on its disk, or send it elsewhere");
}

void PrintJson(const Json& json) {
  // A message may quote bytes of a broken file: invalid UTF-8 is replaced, not thrown at.
  Print(json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n");
}

int PrintError(const absl::Status& status, bool json) {
  if (json) {
    PrintJson({{"error", ErrorJson(status)}});
  } else {
    const std::string what = Shown(What(status)), fix = Shown(Fix(status));
    std::fprintf(stderr, "kvr: %s\n", what.c_str());
    if (!fix.empty()) std::fprintf(stderr, "  %s\n", fix.c_str());
  }
  switch (status.code()) {
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kNotFound:
    case absl::StatusCode::kOutOfRange:
    case absl::StatusCode::kDataLoss:
      return kWrongInput;
    default:
      return kFailed;
  }
}

}  // namespace kvr::cli
