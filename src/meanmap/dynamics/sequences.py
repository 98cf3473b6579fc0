"""Sequences on their way into a filter: one or several, with unobserved steps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from meanmap import checks, frames
from meanmap.arrays import (
    Array,
    Points,
    assign,
    concatenate,
    count,
    device,
    is_array,
    is_floating,
    namespace,
    take,
    to_numpy,
)
from meanmap.kernels import Kernel
from meanmap.kernels.defaults import as_kernel
from meanmap.kernels.domains.matrices import ORTHOGONAL, are_permutations

MOST = 0.9  # if this share of the states are rotations, the others must be mistakes


@dataclass(frozen=True)
class Sequences:
    """Several sequences as one sample: their rows one after the other."""

    points: Points
    lengths: tuple[int, ...]
    single: bool  # one sequence, not a list with one

    @property
    def ends(self) -> np.ndarray:
        """Where each sequence ends in the sample."""
        return np.cumsum(self.lengths)

    def parts(self) -> list[Points]:
        """The sequences one by one."""
        pairs = zip(self.ends, self.lengths, strict=True)
        return [take(self.points, slice(int(end) - n, int(end))) for end, n in pairs]

    def after(self, rows: Points) -> Sequences:
        """The same, with rows before those of the first sequence."""
        lengths = (self.lengths[0] + count(rows), *self.lengths[1:])
        return Sequences(concatenate([rows, self.points]), lengths, self.single)

    def transitions(self) -> tuple[np.ndarray, np.ndarray]:
        """The rows that have a successor, and their successors."""
        n = sum(self.lengths)
        first = np.setdiff1d(np.arange(n), self.ends - 1)
        return first, first + 1


def list_sequences(
    value: Any, kernel: Kernel | None, name: str, like: Points | None = None
) -> tuple[list[Any], bool]:
    """The sequences in what a user passed, and whether it was a single one.

    An array is several sequences if it has an axis more than a sample: than `like`, points of the
    same kind, or than the kernel's points have. Without a kernel a 3-D array holds matrices if they
    are square, else sequences of rows.
    """
    if value is None:
        raise ValueError(f"{name}: expected a sequence or a list of sequences, got None.")
    if is_array(value) and not checks.holds_objects(value):
        if value.ndim == _sample_axes(kernel, like, value) + 1:
            return list(value), False
    elif isinstance(value, list) and any(_is_sample(v, kernel, name, like) for v in value):
        return value, False
    return [value], True


def _sample_axes(kernel: Kernel | None, like: Points | None, value: Array) -> int:
    """How many axes an array has that holds a sample of points."""
    if like is not None:
        return 99 if isinstance(like, tuple) or checks.holds_objects(like) else like.ndim
    if kernel is None:
        return 3 if value.ndim != 3 or value.shape[1] == value.shape[2] else 2
    return {"vectors": 2, "matrices": 3}.get(kernel.domain, 99)


def _is_sample(item: Any, kernel: Kernel | None, name: str, like: Points | None) -> bool:
    """Whether an item of a list is a sequence by itself rather than one point."""
    if is_array(item) and like is not None and not isinstance(like, tuple):
        plain = not checks.holds_objects(item) and not checks.holds_objects(like)
        if plain and item.ndim == like.ndim:
            return True
    if kernel is None:
        if hasattr(item, "columns") or isinstance(item, tuple):
            return True
        if isinstance(item, list) and item and isinstance(item[0], str):
            return True
        try:
            array = item if is_array(item) else np.asarray(item)
        except ValueError:  # rows of different lengths: points, whatever they are
            return False
        return array.ndim >= 2 or (array.ndim == 1 and array.dtype.kind in "USOb")
    if kernel.domain in ("series", "bags") and not isinstance(item, list):
        return False  # a series or a bag is itself an array of rows
    if kernel.domain == "vectors" and frames.is_flat(item):
        # one row, unless points are known to be single numbers
        return like is not None and like.shape[1:] == (1,) and len(item) > 1
    try:
        kernel.check(observed_steps(item, name)[0], name)
    except (TypeError, ValueError):
        return False
    return True


def read_sequences(
    value: Any, kernel: Any, name: str, like: Points | None = None
) -> tuple[Sequences, Kernel]:
    """Training sequences that passed their kernel's gate, and the kernel.

    `like` are points of sequences that were read before.
    """
    parts, single = list_sequences(
        value, kernel if isinstance(kernel, Kernel) else None, name, like
    )
    if not parts:
        raise ValueError(f"{name}: expected a sequence or a list of sequences, got {value!r:.60}.")
    kernel = as_kernel(kernel, parts[0], name)
    checked: list[Points] = []
    for i, part in enumerate(parts):
        called = name if single else f"{name}[{i}]"
        other = (
            (checked[0], f"{name}[0]") if checked and like is None else (like, "the training data")
        )
        checked.append(kernel.check(part, called, *other))
    points = concatenate(checked) if len(checked) > 1 else checked[0]
    return Sequences(points, tuple(count(part) for part in checked), single), kernel


def require_same_lengths(named: Sequence[tuple[str, Sequences]]) -> None:
    """Refuse sequences that do not go together, row by row."""
    (first, one), *others = named
    for name, other in others:
        if len(other.lengths) != len(one.lengths):
            raise ValueError(
                f"{first} holds {len(one.lengths)} sequences and {name} {len(other.lengths)}. Pass "
                "one of each for every sequence, in the same order."
            )
        for i, (here, there) in enumerate(zip(one.lengths, other.lengths, strict=True)):
            if here != there:
                which = "" if one.single else f" in sequence {i}"
                raise ValueError(
                    f"Found input variables with inconsistent numbers of samples: {first} has "
                    f"{here} and {name} has {there} steps{which}. Row t of each belongs to time t."
                )


def require_transition(sequences: Sequences, name: str, least: int = 2) -> None:
    """Refuse training sequences that hold no transition."""
    longest = max(sequences.lengths)
    if longest < least:
        raise ValueError(
            f"{name}: the longest sequence has {longest} step{'s' * (longest != 1)}; at least "
            f"{least} are needed to see a transition. If your rows are pairs (before, after), pass "
            "a list of sequences of two rows each."
        )


def require_rotations(states: Points, kernel: Kernel, name: str) -> None:
    """Refuse a state that is not a rotation among states that are."""
    if kernel.core.domain != "matrices" or states.shape[1] != states.shape[2]:
        return
    R = to_numpy(states)
    if are_permutations(R):
        return
    rest = np.abs(np.swapaxes(R, 1, 2) @ R - np.eye(R.shape[1])).max(axis=(1, 2))
    rotation = (rest < ORTHOGONAL) & (np.linalg.det(R) > 0)
    if rotation.all() or rotation.mean() < MOST:
        return
    row = int(np.flatnonzero(~rotation)[0])
    raise ValueError(
        f"{name}: row {row} is not a rotation (RᵀR differs from the identity by {rest[row]:.2g}, "
        f"the determinant is {np.linalg.det(R[row]):.3g}), but {int(rotation.sum())} of {len(R)} "
        "rows are. Correct or drop it, or make it one with scipy.spatial.transform.Rotation."
        "from_matrix(R).as_matrix()."
    )


def observed_steps(value: Any, name: str) -> tuple[Any, np.ndarray]:
    """A sequence without its missing steps, and which steps are not missing.

    Missing is a row of NaN, None in a list, a missing label. A row with only some of its numbers
    missing is refused.
    """
    if isinstance(value, tuple):
        if not value:
            raise ValueError(f"{name}: expected a sequence, got an empty tuple.")
        parts = [observed_steps(part, name) for part in value]
        if any((mask != parts[0][1]).any() for _, mask in parts):
            raise ValueError(f"{name}: a step is missing in one variable and not in the other.")
        return tuple(part for part, _ in parts), parts[0][1]
    if isinstance(value, list) and any(item is None for item in value):
        mask = np.array([item is not None for item in value])
        return [item for item in value if item is not None], mask
    if is_array(value) or hasattr(value, "nnz") or not hasattr(value, "__len__"):
        value = checks.plain(value, name)
    if hasattr(value, "isna"):  # pandas
        return _drop_missing(value, value.isna().to_numpy(), name)
    if not is_array(value):
        try:
            array = np.asarray(value)
        except ValueError:
            return value, np.ones(len(value), dtype=bool)
        if array.dtype.kind != "f" or array.ndim == 0:
            return value, np.ones(len(value), dtype=bool)
        value = array
    if value.ndim == 0:
        return value, np.ones(1, dtype=bool)
    if isinstance(value, np.ndarray) and value.dtype.kind == "O":
        return _drop_missing(
            value, np.frompyfunc(_is_missing_value, 1, 1)(value).astype(bool), name
        )
    if not is_floating(value):
        return value, np.ones(value.shape[0], dtype=bool)
    return _drop_missing(value, np.isnan(to_numpy(value)), name)


def _is_missing_value(item: Any) -> bool:
    return item is None or type(item).__name__ == "NAType" or (np.isscalar(item) and item != item)


def _drop_missing(value: Any, missing: np.ndarray, name: str) -> tuple[Any, np.ndarray]:
    if len(missing) == 0:
        return value, np.zeros(0, dtype=bool)
    missing = missing.reshape(len(missing), -1)
    everything: np.ndarray = np.asarray(missing.all(axis=1))
    something: np.ndarray = np.asarray(missing.any(axis=1))
    if (everything != something).any():
        row = int(np.flatnonzero(everything != something)[0])
        raise ValueError(
            f"{name}: row {row} is NaN in {int(missing[row].sum())} of {missing.shape[1]} columns. "
            "A step without an observation is a row of NaN throughout; fill in what is missing of "
            "this one, or leave the sensors that fail out of the model."
        )
    if not something.any():
        return value, ~something
    if is_array(value) and not isinstance(value, np.ndarray):
        return take(value, ~something), ~something
    return value[~something], ~something


@dataclass(frozen=True)
class ControlGate:
    """How controls come into a filter; without a kernel it was fitted without any."""

    kernel: Kernel | None = None
    like: Points | None = None  # what a control looks like
    refusal: str = "the filter was fitted without any. Fit it with them."

    def read_sequences(self, controls: Any, lengths: tuple[int, ...], ahead: int) -> Points | None:
        """Controls of sequences of these lengths, and `ahead` more, as an array (b, rows, …)."""
        if self.kernel is None:
            self._refuse(controls, "controls")
            return None
        if controls is None:
            raise ValueError(
                "controls: the filter was fitted with controls and needs them here too, a row for "
                "every step."
            )
        raw, single = list_sequences(controls, self.kernel, "controls", self.like)
        if len(raw) != len(lengths):
            raise ValueError(
                f"controls holds {len(raw)} sequences and observations {len(lengths)}."
            )
        rows = []
        for i, (part, length) in enumerate(zip(raw, lengths, strict=True)):
            name = "controls" if single else f"controls[{i}]"
            points = self.kernel.check(part, name, self.like, "the training data")
            if count(points) < length + ahead:
                raise ValueError(
                    f"{name}: expected {length + ahead} rows, one per step; got {count(points)}. "
                    "Row t acts between step t and step t + 1."
                )
            rows.append(points)
        return pad_sequences(rows, max(count(row) for row in rows))

    def read_one(self, control: Any, first: bool) -> Points | None:
        """The control before one live step; nothing lies before the first."""
        if self.kernel is None:
            self._refuse(control, "control")
            return None
        if first:
            return None
        if control is None:
            raise ValueError("control: the filter was fitted with controls; pass the last one.")
        return self.kernel.rows(control, self.like, "control")[0]

    def _refuse(self, given: Any, name: str) -> None:
        if given is not None:
            raise ValueError(f"{name}: {self.refusal}")


@dataclass(frozen=True)
class Steps:
    """Sequences to be filtered, in coordinates: padded to one length, with what was seen."""

    features: Array  # (b, steps, r), 0 where nothing was seen
    seen: np.ndarray  # (b, steps)
    support: np.ndarray  # (b, steps), NaN where nothing was seen
    lengths: tuple[int, ...]
    single: bool
    values: np.ndarray | None = None  # observations that are vectors, (b, steps, d)

    def rows(self, some: slice) -> Steps:
        """Some of the sequences."""
        parts = self.features[some], self.seen[some], self.support[some], self.lengths[some]
        values = None if self.values is None else self.values[some]
        return Steps(*parts, single=False, values=values)


def pad_sequences(sequences: list[Points], length: int) -> Points:
    """Sequences of different lengths as one array; the shorter ones repeat their last row."""
    if isinstance(sequences[0], tuple):
        return tuple(pad_sequences(list(parts), length) for parts in zip(*sequences, strict=True))
    xp = namespace(sequences[0])
    shape = (len(sequences), length, *sequences[0].shape[1:])
    out = xp.zeros(shape, dtype=sequences[0].dtype, device=device(sequences[0]))
    for i, row in enumerate(sequences):
        out = assign(out, (i, slice(0, row.shape[0])), row)
        out = assign(out, (i, slice(row.shape[0], None)), row[-1:])
    return out
