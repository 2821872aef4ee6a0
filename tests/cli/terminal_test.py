#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What people read fits where they read it: an 80-column terminal, or 100 columns where there is none.

  terminal_test.py SOURCE_DIR BIN_DIR [unittest arguments]
"""
import fcntl
import os
import pty
import shutil
import struct
import subprocess
import sys
import tempfile
import termios
import unittest

BINARIES = sys.argv[2]
OP = "mla_sparse_decode"
SHAPE = "num_tokens=2,num_qo_heads=2,topk=10,num_pages=4,page_size=8"
OTHER = "num_tokens=4,num_qo_heads=2,topk=16,num_pages=4,page_size=8"


class Terminal(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.scratch = tempfile.mkdtemp()
        cls.selections = os.path.join(cls.scratch, "selections.json")
        cls.environment = dict(os.environ, KVR_CACHE_DIR=os.path.join(cls.scratch, "cache"),
                               KVR_LEDGER_DIR=os.path.join(cls.scratch, "ledger"))
        for name in list(cls.environment):
            if name == "COLUMNS" or name.startswith(("KVR_MLA", "KVR_FORCE", "KVR_PLUGIN", "KVR_SELECTIONS")):
                del cls.environment[name]
        # What a budget is enough for is the machine's business: here for a selection for either shape.
        for seconds in (5 << doubled for doubled in range(10)):
            done = subprocess.run([os.path.join(BINARIES, "kvr"), "tune", OP, "--device", "host", "--axes", SHAPE, "--axes",
                                   OTHER, "--budget", f"{seconds}s", "--selections", cls.selections],
                                  env=cls.environment, capture_output=True, text=True, check=False)
            if done.returncode == 0:
                break
        assert done.returncode == 0, done.stdout + done.stderr
        cls.tuned = done.stdout

    @classmethod
    def tearDownClass(cls):
        shutil.rmtree(cls.scratch)

    @classmethod
    def in_pipe(cls, *arguments, **environment):
        done = subprocess.run([os.path.join(BINARIES, "kvr"), *arguments], env=dict(cls.environment, **environment),
                              capture_output=True, text=True, check=False)
        assert done.returncode in (0, 3, 4, 5), done.stdout + done.stderr
        return done.stdout

    def in_terminal(self, columns, *arguments):
        ours, its = pty.openpty()
        fcntl.ioctl(its, termios.TIOCSWINSZ, struct.pack("HHHH", 50, columns, 0, 0))
        with open(os.path.join(self.scratch, "errors"), "w+", encoding="utf-8") as errors:
            with subprocess.Popen([os.path.join(BINARIES, "kvr"), *arguments], env=self.environment, stdout=its,
                                  stderr=errors, stdin=subprocess.DEVNULL) as running:
                os.close(its)
                output = b""
                while True:
                    try:
                        piece = os.read(ours, 65536)
                    except OSError:  # what a terminal says at its end
                        break
                    output += piece
                os.close(ours)
            errors.seek(0)
            self.assertIn(running.returncode, (0, 3, 4, 5), errors.read())
        return output.decode().replace("\r\n", "\n")

    COMMANDS = (
        ("list",),
        ("run", OP, "--device", "host", "--axes", SHAPE, "--axes", OTHER, "--selections", "SELECTIONS"),
        ("verify", OP, "--device", "host", "--axes", SHAPE, "--axes", OTHER),
        ("verify", "moe_decode", "--device", "host", "--axes", "num_tokens=2"),
        ("why", OP, "--axes", SHAPE, "--selections", "SELECTIONS"),
        ("explain", OP, "--profile", "h200", "--axes", "num_tokens=64", "--variant", "baseline", "--variant", "w8"),
        ("compile", OP, "--target", "host"),
        ("cache", "ls"),
        ("ledger", "ls"),
        ("doctor",),
        ("config",),
    )

    def assert_fits(self, text, columns):
        for line in text.split("\n"):
            wide = len(line) > columns
            # A path or a digest has no place to be broken at.
            self.assertFalse(wide and len(line.split()) > 1, f"{len(line)} columns of {columns}: {line}")

    def test_everything_fits_a_terminal(self):
        for command in self.COMMANDS:
            command = [self.selections if word == "SELECTIONS" else word for word in command]
            with self.subTest(" ".join(command[:2])):
                self.assert_fits(self.in_terminal(80, *command), 80)

    def test_everything_fits_100_columns_where_there_is_no_terminal(self):
        self.assert_fits(self.tuned, 100)
        for command in self.COMMANDS:
            command = [self.selections if word == "SELECTIONS" else word for word in command]
            with self.subTest(" ".join(command[:2])):
                self.assert_fits(self.in_pipe(*command), 100)

    def test_columns_says_how_wide_a_pipe_is_and_nothing_is_cut_off(self):
        narrow = self.in_pipe("cache", "ls", COLUMNS="76")
        wide = self.in_pipe("cache", "ls", COLUMNS="500")
        self.assert_fits(narrow, 76)
        self.assertNotIn("…", narrow)
        self.assertIn(f"{OP}/baseline {{BLOCK_H=", wide)
        for piece in (f"{OP}/", "BLOCK_H=", "WARPS=4}"):
            self.assertIn(piece, narrow)

    def test_what_all_rows_share_is_said_once(self):
        verified = self.in_pipe("verify", OP, "--device", "host", "--axes", SHAPE, "--axes", OTHER)
        self.assertEqual(verified.split("\n")[0], f"{OP} at num_pages=4,num_qo_heads=2,page_size=8")
        self.assertEqual(verified.count("num_pages=4"), 1)
        self.assertIn("num_tokens=4,topk=16", verified)
        compiled = self.in_pipe("compile", OP, "--target", "host")
        self.assertEqual(compiled.split("\n")[0], f"{OP} for host")

    def test_explain_says_in_a_line_why_registers_are_unknown(self):
        explained = self.in_pipe("explain", OP, "--profile", "h200", KVR_CUDA_HOME="/nowhere", COLUMNS="1000")
        after = explained.split("registers are unknown, so occupancy counts none: ")
        self.assertEqual(len(after), 2, explained)
        self.assertEqual(after[1].count("\n"), 1)


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]])
