#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What a plugin's code does wrong ends as a named error of the kvr that is installed, never as its crash.

  plugin_test.py BIN_DIR PLUGIN [unittest arguments]
"""
import os
import subprocess
import sys
import tempfile
import unittest

BINARIES, PLUGIN = sys.argv[1:3]


class Plugin(unittest.TestCase):
    def verify(self, fault):
        with tempfile.TemporaryDirectory() as scratch:
            done = subprocess.run(
                [os.path.join(BINARIES, "kvr"), "verify", "scale_rows", "--device", "host", "--plugins", PLUGIN],
                env=dict(os.environ, KVR_CACHE_DIR=scratch, TMPDIR=scratch, KVR_TEST_FAULT=fault),
                capture_output=True, text=True, check=False)
            left = [name for name in os.listdir(scratch) if name.startswith("kvr-")]
        self.assertEqual(left, [])
        self.assertGreaterEqual(done.returncode, 1, done.stdout + done.stderr)  # and no signal
        self.assertLessEqual(done.returncode, 2, done.stdout + done.stderr)
        self.assertIn(PLUGIN, done.stdout + done.stderr)
        return done.stdout + done.stderr

    def test_exceptions_are_caught_across_the_library_s_edge(self):
        self.assertIn("the generate function of operation scale_rows throws: no luck", self.verify("throw"))
        self.assertIn("throws: an exception of its own", self.verify("throw int"))
        self.assertIn("throws from kvr_plugin_v1", self.verify("entry throws"))

    def test_what_crashes_when_tried_is_refused_and_no_worker_is_given_it(self):
        self.assertIn("crashes when it is loaded: killed by SIGABRT", self.verify("abort"))
        self.assertIn("crashes while calling the plan function of scale_rows/planned: killed by SIGABRT",
                      self.verify("plan aborts"))

    def test_a_worker_that_dies_says_of_what(self):
        self.assertIn("killed by SIGABRT (Aborted) while generating inputs of operation scale_rows of plugin",
                      self.verify("generate aborts"))


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]])
