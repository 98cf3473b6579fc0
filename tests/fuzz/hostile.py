"""Values that users should not pass, and unusual forms of good values that they will.

A *twist* makes a hostile value of a good one. `FORMS` only change its form: the answer must be the
one for the plain array. `ARRAYS`, `WHOLES` and `NUMBERS` change what it says, or make nonsense of
it: the answer must be right, or a refusal in words. Every twist is drawn from a seed, so that a
case is four plain values: an entry, an argument, a twist and a seed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy import sparse

from optional_packages import require

Rng = np.random.Generator
Twist = Callable[[Any, Rng], Any]


@dataclass(frozen=True)
class Form:
    """Another form of the array `plain(good)`; `refused` says that it may also be refused."""

    dress: Callable[[np.ndarray], Any]
    plain: Callable[[np.ndarray], np.ndarray] = lambda good: good
    refused: bool = False
    only: str = "UOfiub"  # kinds of arrays that can take the form
    axes: tuple[int, ...] = (1, 2, 3)


# --- forms: the same data -------------------------------------------------------------------------


def frame(good: np.ndarray, **options: Any) -> Any:
    """A data frame, or a series for one axis."""
    if good.ndim == 1:
        options.pop("columns", None)
        return pd.Series(good, **options)
    options.setdefault("columns", [f"x{i}" for i in range(good.shape[1])])
    return pd.DataFrame(good, **options)


def shuffled_index(good: np.ndarray) -> Any:
    """Labels of rows that are numbers in another order: `y[0]` is not the first row."""
    return frame(good, index=np.arange(len(good))[::-1])


def two_levels(good: np.ndarray) -> Any:
    """A MultiIndex."""
    return frame(good, index=pd.MultiIndex.from_arrays([np.arange(len(good)) % 2] * 2))


def read_only(good: np.ndarray) -> np.ndarray:
    """An array that must not be written to."""
    found = good.copy()
    found.setflags(write=False)
    return found


def other_bytes(good: np.ndarray) -> np.ndarray:
    """The byte order of another machine."""
    return good.astype(good.dtype.newbyteorder(">"))


class Subclass(np.ndarray):
    """An array by another name."""


def counted(good: np.ndarray) -> np.ndarray:
    """Small counts in the place of numbers."""
    return np.rint(3 * abs(np.nan_to_num(good)))


def whole_numbers(kind: str) -> Form:
    """Counts in an integer type, for differences that wrap around."""
    return Form(lambda plain: plain.astype(kind), counted, only="f", axes=(2, 3))


FORMS: dict[str, Form] = {
    "every other row": Form(lambda x: np.repeat(x, 2, axis=0)[::2]),
    "every other column": Form(lambda x: np.repeat(x, 2, axis=-1)[..., ::2], axes=(2, 3)),
    "negative strides": Form(lambda x: x[::-1].copy()[::-1]),
    "columns in memory": Form(lambda x: np.asfortranarray(x)),
    "read-only": Form(read_only),
    "big-endian": Form(other_bytes, only="Ufiu"),
    "a mask of nothing": Form(lambda x: np.ma.masked_array(x, np.zeros(x.shape, bool))),
    "no mask": Form(np.ma.masked_array),
    "np.matrix": Form(np.asmatrix, axes=(2,), refused=True),
    "a subclass": Form(lambda x: x.view(Subclass)),
    "lists": Form(lambda x: x.tolist()),
    "a tuple of rows": Form(lambda x: tuple(x.tolist()), refused=True),
    "objects": Form(lambda x: x.astype(object), refused=True),
    "long double": Form(lambda x: x.astype(np.longdouble), only="f"),
    "half precision": Form(
        lambda x: x.astype(np.float16), lambda x: x.astype(np.float16).astype(np.float64), only="f"
    ),
    **{
        kind: whole_numbers(kind)
        for kind in ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
    },
    "truth values": Form(
        lambda x: x.astype(bool), lambda x: (x > 0).astype(float), only="f", axes=(2, 3)
    ),
    "frame": Form(frame, axes=(1, 2)),
    "frame of shuffled rows": Form(shuffled_index, axes=(1, 2)),
    "frame of one name for all rows": Form(lambda x: frame(x, index=["r"] * len(x)), axes=(1, 2)),
    "frame of dates": Form(
        lambda x: frame(x, index=pd.date_range("2020", periods=len(x))), axes=(1, 2)
    ),
    "frame of two levels": Form(two_levels, axes=(1, 2)),
    "frame of numbered columns": Form(lambda x: frame(x, columns=range(x.shape[1])), axes=(2,)),
    "frame of columns of one name": Form(
        lambda x: frame(x, columns=["x"] * x.shape[1]), refused=True, axes=(2,)
    ),
    "frame of columns of two kinds": Form(
        lambda x: frame(x, columns=[0, *"abcdefgh"][: x.shape[1]]), refused=True, axes=(2,)
    ),
    "frame of objects": Form(lambda x: frame(x.astype(object)), axes=(1, 2), refused=True),
    "frame that allows for NA": Form(
        lambda x: frame(x).convert_dtypes(), lambda x: x, only="f", axes=(1, 2)
    ),
    "frame of Float64": Form(lambda x: frame(x).astype("Float64"), only="f", axes=(1, 2)),
    "frame of Int64": Form(lambda x: frame(x).astype("Int64"), counted, only="f", axes=(2,)),
    "frame of sparse columns": Form(
        lambda x: frame(x).astype(pd.SparseDtype("float64", 0.0)), refused=True, only="f", axes=(2,)
    ),
    "sparse matrix": Form(sparse.csr_matrix, refused=True, only="fiu", axes=(2,)),
    "sparse array": Form(sparse.coo_array, refused=True, only="fiu", axes=(2,)),
    "categories": Form(lambda x: pd.Series(x).astype("category"), refused=True, axes=(1,)),
    "memory": Form(memoryview, refused=True, only="fiu"),
    "an object with __array__": Form(lambda x: Lent(x), refused=True),
    "table: frame": Form(pd.DataFrame, only="table"),
    "table: frame of shuffled rows": Form(
        lambda t: pd.DataFrame(t, index=None).set_index(np.arange(rows(t["a"]))[::-1]), only="table"
    ),
    "table: frame of one name for all rows": Form(
        lambda t: pd.DataFrame(t).set_index(np.zeros(rows(t["a"]))), only="table"
    ),
    "table: frame that allows for NA": Form(
        lambda t: pd.DataFrame(t).convert_dtypes(), only="table"
    ),
    "table: frame of objects": Form(lambda t: pd.DataFrame(t).astype(object), only="table"),
    "table: fields": Form(lambda t: pd.DataFrame(t).to_records(index=False), only="table"),
    "table: series in other orders": Form(
        lambda t: {name: shuffled_index(column) for name, column in t.items()}, only="table"
    ),
    "table: lists": Form(lambda t: {name: v.tolist() for name, v in t.items()}, only="table"),
    "table: masks of nothing": Form(
        lambda t: {name: np.ma.masked_array(v) for name, v in t.items()}, only="table"
    ),
    "table: big-endian": Form(
        lambda t: {name: other_bytes(v) for name, v in t.items()}, only="table"
    ),
    "list: frames": Form(
        lambda items: [frame(np.atleast_2d(item)) for item in items], only="list", refused=True
    ),
    "list: read-only": Form(lambda items: [read_only(item) for item in items], only="list"),
    "list: big-endian": Form(lambda items: [other_bytes(item) for item in items], only="list"),
    "list: objects": Form(lambda items: boxed(items), only="list", refused=True),
    "list: lists": Form(lambda items: [item.tolist() for item in items], only="list"),
    "list: masks of nothing": Form(
        lambda items: [np.ma.masked_array(item) for item in items], only="list"
    ),
}


def boxed(items: list[Any]) -> np.ndarray:
    """A list as a NumPy array of objects."""
    found = np.empty(len(items), dtype=object)
    for i, item in enumerate(items):
        found[i] = item
    return found


class Lent:
    """Something that can only be read as an array."""

    def __init__(self, values: np.ndarray) -> None:
        self.values = values

    def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray:
        return self.values.astype(dtype) if dtype else self.values.copy()


def wears(form: Form, good: Any) -> bool:
    """Whether a good value can take the form."""
    if isinstance(good, dict):
        return form.only == "table"
    if isinstance(good, list):
        return form.only == "list" and isinstance(good[0], np.ndarray)
    if not isinstance(good, np.ndarray) or form.only in ("table", "list"):
        return False
    return good.dtype.kind in form.only and good.ndim in form.axes


# --- arrays that say something else ---------------------------------------------------------------


def rows(good: Any) -> int:
    """How many rows a good value has."""
    return len(good) if hasattr(good, "__len__") else 1


def floating(good: Any) -> np.ndarray:
    """A fresh floating-point array of the good one's shape."""
    good = np.asarray(good)
    return good.astype(np.float64) if good.dtype.kind in "fiub" else np.ones(good.shape)


