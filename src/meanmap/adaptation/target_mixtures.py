"""Mixtures of P(x|y) by the targets' distribution, and how certain their weights are."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import scipy.linalg

from meanmap.adaptation.weight_programme import WeightProgramme, WeightSolution, solve_dual
from meanmap.arrays import Points, count, to_numpy
from meanmap.conditional import ConditionalEmbedding
from meanmap.kernels import Kernel, Linear
from meanmap.spaces import Space
from meanmap.statistics.columns import positive_ratio

SHARES = 10.0 ** np.arange(0.0, -6.5, -0.5)  # ρ that "auto" tries, in units of the mean of k(x, x)
CLASSES_SHARE = 1e-6  # ρ for classes, whose weights are few
ROUNDS = 8  # random halves that a search for ρ holds out
SEARCHED = 1000
REFITTED = 1e8  # multiplications up to which every draw has its own regression on x


@dataclass(frozen=True, eq=False)
class Ridges:
    """Values of ρ, the largest first, and their errors in rounds of a search."""

    values: np.ndarray
    errors: np.ndarray  # (rounds, values)

    @classmethod
    def single(cls, ridge: float) -> Ridges:
        return cls(np.array([ridge]), np.zeros((ROUNDS, 1)))

    def best(self, rounds: Any = slice(None)) -> float:
        """The largest that is not told apart from the best: halves are noisy."""
        errors = self.errors[rounds]
        worse = errors - errors[:, [int(np.argmin(errors.mean(axis=0)))]]
        doubt = worse.std(axis=0, ddof=1) / len(errors) ** 0.5
        return float(self.values[int(np.argmax(worse.mean(axis=0) <= doubt))])

    def draw(self, rng: np.random.Generator) -> float:
        """What the search might have found: the best of its rounds drawn again."""
        return self.best(rng.integers(len(self.errors), size=len(self.errors)))


@dataclass(frozen=True, eq=False)
class MixtureFit:
    """The weights that were found, and what they were found with."""

    found: WeightSolution
    test: np.ndarray  # features of the test rows
    ridges: Ridges
    bound: float
    predictor: TargetPredictor | None  # behind the features, if they are predictions


@dataclass(frozen=True, eq=False)
class Mixture(ABC):
    """Images of P(x|y) for values of y, their weights in training, and each row's value."""

    images: np.ndarray  # (values, r)
    w: np.ndarray
    row: np.ndarray  # (n,) the value of a training row
    targets: Points

    @property
    def has_mean(self) -> bool:
        """Whether the targets have a mean: numbers, or classes with their proportions."""
        return True

    def draws(self, number: int, fit: MixtureFit, rng: np.random.Generator) -> np.ndarray:
        """What intervals rest on: answers of samples drawn again."""
        answers = [self.resample(fit, rng) for _ in range(number)]
        return self.correct(fit.found, np.array(answers))

    @abstractmethod
    def resample(self, fit: MixtureFit, rng: np.random.Generator) -> np.ndarray:
        """The answer from samples drawn again."""

    def correct(self, found: WeightSolution, draws: np.ndarray) -> np.ndarray:
        """The draws as they are: of the few weights of classes the ridge takes nothing."""
        return draws

    def programme(self, mean: np.ndarray, ridge: float, bound: float) -> WeightProgramme:
        """The quadratic programme for weights under which the images have this mean."""
        return WeightProgramme(self.images, self.w, mean, ridge, bound, 1.0, 1.0)

    def solve(self, mean: np.ndarray, ridge: float, bound: float) -> WeightSolution:
        """The weights under which the images have this mean."""
        return solve_dual(self.programme(mean, ridge, bound))


