"""Objects in files: `save` and `load`, without pickle.

A file is a zip archive that `numpy.load` can open too: one `.npy` member an array, and
`manifest.json`, a table of nodes. A node is a list, a dict, an array, an object of ours with its
attributes …; numbers and text stand in it as they are, everything else as `{"node": i}` with i
earlier in the table. So what is shared stays shared, and no file can be cyclic or bottomless.

Loading makes an object without calling anything of the file's choice: its class is looked up by
name among the classes of this package, its attributes are set one by one, and they are plain data.
Members are stored uncompressed, so that nothing can unfold to more than the file's own size.

What a class must do to be stored: nothing, if it is a dataclass or a scikit-learn estimator of this
package; else its name, or its base's, goes into `PLAIN`. Attributes that its `_functions` names may
be functions of the user's: a file has `LeftOut` in their place. Its state is its `__dict__` without
cached properties, or what its own `__getstate__` says. When a change makes older files unreadable,
raise `FORMAT`, and translate the older manifests where `load` reads their version.
"""

from __future__ import annotations

import importlib
import json
import math
import os
import re
import secrets
import stat
import struct
import sys
import types
import warnings
import zipfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields, is_dataclass
from enum import Enum
from functools import cached_property, partial
from inspect import getattr_static
from pathlib import Path
from typing import Any, BinaryIO, cast

import numpy as np
import sklearn
from sklearn.base import BaseEstimator
from sklearn.exceptions import InconsistentVersionWarning

from meanmap import checks
from meanmap.arrays import is_array, namespace, to_numpy

FORMAT = 1
MAX_BYTES = 4 << 30  # what `load` takes unless told otherwise
MAX_MANIFEST = 1 << 28  # text grows tenfold when it is read
MAX_DEPTH = 100  # objects in objects; nothing of ours comes near
MAX_KEY = 1000  # parts of a tuple that is a dict's key: hashing walks through all of them
MANIFEST = "manifest.json"
PACKAGE = __name__.partition(".")[0]

#: Classes of ours that are stored with what derives from them, besides dataclasses and estimators.
PLAIN = {
    f"{PACKAGE}.kernels.features.FeatureMap",
    f"{PACKAGE}.spaces.bases.Coordinates",
    f"{PACKAGE}.embeddings.single.Embedding",
    f"{PACKAGE}.operators.ConditionalOperator",
    f"{PACKAGE}.operators.Functional",
    f"{PACKAGE}.dynamics.stream.Stream",
}
#: Classes of others: a module, and the base that they derive from. Of scikit-learn those whose
#: answers are NumPy's arithmetic: what compiled code would do with numbers of a file's choice,
#: nobody knows.
FOREIGN = {
    "sklearn.gaussian_process.kernels": "Kernel",
    "sklearn.decomposition": "BaseEstimator",
    "sklearn.discriminant_analysis": "BaseEstimator",
    "sklearn.dummy": "BaseEstimator",
    "sklearn.kernel_ridge": "BaseEstimator",
    "sklearn.linear_model": "BaseEstimator",
    "sklearn.naive_bayes": "BaseEstimator",
    "sklearn.pipeline": "BaseEstimator",
    "sklearn.preprocessing": "BaseEstimator",
}
#: Array libraries, and the module that makes their arrays from NumPy's.
LIBRARIES = {
    "torch": "array_api_compat.torch",
    "cupy": "array_api_compat.cupy",
    "jax": "jax.numpy",
}
GRAPHS = ("Graph", "DiGraph", "MultiGraph", "MultiDiGraph")
_METHODS = types.FunctionType, property, classmethod, staticmethod, type
KINDS = "biufcSUMm"  # NumPy's plain types: booleans, numbers, text, dates


@dataclass(frozen=True)
class LeftOut:
    """What a file does not hold, in the place of a function of the user's."""

    owner: str
    name: str

    def __call__(self, *args: Any, **options: Any) -> Any:
        raise TypeError(
            f"{self.name}: this {self.owner} was read from a file, and a file holds data, no "
            f"functions. Give it again: set_params({self.name}=...)."
        )


_AGAIN = "Copy it again from where it came, or save the object again with meanmap.save(obj, path)."
_DISTRUST = "It was not written by meanmap.save: do not use it unless you know who made it."


