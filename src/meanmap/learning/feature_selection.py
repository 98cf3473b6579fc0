"""Features chosen by how much the target depends on them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.feature_selection import SelectorMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from meanmap import checks
from meanmap.arrays import Array, in_kind, is_array, take, to_numpy
from meanmap.exceptions import SettingWarning, quiet, warn
from meanmap.frames import in_order, remember_columns
from meanmap.kernels import Gaussian, Kernel
from meanmap.kernels.defaults import as_kernel
from meanmap.learning.feature_search import SelectionPath, accumulate, eliminate, rounds
from meanmap.learning.hsic_lasso import inner_products, lasso_path
from meanmap.learning.subset_dependence import FEW, Subsets
from meanmap.learning.subset_regression import (
    EXPLAINED,
    ROWS,
    LeftOutErrors,
    best_number,
    exchange,
    judged_sets,
    pool_size,
    refine,
)
from meanmap.learning.targets import Target, scale_columns, target_of
from meanmap.progress import progress_bar
from meanmap.spaces import Basis
from meanmap.statistics.gates import read_random_state, require_points, require_target
from meanmap.statistics.tiles import on_host

METHODS = ("auto", "backward", "forward", "lasso")
BANDWIDTH = "0.7*median"


@dataclass(frozen=True)
class Search:
    """What every search looks at."""

    X: np.ndarray  # (n, d) on the scale that the kernel is to see
    kernel: Kernel
    target: Target
    blocks: list[np.ndarray]  # of rows
    some: np.ndarray  # rows on which bandwidths are chosen
    free: np.ndarray  # columns that vary
    errors: LeftOutErrors


class HSICSelector(SelectorMixin, BaseEstimator):
    """Features on which the target depends most, by the Hilbert-Schmidt independence criterion.

    Backward elimination (BAHSIC) and forward selection (FOHSIC) of Song, Smola, Gretton, Bedo and
    Borgwardt (2012), and the HSIC lasso of Yamada et al. (2014). Nothing is assumed of the shape
    of the dependence, and the target may be whatever has a kernel: labels, numbers, vectors,
    strings, graphs.

    Parameters
    ----------
    n_features_to_select : int, float, "auto" or None
        How many; a float is a share, None is half of them. "auto" takes as many of the search's
        sets as predict the target best: the least error, of rows left out, of the conditional
        embedding of y given them.
    kernel : Kernel or None
        On the features. None is `Gaussian("0.7*median")`, about σ² = d for d features in play, the
        width of Song et al.; it finds interactions in fewer rows than the median does. The
        bandwidth is resolved anew whenever the set of features in play changes; one that is a
        number stays as it is.
    target_kernel : Kernel, callable or None
        On y. None takes a delta kernel for labels (text, truth values, whole numbers), balanced by
        1/n of the class, and a Gaussian for floating-point numbers, columns on unit deviation.
    method : {"auto", "backward", "forward", "lasso"}
        "auto" takes the best of "backward" and of "lasso", and leaves features out one by one by
        the error, for rows left out, of the conditional embedding of y given the others (Chen,
        Stern, Wainwright and Jordan 2017); then the others are tried beside those that are left.
        "backward" starts with all features and sees what they say together (XOR); "forward" starts
        with none, and is quicker for few of many; "lasso" judges them one by one and leaves out
        what repeats another.
    step : float or int
        Features removed (or added) at a time: a share of those in play, at least one, or a number.
    estimator : {"U", "V"}
        The unbiased estimate of HSIC (Song et al. 2012, eq. 5), or tr(KHLH)/n².
    scale : bool
        Divide each column by its standard deviation first.
    block_size : int or None
        With more rows than this HSIC is the mean over blocks of rows, dealt at random, of about
        this size; time is then linear in n. None takes all rows at once. The lasso's inner products
        are summed over blocks likewise.
    basis : a basis or None
        Judge each set by coordinates, Nystroem(200) for instance, of all rows at once instead of
        Gram matrices. For the lasso, how the columns' Gram matrices are factorised.
    random_state : int, RandomState or None
        Deals the blocks, and draws the 300 rows on which "forward" and "lasso" choose bandwidths.
    progress : bool or None
        Show a progress bar; None on a terminal only.

    Attributes
    ----------
    support_ : mask of the selected features
    ranking_ : the features' ranks, 1 the best; those selected come first
    scores_ : what each feature adds when it is judged for the last time: to the error of rows left
        out ("auto", 0 for those not judged by it), to HSIC without it ("backward") or with it
        ("forward"); for the lasso its coefficient
    path_ : SelectionPath, the dependence against the number of features; for "auto" the share of
        the target's variance that is explained
    n_features_ : how many are selected
    kernel_ : the kernel resolved on the selected features
    target_kernel_ : the kernel on y, resolved

    Notes
    -----
    Constant columns rank last. With backward elimination the time is O(n · block_size · d/step).

    Examples
    --------
    Two features that say nothing alone and everything together, among twenty that say nothing:

    >>> import numpy as np
    >>> from meanmap import HSICSelector
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(300, 22))
    >>> y = X[:, 4] * X[:, 9] > 0
    >>> selector = HSICSelector(n_features_to_select=2).fit(X, y)
    >>> selector.get_support(indices=True)
    array([4, 9])
    >>> selector.transform(X).shape
    (300, 2)
    """

    def __init__(
        self,
        n_features_to_select: Any = None,
        kernel: Any = None,
        target_kernel: Any = None,
        method: str = "auto",
        step: float = 0.1,
        *,
        estimator: str = "U",
        scale: bool = True,
        block_size: int | None = 2000,
        basis: Basis | None = None,
        random_state: Any = None,
        progress: bool | None = None,
    ) -> None:
        self.n_features_to_select = n_features_to_select
        self.kernel = kernel
        self.target_kernel = target_kernel
        self.method = method
        self.step = step
        self.estimator = estimator
        self.scale = scale
        self.block_size = block_size
        self.basis = basis
        self.random_state = random_state
        self.progress = progress

    def fit(self, X: Any, y: Any = None) -> Self:
        """Choose features of X, of shape (n, d), for the target y of n rows."""
        checks.option(self.method, "method", METHODS)
        checks.option(self.estimator, "estimator", ("U", "V"))
        require_target(y, "fit(X, y) takes features and their target")
        points = np.asarray(on_host(checks.vectors(X, "X")), dtype=np.float64)
        target = target_of(y, self.target_kernel)
        n = checks.same_length([("X", points), ("y", target.points)])
        require_points(n, "X and y", 4 if self.estimator == "U" else 2)
        kernel = feature_kernel(self.kernel, points)
        d = points.shape[1]
        k = feature_count(self.n_features_to_select, d)
        step = step_size(self.step)
        rng = read_random_state(self.random_state)
        x, varies = scale_columns(points, self.scale)
        free = np.flatnonzero(varies)
        blocks, some, judged = self._deal(n, rng)
        errors = LeftOutErrors(x[judged], kernel, target, judged, self._seed_basis(rng))
        search = Search(x, kernel, target, blocks, some, free, errors)
        if self.method == "auto":
            order, scores, path = self._auto(search, k, step, rng)
        elif self.method == "lasso":
            order, scores, path = self._lasso(search, len(free) if k is None else k)
        else:
            order, scores, path = self._by_dependence(search, self.method, k, step, rng)
        if k is None:
            k = self._number(errors, order, path)
        ranked = np.concatenate([order, np.flatnonzero(~varies)]).astype(int)

        # nothing is set before everything has worked
        remember_columns(self, X)
        self.ranking_ = np.empty(d, dtype=int)
        self.ranking_[ranked] = np.arange(1, d + 1)
        self.support_ = self.ranking_ <= k
        self.n_features_ = k
        self.scores_ = np.zeros(d)
        self.scores_[free] = scores[free]
        self.path_ = path
        self.kernel_ = kernel.resolve(x[:, self.support_])
        self.target_kernel_ = target.kernel
        return self

    def _deal(
        self, n: int, rng: np.random.RandomState
    ) -> tuple[list[np.ndarray], np.ndarray, np.ndarray]:
        """Rows in blocks, a few of them, and some on which regressions are judged."""
        shuffled = rng.permutation(n)
        size = n
        if self.block_size is not None:
            remedy = "It is a number of rows, 2000 for instance; None takes all at once."
            size = checks.whole(self.block_size, "block_size", 8, remedy)
        number = 1 if self.basis is not None and self.method != "lasso" else -(-n // size)
        blocks = [np.sort(rows) for rows in np.array_split(shuffled, number)]
        return blocks, np.sort(shuffled[:FEW]), shuffled[:ROWS]

    def _by_dependence(
        self,
        search: Search,
        method: str,
        k: int | None,
        step: Callable[[int], int],
        rng: np.random.RandomState,
    ) -> tuple[np.ndarray, np.ndarray, SelectionPath]:
        """The searches by HSIC."""
        s = search
        steps = rounds(len(s.free), k, step, method)
        with progress_bar(sum(steps), "features", self.progress, "set") as done:
            subsets = Subsets(
                s.X,
                s.kernel,
                s.target,
                self.estimator,
                s.blocks,
                self._seed_basis(rng),
                s.some,
                done,
            )
            searched = eliminate if method == "backward" else accumulate
            return searched(subsets, s.free, k, step)

    def _auto(
        self,
        search: Search,
        k: int | None,
        step: Callable[[int], int],
        rng: np.random.RandomState,
    ) -> tuple[np.ndarray, np.ndarray, SelectionPath]:
        """The best of two searches, and of these those that predict the target."""
        d = len(search.free)
        backward, scores, path = self._by_dependence(search, "backward", k, step, rng)
        if d < 2 or (k is not None and k >= d):
            return backward, scores, path
        size = pool_size(k, d)
        with quiet():  # it has coefficients for fewer, which is expected here
            lasso_order = self._lasso(search, size)[0]
        pool = list(dict.fromkeys([*backward[:size].tolist(), *lasso_order[:size].tolist()]))
        total = judged_sets(len(pool), k, step)
        with progress_bar(total, "regressions", self.progress, "set") as done:
            order, scores, path = refine(search.errors, pool, k, step, done)
        if k is not None and search.errors.best(backward[:k].tolist())[0] < 1 - path.dependence[-1]:
            order = np.array(list(dict.fromkeys([*backward[:k].tolist(), *order.tolist()])))
        at = int(np.argmax(path.dependence)) if k is None else len(path.dependence) - 1
        chosen = order[: path.n_features[at]].tolist()
        S, scores, error = exchange(search.errors, chosen, backward.tolist(), scores)
        dependence = path.dependence.copy()
        dependence[at] = max(1 - error, dependence[at])
        every = dict.fromkeys([*S, *order.tolist(), *backward.tolist()])
        return np.array(list(every), dtype=int), scores, replace(path, dependence=dependence)

    def _number(self, errors: LeftOutErrors, order: np.ndarray, path: SelectionPath) -> int:
        """How many features predict the target best."""
        if not len(order):
            return 1
        if path.name == EXPLAINED:
            return int(path.n_features[np.argmax(path.dependence)])
        return best_number(errors, order, path.n_features)

    def _seed_basis(self, rng: np.random.RandomState) -> Basis | None:
        """The basis with a seed, so that all sets are seen through the same random choices."""
        basis: Any = self.basis
        if basis is None or getattr(basis, "random_state", 0) is not None:
            return basis
        return replace(basis, random_state=int(rng.randint(2**31)))

    def _lasso(self, search: Search, k: int) -> tuple[np.ndarray, np.ndarray, SelectionPath]:
        x, free, blocks = search.X, search.free, search.blocks
        if not len(free):
            return free, np.zeros(x.shape[1]), SelectionPath(np.ones(1, int), np.zeros(1), "λ")
        with progress_bar(len(free) * len(blocks), "features", self.progress, "feature") as done:
            products = inner_products(
                x[:, free], search.kernel, search.target, blocks, self.basis, search.some, done
            )
        found = lasso_path(*products, min(k, len(free)))
        used = int((found.coefficients > 0).sum())
        if used < min(k, len(free)) and self.n_features_to_select != "auto":
            warn(
                f"the HSIC lasso gives {used} features a coefficient, and no penalty more; the "
                f"other {k - used} of {k} are those that it left out last. Ask for "
                f"{max(used, 1)}, or use method='backward'.",
                SettingWarning,
            )
        # by coefficient, then by the order in which they would come in
        keys = (np.arange(len(free)), -found.gradient, found.entered, -found.coefficients)
        scores = np.zeros(x.shape[1])
        scores[free] = found.coefficients
        path = SelectionPath(found.counts, found.regularizations, "λ")
        return free[np.lexsort(keys)], scores, path

    def transform(self, X: Any) -> Array:
        """The selected features."""
        if not is_array(X) or isinstance(X, np.ndarray):
            names = getattr(self, "feature_names_in_", None)
            return super().transform(in_order(X, names, "X", "the training data"))
        check_is_fitted(self)
        checks.vectors(X, "X")
        validate_data(self, X=X, reset=False, skip_check_array=True)
        return take(X.T, np.flatnonzero(self.support_)).T

    def inverse_transform(self, X: Any) -> Array:
        """All features, with zeros for those that were not selected."""
        host = to_numpy(X) if is_array(X) else X
        return in_kind(super().inverse_transform(host), X)

    def _get_support_mask(self) -> np.ndarray:
        check_is_fitted(self)
        return self.support_

    def plot(self, ax: Any = None) -> Any:
        """The dependence against the number of features in play (for the lasso: λ)."""
        check_is_fitted(self)
        return self.path_.plot(ax, self.n_features_)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        tags.input_tags.allow_nan = False
        return tags


# --- what comes in --------------------------------------------------------------------------------


def feature_kernel(kernel: Any, points: np.ndarray) -> Kernel:
    """The kernel on features: one on vectors of any length."""
    found = Gaussian(BANDWIDTH) if kernel is None else as_kernel(kernel, points, "X")
    if np.ndim(getattr(found, "bandwidth", 0.0)) > 0:
        raise ValueError(
            "kernel: one bandwidth per column does not fit sets of columns. Divide the columns by "
            "their bandwidths, and use Gaussian(1.0) with scale=False."
        )
    found.check(points, "X")
    return found


def feature_count(asked: Any, d: int) -> int | None:
    """The number of features to select; None if the search is to find it."""
    remedy = 'Use a whole number of features, a share between 0 and 1, "auto", or None for half.'
    if asked is None:
        return max(1, d // 2)
    if isinstance(asked, str):
        if asked != "auto":
            raise ValueError(f"n_features_to_select={asked!r} is not understood. {remedy}")
        return None
    if isinstance(asked, float | np.floating):
        if not 0 < asked <= 1:
            raise ValueError(
                f"n_features_to_select={asked!r} is not a share of the features. {remedy}"
            )
        return max(1, int(asked * d))
    k = checks.whole(asked, "n_features_to_select", 1, remedy)
    if k > d:
        raise ValueError(
            f"n_features_to_select={k}, but X has {d} feature{'s' if d > 1 else ''}. Ask for at "
            f"most {d}."
        )
    return k


def step_size(step: Any) -> Callable[[int], int]:
    """How many features go (or come) when so many are in play."""
    remedy = "Use a share between 0 and 1, or a whole number of features."
    if isinstance(step, float | np.floating):
        if not 0 < step < 1:
            raise ValueError(f"step={step!r} is not a share of the features in play. {remedy}")
        return lambda in_play: max(1, int(step * in_play))
    number = checks.whole(step, "step", 1, remedy)
    return lambda in_play: number
