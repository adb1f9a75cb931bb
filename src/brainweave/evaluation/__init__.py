"""How good an alignment is: scores on samples and subjects that were left out.

:func:`split_study` divides a study once; whatever is then evaluated on it shares one
pass over the voxels.
"""

from brainweave.evaluation.comparison import Comparison, compare_methods
from brainweave.evaluation.evaluate import (
    between_subject_classification,
    score_alignment,
)
from brainweave.evaluation.learning_curve import learning_curve
from brainweave.evaluation.results import (
    ClassificationResult,
    LearningCurve,
    SubjectScores,
)
from brainweave.evaluation.splits import SplitStudy, split_study
from brainweave.evaluation.tuning import GDMCV

__all__ = [
    "GDMCV",
    "ClassificationResult",
    "Comparison",
    "LearningCurve",
    "SplitStudy",
    "SubjectScores",
    "between_subject_classification",
    "compare_methods",
    "learning_curve",
    "score_alignment",
    "split_study",
]
