# SPDX-License-Identifier: Apache-2.0
"""KVR from Python: ctypes over libkvr.so, nothing else needed; kvr.h is the contract of every call.

    import kvr, torch

    rt = kvr.Runtime(device="cuda:0", selection_file="h200.json")
    rt.load("mla_sparse_decode", "num_tokens=1..96,topk=512")
    stream = torch.cuda.Stream()
    rt.prepare_stream(stream)
    rt.freeze()                                                   # from here on no launch compiles
    rt.launch("mla_sparse_decode", q_nope, q_pe, ckv, kpe, indices, 0.0722, output, lse)

    graph = torch.cuda.CUDAGraph(keep_graph=True)
    with torch.cuda.graph(graph, stream=stream), rt.capture(keeps_graph=True) as scope:
        rt.launch("mla_sparse_decode", q_nope, q_pe, ckv, kpe, indices, 0.0722, output, lse)
    graph.instantiate()
    scope.binding.apply(graph.raw_cuda_graph_exec())              # at a step boundary: the current generation
    graph.replay()

Tensors are whatever has __dlpack__ (torch, numpy, cupy, jax), contiguous, in the op's order: inputs, then
outputs. Scalars are numbers; an absent optional tensor is None. Streams are raw handles or have `cuda_stream`
(torch.cuda.Stream); None is torch's current stream where torch is loaded, else the default stream. A launch is
enqueued and returns: its tensors live until the stream has passed it, as for any kernel of torch. Errors are
KvrError. Threading as in kvr.h; calls release the interpreter's lock.
"""
from __future__ import annotations

import ctypes
import functools
import json
import logging
import operator
import os
import sys
import weakref
from ctypes import POINTER, byref, c_char, c_char_p, c_double, c_int32, c_int64, c_size_t, c_uint64, c_void_p
from typing import Any, NamedTuple, Optional, Sequence, Tuple, Union

API_MAJOR, API_MINOR = 1, 0  # of the kvr.h that this file speaks
Path = Union[str, "os.PathLike[str]"]


class KvrError(Exception):
    """What a call answered: `code` ("NOT_FOUND"), `what` is wrong, the `fix`, and the `report` where there is one."""

    def __init__(self, code: str, what: str, fix: str = "", report: Any = None):
        super().__init__(f"{code}: {what}" + (f"\nfix: {fix}" if fix else ""))
        self.code, self.what, self.fix, self.report = code, what, fix, report


# Arguments: p pointer or handle, s text, i int32, z size_t, u uint64, d double.
_LETTERS = {"p": c_void_p, "s": c_char_p, "i": c_int32, "z": c_size_t, "u": c_uint64, "d": c_double}
_FUNCTIONS = {
    "kvr_open": "pp", "kvr_close": "p", "kvr_scan": "pp", "kvr_load": "pssp", "kvr_freeze": "p", "kvr_thaw": "p",
    "kvr_prepare_stream": "pps", "kvr_launch": "pspzp", "kvr_bind": "pspzp", "kvr_bound_launch": "pp",
    "kvr_bound_set": "pip", "kvr_bound_close": "p", "kvr_capture_open": "pppp", "kvr_capture_finish": "pp",
    "kvr_capture_drop": "p", "kvr_binding_apply": "ppsp", "kvr_binding_digest": "ppp", "kvr_binding_forget": "pp",
    "kvr_binding_close": "p", "kvr_generation": "ppp", "kvr_publish_file": "psp", "kvr_rollback": "psp",
    "kvr_collect": "p", "kvr_swap": "ppp", "kvr_swap_wait": "pup", "kvr_watch_bundles": "ps",
    "kvr_watch_selection_file": "ps", "kvr_status": "pp", "kvr_count": "pp", "kvr_live_start": "ppp",
    "kvr_live_begin_step": "ps", "kvr_live_end_step": "psd", "kvr_live_count_error": "p", "kvr_live_close": "p",
    "kvr_stream_create": "pp", "kvr_stream_destroy": "pp", "kvr_stream_synchronize": "pp", "kvr_stream_wait": "ppp",
    "kvr_stream_begin_capture": "pp", "kvr_stream_end_capture": "ppip", "kvr_graph_exec": "pp",
    "kvr_graph_launch": "pp", "kvr_graph_close": "p",
}
_WARN = ctypes.CFUNCTYPE(None, c_void_p, c_char_p)
_warn = _WARN(lambda _, text: logging.getLogger("kvr").warning("%s", text.decode(errors="replace")))


