#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What is stated by hand and fits no shape that was asked for, and the device that `kvr why` is asked about.

  stated_test.py BIN_DIR
"""
import json
import os
import subprocess
import sys
import tempfile
import unittest

BIN = sys.argv.pop(1)


def opt_in(k0):
    return f"oea{{ACROSS_GROUPS=0,K0={k0},K_MAX=0,MAX_P=0,P=1000}}"


class Stated(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.environment = {name: value for name, value in os.environ.items() if not name.startswith("KVR_")}
        self.environment.update(KVR_CACHE_DIR=os.path.join(scratch.name, "cache"),
                                KVR_LEDGER_DIR=os.path.join(scratch.name, "ledger"))

    def kvr(self, *arguments, code):
        done = subprocess.run([os.path.join(BIN, "kvr"), *arguments], env=self.environment, capture_output=True,
                              text=True, check=False)
        self.assertEqual(done.returncode, code, (arguments, done.stdout, done.stderr))
        return done

    def test_an_opt_in_that_no_shape_admits_is_wrong_input_wherever_it_is_given(self):
        sides = ("--incumbent", "topk", "--challenger", "oea")
        for command in (("verify",), ("tune",), ("run",), ("run", "--variant", "oea"), ("ab", *sides), ("why",)):
            device = ("--device", "host") if command[0] != "why" else ()
            done = self.kvr(command[0], "moe_decode", *command[1:], *device, "--axes", "num_tokens=2,top_k=4",
                            "--approximate", opt_in(9), code=2)
            self.assertIn("K0 <= if(K_MAX > 0, K_MAX, top_k)", done.stderr)
            self.assertIn("not met by top_k=4", done.stderr)
            self.assertEqual(done.stdout, "")

    def test_one_shape_that_admits_it_is_enough(self):
        self.kvr("why", "moe_decode", "--axes", "top_k=4", "--axes", "top_k=16", "--approximate", opt_in(9), code=0)
        self.kvr("why", "moe_decode", "--axes", "top_k=4", "--approximate", opt_in(4), code=0)

    def test_a_contestant_that_no_shape_admits_is_wrong_input(self):
        done = self.kvr("ab", "moe_decode", "--device", "host", "--incumbent", "topk", "--challenger",
                        "oea{K0=4,K_MAX=8}", "--axes", "num_tokens=2,top_k=4", "--approximate",
                        "oea{ACROSS_GROUPS=0,K0=4,K_MAX=8,MAX_P=0,P=1000}", code=2)
        self.assertIn("K_MAX <= top_k", done.stderr)

    def test_pins_that_contradict_each_other_are_wrong_input(self):
        done = self.kvr("verify", "mla_sparse_decode_fp8", "--device", "host", "--variant", "cluster", "--set",
                        "STAGES=4,TILE=32", code=2)
        self.assertIn("STAGES * TILE >= 192", done.stderr)
        self.assertIn("not met at any shape", done.stderr)

    def test_why_takes_a_device_as_its_neighbours_do(self):
        self.kvr("tune", "null", "--device", "host", code=0)
        told = json.loads(self.kvr("why", "null", "--device", "host", "--json", code=0).stdout)
        self.assertGreater(told["measured"]["median_us"], 0)
        model = told["device_model"]
        self.assertEqual(json.loads(self.kvr("why", "null", "--model", model, "--json", code=0).stdout), told)
        other = self.kvr("why", "null", "--device", "null", code=2)
        self.assertIn("device model", other.stderr)
        self.assertIn(model, other.stderr)
        both = self.kvr("why", "null", "--device", "host", "--model", model, code=2)
        self.assertIn("--model", both.stderr)
        self.kvr("why", "null", "--device", "nonsense", code=2)


if __name__ == "__main__":
    unittest.main()