def spoiled(*numbers: float) -> Twist:
    """A few entries put in the place of others."""

    def twist(good: Any, rng: Rng) -> Any:
        found = floating(good)
        if found.size:
            places = rng.integers(found.size, size=int(rng.integers(1, 4)))
            found.flat[places] = rng.choice(numbers, size=len(places))
        return found

    return twist


def scaled(*factors: float) -> Twist:
    """All entries times one number."""
    return lambda good, rng: floating(good) * rng.choice(factors)


def filled(*numbers: float) -> Twist:
    """One number everywhere."""
    return lambda good, rng: np.full(np.shape(good), rng.choice(numbers))


def integers(good: Any, rng: Rng) -> Any:
    """Whole numbers of any width, its ends among them."""
    kind = np.dtype(str(rng.choice(["int8", "uint8", "int16", "uint16", "int32", "int64"])))
    ends = np.iinfo(kind)
    found = rng.integers(ends.min, ends.max, size=np.shape(good), dtype=kind)
    if found.size:
        found.flat[0], found.flat[-1] = ends.min, ends.max
    return found


def beyond(good: Any, rng: Rng) -> Any:
    """Whole numbers that no machine word holds."""
    found = np.empty(np.shape(good), dtype=object)
    found.fill(10 ** int(rng.choice([25, 400])))
    return found