@functools.lru_cache(maxsize=None)
def library() -> ctypes.CDLL:
    """libkvr.so: what KVR_LIBRARY names, else <prefix>/lib beside this file's directory, else what the loader finds."""
    beside = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "lib", "libkvr.so")
    path = os.environ.get("KVR_LIBRARY") or (beside if os.path.exists(beside) else "libkvr.so")
    try:
        lib = ctypes.CDLL(path)
        abi = lib.kvr_abi_version()
    except (OSError, AttributeError) as error:
        raise KvrError("NOT_FOUND", f"{path}: {error}", "set KVR_LIBRARY to the libkvr.so of an install") from None
    if abi // 1000 != API_MAJOR or abi % 1000 < API_MINOR:
        raise KvrError("FAILED_PRECONDITION", f"{path} speaks version {abi // 1000}.{abi % 1000} of kvr.h, and kvr.py "
                       f"{API_MAJOR}.{API_MINOR}", "use kvr.py and libkvr.so of one install")
    for name, letters in _FUNCTIONS.items():
        getattr(lib, name).argtypes = [_LETTERS[letter] for letter in letters]
    for name in ("kvr_version", "kvr_code_name", "kvr_last_error", "kvr_last_fix"):
        getattr(lib, name).restype = c_char_p
    lib.kvr_free.argtypes, lib.kvr_free.restype = [c_void_p], None
    return lib


def _check(code: int, report: Any = None) -> None:
    if code != 0:
        texts = library().kvr_code_name(code), library().kvr_last_error(), library().kvr_last_fix()
        raise KvrError(*(text.decode(errors="replace") for text in texts), report)


def _json(function, *arguments) -> Any:
    """Calls what gives JSON as its last argument; a failure's error has the report, where there is one."""
    text = c_void_p()
    code = function(*arguments, byref(text))
    report = None
    if text.value:
        report = json.loads(ctypes.string_at(text.value))
        library().kvr_free(text)
    _check(code, report)
    return report


def _bytes(text: Optional[Path]) -> Optional[bytes]:
    return None if text is None else os.fsencode(text)


def _list(texts: Sequence[Path]) -> Any:
    if isinstance(texts, (str, bytes)):  # a sequence of its letters
        raise KvrError("INVALID_ARGUMENT", f"{texts!r} stands where a list belongs", f"pass [{texts!r}]")
    return (c_char_p * (len(texts) + 1))(*map(_bytes, texts))  # ends with NULL


def _address(value: Any, what: str) -> int:
    try:
        address = operator.index(value)  # ctypes would take a text's own address
    except TypeError:
        address = -1
    if not 0 <= address < 1 << 64:
        raise KvrError("INVALID_ARGUMENT", f"{value!r} is no {what}", f"pass the raw handle of a {what}, an integer")
    return address


def _exec(value: Any) -> int:
    return _address(value, "graph executable")


def _struct(**fields: Any) -> Any:
    """A struct of kvr.h that begins with its size."""
    class Struct(ctypes.Structure):
        _fields_ = [("struct_size", c_size_t), *fields.items()]

        def __init__(self, **values):
            super().__init__(struct_size=ctypes.sizeof(self), **values)
    return Struct


_TEXTS = POINTER(c_char_p)
_Options = _struct(
    device=c_char_p, cuda_context=c_void_p, plugin_roots=_TEXTS, selection_file=c_char_p, cache_dir=c_char_p,
    cache_layers=_TEXTS, miss_policy=c_char_p, forced_op=c_char_p, forced_variant=c_char_p, forced_tunables=_TEXTS,
    approximate=_TEXTS, journal=c_char_p, no_compilers=c_int32, no_environment=c_int32, warn=_WARN,
    warn_context=c_void_p)
_CaptureOptions = _struct(pool=c_char_p, spare_nodes=c_int32, keeps_graph=c_int32)
_Applied = _struct(outcome=c_int32, nodes=c_int32, whole_graph=c_int32, microseconds=c_double, digest=c_char * 65,
                   reason=c_char * 511)
_SwapOptions = _struct(selection_file=c_char_p, variant=c_char_p, bundle=c_char_p, rollback=c_char_p, op=c_char_p,
                       keys=c_char_p, no_verify=c_int32, canary=c_int32, who=c_char_p)
