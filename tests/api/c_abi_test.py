#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""libkvr.so exports what kvr.h declares and nothing else, needs the system's libraries alone, and kvr.py speaks the
same interface.

  c_abi_test.py SOURCE_DIR LIBKVR [unittest arguments]
"""
import ctypes
import os
import re
import subprocess
import sys
import tempfile
import unittest

sys.dont_write_bytecode = True
SOURCE, LIBRARY = sys.argv[1:3]
sys.path.insert(0, os.path.join(SOURCE, "python"))
SYSTEM = {"libc.so.6", "libm.so.6", "libdl.so.2", "libpthread.so.0", "librt.so.1", "ld-linux-x86-64.so.2",
          "libgcc_s.so.1"}


def output(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


class Abi(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        with open(os.path.join(SOURCE, "api/kvr.h"), encoding="utf-8") as file:
            cls.header = file.read()
        cls.declared = set(re.findall(r"^KVR_API [^(]*?(kvr_\w+)\(", cls.header, re.M))

    def test_the_exports_are_those_of_the_header(self):
        lines = output("nm", "-D", "--defined-only", LIBRARY).splitlines()
        self.assertEqual({line.split()[-1] for line in lines}, self.declared)
        self.assertGreater(len(self.declared), 40)

    def test_it_can_be_loaded_anywhere_and_by_programs_that_run_already(self):
        dynamic = output("readelf", "-d", LIBRARY)
        self.assertLessEqual(set(re.findall(r"NEEDED.*\[(.*)\]", dynamic)), SYSTEM)
        self.assertNotRegex(dynamic, "RPATH|RUNPATH|TEXTREL")
        self.assertRegex(dynamic, r"SONAME.*\[libkvr\.so\]")
        self.assertIn("NODELETE", dynamic)

    def test_its_thread_local_storage_is_small(self):
        # Abseil's archives ask for static storage, of which the loader keeps about 1600 bytes for all libraries that
        # come later.
        segment = re.search(r"^ +TLS +\S+ \S+ \S+ \S+ (0x[0-9a-f]+)", output("readelf", "-lW", LIBRARY), re.M)
        self.assertLess(int(segment.group(1), 16), 512)

    def test_kvr_py_calls_what_is_declared_with_as_many_arguments(self):
        import kvr
        for name, letters in kvr._FUNCTIONS.items():
            self.assertIn(name, self.declared)
            parameters = re.search(rf"^KVR_API kvr_code {name}\((.*?)\);", self.header, re.S | re.M).group(1)
            self.assertEqual(len(parameters.split(",")), len(letters), name)
        self.assertEqual((kvr.API_MAJOR, kvr.API_MINOR), tuple(
            int(re.search(rf"#define KVR_API_{part} (\d+)", self.header).group(1)) for part in ("MAJOR", "MINOR")))

    def test_kvr_py_has_the_structs_of_the_header(self):
        import kvr
        structs = {"kvr_options": kvr._Options, "kvr_capture_options": kvr._CaptureOptions,
                   "kvr_applied": kvr._Applied, "kvr_swap_options": kvr._SwapOptions, "kvr_counters": kvr._Counters,
                   "kvr_live_options": kvr._LiveOptions, "kvr_dltensor": kvr._Tensor}
        lines = []
        for name, struct in structs.items():
            lines.append(f'_Static_assert(sizeof({name}) == {ctypes.sizeof(struct)}, "{name}");')
            for field, *_ in struct._fields_:
                here = getattr(struct, field).offset
                there = {"code": "dtype_code", "bits": "dtype_bits", "lanes": "dtype_lanes"}.get(field, field)
                lines.append(f'_Static_assert(offsetof({name}, {there}) == {here}, "{name}.{there}");')
        with tempfile.TemporaryDirectory() as scratch:
            path = os.path.join(scratch, "structs.c")
            with open(path, "w", encoding="utf-8") as file:
                file.write('#include "kvr.h"\n' + "\n".join(lines))
            output("cc", "-std=c11", "-Wall", "-Werror", "-fsyntax-only", "-I", os.path.join(SOURCE, "api"), path)


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]])