def save(obj: Any, path: str | os.PathLike[str]) -> None:
    """Write a kernel, space, embedding, conditional or any other object of meanmap to a file.

    The file holds data only, no code: a kernel that is a Python function is refused. It appears
    under its name when it is complete; if anything goes wrong nothing is written, and a file that
    was there stays as it was. The same object gives the same bytes.

    Parameters
    ----------
    obj : object of meanmap, or lists, tuples and dicts of them, of arrays and of plain values
        Arrays of every plain dtype, of NumPy and other libraries (from their device, without
        gradients); what an object refers to twice is stored once.
    path : file name
        Used as it is; no ending is added. `.npz` suits: `numpy.load` shows the arrays.

    Examples
    --------
    >>> import os, tempfile
    >>> import numpy as np
    >>> from meanmap import ConditionalEmbedding
    >>> from meanmap.persistence import load, save
    >>> X = np.linspace(0, 3, 50)[:, None]
    >>> model = ConditionalEmbedding().fit(X, np.sin(X))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = os.path.join(folder, "model.npz")
    ...     save(model, path)
    ...     again = load(path)
    >>> bool((again.predict(X) == model.predict(X)).all())
    True
    """
    target = _target(path)
    writer, root = _encoded(obj)
    manifest = {
        "format": PACKAGE,
        "version": FORMAT,
        "written by": _version(),
        "root": root,
        "nodes": writer.nodes,
    }
    text = json.dumps(manifest, separators=(",", ":"), allow_nan=False).encode()
    if len(text) > MAX_MANIFEST:
        raise ValueError(
            f"obj holds {len(text):,} bytes of text, names and lists beside its arrays; a file "
            f"takes {MAX_MANIFEST:,}. Keep numbers and labels in NumPy arrays instead of lists."
        )
    _write(target, text, writer.arrays)


def load(path: str | os.PathLike[str], *, max_bytes: int = MAX_BYTES) -> Any:
    """Read an object that `save` wrote. Nothing in the file is run, whoever made it.

    Arrays come back bit for bit and in the same memory layout, in the library that they were in,
    torch's on CUDA if they were and there is one, others on the library's default device. Where
    the library is not installed they come back as NumPy arrays, with a warning: a model then works
    on NumPy.

    Parameters
    ----------
    path : file name
    max_bytes : int
        Files larger than this are refused; what is read never takes more memory for its arrays
        than the file's size.

    Raises
    ------
    ValueError
        If the file is not one of ours, of a newer format, cut short, damaged, too large, or asks
        for anything but data.

    Examples
    --------
    >>> import os, tempfile
    >>> from meanmap.kernels import Gaussian
    >>> from meanmap.persistence import load, save
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = os.path.join(folder, "kernel")
    ...     save(Gaussian(0.5) + 1, path)
    ...     load(path)
    Gaussian(bandwidth=0.5) + 1
    """
    name = _named(path)
    if not name.exists():
        raise FileNotFoundError(f"there is no file {str(name)!r}. Check the path.")
    if not name.is_file():
        raise ValueError(f"{str(name)!r} is not a regular file. Name one that meanmap.save wrote.")
    with open(name, "rb") as file:
        try:
            return _read(file, max_bytes)
        except _Refused as refused:
            reason = str(refused)
        except MemoryError:
            raise
        except Exception as error:  # whatever a hostile file may provoke, it is the file's fault
            reason = f"is damaged ({type(error).__name__}: {str(error)[:100]}). {_AGAIN}"
    raise ValueError(f"{str(name)!r} {reason}")


class _Refused(Exception):
    """Why a file is refused; the sentence starts after the file's name."""


def _version() -> str:
    return str(importlib.import_module(PACKAGE).__version__)


# --- the file on disk -----------------------------------------------------------------------------


def _named(path: Any) -> Path:
    if not isinstance(path, str | os.PathLike):
        raise TypeError(f"path: expected a file name, got {checks.describe(path)}.")
    return Path(path)


def _target(path: Any) -> Path:
    """Where to write, links followed; refused if no file can be there."""
    target = Path(os.path.realpath(_named(path)))
    if target.is_dir():
        raise IsADirectoryError(
            f"path: expected the name of a file, got the folder {str(path)!r}. Add a name: "
            f"{os.path.join(str(path), 'model.npz')!r}."
        )
    if not target.parent.is_dir():
        raise FileNotFoundError(
            f"path: there is no folder {str(target.parent)!r} to write to. Make it first."
        )
    if target.exists() and not target.is_file():
        raise ValueError(f"path: {str(path)!r} is a device or a pipe; expected a file's name.")
    return target