@dataclass(frozen=True, eq=False)
class Classes(Mixture):
    """One value per class."""

    classes: np.ndarray
    features: np.ndarray  # of the training rows

    def ridges(
        self, test: np.ndarray, scale: float, bound: float, rng: np.random.Generator
    ) -> Ridges:
        return Ridges.single(scale * CLASSES_SHARE)

    def shrink(self, found: WeightSolution, test: np.ndarray, ridge: float) -> WeightSolution:
        """β drawn towards one, the more so the less its distance is above what chance makes."""
        d = len(self.classes) - 1
        # James and Stein (1961): in d directions of equal noise up to 2(d - 2)/d of its variance
        # costs nothing, wherever the truth is; all of it is the estimate of empirical Bayes
        part = min(1.0, 2 - 4 / d)
        if part <= 0:
            return found
        noise = part * self.variance(found, test, ridge)
        away = float((self.w**2 * (found.beta - 1) ** 2).sum())
        share = 1.0 if away <= noise else noise / away
        return replace(found, beta=found.beta + share * (1 - found.beta))

    def variance(self, found: WeightSolution, test: np.ndarray, ridge: float) -> float:
        """Of the proportions, summed, by both samples' noise: to first order, at fixed bounds."""
        p, n = self.w * found.beta, len(self.row)
        free = p > 0
        A, k = self.images[free], int(free.sum())
        # p = H m + constant: normal equations with a multiplier for Σ p = 1
        normal = np.ones((k + 1, k + 1))
        normal[:k, :k] = A @ A.T + ridge * np.diag(1 / self.w[free])
        normal[k, k] = 0
        right = np.vstack([A, np.zeros(A.shape[1])])
        H = np.linalg.lstsq(normal, right, rcond=None)[0][:k]  # classes may look alike
        rows = (self.features - self.images[self.row]) @ H.T
        within = class_means(rows**2, self.row, self.w).sum(axis=1)
        return float((test @ H.T).var(axis=0).sum() / len(test) + p**2 / (n * self.w) @ within)

    def resample(self, fit: MixtureFit, rng: np.random.Generator) -> np.ndarray:
        """Proportions from both samples drawn again, training rows within their classes."""
        drawn = np.empty(len(self.row), dtype=int)
        for value in range(len(self.classes)):
            members = np.flatnonzero(self.row == value)
            drawn[members] = rng.choice(members, len(members))
        again = replace(self, images=class_means(self.features[drawn], self.row, self.w))
        mean = bootstrap_mean(fit.test, rng)
        return self.w * again.solve(mean, fit.ridges.best(), fit.bound).beta

    def elsewhere(self, found: WeightSolution, y: Points, ridge: float, bound: float) -> np.ndarray:
        values = to_numpy(y)
        try:
            at = np.searchsorted(self.classes, values).clip(max=len(self.classes) - 1)
        except TypeError as error:
            raise TypeError(
                f"y: expected labels like those of the training rows, {self.classes.dtype}, got "
                f"{values.dtype}. Use one type for both."
            ) from error
        new = self.classes[at] != values
        if new.any():
            known = ", ".join(map(repr, self.classes[:6].tolist()))
            raise ValueError(
                f"y: {values[new].tolist()[0]!r} is not a class of the training rows ({known}…), "
                "so it has no weight."
            )
        return found.beta[at]


@dataclass(frozen=True, eq=False)
class Numbers(Mixture):
    """One value per training row, between which the images are smooth."""

    model: ConditionalEmbedding  # of the features given y
    features: np.ndarray  # of the training rows
    coordinates: np.ndarray  # of their targets

    @property
    def has_mean(self) -> bool:
        return not isinstance(self.targets, tuple) and to_numpy(self.targets).dtype.kind in "fiu"

    def ridges(
        self, test: np.ndarray, scale: float, bound: float, rng: np.random.Generator
    ) -> Ridges:
        """How near to test rows that it has not seen the mixture comes for each ρ."""
        errors = np.zeros((ROUNDS, len(SHARES)))
        rows = rng.permutation(len(self.w))[:SEARCHED]
        images, w = self.images[rows], np.full(len(rows), 1 / len(rows))
        some = replace(self, images=images, w=w)
        for one in errors if len(test) > 1 else ():
            halves = np.array_split(rng.permutation(len(test)), 2)
            seen, unseen = (test[half].mean(axis=0) for half in halves)
            dual = None
            for i, share in enumerate(SHARES):
                programme = some.programme(seen, share * scale, bound)
                found = solve_dual(programme, dual, tolerance=1e-6, max_iter=30)
                dual = found.dual
                one[i] = ((((w * found.beta) @ images) - unseen) ** 2).sum()
        return Ridges(scale * SHARES, errors)

    def shrink(self, found: WeightSolution, test: np.ndarray, ridge: float) -> WeightSolution:
        """β itself: ρ has been chosen by what noise allows."""
        return found

    def resample(self, fit: MixtureFit, rng: np.random.Generator) -> np.ndarray:
        """The mean of y that is found where the weights are the truth.

        Test rows are drawn from the training rows by the weights β, so that the mean of y among
        them is known, and training rows with replacement; regressions and ρ are found anew. So the
        draws show what the ridge takes from the shift as well as the noise of both samples.
        """
        n, predictor = len(self.w), fit.predictor
        p = self.w * fit.found.beta
        if not p.sum() > 0:
            raise ValueError(
                "all weights of the training rows are zero: no mixture of them is like the test "
                "rows. Use a smaller ridge, or look at both samples."
            )
        w = rng.multinomial(n, self.w) / n
        fits = predictor is not None and predictor.cost <= REFITTED
        features = predictor.answers(w) if predictor is not None and fits else self.features
        mean = rng.multinomial(len(fit.test), p / p.sum()) @ features / len(fit.test)
        images = regression(self.coordinates, features, w, self.model.regularization_)[0]
        ridge = fit.ridges.draw(rng)
        again = replace(self, w=w, images=images).solve(mean, ridge, fit.bound)
        return np.asarray((w * again.beta) @ to_numpy(self.targets).reshape(n, -1))

    def correct(self, found: WeightSolution, draws: np.ndarray) -> np.ndarray:
        """Draws less their bias, and as much wider as a bias that is only estimated asks for.

        With the mean m of y under β, a bias b = mean(m*) - m and a deviation s of the draws m*,
        they are about m - b with the deviation √(s² + b²).
        """
        if not len(draws):
            return draws
        n = len(self.w)
        m = (self.w * found.beta) @ to_numpy(self.targets).reshape(n, -1)
        centre, s = draws.mean(axis=0), draws.std(axis=0)
        wider = np.sqrt(1 + positive_ratio((centre - m) ** 2, s**2, 0.0))
        return np.asarray(2 * m - centre + (centre - draws) * wider)

    def elsewhere(self, found: WeightSolution, y: Points, ridge: float, bound: float) -> np.ndarray:
        images = to_numpy(self.model.predict(y))
        return self.programme(images[0], ridge, bound).elsewhere(found, images)


