"""Components in which several domains look alike."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from meanmap import checks, plots
from meanmap.adaptation.domains import DomainProblem, domain_codes
from meanmap.adaptation.leave_domain_out import (
    SEARCHED,
    Judge,
    judge_of,
    rows_of_every_domain,
    search_left_out,
)
from meanmap.adaptation.mean_matching import fit_host_space, read_target
from meanmap.arrays import Array, Points, count, first_array, in_kind, take, to_numpy
from meanmap.conditional import ConditionalEmbedding
from meanmap.frames import remember_columns, seen_columns
from meanmap.kernels import Kernel
from meanmap.kernels.defaults import as_kernel
from meanmap.spaces import Basis, PivotedCholesky, Space
from meanmap.spaces.space import choose_basis
from meanmap.statistics.columns import column_signs
from meanmap.statistics.gates import require_target, require_two_rows

RELATIONS = ("covariance", "inverse")
RANK = 1000  # coordinates at most
# multiples of the trade-off at which chance is left alone, the first wins a tie
MULTIPLES = (1.0, 0.1, 10.0, 0.01, 100.0, 0.001, 0.0, np.inf)
FACTORS = (1.0, 0.5, 2.0)  # multiples of the median that are tried where no kernel is given
SEARCHED_RANK = 300  # coordinates that a search looks at
INVERSE = 1e-2  # λ of "auto" where one is needed, of the largest variance


class InvariantComponents(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
    """Components that vary much, or say much of y, and are distributed alike in all domains.

    Domain-invariant component analysis (Muandet, Balduzzi and Schölkopf 2013), for data of several
    known domains (patients, instruments, places) and a model that is to serve one not seen yet.
    Directions W of the kernel's space maximise tr(WᵀAW) for WᵀEW = I with E = tS + ηI + λC⁻¹: S is
    the covariance of the domains' embeddings, C that of all rows. Without y A = C; with y it is the
    covariance of E[φ(X)|y]. For t = 0, or one domain, the former is kernel principal components;
    for two domains and η = 0 transfer component analysis.

    Parameters
    ----------
    n_components : int
    kernel : Kernel, callable or None
        None chooses for the kind of points; for vectors a Gaussian, its bandwidth chosen with t if
        there is y.
    target_kernel : Kernel, callable or None
        None is `Delta()` for what looks like classes to scikit-learn, else as for numbers.
    trade_off : "auto" or float
        t, the weight of the variance between domains; infinity leaves none. "auto" takes what
        serves `estimator` best on domains left out, by y. Without y, or with fewer than three
        domains, it makes up for the variance that chance would give: a direction in which domains
        differ k times as much as that costs 1 + k times as much.
    regularization : "auto" or float
        λ, of the coefficients' norm, on the scale of C. "auto" is 0 where a problem can do without,
        else a hundredth of the largest eigenvalue of C.
    supervised : bool or None
        Whether components are to tell of y; None if y is given. With False y only serves "auto".
    relation : {"covariance", "inverse"}
        What is kept of y. "covariance" is A as above. "inverse" is the paper's own C⁻¹AC, for t = 0
        covariance operator inverse regression (Kim and Pavlovic 2011). It is not symmetric, so that
        nothing is maximised, and it may have no solution; fewer components say more.
    complexity : float
        η, of the components' norm. Transfer component analysis has 0.
    target_regularization : "auto" or float
        ε of E[φ(X)|y]; "auto" is 1/n for classes, else least leave-one-out error.
    estimator : scikit-learn classifier or regressor, or None
        What "auto" judges components by; None is ten nearest neighbours.
    basis : a basis or None
        None is pivoted Cholesky of rank 1,000 at most, or a kernel's own features if they are few.
    random_state : int, Generator or None
        Of the rows that a search looks at, if there are more than 2,000.

    Attributes
    ----------
    components_ : (n_components, r), directions in the space's coordinates
    eigenvalues_ : what is kept along each; zero for those beyond what y can tell, which vary most
        among the others
    domain_share_ : variance of the domains' means along each, of all its variance
    domains_ : the domains' names
    kernel_, target_kernel_, trade_off_, regularization_ : what was used
    held_out_ : rows (multiple of the bandwidth, t, score) that "auto" looked at, or None
    space_, mean_ : the space, and the coordinates of the rows' mean

    Examples
    --------
    Every domain has its own offset in the first column; the class is in the second.

    >>> import numpy as np
    >>> from meanmap import InvariantComponents
    >>> rng = np.random.default_rng(0)
    >>> domains, y = np.repeat(range(5), 80), rng.integers(2, size=400)
    >>> offset = 3 * rng.normal(size=5)
    >>> X = np.stack([offset[domains], 2.0 * y], axis=1) + 0.5 * rng.normal(size=(400, 2))
    >>> model = InvariantComponents(2, random_state=0).fit(X, y, domains=domains)
    >>> Z = model.transform(X)
    >>> bool(abs(np.corrcoef(Z[:, 0], y)[0, 1]) > 0.85)  # 0.9 is what the noise leaves
    True
    >>> bool(model.domain_share_.max() < 0.05)
    True
    """

    def __init__(
        self,
        n_components: int = 2,
        kernel: Any = None,
        target_kernel: Any = None,
        trade_off: float | str = "auto",
        regularization: float | str = "auto",
        *,
        supervised: bool | None = None,
        relation: str = "covariance",
        complexity: float = 1.0,
        target_regularization: float | str = "auto",
        estimator: Any = None,
        basis: Basis | None = None,
        random_state: Any = None,
    ) -> None:
        self.n_components = n_components
        self.kernel = kernel
        self.target_kernel = target_kernel
        self.trade_off = trade_off
        self.regularization = regularization
        self.supervised = supervised
        self.relation = relation
        self.complexity = complexity
        self.target_regularization = target_regularization
        self.estimator = estimator
        self.basis = basis
        self.random_state = random_state

    def fit(self, X: Any, y: Any = None, *, domains: Any = None) -> Self:
        """Find the components from rows, their domains' labels and, if there are any, targets."""
        self._fit(X, y, domains)
        return self

    def fit_transform(self, X: Any, y: Any = None, *, domains: Any = None) -> Array:
        """Find the components and return the rows' own."""
        return in_kind(self._fit(X, y, domains) @ self.components_.T, X)

    def _fit(self, X: Any, y: Any, domains: Any) -> np.ndarray:
        """Find the components; return the rows' coordinates, centred."""
        t, lam, eta, _ = self._settings()
        supervised = self._is_supervised(y, domains)
        kernel = as_kernel(self.kernel, X, "X")
        points = kernel.check(X, "X")
        names, code = domain_codes(domains, count(points))
        targets, kernel_y = self._targets(y, points)
        held_out = None
        multiple = 1.0
        rng = checks.random_generator(self.random_state, "random_state")
        if t is None and len(names) > 2:
            rows = rows_of_every_domain(code, rng)
            judge = judge_of(self.estimator, y, rows)
            if judge is not None:
                part = take(points, rows), code[rows], take(targets, rows), kernel_y
                kernel, multiple, held_out = self._search(kernel, *part, judge, rng)
        space, psi = fit_host_space(kernel.resolve(points), points, self._basis(kernel, points))
        mean = psi.mean(axis=0)
        problem = DomainProblem(psi - mean, code)
        if supervised:
            problem, kernel_y = self._with_targets(problem, space, points, targets, kernel_y, rng)
        self._must_vary(problem, space)
        lam, t = self._weights(problem, lam, t, multiple)
        W, kept = problem.solve(self.n_components, t, eta, lam, self.relation)
        self._enough(W, problem, supervised, t)
        W = W * column_signs((psi - mean) @ W)
        if getattr(points, "ndim", 0) == 2:  # nothing is set before everything has worked
            remember_columns(self, X)
        self.space_, self.kernel_, self.mean_ = space, space.kernel_, mean
        self.target_kernel_ = kernel_y if supervised else None
        self.trade_off_, self.regularization_, self.held_out_ = t, lam, held_out
        self.domains_, self.components_, self.eigenvalues_ = names, W.T, kept
        between = ((problem.means.T @ (problem.axes[1].T @ W)) ** 2).sum(axis=0)
        self.domain_share_ = between / (problem.psi @ W).var(axis=0)
        return psi - mean

    def transform(self, X: Any) -> Array:
        """The components of rows, of any domain."""
        check_is_fitted(self, "components_")
        if hasattr(self, "n_features_in_") and getattr(X, "ndim", 0) == 2:
            X = seen_columns(self, X)
        points = self.kernel_.check(X, "X", self.space_.example_)
        psi = to_numpy(self.space_.coordinates(points))
        return in_kind((psi - self.mean_) @ self.components_.T, points)

    def plot(self, X: Any, y: Any = None, ax: Any = None) -> Any:
        """Draw the first two components of rows, coloured by targets or domains y."""
        return plots.places(to_numpy(self.transform(X)), y, ("component 1", "component 2"), ax)

    def _settings(self) -> tuple[float | None, float | None, float, float | None]:
        """t, λ, η and ε as numbers, None for "auto"."""
        checks.whole(self.n_components, "n_components", 1, "Use 2.")
        checks.option(self.relation, "relation", RELATIONS)
        if self.supervised not in (None, True, False):
            raise ValueError(f"supervised must be True, False or None, got {self.supervised!r}.")
        eta = checks.not_negative(self.complexity, "complexity", "Use 1.")
        lam = checks.number_or_auto(
            self.regularization, "regularization", checks.not_negative, "1e-3"
        )
        if eta == 0 and lam == 0:
            raise ValueError(
                "complexity=0 with regularization=0 leaves components without any bound. Use a "
                'positive number for one of them, or regularization="auto".'
            )
        t: float | None = None
        if isinstance(self.trade_off, float) and self.trade_off == np.inf:
            t = np.inf
        else:
            t = checks.number_or_auto(self.trade_off, "trade_off", checks.not_negative, "1.0")
        epsilon = checks.number_or_auto(
            self.target_regularization, "target_regularization", checks.not_negative, "1e-3"
        )
        if epsilon == 0:
            raise ValueError(
                "target_regularization must be positive, got 0: the targets' covariance has no "
                'inverse. Use "auto" or a number like 1e-3.'
            )
        return t, lam, eta, epsilon

    def _is_supervised(self, y: Any, domains: Any) -> bool:
        """Whether components are to tell of y."""
        if domains is None:
            raise ValueError(
                "fit(X, y, domains=labels) needs the domain of every row, got domains=None. Pass "
                "one label per row; in a pipeline as <step>__domains=labels, or with metadata "
                'routing after set_fit_request(domains="groups"). KernelPCA needs none.'
            )
        supervised = y is not None if self.supervised is None else self.supervised
        if supervised:
            require_target(y, "supervised=True asks for components that predict it. Use False")
        return supervised

    def _targets(self, y: Any, points: Points) -> tuple[Points | None, Kernel | None]:
        if y is None:
            return None, None
        kernel, checked, _ = read_target(y, self.target_kernel)
        checks.same_length([("X", points), ("y", checked)])
        # numbers beside rows of another library go where these are
        if not isinstance(checked, tuple):
            numpy = isinstance(first_array(points), np.ndarray)
            checked = to_numpy(checked) if numpy else in_kind(checked, points)
        return checked, kernel

    def _basis(self, kernel: Kernel, points: Points) -> Basis:
        if self.basis is not None:
            return self.basis
        otherwise = PivotedCholesky(1e-10, max_rank=RANK)
        return choose_basis(kernel.resolve(points), points, otherwise)

    def _with_targets(
        self,
        problem: DomainProblem,
        space: Space,
        points: Points,
        targets: Points,
        kernel: Any,
        rng: np.random.Generator,
    ) -> tuple[DomainProblem, Kernel]:
        """The problem with coordinates of its targets, and their kernel resolved."""
        n = count(targets)
        own, phi = fit_host_space(
            kernel.resolve(targets), targets, PivotedCholesky(1e-8, max_rank=300)
        )
        epsilon = self._settings()[3]
        if epsilon is None and kernel.discrete:
            epsilon = 1 / n  # a class's mean is shrunk as by one more row
        elif epsilon is None:
            rows = np.sort(rng.permutation(n)[:SEARCHED])
            model = ConditionalEmbedding(own.kernel_, None, "auto", (None, space), centered=True)
            model.fit(take(targets, rows), take(points, rows))
            epsilon = max(float(model.regularization_), 1e-8)
        return DomainProblem(
            problem.psi, problem.code, phi - phi.mean(axis=0), epsilon
        ), own.kernel_

    def _weights(
        self, problem: DomainProblem, lam: float | None, t: float | None, multiple: float
    ) -> tuple[float, float]:
        """λ and t as numbers."""
        eta = float(self.complexity)
        largest = float(problem.axes[0][0])
        if lam is None:
            needed = eta == 0 or (problem.phi is not None and self.relation == "inverse")
            lam = INVERSE * largest if needed else 0.0
        if t is None:
            t = multiple * (eta + lam / largest) / problem.noise
        return lam, t

    def _must_vary(self, problem: DomainProblem, space: Space) -> None:
        require_two_rows(len(problem.psi), "components are directions in which rows differ")
        if not len(problem.axes[0]):
            raise ValueError(
                f"all {len(problem.psi)} rows of X are the same to {space.kernel_!r}: there is no "
                "direction in which they differ. Look for columns that are not constant."
            )
        if problem.phi is not None and not (problem.phi**2).sum() > 0:
            raise ValueError(
                "y is constant: there is nothing that components could tell of it. Use "
                "supervised=False, or rows with other targets."
            )

    def _enough(self, W: np.ndarray, problem: DomainProblem, supervised: bool, t: float) -> None:
        m = self.n_components
        if W.shape[1] >= m:
            return
        if supervised and self.relation == "inverse" and W.shape[1] == 0:
            raise ValueError(
                f'relation="inverse" has no solution for trade_off={t:.3g}: its eigenvalues are '
                'negative or complex. Lower trade_off, raise regularization, or use "covariance".'
            )
        without = " that are alike in all domains" if np.isinf(t) else ""
        raise ValueError(
            f"n_components={m}, but the sample varies in {W.shape[1]} direction(s) of the "
            f"space{without} (rows: {len(problem.psi)}, domains: {problem.code.max() + 1}). Ask "
            "for fewer."
        )

    def _search(
        self,
        kernel: Kernel,
        points: Points,
        code: np.ndarray,
        targets: Points,
        kernel_y: Kernel | None,
        judge: Judge,
        rng: np.random.Generator,
    ) -> tuple[Kernel, float, np.ndarray]:
        """Kernel and multiple of t with the best score on domains left out, and all scores."""
        lam, basis = self._settings()[1], self.basis or PivotedCholesky(1e-6, SEARCHED_RANK)

        def make(candidate: Kernel) -> DomainProblem:
            space, psi = fit_host_space(candidate.resolve(points), points, basis)
            problem = DomainProblem(psi - psi.mean(axis=0), code)
            if self.supervised is not False:
                problem, _ = self._with_targets(problem, space, points, targets, kernel_y, rng)
            self._must_vary(problem, space)
            return problem

        def directions(problem: DomainProblem, multiple: float) -> tuple[np.ndarray, float]:
            weight, t = self._weights(problem, lam, None, multiple)
            return problem.solve(self.n_components, t, self.complexity, weight, self.relation)[0], t

        candidates: list[tuple[float, Kernel]] = [(1.0, kernel)]
        if self.kernel is None and kernel.radial:
            candidates = [(f, kernel.rescaled(f)) for f in FACTORS]
        return search_left_out(candidates, make, directions, MULTIPLES, judge)

    @property
    def _n_features_out(self) -> int:
        return len(self.components_)

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "components_")