_LiveOptions = _struct(socket=c_char_p, metrics=c_char_p, name=c_char_p)
_COUNTERS = ("misses", "baseline", "refused", "loaded_in_launch", "captured", "unscoped", "generations", "failed",
             "rollbacks", "applied", "recaptures", "retired")
_Counters = _struct(**{name: c_uint64 for name in _COUNTERS})


class _Tensor(ctypes.Structure):  # DLTensor
    _fields_ = [("data", c_void_p), ("device_type", c_int32), ("device_id", c_int32), ("ndim", c_int32),
                ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16),
                ("shape", POINTER(c_int64)), ("strides", POINTER(c_int64)), ("byte_offset", c_uint64)]


class Applied(NamedTuple):  # what Binding.apply did
    outcome: str  # "unchanged", "applied", "needs recapture"
    digest: str  # of the generation that the executable runs now
    nodes: int
    whole_graph: bool
    microseconds: float
    reason: str  # of "needs recapture"


_CAPSULE = [ctypes.py_object, c_char_p]
_capsule_is_valid = ctypes.PYFUNCTYPE(c_int32, *_CAPSULE)(("PyCapsule_IsValid", ctypes.pythonapi))
_capsule_pointer = ctypes.PYFUNCTYPE(c_void_p, *_CAPSULE)(("PyCapsule_GetPointer", ctypes.pythonapi))


def _tensor(value: Any) -> tuple:
    """The address of a DLTensor, and what keeps it alive. The capsule is borrowed, not consumed: it keeps its name,
    and its own destructor calls the deleter."""
    if value is None:
        return None, None
    if isinstance(value, (int, float)):  # bool is an int
        number = c_int64(value) if isinstance(value, int) else c_double(value)
        if isinstance(value, int) and number.value != value:
            raise KvrError("OUT_OF_RANGE", f"{value} does not fit in 64 bits", "pass a smaller scalar")
        scalar = _Tensor(data=ctypes.addressof(number), device_type=1, code=0 if isinstance(value, int) else 2,
                         bits=64, lanes=1)
        return ctypes.addressof(scalar), (scalar, number)
    capsule, why = None, "no fresh 'dltensor' capsule, as each call has to make one"
    try:
        on_cuda = int(value.__dlpack_device__()[0]) in (2, 13)  # -1: wait for no stream, the caller orders
        capsule = value.__dlpack__(stream=-1) if on_cuda else value.__dlpack__()
    except (AttributeError, BufferError) as error:
        why = str(error)
    if not _capsule_is_valid(capsule, b"dltensor"):
        raise KvrError("INVALID_ARGUMENT", f"__dlpack__ of a {type(value).__name__} gives no tensor: {why}",
                       "pass tensors that have __dlpack__, numbers for scalars, None for absent ones")
    return _capsule_pointer(capsule, b"dltensor"), capsule


def _tensors(values: Sequence[Any]) -> tuple:
    pairs = []  # not a comprehension's: capsules must not die while an error is on its way
    for value in values:
        pairs.append(_tensor(value))
    return (c_void_p * len(pairs))(*(pair[0] for pair in pairs)), pairs


class _Handle:
    """Closed by close(), at the end of a `with`, or when nothing refers to it; never at the interpreter's exit, when
    graphs may outlive it."""

    def __init__(self, handle: c_void_p, close):
        self._handle = handle.value
        self._finalize = weakref.finalize(self, close, handle.value)
        self._finalize.atexit = False

    def close(self) -> None:
        self._finalize()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


class Binding(_Handle):
    """The launches of one captured graph, which apply() brings to later generations."""

    def apply(self, exec: int, digest: Optional[str] = None) -> Applied:
        """Not while a launch of `exec` is being enqueued; a replay in flight finishes with what it had."""
        out = _Applied()
        _check(library().kvr_binding_apply(self._handle, _exec(exec), _bytes(digest), byref(out)))
        return Applied(("unchanged", "applied", "needs recapture")[out.outcome], out.digest.decode(), out.nodes,
                       out.whole_graph != 0, out.microseconds, out.reason.decode(errors="replace"))

    def digest(self, exec: int) -> str:
        out = ctypes.create_string_buffer(65)
        _check(library().kvr_binding_digest(self._handle, _exec(exec), out))
        return out.value.decode()

    def forget(self, exec: int) -> None:
        _check(library().kvr_binding_forget(self._handle, _exec(exec)))


