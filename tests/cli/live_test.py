#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""kvr status, swap, rollback and ab --live against a server on the host device. What a verdict is depends on
the machine's load, so no test asks for one.

  live_test.py SOURCE_DIR BIN_DIR [unittest arguments]
"""
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import unittest

SOURCE, BINARIES = sys.argv[1:3]
OP = "mla_sparse_decode"
OTHER = "baseline{BLOCK_H=16}"
PATIENCE = 1800  # seconds; the end of what hangs, and of nothing else
CODES = {"WIN": 0, "SHIP": 0, "EQUIVALENT": 3, "LOSS": 4, "INCONCLUSIVE": 5, "INVALID": 6}


class Live(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.cache = tempfile.mkdtemp()

    @classmethod
    def tearDownClass(cls):
        shutil.rmtree(cls.cache)

    def setUp(self):
        self.scratch = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, self.scratch)
        self.environment = {name: value for name, value in os.environ.items() if not name.startswith("KVR_")}
        self.environment.update(KVR_NO_CUDA="1", KVR_CACHE_DIR=self.cache, KVR_LEDGER_DIR="none")
        self.socket = os.path.join(self.scratch, "s")
        self.journal = os.path.join(self.scratch, "journal")

    def serve(self, *arguments, **environment):
        server = subprocess.Popen(
            [os.path.join(BINARIES, "kvr-serve"), "--device", "host", "--layers", "1", "--buckets", "1,2", "--topk",
             "16", "--pages", "2", "--heads", "2", "--socket", self.socket, "--journal", self.journal, *arguments],
            env=dict(self.environment, **environment), cwd=self.scratch, stdout=subprocess.PIPE, text=True)
        self.addCleanup(server.wait)
        self.addCleanup(server.stdout.close)
        self.addCleanup(server.kill)
        self.assertIn("serving", server.stdout.readline())
        return server

    def end(self, server):
        server.send_signal(signal.SIGINT)
        output, _ = server.communicate(timeout=PATIENCE)
        self.assertEqual(server.returncode, 0, output)
        self.assertIn(" 0 errors", output)

    def kvr(self, *arguments, code=0):
        done = subprocess.run([os.path.join(BINARIES, "kvr"), *arguments], env=self.environment, cwd=self.scratch,
                              capture_output=True, text=True, timeout=PATIENCE, check=False)
        if code is not None:
            self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        return done

    def status(self):
        return json.loads(self.kvr("status", self.socket, "--json").stdout)

    def digest(self):
        return self.status()["generation"]["digest"]

    def selections(self, name, config):
        """A selection file that the server's own generation makes after a swap."""
        self.kvr("swap", self.socket, OP, config)
        done = self.raw({"command": "status", "selections": True})
        path = os.path.join(self.scratch, name)
        with open(path, "w", encoding="utf-8") as file:
            json.dump(done["selections"], file)
        self.kvr("rollback", self.socket)
        return path

    def raw(self, request):
        with socket.socket(socket.AF_UNIX) as peer:
            peer.connect(self.socket)
            peer.sendall(json.dumps(request).encode() + b"\n")
            return json.loads(peer.makefile().readline())

    def test_swap_status_and_rollback(self):
        server = self.serve()
        before = self.digest()
        done = self.kvr("swap", self.socket, OP, OTHER, "--canary")
        self.assertRegex(done.stdout, r"published \w{12} in place of " + before[:12])
        self.assertIn("BLOCK_H=16", done.stdout)
        self.assertIn("published in", " ".join(done.stdout.split()))
        for line in done.stdout.splitlines():  # configs are long; a word of it has commas to be broken at
            self.assertLessEqual(len(line), 100, line)
        status = self.status()
        after = status["generation"]["digest"]
        self.assertNotEqual(after, before)
        self.assertTrue(all(served["config"]["BLOCK_H"] == 16 for served in status["served"]))
        self.assertEqual(status["publications"][0]["after"], after)
        self.assertIn(f"uid {os.getuid()}", status["publications"][0]["who"])
        self.assertEqual(status["swaps"][0]["state"], "published")
        self.assertIn("unchanged", self.kvr("swap", self.socket, OP, OTHER).stdout)
        self.assertRegex(self.kvr("rollback", self.socket).stdout, "published " + before[:12])
        self.assertRegex(self.kvr("rollback", self.socket, after[:10]).stdout, "published " + after[:12])
        self.kvr("rollback", self.socket, "baseline")
        self.assertEqual(self.status()["generation"]["number"], 0)
        text = self.kvr("status", self.socket).stdout
        for said in ("kvr-serve (pid ", OP, "overrides: none", "misses: 0", "steps: ", "rollback", "published"):
            self.assertIn(said, text)
        self.end(server)
        self.kvr("status", self.socket, code=2)

    def test_what_cannot_be_swapped_is_said_and_the_old_serves_on(self):
        self.serve()
        before = self.digest()
        for arguments, code, said in (
            ((OP, "nobody"), 1, "nobody"),
            (("no_such_op", "w8"), 1, "no_such_op"),
            ((OP, "baseline{BLOCK_H=17}"), 1, "BLOCK_H"),
            (("--selection", "nowhere.json"), 1, "nowhere.json"),
            ((OP,), 2, "without its variant"),
            ((), 2, "nothing is named"),
            ((OP, "w8", "--bundle", "."), 2, "one thing"),
            (("--bundle", ".", "--key", "topk=8"), 2, "--key"),
            ((OP, "w8", "--key", "topk"), 2, "topk"),
        ):
            done = self.kvr("swap", self.socket, *arguments, code=code)
            self.assertIn(said, done.stderr, arguments)
        refused = self.kvr("rollback", self.socket, "abcdef0123", code=1).stderr
        self.assertIn("the rollback failed", refused)
        self.assertIn("abcdef0123", refused)
        self.assertEqual(self.digest(), before)
        self.kvr("swap", os.path.join(self.scratch, "nobody"), OP, "w8", code=2)

    @unittest.skipUnless(os.geteuid() == 0, "only root can be somebody else")
    def test_another_user_is_not_answered_even_where_the_mode_lets_him_in(self):
        server = self.serve()
        os.chmod(self.scratch, 0o755)
        os.chmod(self.socket, 0o666)
        for user, answered in ((65534, False), (0, True)):
            os.seteuid(user)
            try:
                with socket.socket(socket.AF_UNIX) as peer:
                    peer.connect(self.socket)
                    peer.sendall(b'{"command": "status"}\n')
                    answer = peer.recv(100)
            except (ConnectionResetError, BrokenPipeError):
                answer = b""
            finally:
                os.seteuid(0)
            self.assertEqual(b"status" in answer, answered, answer)
        self.end(server)

    def test_status_against_a_selection_file_is_the_deployed_state(self):
        self.serve()
        path = self.selections("other.json", OTHER)
        done = self.kvr("status", self.socket, "--against", path, code=1)
        self.assertIn("not as", done.stdout)
        self.assertIn("digest", done.stdout)
        self.kvr("swap", self.socket, "--selection", path)
        self.assertIn("as " + path + " selects", self.kvr("status", self.socket, "--against", path).stdout)
        report = json.loads(self.kvr("status", self.socket, "--against", path, "--json").stdout)
        self.assertTrue(report["against"]["matches"])
        self.kvr("swap", self.socket, OP, "baseline{BLOCK_H=32}")
        done = self.kvr("status", self.socket, "--against", path, code=1)
        self.assertRegex(" ".join(done.stdout.split()), r"BLOCK_H=32.* serves .*the file selects .*BLOCK_H=16")
        self.kvr("status", self.socket, "--against", "nowhere.json", code=2)

    def test_an_override_is_no_deployed_state(self):
        first = self.serve()
        path = self.selections("other.json", OTHER)
        self.end(first)
        self.serve("--selections", path, KVR_MLA_SPARSE_DECODE_BLOCK_H="32")
        done = self.kvr("status", self.socket, "--against", path, code=1)
        self.assertIn("overridden (", done.stdout)
        self.assertIn("KVR_MLA_SPARSE_DECODE_BLOCK_H", done.stdout)

    def test_a_live_comparison_leaves_what_it_found(self):
        server = self.serve()
        self.kvr("swap", self.socket, OP, OTHER)
        before = self.digest()
        other = self.selections("third.json", "baseline{BLOCK_H=32}")
        for sides in (("baseline",), ("current",), ("current", OP + "/baseline{MIN_CHUNK=16}"), ("baseline", other)):
            done = self.kvr("ab", "--live", self.socket, *sides, "--block", "8", "--warmup", "1", "--rounds", "8",
                            "--json", code=None)
            report = json.loads(done.stdout)
            self.assertEqual(done.returncode, CODES[report["verdict"]], done.stderr)
            self.assertTrue(report["restored"])
            self.assertEqual(report["serving"], before)
            self.assertEqual([bucket["bucket"] for bucket in report["buckets"]], ["1", "2"])
            self.assertEqual(report["errors"], [0, 0])
            self.assertEqual(report["a"]["digest"] == report["b"]["digest"], sides == ("current",))
            self.assertEqual(self.digest(), before)
        text = self.kvr("ab", "--live", self.socket, "baseline", "--block", "8", "--rounds", "8", "--budget", "1h",
                        code=None).stdout
        self.assertIn("difference (95 %)", text)
        self.assertIn(before[:12], text)
        self.end(server)
        with open(self.journal, encoding="utf-8") as file:
            records = [json.loads(line) for line in file]
        starts = [record for record in records if "live A/B starts" in record["reason"]]
        ends = [record for record in records if "live A/B ended" in record["reason"]]
        self.assertEqual((len(starts), len(ends)), (5, 5))

    def test_ctrl_c_ends_a_live_comparison_and_restores(self):
        self.serve()
        self.kvr("swap", self.socket, OP, OTHER)
        before = self.digest()
        client = subprocess.Popen(
            [os.path.join(BINARIES, "kvr"), "ab", "--live", self.socket, "baseline", "--ship", "--sessions", "1000"],
            env=self.environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.assertIn("alternates", client.stderr.readline())
        self.assertIn("current against baseline", self.status()["live_ab"])
        refused = self.kvr("swap", self.socket, OP, "w8", code=1)
        self.assertIn("a live A/B runs", refused.stderr)
        client.send_signal(signal.SIGINT)
        output, errors = client.communicate(timeout=PATIENCE)
        self.assertEqual(client.returncode, 130, output + errors)
        self.assertIn("waiting for this step to end", errors)
        self.assertEqual(self.digest(), before)

    def test_what_live_compares_is_checked(self):
        for arguments, said in (
            (("--live", self.socket, "baseline"), "s"),
            (("--live", self.socket), "not said"),
            (("--live", self.socket, "nonsense"), "no digest"),
            (("--block", "8", OP), "--live"),
            (("--live", self.socket, "baseline", "--axes", "num_tokens=1"), "--axes"),
            (("--live", self.socket, "baseline", "--incumbent", "w8"), "--incumbent"),
            (("--live", self.socket, "baseline", "--device", "host"), "--device"),
            ((OP,), "--incumbent"),
            (("--live", self.socket, "baseline", "--sessions", "3"), "--ship"),
        ):
            self.assertIn(said, self.kvr("ab", *arguments, code=2).stderr, arguments)


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]])