def classes_of(kernel: Kernel, targets: Points) -> tuple[np.ndarray, np.ndarray] | None:
    """The classes, sorted, and the place of each row's among them; None for other targets."""
    if not kernel.discrete or targets.ndim != 1:
        return None
    classes, row = np.unique(to_numpy(targets), return_inverse=True)
    return classes, row


def target_images(
    features: np.ndarray, targets: Points, kernel_y: Kernel, regularization: float | str
) -> Classes | Numbers:
    """Images of P(x|y): means of classes, or the conditional mean given numbers."""
    n = len(features)
    labels = classes_of(kernel_y, targets)
    if labels is not None:
        classes, row = labels
        if len(classes) < 2:
            raise ValueError(
                f"y has one class, {classes[0]!r}: there is nothing that could shift. Two or more "
                "are needed."
            )
        share = np.bincount(row, minlength=len(classes)) / n
        images = class_means(features, row, share)
        return Classes(images, share, row, targets, classes, features)
    model = ConditionalEmbedding(kernel_y, Linear(), regularization, centered=True)
    model.fit(targets, features)
    images = to_numpy(model.predict(targets))
    coordinates = to_numpy(model.space_x_.transform(targets))
    w = np.full(n, 1 / n)
    return Numbers(images, w, np.arange(n), targets, model, features, coordinates)


@dataclass(frozen=True, eq=False)
class TargetPredictor:
    """The regression of φ(y) on coordinates of x, for any weights of the training rows."""

    psi: np.ndarray  # of training rows, and perhaps others
    phi: np.ndarray  # of training rows
    regularization: float

    @property
    def cost(self) -> float:
        """Multiplications of one fit."""
        return float(len(self.phi)) * self.psi.shape[1] ** 2

    def answers(self, w: np.ndarray) -> np.ndarray:
        """E[φ(y)|x] of training rows, each from the others, and then of other rows."""
        n, psi = len(self.phi), self.psi
        found, factor = regression(psi, self.phi, w, self.regularization)
        # leaving a row out: (ŷ - hy)/(1 - h) with the leverage h, of the constant too
        half = scipy.linalg.solve_triangular(factor[0], (psi[:n] - w @ psi[:n]).T, lower=True)
        h = np.minimum(w * ((half**2).sum(axis=0) + 1), 1 - 1e-6)[:, None]
        found[:n] = (found[:n] - h * self.phi) / (1 - h)
        return found

    def of_training(self) -> TargetPredictor:
        """The same without other rows."""
        return replace(self, psi=self.psi[: len(self.phi)])


def predict_targets(
    psi: np.ndarray,
    space: Space,
    train: Points,
    targets: Points,
    kernel_y: Kernel,
    regularization: float | str,
) -> tuple[np.ndarray, TargetPredictor]:
    """E[φ(y)|x] of training rows, each from the others, then of test rows; and what says so."""
    n = count(train)
    w = np.full(n, 1 / n)
    labels = classes_of(kernel_y, targets)
    if labels is not None:  # rare classes must be predicted as well
        size = np.bincount(labels[1])
        w = 1 / (len(size) * size[labels[1]])
    model = ConditionalEmbedding(space.kernel_, kernel_y, regularization, (space, None), True)
    model.fit(train, targets, sample_weight=w)
    phi = to_numpy(model.space_y_.transform(targets))
    predictor = TargetPredictor(psi, phi, float(model.regularization_))
    return predictor.answers(w), predictor.of_training()


def regression(
    psi: np.ndarray, values: np.ndarray, w: np.ndarray, regularization: float
) -> tuple[np.ndarray, Any]:
    """Answers at all rows of psi from the values of its first ones, and the factor of C + λI."""
    n = len(values)
    centre, mean = w @ psi[:n], w @ values
    X = psi - centre
    weighted = X[:n].T * w
    C = weighted @ X[:n]
    C[np.diag_indices(len(C))] += max(regularization, 1e-10 * float(np.trace(C)))
    factor = scipy.linalg.cho_factor(C, lower=True)
    return X @ scipy.linalg.cho_solve(factor, weighted @ (values - mean)) + mean, factor


def bootstrap_mean(rows: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """The mean of as many rows, drawn with replacement."""
    n = len(rows)
    return rng.multinomial(n, np.full(n, 1 / n)) @ rows / n


def class_means(psi: np.ndarray, row: np.ndarray, share: np.ndarray) -> np.ndarray:
    """Mean coordinates of the rows of each class."""
    member = np.arange(len(share))[:, None] == row
    return member @ psi / (share * len(row))[:, None]
