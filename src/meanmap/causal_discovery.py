"""Our test of conditional independence in packages that search for causal graphs.

Each function imports the package it is for when it is called.

| package | what to call |
|---|---|
| causal-learn | `register_causal_learn()`, then `pc(data, indep_test="meanmap")` |
| pgmpy | `PC(ci_test=pgmpy_test(frame)).fit(frame)` |
| tigramite | `PCMCI(dataframe, tigramite_test())` |
| DoWhy | `falsify_graph(graph, frame, independence_test=dowhy_test, ...)` |

Any other search that takes a function of two columns and a conditioning set can be given
`meanmap.comparison.ConditionalIndependence(table).pvalue`.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from meanmap import checks
from meanmap.comparison import ConditionalIndependence

__all__ = ["dowhy_test", "pgmpy_test", "register_causal_learn", "tigramite_test"]

X, Y, Z = 0, 1, 2  # tigramite's codes of variables


def register_causal_learn(name: str = "meanmap") -> type:
    """Make the test known to causal-learn, for `pc`, `fci`, `cdnod` and `CIT`.

    Parameters
    ----------
    name : str
        What `indep_test=` calls it.

    Returns
    -------
    type
        The class, a subclass of causal-learn's `CIT_Base`. Its settings are those of
        `ConditionalIndependence`, and `pc` passes them on: `pc(data, indep_test="meanmap",
        labels=[0, 3])` takes columns 0 and 3 for codes of labels.

    Examples
    --------
    >>> import numpy as np
    >>> from meanmap.causal_discovery import register_causal_learn
    >>> rng = np.random.default_rng(0)
    >>> data = rng.normal(size=(200, 3))
    >>> data[:, 2] += data[:, 0] ** 2
    >>> test = register_causal_learn()(data)
    >>> test(0, 2), test(0, 1, [2]) > 0.05
    (0.001, True)
    """
    from causallearn.utils.cit import register_ci_test

    return register_ci_test(name, _causal_learn_class())


@functools.cache
def _causal_learn_class() -> Any:
    from causallearn.utils.cit import CIT_Base

    class Meanmap(CIT_Base):
        """Conditional independence by residuals, for causal-learn."""

        def __init__(self, data: Any, cache_path: Any = None, **settings: Any) -> None:
            super().__init__(data, cache_path=cache_path)
            self.method = "meanmap"
            self.test = ConditionalIndependence(data, **settings)

        def __call__(self, X: Any, Y: Any, condition_set: Any = None) -> float:
            return self.test.pvalue(X, Y, () if condition_set is None else list(condition_set))

    return Meanmap


def pgmpy_test(data: Any, **settings: Any) -> Any:
    """A test for pgmpy's `PC`, which takes it as `ci_test=`.

    Parameters
    ----------
    data : DataFrame
        The table that the search runs on.
    **settings
        Those of `ConditionalIndependence`.

    Examples
    --------
    >>> import numpy as np
    >>> import pandas as pd
    >>> from meanmap.causal_discovery import pgmpy_test
    >>> rng = np.random.default_rng(0)
    >>> table = pd.DataFrame(rng.normal(size=(200, 3)), columns=["a", "b", "c"])
    >>> table["c"] += table["a"] ** 2
    >>> test = pgmpy_test(table)
    >>> test("a", "b", ["c"]), test("a", "c", [])  # independent or not, at the 0.05 level
    (True, False)
    """
    return _pgmpy_class()(data, settings)


@functools.cache
def _pgmpy_class() -> Any:
    from pgmpy.ci_tests._base import _BaseCITest, _CITestResult

    class Meanmap(_BaseCITest):
        """Conditional independence by residuals, for pgmpy."""

        _tags = {"name": "meanmap", "data_types": ("continuous", "discrete", "mixed")}

        def __init__(self, data: Any, settings: Any = None, use_cache: bool = True) -> None:
            self.data, self.settings = data, settings
            self._test = ConditionalIndependence(data, **(settings or {}))
            super().__init__(use_cache=use_cache)

        def _compute_result(self, X: Any, Y: Any, Z: Any) -> Any:
            found = self._test(X, Y, list(Z))
            effect = None if found.explanation is None else found.effect.value
            return _CITestResult(found.statistic, found.pvalue, effect)

    return Meanmap


def tigramite_test(
    null: str = "wild", n_permutations: int = 999, random_state: int = 0, **settings: Any
) -> Any:
    """A test for tigramite's `PCMCI` and its like, which take it as `cond_ind_test`.

    Columns that tigramite's data frame declares discrete (`data_type`) are taken for labels. The
    conditions of PCMCI hold the past of both variables: given these, rows are exchangeable.

    Parameters
    ----------
    null, n_permutations, random_state
        As in `ConditionalIndependence`.
    **settings
        Those of tigramite's `CondIndTest`: `mask_type`, `verbosity`, `confidence`.

    Examples
    --------
    >>> import numpy as np
    >>> from meanmap.causal_discovery import tigramite_test
    >>> x, y, z = np.random.default_rng(0).normal(size=(3, 200, 1))
    >>> statistic, pvalue = tigramite_test().run_test_raw(x, y + x**2, z)
    >>> pvalue
    0.001
    """
    own = {"null": null, "n_permutations": n_permutations, "random_state": random_state}
    return _tigramite_class()(own, **settings)


@functools.cache
def _tigramite_class() -> Any:
    from tigramite.independence_tests.independence_tests_base import CondIndTest

    class Meanmap(CondIndTest):
        """Conditional independence by residuals, for tigramite."""

        def __init__(self, own: dict[str, Any], **settings: Any) -> None:
            self.own = own
            self.two_sided, self.residual_based = False, False
            self._last: tuple[bytes, float, float] = b"", 0.0, 1.0
            super().__init__(significance="shuffle_test", **settings)

        @property
        def measure(self) -> str:
            return "meanmap"

        def _found(self, array: Any, xyz: Any, data_type: Any) -> tuple[float, float]:
            """The statistic and the p-value, which tigramite asks for one after the other."""
            array, codes = np.asarray(array, dtype=float), np.asarray(xyz)
            kinds = None if data_type is None else np.asarray(data_type)
            key = array.tobytes() + codes.tobytes() + (b"" if kinds is None else kinds.tobytes())
            if key != self._last[0]:
                labels = [] if kinds is None else np.flatnonzero((kinds == 1).all(axis=1)).tolist()
                test = ConditionalIndependence(array.T, labels=labels, **self.own)
                sets = (np.flatnonzero(codes == code).tolist() for code in (X, Y, Z))
                found = test(*sets)
                self._last = key, float(found.statistic), float(found.pvalue)
            return self._last[1:]

        def get_dependence_measure(self, array: Any, xyz: Any, data_type: Any = None) -> float:
            return self._found(array, xyz, data_type)[0]

        def get_shuffle_significance(
            self,
            array: Any,
            xyz: Any,
            value: float,
            data_type: Any = None,
            return_null_dist: bool = False,
        ) -> float:
            return self._found(array, xyz, data_type)[1]

    return Meanmap


def dowhy_test(X: Any, Y: Any, Z: Any = None) -> float:
    """The p-value of X and Y given Z, as DoWhy's falsification and validation of graphs ask for it.

    Pass it as `independence_test=` and as `conditional_independence_test=`.

    Parameters
    ----------
    X, Y, Z : arrays, (n,) or (n, d)
        Columns of numbers, or of labels as text; Z may be None.

    Examples
    --------
    >>> import numpy as np
    >>> from meanmap.causal_discovery import dowhy_test
    >>> x, y, z = np.random.default_rng(0).normal(size=(3, 200, 1))
    >>> dowhy_test(x, y + x**2), dowhy_test(x + z, y + z, z) > 0.05
    (0.001, True)
    """
    named = [("X", X), ("Y", Y), *([] if Z is None else [("Z", Z)])]
    arrays = [np.asarray(value) for _, value in named]
    arrays = [array[:, None] if array.ndim == 1 else array for array in arrays]
    checks.same_length([(name, array) for (name, _), array in zip(named, arrays, strict=True)])
    widths = [array.shape[1] for array in arrays]
    sets = np.split(np.arange(sum(widths)), np.cumsum(widths)[:-1])
    table = np.hstack([array.astype(object) for array in arrays])
    return ConditionalIndependence(table).pvalue(*(part.tolist() for part in sets))