def _write(target: Path, manifest: bytes, arrays: list[np.ndarray]) -> None:
    """All or nothing: a file beside the target that takes its name when it is complete."""
    beside = target.with_name(f".{target.name[:100]}.{secrets.token_hex(8)}.tmp")
    flags = os.O_CREAT | os.O_EXCL | os.O_RDWR | getattr(os, "O_BINARY", 0)
    handle = os.open(beside, flags, 0o666)  # the user's umask decides
    try:
        with os.fdopen(handle, "w+b") as file:
            with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
                archive.writestr(_member(MANIFEST), manifest)
                for index, array in enumerate(arrays):
                    large = array.nbytes > 1 << 30
                    with archive.open(_member(_array_name(index)), "w", force_zip64=large) as out:
                        np.lib.format.write_array(out, array, version=(1, 0), allow_pickle=False)
            file.flush()
            os.fsync(file.fileno())
        if target.exists():
            os.chmod(beside, stat.S_IMODE(target.stat().st_mode))
        os.replace(beside, target)
    except BaseException:
        beside.unlink(missing_ok=True)
        raise


def _member(name: str) -> zipfile.ZipInfo:
    """A member with a fixed date, so that the same object gives the same bytes."""
    info = zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0))
    info.external_attr = 0o644 << 16
    info.create_system = 3
    return info


def _array_name(index: int) -> str:
    return f"arrays/{index}.npy"


def _read(file: BinaryIO, max_bytes: int) -> Any:
    size = os.fstat(file.fileno()).st_size
    if size > max_bytes:
        raise _Refused(
            f"has {size:,} bytes, more than max_bytes={max_bytes:,} allows. If you trust it, use "
            f"meanmap.load(path, max_bytes={size})."
        )
    start = file.read(8)
    if not start.startswith(b"PK\x03\x04"):
        raise _Refused(
            f"is no file of meanmap: expected a zip archive with {MANIFEST}, got {_guess(start)}. "
            "Name a file that meanmap.save wrote."
        )
    try:
        archive = zipfile.ZipFile(file)
    except Exception:  # zipfile has many ways to say so
        raise _Refused(
            f"is cut short or damaged: expected a complete zip archive, got {size:,} bytes without "
            f"a table of contents. {_AGAIN}"
        ) from None
    with archive:
        members = _members(archive, size)
        with archive.open(members.pop(MANIFEST)) as text:
            manifest = json.loads(text.read().decode("utf-8"), parse_constant=_no_constant)
        _check_version(manifest)
        return _Reader(archive, members).root(manifest)


def _guess(start: bytes) -> str:
    """What a file is that is not a zip archive."""
    known = {
        b"\x80": "a pickle (loading one runs code, so meanmap does not)",
        b"\x93NUMPY": "a single .npy array (numpy.load reads it)",
        b"\x89HDF": "an HDF5 file",
        b"\x1f\x8b": "a gzip file (unpack it first)",
        b"PK\x05\x06": "an empty zip archive",
    }
    if not start:
        return "an empty file"
    found = [text for magic, text in known.items() if start.startswith(magic)]
    return found[0] if found else f"something that starts with {start!r}"


def _members(archive: zipfile.ZipFile, size: int) -> dict[str, zipfile.ZipInfo]:
    """The archive's members by name, none of which can be larger than the file."""
    members: dict[str, zipfile.ZipInfo] = {}
    total = 0
    for info in archive.infolist():
        if info.filename in members:
            raise _Refused(f"holds {info.filename!r:.80} twice. {_DISTRUST}")
        if info.filename != MANIFEST and not re.fullmatch(r"arrays/\d{1,9}\.npy", info.filename):
            if MANIFEST not in archive.namelist():
                break
            raise _Refused(
                f"holds a member {info.filename!r:.80}; expected {MANIFEST} and arrays/0.npy, "
                f"arrays/1.npy, … only. {_DISTRUST}"
            )
        if info.compress_type != zipfile.ZIP_STORED or info.compress_size != info.file_size:
            raise _Refused(
                f"holds {info.filename!r} compressed; meanmap.save does not compress, and what "
                "unfolds is refused. Load it where it was written and save it again."
            )
        total += info.file_size
        members[info.filename] = info
    if MANIFEST not in members:
        raise _Refused(
            f"is no file of meanmap: expected a zip archive with {MANIFEST}, got one without (an "
            ".npz of NumPy's own is read with numpy.load). Name a file that meanmap.save wrote."
        )
    if total > size or members[MANIFEST].file_size > MAX_MANIFEST:
        largest = max(info.file_size for info in members.values())
        raise _Refused(
            f"declares members of {total:,} bytes (the largest {largest:,}) in a file of {size:,}, "
            f"with at most {MAX_MANIFEST:,} for {MANIFEST}. {_DISTRUST}"
        )
    return members


