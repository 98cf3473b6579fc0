"""A conditional P(Y|X) as Bayes' rule uses it: priors on X, answers conditioned on Y."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from meanmap.arrays import Array, one_blas_thread
from meanmap.conditional.fitting import SMALL, Pairs, fit_pairs, learn_kernel, median_kernel
from meanmap.conditional.operator import ConditionalOperator, Side
from meanmap.conditional.selection import LeaveOneOut, RegressionSample, leave_one_out
from meanmap.linalg import Spectrum, covariance


@dataclass(frozen=True)
class Reversal:
    """Both sides of a sample, and the operators that turn P(Y|X) round."""

    x: Side  # in which priors are represented
    y: Side  # which answers are conditioned on
    forward: ConditionalOperator  # P(Y|X) on this side of X
    regularization: float  # λ of it
    spectrum: Spectrum  # C_YY
    errors: LeaveOneOut  # of P(X|Y)

    @classmethod
    def of(
        cls,
        sides: tuple[Side, Side],
        operator: ConditionalOperator,
        regularization: float,
        w: Array,
        *,
        centered: bool | None,
        bases: tuple[Any, Any],
        learned: tuple[bool, bool],
    ) -> Reversal:
        """From a fitted conditional with weights w.

        Scales on X that were learned tell what matters for y, not how priors differ: priors are
        represented under the median distance. Scales on Y are learned from X, which is what they
        are to predict. `learned` says which of the two sides may have learned scales.
        """
        x, y = sides
        if learned[0]:
            kernel = median_kernel(x.space.kernel_, x.points, w)
            pairs = Pairs(x.points, y.points, kernel, y.space.kernel_, (bases[0], y.space), w)
            fitted = fit_pairs(pairs._replace(known=(None, y.coordinates)), "auto", centered)
            x, operator, regularization = fitted.x, fitted.operator, fitted.regularization
        if learned[1]:
            kernels = y.space.kernel_, x.space.kernel_
            pairs = Pairs(y.points, x.points, *kernels, (bases[1], x.space), w)
            pairs, enough = learn_kernel(pairs, x, "auto")
            y = pairs.side(0, pairs.kernel_x, slice(None), w) if enough else y
        psi, norms = y.coordinates, x.space.kernel_.squared_norms(x.points)
        sample, mu = RegressionSample(psi, x.coordinates, w, norms), None
        with one_blas_thread(psi.shape[1] < SMALL):
            spectrum = Spectrum.of(covariance(psi, w))
            if centered is not False:
                sample, mu = sample.centre_targets(w @ sample.targets), w @ psi
            errors = leave_one_out(spectrum, sample, mu=mu)
        return cls(x, y, operator, regularization, spectrum, errors)
