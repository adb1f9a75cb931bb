"""How good an alignment is: scores on samples and subjects that were left out.

:func:`split_study` divides a study once; whatever is then evaluated on it shares one
pass over the voxels.
"""

from brainweave.evaluation.results import SubjectScores
from brainweave.evaluation.splits import SplitStudy

__all__ = ["SplitStudy", "SubjectScores"]
