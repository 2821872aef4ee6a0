#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""kvr report: the files it writes, what it says when the ledger has nothing.

  report_test.py SOURCE_DIR BIN_DIR [unittest arguments]
"""
import json
import os
import shutil
import subprocess
import sys
import tempfile
import unittest

SOURCE, BINARIES = sys.argv[1:3]
OP = "mla_sparse_decode"
CAMPAIGN = os.path.join(SOURCE, "tests/tuner/ledger/campaign.jsonl")


class Report(unittest.TestCase):
    def setUp(self):
        self.scratch = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, self.scratch)
        self.ledger = os.path.join(self.scratch, "ledger")

    def kvr(self, *arguments, code=0, stdin=None):
        done = subprocess.run([os.path.join(BINARIES, "kvr"), *arguments, "--ledger", self.ledger], input=stdin,
                              capture_output=True, text=True, check=False,
                              env=dict(os.environ, KVR_CACHE_DIR=os.path.join(self.scratch, "cache")))
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        return done

    def test_without_a_ledger_it_says_what_to_do(self):
        self.assertIn("measure something first", self.kvr("report", OP, code=1).stderr)
        self.assertFalse(os.path.exists(self.ledger))

    def test_it_writes_both_files_and_names_them(self):
        self.kvr("ledger", "import", CAMPAIGN)
        prefix = os.path.join(self.scratch, "campaign")
        self.assertEqual(self.kvr("report", OP, "--out", prefix, "--why", "Is <w8> & s3 worth it?").stdout,
                         f"{prefix}.md\n{prefix}.html\n")
        with open(prefix + ".md", encoding="utf-8") as file:
            self.assertIn("w8 {TARGET_CTAS=512} lost to baseline", file.read())
        with open(prefix + ".html", encoding="utf-8") as file:
            self.assertIn("Is &lt;w8&gt; &amp; s3 worth it?", file.read())
        files = json.loads(self.kvr("report", OP, "--out", prefix, "--json").stdout)["files"]
        self.assertEqual(files, [prefix + ".md", prefix + ".html"])
        self.assertTrue(self.kvr("report", OP).stdout.startswith("# mla_sparse_decode\n"))

    def test_what_the_ledger_lacks_is_exit_code_1_and_what_nobody_knows_2(self):
        self.kvr("ledger", "import", CAMPAIGN)
        self.assertIn("--ledger", self.kvr("report", OP, "--ship", "--axes", "num_tokens=3", code=1).stderr)
        self.assertIn("did you mean", self.kvr("report", "mla_sparse_decod", code=2).stderr)
        self.assertIn("is no time", self.kvr("report", OP, "--since", "yesterday", code=2).stderr)
        self.assertIn("num_tokens", self.kvr("report", OP, "--axes", "num_token=3", code=2).stderr)
        self.assertIn("unknown variant 'w9'", self.kvr("report", OP, "--variant", "w9", code=2).stderr)

    def test_it_makes_no_directories(self):
        self.kvr("ledger", "import", CAMPAIGN)
        for prefix in ("missing/x", ".", "missing/"):
            self.assertIn("--out", self.kvr("report", OP, "--out", os.path.join(self.scratch, prefix, ""), code=2).stderr)
        self.assertIn("--out", self.kvr("report", OP, "--out", os.path.join(self.scratch, "missing/x"), code=2).stderr)
        self.assertFalse(os.path.exists(os.path.join(self.scratch, "missing")))


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]])
