#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""kvr ab and kvr noise as scripts see them, on the host device: exit codes, JSON, the ledger. What a
verdict is depends on the machine's load, so no test asks for one.

  ab_test.py SOURCE_DIR BIN_DIR [unittest arguments]
"""
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import unittest

SOURCE, BINARIES = sys.argv[1:3]
OP = "mla_sparse_decode"
SMALL = "num_tokens=2,num_qo_heads=2,topk=8,page_size=8,num_pages=2"
FAULTY = os.path.join(SOURCE, "tests/tuner/faulty")
CODES = {"WIN": 0, "EQUIVALENT": 3, "LOSS": 4, "INCONCLUSIVE": 5, "INVALID": 6}


class Ab(unittest.TestCase):
    def setUp(self):
        self.ledger = tempfile.mkdtemp(dir=self.scratch)
        self.environment = dict(self.base, KVR_LEDGER_DIR=self.ledger)

    @classmethod
    def setUpClass(cls):
        cls.scratch = tempfile.mkdtemp()
        cls.base = {name: value for name, value in os.environ.items() if not name.startswith("KVR_")}
        cls.base["KVR_CACHE_DIR"] = os.path.join(cls.scratch, "cache")

    @classmethod
    def tearDownClass(cls):
        shutil.rmtree(cls.scratch)

    def kvr(self, *arguments, code=None):
        done = subprocess.run([os.path.join(BINARIES, "kvr"), *arguments], env=self.environment, capture_output=True,
                              text=True, check=False)
        if code is not None:
            self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        return done

    def ab(self, *arguments, incumbent="baseline", challenger="baseline", code=None):
        return self.kvr("ab", OP, "--device", "host", "--incumbent", incumbent, "--challenger", challenger,
                        "--axes", SMALL, *arguments, code=code)

    def report(self, *arguments, **options):
        done = self.ab(*arguments, "--json", **options)
        report = json.loads(done.stdout)
        self.assertEqual(done.returncode, CODES[report["verdict"]], done.stdout)
        return report

    def noise(self, *arguments, code=0):
        return self.kvr("noise", OP, "--device", "host", "--axes", SMALL, "--sessions", "2", "--rounds", "4", *arguments,
                        code=code)

    def test_a_variant_against_itself_is_measured_and_concluded(self):
        done = self.ab("--rounds", "8")
        self.assertIn(done.returncode, CODES.values())
        self.assertIn("difference (95 %)", done.stdout)
        self.assertIn("noise band", done.stdout)
        self.assertRegex(done.stdout.splitlines()[-1], r"^baseline against baseline: [A-Z]+; .*\.$")

    def test_json_has_the_samples_and_where_they_come_from(self):
        other = SMALL.replace("num_tokens=2", "num_tokens=1")
        report = self.report("--axes", other, "--rounds", "12", challenger="w8{TARGET_CTAS=512}")
        self.assertEqual(report["challenger"]["config"]["TARGET_CTAS"], 512)
        self.assertEqual(report["device"]["kind"], "host")
        self.assertEqual(report["mode"], "graph cold")
        self.assertEqual([shape["axes"]["num_tokens"] for shape in report["shapes"]], [2, 1])
        for shape in report["shapes"]:
            (session,) = shape["sessions"]
            self.assertEqual(len(session["incumbent_us"]), shape["rounds"])
            self.assertEqual(len(session["challenger_us"]), shape["rounds"])
            self.assertEqual(shape["band"]["sessions"], 3)
            self.assertTrue(shape["band"]["fresh"])
            self.assertLessEqual({"interval", "difference", "verdict", "reason"}, set(shape))

    def test_a_ship_verdict_has_a_process_for_each_session(self):
        report = self.report("--ship", "--sessions", "2", "--rounds", "4", challenger="w8")
        (shape,) = report["shapes"]
        self.assertEqual(report["kind"], "ship")
        self.assertEqual([len(session["incumbent_us"]) for session in shape["sessions"]], [4, 4])
        self.assertEqual(shape["rounds"], 8)
        self.assertEqual(report["respawns"], 0)

    def test_a_contestant_that_is_wrong_is_named_and_nothing_is_decided(self):
        for mode, what in (("1", "INCORRECT_NUMERICAL"), ("3", "RUNTIME_ERROR")):
            wrong = "faulty{MODE=" + mode + "}"
            report = self.report("--plugins", FAULTY, challenger=wrong)
            self.assertEqual(report["verdict"], "INVALID")
            self.assertIn("challenger " + wrong + ": " + what, report["shapes"][0]["reason"])
            self.assertEqual(report["shapes"][0]["sessions"], [])
        done = self.ab("--plugins", FAULTY, "--ship", incumbent="faulty{MODE=1}", code=6)
        self.assertIn("incumbent faulty{MODE=1}: INCORRECT_NUMERICAL", done.stdout)

    def test_wrong_input_says_what_would_be_right(self):
        self.assertIn("'w8'", self.ab(challenger="w9", code=2).stderr)
        self.assertIn("as in", self.ab(challenger="w8{TARGET_CTAS=512", code=2).stderr)
        self.assertIn("512", self.ab(challenger="w8{TARGET_CTAS=513}", code=2).stderr)
        self.assertIn("60s", self.ab("--budget", "60", code=2).stderr)
        self.assertIn("graph", self.ab("--mode", "warm", code=2).stderr)
        self.assertIn("--ship", self.ab("--sessions", "4", code=2).stderr)
        self.kvr("ab", OP, "--incumbent", "baseline", code=2)
        self.assertIn("w8", self.noise("--variant", "w9", code=2).stderr)

    def test_a_band_is_stored_and_the_next_comparison_says_that_it_uses_it(self):
        done = self.noise()
        self.assertIn("stored in the ledger", done.stdout)
        self.assertNotIn("no noise band", self.ab("--rounds", "8").stderr)
        band = self.report("--rounds", "8")["shapes"][0]["band"]
        self.assertEqual((band["sessions"], band["rounds"], band["fresh"]), (2, 4, False))
        self.assertIn("no noise band is stored", self.ab("--rounds", "8", "--mode", "eager").stderr)

    def test_a_band_is_of_its_bucket(self):
        done = self.noise("--json", "--axes", SMALL.replace("topk=8", "topk=7"))
        (band,) = json.loads(done.stdout)["bands"]
        self.assertEqual(band["axes"]["topk"], 8)
        self.assertTrue(band["of_bucket"])
        self.assertEqual([axes["topk"] for axes in band["asked"]], [8, 7])
        self.assertEqual(len(band["session_medians"]), 2)
        self.assertEqual([len(session["incumbent_us"]) for session in band["samples"]], [4, 4])

    def test_without_a_ledger_nothing_is_kept(self):
        self.assertIn("not stored", self.noise("--ledger", "none").stdout)
        self.assertEqual(os.listdir(self.ledger), [])

    def test_a_budget_that_is_used_up_decides_nothing(self):
        report = self.report("--budget", "1ms")
        self.assertEqual(report["verdict"], "INCONCLUSIVE")
        self.assertTrue(report["out_of_time"])
        self.assertIn("stopped", report["shapes"][0]["reason"])

    def test_an_interruption_reports_what_was_finished(self):
        command = [os.path.join(BINARIES, "kvr"), "ab", OP, "--device", "host", "--incumbent", "baseline", "--challenger",
                   "baseline", "--axes", SMALL, "--ship", "--sessions", "5000"]
        with subprocess.Popen(command, env=self.environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                              text=True) as process:
            for line in process.stderr:
                if line.startswith("measure"):
                    break
            process.send_signal(signal.SIGINT)
            out, _ = process.communicate()
        self.assertEqual(process.returncode, 130)
        self.assertIn("of 5000 sessions", out)
        self.assertIn("INCONCLUSIVE; do not ship.", out.splitlines()[-1])

    def test_help_has_the_exit_codes(self):
        for command, words in (("ab", "4 it loses"), ("noise", "6 there is no band")):
            self.assertIn(words, self.kvr(command, "--help", code=0).stdout)


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]])