def drawn(good: Any, rng: Rng) -> Any:
    """An array that has nothing to do with the good one."""
    kind = str(rng.choice(["f8", "f4", "i8", "u1", "?", "c16", "U3", "S2", "M8[s]", "m8[s]", "O"]))
    shape = tuple(int(n) for n in rng.integers(0, 5, size=int(rng.integers(0, 4))))
    return rng.integers(0, 3, size=shape).astype(kind)


def misshapen(good: Any, rng: Rng) -> Any:
    """The good rows with an axis more or less, or fewer or more of them."""
    good = np.asarray(good)
    changed: list[Callable[[], Any]] = [
        lambda: good[None],
        lambda: good[..., None],
        lambda: good.reshape(-1),
        lambda: good[:0],
        lambda: good[:1],
        lambda: good[:2],
        lambda: good[:-1],
        lambda: np.concatenate([good, good]),
        lambda: good[..., :0],
        lambda: good[0],
        lambda: good.reshape(-1)[0],
        lambda: np.concatenate([good, good], axis=-1),
        lambda: good.T,
    ]
    return changed[int(rng.integers(len(changed)))]()


def missing_values(good: Any, rng: Rng) -> Any:
    """A frame or series with holes of many kinds."""
    good = np.asarray(good)
    if good.ndim not in (1, 2) or not good.size:
        return pd.Series([None, None])
    found = frame(good)
    hole: list[Callable[[], Any]] = [
        lambda: found.astype("Float64").mask(found == found.min()),
        lambda: found.astype(object).mask(found == found.min(), None),
        lambda: found.astype(object).mask(found == found.min(), pd.NA),
        lambda: found.astype(object).mask(found == found.min(), pd.NaT),
        lambda: found.astype("string").mask(found == found.min()),
        lambda: found.astype("category").mask(found == found.min()),
    ]
    try:
        return hole[int(rng.integers(len(hole)))]()
    except (TypeError, ValueError):  # text in a frame of numbers
        return found.astype(object).where(found != found.iloc[0], None)


