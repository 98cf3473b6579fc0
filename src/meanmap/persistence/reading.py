"""From nodes to objects: nothing is called that a file names, and nothing believed that it says."""

from __future__ import annotations

import importlib
import math
import re
import struct
import sys
import zipfile
from collections.abc import Callable
from typing import Any, BinaryIO, cast

import numpy as np

from meanmap import checks
from meanmap.arrays import to_numpy
from meanmap.exceptions import warn
from meanmap.persistence.classes import (
    AGAIN,
    DISTRUST,
    GRAPHS,
    KINDS,
    LIBRARIES,
    MANIFEST,
    MAX_DEPTH,
    MAX_KEY,
    Refused,
    array_name,
    check_attribute,
    check_foreign,
    check_hashes,
    class_of,
    defaults,
    is_key,
    is_ours,
    own_version,
    required_attributes,
)

_HEADER = re.compile(
    rb"\{'descr': '([<>|][biufcSUMm]\d{1,9}(?:\[\d{0,9}[A-Za-z]{1,2}\])?)', "
    rb"'fortran_order': (True|False), 'shape': \(((?:\d{1,18}(?:, \d{1,18})*,?)?)\), \} *\n"
)

HASHED, HASHED_PER_BYTE = 10_000, 16  # parts of keys that a file may have hashed