def _no_constant(name: str) -> Any:
    raise _Refused(f"has {name} in {MANIFEST}, which is not JSON. {_DISTRUST}")


def _check_version(manifest: Any) -> None:
    if not isinstance(manifest, dict) or manifest.get("format") != PACKAGE:
        raise _Refused(
            f'is no file of meanmap: expected "format": "{PACKAGE}" in {MANIFEST}, got '
            f"{_shown(manifest)}. Name a file that meanmap.save wrote."
        )
    version = manifest.get("version")
    if type(version) is not int or version != FORMAT:
        newer = type(version) is int and version > FORMAT
        raise _Refused(
            f"has format version {version!r:.40}, written by meanmap "
            f"{manifest.get('written by')!r:.40}; this is meanmap {_version()}, which reads "
            f"version {FORMAT}. "
            + ("Upgrade meanmap to read it." if newer else "There is no such version: " + _DISTRUST)
        )


def _shown(value: Any) -> str:
    return f"{value!r:.60}" if not isinstance(value, dict) else f"keys {sorted(value)!r:.60}"


# --- classes --------------------------------------------------------------------------------------


def _storable(cls: type) -> bool:
    """Whether objects of this class go into files: the whitelist, for writing and reading."""
    shown = (_name_of(cls) or "").partition(":")[0]
    if shown in FOREIGN:
        own = getattr(sys.modules[shown], FOREIGN[shown], BaseEstimator)
        return issubclass(cls, own)
    if cls.__module__.partition(".")[0] != PACKAGE:
        return False
    if issubclass(cls, (tuple, list, dict, str, int, float, np.ndarray, Enum, BaseException)):
        return False
    names = {f"{base.__module__}.{base.__qualname__}" for base in cls.__mro__}
    return is_dataclass(cls) or issubclass(cls, BaseEstimator) or bool(names & PLAIN)


def _name_of(cls: type) -> str | None:
    """`module:name`, from the outermost package that shows the class: files outlive a move."""
    parts = cls.__module__.split(".")
    for length in range(1, len(parts) + 1):
        module = sys.modules.get(".".join(parts[:length]))
        if module is not None and vars(module).get(cls.__name__) is cls:
            return f"{'.'.join(parts[:length])}:{cls.__name__}"
    return None


def _class_of(name: Any) -> type:
    """The class with this name, if it is one of those that files may hold."""
    refusal = _Refused(
        f"asks for an object of class {name!r:.80}; expected one of meanmap's own. {_DISTRUST}"
    )
    match = re.fullmatch(r"((?:[A-Za-z]\w*)(?:\.[A-Za-z_]\w*)*):([A-Za-z_]\w*)", str(name), re.A)
    if match is None or "__" in match[1]:
        raise refusal
    module_name, class_name = match.groups()
    if module_name.partition(".")[0] != PACKAGE and module_name not in FOREIGN:
        raise refusal
    try:
        module = importlib.import_module(module_name)
    except ImportError:
        raise _Refused(
            f"asks for an object of class {name!r:.80}, which meanmap {_version()} does not have. "
            "Load it with the version that wrote it, or upgrade."
        ) from None
    # this package imports some of its names when they are asked for
    own = module_name == PACKAGE
    cls = getattr(module, class_name, None) if own else vars(module).get(class_name)
    if not isinstance(cls, type) or not _storable(cls):
        raise refusal
    return cls


def _state(obj: Any) -> dict[str, Any]:
    """An object's attributes by name, without what it can compute again."""
    cls = type(obj)
    state = obj.__getstate__()
    if isinstance(state, tuple):  # of a class with slots
        state = {**(state[0] or {}), **(state[1] or {})}
    state = state or {}
    if cls.__getstate__ not in (object.__getstate__, BaseEstimator.__getstate__):
        return dict(state)
    return {
        name: value
        for name, value in state.items()
        if not isinstance(getattr_static(cls, name, None), cached_property)
    }


