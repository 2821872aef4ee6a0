#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The kernel benchmark from end to end, on the host device and tiny shapes.

  kernels_test.py BIN_DIR SOURCE_DIR
"""
import json
import os
import subprocess
import sys
import tempfile
import time
import unittest
import xml.etree.ElementTree

BIN, SOURCE = sys.argv.pop(1), sys.argv.pop(1)


class KernelsBench(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.temporary = tempfile.TemporaryDirectory()
        cls.environment = dict(os.environ, KVR_CACHE_DIR=os.path.join(cls.temporary.name, "cache"))

    @classmethod
    def tearDownClass(cls):
        cls.temporary.cleanup()

    def run_bench(self, *arguments, fails=False):
        done = subprocess.run([os.path.join(BIN, "kvr-kernels-bench"), *arguments, "--device", "host"],
                              capture_output=True, text=True, env=self.environment, check=False)
        self.assertEqual(done.returncode != 0, fails, done.stdout + done.stderr)
        return done

    def out(self, name):
        return os.path.join(self.temporary.name, name)

    def load(self, name):
        with open(self.out(name), encoding="utf-8") as file:
            return json.load(file)

    def test_decode_shapes_are_measured_beside_their_gather(self):
        # Of wide no shape is, and the host has none of it: it is left out.
        done = self.run_bench("mla_sparse_decode", "--quick", "--rounds", "4", "--variant", "baseline",
                              "--variant", "w8", "--variant", "wide", "--out", self.out("decode"))
        document = self.load("decode/mla_sparse_decode.json")
        self.assertEqual([row["num_tokens"] for row in document["rows"]], [1, 1, 2, 2])
        self.assertEqual({row["variant"] for row in document["rows"]}, {"baseline", "w8"})
        for row in document["rows"]:
            self.assertGreater(row["us"], 0)
            self.assertGreater(row["gather_us"], 0)
            self.assertEqual(row["rounds"], 4)
            self.assertEqual(row["config_from"], "default")
            self.assertEqual([seed % 2 for seed in row["seeds"]], [0, 0])
        self.assertEqual(sum("aa" in row for row in document["rows"]), 2)
        self.assertEqual(document["environment"]["device"], "KVR host")
        self.assertIn("gather us", done.stdout)
        xml.etree.ElementTree.parse(self.out("decode/mla_sparse_decode-h2-k10.svg"))

        explained = subprocess.run(
            [os.path.join(BIN, "kvr"), "explain", "mla_sparse_decode", "--device", "host", "--json", "--axes",
             "num_tokens=2,topk=10,num_qo_heads=2", "--measured", self.out("decode/mla_sparse_decode.json")],
            capture_output=True, text=True, env=self.environment, check=False)
        self.assertEqual(explained.returncode, 0, explained.stderr)
        measured = json.loads(explained.stdout)["measured"]
        rows = [row for row in document["rows"] if row["num_tokens"] == 2]
        self.assertEqual(measured["roofline_us"], rows[0]["gather_us"])
        self.assertEqual(measured["fastest_us"], min(row["us"] for row in rows))
        self.assertEqual(measured["variants_us"], {row["variant"]: row["us"] for row in rows})
        self.assertEqual(measured["axes"]["num_pages"], 4)  # explain's own is another: it is told

    def test_roofline_kernels_are_verified_like_any_other(self):
        for op, axes in (("roofline_gather", "num_tokens=3,topk=37,groups=10,num_pages=8"),
                         ("roofline_gather", "num_tokens=2,topk=5,groups=2,num_pages=2,token_bytes=1152,side_bytes=128"),
                         ("roofline_gather", "num_tokens=1,topk=1,groups=1,num_pages=1,token_bytes=656,side_bytes=0"),
                         ("roofline_stream", "num_blocks=3,block_chunks=5"), ("roofline_stream", "num_blocks=0")):
            done = subprocess.run(
                [os.path.join(BIN, "kvr"), "verify", op, "--plugins", os.path.join(BIN, "../lib/kvr/rooflines"),
                 "--device", "host", "--all", "--axes", axes], capture_output=True, text=True,
                env=self.environment, check=False)
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def test_the_race_picks_configs_and_experts_are_counted(self):
        self.run_bench("moe_decode", "--quick", "--tune", "--only", "num_tokens=1", "--rounds", "4",
                       "--variant", "topk", "--out", self.out("moe"))
        self.run_bench("moe_decode", "--quick", "--only", "num_tokens=3", "--rounds", "4", "--append",
                       "--variant", "topk", "--out", self.out("moe"))
        tuned, default = self.load("moe/moe_decode.json")["rows"]
        self.assertEqual((tuned["shape"], tuned["num_tokens"], tuned["active_experts"]), ("tiny", 1, 2))
        self.assertEqual((tuned["config_from"], tuned["selected"]), ("tune", True))
        self.assertGreater(tuned["configs_raced"], 10)
        self.assertGreater(tuned["stream_us"], 0)
        self.assertEqual((default["config_from"], default["selected"]), ("default", False))
        self.assertLessEqual(default["active_experts"], 6)
        # The tables of docs/performance.md come from such a document.
        tables = subprocess.run([sys.executable, os.path.join(SOURCE, "bench/kernel_tables.py"),
                                 self.out("moe/moe_decode.json")], capture_output=True, text=True, check=False)
        self.assertEqual(tables.returncode, 0, tables.stderr)
        self.assertIn("tiny:", tables.stdout)
        self.assertRegex(tables.stdout, r"(?m)^\| 3 \| ")

    def test_too_little_time_costs_configs_and_rounds_and_no_shape(self):
        done = self.run_bench("moe_decode", "--quick", "--tune", "--budget", "0.001", "--rounds", "8",
                              "--variant", "topk", "--out", self.out("short"))
        self.assertIn("cut short: 4 of 8 rounds were taken", done.stderr)
        self.assertIn("(cut short)", done.stdout)
        document = self.load("short/moe_decode.json")
        self.assertEqual([row["num_tokens"] for row in document["rows"]], [1, 3])
        for row in document["rows"]:
            self.assertEqual(row["rounds"], 4)
            self.assertRegex(" ".join(row["cut_short"]), r"of \d+ configs \d+ were ready")
        self.assertIn("no time to build it", json.dumps(document["left_out"]))

    def test_approximate_rows_are_tabled_with_their_quality(self):
        self.run_bench("moe_decode_fp8", "--quick", "--only", "seq_len=3", "--rounds", "4", "--variant", "topk",
                       "--approximate", "oea{ACROSS_GROUPS=0,K0=2,K_MAX=0,MAX_P=0,P=1000}", "--out", self.out("oea"))
        tables = subprocess.run([sys.executable, os.path.join(SOURCE, "bench/kernel_tables.py"),
                                 self.out("oea/moe_decode_fp8.json")], capture_output=True, text=True, check=False)
        self.assertEqual(tables.returncode, 0, tables.stderr)
        self.assertRegex(tables.stdout, r"(?m)^\| 3 \| oea \{.*K0=2.*\} \| .* of topk \| ")

    def test_what_was_finished_outlives_its_end(self):
        running = subprocess.Popen([os.path.join(BIN, "kvr-kernels-bench"), "moe_decode", "--quick", "--rounds", "4",
                                    "--variant", "topk", "--device", "host", "--out", self.out("killed")],
                                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=self.environment)
        while not os.path.exists(self.out("killed/moe_decode.json")):
            self.assertIsNone(running.poll() or None, "it failed before its first shape")
            time.sleep(0.02)
        running.kill()
        running.wait()
        with open(self.out("killed/moe_decode.json"), encoding="utf-8") as file:
            self.assertGreaterEqual(len(json.load(file)["rows"]), 1)

    def test_a_wrong_command_line_is_one_line_and_exit_code_2(self):
        for arguments in (["moe_decode", "--nope"], ["moe_decode", "--rounds", "x"], ["null"],
                          ["moe_decode", "--quick", "--model", "nope"],
                          ["moe_decode", "--quick", "--out", "/proc/none"], ["moe_decode", "--quick", "--budget", "0"],
                          # Legal values that fit none of the shapes: their top_k is 2.
                          ["moe_decode", "--quick", "--out", self.out("unfit"), "--approximate",
                           "oea{ACROSS_GROUPS=0,K0=3,K_MAX=0,MAX_P=0,P=1000}"]):
            done = self.run_bench(*arguments, fails=True)
            self.assertEqual(done.returncode, 2, done.stderr)
            self.assertTrue(done.stderr.startswith("kvr-kernels-bench: "), done.stderr)

    def test_what_cannot_be_asked_for_is_refused_with_a_way_out(self):
        self.assertIn("moe_decode", self.run_bench("null", fails=True).stderr)
        self.assertIn("--only", self.run_bench("moe_decode", "--quick", "--only", "num_tokens=9",
                                               fails=True).stderr)


if __name__ == "__main__":
    unittest.main()
