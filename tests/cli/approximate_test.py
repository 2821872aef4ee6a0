#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Approximate variants on the command line: the opt-in, and quality beside speed wherever it is told.

  approximate_test.py BIN_DIR PLUGIN [unittest arguments]
"""
import json
import os
import shutil
import subprocess
import sys
import tempfile
import unittest

BINARIES, PLUGIN = sys.argv[1:3]
OP = "scale_rows"
SHAPE = "rows=4,width=64"
OPT_IN = "coarse{GRAINS=4,FLOOR=0}"


class Approximate(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.scratch = tempfile.mkdtemp()
        cls.environment = {name: value for name, value in os.environ.items() if not name.startswith("KVR_")}
        cls.environment["KVR_CACHE_DIR"] = os.path.join(cls.scratch, "cache")
        cls.environment["KVR_LEDGER_DIR"] = os.path.join(cls.scratch, "ledger")
        cls.environment["COLUMNS"] = "100"

    @classmethod
    def tearDownClass(cls):
        shutil.rmtree(cls.scratch)

    def kvr(self, command, *arguments, code=0):
        codes = (code,) if isinstance(code, int) else code
        done = subprocess.run([os.path.join(BINARIES, "kvr"), command, OP, "--plugins", PLUGIN, *arguments],
                              env=self.environment, capture_output=True, text=True, check=False)
        self.assertIn(done.returncode, codes, done.stdout + done.stderr)
        return done

    def on_host(self, command, *arguments, code=0):
        return self.kvr(command, "--device", "host", "--axes", SHAPE, *arguments, code=code)

    def test_verify_tells_how_far_it_is_from_exact(self):
        done = self.on_host("verify", "--variant", "exact", "--variant", "coarse", "--variant", "broken", code=1)
        self.assertIn("off exact", done.stdout.splitlines()[1])
        self.assertRegex(done.stdout, r"quality of coarse \(default\) at rows=4,width=64|quality of coarse \(default\)")
        self.assertIn("rows_changed 1", done.stdout)
        self.assertRegex(done.stdout, r"broken .*INCORRECT_NUMERICAL")
        exact = self.on_host("verify", "--variant", "exact")
        self.assertNotIn("off exact", exact.stdout)
        results = json.loads(self.on_host("verify", "--json", "--variant", "coarse", "--approximate", OPT_IN).stdout)
        result = results["results"][0]
        self.assertEqual(result["config"]["GRAINS"], 4)
        self.assertEqual(set(result["quality"]), {"y.cosine_difference", "y.relative_error", "rows_changed", "zeros"})

    def test_an_opt_in_must_say_everything(self):
        for command in ("verify", "tune", "run"):
            done = self.on_host(command, "--approximate", "coarse{GRAINS=4}", code=2)
            self.assertIn("say 'scale_rows/coarse{FLOOR=0,GRAINS=4}'", done.stderr)
        done = self.on_host("tune", "--approximate", "moe/coarse{GRAINS=4,FLOOR=0}", code=2)
        self.assertIn("is not about scale_rows", done.stderr)

    def test_tune_compares_with_it_and_the_ledger_keeps_both(self):
        plain = self.on_host("tune")
        self.assertIn("--approximate 'scale_rows/coarse{FLOOR=0,GRAINS=8}'", plain.stdout.replace("\n  ", " "))
        done = self.on_host("tune", "--variant", "exact", "--variant", "coarse", "--approximate", OPT_IN)
        self.assertIn("off exact", done.stdout)
        self.assertIn("quality of coarse at", done.stdout)
        self.assertIn("off exact", self.kvr_ledger("ls", "--variant", "coarse"))
        why = json.loads(self.kvr("why", "--axes", SHAPE, "--json").stdout)
        told = [other["quality"] for other in why["runners_up"] if other["config"].startswith("coarse")]
        if why["variant"] == "coarse":
            told.append(why["measured"]["quality"])
        self.assertTrue(told and all("y.relative_error=" in quality for quality in told), why)

    def kvr_ledger(self, *arguments):
        done = subprocess.run([os.path.join(BINARIES, "kvr"), "ledger", *arguments, "--limit", "0"],
                              env=self.environment, capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        return done.stdout

    def test_ab_tells_quality_and_so_does_its_report(self):
        sides = ("--incumbent", "exact", "--challenger", "coarse", "--rounds", "8")
        refused = self.on_host("ab", *sides, code=2)
        self.assertIn("nobody opted in to it", refused.stderr)
        done = self.on_host("ab", *sides, "--approximate", OPT_IN, code=(0, 3, 4, 5, 6))
        self.assertIn("quality of coarse{GRAINS=4}: y.cosine_difference", done.stdout.replace("\n", " "))
        verdicts = self.kvr_ledger("ls", "--kind", "verdict", "--op", OP, "--plugins", PLUGIN)
        self.assertIn("coarse {FLOOR=0,GRAINS=4} against exact", verdicts)
        prefix = os.path.join(self.scratch, "report")
        self.kvr("report", "--out", prefix)
        with open(prefix + ".md", encoding="utf-8") as file:
            self.assertRegex(file.read(), r"against the exact result(.|\n)*y\.relative_error 0\.")
        with open(prefix + ".html", encoding="utf-8") as file:
            self.assertIn("against the exact result: y.cosine_difference", file.read())
        rows = json.loads(self.kvr("report", "--json", "--out", prefix).stdout)["rows"]
        self.assertTrue(any("y.relative_error 0." in row["quality"] for row in rows), rows)

    def test_run_serves_it_with_consent(self):
        refused = self.on_host("run", "--variant", "coarse", code=2)
        self.assertIn("--approximate 'scale_rows/coarse{FLOOR=0,GRAINS=8}'", refused.stderr)
        served = json.loads(self.on_host("run", "--json", "--variant", "coarse", "--approximate", OPT_IN).stdout)
        self.assertEqual(served["results"][0]["variant"], "coarse")
        self.assertEqual(served["results"][0]["config"]["GRAINS"], 4)
        self.assertEqual(served["results"][0]["status"], "PASSED")
        self.assertGreater(served["results"][0]["quality"]["y.relative_error"], 0)

    def test_what_is_set_by_hand_must_agree_with_the_opt_in(self):
        refused = self.on_host("run", "--variant", "coarse", "--set", "GRAINS=2", code=2)
        self.assertIn("--approximate 'scale_rows/coarse{FLOOR=0,GRAINS=2}'", refused.stderr)
        by_set = ("--variant", "coarse", "--approximate", OPT_IN, "--set")
        refused = self.on_host("run", *by_set, "GRAINS=2", code=2)
        self.assertIn("--set sets GRAINS=2", refused.stderr)
        self.assertIn("the opt-in is to 'scale_rows/coarse{FLOOR=0,GRAINS=4}'", refused.stderr)
        agrees = json.loads(self.on_host("run", "--json", *by_set, "GRAINS=4").stdout)
        self.assertEqual(agrees["results"][0]["config"]["GRAINS"], 4)
        self.environment["KVR_SCALE_ROWS_GRAINS"] = "2"
        self.addCleanup(self.environment.pop, "KVR_SCALE_ROWS_GRAINS")
        refused = self.on_host("run", *by_set[:-1], code=2)
        self.assertIn("KVR_SCALE_ROWS_GRAINS sets GRAINS=2", refused.stderr)

    def test_a_swap_states_each_value_once_and_all_of_them(self):
        nobody = os.path.join(self.scratch, "nobody.sock")

        def swap(variant, approximate):
            done = subprocess.run([os.path.join(BINARIES, "kvr"), "swap", nobody, OP, variant, "--plugins", PLUGIN,
                                   "--approximate", approximate],
                                  env=self.environment, capture_output=True, text=True, check=False)
            self.assertNotEqual(done.returncode, 0)
            return done.stderr

        self.assertIn("'coarse{GRAINS=2}' has GRAINS=2, and --approximate '" + OPT_IN + "' has GRAINS=4",
                      swap("coarse{GRAINS=2}", OPT_IN))
        self.assertIn("nobody.sock", swap("coarse{GRAINS=4}", OPT_IN))
        self.assertIn("say 'scale_rows/coarse{FLOOR=0,GRAINS=4}'", swap("coarse", "coarse{GRAINS=4}"))
        self.assertIn("is exact", swap("exact", "exact{}"))


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]])
