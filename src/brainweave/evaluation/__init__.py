"""How good an alignment is: scores on samples and subjects that were left out.

:func:`split_study` divides a study once, and evaluations share one pass over voxels.
"""

from brainweave.evaluation.results import SubjectScores
from brainweave.evaluation.splits import SplitStudy

__all__ = ["SplitStudy", "SubjectScores"]
