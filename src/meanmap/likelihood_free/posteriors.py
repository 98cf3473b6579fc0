"""What simulations teach: the operator from outputs to parameters, and the shape around it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np
from scipy.stats import binom

from meanmap import checks
from meanmap.conditional import ConditionalEmbedding
from meanmap.conditional.beliefs import belief_quantiles
from meanmap.conditional.fitting import Pairs, fit_pairs
from meanmap.conditional.operator import ConditionalOperator
from meanmap.conditional.ranges import or_one
from meanmap.conditional.selection import LeaveOneOut, search_size
from meanmap.conditional.shape import ShapeAt
from meanmap.embeddings import Embedding, embed
from meanmap.exceptions import quiet
from meanmap.kernels import Gaussian, Kernel
from meanmap.kernels.bandwidths import median_distance
from meanmap.kernels.defaults import as_kernel
from meanmap.likelihood_free.likelihoods import MOST, LikelihoodPosterior, OutputLaw
from meanmap.likelihood_free.priors import NormalMap
from meanmap.likelihood_free.regression import (
    BeliefsAt,
    Regression,
    belief_scores_of,
    centre_parameters,
    columns_spread,
    left_out_scores,
)
from meanmap.likelihood_free.results import Posterior
from meanmap.rules import bayes_method
from meanmap.spaces import Nystroem, PivotedCholesky

FACTORS = (0.25, 0.5, 1.0, 2.0)  # multiples of the median distance that a kernel on outputs tries
LARGE = 10_000  # simulations from which landmarks stand for all of them
LANDMARKS = 1000
ROUGH = (1e-3, 200)  # tolerance and rank of the parameters' space, enough to compare kernels in
HELD, PER_HELD = 120, 8  # simulations that choose between two answers, at most one of so many
POWERS = (1.0, 0.7, 0.5, 0.35)  # of a likelihood, the first whose posteriors are wide enough
LEVEL, CHANCE = 0.9, 0.01  # of intervals; of refusing posteriors that are right
DRAWS, RANKED, JUDGED = 10_000, 500, 256  # of a posterior: one of few, each of many, for a score
FEW = 20  # posteriors asked for together
TOLERANCE = 1e-7  # of the kernel's trace: far below the noise of a thousand simulations


@dataclass(frozen=True, eq=False)
class PosteriorModel:
    """P(θ | output), from weighted simulations, under the prior that the weights stand for."""

    model: ConditionalEmbedding
    operator: ConditionalOperator
    regression: Regression
    support: tuple[np.ndarray, np.ndarray]
    standard: bool  # whether the kernel on parameters is of our choosing
    likelihood: LikelihoodPosterior | None = None  # where it answers better
    summarized: bool = False  # whether that is one of the regression's means, not of outputs

    @classmethod
    def of(
        cls,
        theta: np.ndarray,
        outputs: np.ndarray,
        weights: np.ndarray,
        support: tuple[np.ndarray, np.ndarray],
        kernel_x: Any,
        kernel_y: Any,
        regularization: float | str,
    ) -> PosteriorModel:
        """The conditional embedding of eq. 19 (Fukumizu, Song and Gretton 2013)."""
        if not (columns_spread(outputs) > 0).any():
            raise ValueError(
                "simulator: all outputs are the same, whatever the parameters, so that there is "
                f"nothing to learn from them (the first is {outputs[0].tolist()!r:.80})."
            )
        coarse = PivotedCholesky(TOLERANCE, LANDMARKS)
        standard = kernel_x is None
        on_theta = standard_kernel(theta, weights, 1.0) if standard else as_kernel(kernel_x, theta)
        y = on_theta.check(theta, "theta")
        with quiet():
            if kernel_y is None:
                x = checks.vectors(outputs, "outputs")
                on_outputs = choose_kernel(x, y, weights, on_theta, coarse)
            else:
                on_outputs = as_kernel(kernel_y, outputs)
                x = on_outputs.check(outputs, "outputs")
            basis: Any = coarse
            if len(theta) > LARGE:
                basis = (Nystroem(LANDMARKS, random_state=0), coarse)
            model = ConditionalEmbedding(
                on_outputs, on_theta, regularization, basis, centered=False
            )
            model.fit_checked(x, y, weights / weights.sum())
            ends = np.stack([theta.min(axis=0), theta.max(axis=0)])
            regression = Regression.of(model.operator_, theta, outputs, weights, support, ends)
        return cls(model, model.operator_, regression, support, standard)

    def try_likelihood(
        self, outputs: np.ndarray, prior: NormalMap | None, box: np.ndarray | None = None
    ) -> PosteriorModel:
        """The same with a learned likelihood, unless its posteriors of left-out rows are worse.

        They are too narrow if their 90% intervals hold fewer of these rows than chance would allow;
        then a power of the likelihood is taken, which makes them wider.

        Worse by more than a standard error: so few rows tell no more, and where they do not, a
        likelihood errs less (in ten normal parameters a score of 24 rows hardly sees a width that
        is a fifth too large).

        `prior` is what was drawn from, `box` where these simulations lie, if not everywhere.
        """
        n = len(self.theta)
        held = np.linspace(0, n - 1, min(HELD, n // PER_HELD)).astype(int)
        if prior is None or not len(held):
            return self
        rest, evidence = np.setdiff1d(np.arange(n), held), self.regression.shape.evidence
        with quiet():
            law = OutputLaw.of(self.theta[rest], outputs[rest], self.support)
            summarized = law is None and outputs.shape[1] > MOST
            if summarized:
                # of many outputs, what each row's others would say of its parameters
                outputs = evidence.scale.forward(evidence.y) - evidence.errors
                law = OutputLaw.of(self.theta[rest], outputs[rest], self.support)
            if law is None:
                return self
            for power in POWERS:
                likelihood = LikelihoodPosterior(law, prior, box, power)
                beliefs = [likelihood.belief(outputs[i], JUDGED) for i in held]
                if not too_narrow(beliefs, evidence.y[held]):
                    break
            else:
                return self
            mine = left_out_scores(self.regression.shape, held)
            worse = belief_scores_of(beliefs, evidence, held) - mine
        if worse.mean() > worse.std() / np.sqrt(len(held)):
            return self
        return replace(self, likelihood=likelihood, summarized=summarized)

    @property
    def theta(self) -> np.ndarray:
        """The parameters that were simulated with."""
        return self.regression.shape.evidence.y

    def draw(self, y: np.ndarray, shape: ShapeAt, n: int) -> ShapeAt:
        """The posteriors of observations (b, p) by the likelihood, about n draws each.

        Those outside the simulations keep the shape that residuals give.
        """
        if self.likelihood is None:
            return shape
        outside = self.regression.outside(y)
        with quiet():
            rows = self.regression.centres(self.regression.features(y)) if self.summarized else y
            return BeliefsAt.of(
                shape.belief(i) if outside[i] else self.likelihood.belief(row, n)
                for i, row in enumerate(rows)
            )

    def posterior(
        self, y: np.ndarray, single: bool, names: tuple[str, ...], asked: Any = None
    ) -> Posterior:
        """The posteriors of observations (b, p), or that of a single one.

        Answers come in the kind of array that was `asked` with.
        """
        with quiet():
            features = self.regression.features(y)
            means, shape = self.regression.shapes(y, features)
            if self.operator is self.model.operator_:
                answer = self.operator.answer(features[0] if single else features)
        if self.operator is not self.model.operator_:
            # Bayes' rule has its own mean, and warns where prior and y conflict
            answer = self.operator.given(y[0] if single else y)
            centre = self.regression.centre
            sums = answer.expect(lambda theta: centre_parameters(theta, centre))
            means = self.regression.mean_of(np.atleast_2d(sums))
        scale = self.regression.shape.evidence.scale
        found = Posterior.of(
            answer, lambda _: self.draw(y, shape, DRAWS if len(y) <= FEW else RANKED)
        )
        own = means if self.likelihood is None else None
        return found.describe(names, own, scale, asked)

    def ranks(self, y: np.ndarray, theta: np.ndarray) -> np.ndarray:
        """Where parameters fall in the posteriors of their outputs: P(θ* < θ | y), (b, d)."""
        with quiet():
            shape = self.regression.shapes(y, self.regression.features(y))[1]
        shape = self.draw(y, shape, RANKED)
        found = []
        for i, truth in enumerate(theta):
            points, weights = shape.belief(i)
            # a half of what is equal, as whole numbers may be
            found.append(weights @ ((points < truth) + 0.5 * (points == truth)))
        return np.clip(np.stack(found), 0.0, 1.0)

    def under(self, prior: Any, method: str, regularization: Any) -> PosteriorModel:
        """The same simulations under another prior, an embedding or draws: kernel Bayes' rule."""
        outputs, theta = (side.points for side in self.model.sides())
        weights = self.model.weights_
        draws = prior.atoms if isinstance(prior, Embedding) else prior
        space_x, space_y = self.model.space_y_, self.model.space_x_
        kernel: Any = space_x.kernel_
        basis: Any = (space_x, space_y)
        with quiet():
            if self.standard and not isinstance(prior, Embedding):
                # a prior that is narrower than the first asks for a narrower kernel
                width = standard_kernel(draws, None, 1.0).bandwidth
                kernel = Gaussian(tuple(map(min, zip(kernel.bandwidth, width, strict=True))))
                basis = (PivotedCholesky(TOLERANCE, LANDMARKS), space_y)
            forward = ConditionalEmbedding(kernel, space_y.kernel_, basis=basis, centered=False)
            forward.fit_checked(theta, outputs, weights)
            embedded = prior if isinstance(prior, Embedding) else embed(draws, kernel=kernel)
            operator = forward.posterior(embedded, method, regularization)
            # positive weights that make the simulations those of the other prior
            ridge = operator
            rule = bayes_method(method)
            if not (rule.positive and rule.adaptive):
                ridge = forward.posterior(embedded, "nonnegative")
            ends = np.stack([draws.min(axis=0), draws.max(axis=0)])
            regression = Regression.of(ridge, theta, outputs, ridge.scale, self.support, ends)
        return replace(self, operator=operator, regression=regression, likelihood=None)


