#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The start benchmark from end to end, on the host device.

  start_test.py BIN_DIR
"""
import json
import os
import subprocess
import sys
import tempfile
import unittest

BIN = sys.argv.pop(1)


def run_bench(*arguments):
    return subprocess.run([os.path.join(BIN, "kvr-start-bench"), *arguments], capture_output=True, text=True,
                          check=False)


class StartBench(unittest.TestCase):
    def test_every_variant_of_the_host_is_launched_from_a_cold_and_a_warm_cache(self):
        with tempfile.TemporaryDirectory() as directory:
            done = run_bench("--device", "host", "--rounds", "1", "--threads", "2", "--out", directory)
            self.assertEqual(done.returncode, 0, done.stderr)
            with open(os.path.join(directory, "start.json"), encoding="utf-8") as file:
                document = json.load(file)
        listed = subprocess.run([os.path.join(BIN, "kvr"), "list", "--json"], capture_output=True, text=True, check=True)
        for_host = [(op["name"], variant["name"]) for op in json.loads(listed.stdout)["ops"]
                    for variant in op["variants"] if "host" in variant["targets"]]
        self.assertEqual([(each["op"], each["variant"]) for each in document["set"]], for_host)
        rows = {row["row"]: row for row in document["rows"]}
        self.assertEqual(list(rows), ["cold start", "warm start", "boot", "compile, 2 threads"])
        for name in ("cold start", "warm start", "boot"):
            stamps = [rows[name]["stamps"][stamp] for stamp in ("main", "opened", "loaded", "launched")]
            self.assertEqual(stamps, sorted(stamps))
            self.assertLessEqual(rows[name]["low"], rows[name]["ms"])
            self.assertLessEqual(rows[name]["ms"], rows[name]["high"])
        self.assertEqual(len(document["hits"]), len({each["key"] for each in document["set"]}))
        self.assertEqual(document["environment"]["device"], "KVR host")
        self.assertIn("cold start", done.stdout)

    def test_a_wrong_command_line_is_one_line_and_exit_code_2(self):
        for arguments in (["--nope"], ["--rounds", "0"], ["--device", "host", "--target", "sm_90a"],
                          ["--device", "nonsense"]):
            done = run_bench(*arguments)
            self.assertEqual(done.returncode, 2, done.stderr)
            self.assertTrue(done.stderr.startswith("kvr-start-bench: "), done.stderr)

    def test_a_device_that_is_not_there_is_said(self):
        done = run_bench("--device", "cuda:77", "--rounds", "1")
        self.assertEqual(done.returncode, 1)
        self.assertEqual(done.stdout, "")
        self.assertIn("cuda", done.stderr)


if __name__ == "__main__":
    unittest.main()
