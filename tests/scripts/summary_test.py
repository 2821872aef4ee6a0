#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The quick start's table, from made-up reports.

  summary_test.py SOURCE_DIR
"""
import json
import os
import subprocess
import sys
import tempfile
import unittest

SOURCE = sys.argv.pop(1)


def binary(variant, **fields):
    return {"variant": variant, "target": "sm_90a", "status": "PASSED", "registers": 128, "smem_static": 1024,
            "smem_dynamic": 2048, "spill_bytes": 0, "cache": "miss", **fields}


class SummaryTest(unittest.TestCase):
    def summary(self, binaries, results=(), skipped=(), selections=({"variant": "fast", "key": {"n": 8}, "median_us": 5},)):
        with tempfile.TemporaryDirectory() as scratch:
            arguments = []
            for option, prefix, report in (("--compile", "", {"binaries": binaries}),
                                           ("--verify", "host=", {"results": results, "skipped": skipped}),
                                           ("--tune", "", {"selections": selections})):
                path = os.path.join(scratch, option.strip("-"))
                with open(path, "w", encoding="utf-8") as file:
                    json.dump(report, file, default=list)
                arguments += [option, prefix + path]
            done = subprocess.run([sys.executable, os.path.join(SOURCE, "scripts/summary.py"), *arguments],
                                  capture_output=True, text=True, check=False)
        return done.returncode, done.stdout

    def test_says_what_a_binary_uses_as_far_as_it_is_known(self):
        code, text = self.summary([binary("fast"), binary("odd", smem_dynamic=None, spill_bytes=48),
                                   binary("cubin", spill_bytes=None)])
        self.assertEqual(code, 0)
        rows = {line.split()[0]: line for line in text.splitlines() if line.strip()}
        self.assertIn("128 regs, 3.0 KiB  ", rows["fast"])
        self.assertIn("128 regs, 48 B spilled", rows["odd"])
        self.assertIn("128 regs, 3.0 KiB", rows["cubin"])
        self.assertIn("n=8 at 5.0 us", rows["fast"])

    def test_gives_the_reason_of_what_was_skipped_below_the_table(self):
        reason = "its blocks write each other's shared memory, " * 4 + "and more"
        code, text = self.summary([binary("fast")], [{"variant": "fast", "status": "PASSED"}],
                                  [{"variant": "wide", "reason": reason}])
        self.assertEqual(code, 0)
        self.assertIn(reason, " ".join(text.split()))
        self.assertIn("wide skipped on host: its", text)
        self.assertLessEqual(max(map(len, text.splitlines())), 100)

    def test_fails_where_something_failed_or_nothing_was_selected(self):
        code, text = self.summary([binary("fast", status="COMPILE_ERROR")])
        self.assertEqual(code, 1)
        self.assertIn("1 failed, 1 selected", text)
        self.assertEqual(self.summary([binary("fast")], selections=())[0], 1)


if __name__ == "__main__":
    unittest.main()
