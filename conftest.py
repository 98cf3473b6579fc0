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


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the slow examples, so that `make test` leaves them out."""
    for item in items:
        if isinstance(item, pytest.DoctestItem) and item.name in SLOW_EXAMPLES:
            item.add_marker(pytest.mark.slow)


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
