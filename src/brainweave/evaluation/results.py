"""What an evaluation found: the scores of folds, and what they say together.

Every evaluation gives one record per fold, a dict with at least ``half``, ``fold``,
``test_subjects`` and ``score``; all results here are made of such records, whether they
come from memory or from a store.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from brainweave._core import __version__
from brainweave._core.arrays import Codes, Matrix
from brainweave._core.exceptions import InputError
from brainweave._core.html import frame_html, result_html
from brainweave._core.io import write_text
from brainweave.evaluation.classifiers import p_value, permuted_means, smallest_p
from brainweave.persistence.codec import json_checksum, plain

if TYPE_CHECKING:
    import pandas as pd

Record = dict[str, Any]

INCIDENTAL = ("n_jobs", "progress")  # settings that no result depends on
_OF_A_FOLD = (
    *("subject_scores", "balanced_accuracy", "n_train", "n_test", "nu", "n_by_means"),
    *("best_params", "n_components"),
)


@dataclass(kw_only=True, repr=False)
class _Scores:
    """What all results tell of their scores."""

    scores: Matrix
    chance: float
    protocol: str
    method: str
    seconds: float = field(default=0.0, repr=False)
    settings: dict[str, Any] = field(default_factory=dict, repr=False)
    study: dict[str, Any] = field(default_factory=dict, repr=False)
    design: dict[str, Any] = field(default_factory=dict, repr=False)

    @property
    def mean(self) -> float:
        """Mean of the scores, over folds or over parts and subjects."""
        return float(np.nanmean(self.scores))

    @property
    def std(self) -> float:
        """Standard deviation of the scores (divided by their number)."""
        return float(np.nanstd(self.scores))

    @property
    def study_fingerprint(self) -> str | None:
        """Fingerprint of the study that was scored; None if it was not recorded."""
        return self.study.get("fingerprint")

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self})"

    def save(self, path: str | PathLike[str]) -> None:
        """Write the result to a JSON file, and its table beside it (.tsv).

        Parameters
        ----------
        path : path
            Of the JSON file.
        """
        write_results(path, {self.method: self})
        write_table(Path(path).with_suffix(".tsv"), self.to_frame())  # type: ignore[attr-defined]

    @classmethod
    def load(cls, path: str | PathLike[str]) -> Any:
        """Read a result that :meth:`save` wrote; refuse a damaged file."""
        results, _ = read_results(path)
        if len(results) != 1:
            raise InputError(
                f"{str(path)!r} holds {len(results)} results; read it with "
                "Comparison.load."
            )
        return next(iter(results.values()))

    def _repr_html_(self) -> str:
        from brainweave.evaluation.comparison import subject_interval

        return result_html(self, subject_interval(self))


@dataclass(kw_only=True, repr=False)
class ClassificationResult(_Scores):
    """Accuracy of a classifier on subjects it was not trained on.

    Attributes
    ----------
    scores : ndarray of shape (n_folds,)
        Accuracy in each fold.
    folds : list of dict
        For each fold: ``half`` (which part aligned, from 0), ``fold`` (which group of
        subjects was left out), ``test_subjects``, ``accuracy``, ``subject_scores`` (the
        accuracy of each test subject), ``balanced_accuracy``, ``n_train``, ``n_test``,
        ``n_components`` (shared features in use), and, None where they do not apply,
        ``nu`` (of a nu-SVM, as used), ``n_by_means`` (pairs of categories told apart by
        their means) and ``best_params`` (of an aligner that tunes itself).
    categories : list
        The categories, sorted.
    confusion : ndarray of shape (n_categories, n_categories)
        Counts over all folds; rows are true, columns predicted categories.
    chance : float
        Share of the most frequent category among the tested samples: what guessing
        reaches at best, 1 / n_categories if they are balanced.
    p_value : float or None
        From permutations, ``(1 + number at least as good) / (1 + n_permutations)``.
    smallest_p : float or None
        What it cannot be below, with so many permutations, or so few orders of labels.
    permutation_scores : ndarray of shape (n_permutations,)
        Mean accuracy over folds with permuted labels.
    seconds : float
        Computing time.
    protocol : str
        "joint" or "held-out".
    method : str
        Name of the aligner's class, such as "GDM".
    settings : dict of str to Any
        The aligner's parameters in terms of JSON.
    study : dict of str to Any
        What was scored: ``name``, ``fingerprint`` (None where it is not known),
        ``subjects`` (ids), ``n_aligning`` and ``n_scored`` (samples per part and
        subject).
    design : dict of str to Any
        How: ``leave_out``, ``classifier`` (its name), ``n_permutations``,
        ``random_state``, ``halves`` and ``match``; ``standardised_together`` ("run" or
        "all") where samples that align and samples that are scored had been given one
        scale.
    """

    folds: list[dict[str, Any]]
    categories: list[Any]
    confusion: NDArray[np.intp]
    p_value: float | None = None
    smallest_p: float | None = None
    permutation_scores: Matrix = field(default_factory=lambda: np.empty(0), repr=False)

    @property
    def n_components(self) -> list[int]:
        """Numbers of shared features in use over the folds, sorted; most often one."""
        used = {fold.get("n_components") for fold in self.folds}
        return sorted(n for n in used if n is not None)

    @property
    def balanced_accuracy(self) -> float:
        """Mean over folds of the accuracy averaged over categories."""
        return float(np.mean([fold["balanced_accuracy"] for fold in self.folds]))

    @property
    def classifier(self) -> str:
        """Name of the classifier."""
        return str(self.design.get("classifier", ""))

    chance_is: ClassVar[str] = "the most frequent category"

    def to_frame(self) -> "pd.DataFrame":
        """Return a tidy table with one row per fold."""
        import pandas as pd

        frame = pd.DataFrame(self.folds).assign(chance=self.chance)
        frame["test_subjects"] = frame["test_subjects"].map(", ".join)
        frame["subject_scores"] = [
            ", ".join(f"{score:.4g}" for score in fold.get("subject_scores") or ())
            for fold in self.folds
        ]
        for number, name in enumerate(("method", "protocol", "classifier")):
            frame.insert(number, name, getattr(self, name))
        return frame

    def __str__(self) -> str:
        by = f"; {self.classifier}" if self.classifier else ""
        chance, p = f"chance {self.chance:.1%} ({self.chance_is})", ""
        if self.p_value is not None:
            p = f", p = {self.p_value:.3g} (at least {self.smallest_p:.3g})"
        return (
            f"{self.method} ({self.protocol}): {self.mean:.1%} ± {self.std:.1%} over "
            f"{len(self.folds)} folds, {chance}{p}{by}"
        )


@dataclass(kw_only=True, repr=False)
class SubjectScores(_Scores):
    """One score per part of the study and subject.

    Attributes
    ----------
    scores : ndarray of shape (n_parts, n_subjects)
        The scores; row h is of the samples that part h did not align with. NaN for a
        subject who saw too little of what others saw.
    chance : float
        Score of guessing.
    subjects : list of str
        Ids of the subjects.
    score : str
        What was measured.
    n_samples : ndarray of shape (n_parts, n_subjects)
        How many samples of each subject were compared.
    common : ndarray of shape (n_parts, n_subjects, n_subjects)
        How many samples the subject of a row had in common with that of a column, who
        was among those averaged; 0 for pairs that were not compared.
    protocol, method, seconds, settings, study, design
        As in :class:`ClassificationResult`.
    """

    subjects: list[str]
    score: str
    n_samples: Codes = field(default_factory=lambda: np.zeros(0, np.intp), repr=False)
    common: Codes = field(default_factory=lambda: np.zeros(0, np.intp), repr=False)

    @property
    def chance_is(self) -> str:
        """Which chance it is, in words."""
        if self.score == "matching":
            return "a guess among segments that do not overlap"
        return "no relation"

    def to_frame(self) -> "pd.DataFrame":
        """Return a tidy table with one row per part and subject.

        Columns are method, protocol, half, subject, the score, samples (how many stood
        behind it) and compared_with (how many others had some of them).
        """
        import pandas as pd

        half, subject = np.indices(self.scores.shape)
        frame = pd.DataFrame(
            {
                "method": self.method,
                "protocol": self.protocol,
                "half": half.ravel(),
                "subject": [self.subjects[i] for i in subject.ravel()],
                self.score: self.scores.ravel(),
            }
        )
        if self.n_samples.shape == self.scores.shape:
            frame["samples"] = self.n_samples.ravel()
            frame["compared_with"] = (self.common > 0).sum(axis=-1).ravel()
        return frame

    def __str__(self) -> str:
        by_spread = self.design.get("standardize") is False
        weighed = "; features by their spread" if by_spread else ""
        counts = sorted(set(self.n_samples.ravel().tolist()))
        gaps = ""
        if len(counts) > 1:
            gaps = f"; {counts[0]} to {counts[-1]} samples per subject"
        return (
            f"{self.method} ({self.protocol}): {self.score} {self.mean:z.3f} ± "
            f"{self.std:.3f}, chance {self.chance:z.3f}{weighed}{gaps}"
        )


@dataclass(frozen=True)
class LearningCurve:
    """Scores of left-out subjects against the amount of their aligning data.

    Attributes
    ----------
    points : list of dict
        The rows of :meth:`to_frame`.
    score : str
        "accuracy" of a classifier, "matching" (the share of time segments found),
        "isc", "correlation" or "r2".
    chance : float
        Score of guessing.
    notes : list of str
        Amounts that could not be scored, and why: where a curve does not start at
        zero; and whose features were matched by their spread.
    design : dict of str to Any
        How subjects and samples were left out and scored.
    """

    points: list[dict[str, Any]] = field(repr=False)
    score: str
    chance: float
    notes: list[str] = field(default_factory=list)
    design: dict[str, Any] = field(default_factory=dict, repr=False)

    def to_frame(self) -> "pd.DataFrame":
        """Return a tidy table with one row per method and amount.

        Columns are method, fraction, samples (the mean over people), minutes (if the
        repetition time is known), mean, se (the standard error over people) and
        n_subjects.
        """
        import pandas as pd

        return pd.DataFrame(self.points).dropna(axis="columns", how="all")

    def save(self, path: str | PathLike[str]) -> None:
        """Write the curve to a JSON file, and its table beside it (.tsv).

        Parameters
        ----------
        path : path
            Of the JSON file.
        """
        told = plain(asdict(self), other=str)
        write_text(Path(path), json.dumps(told, indent=1) + "\n")
        write_table(Path(path).with_suffix(".tsv"), self.to_frame())

    def __str__(self) -> str:
        lines = [
            f"{p['method']}, {p['fraction']:.3g} of the aligning data ({p['samples']} "
            f"samples): {self.score} {p['mean']:z.3f} ± {p['se']:.3f}"
            for p in self.points
        ]
        return "\n".join([*lines, f"chance {self.chance:.3f}", *self.notes])

    def _repr_html_(self) -> str:
        title = f"Learning curve, {self.score}; chance {self.chance:.3f}"
        return frame_html(title, self.to_frame(), " ".join(self.notes))


class GridResult:
    """All folds of a grid: one record each, in the order of the grid."""

    def __init__(self, records: Iterable[Record]) -> None:
        self.records = list(records)

    def __len__(self) -> int:
        return len(self.records)

    def result_of(self, method: str, protocol: str) -> Any:
        """Return the result of a method, or why it has none.

        What failed in any fold has no result: a mean over some folds is not comparable
        with one over all.
        """
        group = (method, protocol)
        records = [r for r in self.records if (r["method"], r["protocol"]) == group]
        for r in records:
            if r["error"]:
                return str(r["error"])
        try:
            return make_result(
                records,
                categories=records[0]["categories"],
                protocol=protocol,
                seconds=sum(r["seconds"] for r in records),
                **records[0]["about"],
            )
        except InputError as error:  # nobody has a score
            return f"InputError: {error}"

    def __repr__(self) -> str:
        failed = sum(bool(r["error"]) for r in self.records)
        return f"GridResult({len(self.records)} cells, {failed} failed)"


def make_result(
    records: Sequence[Record], *, categories: list[Any], **fields: Any
) -> ClassificationResult | SubjectScores:
    """Make the result that records are of: of classes, or subject by subject."""
    fields |= {"chance": chance_level(records)}
    if all("confusion" in r for r in records):
        folds = [
            {
                **{k: r[k] for k in ("half", "fold", "test_subjects")},
                "accuracy": r["score"],
                **{k: r.get(k) for k in _OF_A_FOLD},
            }
            for r in records
        ]
        return ClassificationResult(
            scores=np.array([r["score"] for r in records], dtype=np.float64),
            folds=folds,
            categories=list(categories),
            confusion=np.sum([r["confusion"] for r in records], axis=0, dtype=np.intp),
            p_value=p_value(records),
            smallest_p=smallest_p(records),
            permutation_scores=permuted_means(records),
            **fields,
        )
    design, ids = fields["design"], list(fields["study"]["subjects"])
    if all("standardized" in r for r in records):
        design["standardize"] = all(r["standardized"] for r in records)
    n_parts = 1 + max(r["half"] for r in records)
    scores = np.full((n_parts, len(ids)), np.nan)
    n_samples = np.zeros(scores.shape, np.intp)
    common = np.zeros((*scores.shape, len(ids)), np.intp)
    for r in records:
        where = r["half"], [ids.index(id) for id in r["test_subjects"]]
        scores[where] = np.array(r["subject_scores"], np.float64)
        n_samples[where] = r.get("n_samples", 0)
        common[where] = r.get("common", 0)
    if np.isnan(scores).all():
        raise InputError(
            "No subject could be scored: too few samples were seen by a subject and by "
            "others. Use a shorter window, or score more samples."
        )
    return SubjectScores(
        scores=scores,
        subjects=ids,
        score=design.get("score") or design["measure"],
        n_samples=n_samples,
        common=common,
        **fields,
    )


def chance_level(records: Sequence[Record]) -> float:
    """Return what guessing reaches: the most frequent category, or as recorded."""
    if records and all("confusion" in r for r in records):
        counts = np.sum([np.sum(r["confusion"], axis=1) for r in records], axis=0)
        return float(counts.max() / counts.sum())
    # halves may differ in length; every half weighs the same
    halves: dict[int, list[float]] = {}
    for r in records:
        if r.get("chance") is not None:
            halves.setdefault(r["half"], []).append(r["chance"])
    return float(np.mean([np.mean(v) for v in halves.values()])) if halves else np.nan


# -- files -----------------------------------------------------------------------------

FORMAT = "brainweave-results"
ARRAYS: dict[str, Any] = {
    **dict.fromkeys(("scores", "permutation_scores"), np.float64),
    **dict.fromkeys(("confusion", "n_samples", "common"), np.intp),
}


def write_table(path: Path, frame: "pd.DataFrame") -> None:
    """Write a table as a file of tabs."""
    write_text(path, frame.to_csv(sep="\t", index=False, na_rep="n/a"))


def write_results(
    path: str | PathLike[str],
    results: Mapping[str, Any],
    errors: Mapping[str, str] | None = None,
) -> None:
    """Write results by name, and the errors of methods without one, as JSON."""
    named = {
        name: plain({f.name: getattr(r, f.name) for f in fields(r)}, other=str)
        for name, r in results.items()
    }
    document = {
        "format": FORMAT,
        "brainweave": __version__,
        "results": json.loads(json.dumps(named), parse_constant=_without_nan),
        "errors": dict(errors or {}),
    }
    document["checksum"] = json_checksum(document)
    write_text(Path(path), json.dumps(document, indent=1) + "\n")


def _without_nan(constant: str) -> float | None:
    return None if constant == "NaN" else float(constant)


def read_results(path: str | PathLike[str]) -> tuple[dict[str, Any], dict[str, str]]:
    """Read results and errors that :func:`write_results` wrote; refuse all else."""
    try:
        document = json.loads(Path(path).read_text(encoding="utf-8"))
        if document.get("format") != FORMAT:
            raise ValueError("its 'format' is another")
        if document.pop("checksum") != json_checksum(document):
            raise ValueError("its checksum is wrong")
        found = {}
        for name, values in document["results"].items():
            for array in set(ARRAYS) & set(values):
                values[array] = np.array(values[array], ARRAYS[array])
            kind: Any = SubjectScores if "score" in values else ClassificationResult
            found[name] = kind(**values)
        return found, document["errors"]
    except FileNotFoundError:
        raise InputError(f"There is no file {str(path)!r} with results.") from None
    except (ValueError, TypeError, AttributeError, KeyError, RecursionError) as error:
        raise InputError(
            f"{str(path)!r} does not hold results of a comparison, or is damaged "
            f"({error}). Run the comparison again."
        ) from None
