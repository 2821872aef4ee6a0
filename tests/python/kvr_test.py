#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""python/kvr.py on the host device: launches, captures, swaps, and what becomes of tensors, with no numpy at hand.

  kvr_test.py BUILD_DIR [unittest arguments]
"""
import ctypes
import gc
import os
import sys
import tempfile
import unittest

sys.dont_write_bytecode = True
BUILD = os.path.abspath(sys.argv[1])
sys.path.insert(0, os.path.join(BUILD, "python"))
import kvr  # noqa: E402  pylint: disable=wrong-import-position

_api = ctypes.pythonapi
_api.PyCapsule_New.restype = ctypes.py_object
_api.PyCapsule_New.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
# Destructors get the capsule while it dies: as a plain address, not as a new reference.
_is_valid = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_char_p)(("PyCapsule_IsValid", _api))
_pointer = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_char_p)(("PyCapsule_GetPointer", _api))
_DESTRUCTOR = ctypes.PYFUNCTYPE(None, ctypes.c_void_p)
_DELETER = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


class _Managed(ctypes.Structure):  # DLManagedTensor
    _fields_ = [("tensor", kvr._Tensor), ("context", ctypes.c_void_p), ("deleter", _DELETER)]


_exported = {}  # by address: what keeps an exported tensor alive
deleted = []  # addresses, in order


@_DELETER
def _delete(address):
    deleted.append(address)
    del _exported[address]


@_DESTRUCTOR
def _destroy_capsule(capsule):
    if _is_valid(capsule, b"dltensor"):  # nobody has consumed it
        address = _pointer(capsule, b"dltensor")
        _Managed.from_address(address).deleter(address)


class Tensor:
    """Memory of ctypes that gives itself away as numpy's and torch's do."""

    def __init__(self, shape, code=2, bits=32, device=(1, 0), strides=None):
        kind = {(2, 32): ctypes.c_float, (0, 32): ctypes.c_int32, (4, 16): ctypes.c_uint16}[code, bits]
        self.shape, self.code, self.bits, self.device, self.strides = shape, code, bits, device, strides
        elements = 1
        for extent in shape:
            elements *= extent
        self.data = (kind * elements)()

    def __dlpack_device__(self):
        return self.device

    def __dlpack__(self, *, stream=None):
        if (stream is None) != (self.device[0] == 1):
            raise BufferError(f"stream {stream} on device {self.device}")
        rank = len(self.shape)
        shape = (ctypes.c_int64 * rank)(*self.shape)
        strides = None if self.strides is None else (ctypes.c_int64 * rank)(*self.strides)
        managed = _Managed(tensor=kvr._Tensor(
            data=ctypes.addressof(self.data), device_type=self.device[0], device_id=self.device[1], ndim=rank,
            code=self.code, bits=self.bits, lanes=1, shape=shape, strides=strides), deleter=_delete)
        _exported[ctypes.addressof(managed)] = (self, managed, shape, strides)
        return _api.PyCapsule_New(ctypes.addressof(managed), b"dltensor",
                                  ctypes.cast(_destroy_capsule, ctypes.c_void_p))


class KvrTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.scratch = tempfile.TemporaryDirectory()
        cls.rt = kvr.Runtime("host", cache_dir=os.path.join(cls.scratch.name, "cache"))
        cls.rt.load("null", "n=100")

    @classmethod
    def tearDownClass(cls):
        cls.rt.close()
        cls.scratch.cleanup()

    def setUp(self):
        self.x, self.y = Tensor((100,)), Tensor((100,))
        self.x.data[:] = range(100)

    def tearDown(self):
        gc.collect()
        self.assertFalse(_exported, "a capsule was not given back")

    def test_a_launch_runs_and_gives_its_tensors_back(self):
        before = len(deleted)
        self.rt.launch("null", self.x, self.y)
        self.assertEqual(len(deleted) - before, 2)
        self.rt.synchronize()
        self.assertEqual(list(self.y.data), list(self.x.data))

    def test_tensors_of_refused_launches_come_back_too(self):
        with self.assertRaises(kvr.KvrError) as raised:
            self.rt.launch("null", self.x, Tensor((99,)))
        self.assertEqual(raised.exception.code, "INVALID_ARGUMENT")
        with self.assertRaises(kvr.KvrError) as raised:
            self.rt.launch("null", self.x, object())
        self.assertIn("object", raised.exception.what)
        with self.assertRaises(kvr.KvrError) as raised:
            self.rt.launch("null", self.x, Tensor((100,), device=(2, 1)))
        self.assertIn("cuda:1", raised.exception.what)
        with self.assertRaises(kvr.KvrError) as raised:
            self.rt.launch("null", self.x, Tensor((100,), strides=(2,)))
        self.assertIn("contiguous", raised.exception.what)

    def test_a_bound_launch_holds_its_tensors_until_it_is_closed(self):
        with self.rt.bind("null", self.x, self.y) as bound:
            self.assertEqual(len(_exported), 2)
            bound.launch()
            other = Tensor((100,))
            bound.set(1, other)
            self.assertEqual(len(_exported), 2)
            bound.launch()
            self.rt.synchronize()
        self.assertEqual(list(self.y.data), list(self.x.data))
        self.assertEqual(list(other.data), list(self.x.data))
        with self.assertRaises(kvr.KvrError):
            bound.launch()
        del bound

    def test_a_capsule_that_was_consumed_is_refused(self):
        class Old:
            __dlpack_device__ = self.x.__dlpack_device__

            def __dlpack__(self):
                return _api.PyCapsule_New(1, b"used_dltensor", None)
        with self.assertRaises(kvr.KvrError) as raised:
            self.rt.launch("null", self.x, Old())
        self.assertIn("fresh", raised.exception.what)

    def test_scalars_are_numbers(self):
        self.rt.load("mla_sparse_decode", "num_tokens=1,num_qo_heads=1,topk=1,page_size=1,num_pages=2")
        bf16 = {"code": 4, "bits": 16}
        q_nope, q_pe = Tensor((1, 1, 512), **bf16), Tensor((1, 1, 64), **bf16)
        ckv, kpe, output = Tensor((2, 1, 512), **bf16), Tensor((2, 1, 64), **bf16), Tensor((1, 1, 512), **bf16)
        slots, lse = Tensor((1, 1), code=0), Tensor((1, 1))
        slots.data[0] = 1
        q_nope.data[0] = 0x3f80
        ckv.data[:] = [0x3f80 + i % 64 for i in range(1024)]
        for scale in (0.25, 3):
            self.rt.launch("mla_sparse_decode", q_nope, q_pe, ckv, kpe, slots, scale, output, lse)
            self.rt.synchronize()
            self.assertEqual(list(output.data), ckv.data[512:])
            self.assertAlmostEqual(lse.data[0], scale * 1.442695, places=4)
        with self.assertRaises(kvr.KvrError) as raised:
            self.rt.launch("mla_sparse_decode", q_nope, q_pe, ckv, kpe, slots, 1e300, output, lse)
        self.assertIn("sm_scale", raised.exception.what)
        with self.assertRaises(kvr.KvrError):
            self.rt.launch("mla_sparse_decode", q_nope, q_pe, ckv, kpe, slots, 1 << 70, output, lse)

    def test_a_report_says_what_was_loaded_and_the_error_of_one_that_failed_has_it(self):
        report = self.rt.load("null", "n=1..3;n=50")
        self.assertTrue(report["ready"])
        self.assertEqual(len(report["items"]), 4)
        with self.assertRaises(kvr.KvrError) as raised:
            self.rt.load("null", "n=2000000000;n=7")
        self.assertEqual([item["ready"] for item in raised.exception.report["items"]], [False, True])
        self.assertTrue(raised.exception.fix is not None and "2000000000" in raised.exception.what)

    def test_a_captured_graph_follows_swaps(self):
        for keeps_graph in (True, False):
            with self.subTest(keeps_graph=keeps_graph):
                self.follow_swaps(keeps_graph)

    def follow_swaps(self, keeps_graph):
        lib, rt = kvr.library(), self.rt
        stream, graph, exec_ = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p()
        self.assertEqual(lib.kvr_stream_create(rt._handle, ctypes.byref(stream)), 0)
        rt.prepare_stream(stream.value, "pool")
        self.assertEqual(lib.kvr_stream_begin_capture(rt._handle, stream), 0)
        with rt.capture(stream.value, pool="pool", keeps_graph=keeps_graph) as scope:
            rt.launch("null", self.x, self.y, stream=stream.value)
        self.assertEqual(lib.kvr_stream_end_capture(rt._handle, stream, keeps_graph, ctypes.byref(graph)), 0)
        self.assertEqual(lib.kvr_graph_exec(graph, ctypes.byref(exec_)), 0)
        binding = scope.binding
        before = rt.generation()[1]
        self.assertEqual(binding.digest(exec_.value), before)
        self.assertEqual(binding.apply(exec_.value).outcome, "unchanged")

        done = rt.swap_wait(rt.swap("null", "planned"))
        self.assertEqual(done["state"], "published")
        for call in (binding.apply, binding.digest, binding.forget):
            with self.assertRaisesRegex(kvr.KvrError, "no graph executable"):
                call("text")
        number, after = rt.generation()
        self.assertGreater(number, 0)
        self.assertNotEqual(before, after)
        applied = binding.apply(exec_.value)
        self.assertEqual((applied.outcome, applied.digest, applied.whole_graph), ("applied", after, not keeps_graph))
        self.assertGreater(applied.nodes, 0)
        self.assertEqual(lib.kvr_graph_launch(graph, stream), 0)
        rt.synchronize(stream.value)
        self.assertEqual(list(self.y.data), list(self.x.data))
        self.assertEqual(binding.apply(exec_.value, before).digest, before)
        binding.forget(exec_.value)
        binding.close()
        with self.assertRaises(kvr.KvrError):
            binding.apply(exec_.value)
        self.assertEqual(lib.kvr_graph_close(graph), 0)
        self.assertEqual(lib.kvr_stream_destroy(rt._handle, stream), 0)
        rt.rollback()
        self.assertEqual(rt.generation()[1], before)

    def test_an_exception_inside_a_scope_drops_it(self):
        lib, rt = kvr.library(), self.rt
        stream, graph = ctypes.c_void_p(), ctypes.c_void_p()
        self.assertEqual(lib.kvr_stream_create(rt._handle, ctypes.byref(stream)), 0)
        rt.prepare_stream(stream.value)
        self.assertEqual(lib.kvr_stream_begin_capture(rt._handle, stream), 0)
        with self.assertRaises(ZeroDivisionError):
            with rt.capture(stream.value) as scope:
                rt.launch("null", self.x, self.y, stream=stream.value)
                _ = 1 // 0
        self.assertIsNone(scope.binding)
        self.assertEqual(lib.kvr_stream_end_capture(rt._handle, stream, 0, ctypes.byref(graph)), 0)
        self.assertEqual(lib.kvr_graph_close(graph), 0)
        self.assertEqual(lib.kvr_stream_destroy(rt._handle, stream), 0)

    def test_a_swap_that_fails_leaves_what_served_and_says_why(self):
        before = self.rt.generation()
        with self.assertRaises(kvr.KvrError) as raised:
            self.rt.swap_wait(self.rt.swap("null", "plannd"))
        self.assertEqual(raised.exception.report["state"], "failed")
        self.assertIn("plannd", raised.exception.what)
        with self.assertRaises(kvr.KvrError):
            self.rt.publish("/nonexistent.json")
        self.assertEqual(self.rt.generation(), before)

    def test_what_is_there_can_be_seen(self):
        scan = self.rt.scan()
        self.assertEqual(scan["device"]["kind"], "host")
        ops = {op["name"]: op for op in scan["ops"]}
        self.assertEqual([tensor["name"] for tensor in ops["null"]["inputs"]], ["x"])
        self.assertIn("planned", [variant["name"] for variant in ops["null"]["variants"]])
        self.assertIsInstance(self.rt.status(), dict)
        self.assertEqual(self.rt.counters()["unscoped"], 0)

    def test_a_runtime_that_was_closed_says_so(self):
        with kvr.Runtime("null") as closed:
            bound_to = closed.generation()
        self.assertEqual(bound_to[0], 0)
        with self.assertRaises(kvr.KvrError) as raised:
            closed.generation()
        self.assertIn("closed", raised.exception.what)
        closed.close()

    def test_a_frozen_runtime_loads_nothing(self):
        with kvr.Runtime("host", cache_dir=os.path.join(self.scratch.name, "cache")) as rt:
            rt.freeze()
            with self.assertRaises(kvr.KvrError) as raised:
                rt.load("null", "n=8")
            self.assertEqual(raised.exception.code, "FAILED_PRECONDITION")
            rt.thaw()
            rt.load("null", "n=8")

    def test_options_that_make_no_sense_are_refused(self):
        for options in ({"device": "cudda"}, {"miss_policy": "never"}, {"forced": ("null", "nobody", ())},
                        {"forced": ("null", None, ("THREADS=17",))}, {"approximate": ["nothing"]},
                        {"selection_file": "/nonexistent.json"}, {"plugin_roots": "/nonexistent"},
                        {"approximate": "null/planned"}, {"forced": ("null", None, "THREADS=64")},
                        {"forced": "planned"}, {"forced": ("planned",)}):
            with self.assertRaises(kvr.KvrError, msg=options) as raised:
                kvr.Runtime(**{"device": "host", **options})
            self.assertTrue(raised.exception.what)
        with kvr.Runtime("host", forced=("null", "planned", ("WAVES=2",))) as rt:
            item = rt.load("null", "n=100")["items"][0]
            self.assertEqual((item["variant"], item["config"]["WAVES"], item["overridden"]), ("planned", 2, True))

    def test_what_is_no_handle_is_refused_and_never_followed(self):
        x, y = Tensor([100]), Tensor([100])
        for nonsense in ("text", b"bytes", 1.5, object(), -1, 1 << 64):
            for call in (lambda it: self.rt.launch("null", x, y, stream=it), self.rt.prepare_stream,
                         self.rt.synchronize, lambda it: self.rt.capture(it).__enter__()):
                with self.assertRaises(kvr.KvrError, msg=nonsense) as raised:
                    call(nonsense)
                self.assertIn("no stream", raised.exception.what)

    def test_live_control_comes_and_goes(self):
        path = os.path.join(self.scratch.name, "live.sock")
        with self.rt.live(path, name="kvr_test") as live:
            self.assertTrue(os.path.exists(path))
            live.begin_step("8")
            live.end_step("8", 12.5)
            live.count_error()
        self.assertFalse(os.path.exists(path))


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[2:]])