class CaptureScope:
    """Around the launches of one capture; `binding` is there when it has ended without an exception."""

    def __init__(self, runtime: Runtime, stream: Any, options: _CaptureOptions):
        self._runtime, self._stream, self._options, self._handle = runtime, stream, options, c_void_p()
        self.binding: Optional[Binding] = None

    def __enter__(self) -> CaptureScope:
        _check(library().kvr_capture_open(self._runtime._handle, self._runtime._stream(self._stream),
                                          byref(self._options), byref(self._handle)))
        return self

    def __exit__(self, kind, *_) -> None:
        if kind is not None:
            library().kvr_capture_drop(self._handle)
            return
        binding = c_void_p()
        _check(library().kvr_capture_finish(self._handle, byref(binding)))
        self.binding = Binding(binding, library().kvr_binding_close)


class Bound(_Handle):
    """A launch whose shapes are fixed: checked and planned once. It follows swaps."""

    def __init__(self, runtime: Runtime, op: str, tensors: Sequence[Any]):
        self._runtime = runtime
        addresses, self._kept = _tensors(tensors)
        handle = c_void_p()
        _check(library().kvr_bind(runtime._handle, _bytes(op), addresses, len(addresses), byref(handle)))
        super().__init__(handle, library().kvr_bound_close)

    def launch(self, stream: Any = None) -> None:
        _check(library().kvr_bound_launch(self._handle, self._runtime._stream(stream)))

    def set(self, index: int, tensor: Any) -> None:
        """Other memory of the same shape, or a scalar's new value."""
        pair = _tensor(tensor)
        _check(library().kvr_bound_set(self._handle, index, pair[0]))
        self._kept[index] = pair


class Live(_Handle):
    """`kvr status`, `kvr swap`, `kvr rollback` and `kvr ab --live` talk to this program."""

    def begin_step(self, bucket: str) -> None:
        _check(library().kvr_live_begin_step(self._handle, _bytes(bucket)))

    def end_step(self, bucket: str, microseconds: float) -> None:
        _check(library().kvr_live_end_step(self._handle, _bytes(bucket), microseconds))

    def count_error(self) -> None:
        _check(library().kvr_live_count_error(self._handle))


