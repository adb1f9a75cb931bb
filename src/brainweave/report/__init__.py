"""Reports: self-contained HTML files."""

from brainweave.report.write import write_report

__all__ = ["write_report"]
