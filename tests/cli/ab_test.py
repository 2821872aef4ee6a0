#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""kvr ab and kvr noise as scripts see them, on the host device: exit codes, JSON, the ledger. What a
verdict is depends on the machine's load, so no test asks for one.

  ab_test.py SOURCE_DIR BIN_DIR [unittest arguments]
"""
import json
import math
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import unittest

SOURCE, BINARIES = sys.argv[1:3]
OP = "mla_sparse_decode"
SMALL = "num_tokens=2,num_qo_heads=2,topk=8,page_size=8,num_pages=2"
FAULTY = os.path.join(SOURCE, "tests/tuner/faulty")
CODES = {"WIN": 0, "SHIP": 0, "EQUIVALENT": 3, "LOSS": 4, "INCONCLUSIVE": 5, "INVALID": 6}


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
        return self.kvr("noise", OP, "--device", "host", "--axes", SMALL, "--sessions", "3", "--rounds", "8", *arguments,
                        code=code)

    def test_a_variant_against_itself_is_measured_and_concluded(self):
        done = self.ab("--rounds", "8")
        self.assertIn(done.returncode, CODES.values())
        self.assertIn("difference (95 %)", done.stdout)
        self.assertIn("noise band", done.stdout)
        self.assertEqual(done.stdout.count("drift is not judged"), 1)
        self.assertNotIn("too few to be cold", done.stdout)
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
            # of time, as the text has it: no log ratio
            ratios = [b / a for a, b in zip(session["incumbent_us"], session["challenger_us"])]
            least, most = min(ratios) - 1, max(ratios) - 1
            middle = statistics.median(math.log(ratio) for ratio in ratios)
            self.assertAlmostEqual(shape["difference"], math.expm1(middle), 9)
            self.assertAlmostEqual(session["difference"], math.expm1(middle), 9)
            for end in shape["interval"]:
                self.assertTrue(end is None or least - 1e-9 <= end <= most + 1e-9, shape["interval"])

    def test_a_ship_verdict_has_a_process_for_each_session(self):
        report = self.report("--ship", "--sessions", "2", "--rounds", "4", challenger="w8")
        (shape,) = report["shapes"]
        self.assertEqual(report["kind"], "ship")
        self.assertEqual([len(session["incumbent_us"]) for session in shape["sessions"]], [4, 4])
        self.assertEqual(shape["rounds"], 8)
        self.assertEqual(report["respawns"], 0)
        self.assertFalse(report["ship"])
        self.assertIn(report["verdict"], ("LOSS", "INCONCLUSIVE"))
        if report["verdict"] == "INCONCLUSIVE":
            self.assertEqual(shape["reason"], "2 of 16 sessions: too few to ship")

    def test_where_nothing_is_launched_there_is_nothing_to_measure(self):
        empty = ["--device", "host", "--axes", SMALL.replace("num_tokens=2", "num_tokens=0")]
        sides = ["--incumbent", "baseline", "--challenger", "w8"]
        for arguments in (["ab", OP, *empty, *sides], ["ab", OP, *empty, *sides, "--ship"], ["noise", OP, *empty]):
            done = self.kvr(*arguments, code=6)
            self.assertIn("nothing is launched at this shape", " ".join(done.stdout.split()))
        self.assertIn("not stored", done.stdout)

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
        self.assertIn("must be more than 0", self.ab("--budget", "0s", code=2).stderr)
        few = ["noise", OP, "--device", "host", "--axes", SMALL]
        self.assertIn("not in range 3 to", self.kvr(*few, "--sessions", "2", code=2).stderr)
        self.assertIn("not in range 8 to", self.kvr(*few, "--rounds", "7", code=2).stderr)
        self.assertIn("graph", self.ab("--mode", "warm", code=2).stderr)
        self.assertIn("--ship", self.ab("--sessions", "4", code=2).stderr)
        self.kvr("ab", OP, "--incumbent", "baseline", code=2)
        self.assertIn("w8", self.noise("--variant", "w9", code=2).stderr)

    def test_a_band_is_stored_and_the_next_comparison_says_that_it_uses_it(self):
        done = self.noise()
        self.assertIn("stored in the ledger", done.stdout)
        self.assertRegex(done.stdout, r"sessions +least +their medians +most")
        self.assertRegex(done.stdout, r"[+-]\d+\.\d\d % +[·▁▂▃▄▅▆▇█]+ +[+-]\d+\.\d\d %")
        self.assertNotIn("no noise band", self.ab("--rounds", "8").stderr)
        band = self.report("--rounds", "8")["shapes"][0]["band"]
        self.assertEqual((band["sessions"], band["rounds"], band["fresh"]), (3, 8, False))
        note = self.ab("--rounds", "8", "--mode", "eager").stderr
        self.assertIn("no noise band is stored", note)
        self.assertRegex(note, "`kvr noise " + OP + " --axes [a-z_=,0-9]+ --mode eager,cold --device host` measures")

    def test_a_band_is_of_its_bucket(self):
        done = self.noise("--json", "--axes", SMALL.replace("topk=8", "topk=7"))
        (band,) = json.loads(done.stdout)["bands"]
        self.assertEqual(band["axes"]["topk"], 8)
        self.assertTrue(band["of_bucket"])
        self.assertEqual([axes["topk"] for axes in band["asked"]], [8, 7])
        self.assertEqual(len(band["session_medians"]), 3)
        self.assertEqual([len(session["incumbent_us"]) for session in band["samples"]], [8, 8, 8])

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

    def test_progress_counts_no_steps_before_it_knows_how_many(self):
        done = self.kvr("tune", OP, "--device", "host", "--axes", SMALL, "--variant", "baseline", "--set", "BLOCK_T=16",
                        "--set", "WARPS=4", code=0)
        self.assertIn("measure ", done.stderr)
        self.assertNotIn("0/0", done.stderr)

    def test_help_has_the_exit_codes(self):
        for command, words in (("ab", "--ship: SHIP"), ("ab", "4 LOSS"), ("ab", "Over several shapes: LOSS where any is"),
                               ("noise", "6 there is no band")):
            self.assertIn(words, " ".join(self.kvr(command, "--help", code=0).stdout.split()))


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]])