def _required(cls: type) -> Iterable[str]:
    """Attributes without which an object of the class is none."""
    if is_dataclass(cls):
        return [field.name for field in fields(cls)]
    return cast(Any, cls)._get_param_names() if issubclass(cls, BaseEstimator) else ()


def _check_attribute(cls: type, name: str) -> None:
    """An attribute that an object may have: not a method's or property's name, nothing special."""
    hides = isinstance(getattr_static(cls, name, None), _METHODS)
    if not name.isidentifier() or name.startswith("__") or hides:
        raise _Refused(f"gives {cls.__name__} an attribute {name!r:.60}. {_DISTRUST}")


def _check_foreign(made: Any) -> None:
    """An estimator of scikit-learn's, of another version told, and none that reads other files."""
    if getattr(made, "memory", None) is not None:
        # a cache is a folder of pickles, which run what they please
        raise _Refused(f"gives {type(made).__name__} a folder to cache in. {_DISTRUST}")
    version = getattr(made, "_sklearn_version", sklearn.__version__)
    if version != sklearn.__version__:
        warnings.warn(
            InconsistentVersionWarning(
                estimator_name=type(made).__name__,
                current_sklearn_version=sklearn.__version__,
                original_sklearn_version=version,
            ),
            stacklevel=2,
        )


# --- from objects to nodes ------------------------------------------------------------------------


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
    elif _is_ours(cls):
        remedy = f"Files do not know this class: it belongs into {__name__}.PLAIN."
    elif any(_is_ours(base) for base in cls.__mro__):
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


def _is_ours(cls: type) -> bool:
    return cls.__module__.partition(".")[0] == PACKAGE


def _encoded(obj: Any) -> tuple[_Writer, Any]:
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
        if _storable(kind):
            return self._object(value, where)
        if kind.__module__.partition(".")[0] == "networkx" and kind.__name__ in GRAPHS:
            return self._graph(value, where)
        if is_array(value):
            return self._foreign_array(value, where)
        raise _refusal(value, where)

    def _pair(self, key: Any, item: Any, where: str) -> list[Any]:
        if not _is_key(key) or _weight(key) > MAX_KEY:
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
        name = _name_of(type(obj))
        if name is None:
            raise _refusal(obj, where)
        state: dict[str, Any] = {}
        functions = getattr(type(obj), "_functions", ())
        for attribute, value in _state(obj).items():
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
    """Whether this is a value of ours that is computed when first asked for."""
    if not isinstance(value, partial):
        return False
    return str(getattr(value.func, "__module__", "")).partition(".")[0] == PACKAGE


def _is_key(value: Any) -> bool:
    """Whether a dict of a file may have this key: text, numbers, tuples of them."""
    if type(value) is tuple:
        return all(map(_is_key, value))
    return value is None or type(value) in (bool, int, float, str) or isinstance(value, np.generic)


def _weight(value: Any) -> int:
    return 1 + sum(map(_weight, value)) if type(value) is tuple else 1


# --- from nodes to objects ------------------------------------------------------------------------

_HEADER = re.compile(
    rb"\{'descr': '([<>|][biufcSUMm]\d{1,9}(?:\[\d{0,9}[A-Za-z]{1,2}\])?)', "
    rb"'fortran_order': (True|False), 'shape': \(((?:\d{1,18}(?:, \d{1,18})*,?)?)\), \} *\n"
)


