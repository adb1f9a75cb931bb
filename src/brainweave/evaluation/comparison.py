"""Compare methods on the same samples, and test them over left-out subjects.

The folds of a subject share its samples, so a subject is one number. Signs of the
subjects' numbers are flipped, all of them in all ways for few subjects. With few there
are few ways, so that no p can be below a bound; whoever prints a p prints the bound.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, combinations, product
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike
from scipy import stats

from brainweave._core.arrays import Matrix
from brainweave._core.exceptions import InputError, StudyError, warn_user
from brainweave._core.html import frame_html
from brainweave._core.validation import check_list_option
from brainweave.evaluation.metrics import seen_means
from brainweave.evaluation.results import read_results, write_results, write_table
from brainweave.evaluation.splits import Split, SplitStudy, split_study, subject_folds
from brainweave.study.spaces import common_space, common_voxels
from brainweave.study.study import Study

if TYPE_CHECKING:
    import pandas as pd

# scores that are shares, and what a verdict says of a score
SHARES = {"accuracy": "accuracy", "matching": "the share of segments found"}
TOLD = {
    "accuracy": "{} of the samples of left-out subjects are classified correctly",
    "matching": "{} of the film's segments are found in left-out subjects",
    "isc": "features of left-out subjects correlate {} with those of the others",
    "correlation": "predicted voxels of left-out subjects correlate {} with measured",
    "r2": "{} of the variance of left-out subjects' voxels is predicted",
}
SIGNIFICANT = 0.05
UNALIGNED = "without alignment"  # name of results of no alignment
MAX_EXACT = 14  # subjects up to which all sign flips are tried
N_FLIPS = 9999
MIN_SUBJECTS = 3  # for a comparison of methods


def sign_flip_p(values: ArrayLike, *, two_sided: bool = False) -> float:
    """Return p of a mean above 0, or that differs from 0, by flipping signs.

    Of several rows the one with the smallest p is tested, corrected for the choice.
    Exact up to 14 values; with more, from 9999 flips drawn at random.
    """
    tested = flip_tests(np.atleast_2d(values), two_sided=two_sided)
    return float(tested["p_max"].min())


def flip_tests(values: Any, *, two_sided: bool = False) -> dict[str, Matrix]:
    """Test means over subjects, a place a row, by flipping signs of subjects alike.

    Returns ``p`` of each place, ``p_fdr`` (Benjamini and Hochberg), and ``p_max``, by
    the largest mean of all places, each in units of its root mean square. NaN at places
    with a NaN.

    Examples
    --------
    >>> values = np.array([[1.0, 2, 1, 2, 1, 2, 1, 2], [1, -1, 1, -1, 1, -1, 1, -1]])
    >>> {k: v.round(3).tolist() for k, v in flip_tests(values).items()}
    {'p': [0.004, 0.637], 'p_fdr': [0.008, 0.637], 'p_max': [0.008, 0.867]}
    """
    given = np.asarray(values, dtype=np.float64)
    known = np.isfinite(given).all(axis=1)
    found = given[known]
    size = np.sqrt((found**2).mean(axis=1, keepdims=True))
    found = found / np.where(size > 0, size, 1)
    n = given.shape[1]
    extra = int(n > MAX_EXACT)
    if extra:
        signs = np.random.default_rng(0).choice([-1.0, 1.0], size=(N_FLIPS, n))
    else:
        signs = np.array(list(product((1.0, -1.0), repeat=n)))
    size_of = np.abs if two_sided else np.positive
    seen = size_of(found.mean(axis=1))
    counts, largest = np.zeros(len(found)), np.full(len(signs), -np.inf)
    for start in range(0, len(found), 256):  # of all places at once memory is short
        some = slice(start, start + 256)
        means = size_of(signs @ found[some].T / n)
        counts[some] = (means >= seen[some] - 1e-12).sum(axis=0)  # a tie counts
        largest = np.maximum(largest, means.max(axis=1))
    p = (counts + extra) / (len(signs) + extra)
    as_large = len(signs) - np.searchsorted(np.sort(largest), seen - 1e-12)
    columns = {
        "p": p,
        "p_fdr": stats.false_discovery_control(p) if p.size else p,
        "p_max": (as_large + extra) / (len(signs) + extra),
    }
    for name, own in columns.items():
        columns[name] = np.full(len(given), np.nan)
        columns[name][known] = own
    return columns


def smallest_flip_p(n: int, *, two_sided: bool = False) -> float:
    """Return the smallest p that sign flips of n values can give."""
    if n > MAX_EXACT:
        return 1 / (N_FLIPS + 1)
    return float(min(1.0, (2 if two_sided else 1) / 2**n))


def subject_means(result: Any) -> dict[str, float]:
    """Return the mean score of each subject over the folds that tested it.

    Subjects of one fold whose own scores are not known are one, under all their ids.
    Empty if the result does not say who was tested.
    """
    if getattr(result, "subjects", None):
        means = seen_means(np.atleast_2d(result.scores), axis=0)
        pairs = zip(result.subjects, means, strict=True)
        return {str(id): float(m) for id, m in pairs if not np.isnan(m)}
    found: dict[str, list[float]] = {}
    for fold, score in zip(result.folds, result.scores, strict=True):
        who = fold.get("test_subjects")
        if not isinstance(who, list | tuple) or not who:
            return {}
        own = fold.get("subject_scores")
        if own is None:
            who, own = [", ".join(map(str, who))], [score]
        for id, value in zip(who, own, strict=True):
            found.setdefault(str(id), []).append(float(value))
    return {id: float(np.mean(values)) for id, values in found.items()}


@dataclass(frozen=True)
class PairedTest:
    """Two methods on the same subjects: the mean score of the better less the other's.

    p is two-sided, by flipping the signs of the subjects' differences, and corrected
    for all comparisons, whose signs are flipped together (step-down, Westfall and
    Young). It cannot be below `smallest_p` with so many subjects.
    """

    better: str
    other: str
    difference: float
    n_subjects: int
    p: float
    smallest_p: float


def compare_results(
    results: Mapping[str, Any] | Iterable[tuple[str, Any]],
) -> list[PairedTest]:
    """Test all pairs of named results of one protocol, paired over their subjects.

    Empty if the methods have fewer than three subjects in common.
    """
    named = results.items() if isinstance(results, Mapping) else results
    scored = [(name, subject_means(result)) for name, result in named]
    means = [(name, found) for name, found in scored if found]
    first = means[0][1] if means else {}
    common = [id for id in first if all(id in found for _, found in means)]
    n = len(common)
    if n < MIN_SUBJECTS:
        return []
    pairs, rows = [], []
    for (a, of_a), (b, of_b) in combinations(means, 2):
        row = np.array([of_a[id] - of_b[id] for id in common])
        names = (a, b) if row.mean() >= 0 else (b, a)
        least = smallest_flip_p(n, two_sided=True)
        pairs.append(PairedTest(*names, abs(float(row.mean())), n, 1.0, least))
        rows.append(row)
    sizes = [abs(row.mean()) / np.sqrt((row**2).mean() or 1) for row in rows]
    order = sorted(range(len(rows)), key=lambda i: -sizes[i])
    so_far = 0.0
    for rank, i in enumerate(order):
        left = [rows[k] for k in order[rank:]]
        so_far = max(so_far, sign_flip_p(left, two_sided=True))
        pairs[i] = replace(pairs[i], p=so_far)
    return pairs


def subject_interval(result: Any) -> tuple[float, float] | None:
    """Return a 95 % interval of the mean score over subjects, by the t distribution.

    Shares are clipped to those between 0 and 1. None for fewer than three subjects.
    """
    values = np.array(list(subject_means(result).values()))
    n = len(values)
    if n < MIN_SUBJECTS:
        return None
    half = stats.t.isf(0.025, n - 1) * stats.sem(values)
    low, high = float(values.mean() - half), float(values.mean() + half)
    if getattr(result, "score", "accuracy") in SHARES:
        low, high = max(low, 0.0), min(high, 1.0)
    return low, high


@dataclass(frozen=True)
class ChanceTest:
    """A p-value, the smallest that its test can give, and the name of the test."""

    p: float
    smallest_p: float | None
    how: str

    @property
    def can_tell(self) -> bool:
        """Whether a significant p is possible at all."""
        return self.smallest_p is None or self.smallest_p < SIGNIFICANT

    def __str__(self) -> str:
        text = f"p = {self.p:.2g}, {self.how}"
        if self.smallest_p is None:
            return text
        if self.p <= self.smallest_p * (1 + 1e-9):
            return f"{text}: the smallest p possible"
        return f"{text}; smallest p possible {self.smallest_p:.2g}"


def above_chance(result: Any, *others: Any) -> ChanceTest | None:
    """Test accuracies against chance: by the result's permutations, else sign flips.

    Sign flips are one-sided over subjects, and only for the held-out protocol: joint
    accuracies are above chance in noise. p is corrected for the choice among `others`.
    None if neither test is possible.
    """
    times = len(others) + 1
    chosen = f", corrected for the choice among {times} methods" if others else ""
    p = getattr(result, "p_value", None)
    if p is not None:  # Bonferroni
        least = getattr(result, "smallest_p", None)
        least = None if least is None else min(1.0, times * least)
        return ChanceTest(min(1.0, times * p), least, f"permuted labels{chosen}")
    found = [(subject_means(r), r.chance) for r in (result, *others)]
    ids = [id for id in found[0][0] if all(id in means for means, _ in found)]
    if result.protocol != "held-out" or not ids:
        return None
    rows = [[means[id] - chance for id in ids] for means, chance in found]
    how = f"sign flips over {len(ids)} subjects{chosen}"
    return ChanceTest(sign_flip_p(rows), smallest_flip_p(len(ids)), how)


@dataclass(frozen=True)
class Verdict:
    """Whether alignment worked: "good", "bad" or "open", a title, and the reasons."""

    kind: str
    title: str
    reasons: list[str]


def judge_alignment(
    results: Mapping[str, Any], check: Any = None, *, method: str | None = None
) -> Verdict | None:
    """Judge an alignment by accuracy on left-out subjects and by held-out samples.

    Nothing is claimed without a test. `results` are of one protocol, by the names of
    their methods; "without alignment" is the baseline. `check` is what
    :func:`brainweave.alignment_check` returns. Without `method`, the best one is
    judged, its p-value corrected for the choice.
    """
    judged: list[tuple[bool | None, str]] = []
    aligned = [name for name in results if name != UNALIGNED]
    if aligned:
        best = max(aligned, key=lambda name: _mean(results[name]))
        rivals = [] if method else [results[n] for n in aligned if n != best]
        judged.append(_judge_accuracy(method or best, results, rivals))
        judged += _judge_gains(method or best, results, only=UNALIGNED)
    if check is not None:
        judged.append((check.worked, check.verdict))
    if not judged:
        return None
    answers, reasons = [answer for answer, _ in judged], [why for _, why in judged]
    if True in answers and False in answers:
        return Verdict("open", "Unclear whether alignment worked", reasons)
    for answer, kind, title in (
        (True, "good", "Alignment worked"),
        (False, "bad", "No evidence of a shared space"),
    ):
        if answer in answers:  # the reasons do not repeat the title
            short = [reason.removeprefix(f"{title}: ") for reason in reasons]
            return Verdict(kind, title, [r[0].upper() + r[1:] for r in short])
    return Verdict("open", "Whether alignment worked cannot be tested", reasons)


def _judge_accuracy(
    name: str, results: Mapping[str, Any], rivals: list[Any]
) -> tuple[bool | None, str]:
    """Judge whether an accuracy is above chance; None if it cannot be told."""
    result = results[name]
    where, between = result.protocol or "", subject_interval(result)
    if between is not None:
        ends = " to ".join(write_score(result, end) for end in between)
        where = "; ".join(filter(None, (where, f"95 % interval over subjects {ends}")))
    meant = getattr(result, "chance_is", "")
    kind = getattr(result, "score", "accuracy")
    told = TOLD.get(kind, "the score of left-out subjects is {}")
    mean, chance = (write_score(result, v) for v in (_mean(result), result.chance))
    text = (
        f"With {name}, {told.format(mean)}{where and f' ({where})'}; chance"
        f"{meant and f', {meant},'} is {chance}"
    )
    test = above_chance(result, *rivals)
    if test is None:
        return None, f"{text}. This difference was not tested."
    if not test.can_tell:
        few = "Too few subjects, or permutations, to tell whether that is above chance"
        return None, f"{text}. {few} ({test})."
    above = test.p < SIGNIFICANT
    return above, f"{text}: {'above' if above else 'not above'} chance ({test})."


def _judge_gains(
    name: str, results: Mapping[str, Any], only: str | None = None
) -> list[tuple[bool | None, str]]:
    """Judge whether a method beats the others, or one of them."""
    judged: list[tuple[bool | None, str]] = []
    for pair in compare_results(results):
        other = pair.other if pair.better == name else pair.better
        if name not in (pair.better, pair.other) or only not in (None, other):
            continue
        how = f"two-sided sign flips over {pair.n_subjects} subjects"
        if len(results) > 2:
            how += ", corrected for all pairs of methods"
        test = ChanceTest(pair.p, pair.smallest_p, how)
        side = "higher" if pair.better == name else "lower"
        kind, points = getattr(results[name], "score", "accuracy"), pair.difference
        much = f"{points:.3f}"
        if kind in SHARES:
            much = f"{100 * points:.1f} percentage points"
        than = other if other == UNALIGNED else f"with {other}"
        what, differs = SHARES.get(kind, "the score"), test.p < SIGNIFICANT
        text = f"With {name}, {what} is {much} {side} than {than} ({test})"
        if not test.can_tell:
            judged.append((None, f"{text}: too few subjects to tell them apart."))
        elif differs:
            judged.append((side == "higher", f"{text}."))
        else:
            judged.append((False, f"{text}, which may be chance."))
    return judged


def _mean(result: Any) -> float:
    """Return the mean score; who saw too little to be scored does not count."""
    return float(np.nanmean(result.scores))


def write_score(result: Any, value: Any) -> str:
    """Write a score of a result: shares in per cent; no zero has a sign."""
    share = getattr(result, "score", "accuracy") in SHARES
    return percent(value) if share else f"{value:z.3f}"


def percent(share: Any) -> str:
    """Write a share as people read it; the space does not break."""
    return f"{100 * share:z.1f}".removesuffix(".0") + "\u00a0%"


# -- several methods on one study ------------------------------------------------------


@dataclass
class Comparison:
    """Results of several methods on the same samples, by :func:`compare_methods`.

    Attributes
    ----------
    results : dict of str to ClassificationResult
        Results by method; names end in the protocol if there are two.
    errors : dict of str to str
        Error messages of the methods that failed.
    """

    results: dict[str, Any]
    errors: dict[str, str] = field(default_factory=dict)

    @property
    def tests(self) -> list[PairedTest]:
        """Tests of all pairs of methods for each protocol."""
        protocols = dict.fromkeys(r.protocol for r in self.results.values())
        return [
            test
            for p in protocols
            for test in compare_results(
                {n: r for n, r in self.results.items() if r.protocol == p}
            )
        ]

    @property
    def verdict(self) -> str:
        """The best method, and whether it is above chance and above the others.

        Of results of both protocols those of "held-out" are judged, which favours
        nobody.
        """
        if not self.results:
            return "None of the methods could be scored."
        protocols = [result.protocol for result in self.results.values()]
        protocol = "held-out" if "held-out" in protocols else protocols[0]
        judged = {
            name.removesuffix(f" ({protocol})"): result
            for name, result in self.results.items()
            if result.protocol == protocol
        }
        best = max(judged, key=lambda name: _mean(judged[name]))
        rivals = [result for name, result in judged.items() if name != best]
        reasons = [_judge_accuracy(best, judged, rivals), *_judge_gains(best, judged)]
        if rivals and len(reasons) == 1:
            few = f"Methods cannot be compared with fewer than {MIN_SUBJECTS} subjects."
            reasons.append((None, few))
        return " ".join(text for _, text in reasons)

    def __str__(self) -> str:
        """Lay out a table of the methods, what its columns mean, and the verdict."""
        import pandas as pd

        frame = self.to_frame()
        if not self.errors:
            frame = frame.drop(columns="error")
        if frame["aligned_on"].nunique() < 2:  # the same for all methods
            frame = frame.drop(columns="aligned_on")
        shown = dict.fromkeys(("mean", "std", "chance"), "z.3f")
        shown |= {"p": ".3g", "folds": ".0f", "seconds": ".1f", "aligned_on": ".0f"}
        columns = []
        for name, values in frame.items():
            how = shown.get(name, "")
            texts = [name, *("n/a" if pd.isna(v) else format(v, how) for v in values)]
            columns.append([text.ljust(max(map(len, texts))) for text in texts])
        lines = ["  ".join(row).rstrip() for row in zip(*columns, strict=True)]
        for one in list(self.results.values())[:1]:
            told = f"chance: {one.chance_is}"
            if getattr(one, "smallest_p", None) is not None:
                told += f"; p: permuted labels, at least {one.smallest_p:.2g}"
            if hasattr(one, "classifier"):
                told += f"; classifier: {one.classifier}"
            else:
                told = f"score: {one.score}; {told}"
            lines.append(told)
        return "\n".join([*lines, self.verdict])

    def __repr__(self) -> str:
        return f"Comparison({', '.join([*self.results, *self.errors])})"

    def _repr_html_(self) -> str:
        return frame_html(self.verdict, self.to_frame())

    def to_frame(self) -> "pd.DataFrame":
        """Return a table with one row per method and protocol, failed ones too.

        ``aligned_on`` is the mean number of samples that a subject aligned with, which
        is lower for methods that need what all subjects have.
        """
        import pandas as pd

        numbers = ("protocol", "mean", "std", "chance")
        rows = [
            {
                "method": name,
                **{number: getattr(r, number) for number in numbers},
                "p": getattr(r, "p_value", None),
                "folds": r.scores.size,
                "aligned_on": np.mean(r.study.get("n_aligning") or np.nan),
                "seconds": r.seconds,
                "error": "",
            }
            for name, r in self.results.items()
        ]
        columns = ["method", *numbers, "p", "folds", "aligned_on", "seconds", "error"]
        rows += [{"method": n, "error": text} for n, text in self.errors.items()]
        return pd.DataFrame(rows, columns=columns).astype({"p": float})

    def save(self, folder: str | PathLike[str]) -> None:
        """Write ``results.json``, and the tables ``comparison.tsv`` and ``folds.tsv``.

        Parameters
        ----------
        folder : path
            Made if it does not exist.
        """
        import pandas as pd

        place = Path(folder)
        place.mkdir(parents=True, exist_ok=True)
        write_results(place / "results.json", self.results, self.errors)
        tables = {"comparison.tsv": self.to_frame()}
        if self.results:
            folds = [r.to_frame().assign(method=n) for n, r in self.results.items()]
            tables["folds.tsv"] = pd.concat(folds, ignore_index=True)
        for name, table in tables.items():
            write_table(place / name, table)

    @classmethod
    def load(cls, path: str | PathLike[str]) -> "Comparison":
        """Read a comparison that :meth:`save` wrote.

        Parameters
        ----------
        path : path
            The folder, or ``results.json`` in it.

        Returns
        -------
        Comparison
        """
        file = Path(path)
        return cls(*read_results(file / "results.json" if file.is_dir() else file))


def compare_methods(
    study: Study | SplitStudy | list[Any],
    methods: Mapping[str, Any],
    y: Any = None,
    *,
    measure: Any = None,
    halves: Any = "category",
    leave_out: int = 1,
    protocols: Sequence[str] = ("held-out",),
    random_state: int = 0,
    store: str | PathLike[str] | None = None,
    n_jobs: int | None = None,
    progress: Any = None,
    **options: Any,
) -> Comparison:
    """Score several methods on the same samples of left-out subjects.

    A method that fails gets an error in the comparison; the others still run. Without
    alignment subjects are compared voxel by voxel: if their masks differ, such methods
    are scored on the voxels that all subjects have, with a warning.

    Parameters
    ----------
    study : Study, list of arrays of shape (n_samples_i, n_voxels_i), or SplitStudy
        The data; :func:`split_study` divides them in other ways than by `halves`.
    methods : mapping of str to aligner
        Aligners by the names shown in the results.
    y, measure, halves, leave_out : various
        As in :func:`brainweave.score_alignment`: methods are compared by classification
        if samples have categories, else by matching.
    protocols : sequence of str, default=("held-out",)
        "held-out", "joint", or both.
    random_state : int, default=0
        As in :func:`brainweave.score_alignment`.
    store : path, optional
        Folder that keeps finished folds: the same call again computes only those that
        are missing. By default nothing is kept.
    n_jobs : int, optional
        As in :func:`brainweave.score_alignment`.
    progress : callable, optional
        Called with the number of finished folds, of all folds, and the last one.
    **options : various
        The parameters of the measure, such as `classifier` or `window`.

    Returns
    -------
    Comparison
        The results by name, tests between methods, and a verdict in one sentence.

    Examples
    --------
    >>> from brainweave import GDM, NoAlignment, simulate_study
    >>> study = simulate_study(n_subjects=3, n_voxels=100, n_runs=2, categories=3)
    >>> found = compare_methods(study, {"GDM": GDM(2), "none": NoAlignment()})
    >>> list(found.results), found.errors
    (['GDM', 'none'], {})
    """
    from brainweave.evaluation.grid import Grid, GridStudy, run_grid
    from brainweave.evaluation.measures import choose_measure

    if not isinstance(methods, Mapping) or not methods:
        raise InputError(
            "methods of compare_methods names the aligners, as in {'GDM': GDM()}; got "
            f"{methods!r}."
        )
    protocols = check_list_option("protocols", protocols, "compare_methods")
    split = split_study(study, y, halves=halves)
    chosen = choose_measure(measure, split.categories, **options)
    subject_folds(split.n_subjects, leave_out)  # refuses what leaves nobody
    on_common, cut = _on_common_voxels(methods, split)
    grids = []
    for used, common in ((split, False), (cut, True)):
        members = {n: a for n, a in methods.items() if (n in on_common) == common}
        if members:
            source = GridStudy(split.name or "study", used, leave_out=leave_out)
            grids.append(Grid(source, members, protocols, chosen, random_state))
    found = run_grid(grids, store, n_jobs=n_jobs, retry_failed=True, progress=progress)
    for method in methods:
        alike: dict[str, list[str]] = {}  # but for their numbers
        own = [r["warnings"] for r in found.records if r["method"] == method]
        for text in dict.fromkeys(t.partition(": ")[2] for t in chain(*own)):
            alike.setdefault(re.sub(r"-?\d+(\.\d+)?", "0", text), []).append(text)
        for first, *more in alike.values():
            often = f" (in {1 + len(more)} fits)" if more else ""
            warn_user(f"{method}: {first.rstrip('.')}{often}.")
    comparison = Comparison({})
    for p, method in product(protocols, methods):
        row = method if len(protocols) == 1 else f"{method} ({p})"
        outcome = found.result_of(method, p)
        if isinstance(outcome, str):
            comparison.errors[row] = outcome
        else:
            comparison.results[row] = outcome
    return comparison


def _on_common_voxels(
    methods: Mapping[str, Any], split: SplitStudy
) -> tuple[list[str], SplitStudy]:
    """Return, and warn of, methods that need the voxels all have, and a study of these.

    Both are empty, or the study itself, where no method needs them or all masks agree.
    """
    from brainweave.aligners.no_alignment import NoAlignment

    names = [n for n, a in methods.items() if isinstance(a, NoAlignment)]
    study = split.splits[0].scored
    masks: list[Any] = [getattr(s.space, "mask", None) for s in study]
    # equal numbers of voxels are not the same voxels
    same = all(m is None or np.array_equal(m, masks[0]) for m in masks)
    if not names or same or any(m is None for m in masks):
        return [], split
    try:
        n = common_space((s.id, s.space) for s in study).n_voxels
    except StudyError:
        return [], split  # the method itself reports why it cannot be scored
    warn_user(
        "The masks differ. Methods that compare subjects voxel by voxel are scored on "
        f"the {n} voxels that all subjects have."
    )
    halves = {id(h): h for part in split.splits for h in (part.aligning, part.scored)}
    cut = {key: common_voxels(half) for key, half in halves.items()}
    return names, SplitStudy(
        [Split(cut[id(p.aligning)], cut[id(p.scored)]) for p in split.splits],
        name=split.name,
        fingerprint=split.fingerprint,  # of the whole study
        design={**split.design, "voxels": "common"},
    )
