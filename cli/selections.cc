// SPDX-License-Identifier: Apache-2.0
//
// kvr selections export | import | diff | digest: selection files between machines.
#include "cli/selections.h"

#include <cstdlib>
#include <filesystem>
#include <optional>

#include "cli/command.h"
#include "cli/ledger.h"
#include "cli/table.h"
#include "core/status.h"
#include "core/strings.h"
#include "devices/profiles.h"
#include "registry/selection_file.h"
#include "tuner/file_lock.h"
#include "tuner/selections/exchange.h"
#include "tuner/selections/from_ledgers.h"

namespace kvr::cli {
namespace {

constexpr double kLockTimeoutS = 10;

struct SelectionsCommand : OpOptions {
  std::string selections, ledger, model, file, other;
  std::vector<std::string> ledgers, ops;
  bool unshipped = false;
};

size_t KeysOf(const SelectionContent& content) {
  size_t keys = 0;
  for (const auto& [name, op] : content.ops) keys += op.by_key.size();
  return keys;
}

absl::Status NeedSelections(const SelectionsCommand& command) {
  if (!command.selections.empty()) return absl::OkStatus();
  return Error(absl::StatusCode::kInvalidArgument, "no selection file is named",
               "give one with --selections, or KVR_SELECTIONS");
}

// The merged content to FILE, or to standard output where none is named.
absl::Status Deliver(const GlobalOptions& global, const SelectionsCommand& command,
                     const SelectionContent& content, const Json& told, const std::string& text) {
  if (command.file.empty() || command.file == "-") {
    Print(SelectionJson(content));
    return absl::OkStatus();
  }
  KVR_RETURN_IF_ERROR(WriteSelectionContent(content, command.file));
  if (global.json) {
    PrintJson(told);
  } else {
    Print(text);
  }
  return absl::OkStatus();
}

absl::StatusOr<int> ExportLedgers(const GlobalOptions& global, const SelectionsCommand& command,
                                  const Platform& platform) {
  std::vector<std::unique_ptr<ledger::Ledger>> open;
  std::vector<const ledger::Ledger*> ledgers;
  for (const std::string& directory : command.ledgers) {
    KVR_ASSIGN_OR_RETURN(open.emplace_back(), ledger::Ledger::Open(directory, {.read_only = true}));
    ledgers.push_back(open.back().get());
  }
  KVR_ASSIGN_OR_RETURN(const FromLedgers merged, MergeLedgers(ledgers, platform.catalog(),
                                                              {.ops = command.ops,
                                                               .device_model = command.model,
                                                               .unshipped = command.unshipped}));
  Json keys = Json::array();
  std::string text;
  for (const MergedKey& key : merged.keys) {
    keys.push_back(
        {{"op", key.op}, {"key", AxesJson(key.key)}, {"selected", key.selected}, {"why", key.why}});
    text += Wrap(StrCat(key.op, " {", AxesText(key.key),
                        "}: ", key.selected.empty() ? "the baseline serves it" : key.selected, "; ",
                        key.why),
                 TerminalWidth(), 0);
  }
  const std::string digest = merged.content.Digest().Hex();
  StrAppend(&text, Count(KeysOf(merged.content), "selection"), " for ", merged.content.device_model,
            " from ", Count(merged.gpus.size(), "GPU"), " in ", command.file, "\ndigest ", digest,
            "\n");
  KVR_RETURN_IF_ERROR(Deliver(global, command, merged.content,
                              {{"file", command.file},
                               {"device_model", merged.content.device_model},
                               {"gpus", merged.gpus},
                               {"digest", digest},
                               {"keys", keys}},
                              text));
  return ExitCode(global, platform.catalog(), false);
}

// Two sources, or an option of the other one, would leave a reader to guess which was taken.
absl::Status CheckSource(const SelectionsCommand& command) {
  const auto refuse = [](std::string_view what, std::string_view fix) {
    return Error(absl::StatusCode::kInvalidArgument, what, fix);
  };
  if (command.ledgers.empty()) {
    if (command.ops.empty() && command.model.empty()) return absl::OkStatus();
    return refuse("--op and --model go with --from-ledgers", "leave them out, or name ledgers");
  }
  // KVR_SELECTIONS may stand in the environment all the time.
  const char* const standing = std::getenv("KVR_SELECTIONS");
  const bool has_file = !command.selections.empty() &&
                        (standing == nullptr || command.selections != std::string(standing));
  if (!has_file && command.ledger.empty()) return absl::OkStatus();
  return refuse(
      StrCat("--from-ledgers takes the place of ", has_file ? "--selections" : "--ledger"),
      "give one of the two");
}

absl::StatusOr<int> RunExport(const GlobalOptions& global, const SelectionsCommand& command) {
  KVR_RETURN_IF_ERROR(CheckSource(command));
  KVR_ASSIGN_OR_RETURN(std::unique_ptr<Platform> platform, OpenPlatform(global));
  if (!command.ledgers.empty()) return ExportLedgers(global, command, *platform);
  KVR_RETURN_IF_ERROR(NeedSelections(command));
  KVR_ASSIGN_OR_RETURN(SelectionContent content, ReadSelectionContent(command.selections));
  absl::StatusOr<std::unique_ptr<ledger::Ledger>> ledger =
      OpenLedger(command.ledger, {.read_only = true});
  if (!ledger.ok() && !absl::IsNotFound(ledger.status())) return ledger.status();
  KVR_ASSIGN_OR_RETURN(content,
                       ForTheFleet(std::move(content), platform->catalog(),
                                   ledger.ok() ? ledger->get() : nullptr, command.unshipped,
                                   command.ledger.empty() || command.ledger == "none"
                                       ? ""
                                       : StrCat("--ledger ", command.ledger)));
  const std::string digest = content.Digest().Hex();
  KVR_RETURN_IF_ERROR(
      Deliver(global, command, content,
              {{"file", command.file},
               {"device_model", content.device_model},
               {"digest", digest},
               {"selections", KeysOf(content)}},
              StrCat(Count(KeysOf(content), "selection"), " for ", content.device_model, " in ",
                     command.file, "\ndigest ", digest, "\n")));
  return ExitCode(global, platform->catalog(), false);
}

absl::StatusOr<int> RunImport(const GlobalOptions& global, const SelectionsCommand& command) {
  KVR_RETURN_IF_ERROR(NeedSelections(command));
  KVR_ASSIGN_OR_RETURN(std::unique_ptr<Platform> platform, OpenPlatform(global));
  KVR_ASSIGN_OR_RETURN(const SelectionContent incoming, ReadSelectionContent(command.file));
  DeviceInfo device;
  if (!command.profile.empty()) {
    KVR_ASSIGN_OR_RETURN(device, LoadProfile(command.profile));
  } else {
    KVR_ASSIGN_OR_RETURN(const std::unique_ptr<Device> opened,
                         platform->OpenDevice(command.device));
    device = opened->info();
  }
  FileLock lock;
  KVR_RETURN_IF_ERROR(lock.Take(StrCat(command.selections, ".lock"), kLockTimeoutS));
  std::optional<SelectionContent> local;
  if (std::error_code error; std::filesystem::exists(command.selections, error)) {
    KVR_ASSIGN_OR_RETURN(local, ReadSelectionContent(command.selections));
  }
  KVR_ASSIGN_OR_RETURN(const TakenOver taken, TakeOver(local ? &*local : nullptr, incoming,
                                                       command.file, platform->catalog(), device));
  if (taken.added + taken.replaced > 0 || !local) {
    KVR_RETURN_IF_ERROR(WriteSelectionContent(taken.content, command.selections));
  }
  const std::string digest = taken.content.Digest().Hex();
  if (global.json) {
    PrintJson({{"selections", command.selections},
               {"added", taken.added},
               {"replaced", taken.replaced},
               {"unchanged", taken.unchanged},
               {"digest", digest}});
  } else {
    Print(StrCat(taken.added, " added, ", taken.replaced, " replaced, ", taken.unchanged,
                 " as they were in ", command.selections, "\ndigest ", digest, "\n"));
  }
  return ExitCode(global, platform->catalog(), false);
}

absl::StatusOr<int> RunDiff(const GlobalOptions& global, const SelectionsCommand& command) {
  KVR_ASSIGN_OR_RETURN(const SelectionContent a, ReadSelectionContent(command.file));
  KVR_ASSIGN_OR_RETURN(const SelectionContent b, ReadSelectionContent(command.other));
  const std::vector<Difference> differences = Differences(a, b);
  Json list = Json::array();
  std::string text;
  for (const Difference& d : differences) {
    list.push_back(
        {{"op", d.op}, {"key", AxesJson(d.key)}, {"field", d.field}, {"a", d.a}, {"b", d.b}});
    StrAppend(&text, d.op.empty() ? "the files" : d.op,
              d.key.empty() ? "" : StrCat(" {", AxesText(d.key), "}"), ": ", d.field, "\n  ",
              d.a.empty() ? "(none)" : d.a, "\n  ", d.b.empty() ? "(none)" : d.b, "\n");
  }
  if (global.json) {
    PrintJson({{"equal", differences.empty()},
               {"digests", {a.Digest().Hex(), b.Digest().Hex()}},
               {"differences", list}});
  } else if (differences.empty()) {
    Print(StrCat("both select the same\ndigest ", a.Digest().Hex(), "\n"));
  } else {
    Print(text);
  }
  return differences.empty() ? kDone : kFailed;
}

absl::StatusOr<int> RunDigest(const GlobalOptions& global, const SelectionsCommand& command) {
  KVR_ASSIGN_OR_RETURN(const SelectionContent content, ReadSelectionContent(command.file));
  const std::string digest = content.Digest().Hex();
  if (global.json) {
    PrintJson({{"digest", digest},
               {"device_model", content.device_model},
               {"target", content.target},
               {"generation", content.number},
               {"selections", KeysOf(content)}});
  } else {
    Print(digest + "\n");
  }
  return kDone;
}

}  // namespace

void AddSelectionsCommand(CLI::App& app, Commands& commands) {
  auto command = std::make_shared<SelectionsCommand>();
  CLI::App* group = Subcommand(app, "selections", "Selection files between machines",
                               "kvr selections export fleet.json --selections h200.json");
  group->require_subcommand(1);
  const auto add = [&](const char* name, const char* description, const char* example, auto run) {
    CLI::App* sub = Subcommand(*group, name, description, example);
    sub->callback([&commands, command, run] {
      commands.run = [&commands, command, run] { return run(commands.global, *command); };
    });
    return sub;
  };
  CLI::App* to_fleet =
      add("export", "A file for a fleet: of what has ship verdicts, or of several GPUs' ledgers",
          "kvr selections export fleet.json --from-ledgers gpu0 --from-ledgers gpu1", RunExport);
  to_fleet->add_option("FILE", command->file, "where to; left out or -: standard output");
  AddSelections(to_fleet, &command->selections);
  AddLedger(to_fleet, &command->ledger);
  to_fleet->add_flag("--unshipped", command->unshipped, "also what has no ship verdict");
  to_fleet
      ->add_option("--from-ledgers", command->ledgers,
                   "instead of a selection file: the ledger directory of each GPU; what all of "
                   "them agree on; repeatable")
      ->type_name("DIR")
      ->allow_extra_args(false)
      ->take_all();
  to_fleet->add_option("--op", command->ops, "with --from-ledgers: only this operation; repeatable")
      ->type_name("OP")
      ->allow_extra_args(false)
      ->take_all();
  to_fleet
      ->add_option("--model", command->model,
                   "with --from-ledgers: the device model, where they know several")
      ->type_name("MODEL");
  CLI::App* take = add("import", "What a fleet's file selects, into a local one: all or nothing",
                       "kvr selections import fleet.json --selections local.json", RunImport);
  take->add_option("FILE", command->file, "what `kvr selections export` wrote")->required();
  AddSelections(take, &command->selections);
  command->AddDevice(take);
  command->AddProfile(take);
  CLI::App* diff = add("diff", "Where two files select differently; exit code 1 if they do",
                       "kvr selections diff rank0.json rank1.json", RunDiff);
  diff->add_option("A", command->file, "a selection file")->required();
  diff->add_option("B", command->other, "another")->required();
  add("digest", "The digest of what a file selects; ranks that agree have the same",
      "kvr selections digest h200.json", RunDigest)
      ->add_option("FILE", command->file, "a selection file")
      ->required();
}

}  // namespace kvr::cli
