"""Array namespaces: the only file that tells NumPy, PyTorch, CuPy and JAX apart.

Everything else asks for `namespace(x)` and writes the array API standard. What the standard lacks
(triangular solves, updates in place, threads) lives here too, and so do the few operations on
*points*, which are an array, or a tuple of such containers for pairs and triples.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from importlib import import_module
from threading import Lock
from types import ModuleType
from typing import Any, TypeVar
from weakref import WeakSet, ref

import array_api_compat
import numpy as np
import scipy.linalg
from threadpoolctl import ThreadpoolController

from meanmap.exceptions import ApproximationWarning, SettingWarning, warn

# An array of any supported library. NumPy's stands for all of them when types are checked: what it
# shares with the others (shape, operators, indexing) is what the library uses.
Array = np.ndarray[Any, Any]
Points = Any  # an array of rows, or a tuple of them

_NUMPY = array_api_compat.array_namespace(np.empty(0))

HOSTS = {"cpu"}  # kinds of devices whose memory NumPy shares
DEVICE_SIDE = 8192  # rows and columns of a tile on an accelerator, which is kept busy by it
TILE = 1 << 18  # numbers in one tile of a Gram matrix: 2 MiB of doubles, about a core's cache


def is_array(value: object) -> bool:
    """Whether `value` is an array of a supported library (NumPy's scalars are not)."""
    if isinstance(value, np.ndarray | np.generic):
        return isinstance(value, np.ndarray)
    return bool(array_api_compat.is_array_api_obj(value))


def is_chunked(*values: Any) -> bool:
    """Whether there is a collection of Dask among the values; Dask is not imported to find out."""
    if "dask" not in sys.modules:
        return False
    from dask.base import is_dask_collection

    return any(is_dask_collection(value) for value in values)


def namespace(*arrays: Array) -> ModuleType:
    """The array namespace that the arrays share (NumPy's if none of them is an array)."""
    if len(arrays) == 1 and type(arrays[0]) is np.ndarray:
        return _NUMPY  # asked for at every step of a filter
    found = [a for a in arrays if not isinstance(a, np.ndarray) and is_array(a)]
    return array_api_compat.array_namespace(*found) if found else _NUMPY


def to_numpy(array: Array) -> np.ndarray:
    """A NumPy view or copy of an array of any library, on the host, that may be written to."""
    if isinstance(array, np.ndarray):
        return array
    if array_api_compat.is_torch_array(array):
        return array.detach().cpu().numpy()
    if array_api_compat.is_cupy_array(array):
        return array.get()
    return np.array(array)  # JAX lends its own, read-only


def asarray(value: Any, like: Array | None = None, dtype: Any = None) -> Array:
    """`value` as an array of the library, device and (unless given) dtype of `like`."""
    if like is None or isinstance(like, np.ndarray):
        dtype = dtype if dtype is not None or like is None else like.dtype
        return np.asarray(to_numpy(value) if is_array(value) else value, dtype=dtype)
    xp = namespace(like)
    value = to_numpy(value) if is_array(value) and not same_library(value, like) else value
    dtype = dtype if dtype is not None else like.dtype
    return xp.asarray(value, dtype=dtype, device=device(like))


def full(shape: int | tuple[int, ...], value: float, like: Array) -> Array:
    """An array of one number, of the library, device and dtype of `like`."""
    if isinstance(like, np.ndarray):
        return np.full(shape, value, dtype=like.dtype)
    return namespace(like).full(shape, value, dtype=like.dtype, device=device(like))


def device(array: Array) -> Any:
    """The device that an array lives on."""
    return array_api_compat.device(array)


def on_accelerator(points: Points) -> bool:
    """Whether the points live on an accelerator whose arrays can be written to (not JAX's)."""
    array = first_array(points)
    if isinstance(array, np.ndarray) or array_api_compat.is_jax_array(array):
        return False
    if array_api_compat.is_torch_array(array):
        return array.device.type not in HOSTS
    return bool(array_api_compat.is_cupy_array(array))


def same_library(a: Array, b: Array) -> bool:
    """Whether two arrays come from one array library."""
    return namespace(a) is namespace(b)


def to_library(points: Points, like: Points) -> Points:
    """The points as arrays of the library and device of `like`, their dtype kept."""
    if isinstance(points, tuple):
        return tuple(to_library(part, like) for part in points)
    like = first_array(like)
    if same_library(points, like):
        here = isinstance(like, np.ndarray) or device(points) == device(like)
        return points if here else array_api_compat.to_device(points, device(like))
    host = to_numpy(points)
    if isinstance(like, np.ndarray):
        return host
    xp = namespace(like)
    if host.dtype.kind not in "fiubc":
        raise TypeError(
            f"labels of type {host.dtype} do not fit arrays of {xp.__name__.split('.')[-1]}. "
            "Pass integer codes for them, or NumPy arrays throughout."
        )
    return xp.asarray(host, device=device(like))


def in_kind(value: Array, asked: Any) -> Array:
    """What was computed on the host, as the kind of array that was asked about.

    That of `asked`, in its precision and on its device, if it is an array of another library than
    NumPy; labels that are not numbers are returned unchanged.
    """
    like = asked
    while isinstance(like, tuple | list) and like:
        like = like[0]
    host = to_numpy(value)
    if not is_array(like) or isinstance(like, np.ndarray) or host.dtype.kind not in "fiub":
        return value
    xp = namespace(like)
    # half precision was promoted on the way in, and is not asked for back
    wide = is_floating(like) and xp.finfo(like.dtype).bits >= 32
    kept = like.dtype if wide and host.dtype.kind == "f" else None
    return xp.asarray(host, dtype=kept, device=device(like))


def epsilon(array: Array) -> float:
    """The machine epsilon of a floating array's dtype."""
    return float(namespace(array).finfo(array.dtype).eps)


def is_floating(array: Array) -> bool:
    """Whether the array holds real floating-point numbers."""
    return bool(namespace(array).isdtype(array.dtype, "real floating"))


def widest(array: Array) -> Any:
    """The dtype of double precision, or what JAX has in its place as it is set up."""
    xp = namespace(array)
    if array_api_compat.is_jax_array(array):
        from jax import config

        return xp.float64 if config.jax_enable_x64 else xp.float32
    return xp.float64


def eigh(matrix: Array) -> tuple[Array, Array]:
    """Eigenvalues and vectors of a symmetric matrix, found in double precision, in its dtype."""
    xp, dtype = namespace(matrix), matrix.dtype
    if array_api_compat.is_jax_array(matrix) and widest(matrix) != xp.float64:
        values, vectors = np.linalg.eigh(to_numpy(matrix).astype(np.float64))
        return asarray(values, matrix), asarray(vectors, matrix)
    values, vectors = xp.linalg.eigh(xp.astype(matrix, xp.float64, copy=False))
    return xp.astype(values, dtype, copy=False), xp.astype(vectors, dtype, copy=False)


def to_float(array: Array) -> Array:
    """The array in floating point: as it is if it already is, float64 otherwise."""
    xp = namespace(array)
    wide = is_floating(array) and xp.finfo(array.dtype).bits >= 32
    array = array if wide else xp.astype(array, widest(array))
    if not isinstance(array, np.ndarray) and array.dtype == xp.float32:
        _expect_full_products(array)
    return array


def host_array(value: Any) -> Any:
    """An array of any library as one that scikit-learn takes; anything else unchanged."""
    if not is_array(value) or isinstance(value, np.ndarray):
        return value
    return to_numpy(to_float(value) if is_floating(value) else value)


FULL = {"highest", "float32", "F32_F32_F32"}  # JAX's names of products that round once


def _expect_full_products(array: Array) -> None:
    """Warn where products of float32 arrays would keep ten bits, too few for distances."""
    if array_api_compat.is_jax_array(array):
        from jax import config

        cut = next(iter(array.devices())).platform != "cpu"
        cut = cut and config.jax_default_matmul_precision not in FULL
        remedy = 'jax.config.update("jax_default_matmul_precision", "highest")'
    elif array_api_compat.is_torch_array(array):
        from torch.backends import cuda

        cut = on_accelerator(array) and cuda.matmul.allow_tf32
        remedy = "torch.backends.cuda.matmul.allow_tf32 = False"
    else:
        return
    if cut:
        warn(
            "float32 arrays are multiplied in TensorFloat-32 as this library is set up: three "
            f"digits, too few for kernels. Call {remedy}, or pass float64.",
            ApproximationWarning,
        )


def assign(array: Array, index: Any, value: Array) -> Array:
    """`array` with `array[index] = value`, in place where the library allows it."""
    if array_api_compat.is_jax_array(array):
        return array.at[index].set(value)
    array[index] = value
    return array


def apply(name: str, array: Array) -> Array:
    """An elementwise function by name (`"exp"`, `"sqrt"`), in place where the library allows it.

    Only for arrays without other references, such as Gram tiles that were just computed.
    """
    if isinstance(array, np.ndarray):
        return getattr(np, name)(array, out=array)
    if array_api_compat.is_torch_array(array):
        return getattr(array, name + "_")()
    return getattr(namespace(array), name)(array)


def at_least(array: Array, least: float) -> Array:
    """The array with smaller values raised to `least`; only for arrays without other references."""
    if isinstance(array, np.ndarray):
        return np.maximum(array, least, out=array)
    if array_api_compat.is_torch_array(array):
        return array.clamp_(min=least)
    return namespace(array).clip(array, least, None)


def matmul_into(left: Array, right: Array, out: Array | None) -> Array:
    """`left @ right`, written into the buffer `out` where there is one (NumPy only)."""
    if out is None:
        return left @ right
    return np.matmul(left, right, out=out)


def solve_triangular(
    factor: Array, right: Array, transpose: bool = False, overwrite: bool = False
) -> Array:
    """Solve `L z = right` (or `Lᵀ z = right`) for a lower triangular `L`.

    `overwrite` lets the answer take the place of `right`, where the library can.
    """
    matrix = right if right.ndim > 1 else right[:, None]
    if isinstance(factor, np.ndarray):
        if factor.shape[0] == 0:
            return np.zeros_like(right)
        # straight to BLAS; a right side in C order is solved as its transpose, without a copy
        (trsm,) = scipy.linalg.get_blas_funcs(("trsm",), (factor, right))
        turn = matrix.flags.c_contiguous
        matrix, trans = (matrix.T, not transpose) if turn else (matrix, transpose)
        found = trsm(1.0, factor, matrix, side=turn, lower=1, trans_a=trans, overwrite_b=overwrite)
        found = found.T if turn else found
    elif array_api_compat.is_torch_array(factor):
        solve = namespace(factor).linalg.solve_triangular
        found = solve(factor.mT if transpose else factor, matrix, upper=transpose)
    else:
        library = "cupyx" if array_api_compat.is_cupy_array(factor) else "jax"
        solve = import_module(f"{library}.scipy.linalg").solve_triangular
        found = solve(factor, matrix, lower=True, trans=int(transpose))
    return found.reshape(right.shape)


def transpose(array: Array) -> Array:
    """`array.T` of a matrix; a vector as it is."""
    return array.T if array.ndim > 1 else array


def weighted_sum(weights: Array, rows: Array) -> Array:
    """`Σᵢ wᵢ rowsᵢ` for rows of any shape; a batch of weights adds a leading axis."""
    xp = namespace(rows)
    flat = xp.reshape(rows, (rows.shape[0], -1))
    return xp.reshape(weights @ flat, (*weights.shape[:-1], *rows.shape[1:]))


# --- points: an array of rows, or a tuple of such containers (pairs, triples) ---------------------


def count(points: Points) -> int:
    """How many points there are."""
    return count(points[0]) if isinstance(points, tuple) else int(points.shape[0])


def take(points: Points, index: Any) -> Points:
    """The points at `index`: a slice, or an integer or boolean NumPy array."""
    if isinstance(points, tuple):
        return tuple(take(part, index) for part in points)
    if isinstance(index, np.ndarray) and not isinstance(points, np.ndarray):
        index = np.flatnonzero(index) if index.dtype == bool else np.ascontiguousarray(index)
        xp = namespace(points)
        index = xp.asarray(index, device=device(points))
    return points[index]


def concatenate(parts: Sequence[Points]) -> Points:
    """Containers of points of one kind, one after the other."""
    if isinstance(parts[0], tuple):
        return tuple(concatenate(columns) for columns in zip(*parts, strict=True))
    return namespace(*parts).concat(list(parts))


def leaves(points: Points) -> list[Array]:
    """The arrays that points consist of."""
    return [leaf for p in points for leaf in leaves(p)] if isinstance(points, tuple) else [points]


def each_part(points: Points, function: Callable[[Array], Any]) -> Any:
    """Apply a function to points, part by part where they are tuples."""
    if isinstance(points, tuple):
        return tuple(each_part(part, function) for part in points)
    return function(points)


def first_array(points: Points) -> Array:
    """An array that tells the library and device of the points."""
    return first_array(points[0]) if isinstance(points, tuple) else points


def float_like(points: Points) -> Array:
    """An empty floating array of the points' library, device and precision.

    Labels and indices have none: they get float64.
    """
    array = first_array(points)
    if isinstance(array, np.ndarray):
        numeric = array.dtype in (np.float32, np.float64)
        return np.empty(0, dtype=array.dtype if numeric else np.float64)
    xp = namespace(array)
    dtype = array.dtype if is_floating(array) else widest(array)
    return xp.empty(0, dtype=dtype, device=device(array))


def in_one_precision(points_x: Points, points_y: Points) -> tuple[Points, Points]:
    """Both sides in X's array library, and in one precision."""
    points_y = to_library(points_y, points_x)
    x, y = float_like(points_x), float_like(points_y)
    if x.dtype == y.dtype:
        return points_x, points_y
    return each_part(points_x, to_double), each_part(points_y, to_double)


def to_double(array: Array) -> Array:
    """Floating numbers in double precision (JAX's widest); others unchanged."""
    if isinstance(array, np.ndarray):
        return array.astype(np.float64, copy=False) if array.dtype.kind == "f" else array
    xp = namespace(array)
    return xp.astype(array, widest(array), copy=False) if is_floating(array) else array


def in_precision(points: Points, like: Points) -> Points:
    """Points in the precision of others of their kind."""
    if isinstance(points, tuple):
        return tuple(in_precision(*parts) for parts in zip(points, like, strict=True))
    if points.dtype == like.dtype:
        return points
    return namespace(points).astype(points, like.dtype, copy=False)


# --- memory of an accelerator ---------------------------------------------------------------------

Answer = TypeVar("Answer")
LEAST = 256  # rows of a block that is not halved any more


def in_blocks(work: Callable[[int], Answer], size: int) -> Answer:
    """`work(size)`, begun again with half the size whenever the device runs out of memory."""
    while True:
        try:
            return work(size)
        except Exception as error:
            if not _out_of_memory(error) or size <= LEAST:
                raise
            text = str(error).splitlines()[0][:100]
        # outside the handler, whose traceback would keep the tiles alive
        _release()
        size //= 2
        warn(
            f"the device ran out of memory ({text}); going on with blocks of {size} rows, which "
            "are slower. Free some of its memory, or pass fewer rows at a time.",
            SettingWarning,
        )


def _out_of_memory(error: Exception) -> bool:
    """Whether an error is a library's own for a device without memory left."""
    kinds = {kind.__name__ for kind in type(error).__mro__}
    return "OutOfMemoryError" in kinds or "RESOURCE_EXHAUSTED" in str(error)


def _release() -> None:
    """Give back what libraries keep for later."""
    torch, cupy = sys.modules.get("torch"), sys.modules.get("cupy")
    if torch is not None and torch.cuda.is_available():
        torch.cuda.empty_cache()
    if cupy is not None:
        cupy.get_default_memory_pool().free_all_blocks()


# --- threads --------------------------------------------------------------------------------------


@cache
def _controller() -> ThreadpoolController:
    return ThreadpoolController().select(user_api="blas")


class _Stay:
    """One thread's wish for a BLAS of one thread; it counts for as long as it exists."""

    def __init__(self, of: int) -> None:
        self.of = of


#: The wish that this thread, or the one that started it, has made.
_own: ContextVar[Callable[[], _Stay | None]] = ContextVar("own", default=lambda: None)

#: All wishes: weak, so that one whose end an interrupt has cut off does not stay.
_stays: WeakSet[_Stay] = WeakSet()

#: How many threads each copy of the BLAS had before the first wish; empty without any.
_before: list[int] = []
_limiting = Lock()


def threads() -> int:
    """How many threads we may use: the BLAS's, which `threadpoolctl.threadpool_limits` sets."""
    own = _own.get()()
    return own.of if own else min(_limits(), default=1)


def _limits() -> list[int]:
    """How many threads the BLAS has, in each of its copies."""
    return [lib.get_num_threads() for lib in _controller().lib_controllers]


def _limit(stay: _Stay, enter: bool) -> None:
    """Limit the BLAS for one wish more, or one less: the last of them lifts the limit.

    It is that of the process. Others that set and restore a limit inside, as scikit-learn's k-means
    does, find one thread and leave one, whichever of our threads leaves first.
    """
    _limiting.acquire(timeout=1.0)  # an interrupt may have left it held: no one waits for ever
    found = _limits()
    if not _stays:  # where an interrupted call has left one thread, there were more before
        pairs = zip(_before or found, found, strict=True)
        _before[:] = [old if now == 1 else now for old, now in pairs]
    (_stays.add if enter else _stays.discard)(stay)
    wanted = [1] * len(found) if _stays else _before
    if found != wanted:
        for lib, number in zip(_controller().lib_controllers, wanted, strict=True):
            lib.set_num_threads(number)
        with _controller().limit():  # gives up what may be the right of one thread to set it
            pass
    if not _stays:
        _before.clear()
    if _limiting.locked():
        _limiting.release()


@contextmanager
def one_blas_thread(needed: bool = True) -> Iterator[int]:
    """Keep the BLAS to one thread (where needed); yields how many threads we may use ourselves.

    A threaded BLAS spends more on waking its threads than on a product of a few hundred rows, and
    two levels of threads fight each other.
    """
    of = threads() if needed else 1
    if not needed or _own.get()() is not None:
        yield of
        return
    stay = _Stay(of)
    token = _own.set(ref(stay))
    try:
        _limit(stay, True)
        yield of
    finally:
        _limit(stay, False)
        _own.reset(token)


def spans(length: int, step: int) -> Iterator[slice]:
    """Consecutive slices of at most `step` that cover `range(length)`."""
    for start in range(0, length, step):
        yield slice(start, min(start + step, length))


def share_blocks(work: Callable[[int, list[Any]], None], blocks: list[Any], many: bool) -> None:
    """Run `work(thread, blocks)` on stretches of a job, on all threads if they are `many`."""

    def share(thread: int, of: int) -> None:
        work(thread, blocks[thread::of])

    if many:
        for_each_thread(share)
    else:
        share(0, 1)


def view_as(buffer: np.ndarray, *shape: int) -> np.ndarray:
    """The beginning of a buffer as an array of this shape."""
    return buffer[: math.prod(shape)].reshape(shape)


def for_each_thread(work: Callable[[int, int], None]) -> None:
    """Run `work(thread, of)` on every thread we may use, the BLAS kept to one thread each.

    NumPy lets go of the interpreter lock in its loops, so that threads share a memory-bound job
    better than a threaded BLAS does.
    """
    with one_blas_thread() as of:
        if of == 1:
            work(0, 1)
            return
        with ThreadPoolExecutor(of) as pool:
            for done in [pool.submit(work, thread, of) for thread in range(of)]:
                done.result()
