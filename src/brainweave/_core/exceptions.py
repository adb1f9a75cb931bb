"""Errors and warnings that users can catch by name."""

import sys
import warnings


class BrainweaveError(Exception):
    """Base class of the errors that brainweave raises."""


class InputError(BrainweaveError, ValueError):
    """An argument has a value that cannot be used.

    Parameters
    ----------
    message : str
        The problem and a remedy.
    parameter : str, optional
        Name of the invalid parameter.
    """

    def __init__(self, message: str = "", *, parameter: str | None = None) -> None:
        super().__init__(message)
        self.parameter = parameter


class StudyError(BrainweaveError, ValueError):
    """Data on disk, or a study made from them, are invalid."""


class ModelFileError(BrainweaveError, ValueError):
    """A model file is damaged, truncated, foreign, or newer than this version."""


class SolverError(BrainweaveError, RuntimeError):
    """A numerical solver did not reach a result that can be trusted."""


class ClusterError(BrainweaveError, RuntimeError):
    """The scheduler or the workers of a cluster were lost."""


class AlignmentWarning(UserWarning):
    """Subjects do not agree on held-out samples: no shared space was found."""


class UniquenessWarning(UserWarning):
    """The solution is one of many: some shared features are arbitrary directions."""


class LabelWarning(UserWarning):
    """Subjects share few labels, or a label may be a missing value as text."""


class LayoutWarning(UserWarning):
    """An array may be transposed."""


class UndeterminedWarning(UserWarning):
    """The data do not determine a part of a map; this part is zero."""


class SeparateSubjectsWarning(UserWarning):
    """Subjects hardly overlap in the shared space: most features belong to one."""


class KernelWarning(UserWarning):
    """A kernel lost part of its energy because it is not positive semi-definite."""


class ClassifierWarning(UserWarning):
    """A setting of the classifier was changed, or its p-value cannot be small."""


class SkippedWarning(UserWarning):
    """Parts of the brain could not be aligned and were left out."""


def warn_user(message: str, category: type[Warning] = UserWarning) -> None:
    """Issue a warning that names the line of the user's code which led to it."""
    inside = ("brainweave", "sklearn", "joblib")  # the package, and what calls it back
    level, frame = 2, sys._getframe(1)
    while frame.f_back:
        name = str(frame.f_globals.get("__name__"))
        if name.partition(".")[0] not in inside:
            break
        level, frame = level + 1, frame.f_back
    warnings.warn(message, category, stacklevel=level)
