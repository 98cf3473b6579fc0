"""Settings for every test and every example of this repository."""

from __future__ import annotations

from collections.abc import Generator

import pytest

import optional_packages

#: Examples in docstrings that take long, as tests marked `slow` do.
SLOW_EXAMPLES = {
    "likelihood_free.md",
    "tests.md",
    "meanmap.comparison.goodness.goodness_of_fit_test",
    "meanmap_experiments.run",
    "meanmap_experiments.measures.run",
}

#: Packages that examples need.
NEEDED_BY_EXAMPLES = {
    "causal_discovery.md": ("causallearn", "dowhy", "pgmpy", "tigramite"),
    "meanmap.causal_discovery.pgmpy_test": ("pgmpy",),
    "meanmap.causal_discovery.register_causal_learn": ("causallearn",),
    "meanmap.causal_discovery.tigramite_test": ("tigramite",),
}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the slow examples, so that `make test` leaves them out, and what others need."""
    for item in items:
        if not isinstance(item, pytest.DoctestItem):
            continue
        if item.name in SLOW_EXAMPLES:
            item.add_marker(pytest.mark.slow)
        for package in NEEDED_BY_EXAMPLES.get(item.name, ()):
            item.add_marker(pytest.mark.needs(package))


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip what is marked `needs("package")` where the package is missing."""
    for mark in item.iter_markers("needs"):
        optional_packages.require(*mark.args)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Give all skips for a missing package one place: the summary has a line for each package."""
    report = yield
    if report.skipped and isinstance(report.longrepr, tuple):
        *_, reason = report.longrepr
        if optional_packages.MISSING in reason:
            report.longrepr = (optional_packages.__file__, 1, reason)
    return report
