"""Reports: what the library finds in a person's data, in words, figures and one HTML page."""

from meanmap.report.shifts import ShiftReport, shift_report

__all__ = ["ShiftReport", "shift_report"]