class Runtime(_Handle):
    """`device`: "cuda:N" launches in the primary context, which is torch's; "host"; "auto". `forced`: op, variant (or
    None) and "TUNABLE=value" texts. `approximate`: opt-ins like "op/variant{K0=4}". `journal`: a file; None: the
    ledger."""

    def __init__(self, device: str = "auto", *, selection_file: Optional[Path] = None, miss_policy: str = "baseline",
                 plugin_roots: Sequence[Path] = (), cache_dir: Optional[Path] = None, cache_layers: Sequence[Path] = (),
                 forced: tuple = (None, None, ()), approximate: Sequence[str] = (), cuda_context: int = 0,
                 journal: Optional[Path] = None, compilers: bool = True, environment: bool = True):
        if isinstance(forced, str) or len(forced) != 3:
            raise KvrError("INVALID_ARGUMENT", f"forced={forced!r} does not name three things",
                           "pass (op, variant or None, [\"TUNABLE=value\", ...])")
        options = _Options(
            device=None if cuda_context else _bytes(device), cuda_context=cuda_context or None,
            plugin_roots=_list(plugin_roots), selection_file=_bytes(selection_file), cache_dir=_bytes(cache_dir),
            cache_layers=_list(cache_layers), miss_policy=_bytes(miss_policy), forced_op=_bytes(forced[0]),
            forced_variant=_bytes(forced[1]), forced_tunables=_list(forced[2]), approximate=_list(approximate),
            journal=_bytes(journal), no_compilers=not compilers, no_environment=not environment, warn=_warn)
        handle = c_void_p()
        _check(library().kvr_open(byref(options), byref(handle)))
        super().__init__(handle, library().kvr_close)
        self.device: dict = self.scan()["device"]

    def scan(self) -> dict:
        """The device, every op with its tensors and variants, what was refused and why."""
        return _json(library().kvr_scan, self._handle)

    def load(self, op: str, shapes: Optional[str] = None) -> dict:
        """`shapes`: "num_tokens=1..96,topk=512", several separated by ';'; None: all keys that are selected. The error
        of what is not ready has the report, too."""
        return _json(library().kvr_load, self._handle, _bytes(op), _bytes(shapes))

    def freeze(self) -> None:
        _check(library().kvr_freeze(self._handle))

    def thaw(self) -> None:
        _check(library().kvr_thaw(self._handle))

    def prepare_stream(self, stream: Any = None, pool: str = "") -> None:
        _check(library().kvr_prepare_stream(self._handle, self._stream(stream), _bytes(pool)))

    def launch(self, op: str, *tensors: Any, stream: Any = None) -> None:
        addresses, _kept = _tensors(tensors)  # until the call is over
        _check(library().kvr_launch(self._handle, op.encode(), addresses, len(addresses), self._stream(stream)))

    def bind(self, op: str, *tensors: Any) -> Bound:
        return Bound(self, op, tensors)

    def capture(self, stream: Any = None, *, pool: str = "", spare_nodes: int = 0,
                keeps_graph: bool = False) -> CaptureScope:
        """`with` it around the launches, as the last thing inside the capture. keeps_graph: the application keeps the
        graph (torch.cuda.CUDAGraph(keep_graph=True)) as long as the binding."""
        return CaptureScope(self, stream, _CaptureOptions(pool=_bytes(pool), spare_nodes=spare_nodes,
                                                          keeps_graph=keeps_graph))

    def generation(self) -> Tuple[int, str]:  # number, digest
        number, digest = c_int64(), ctypes.create_string_buffer(65)
        _check(library().kvr_generation(self._handle, byref(number), digest))
        return number.value, digest.value.decode()

    def publish(self, selection_file: Path) -> dict:
        return _json(library().kvr_publish_file, self._handle, _bytes(selection_file))

    def rollback(self, digest: Optional[str] = None) -> dict:
        """To a generation of the history; None: to the one before."""
        return _json(library().kvr_rollback, self._handle, _bytes(digest))

    def collect(self) -> None:
        _check(library().kvr_collect(self._handle))

    def swap(self, op: Optional[str] = None, variant: Optional[str] = None, *, keys: Optional[str] = None,
             selection_file: Optional[Path] = None, bundle: Optional[Path] = None, rollback: Optional[str] = None,
             verify: bool = True, canary: bool = False, who: Optional[str] = None) -> int:
        """Asks for a swap in the background: its number, for swap_wait."""
        options = _SwapOptions(
            selection_file=_bytes(selection_file), variant=_bytes(variant), bundle=_bytes(bundle),
            rollback=_bytes(rollback), op=_bytes(op), keys=_bytes(keys), no_verify=not verify, canary=canary,
            who=_bytes(who))
        number = c_uint64()
        _check(library().kvr_swap(self._handle, byref(options), byref(number)))
        return number.value

    def swap_wait(self, number: int) -> dict:
        """What became of it; the error of one that failed has the same as its report."""
        return _json(library().kvr_swap_wait, self._handle, number)

    def watch(self, *, bundles: Optional[Path] = None, selection_file: Optional[Path] = None) -> None:
        """Swaps whenever a bundle or plugin in that directory, or that file, has changed and rests."""
        for watch, path in (("kvr_watch_bundles", bundles), ("kvr_watch_selection_file", selection_file)):
            if path is not None:
                _check(getattr(library(), watch)(self._handle, _bytes(path)))

    def status(self) -> dict:
        return _json(library().kvr_status, self._handle)

    def counters(self) -> dict:
        out = _Counters()
        _check(library().kvr_count(self._handle, byref(out)))
        return {name: getattr(out, name) for name in _COUNTERS}

    def live(self, socket: Path, *, metrics: Optional[str] = None,
             name: Optional[str] = None) -> Live:
        handle = c_void_p()
        options = _LiveOptions(socket=_bytes(socket), metrics=_bytes(metrics), name=_bytes(name))
        _check(library().kvr_live_start(self._handle, byref(options), byref(handle)))
        return Live(handle, library().kvr_live_close)

    def synchronize(self, stream: Any = None) -> None:
        _check(library().kvr_stream_synchronize(self._handle, self._stream(stream)))

    def _stream(self, stream: Any) -> int:
        if stream is None:
            torch = sys.modules.get("torch")
            if torch is None or self.device["kind"] != "cuda":
                return 0
            stream = torch.cuda.current_stream(self.device["ordinal"])
        return _address(getattr(stream, "cuda_stream", stream), "stream")
