"""Errors and warnings that users can catch by name."""


class BrainweaveError(Exception):
    """Base of all errors raised on purpose by brainweave."""


class InputError(BrainweaveError, ValueError):
    """An argument has the right type but a value that cannot be used.

    Parameters
    ----------
    message : str
        What is wrong, and what to do.
    parameter : str, optional
        Name of the parameter that is to blame.
    """

    def __init__(self, message: str = "", *, parameter: str | None = None) -> None:
        super().__init__(message)
        self.parameter = parameter


class StudyError(BrainweaveError, ValueError):
    """Data on disk, or a study built from it, are not what they should be."""


class ModelFileError(BrainweaveError, ValueError):
    """A model file is damaged, truncated, foreign, or newer than this version."""


class SolverError(BrainweaveError, RuntimeError):
    """A numerical solver did not reach a result that can be trusted."""


class ClusterError(BrainweaveError, RuntimeError):
    """The scheduler or the workers of a cluster went away during the work."""


class AlignmentWarning(UserWarning):
    """Subjects do not agree on samples that did not align: nothing shared was found."""


class UniquenessWarning(UserWarning):
    """The solution is one of many: some shared features are arbitrary directions."""


class LabelWarning(UserWarning):
    """Labels of the subjects do not meet, or may not mean what they say."""


class LayoutWarning(UserWarning):
    """An array looks as if its samples lay in its columns."""


class UndeterminedWarning(UserWarning):
    """Nothing determines a part of a map; that part is zero."""


class SeparateSubjectsWarning(UserWarning):
    """Subjects hardly overlap in the shared space: the features tell them apart."""


class KernelWarning(UserWarning):
    """A kernel lost part of its energy because it is not positive semi-definite."""


class ClassifierWarning(UserWarning):
    """A classifier's setting had to be changed, or its p-value cannot be small."""


class SkippedWarning(UserWarning):
    """Parts of the brain could not be aligned and were left out."""
