#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What is installed runs from any path, needs glibc 2.36 and libgcc_s and nothing else, and holds what plugins need.

  install_test.py SOURCE_DIR BUILD_DIR CMAKE [unittest arguments]
"""
import fcntl
import json
import os
import pty
import re
import shlex
import shutil
import stat
import struct
import subprocess
import sys
import tarfile
import tempfile
import termios
import unittest

SOURCE, BUILD, CMAKE = sys.argv[1:4]
OP = "mla_sparse_decode"
NEWEST = {"GLIBC": (2, 36), "GCC": (4, 2, 0)}  # libgcc_s of GCC 4.2 had all
SYSTEM = {"libc.so.6", "libm.so.6", "libdl.so.2", "libpthread.so.0", "librt.so.1", "ld-linux-x86-64.so.2",
          "libgcc_s.so.1"}
MOST_BYTES = 25 * 1000 * 1000
PLUGIN = """#include "kvr_plugin.h"
int abi(void) { return KVR_ABI_MAJOR; }
"""
PROGRAM = """#include <kvr.h>
#include <stdio.h>
int main(void) {
  kvr_options options = {.struct_size = sizeof options, .device = "null", .journal = "none"};
  kvr_runtime* kvr = NULL;
  char* report = NULL;
  int failed = kvr_open(&options, &kvr) || kvr_scan(kvr, &report);
  puts(failed ? kvr_last_error() : report);
  kvr_free(report);
  return failed || kvr_close(kvr);
}
"""
PYTHON = """import json, os, kvr
with kvr.Runtime("null", journal="none") as rt:
    os.chdir("/")
    print(json.dumps(rt.scan()))
"""
PROJECT = """cmake_minimum_required(VERSION 3.25)
project(outside C)
find_package(KVR {version} REQUIRED)
if(NOT EXISTS "${{KVR_DEVICE_HEADERS}}/kvr/device.cuh" OR NOT COMMAND kvr_add_plugin)
  message(FATAL_ERROR "incomplete")