def standard_kernel(points: np.ndarray, weights: np.ndarray | None, factor: float) -> Gaussian:
    """A Gaussian whose bandwidths follow the columns' spreads."""
    spread = or_one(columns_spread(points, weights))
    scale = factor * median_distance(points / spread, weights)
    return Gaussian(tuple(float(s) for s in scale * spread))


def choose_kernel(
    outputs: np.ndarray, theta: np.ndarray, weights: np.ndarray, on_theta: Kernel, basis: Any
) -> Kernel:
    """The kernel on outputs with the least leave-one-out error of the parameters' embedding."""
    bases = (basis, PivotedCholesky(*ROUGH))
    some = np.linspace(0, len(theta) - 1, search_size(len(theta))).astype(int)
    x, y, w = outputs[some], theta[some], weights[some] / weights[some].sum()
    best: tuple[float, Kernel] | None = None
    for factor in FACTORS:
        kernel = standard_kernel(outputs, weights, factor)
        pairs = Pairs(x, y, kernel, on_theta, bases, w)
        error = cast(LeaveOneOut, fit_pairs(pairs, centered=False).errors).least
        if best is None or error < best[0]:
            best = error, kernel
    assert best is not None
    return best[1]


def too_narrow(beliefs: Sequence[tuple[np.ndarray, np.ndarray]], truth: np.ndarray) -> bool:
    """Whether intervals of some parameter hold fewer true ones (b, d) than chance would allow."""
    ends = np.array([(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    low, high = np.stack([belief_quantiles(belief, ends) for belief in beliefs], axis=1)
    inside = ((low <= truth) & (truth <= high)).sum(axis=0)
    return bool((inside < binom.ppf(CHANCE / truth.shape[1], len(truth), LEVEL)).any())