class _Reader:
    """Makes an object of a manifest's nodes, each from earlier ones."""

    def __init__(self, archive: zipfile.ZipFile, members: dict[str, zipfile.ZipInfo]) -> None:
        self._archive = archive
        self._members = members
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
                raise _Refused(
                    f"has a node {index} that is none of {', '.join(self._makers)}: "
                    f"{_shown(node)}. {_DISTRUST}"
                )
            self._tallest, self._heaviest = 0, 1
            made = maker(node)
            if self._tallest >= MAX_DEPTH:
                raise _Refused(f"nests objects more than {MAX_DEPTH} deep. {_DISTRUST}")
            self._made.append(made)
            self._heights.append(self._tallest + 1)
            self._weights.append(self._heaviest)
        if self._members:
            unused = sorted(self._members)
            raise _Refused(f"holds arrays that nothing uses: {unused!r:.80}. {_AGAIN}")
        root = self._value(manifest.get("root"))
        if self._missing:
            libraries = " and ".join(sorted(self._missing))
            warnings.warn(
                f"the file holds arrays of {libraries}, which is not installed here: they are read "
                f"as NumPy arrays. Install {libraries} to get them back as they were.",
                UserWarning,
                stacklevel=4,
            )
        return root

    def _value(self, value: Any) -> Any:
        if not isinstance(value, dict):
            if isinstance(value, list):
                raise _Refused(f"has a list where a value is expected. {_DISTRUST}")
            self._heaviest += 1
            return value
        ((kind, content),) = value.items()
        if kind == "node":
            if type(content) is not int or not 0 <= content < len(self._made):
                raise _Refused(
                    f"refers to node {content!r:.40} from node {len(self._made)}; expected an "
                    f"earlier one. {_DISTRUST}"
                )
            self._tallest = max(self._tallest, self._heights[content])
            self._heaviest += self._weights[content]
            return self._made[content]
        self._heaviest += 1
        if kind == "int":
            return int(content, 16)
        if kind == "float":
            return struct.unpack(">d", bytes.fromhex(content))[0]
        raise _Refused(f"has a value of kind {kind!r:.40}, which does not exist. {_DISTRUST}")

    def _items(self, items: Any) -> list[Any]:
        if not isinstance(items, list):
            raise _Refused(f"has {_shown(items)} where a list is expected. {_DISTRUST}")
        return [self._value(item) for item in items]

    def _key(self, key: Any) -> Any:
        before = self._heaviest
        made = self._value(key)
        if self._heaviest - before > MAX_KEY or not _is_key(made):
            raise _Refused(f"has a dict with a key that is {checks.describe(made)}. {_DISTRUST}")
        return made

    def _dict(self, pairs: Any) -> dict[Any, Any]:
        made = {self._key(key): self._value(value) for key, value in pairs}
        if len(made) != len(pairs):
            raise _Refused(f"has a dict with the same key twice. {_DISTRUST}")
        return made

    def _objects(self, node: dict[str, Any], kind: str, dtype: Any) -> np.ndarray:
        items = self._items(node[kind])
        shape = tuple(node["shape"])
        _check_shape(shape, len(items), 8)
        made = np.empty(len(items), dtype=dtype)
        for i, item in enumerate(items):
            if kind == "strings" and type(item) is not str:
                raise _Refused(f"has {checks.describe(item)} in an array of text. {_DISTRUST}")
            made[i] = item
        return made.reshape(shape)

    def _array(self, node: dict[str, Any]) -> Any:
        index = node["array"]
        info = self._members.pop(_array_name(index), None) if type(index) is int else None
        if info is None:
            raise _Refused(f"lacks the array {index!r:.40} that {MANIFEST} names. {_AGAIN}")
        with self._archive.open(info) as file:
            array = _read_array(cast(BinaryIO, file), info)
        if "axes" in node:
            axes = node["axes"]
            if sorted(axes) != list(range(array.ndim)):
                raise _Refused(f"orders {array.ndim} axes as {axes!r:.60}. {_DISTRUST}")
            array = array.transpose(np.argsort(axes))
        library = node.get("library")
        if library is None:
            return array
        if library not in LIBRARIES:
            raise _Refused(
                f"holds an array of the library {library!r:.40}; expected one of "
                f"{', '.join(LIBRARIES)}. {_DISTRUST}"
            )
        try:
            xp = importlib.import_module(LIBRARIES[library])
        except ImportError:
            self._missing.add(library)
            return array
        where = node.get("device")
        if where not in (None, "cuda"):
            raise _Refused(f"holds an array of the device {where!r:.40}. {_DISTRUST}")
        there = where is not None and xp.cuda.is_available()
        made = xp.asarray(array, device=where) if there else xp.asarray(array)
        if to_numpy(made).dtype != array.dtype:
            raise _Refused(
                f"holds {array.dtype} arrays of {library}, which makes {made.dtype} of them as it "
                "is set up here. Turn its 64-bit types on."
            )
        return made

    def _graph(self, node: dict[str, Any]) -> Any:
        import networkx

        if node["graph"] not in GRAPHS:
            raise _Refused(f"holds a graph of kind {node['graph']!r:.40}. {_DISTRUST}")
        graph = getattr(networkx, node["graph"])()
        graph.graph.update(self._attributes(node["attributes"]))
        for key, data in node["nodes"]:
            name = self._key(key)
            graph.add_node(name)
            graph.nodes[name].update(self._attributes(data))
        for *ends, data in node["edges"]:
            names = [self._key(end) for end in ends]
            if len(names) != 2 + graph.is_multigraph() or not all(n in graph for n in names[:2]):
                raise _Refused(f"has an edge between nodes that a graph lacks. {_DISTRUST}")
            graph.add_edge(*names)
            graph.edges[tuple(names)].update(self._attributes(data))
        return graph

    def _attributes(self, reference: Any) -> dict[Any, Any]:
        made = self._value(reference)
        if type(made) is not dict:
            raise _Refused(f"has {checks.describe(made)} for a graph's attributes. {_DISTRUST}")
        return made

    def _object(self, node: dict[str, Any]) -> Any:
        cls, state = _class_of(node["object"]), node["state"]
        lacking = [name for name in _required(cls) if name not in state]
        if lacking:
            raise _Refused(
                f"lacks {', '.join(lacking)} of a {cls.__name__}; meanmap {_version()} needs it. "
                "Load it with the version that wrote it."
            )
        made: Any = object.__new__(cls)  # no __init__: nothing runs
        for name, value in state.items():
            _check_attribute(cls, name)
            object.__setattr__(made, name, self._value(value))
        if not _is_ours(cls):
            _check_foreign(made)
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
        raise _Refused(f"has {len(data)} bytes for a number of type {dtype}. {_DISTRUST}")
    return _checked(np.frombuffer(data, dtype=dtype))[0]