def mixed_frame(good: Any, rng: Rng) -> Any:
    """Columns of kinds that do not go together."""
    n = max(rows(good), 1)
    columns = {
        "number": np.linspace(0, 1, n),
        "text": ["a", "b"] * n,
        "date": pd.date_range("2020", periods=n),
        "category": pd.Categorical(list("xyz") * n)[:n],
        "span": pd.to_timedelta(np.arange(n), "s"),
        "object": [{}] * n,
        "complex": np.arange(n) * 1j,
        "interval": pd.interval_range(0, n),
    }
    some = rng.permutation(list(columns))[: int(rng.integers(1, 4))]
    return pd.DataFrame({name: columns[name][:n] for name in some})


def structured(good: Any, rng: Rng) -> Any:
    """Named fields."""
    return np.zeros(rows(good), dtype=[("a", "f8"), ("b", "U2")])


def ragged(good: Any, rng: Rng) -> Any:
    """Rows of different lengths."""
    return [[1.0] * (1 + i % 3) for i in range(rows(good))]


def nested(good: Any, rng: Rng) -> Any:
    """Tuples in tuples."""
    return ((1.0, (2.0, 3.0)), ((4.0, 5.0), 6.0))


def masked(good: Any, rng: Rng) -> Any:
    """Some entries masked."""
    return np.ma.masked_array(floating(good), rng.uniform(size=np.shape(good)) < 0.3)


