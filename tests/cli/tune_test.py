#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""kvr tune beside others and under kill -9: one ledger, one cache, one selection file.

  tune_test.py SOURCE_DIR BIN_DIR [unittest arguments]
"""
import itertools
import json
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
import unittest

SOURCE, BINARIES = sys.argv[1:3]
OP = "mla_sparse_decode"
SMALL = "num_tokens=2,num_qo_heads=2,topk=8,page_size=8,num_pages=2"
TABLES = ("builds", "trials", "verdicts", "bands", "publications")


class Tune(unittest.TestCase):
    def setUp(self):
        self.scratch = tempfile.mkdtemp()
        self.ledger = os.path.join(self.scratch, "ledger")
        self.selections = os.path.join(self.scratch, "selections.json")
        self.environment = dict(os.environ, KVR_CACHE_DIR=os.path.join(self.scratch, "cache"))
        for name in list(self.environment):
            if name.startswith(("KVR_MLA", "KVR_FORCE", "KVR_PLUGIN", "KVR_SELECTIONS", "KVR_LEDGER")):
                del self.environment[name]

    def tearDown(self):
        shutil.rmtree(self.scratch)

    def start(self, *arguments, axes=(SMALL,)):
        shapes = [word for shape in axes for word in ("--axes", shape)]
        return subprocess.Popen([os.path.join(BINARIES, "kvr"), "tune", OP, "--device", "host", "--variant", "w8",
                                 "--ledger", self.ledger, "--selections", self.selections, *shapes, *arguments],
                                env=self.environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def finish(self, process, codes=(0,)):
        out, err = process.communicate()
        self.assertIn(process.returncode, codes, out + err)
        return out, err

    def rows(self):
        """uid → table of everything in the ledger, which must be whole."""
        database = sqlite3.connect(f"file:{self.ledger}/ledger.db?mode=ro", uri=True, timeout=10)
        self.assertEqual(database.execute("PRAGMA integrity_check").fetchone()[0], "ok")
        found = {uid: table for table in TABLES for uid, in database.execute(f"SELECT uid FROM {table}")}
        database.close()
        return found

    def test_two_at_once_lose_nothing(self):
        # One key in common, one each.
        both = [self.start("--json", axes=(SMALL, SMALL.replace("topk=8", topk))) for topk in ("topk=4", "topk=2")]
        reports = []
        for process in both:
            out, _ = self.finish(process, codes=(0, 1))
            reports.append(json.loads(out))
        for report in reports:
            self.assertEqual(report["ledger_trouble"], "")
            self.assertEqual(len(report["selections"]), 2)
            for selection in report["selections"]:
                self.assertTrue(selection["variant"])
                # Beaten to it by the other, with a config that was not its incumbent: said, not overwritten.
                self.assertTrue(selection["published"] or "since" in selection["note"] or
                                "INVALID" in selection["note"] or "keeps" in selection["note"], selection)
        tables = list(self.rows().values())
        self.assertEqual(tables.count("publications"), 4)
        self.assertGreaterEqual(tables.count("verdicts"), 4)
        with open(self.selections, encoding="utf-8") as file:
            selected = json.load(file)["ops"][OP]["selections"]
        published = {s["key"]["topk"] for r in reports for s in r["selections"] if s["published"]}
        self.assertEqual({s["key"]["topk"] for s in selected}, published)

    def test_what_was_finished_survives_kill_nine(self):
        for attempt in itertools.count():  # one that ends before it is killed shows nothing
            self.ledger = os.path.join(self.scratch, f"ledger {attempt}")
            killed, before = self.start(), {}
            while "trials" not in before.values() and killed.poll() is None:
                time.sleep(0.05)
                if os.path.exists(os.path.join(self.ledger, "ledger.db")):
                    try:
                        before = self.rows()
                    except sqlite3.OperationalError:  # its tables are being made
                        before = {}
            killed.send_signal(signal.SIGKILL)
            self.finish(killed, codes=(0, -signal.SIGKILL))
            if killed.returncode != 0:
                break
        self.assertIn("trials", before.values())
        self.assertIn("builds", before.values())
        after = self.rows()
        self.assertLessEqual(before.items(), after.items())
        self.finish(self.start())
        self.assertLessEqual(after.items(), self.rows().items())

    def test_what_was_rejected_is_skipped_and_retested_when_asked(self):
        self.finish(self.start())
        out, err = self.finish(self.start())
        report = json.loads(self.finish(self.start("--json"))[0])
        if report["rejected"]:  # whoever was slower, which no test knows
            self.assertIn("--retest measures", out)
            self.assertIn("rejected here before", err)
        self.assertEqual(json.loads(self.finish(self.start("--retest", "--json"))[0])["rejected"], [])

    def test_a_budget_is_kept_and_what_it_cut_is_said(self):
        report = json.loads(self.finish(self.start("--budget", "1ms", "--json"), codes=(1,))[0])
        self.assertIn("no time to build", report["cut"][0])
        for wrong in ("sixty", "-3s", "0s", "inf"):
            self.assertIn("--budget", self.finish(self.start("--budget", wrong), codes=(2,))[1])


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]])