def _dtype(text: str) -> np.dtype[Any]:
    dtype = np.dtype(text)
    if dtype.kind not in KINDS or dtype.itemsize == 0:
        raise _Refused(f"holds an array of type {text!r:.40}; expected plain data. {_DISTRUST}")
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
        raise _Refused(f"declares an array of shape {shape!r:.60} for {items:,} entries. {_AGAIN}")


def _read_array(file: BinaryIO, info: zipfile.ZipInfo) -> np.ndarray:
    """A `.npy` member, its size checked before memory is taken and its header never evaluated."""
    start = file.read(10)
    if len(start) < 10 or start[:8] != b"\x93NUMPY\x01\x00":
        raise _Refused(f"holds {info.filename!r}, which is no array in NumPy's format. {_AGAIN}")
    header = file.read(int.from_bytes(start[8:], "little"))
    match = _HEADER.fullmatch(header)
    if match is None:
        raise _Refused(
            f"holds {info.filename!r} of a type that is not plain data ({header[:60]!r}). "
            f"{_DISTRUST}"
        )
    dtype = _dtype(match[1].decode("utf-8"))
    shape = tuple(int(length) for length in match[3].decode().split(",") if length.strip())
    items, rest = divmod(info.file_size - len(start) - len(header), dtype.itemsize)
    if rest:
        raise _Refused(f"holds {info.filename!r} with {rest} bytes too many for {dtype}. {_AGAIN}")
    _check_shape(shape, items, dtype.itemsize)
    flat = np.empty(items, dtype=dtype)
    if items:
        into = memoryview(cast(Any, flat.view(np.uint8)))
        position = 0
        while position < len(into):
            got = file.read(min(len(into) - position, 1 << 24))
            if not got:
                raise _Refused(f"ends within {info.filename!r}. {_AGAIN}")
            into[position : position + len(got)] = got
            position += len(got)
    file.read(1)  # past the end the archive compares its checksum
    return _checked(flat).reshape(shape, order="F" if match[2] == b"True" else "C")


def _checked(flat: np.ndarray) -> np.ndarray:
    """Entries that are possible: truth values are 0 or 1, text is Unicode."""
    if flat.size == 0 or flat.dtype.kind not in "bU":
        return flat
    code = np.dtype(np.uint8 if flat.dtype.kind == "b" else np.uint32)
    largest = int(flat.view(code.newbyteorder(flat.dtype.byteorder)).max())
    if largest > (1 if flat.dtype.kind == "b" else sys.maxunicode):
        raise _Refused(f"holds an array of {flat.dtype} with impossible entries. {_DISTRUST}")
    return flat


__all__ = ["FORMAT", "load", "save"]