def repeated_names(good: Any, rng: Rng) -> Any:
    """A frame whose columns all have one name."""
    good = np.asarray(good)
    return pd.DataFrame(good.reshape(len(good), -1) if good.ndim else good.reshape(1, 1)).set_axis(
        ["a"] * (good.size // max(len(good), 1) if good.ndim else 1), axis=1
    )


def chunked(good: Any, rng: Rng) -> Any:
    """A collection of Dask."""
    return require("dask.array").from_array(np.asarray(good), chunks=-1)


def tensor(good: Any, rng: Rng) -> Any:
    """A tensor of PyTorch, of single or double precision."""
    torch = require("torch")
    return torch.tensor(floating(good), dtype=[torch.float32, torch.float64][int(rng.integers(2))])


def one_point(good: Any, rng: Rng) -> Any:
    """The first row over and over, or all rows but a few."""
    good = np.asarray(good)
    found = np.repeat(good[:1], len(good), axis=0) if good.ndim else good
    if good.ndim and rng.integers(2):
        found[-2:] = good[-2:]
    return found


def constant_column(good: Any, rng: Rng) -> Any:
    """A column that says nothing."""
    found = floating(good)
    if found.ndim > 1:
        found[..., 0] = rng.choice([0.0, 1.0, 1e6])
    return found


def words(good: Any, rng: Rng) -> Any:
    """Text where numbers are due."""
    return np.array(["a", "1", "", "nan", "é" * 5])[rng.integers(5, size=np.shape(good))]


def objects(good: Any, rng: Rng) -> Any:
    """Things of several types."""
    found = np.empty(np.shape(good), dtype=object)
    things = [1.5, "a", None, {}, 2**70, 1j, object(), b"b", True, np.nan, [1]]
    for place in np.ndindex(found.shape):
        found[place] = things[int(rng.integers(len(things)))]
    return found


def nonsense(good: Any, rng: Rng) -> Any:
    """No array at all."""
    things: list[Callable[[], Any]] = [
        lambda: None,
        lambda: "abc",
        lambda: b"abc",
        lambda: {},
        lambda: {"a": [1.0, 2.0]},
        lambda: {1.0, 2.0},
        lambda: (row for row in range(rows(good))),
        lambda: range(rows(good)),
        lambda: object(),
        lambda: int,
        lambda: len,
        lambda: 3,
        lambda: -1.5,
        lambda: float("nan"),
        lambda: True,
        lambda: [],
        lambda: [[]],
        lambda: [None],
        lambda: (),
        lambda: [[[1.0]]],
        lambda: ["a", 1],
        lambda: np.float64(1.0),
        lambda: np.datetime64("2020"),
        lambda: slice(None),
        lambda: Ellipsis,
        lambda: 10**400,
        lambda: 1j,
        lambda: pd.DataFrame(),
        lambda: pd.Series(dtype=float),
        lambda: pd.NA,
        lambda: np.array(None),
    ]
    return things[int(rng.integers(len(things)))]()


def dates(good: Any, rng: Rng) -> Any:
    """Times, or spans of time."""
    kind = str(rng.choice(["M8[D]", "m8[s]", "M8[ns]"]))
    return np.arange(np.size(good)).astype(kind).reshape(np.shape(good))


def signs(good: Any, rng: Rng) -> Any:
    """Zeros, and numbers below."""
    found = floating(good)
    return [np.zeros_like(found), -abs(found), found - found.mean()][int(rng.integers(3))]


ARRAYS: dict[str, Twist] = {
    "NaN": spoiled(np.nan),
    "infinity": spoiled(np.inf, -np.inf),
    "huge entries": spoiled(1e300, -1e300, 1.7e308),
    "large entries": spoiled(1e160, -1e160, 1e80, 1e30),
    "tiny entries": spoiled(1e-300, 5e-324, -5e-324, -0.0),
    "extremes": spoiled(0.0, -0.0, 1e300, 1e-300, 5e-324, 1e154, 1e-154, 2.0**62, -(2.0**63)),
    "all huge": scaled(1e300, -1e307),
    "all large": scaled(1e160, 1e100, 1e30),
    "all tiny": scaled(1e-300, 1e-310, 1e-320),
    "all small": scaled(1e-160, 1e-100, 1e-30),
    "far away": lambda good, rng: floating(good) + rng.choice([1e8, 1e15, 1e17]),
    "one number": filled(0.0, 1.0, -1.0, 5e-324, 1e300, 2.0**62),
    "integers": integers,
    "beyond words": beyond,
    "drawn": drawn,
    "misshapen": misshapen,
    "missing": missing_values,
    "mixed frame": mixed_frame,
    "structured": structured,
    "ragged": ragged,
    "nested": nested,
    "masked": masked,
    "one point": one_point,
    "constant column": constant_column,
    "words": words,
    "text of numbers": lambda good, rng: np.asarray(good).astype(str),
    "a broadcast view": lambda good, rng: np.broadcast_to(good[:1], np.shape(good)),
    "things": objects,
    "nonsense": nonsense,
    "repeated names": repeated_names,
    "chunked": chunked,
    "tensor": tensor,
    "dates": dates,
    "signs": signs,
    "complex": lambda good, rng: floating(good) * (1 + 1j),
    "single precision": lambda good, rng: (
        floating(good) * rng.choice([1.0, 1e30, 1e-30, 1e-44])
    ).astype(np.float32),
}

# --- numbers --------------------------------------------------------------------------------------

NO_NUMBERS: list[Any] = [
    None, "a", "auto", "", b"1", [], [1.0], {}, (), np.array([1.0]), np.array([[1]]), 1j, int,
    float("nan"), float("inf"), -float("inf"), pd.NA, np.datetime64("2020"), "nan", object(),
    np.ma.masked, np.array("a"), np.array(np.nan), slice(None), lambda: 1,
]  # fmt: skip
FRACTIONS: list[Any] = [
    *NO_NUMBERS, 0, -1, 1, 2, 0.0, -0.0, 0.5, 1.0, 1.5, -1e-300, 1e-300, 5e-324, 1e300, 1e-10, True,
    False, 2**62, -(2**62), 10**400, np.float32(0.5), np.int8(1), np.uint64(2**63), np.array(0.5),
    np.float16(0.25), np.longdouble(0.5), np.True_,
]  # fmt: skip
COUNTS: list[Any] = [
    *NO_NUMBERS, 0, -1, 1, 2, 3, 1.5, 2.0, -0.5, 1e-300, True, False, -(2**62), -(10**400),
    np.int8(2), np.uint8(1), np.int64(3), np.array(2), np.float64(2.0), np.True_, "2",
]  # fmt: skip


def one_of(values: list[Any]) -> Twist:
    """One of a few."""
    return lambda good, rng: values[int(rng.integers(len(values)))]


EXTREME: list[Any] = [0, 1, 5e-324, 1e-300, 1e-160, 1e-30, 1e-10, 1e10, 1e60, 1e75, 1 - 2**-53]
NUMBERS: dict[str, Twist] = {"number": one_of(FRACTIONS), "extreme number": one_of(EXTREME)}
#: Numbers that are not beyond reason: a count of 2**62 is an honest order for much work.
WHOLES: dict[str, Twist] = {"count": one_of(COUNTS), "few": one_of([1, 2, 3, 5])}

#: Twists that a gate may let through, so that several of them meet behind it.
MILD = {
    "tiny entries", "large entries", "extremes", "all large", "all tiny", "all small", "far away",
    "one number", "integers", "misshapen", "one point", "constant column", "signs",
    "single precision", "tensor", "repeated names", "a broadcast view", "mixed frame",
    "extreme number", "few",
}  # fmt: skip


def twists(good: Any) -> dict[str, Twist]:
    """The twists of a good value, by its kind."""
    if isinstance(good, bool | str) or good is None:
        # all but functions, which are kernels in some places
        words = [value for value in NO_NUMBERS if not callable(value)]
        return {"option": one_of([*words, 0, 1, True, "median"])}
    if isinstance(good, int):
        return WHOLES
    if isinstance(good, float):
        return NUMBERS
    if isinstance(good, dict):
        inner = {f"column: {name}": in_column(twist) for name, twist in ARRAYS.items()}
        return {**inner, "nonsense": nonsense, "mixed frame": mixed_frame, "drawn": drawn}
    if isinstance(good, list | tuple):
        inner = {f"item: {name}": in_item(twist) for name, twist in ARRAYS.items()}
        return {**inner, "nonsense": nonsense, "ragged": ragged, "drawn": drawn}
    return ARRAYS


def in_column(twist: Twist) -> Twist:
    """A twist of one column of a table."""

    def inner(good: Any, rng: Rng) -> Any:
        names = list(good)
        name = names[int(rng.integers(len(names)))]
        return {**good, name: twist(good[name], rng)}

    return inner


def in_item(twist: Twist) -> Twist:
    """A twist of one item of a list."""

    def inner(good: Any, rng: Rng) -> Any:
        place = int(rng.integers(len(good)))
        items = list(good)
        there = items[place] if isinstance(items[place], np.ndarray) else np.ones(3)
        items[place] = twist(there, rng)
        return items

    return inner


# --- what Hypothesis draws ------------------------------------------------------------------------

ANY_NUMBER = st.one_of(
    st.floats(allow_nan=True, allow_infinity=True, width=64),
    st.sampled_from([0.0, -0.0, 5e-324, 1e-300, 1e300, -1e300, 1e154, 1e-154, 1.0]),
)


def values(good: Any) -> st.SearchStrategy[Any]:
    """Arrays of the good one's shape with any numbers in them, and arrays of any shape and kind."""
    if not isinstance(good, np.ndarray):
        return st.one_of(st.none(), st.text(max_size=3), ANY_NUMBER, st.integers(-10, 10))
    any_shape = hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4)
    kinds = st.one_of(
        hnp.floating_dtypes(), hnp.integer_dtypes(), hnp.unicode_string_dtypes(max_len=3)
    )
    return st.one_of(
        hnp.arrays(np.float64, good.shape, elements=ANY_NUMBER),
        hnp.arrays(np.float64, good.shape, elements=st.floats(-1e3, 1e3, width=32)),
        hnp.arrays(np.int64, good.shape),
        hnp.arrays(kinds, any_shape),
    )
