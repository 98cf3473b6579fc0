"""Reports: findings in words, figures and one HTML page."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from meanmap.report.shifts import ShiftReport, shift_report

__all__ = ["ShiftReport", "shift_report"]


def __getattr__(name: str) -> Any:
    """Import the shift report when it is asked for: other pages do not need its models."""
    if name not in __all__:
        raise AttributeError(f"module 'meanmap.report' has no attribute {name!r}")
    from meanmap.report import shifts

    globals().update({public: getattr(shifts, public) for public in __all__})
    return globals()[name]