class Reader:
    """Makes an object of a manifest's nodes, each from earlier ones."""

    def __init__(
        self, archive: zipfile.ZipFile, members: dict[str, zipfile.ZipInfo], size: int
    ) -> None:
        self._archive = archive
        self._members = members
        self._hashing = HASHED + HASHED_PER_BYTE * size  # parts of keys that may still be hashed
        self._made: list[Any] = []
        self._heights: list[int] = []
        self._weights: list[int] = []  # of tuples: how much hashing one takes
        self._tallest = self._heaviest = 0
        self._missing: set[str] = set()
        self._makers: dict[str, Callable[[dict[str, Any]], Any]] = {
            "list": lambda node: self._items(node["list"]),
            "tuple": lambda node: tuple(self._items(node["tuple"])),
            "dict": lambda node: self._dict(node["dict"]),
            "scalar": _scalar,
            "array": self._array,
            "objects": lambda node: self._objects(node, "objects", object),
            "strings": lambda node: self._objects(node, "strings", np.dtypes.StringDType()),
            "graph": self._graph,
            "object": self._object,
        }

    def root(self, manifest: dict[str, Any]) -> Any:
        nodes = manifest.get("nodes")
        for index, node in enumerate(nodes if isinstance(nodes, list) else ()):
            maker = self._makers.get(next(iter(node))) if isinstance(node, dict) and node else None
            if maker is None:
                raise Refused(
                    f"has a node {index} that is none of {', '.join(self._makers)}: "
                    f"{show_node(node)}. {DISTRUST}"
                )
            self._tallest, self._heaviest = 0, 1
            made = maker(node)
            if self._tallest >= MAX_DEPTH:
                raise Refused(f"nests objects more than {MAX_DEPTH} deep. {DISTRUST}")
            self._made.append(made)
            self._heights.append(self._tallest + 1)
            self._weights.append(self._heaviest)
        if self._members:
            unused = sorted(self._members)
            raise Refused(f"holds arrays that nothing uses: {unused!r:.80}. {AGAIN}")
        root = self._value(manifest.get("root"))
        if self._missing:
            libraries = " and ".join(sorted(self._missing))
            warn(
                f"the file holds arrays of {libraries}, which is not installed here: they are read "
                f"as NumPy arrays. Install {libraries} to get them back as they were.",
                UserWarning,
            )
        return root

    def _value(self, value: Any) -> Any:
        if not isinstance(value, dict):
            if isinstance(value, list):
                raise Refused(f"has a list where a value is expected. {DISTRUST}")
            self._heaviest += 1
            return value
        ((kind, content),) = value.items()
        if kind == "node":
            if type(content) is not int or not 0 <= content < len(self._made):
                raise Refused(
                    f"refers to node {content!r:.40} from node {len(self._made)}; expected an "
                    f"earlier one. {DISTRUST}"
                )
            self._tallest = max(self._tallest, self._heights[content])
            self._heaviest += self._weights[content]
            return self._made[content]
        self._heaviest += 1
        if kind == "int":
            return int(content, 16)
        if kind == "float":
            return struct.unpack(">d", bytes.fromhex(content))[0]
        raise Refused(f"has a value of kind {kind!r:.40}, which does not exist. {DISTRUST}")

    def _items(self, items: Any) -> list[Any]:
        if not isinstance(items, list):
            raise Refused(f"has {show_node(items)} where a list is expected. {DISTRUST}")
        return [self._value(item) for item in items]

    def _key(self, key: Any) -> Any:
        before = self._heaviest
        made = self._value(key)
        if self._heaviest - before > MAX_KEY or not is_key(made):
            raise Refused(f"has a dict with a key that is {checks.describe(made)}. {DISTRUST}")
        self._hashing -= self._heaviest - before
        if self._hashing < 0:
            raise Refused(f"uses long tuples as keys too often. {DISTRUST}")
        return made

    def _dict(self, pairs: Any) -> dict[Any, Any]:
        items = [(self._key(key), self._value(value)) for key, value in pairs]
        check_hashes([key for key, _ in items])
        made = dict(items)
        if len(made) != len(pairs):
            raise Refused(f"has a dict with the same key twice. {DISTRUST}")
        return made

    def _objects(self, node: dict[str, Any], kind: str, dtype: Any) -> np.ndarray:
        items = self._items(node[kind])
        shape = tuple(node["shape"])
        _check_shape(shape, len(items), 8)
        made = np.empty(len(items), dtype=dtype)
        for i, item in enumerate(items):
            if kind == "strings" and type(item) is not str:
                raise Refused(f"has {checks.describe(item)} in an array of text. {DISTRUST}")
            made[i] = item
        return made.reshape(shape)

    def _array(self, node: dict[str, Any]) -> Any:
        index = node["array"]
        info = self._members.pop(array_name(index), None) if type(index) is int else None
        if info is None:
            raise Refused(f"lacks the array {index!r:.40} that {MANIFEST} names. {AGAIN}")
        with self._archive.open(info) as file:
            array = _read_array(cast(BinaryIO, file), info)
        if "axes" in node:
            axes = node["axes"]
            if sorted(axes) != list(range(array.ndim)):
                raise Refused(f"orders {array.ndim} axes as {axes!r:.60}. {DISTRUST}")
            array = array.transpose(np.argsort(axes))
        library = node.get("library")
        if library is None:
            return array
        if library not in LIBRARIES:
            raise Refused(
                f"holds an array of the library {library!r:.40}; expected one of "
                f"{', '.join(LIBRARIES)}. {DISTRUST}"
            )
        try:
            xp = importlib.import_module(LIBRARIES[library])
        except ImportError:
            self._missing.add(library)
            return array
        where = node.get("device")
        if where not in (None, "cuda"):
            raise Refused(f"holds an array of the device {where!r:.40}. {DISTRUST}")
        there = where is not None and xp.cuda.is_available()
        made = xp.asarray(array, device=where) if there else xp.asarray(array)
        if to_numpy(made).dtype != array.dtype:
            raise Refused(
                f"holds {array.dtype} arrays of {library}, which makes {made.dtype} of them as it "
                "is set up here. Turn its 64-bit types on."
            )
        return made

    def _graph(self, node: dict[str, Any]) -> Any:
        import networkx

        if node["graph"] not in GRAPHS:
            raise Refused(f"holds a graph of kind {node['graph']!r:.40}. {DISTRUST}")
        graph = getattr(networkx, node["graph"])()
        graph.graph.update(self._attributes(node["attributes"]))
        nodes = [(self._key(key), data) for key, data in node["nodes"]]
        check_hashes([name for name, _ in nodes])
        for name, data in nodes:
            graph.add_node(name)
            graph.nodes[name].update(self._attributes(data))
        edges = [([self._key(end) for end in ends], data) for *ends, data in node["edges"]]
        check_hashes([key for names, _ in edges for key in names[2:]])
        for names, data in edges:
            if len(names) != 2 + graph.is_multigraph() or not all(n in graph for n in names[:2]):
                raise Refused(f"has an edge between nodes that a graph lacks. {DISTRUST}")
            graph.add_edge(*names)
            graph.edges[tuple(names)].update(self._attributes(data))
        return graph

    def _attributes(self, reference: Any) -> dict[Any, Any]:
        made = self._value(reference)
        if type(made) is not dict:
            raise Refused(f"has {checks.describe(made)} for a graph's attributes. {DISTRUST}")
        return made

    def _object(self, node: dict[str, Any]) -> Any:
        cls, state = class_of(node["object"]), node["state"]
        lacking = [name for name in required_attributes(cls) if name not in state]
        if lacking:
            raise Refused(
                f"lacks {', '.join(lacking)} of a {cls.__name__}; meanmap {own_version()} needs "
                "it. Load it with the version that wrote it."
            )
        made: Any = object.__new__(cls)  # no __init__: nothing runs
        for name, value in defaults(cls).items():
            if name not in state:
                object.__setattr__(made, name, value)
        for name, value in state.items():
            check_attribute(cls, name)
            object.__setattr__(made, name, self._value(value))
        if not is_ours(cls):
            check_foreign(made)
        return made


