"""What a file may hold: which classes, which attributes of theirs, which arrays."""

from __future__ import annotations

import importlib
import re
import sys
import types
from collections.abc import Iterable
from dataclasses import MISSING, dataclass, fields, is_dataclass
from enum import Enum
from functools import cache, cached_property, lru_cache
from inspect import Parameter, getattr_static, signature
from itertools import groupby
from typing import Any

import numpy as np
import sklearn
from sklearn.base import BaseEstimator
from sklearn.exceptions import InconsistentVersionWarning

from meanmap.exceptions import warn

MAX_DEPTH = 100  # objects in objects; far more than meanmap needs
MAX_KEY = 1000  # parts of a tuple that is a dict's key: hashing walks through all of them
MAX_EQUAL = 16  # different keys with one hash: a dict compares each of them with all others
MANIFEST = "manifest.json"
PACKAGE = __name__.partition(".")[0]

#: Classes of meanmap stored with their subclasses, besides dataclasses and estimators.
PLAIN = {
    f"{PACKAGE}.linalg.Inverse",
    f"{PACKAGE}.kernels.features.FeatureMap",
    f"{PACKAGE}.spaces.bases.Coordinates",
    f"{PACKAGE}.embeddings.single.Embedding",
    f"{PACKAGE}.conditional.operator.ConditionalOperator",
    f"{PACKAGE}.conditional.operator.Functional",
    f"{PACKAGE}.dynamics.stream.Stream",
    f"{PACKAGE}.monitoring.drift.DriftMonitor",
}
#: Classes of other libraries: a module, and the base that they derive from. From scikit-learn only
#: those that compute with NumPy: compiled code might do anything with numbers of a file's choice.
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

AGAIN = "Copy it again from where it came, or save the object again with meanmap.save(obj, path)."
DISTRUST = "It was not written by meanmap.save: do not use it unless you know who made it."


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


class Refused(Exception):
    """Why a file is refused; the sentence starts after the file's name."""


def array_name(index: int) -> str:
    """The member of a file that holds an array."""
    return f"arrays/{index}.npy"


def own_version() -> str:
    return str(importlib.import_module(PACKAGE).__version__)


def storable(cls: type) -> bool:
    """Whether objects of this class go into files: the whitelist, for writing and reading."""
    shown = (name_of(cls) or "").partition(":")[0]
    if shown in FOREIGN:
        own = getattr(sys.modules[shown], FOREIGN[shown], BaseEstimator)
        return issubclass(cls, own)
    if cls.__module__.partition(".")[0] != PACKAGE:
        return False
    if issubclass(cls, (tuple, list, dict, str, int, float, np.ndarray, Enum, BaseException)):
        return False
    names = {f"{base.__module__}.{base.__qualname__}" for base in cls.__mro__}
    return is_dataclass(cls) or issubclass(cls, BaseEstimator) or bool(names & PLAIN)


def name_of(cls: type) -> str | None:
    """`module:name`, from the outermost package that shows the class: files outlive a move."""
    parts = cls.__module__.split(".")
    for length in range(1, len(parts) + 1):
        module = sys.modules.get(".".join(parts[:length]))
        if module is not None and getattr(module, cls.__name__, None) is cls:
            return f"{'.'.join(parts[:length])}:{cls.__name__}"
    return None


def is_ours(cls: type) -> bool:
    return cls.__module__.partition(".")[0] == PACKAGE


def class_of(name: Any) -> type:
    """The class with this name, if it is one of those that files may hold."""
    refusal = Refused(
        f"asks for an object of class {name!r:.80}; expected one of meanmap's own. {DISTRUST}"
    )
    match = re.fullmatch(r"((?:[A-Za-z]\w*)(?:\.[A-Za-z_]\w*)*):([A-Za-z_]\w*)", str(name), re.A)
    if match is None or "__" in match[1]:
        raise refusal
    if match[1].partition(".")[0] != PACKAGE and match[1] not in FOREIGN:
        raise refusal
    cls = _find_class(*match.groups())
    if cls is None:
        raise refusal
    return cls


@lru_cache(1000)  # a file may hold a hundred thousand objects of one class
def _find_class(module_name: str, class_name: str) -> type | None:
    """The class of this name, or None if files must not hold it."""
    try:
        module = importlib.import_module(module_name)
    except ImportError:
        raise Refused(
            f"asks for an object of class '{module_name}:{class_name}', which meanmap "
            f"{own_version()} does not have. Load it with the version that wrote it, or upgrade."
        ) from None
    # this package imports some of its names when they are asked for
    own = module_name == PACKAGE
    cls = getattr(module, class_name, None) if own else vars(module).get(class_name)
    return cls if isinstance(cls, type) and storable(cls) else None


def state_of(obj: Any) -> dict[str, Any]:
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


@cache
def required_attributes(cls: type) -> Iterable[str]:
    """Attributes that every object of the class must have."""
    names: Iterable[str] = ()
    if is_dataclass(cls):
        names = [field.name for field in fields(cls)]
    elif issubclass(cls, BaseEstimator):
        names = sorted(signature(cls).parameters)
    return [name for name in names if name not in defaults(cls)]


@cache
def defaults(cls: type) -> dict[str, Any]:
    """What files of versions before a field or a parameter was added have in its place."""
    if is_dataclass(cls):
        return {field.name: field.default for field in fields(cls) if field.default is not MISSING}
    if not issubclass(cls, BaseEstimator):
        return {}
    found = {name: item.default for name, item in signature(cls).parameters.items()}
    return {name: value for name, value in found.items() if value is not Parameter.empty}


@lru_cache(10_000)
def check_attribute(cls: type, name: str) -> None:
    """An attribute that an object may have: not a method's or property's name, nothing special."""
    hides = isinstance(getattr_static(cls, name, None), _METHODS)
    if not name.isidentifier() or name.startswith("__") or hides:
        raise Refused(f"gives {cls.__name__} an attribute {name!r:.60}. {DISTRUST}")


def check_foreign(made: Any) -> None:
    """An estimator of scikit-learn's, of another version told, and none that reads other files."""
    if getattr(made, "memory", None) is not None:
        # a cache is a folder of pickles, which run what they please
        raise Refused(f"gives {type(made).__name__} a folder to cache in. {DISTRUST}")
    version = getattr(made, "_sklearn_version", sklearn.__version__)
    if version != sklearn.__version__:
        warn(
            InconsistentVersionWarning(
                estimator_name=type(made).__name__,
                current_sklearn_version=sklearn.__version__,
                original_sklearn_version=version,
            ),
            InconsistentVersionWarning,
        )


def is_key(value: Any) -> bool:
    """Whether a dict of a file may have this key: text, numbers, tuples of them."""
    if type(value) is tuple:
        return all(map(is_key, value))
    return value is None or type(value) in (bool, int, float, str) or isinstance(value, np.generic)


def check_hashes(keys: list[Any]) -> None:
    """Refuse many different keys with one hash, of which a dict would take quadratic time."""
    for _, same in groupby(sorted(keys, key=hash), key=hash):
        different: list[Any] = []
        for key in same:
            if key not in different:
                different.append(key)
            if len(different) > MAX_EQUAL:
                raise Refused(
                    f"has more than {MAX_EQUAL} different keys with one hash in a dict or graph, "
                    f"made to take forever. {DISTRUST}"
                )


def weight(value: Any) -> int:
    return 1 + sum(map(weight, value)) if type(value) is tuple else 1
