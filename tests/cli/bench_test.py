#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""kvr bench decode as scripts see it, on the host device with its tiny shape: the line, exit codes, JSON, and the
commands of docs/bench.md. What is fast depends on the machine's load, so no test asks for a verdict.

  bench_test.py SOURCE_DIR BIN_DIR [unittest arguments]
"""
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import unittest

SOURCE, BINARIES = sys.argv[1:3]
SMALL = ["--device", "host", "--shape", "tiny", "--layers", "2", "--max-tokens", "2", "--input-sets", "2"]
PATIENCE = 1800  # seconds; the end of what hangs, and of nothing else
VERDICTS = {"WIN": 0, "SHIP": 0, "EQUIVALENT": 3, "LOSS": 4, "INCONCLUSIVE": 5}
NUMBER = r"\d+\.\d+"
LINE = re.compile(rf"^(?P<side>|A: |B: )C=(?P<c>\d+) n=(?P<n>\d+) max_tokens=(?P<max>\d+) \| agg=(?P<agg>{NUMBER}) tok/s \| "
                  rf"per-req~(?P<per>{NUMBER}) \| p50 lat=(?P<p50>{NUMBER})s \| p99 (?P<p99>{NUMBER})s \| "
                  rf"toks=(?P<toks>\d+) errs=(?P<errs>\d+) wall=(?P<wall>{NUMBER})s$", re.M)


class Bench(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.scratch = tempfile.mkdtemp()
        cls.environment = {name: value for name, value in os.environ.items() if not name.startswith("KVR_")}
        cls.environment.update(KVR_CACHE_DIR=os.path.join(cls.scratch, "cache"), KVR_NO_CUDA="1",
                               PATH=BINARIES + ":" + os.environ["PATH"])

    @classmethod
    def tearDownClass(cls):
        shutil.rmtree(cls.scratch)

    def decode(self, *arguments, code=0, **environment):
        done = subprocess.run([os.path.join(BINARIES, "kvr"), "bench", "decode", *SMALL, *arguments],
                              env=dict(self.environment, **environment), capture_output=True, text=True, check=False)
        if code is not None:
            self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        return done

    def test_a_line_for_each_concurrency(self):
        done = self.decode("--concurrency", "3,4")
        self.assertIn("synthetic", done.stdout.splitlines()[0])
        lines = list(LINE.finditer(done.stdout))
        self.assertEqual([(line["c"], line["n"], line["max"], line["toks"], line["errs"]) for line in lines],
                         [("3", "12", "2", "24", "0"), ("4", "16", "2", "32", "0")], done.stdout)
        for line in lines:
            self.assertLessEqual(float(line["p50"]), float(line["p99"]))
        self.assertEqual(len(re.findall(r"^  \d+\.\d of 8 experts active", done.stdout, re.M)), 2)
        self.assertIn("no selection file", done.stdout)
        self.assertIn("mla_sparse_decode at num_tokens=4: baseline", done.stdout)

    def test_json_says_the_same_and_what_served(self):
        report = json.loads(self.decode("--concurrency", "3", "--requests", "5", "--json", "--variant",
                                        "mla_sparse_decode/w8{TARGET_CTAS=512}").stdout)
        (side,), (run,) = report["sides"], report["runs"]
        self.assertEqual(report["device"]["kind"], "host")
        self.assertEqual(report["shape"]["moe_decode"]["correlation"], 675)
        self.assertEqual([(one["variant"], one["num_tokens"]) for one in side["served"]],
                         [("w8", [2, 4]), ("topk", [2, 4])])
        self.assertEqual(side["served"][0]["config"]["TARGET_CTAS"], 512)
        self.assertEqual((run["tokens"], run["errors"], run["steps"]), (10, 0, 4))
        self.assertNotIn("ab", report)

    def test_the_environment_counts_too(self):
        report = json.loads(self.decode("--concurrency", "2", "--json", KVR_FORCE_MLA_SPARSE_DECODE="s3").stdout)
        self.assertEqual(report["sides"][0]["served"][0]["variant"], "s3")

    def test_rows_that_are_wrong_are_errors(self):
        faulty = ["--plugins", os.path.join(SOURCE, "tests/tuner/faulty"), "--concurrency", "2"]
        done = self.decode(*faulty, "--variant", "mla_sparse_decode/faulty{MODE=8}", code=1)
        self.assertGreater(int(LINE.search(done.stdout)["errs"]), 0)
        self.assertIn("is nan", done.stdout)
        report = json.loads(self.decode(*faulty, "--ab", "mla_sparse_decode/faulty{MODE=8}", "--rounds", "1", "--json",
                                        code=1).stdout)
        self.assertEqual(report["ab"]["verdict"], "INVALID")
        self.assertIn("of B went wrong", report["ab"]["reason"])

    def test_an_approximate_variant_is_opted_in_to(self):
        opt_in = "moe_decode/oea{K0=1,K_MAX=0,P=1000,MAX_P=0,ACROSS_GROUPS=0}"
        common = ["--concurrency", "3", "--rounds", "1", "--ab", "moe_decode/oea"]
        self.assertIn("moe_decode/oea{", self.decode(*common, code=None).stderr)
        report = json.loads(self.decode(*common, "--approximate", opt_in, "--json", code=None).stdout)
        self.assertEqual([side["served"][1]["variant"] for side in report["sides"]], ["topk", "oea"])
        self.assertEqual([run["errors"] for run in report["runs"]], [0, 0])
        exact, approximate = [run["active_experts"] for run in report["runs"]]
        self.assertLess(approximate, exact)
        # A part that states the variant and all of these says as much.
        report = json.loads(self.decode(*common[:-1], opt_in, "--json", code=None).stdout)
        self.assertEqual(report["runs"][1]["active_experts"], approximate)
        self.assertIn("nobody", self.decode(*common, "--approximate", "moe_decode/nobody{K0=1}", code=2).stderr)

    def test_a_comparison_ends_in_a_verdict_and_its_exit_code(self):
        compare = ["--concurrency", "2,3", "--block", "4", "--ab", "mla_sparse_decode/TARGET_CTAS=512"]
        done = self.decode(*compare, "--rounds", "8", code=None)
        self.assertEqual([line["side"] for line in LINE.finditer(done.stdout)], ["A: ", "B: "] * 2, done.stdout)
        self.assertRegex(done.stdout, r"(?m)^B: no selection file\n +mla_sparse_decode .*TARGET_CTAS=512")
        verdict = re.match(r"B against A: ([A-Z]+)", done.stdout.splitlines()[-1])[1]
        self.assertEqual(done.returncode, VERDICTS[verdict], done.stdout)
        done = self.decode(*compare, "--ship", "--sessions", "2", "--rounds", "1", "--seed", "3", "--json", code=None)
        report = json.loads(done.stdout)["ab"]
        self.assertEqual(done.returncode, VERDICTS[report["verdict"]])
        self.assertEqual((report["kind"], report["seed"], report["rounds"], report["ship"]), ("ship", 3, 2, False))
        self.assertEqual([one["bucket"] for one in report["concurrencies"]], ["2", "3"])

    def test_what_does_not_fit_is_refused_before_it_is_filled(self):
        done = subprocess.run([os.path.join(BINARIES, "kvr"), "bench", "decode", "--device", "host", "--shape",
                               "deepseek-v4-flash", "--layers", "1024", "--concurrency", "1"],
                              env=self.environment, capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 2, done.stdout + done.stderr)
        self.assertRegex(done.stderr, r"deepseek-v4-flash with 1024 layers needs \d+\.\d GB on .*, \d+\.\d GB are free")
        self.assertIn("--shape tiny", done.stderr)

    def test_auto_says_that_it_fell_to_the_host(self):
        small = [one for one in SMALL if one not in ("--device", "host")]
        done = subprocess.run([os.path.join(BINARIES, "kvr"), "bench", "decode", *small, "--concurrency", "1"],
                              env=self.environment, capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("no GPU answers", done.stdout)
        self.assertRegex(done.stderr, r"(?m)^fill 1/\d+$")

    def test_an_interrupted_run_claims_nothing(self):
        long = [*SMALL, "--concurrency", "2"]
        long[long.index("--max-tokens") + 1] = "1000000"
        process = subprocess.Popen([os.path.join(BINARIES, "kvr"), "bench", "decode", *long], env=self.environment,
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for line in process.stderr:
            if "requests" in line:  # it is told every five seconds
                break
        process.send_signal(signal.SIGTERM)
        out, err = process.communicate(timeout=PATIENCE)
        self.assertEqual(process.returncode, 130, out + err)
        self.assertIn("interrupted", err)
        self.assertRegex(out, r"(?m)\| per-req~- \| p50 lat=- \| p99 - \|.* \| interrupted$")
        for claim in ("nan", "checked"):
            self.assertNotIn(claim, out)

    def test_what_is_said_twice_is_refused(self):
        w8, s3, ctas = "mla_sparse_decode/w8", "mla_sparse_decode/s3", "mla_sparse_decode/TARGET_CTAS"
        for arguments, said in (
            (["--ab", w8, "--ab", s3], "is said twice"),
            (["--ab", w8 + "{TARGET_CTAS=256}", "--ab", ctas + "=512"], "is said twice"),
            (["--variant", w8, "--variant", s3], "is said twice"),
            (["--set", ctas + "=256", "--set", ctas + "=512"], "is said twice"),
            (["--concurrency", "2,2"], "is said twice"),
            (["--concurrency", "1,,2"], "between two commas"),
            (["--ab", "same", "--ab", w8], "--ab same"),
            (["--ab", "moe_decode/K0=2"], "has no tunable 'K0'"),
            (["--ab", "mla_sparse_decode/baseline"], "B is A: nothing differs"),
            (["--ab", "moe_decode/oea"], "--approximate"),
            (["--ab", "/nope.json"], "cannot read /nope.json"),
            (["--ab", ctas + "=7"], "--ab mla_sparse_decode/TARGET_CTAS=7: 7 is no value"),
            (["--set", w8], "as in moe_decode/"),
        ):
            concurrency = [] if "--concurrency" in arguments else ["--concurrency", "1"]
            done = self.decode(*concurrency, *arguments, code=2)
            self.assertIn(said, done.stderr, arguments)
            self.assertNotIn("agg=", done.stdout)

    def test_approximate_results_are_called_so_with_the_command_that_checks_them(self):
        opt_in = "moe_decode/oea{K0=1,K_MAX=0,P=1000,MAX_P=0,ACROSS_GROUPS=0}"
        done = self.decode("--concurrency", "2", "--rounds", "1", "--ab", opt_in, code=None, COLUMNS="400")
        for value in ("K0=1", "K_MAX=0", "P=1000", "MAX_P=0", "ACROSS_GROUPS=0"):
            self.assertRegex(done.stdout, rf"approximate, moe_decode/oea{{.*\b{value}\b")
        remark = done.stdout.index("B's results are approximate")
        self.assertLess(remark, done.stdout.index("B against A:"))
        command = re.search(r"`(kvr verify [^`]*)`", done.stdout[remark:])[1]
        checked = subprocess.run(["bash", "-c", command], env=self.environment, capture_output=True, text=True,
                                 check=False)
        self.assertEqual(checked.returncode, 0, command + checked.stdout + checked.stderr)

    def test_wrong_input_says_what_would_be_right(self):
        for arguments, said in (
            (["--shape", "gpt"], "tiny"),
            (["--concurrency", "0"], "1 to 512"),
            (["--axes", "topk=4"], "moe_decode/"),
            (["--axes", "moe_decode/top_k=9"], "top_k"),
            (["--ab", "w8"], "as in h200.json"),
            (["--variant", "mla_sparse_decode/w9"], "'w8'"),
            (["--set", "mla_sparse_decode/BLOCK_H=17"], "legal values"),
            (["--selections", "nowhere.json"], "nowhere.json"),
            (["--ship"], "--ab"),
            (["--ab", "same", "--sessions", "3"], "--ship"),
            (["--device", "null"], "cuda or host"),
        ):
            small = [*SMALL]
            for name in arguments[::2]:
                if name in small:
                    at = small.index(name)
                    del small[at:at + 2]
            done = subprocess.run([os.path.join(BINARIES, "kvr"), "bench", "decode", *small, *arguments],
                                  env=self.environment, capture_output=True, text=True, check=False)
            self.assertEqual(done.returncode, 2, (arguments, done.stdout + done.stderr))
            self.assertIn(said, done.stderr, arguments)
        self.assertEqual(subprocess.run([os.path.join(BINARIES, "kvr"), "bench"], env=self.environment,
                                        capture_output=True, check=False).returncode, 2)

    def test_the_page(self):
        with open(os.path.join(SOURCE, "docs/bench.md"), encoding="utf-8") as file:
            text = file.read()
        for link in re.findall(r"\]\(([^)#:]+)", text):
            self.assertTrue(os.path.exists(os.path.join(SOURCE, "docs", link)), f"a link leads nowhere: {link}")
        commands = [line for block in re.findall(r"^```sh\n(.*?)^```", text, re.M | re.S)
                    for line in block.replace("\\\n", "").splitlines()]
        self.assertGreater(len(commands), 3)
        for command in commands:
            command = command.replace("K0=5", "K0=1")  # tokens of the tiny shape have two experts
            command = re.sub(r"--(shape|concurrency) \S+", "", command)
            small = " ".join([*SMALL, "--concurrency", "2,3"] + (["--rounds", "1"] if "--ab" in command else []))
            command = command.replace("kvr bench decode", f"kvr bench decode {small}")
            done = subprocess.run(["bash", "-euo", "pipefail", "-c", command], env=self.environment, cwd=self.scratch,
                                  capture_output=True, text=True, check=False)
            self.assertEqual(done.returncode, 0, command + "\n" + done.stdout + done.stderr)
            self.assertTrue(LINE.search(done.stdout), shlex.quote(command) + done.stdout)
        help_text = self.decode("--help").stdout
        for option in re.findall(r"`(--[a-z-]+)", text):
            self.assertIn(option, help_text)


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]])
