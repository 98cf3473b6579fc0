"""From objects to nodes: a table of plain values and the arrays that it refers to."""

from __future__ import annotations

import math
import struct
from functools import partial
from typing import Any

import numpy as np

from meanmap import checks
from meanmap.arrays import is_array, namespace, to_numpy
from meanmap.persistence.classes import (
    GRAPHS,
    KINDS,
    LIBRARIES,
    MAX_DEPTH,
    MAX_KEY,
    PACKAGE,
    LeftOut,
    is_key,
    is_ours,
    name_of,
    state_of,
    storable,
    weight,
)


def _too_deep(where: str) -> ValueError:
    return ValueError(
        f"{where[:80]} is nested more than {MAX_DEPTH} deep, too deep for a file. Build a flatter "
        "object, for example one kernel instead of a sum of a hundred."
    )


def _refusal(value: Any, where: str) -> TypeError:
    """Why a value does not go into a file, and what to do."""
    cls = type(value)
    what, remedy = f"a {cls.__name__}", "Only data goes into a file."
    if isinstance(value, np.random.Generator | np.random.RandomState):
        remedy = "Use an integer seed in its place."
    elif is_ours(cls):
        remedy = "Files do not know this class: it belongs into meanmap.persistence.classes.PLAIN."
    elif any(is_ours(base) for base in cls.__mro__):
        what = f"a {cls.__name__}, a class of your own"
        remedy = (
            "Loading it would have to run your code. Use meanmap's own classes, or "
            "kernels.Precomputed(gram)."
        )
    elif callable(value):
        what = f"a Python function ({getattr(value, '__name__', repr(value))!r:.60})"
        remedy = (
            "A file holds data, because loading it must never run code. Use one of "
            "meanmap.kernels, or kernels.Precomputed(gram) with the function's values."
        )
    return TypeError(f"{where} is {what}, which cannot be saved. {remedy}")


def encode(obj: Any) -> tuple[_Writer, Any]:
    """The nodes of an object, and what stands for the object itself."""
    while True:
        writer = _Writer()
        try:
            root = writer.value(obj, "obj")
        except RecursionError:
            raise _too_deep("obj") from None
        # computing one value may have changed what another object keeps: look again
        if not writer.computed:
            return writer, root