endif()
add_library(outside MODULE outside.c)
target_link_libraries(outside PRIVATE kvr::plugin_sdk)
add_executable(program program.c)
target_link_libraries(program PRIVATE kvr::kvr)
"""


def run(*command, code=0, **options):
    done = subprocess.run(command, capture_output=True, encoding="utf-8", errors="surrogateescape", check=False,
                          **options)  # pkg-config escapes each byte of a character
    if done.returncode != code:
        raise AssertionError(f"exit {done.returncode}: {command}\n{done.stdout}{done.stderr}")
    return done.stdout


def install(component, prefix):
    run(CMAKE, "--install", BUILD, "--component", component, "--prefix", prefix, "--strip")


def files(prefix):
    for directory, _, names in os.walk(prefix):
        for name in names:
            yield os.path.join(directory, name)


def is_elf(path):
    with open(path, "rb") as file:
        return file.read(4) == b"\x7fELF"


class Install(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.scratch = tempfile.mkdtemp()
        cls.prefix = os.path.join(cls.scratch, "kvr mit Zwischenräumen é")
        install("kvr", cls.prefix)

    @classmethod
    def tearDownClass(cls):
        shutil.rmtree(cls.scratch)

    def kvr(self, *arguments, prefix=None, code=0, **environment):
        """The installed kvr with nothing in its environment but a home."""
        home = os.path.join(self.scratch, "home")
        os.makedirs(home, exist_ok=True)
        return run(os.path.join(prefix or self.prefix, "bin/kvr"), *arguments, code=code, cwd="/",
                   env=dict(environment, HOME=home))

    def copy(self, name):
        prefix = os.path.join(self.scratch, name)
        shutil.copytree(self.prefix, prefix, symlinks=True)
        return prefix

    def expect_whole(self, prefix):
        doctor = json.loads(self.kvr("doctor", "--json", prefix=prefix))
        found = {component["name"]: component for component in doctor["components"]}
        for name in ("variants", "device headers", "profiles", "worker", "cache"):
            self.assertEqual(found[name]["state"], "ready", found[name])
        for name in ("device headers", "worker"):
            self.assertTrue(found[name]["found"].startswith(prefix + "/"), found[name])
        variants = [variant["name"] for op in json.loads(self.kvr("list", "--json", prefix=prefix))["ops"]
                    for variant in op["variants"]]
        self.assertLessEqual({"baseline", "w8", "s3"}, set(variants))
        config = json.loads(self.kvr("config", "--json", prefix=prefix))
        self.assertEqual(config["prefix"].rstrip("/"), prefix)

    def test_runs_where_it_was_installed_and_where_it_was_moved(self):
        self.expect_whole(self.prefix)
        there, moved = self.copy("there"), os.path.join(self.scratch, "ganz woanders")
        os.rename(there, moved)
        self.expect_whole(moved)

    def test_runs_through_a_symbolic_link(self):
        link = os.path.join(self.scratch, "kvr")
        os.symlink(os.path.join(self.prefix, "bin/kvr"), link)
        self.assertIn("baseline", run(link, "list", env={"HOME": self.scratch}))

    def test_doctor_says_what_is_missing_and_what_to_do(self):
        text = self.kvr("doctor", KVR_NO_CUDA="1")
        for needed in ("kvr-host", "KVR_NO_CUDA"):
            self.assertIn(needed, text)
        self.assertNotIn("broken", text)

    def test_on_a_terminal_lines_fit_80_columns(self):
        for command in ("doctor", "list", "config"):
            leader, follower = pty.openpty()
            fcntl.ioctl(follower, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
            process = subprocess.Popen([os.path.join(self.prefix, "bin/kvr"), command], stdout=follower, cwd="/",
                                       env={"HOME": self.scratch, "KVR_NO_CUDA": "1"})
            os.close(follower)
            text = b""
            try:
                while chunk := os.read(leader, 65536):
                    text += chunk
            except OSError:  # the other end is closed
                pass
            process.wait()
            os.close(leader)
            self.assertTrue(text)
            for line in text.decode().splitlines():
                if len(line) > 80:  # a word that is longer than the line is never broken
                    self.assertGreater(len(max(line.split(), key=len)), 50, line)

    @unittest.skipUnless(os.path.exists(os.path.join(BUILD, "lib/libkvr_host.so")), "built without the host device")
    def test_the_host_package_adds_the_host_device(self):
        prefix = self.copy("with host")
        before = set(files(prefix))
        install("host", prefix)
        self.assertEqual({os.path.relpath(path, prefix) for path in set(files(prefix)) - before}, {"lib/libkvr_host.so"})
        self.check_elf(os.path.join(prefix, "lib/libkvr_host.so"), prefix)
        run_ = json.loads(self.kvr("run", OP, "--device", "host", "--axes", "num_tokens=1,topk=2,num_qo_heads=1", "--json",
                                   prefix=prefix, KVR_NO_CUDA="1"))
        self.assertEqual([result["status"] for result in run_["results"]], ["PASSED"])

    @unittest.skipUnless(os.path.exists(os.path.join(BUILD, "tests/devices_cuda_gpu_test")), "GPU tests not built")
    def test_the_tests_package_runs_by_itself(self):
        prefix = self.copy("with tests")
        install("tests", prefix)
        for path in files(os.path.join(prefix, "tests")):
            if is_elf(path):
                self.check_elf(path, prefix)
        out = run(os.path.join(prefix, "tests/run.sh"), os.path.join(self.scratch, "logs"), code=77,
                  env={"PATH": os.environ["PATH"], "KVR_NO_CUDA": "1"})
        self.assertIn(" 0 failed", out)
        self.assertIn("KVR_NO_CUDA", out)

    def check_elf(self, path, prefix):
        dynamic = run("readelf", "-Wd", path)
        for library in re.findall(r"\(NEEDED\).*\[(.*)\]", dynamic):
            self.assertIn(library, SYSTEM, path)
        self.assertNotRegex(dynamic, r"RUNPATH|RPATH", path)
        versions = re.findall(r"Name: (\w+?)_([\d.]+) ", run("readelf", "-WV", path))
        for library, version in versions:
            self.assertIn(library, NEWEST, path)
            self.assertLessEqual(tuple(map(int, version.split("."))), NEWEST[library], path)
        return versions

    def test_every_binary_needs_glibc_2_36_and_libgcc_s_and_nothing_else(self):
        checked = 0
        for path in files(self.prefix):
            if is_elf(path):
                self.check_elf(path, self.prefix)
                checked += 1
        self.assertGreaterEqual(checked, 2)

    def test_nothing_knows_where_it_was_built(self):
        for path in files(self.prefix):
            with open(path, "rb") as file:
                content = file.read()
            for place in (SOURCE, BUILD):
                self.assertNotIn(place.encode() + b"/", content, path)

    def test_files_are_for_all_to_read_and_for_the_owner_to_write(self):
        for path in files(self.prefix):
            info = os.lstat(path)
            self.assertTrue(stat.S_ISREG(info.st_mode), path)
            self.assertEqual(info.st_mode & 0o066, 0o044, path)

    def test_it_is_small(self):
        archive = os.path.join(self.scratch, "kvr.tar.gz")
        with tarfile.open(archive, "w:gz", compresslevel=6) as tar:
            tar.add(self.prefix)
        print(f"{os.path.getsize(archive) / 1e6:.1f} MB compressed", file=sys.stderr)
        self.assertLess(os.path.getsize(archive), MOST_BYTES)

    def test_licences_and_reading_are_there(self):
        reading = os.path.join(self.prefix, "share/doc/kvr")
        for name in ("LICENSE", "README.md", "docs/bundles.md", "examples/embed/embed.cc",
                     "variants/mla_sparse_decode/definition.json", "variants/mla_sparse_decode/baseline/split.cu"):
            self.assertTrue(os.path.isfile(os.path.join(reading, name)), name)
        for path in files(reading):
            if not path.endswith(".md"):
                continue
            with open(path, encoding="utf-8") as file:
                for link in re.findall(r"\]\(([^)#:]+)\)", file.read()):
                    self.assertTrue(os.path.exists(os.path.join(os.path.dirname(path), link)), f"{path}: {link}")

    def expect_found_around(self, prefix, scan):
        """libkvr.so finds its own install in another's process."""
        found = {component["name"]: component for component in scan["components"]}
        self.assertEqual(found["variants"]["state"], "ready", found["variants"])
        self.assertTrue(found["device headers"]["found"].startswith(prefix + "/"), found["device headers"])
        self.assertLessEqual({OP, "null"}, {op["name"] for op in scan["ops"]})

    def test_python_finds_the_library_and_the_library_its_install(self):
        moved = self.copy("of python")
        home = os.path.join(self.scratch, "home of python")
        os.makedirs(home)
        out = run(sys.executable, "-B", "-c", PYTHON, cwd=os.path.join(moved, "share"),
                  env={"HOME": home, "PYTHONPATH": "../python", "KVR_NO_CUDA": "1"})
        self.expect_found_around(moved, json.loads(out))

    def test_a_project_outside_finds_what_plugins_and_programs_need(self):
        project = os.path.join(self.scratch, "outside")
        os.makedirs(project)
        with open(os.path.join(SOURCE, "CMakeLists.txt"), encoding="utf-8") as file:
            version = re.search(r"project\(kvr VERSION (\S+)", file.read()).group(1)
        for name, text in (("outside.c", PLUGIN), ("program.c", PROGRAM),
                           ("CMakeLists.txt", PROJECT.format(version=version))):
            with open(os.path.join(project, name), "w", encoding="utf-8") as file:
                file.write(text)
        environment = dict(os.environ, PKG_CONFIG_PATH=os.path.join(self.prefix, "lib/pkgconfig"))
        run(CMAKE, "-S", project, "-B", os.path.join(project, "build"), f"-DCMAKE_PREFIX_PATH={self.prefix}",
            env=environment)
        run(CMAKE, "--build", os.path.join(project, "build"), env=environment)
        self.expect_found_around(self.prefix, json.loads(run(os.path.join(project, "build/program"), env={
            "HOME": self.scratch, "KVR_NO_CUDA": "1"})))
        if shutil.which("pkg-config"):
            flags = shlex.split(run("pkg-config", "--cflags", f"kvr = {version}", env=environment))
            run("cc", "-std=c99", "-Wall", "-Wextra", "-Werror", "-c", os.path.join(project, "outside.c"), *flags, "-o",
                os.path.join(project, "outside.o"))
            headers = shlex.split(run("pkg-config", "--variable=device_headers", "kvr", env=environment))[0]
            self.assertTrue(os.path.isfile(os.path.join(headers, "kvr/device.cuh")), headers)

    def test_an_install_without_a_prefix_stays_in_the_build_tree(self):
        with open(os.path.join(BUILD, "CMakeCache.txt"), encoding="utf-8") as file:
            prefix = re.search(r"^CMAKE_INSTALL_PREFIX:\w+=(.*)$", file.read(), re.M).group(1)
        self.assertNotIn(prefix, ("/usr", "/usr/local", "/"))


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[4:]])
