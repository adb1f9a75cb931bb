"""A report people want to open: one self-contained HTML file."""

from brainweave.report.write import write_report

__all__ = ["write_report"]
