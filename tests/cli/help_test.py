#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What --help prints: it fits, nothing of it is lost, and its example can be copied into a shell.

  help_test.py BIN_DIR [unittest arguments]
"""
import os
import re
import shlex
import subprocess
import sys
import unittest

BINARIES = sys.argv[1]


def help_of(command, columns):
    done = subprocess.run([os.path.join(BINARIES, "kvr"), *command, "--help"], capture_output=True, check=True,
                          env=dict(os.environ, COLUMNS=str(columns)))
    return done.stdout.decode("ascii")


def commands(*group):
    """Every command below `group` that takes --help, itself included."""
    yield group
    below = help_of(group, 100).partition("\nSubcommands:\n")[2].partition("\n\n")[0]
    for name in re.findall(r"^  ([a-z]+)  ", below, re.M):
        yield from commands(*group, name)


def example_of(command, columns):
    return help_of(command, columns).partition("\nExample:\n")[2].partition("\n\n")[0]


def words_of(text):
    return shlex.split(text.replace("\\\n", ""))  # as a shell takes a backslash at a line's end


class Help(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.commands = list(commands())

    def test_every_command_is_looked_at(self):
        for command in (("tune",), ("bench", "decode"), ("cache", "export"), ("selections", "digest")):
            self.assertIn(command, self.commands)

    def test_it_fits(self):
        for command in self.commands:
            for columns in (100, 80):
                for line in help_of(command, columns).split("\n"):
                    self.assertLessEqual(len(line), columns, line)

    def test_a_wide_terminal_gets_lines_that_can_be_read(self):
        self.assertEqual(help_of(("ab",), 400), help_of(("ab",), 100))

    def test_nothing_is_cut_off(self):
        for command in self.commands:
            with self.subTest(" ".join(command)):
                words = [word for word in help_of(command, 80).split() if word != "\\"]
                self.assertEqual(words, [word for word in help_of(command, 100).split() if word != "\\"])

    def test_an_example_is_one_command_of_a_shell(self):
        for command in self.commands[1:]:
            with self.subTest(" ".join(command)):
                wide, narrow = example_of(command, 100), example_of(command, 60)
                self.assertEqual(words_of(wide)[:1 + len(command)], ["kvr", *command])
                self.assertEqual(words_of(narrow), words_of(wide))
                lines = narrow.split("\n")
                self.assertTrue(all(line.endswith(" \\") for line in lines[:-1]), narrow)
                self.assertFalse(lines[-1].endswith("\\"), narrow)


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[2:]])
