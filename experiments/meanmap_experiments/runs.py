"""Many runs of one experiment, in parallel and with a progress bar."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable
from typing import Any

from joblib import Parallel, delayed

from meanmap.arrays import one_blas_thread
from meanmap.progress import progress_bar


def each(
    task: Callable[..., Any],
    arguments: Iterable[tuple[Any, ...]],
    what: str,
    n_jobs: int | None = None,
    progress: bool | None = None,
) -> list[Any]:
    """`task(*a)` for each tuple of arguments, in their order, whichever is ready first.

    `task` must be a function of a module, for it may run in another process, with one BLAS thread.

    Examples
    --------
    >>> from math import hypot
    >>> each(hypot, [(3, 4), (5, 12)], "triangles")
    [5.0, 13.0]
    """
    jobs = list(arguments)
    found = []
    with progress_bar(len(jobs), what, progress, "run") as done:
        tries = (delayed(_alone)(task, *job) for job in jobs)
        for result in Parallel(n_jobs=n_jobs, return_as="generator")(tries):
            found.append(result)
            done(1)
    return found


def _alone(task: Callable[..., Any], *arguments: Any) -> Any:
    """One run; what its filters warn of is the experiment's to report."""
    with one_blas_thread(), warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        return task(*arguments)
