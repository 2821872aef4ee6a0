// SPDX-License-Identifier: Apache-2.0
//
// kvr-worker: runs kernels nobody has vouched for, so that kvr and the applications that tune do
// not have to. Started by tuner/worker/client.h; protocol: tuner/worker/protocol.h.
//
//   kvr-worker --device cuda:0 [--plugins DIR]... [--replace PLACE]... [--memory BYTES]
//              [--parent PID]
//   kvr-worker --check-plugin FILE --scratch DIR
//
// The second only tries a compiled plugin, by way of DIR, and says what came of it
// (cli/worker/check_plugin.h).
// It ends when its stdin closes or its parent dies, whatever a kernel is doing at that time. What
// kernels print goes to stderr: stdout belongs to the protocol.
#include <fcntl.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "api/platform.h"
#include "cli/worker/check_plugin.h"
#include "core/status.h"
#include "core/strings.h"
#include "plugins/roots.h"
#include "tuner/rescan.h"
#include "tuner/worker/server.h"

namespace kvr {
namespace {

struct Arguments {
  std::string device = "auto";
  PlatformOptions platform;
  WorkerServerOptions server;
  int64_t parent = 0;
  std::string check_plugin;
  std::vector<std::string> replacements;
};

absl::StatusOr<Arguments> Parse(int argc, char** argv) {
  Arguments arguments;
  arguments.platform.compilers = false;
  for (int i = 1; i < argc; ++i) {
    const std::string name = argv[i];
    const std::string value = i + 1 < argc ? argv[i + 1] : "";
    bool ok = ++i < argc;
    if (name == "--device") {
      arguments.device = value;
    } else if (name == "--plugins") {
      arguments.platform.plugin_roots.push_back(value);
    } else if (name == "--replace") {
      arguments.replacements.push_back(value);
    } else if (name == "--check-plugin") {
      arguments.check_plugin = value;
    } else if (name == "--scratch") {
      ok = ok && setenv("TMPDIR", value.c_str(), 1) == 0;
    } else if (name == "--memory") {
      ok = ok && absl::SimpleAtoi(value, &arguments.server.memory_limit);
    } else if (name == "--parent") {
      ok = ok && absl::SimpleAtoi(value, &arguments.parent);
    } else {
      ok = false;
    }
    if (!ok) {
      return Error(absl::StatusCode::kInvalidArgument, StrCat("wrong argument '", name, "'"),
                   "kvr starts this program by itself; use `kvr verify` or `kvr tune`");
    }
  }
  return arguments;
}

// stdout becomes ours alone; everybody else's writes go to stderr.
int TakeStdout() {
  const int protocol = fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 3);
  dup2(STDERR_FILENO, STDOUT_FILENO);
  return protocol;
}

void WriteLine(int fd, std::string line) {
  line.push_back('\n');
  for (size_t done = 0; done < line.size();) {
    const ssize_t n = write(fd, line.data() + done, line.size() - done);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) _exit(0);  // nobody listens any more
    done += static_cast<size_t>(n);
  }
}

// What the places bring, each with the others behind it. One that cannot be read any more brings
// nothing: whoever is asked for is found to have changed.
std::vector<VariantPtr> Replacements(const Arguments& arguments, const Catalog& catalog) {
  RescanOptions options;
  options.roots = arguments.replacements;
  for (std::string& root : PluginRoots(arguments.platform.plugin_roots)) {
    options.roots.push_back(std::move(root));
  }
  std::vector<VariantPtr> all;
  for (const std::string& place : arguments.replacements) {
    const absl::StatusOr<Rescanned> some = RescanPlace(place, catalog, options);
    if (some.ok()) {
      all.insert(all.end(), some->brought.begin(), some->brought.end());
    } else {
      std::fprintf(stderr, "kvr-worker: %s\n", std::string(What(some.status())).c_str());
    }
  }
  return all;
}

int Say(int out, const absl::Status& status) {
  Message hello;
  hello.kind = Message::Kind::kHello;
  hello.protocol = kProtocol;
  hello.error = status;
  WriteLine(out, EncodeMessage(hello));
  return status.ok() ? 0 : 1;
}

int Run(int argc, char** argv) {
  signal(SIGPIPE, SIG_IGN);
  const int out = TakeStdout();
  const absl::StatusOr<Arguments> arguments = Parse(argc, argv);
  if (!arguments.ok()) {
    std::fprintf(stderr, "kvr-worker: %s\n", std::string(arguments.status().message()).c_str());
    return Say(out, arguments.status());
  }
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (!arguments->check_plugin.empty()) {
    return Say(out, CheckPlugin(arguments->check_plugin, [out](std::string doing) {
                 Message stage;
                 stage.kind = Message::Kind::kStage;
                 stage.doing = std::move(doing);
                 WriteLine(out, EncodeMessage(stage));
               }));
  }
  if (arguments->parent != 0 && getppid() != arguments->parent) return 1;  // it died before
  LineSource lines(STDIN_FILENO);

  auto platform = Platform::Open(arguments->platform);
  if (!platform.ok()) return Say(out, platform.status());
  auto device = (*platform)->OpenDevice(arguments->device);
  if (!device.ok()) return Say(out, device.status());
  WorkerServerOptions serving = arguments->server;
  serving.replacements = Replacements(*arguments, (*platform)->catalog());
  WorkerServer server(**device, (*platform)->catalog(), serving,
                      [out](const Message& message) { WriteLine(out, EncodeMessage(message)); });
  if (absl::Status status = server.Start(); !status.ok()) return Say(out, status);
  WriteLine(out, EncodeMessage(server.Hello()));
  for (;;) {
    const absl::StatusOr<Request> request = DecodeRequest(lines.Next());
    if (!request.ok()) {
      std::fprintf(stderr, "kvr-worker: %s\n", std::string(request.status().message()).c_str());
      return 1;
    }
    server.Handle(*request);
  }
}

}  // namespace
}  // namespace kvr

int main(int argc, char** argv) { return kvr::Run(argc, argv); }
