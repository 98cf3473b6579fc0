"""Bayes' rule for people with data instead of a simulator."""

from __future__ import annotations

from typing import Any

from meanmap import checks
from meanmap.arrays import Points
from meanmap.conditional import ConditionalEmbedding
from meanmap.embeddings import embed


def bayes_update(prior_sample: Any, joint_sample: tuple[Any, Any], y: Any, **options: Any) -> Any:
    """The posterior of X given Y = y, from samples alone: kernel Bayes' rule in a line.

    Parameters
    ----------
    prior_sample : points of X, distributed as the prior
    joint_sample : tuple (X, Y) of paired points
        From which P(Y|X) is learned; its X need not follow the prior.
    y : one observation, or rows of them
    options : of `bayes_rule` (method, regularization, …)

    Returns
    -------
    Embedding

    Examples
    --------
    >>> import numpy as np
    >>> from meanmap.likelihood_free import bayes_update
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(0.0, 2.0, size=(1000, 1))
    >>> Y = X + rng.normal(size=(1000, 1))
    >>> prior = rng.normal(1.0, 1.0, size=(1000, 1))
    >>> bayes_update(prior, (X, Y), [0.0]).mean().round(1)  # the truth is 0.5
    array([0.5])
    """
    if not isinstance(joint_sample, tuple) or len(joint_sample) != 2:
        raise TypeError(
            f"joint_sample: expected a tuple (X, Y) of paired points, got "
            f"{checks.describe(joint_sample)}."
        )
    X, Y = joint_sample
    model = ConditionalEmbedding().fit(X, Y)
    points: Points = model.kernel_x_.check(prior_sample, "prior_sample", model.space_x_.example_)
    return model.posterior(embed(points, kernel=model.kernel_x_), **options).given(y)