class _Writer:
    """Collects the nodes and arrays of an object; nothing is written before it is done."""

    def __init__(self) -> None:
        self.nodes: list[dict[str, Any]] = []
        self.arrays: list[np.ndarray] = []
        self.computed = False  # whether a value that waited to be asked for was computed
        self._heights: list[int] = []  # of each node: the longest way down
        self._known: dict[int, tuple[Any, int]] = {}  # by id; the object is kept alive
        self._open: list[int] = []  # the nodes we are inside of
        self._tallest: list[int] = [0]  # height of what each of them holds so far

    def value(self, value: Any, where: str) -> Any:
        """What stands for the value in the manifest."""
        kind = type(value)
        if value is None or kind is bool or kind is str:
            return value
        if kind is int:  # beyond 2⁵³ other readers of JSON round
            return value if abs(value) < 1 << 53 else {"int": hex(value)}
        if kind is float:
            exact = math.isfinite(value)
            return value if exact else {"float": struct.pack(">d", value).hex()}
        key = id(value)
        if key not in self._known:
            if key in self._open:
                raise ValueError(
                    f"{where} refers back to an object that holds it; a file takes no cycles. "
                    "Drop one of the references first."
                )
            if len(self._open) >= MAX_DEPTH:
                raise _too_deep(where)
            self._open.append(key)
            self._tallest.append(0)
            node = self._node(value, where)
            self._open.pop()
            self._heights.append(self._tallest.pop() + 1)
            self.nodes.append(node)
            self._known[key] = value, len(self.nodes) - 1
        index = self._known[key][1]
        height = self._heights[index]
        if len(self._open) + height > MAX_DEPTH:
            raise _too_deep(where)
        self._tallest[-1] = max(self._tallest[-1], height)
        return {"node": index}

    def _node(self, value: Any, where: str) -> dict[str, Any]:
        kind = type(value)
        if kind in (list, tuple):
            items = [self.value(item, f"{where}[{i}]") for i, item in enumerate(value)]
            return {kind.__name__: items}
        if kind is dict:
            return {"dict": [self._pair(key, item, where) for key, item in value.items()]}
        if isinstance(value, np.generic):
            return self._scalar(value, where)
        if kind in (np.ndarray, np.memmap):
            return self._array(value, where)
        if storable(kind):
            return self._object(value, where)
        if kind.__module__.partition(".")[0] == "networkx" and kind.__name__ in GRAPHS:
            return self._graph(value, where)
        if is_array(value):
            return self._foreign_array(value, where)
        raise _refusal(value, where)

    def _pair(self, key: Any, item: Any, where: str) -> list[Any]:
        if not is_key(key) or weight(key) > MAX_KEY:
            raise TypeError(
                f"{where} has a key {key!r:.60}; expected text, numbers or short tuples of them."
            )
        return [self.value(key, where), self.value(item, f"{where}[{key!r:.60}]")]

    def _scalar(self, value: np.generic, where: str) -> dict[str, Any]:
        if isinstance(value, np.str_):
            return {"scalar": "str", "value": str(value)}
        if isinstance(value, np.bytes_):
            return {"scalar": "bytes", "value": bytes(value).hex()}
        if value.dtype.kind not in KINDS:
            raise _refusal(value, where)
        return {"scalar": value.dtype.str, "value": value.tobytes().hex()}

    def _array(self, array: np.ndarray, where: str) -> dict[str, Any]:
        kind, shape = array.dtype.kind, list(array.shape)
        if kind == "O" or array.dtype == np.dtypes.StringDType():
            items = [
                self.value(item, f"{where}[{i}]") for i, item in enumerate(array.ravel().tolist())
            ]
            return {"objects" if kind == "O" else "strings": items, "shape": shape}
        if kind not in KINDS or array.dtype.itemsize == 0:
            raise TypeError(
                f"{where} is an array of dtype {array.dtype}, which cannot be saved. Expected "
                "numbers, text, dates or objects: one array a field, for example."
            )
        # the layout in memory is kept: a product of matrices rounds by it
        order = sorted(range(array.ndim), key=lambda axis: -abs(array.strides[axis]))
        node: dict[str, Any] = {"array": len(self.arrays)}
        if array.flags.c_contiguous or array.flags.f_contiguous:
            stored = array
        elif order == list(range(array.ndim))[::-1]:
            stored = np.asfortranarray(array)
        else:
            stored = np.ascontiguousarray(array.transpose(order))
            if order != list(range(array.ndim)):
                node["axes"] = order
        self.arrays.append(np.asarray(stored))
        return node

    def _foreign_array(self, array: Any, where: str) -> dict[str, Any]:
        module = namespace(array).__name__
        names = [name for name, known in LIBRARIES.items() if known == module]
        try:
            host = to_numpy(array)
        except (TypeError, RuntimeError, ValueError) as error:
            raise TypeError(
                f"{where} is {checks.describe(array)} that NumPy does not understand ({error}). "
                "Convert it to a plain type first, for example float32."
            ) from None
        if not names or host.dtype.kind not in KINDS:
            raise _refusal(array, where)
        node = {**self._array(host, where), "library": names[0]}
        # CuPy and JAX have a device of choice; torch's is the host
        if names[0] == "torch" and array.device.type == "cuda":
            node["device"] = "cuda"
        return node

    def _object(self, obj: Any, where: str) -> dict[str, Any]:
        name = name_of(type(obj))
        if name is None:
            raise _refusal(obj, where)
        state: dict[str, Any] = {}
        functions = getattr(type(obj), "_functions", ())
        for attribute, value in state_of(obj).items():
            if attribute in functions and not (value is None or is_array(value)):
                value = LeftOut(type(obj).__name__, attribute)
            if _is_delayed(value):
                value = value()
                # the object keeps what the file holds, so that the two agree to the last bit
                object.__setattr__(obj, attribute, value)
                self.computed = True
            state[attribute] = self.value(value, f"{where}.{attribute}")
        return {"object": name, "state": state}

    def _graph(self, graph: Any, where: str) -> dict[str, Any]:
        keyed = {"keys": True} if graph.is_multigraph() else {}
        return {
            "graph": type(graph).__name__,
            "attributes": self.value(dict(graph.graph), f"{where}.graph"),
            "nodes": [
                self._pair(node, dict(data), f"{where}.nodes")
                for node, data in graph.nodes(data=True)
            ],
            "edges": [
                [self.value(part, f"{where}.edges") for part in (*ends, dict(data))]
                for *ends, data in graph.edges(data=True, **keyed)
            ],
        }


def _is_delayed(value: Any) -> bool:
    """Whether this is a value of meanmap that is computed when first asked for."""
    if not isinstance(value, partial):
        return False
    return str(getattr(value.func, "__module__", "")).partition(".")[0] == PACKAGE
