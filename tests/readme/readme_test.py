#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The README tells the truth: its kvr commands succeed, its C++ is the example that is compiled.

  readme_test.py SOURCE_DIR BIN_DIR
"""
import os
import re
import shlex
import signal
import subprocess
import sys
import tempfile
import time

source, binaries = sys.argv[1:3]
readme = open(os.path.join(source, "README.md"), encoding="utf-8").read()
blocks = re.findall(r"^```(\w*)\n(.*?)^```", readme, re.M | re.S)
failures = []
servers = []

example = open(os.path.join(source, "examples/embed/embed.cc"), encoding="utf-8").read()
snippets = [text for language, text in blocks if language == "cpp"]
if not snippets:
    failures.append("the README has no C++ block")
for text in snippets:
    if text not in example:
        failures.append("the README's C++ block is not in examples/embed/embed.cc, line by line")

commands = [
    line.split("#")[0].strip()
    for language, text in blocks
    if language == "sh"
    for line in text.splitlines()
    if line.startswith("build/release/bin/kvr")
]
if len(commands) < 5:
    failures.append(f"only {len(commands)} kvr commands found in the README")

with tempfile.TemporaryDirectory() as scratch:
    environment = dict(os.environ, KVR_CACHE_DIR=os.path.join(scratch, "cache"),
                       KVR_LEDGER_DIR=os.path.join(scratch, "ledger"))
    for command in commands:
        words = [word.replace("/tmp/", scratch + "/") for word in shlex.split(command)]
        words[0] = os.path.join(binaries, os.path.basename(words[0]))
        if words[-1] == "&":
            server = subprocess.Popen(words[:-1], env=environment, stdout=subprocess.DEVNULL)
            servers.append((command, server))
            # The socket is there before anybody listens on it: until the server answers.
            status = [os.path.join(binaries, "kvr"), "status", words[words.index("--socket") + 1]]
            while subprocess.run(status, env=environment, capture_output=True, check=False).returncode != 0:
                if server.poll() is not None:
                    break
                time.sleep(0.1)
            continue
        done = subprocess.run(words, env=environment, capture_output=True, text=True, check=False)
        # doctor's 1 says that this machine lacks something, ab's codes are its verdicts.
        allowed = {"doctor": {0, 1}, "ab": {0, 3, 4, 5, 6}}.get(words[1], {0})
        print(f"exit {done.returncode}: {command}")
        if done.returncode not in allowed:
            failures.append(f"{command}\n{done.stdout}{done.stderr}")
    for command, server in servers:
        server.send_signal(signal.SIGINT)
        if server.wait() != 0:  # a step went wrong, or it was gone before
            failures.append(f"{command}: exit {server.returncode}")

for script in re.findall(r"^(scripts/\S+)", readme, re.M):
    if not os.access(os.path.join(source, script), os.X_OK):
        failures.append(f"{script} is not an executable file")
# Of every page, not of this one alone.
for directory, below, names in os.walk(source):
    below[:] = [name for name in below if not name.startswith(".") and name != "build"]
    for name in names:
        if not name.endswith(".md"):
            continue
        with open(os.path.join(directory, name), encoding="utf-8") as page:
            links = re.findall(r"\]\(([^)#:\s]+)(?:#[^)]*)?\)", page.read())
        for link in links:
            if not os.path.exists(os.path.join(directory, link)):
                failures.append(f"{os.path.relpath(os.path.join(directory, name), source)}: a link leads nowhere: {link}")

for failure in failures:
    print("FAILED:", failure)
sys.exit(1 if failures else 0)
