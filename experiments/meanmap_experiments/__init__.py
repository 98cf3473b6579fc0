"""The experiments of the papers, reproduced: data, settings, published figures beside ours.

Each is a module of the experiment's name with a function `run`; `run("rotation")` here imports it
and calls it, and so does `make reproduce NAME=rotation`.
"""

from __future__ import annotations

import difflib
import time
from collections.abc import Iterable
from dataclasses import replace
from importlib import import_module

from meanmap_experiments.results import Claim, Curves, Figure, Outcome, Table

__version__ = "0.2.0"

__all__ = ["Claim", "Curves", "Figure", "Outcome", "Table", "describe", "known", "names", "run"]

#: Every experiment, in a line: what is done, and whose experiment it is.
EXPERIMENTS = {
    "rotation": "a rotating and an oscillating point (Fukumizu, Song and Gretton 2013, 5.3)",
    "circle": "a particle on a circle under four kinds of noise (Song et al. 2009, 7)",
    "camera": "the rotation of a camera from its pictures (Song et al. 2009, 7)",
    "identities": "who is on which track: hidden permutations (Song et al. 2009, 5)",
    "bayes": "Bayes' rule against densities and importance weights (Fukumizu et al. 2013, 5.1)",
    "abc": "inference without a likelihood: kernels and rejection (Fukumizu et al. 2013, 5.2)",
    "genetics": "sizes, growth and splits of populations from sequences, by msprime",
    "simulators": "standard simulators, against neural posteriors and pyABC (Lueckmann et al.)",
    "trees": "chains and trees against the truth: linear, bent and branching edges, labels",
    "dimension": "densities of 5 to 20 variables, by factors and at once (lecture notes, 3.2)",
    "measurements": "trees learned from diabetes and wine: held-out rows and hidden values",
    "loopy": "lattices with many modes: kernels, bins, particles, mixtures (Song et al. 2013, 5.1)",
    "depth": "depth of the patches of one picture, by belief propagation (Song et al. 2013, 5.1.3)",
    "measures": "distributions as examples: bags, groups, moved digits (Muandet et al. 2012, 5)",
    "clusters": "clusters by dependence: k-means, rings, labels in order (Song et al. 2007)",
    "unfolding": "maps of digits and of a turning object, with and without colours (Song et al.)",
    "densities": "densities from embeddings, against kernel density estimates and mixtures",
    "series": "sunspots and sea temperatures forecast, against tuned autoregressions",
    "selectors": "features chosen by dependence: known answers, and tables (Song et al. 2012)",
    "domains": "a domain not seen before: offsets, turned clouds and digits (Muandet et al. 2013)",
    "reweighting": "weights for rows and targets where the truth is known (Huang et al. 2007, "
    "Zhang et al. 2013)",
    "recalibration": "other gains and offsets: known ones found, drifted measurements (Zhang et "
    "al. 2013)",
}


def names() -> tuple[str, ...]:
    """The experiments there are.

    Examples
    --------
    >>> import meanmap_experiments as experiments
    >>> "identities" in experiments.names()
    True
    """
    return tuple(EXPERIMENTS)


def describe(name: str) -> str:
    """What an experiment is about, in a line."""
    return EXPERIMENTS[known([name])[0]]


def known(asked: Iterable[str]) -> list[str]:
    """The names, if there are such experiments; an error that suggests the nearest if not."""
    asked = list(asked)
    for name in asked:
        if name not in EXPERIMENTS:
            near = difflib.get_close_matches(str(name), EXPERIMENTS, n=1, cutoff=0.4)
            suggestion = f" Did you mean {near[0]!r}?" if near else ""
            raise ValueError(
                f"there is no experiment {name!r}.{suggestion} There are: {', '.join(EXPERIMENTS)}."
            )
    return asked


def run(
    name: str,
    quick: bool = False,
    seed: int = 0,
    n_jobs: int | None = None,
    progress: bool | None = None,
) -> Outcome:
    """Run an experiment.

    Parameters
    ----------
    name : one of `names()`
    quick : bool
        Fewer and shorter runs, in half a minute or less: enough to see the picture, with larger
        standard errors.
    seed : int
        The same seed gives the same figures.
    n_jobs : int or None
        Processes that share the runs, as in scikit-learn.
    progress : bool or None
        Show a progress bar; None on a terminal only.

    Examples
    --------
    >>> import meanmap_experiments as experiments
    >>> outcome = experiments.run("identities", quick=True, progress=False)
    >>> outcome.name
    'identities'
    """
    module = import_module(f"meanmap_experiments.{known([name])[0]}")
    began = time.perf_counter()
    found: Outcome = module.run(quick=quick, seed=seed, n_jobs=n_jobs, progress=progress)
    return replace(found, seconds=time.perf_counter() - began)
