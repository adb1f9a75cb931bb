"""Between-subject classification: trained on some subjects, tested on others.

The measure of the GDM paper, and of most papers on functional alignment since Haxby et
al. (2011).
"""

import warnings
from typing import Any

from brainweave.evaluation.classifiers import nu_parameter
from brainweave.evaluation.evaluate import evaluate
from brainweave.evaluation.measures import Classification
from brainweave.evaluation.results import ClassificationResult
from brainweave.evaluation.splits import SplitStudy
from brainweave.exceptions import ClassifierWarning
from brainweave.study.study import Study

__all__ = ["ClassificationResult", "between_subject_classification"]


def between_subject_classification(
    aligner: Any,
    study: Study | SplitStudy | list[Any],
    y: Any = None,
    *,
    halves: Any = "category",
    align: Any = None,
    match: str | None = None,
    leave_out: int = 1,
    protocol: str = "joint",
    classifier: Any = None,
    n_permutations: int = 0,
    random_state: Any = None,
    n_jobs: int | None = None,
    progress: Any = None,
) -> ClassificationResult:
    """Score an alignment by classifying the samples of subjects that were left out.

    The samples of each subject are divided into two halves. One half aligns; the other,
    mapped into the shared space, trains a classifier on all subjects but a few and
    tests it on those; then the halves change roles. Groups of ``leave_out`` consecutive
    subjects are left out in turn: 16 subjects, 4 left out, make 4 x 2 = 8 folds.

    Parameters
    ----------
    aligner : aligner
        Any aligner of this package; it is copied, not changed.
    study : Study, list of arrays of shape (n_samples_i, n_voxels_i), or SplitStudy
        The data. A :func:`split_study` shares the work of several evaluations; it
        brings its own halves.
    y : list of array-like, optional
        Categories; by default those of the study. None or NaN marks samples without
        one, which may align but are not classified.
    halves : {"category", "run"} or list of boolean arrays, default="category"
        How samples are divided; see :func:`split_study`.
    align : list of Study, or of lists of arrays, optional
        Separate samples to align with, such as thirds of a movie: each aligns once, all
        samples of `study` are classified, and `halves` is not used. Samples that are
        in both are refused.
    match : {"truncate", "average", "intersect"}, optional
        Make the aligning samples correspond row by row, for methods that need them
        locked in time; see :func:`split_study`.
    leave_out : int, default=1
        How many subjects are tested at a time.
    protocol : {"joint", "held-out"}, default="joint"
        "joint", the paper's: the aligning samples of the test subjects take part in the
        fit. "held-out": the template is learned without the test subjects, who join it
        by ``fit_new_subject`` with their own aligning samples. The first is known to
        inflate accuracy [1]_; report both. Either way the labels of a test subject's
        aligning samples are used by methods that use labels, those of its classified
        samples never.
    classifier : scikit-learn classifier, optional
        Default: ``NuSVC(nu=0.5, kernel="linear")``. A nu that the training labels make
        infeasible (unbalanced categories) is lowered to the largest feasible one; that
        is warned about and recorded in the folds.
    n_permutations : int, default=0
        How often to permute the training labels, within each subject, for a p-value.
        The alignment is not repeated.
    random_state : int, Generator or None
        Seeds the permutations, and an aligner or classifier whose own ``random_state``
        is None.
    n_jobs : int, optional
        Subjects and folds worked on at the same time; default one per core. The result
        does not depend on it.
    progress : bool or callable, optional
        True draws a bar; a callable is told after each step how many are done, how many
        there are, and what is done.

    Returns
    -------
    ClassificationResult

    References
    ----------
    .. [1] Imaging Neuroscience (2024), doi 10.1162/imag_a_00253.

    Examples
    --------
    >>> from brainweave import GDM
    >>> rng = np.random.default_rng(0)
    >>> patterns, y = rng.normal(size=(3, 5)), [[0, 1, 2] * 8] * 4
    >>> X = [patterns[l] @ rng.normal(size=(5, 40)) for l in y]
    >>> X = [x + 0.1 * rng.normal(size=x.shape) for x in X]
    >>> result = between_subject_classification(GDM(n_components=2), X, y)
    >>> print(result)
    GDM (joint): 100.0% ± 0.0% over 8 folds, chance 33.3%
    """
    measure = Classification(classifier, n_permutations)
    split, records, known = evaluate(
        aligner,
        study,
        y,
        measure,
        split={"halves": halves, "align": align, "match": match},
        leave_out=leave_out,
        protocol=protocol,
        random_state=random_state,
        n_jobs=n_jobs,
        progress=progress,
    )
    result = ClassificationResult.from_records(
        records, categories=split.categories, **known
    )
    warn_of_nu(measure.classifier, result, stacklevel=3)
    return result


def warn_of_nu(
    classifier: Any, result: ClassificationResult, *, stacklevel: int = 2
) -> None:
    """Warn if the nu of a nu-SVM had to be lowered."""
    name = nu_parameter(classifier)
    if name is None:
        return
    asked = classifier.get_params(deep=True)[name]
    used = [fold["nu"] for fold in result.folds]
    if min(used) < asked:
        warnings.warn(
            f"nu={asked:g} is infeasible for the training labels, whose categories are "
            f"of different sizes: it was lowered to {min(used):.3g} in "
            f"{sum(nu < asked for nu in used)} of {len(used)} folds. Give a "
            "smaller nu to the classifier to choose it yourself.",
            ClassifierWarning,
            stacklevel=stacklevel,
        )
