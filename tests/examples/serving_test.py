#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""docs/serving.md tells the truth: its commands succeed on the host device, in order, its C++ is the example's,
and its metrics are those that are served. And examples/serve does what it says.

  serving_test.py SOURCE_DIR BIN_DIR [unittest arguments]
"""
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

SOURCE, BINARIES = sys.argv[1:3]
SMALL = ["--device", "host", "--layers", "2", "--buckets", "1,2", "--topk", "64", "--pages", "8"]
PATIENCE = 1800  # seconds; the end of what hangs, and of nothing else


class Serving(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.cache = tempfile.mkdtemp()

    @classmethod
    def tearDownClass(cls):
        shutil.rmtree(cls.cache)

    def setUp(self):
        self.scratch = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, self.scratch)
        self.environment = {name: value for name, value in os.environ.items() if not name.startswith("KVR_")}
        self.environment.update(KVR_NO_CUDA="1", KVR_CACHE_DIR=self.cache,
                                KVR_LEDGER_DIR=os.path.join(self.scratch, "ledger"),
                                PATH=BINARIES + ":" + os.environ["PATH"])

    def serve(self, *arguments, code=0):
        done = subprocess.run([os.path.join(BINARIES, "kvr-serve"), *SMALL, *arguments], env=self.environment,
                              cwd=self.scratch, capture_output=True, text=True, timeout=PATIENCE, check=False)
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        return done

    def start(self, *arguments):
        """A server that serves."""
        server = subprocess.Popen([os.path.join(BINARIES, "kvr-serve"), *SMALL, "--socket", "s", *arguments],
                                  env=self.environment, cwd=self.scratch, stdout=subprocess.PIPE, text=True)
        self.addCleanup(server.wait)
        self.addCleanup(server.stdout.close)
        self.addCleanup(server.kill)
        self.assertIn("serving 2 layers", server.stdout.readline())
        return server

    def end(self, server):
        """Interrupts it once it has served; what it said."""
        self.until(lambda: self.status()["steps"]["steps"] > 0, "no step ends")
        server.send_signal(signal.SIGINT)
        output, _ = server.communicate(timeout=PATIENCE)
        self.assertEqual(server.returncode, 0, output)
        return output

    def status(self):
        return json.loads(self.kvr("status", "s", "--json").stdout)

    def test_the_page(self):
        with open(os.path.join(SOURCE, "docs/serving.md"), encoding="utf-8") as file:
            text = file.read()
        sources = ""
        for name in ("serve.cc", "model.cc"):
            with open(os.path.join(SOURCE, "examples/serve", name), encoding="utf-8") as file:
                sources += file.read()
        for block in re.findall(r"^```cpp\n(.*?)^```", text, re.M | re.S):
            self.assertIn(block, sources)
        for link in re.findall(r"\]\(([^)#:]+)\)", text):
            self.assertTrue(os.path.exists(os.path.join(SOURCE, "docs", link)), f"a link leads nowhere: {link}")

        blocks = re.findall(r"^```sh\n(.*?)^```", text, re.M | re.S)
        script = "trap 'kill $(jobs -p) 2>/dev/null || true' EXIT\n" + "\n".join(blocks)
        # What port is free nobody knows before: the server takes one, and says which.
        script = script.replace("--metrics 127.0.0.1:9464", "--metrics 127.0.0.1:0")
        script = script.replace("curl --silent --fail http://127.0.0.1:9464/metrics",
                                "until grep '^metrics on' serve.log; do sleep 0.1; done\n"
                                "curl --silent --fail $(sed -n 's/^metrics on //p' serve.log)")
        self.assertNotIn("9464", script)
        script = script.replace("grep '^kvr_publications_total'", "tee metrics.txt")
        done = subprocess.run(["bash", "-euo", "pipefail", "-c", script], cwd=self.scratch, env=self.environment,
                              stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=PATIENCE, check=False)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertIn(" 0 errors", done.stdout)
        with open(os.path.join(self.scratch, "journal.jsonl"), encoding="utf-8") as file:
            journal = [json.loads(line) for line in file]
        self.assertEqual([line["outcome"] for line in journal[:2]], ["published", "published"])
        self.assertEqual(journal[1]["trigger"], "rollback")
        self.assertEqual([line for line in journal if line["outcome"] == "failed"], [])

        with open(os.path.join(self.scratch, "metrics.txt"), encoding="utf-8") as file:
            served = set(re.findall(r"^# TYPE (\w+)", file.read(), re.M))
        told = set(re.findall(r"`(kvr_[a-z_]+)", text))
        self.assertEqual(told, served, "the page's metrics are not those that are served")

    def test_every_output_is_its_generation_s_while_kernels_are_swapped_at_every_step(self):
        for keep in ([], ["--keep-graph"]):
            steps, applied = 60, 0
            while applied <= 10:  # who publishes may get few turns while the steps run: then more of them
                done = self.serve("--steps", str(steps), "--phase", "20", "--check", "--swap-every", "1", "--swap-to",
                                  "baseline{BLOCK_H=16}", "--swap-to", "baseline{MIN_CHUNK=16,NSPLIT_MAX=32}",
                                  "--json", *keep)
                report = json.loads(done.stdout)
                self.assertEqual(report["steps"], {"begun": steps, "completed": steps, "errors": 0}, done.stderr)
                self.assertEqual(report["checks"]["checked"], steps)
                self.assertEqual(report["checks"]["mismatches"], 0, done.stderr)
                steps, applied = 4 * steps, report["swaps"]["applied"]
            self.assertGreater(report["checks"]["told_apart"], 0)
            self.assertEqual(report["swaps"]["failed"], 0)
            self.assertEqual(report["misses"], 0)
            self.assertEqual(report["patch"]["way"], "node" if keep else "graph")

    def test_sigint_ends_it_with_a_summary(self):
        output = self.end(self.start())
        self.assertRegex(output, r"[1-9]\d* steps, .* 0 errors")
        self.assertFalse(os.path.exists(os.path.join(self.scratch, "s")), "the socket is left behind")

    def kvr(self, *arguments):
        return subprocess.run([os.path.join(BINARIES, "kvr"), *arguments], env=self.environment, cwd=self.scratch,
                              capture_output=True, text=True, timeout=PATIENCE, check=False)

    def until(self, condition, what):
        deadline = time.monotonic() + PATIENCE
        while not condition():
            self.assertLess(time.monotonic(), deadline, what)
            time.sleep(0.2)

    def test_a_changed_bundle_is_swapped_in_and_logged(self):
        bundle = os.path.join(self.scratch, "bundles/mine")
        os.makedirs(bundle)
        manifest = ('schema = 1\nop = "mla_sparse_decode"\nname = "mine"\nversion = "1.0.0"\ndescription = "{0} warps"\n'
                    'extends = {{ variant = "baseline", version = "1" }}\n[tunables.WARPS]\nvalues = [{0}]\ndefault = {0}\n'
                    'scope = "compile"\ndescription = "warps of a block"\n')

        def write(warps):  # in one step: half a file that rests is told, too
            hidden = os.path.join(bundle, ".variant.toml")
            with open(hidden, "w", encoding="utf-8") as file:
                file.write(manifest.format(warps))
            os.rename(hidden, os.path.join(bundle, "variant.toml"))

        write(8)
        self.environment.update(KVR_LOG="info", KVR_LOG_FILE=os.path.join(self.scratch, "log"))
        server = self.start("--plugins", "bundles", "--watch", "bundles", "--check")
        self.assertEqual(self.kvr("swap", "s", "mla_sparse_decode", "mine").returncode, 0)
        write(4)
        self.until(lambda: "WARPS=4" in self.kvr("status", "s").stdout, "the bundle is not swapped in")
        self.end(server)
        with open(os.path.join(self.scratch, "log"), encoding="utf-8") as file:
            events = [json.loads(line) for line in file]
        self.assertEqual([event["event"] for event in events], ["boot", "load", "publish", "publish"])
        self.assertEqual([event["trigger"] for event in events[2:]], ["api", "bundle"])

    def test_swaps_that_fail_lose_no_step_and_the_ledger_says_why(self):
        server = self.start("--check")
        digest = self.status()["generation"]["digest"]
        for name, before, after, said in (
            ("broken", "float weights = 0;", "float weights = nothing;", "nothing"),
            ("wrong", "1.0f / weights", "1.5f / weights", "INCORRECT_NUMERICAL"),
        ):
            bundle = os.path.join(self.scratch, name)
            shutil.copytree(os.path.join(SOURCE, "variants/mla_sparse_decode/baseline"), bundle)
            for file_name, old, new in (("merge.cu", before, after), ("variant.toml", "baseline = true\n", ""),
                                        ("variant.toml", 'name = "baseline"', f'name = "{name}"')):
                path = os.path.join(bundle, file_name)
                with open(path, encoding="utf-8") as file:
                    text = file.read()
                self.assertIn(old, text)
                with open(path, "w", encoding="utf-8") as file:
                    file.write(text.replace(old, new))
            done = self.kvr("swap", "s", "--bundle", bundle)  # by its name from then on
            self.assertEqual(done.returncode, 0, done.stderr)
            done = self.kvr("swap", "s", "mla_sparse_decode", name)
            self.assertEqual(done.returncode, 1, done.stdout)
            self.assertIn(said, done.stderr)
        self.assertEqual(self.status()["generation"]["digest"], digest)
        output = self.end(server)
        self.assertRegex(output, r"[1-9]\d* steps, .* 0 errors")
        self.assertRegex(output, r"steps checked, bit for bit: 0 wrong")
        listed = self.kvr("ledger", "ls", "--kind", "publication").stdout
        self.assertIn("failed at build", listed)
        self.assertIn("failed at verify", listed)

    def test_what_cannot_be_is_said_before_anything_is_served(self):
        for arguments, said in (
            (["--metrics", "0.0.0.0:9464"], "can be reached from other machines"),
            (["--swap-every", "1", "--swap-to", "nobody"], "nobody"),
            (["--swap-every", "1", "--swap-to", "baseline{BLOCK_H=7}"], "BLOCK_H"),
            (["--selections", "nowhere.json"], "nowhere.json"),
        ):
            self.assertIn(said, self.serve("--steps", "1", *arguments, code=1).stderr, arguments)
        for alone in (["--swap-every", "1"], ["--swap-to", "w8"], ["--phase", "2"]):
            self.assertIn("requires --swap-", self.serve("--steps", "1", *alone, code=2).stderr, alone)


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]])