def _scalar(node: dict[str, Any]) -> Any:
    kind, value = node["scalar"], node["value"]
    if kind == "str" and type(value) is str:
        return np.str_(value)
    if kind == "bytes":
        return np.bytes_(bytes.fromhex(value))
    dtype = _dtype(kind)
    data = bytes.fromhex(value)
    if len(data) != dtype.itemsize:
        raise Refused(f"has {len(data)} bytes for a number of type {dtype}. {DISTRUST}")
    return _possible_entries(np.frombuffer(data, dtype=dtype))[0]


def _dtype(text: str) -> np.dtype[Any]:
    dtype = np.dtype(text)
    if dtype.kind not in KINDS or dtype.itemsize == 0:
        raise Refused(f"holds an array of type {text!r:.40}; expected plain data. {DISTRUST}")
    return dtype


def _check_shape(shape: tuple[Any, ...], items: int, itemsize: int) -> None:
    """A shape that holds so many items, and that NumPy can index."""
    whole = all(type(length) is int and length >= 0 for length in shape)
    if (
        not whole
        or len(shape) > 32
        or math.prod(shape) != items
        or math.prod(max(length, 1) for length in shape) * itemsize >= 1 << 62
    ):
        raise Refused(f"declares an array of shape {shape!r:.60} for {items:,} entries. {AGAIN}")


def _read_array(file: BinaryIO, info: zipfile.ZipInfo) -> np.ndarray:
    """A `.npy` member, its size checked before memory is taken and its header never evaluated."""
    start = file.read(10)
    if len(start) < 10 or start[:8] != b"\x93NUMPY\x01\x00":
        raise Refused(f"holds {info.filename!r}, which is not an array in NumPy's format. {AGAIN}")
    header = file.read(int.from_bytes(start[8:], "little"))
    match = _HEADER.fullmatch(header)
    if match is None:
        raise Refused(
            f"holds {info.filename!r} of a type that is not plain data ({header[:60]!r}). "
            f"{DISTRUST}"
        )
    dtype = _dtype(match[1].decode("utf-8"))
    shape = tuple(int(length) for length in match[3].decode().split(",") if length.strip())
    items, rest = divmod(info.file_size - len(start) - len(header), dtype.itemsize)
    if rest:
        raise Refused(f"holds {info.filename!r} with {rest} bytes too many for {dtype}. {AGAIN}")
    _check_shape(shape, items, dtype.itemsize)
    flat = np.empty(items, dtype=dtype)
    if items:
        into = memoryview(cast(Any, flat.view(np.uint8)))
        position = 0
        while position < len(into):
            got = file.read(min(len(into) - position, 1 << 24))
            if not got:
                raise Refused(f"ends within {info.filename!r}. {AGAIN}")
            into[position : position + len(got)] = got
            position += len(got)
    file.read(1)  # past the end the archive compares its checksum
    return _possible_entries(flat).reshape(shape, order="F" if match[2] == b"True" else "C")


def _possible_entries(flat: np.ndarray) -> np.ndarray:
    """Entries that are possible: truth values are 0 or 1, text is Unicode."""
    if flat.size == 0 or flat.dtype.kind not in "bU":
        return flat
    code = np.dtype(np.uint8 if flat.dtype.kind == "b" else np.uint32)
    largest = int(flat.view(code.newbyteorder(flat.dtype.byteorder)).max())
    if largest > (1 if flat.dtype.kind == "b" else sys.maxunicode):
        raise Refused(f"holds an array of {flat.dtype} with impossible entries. {DISTRUST}")
    return flat


def show_node(value: Any) -> str:
    return f"{value!r:.60}" if not isinstance(value, dict) else f"keys {sorted(value)!r:.60}"
