"""Maps of information: what an alignment makes of each place of the brain."""

import json
from contextlib import closing
from copy import copy
from dataclasses import dataclass, field
from functools import reduce
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone

from brainweave._core import __version__
from brainweave._core.arrays import Matrix
from brainweave._core.exceptions import InputError
from brainweave._core.io import write_text
from brainweave._core.validation import check_option
from brainweave.aligners.no_alignment import NoAlignment
from brainweave.aligners.piecewise.piecewise import PieceLog, PiecewiseAligner
from brainweave.aligners.piecewise.searchlight import positions_of
from brainweave.basis.places import MOST_COLUMNS, PieceSpace
from brainweave.evaluation.comparison import SIGNIFICANT, flip_tests
from brainweave.evaluation.evaluate import score_folds
from brainweave.evaluation.measures import choose_measure
from brainweave.evaluation.results import chance_level, write_table
from brainweave.evaluation.splits import Split, SplitStudy, split_study, subject_folds
from brainweave.study.study import Study, Subject

if TYPE_CHECKING:
    import pandas as pd

UNITS = {"classification": "accuracy", "isc": "correlation", "matching": "matching"}
#: What :meth:`InformationMap.to_image` can show, and how it is told.
SHOWN = {
    "score": "score",
    "excess": "score above chance",
    "baseline": "score without alignment",
    "baseline_excess": "score above chance without alignment",
    "difference": "gain by alignment",
    "log_p": "-log10 p",
    "log_p_fdr": "-log10 p, corrected (false discovery rate)",
    "log_p_max": "-log10 p, corrected (maximum statistic)",
}


@dataclass(frozen=True)
class InformationMap:
    """Result of :func:`information_map`.

    Attributes
    ----------
    names : list
        Of the places: labels of parcels, or numbers of neighbourhoods.
    scores : ndarray of shape (n_places, n_subjects)
        Each subject's score at each place, when it was left out.
    baseline : ndarray of shape (n_places, n_subjects)
        The same without alignment; NaN where voxels do not correspond.
    chance : ndarray of shape (n_places,)
        Score of guessing at each place.
    ids : list of str
        The subjects.
    measure : str
        What was scored.
    columns : list of list of ndarray of int
        The voxels of each place, in each subject.
    spaces : list
        The brain space of each subject, or None.
    n_voxels : list of int
        The number of voxels of each subject.
    centers : ndarray of shape (n_places, 3), or None
        Where neighbourhoods have their centres.
    positions : list of ndarray of shape (n_voxels_i, 3), or None
        Where voxels lie, if there are centres.
    skipped : dict
        Places that could not be scored, and why.
    """

    names: list[Any]
    scores: Matrix = field(repr=False)
    baseline: Matrix = field(repr=False)
    chance: Matrix = field(repr=False)
    ids: list[str]
    measure: str
    columns: list[list[NDArray[np.intp]]] = field(repr=False)
    spaces: list[Any] = field(repr=False)
    n_voxels: list[int] = field(repr=False)
    centers: Matrix | None = field(default=None, repr=False)
    positions: list[Matrix] | None = field(default=None, repr=False)
    skipped: dict[Any, str] = field(default_factory=dict, repr=False)

    def to_frame(self) -> "pd.DataFrame":
        """Return a table with a row per place.

        ``p`` tests over subjects, one-sided by sign flips, whether the score is above
        chance; ``p_fdr`` corrects for the number of places by the false discovery rate
        (Benjamini and Hochberg), ``p_max`` by the maximum statistic. ``difference`` is
        the gain over no alignment, tested alike, two-sided.
        """
        import pandas as pd

        excess = self.scores - self.chance[:, None]
        gain = self.scores - self.baseline
        table = pd.DataFrame(
            {
                "place": self.names,
                "n_voxels": [int(c.size) for c in self.columns[0]],
                "score": self.scores.mean(axis=1),
                "sd": self.scores.std(axis=1, ddof=1),
                "chance": self.chance,
                **flip_tests(excess),
                "baseline": self.baseline.mean(axis=1),
                "difference": gain.mean(axis=1),
            }
        )
        of_gain = flip_tests(gain, two_sided=True)
        table = table.assign(**{f"difference_{k}": v for k, v in of_gain.items()})
        if self.centers is None:
            return table
        return table.assign(**dict(zip("xyz", self.centers.T, strict=False)))

    def voxel_values(self, what: str = "score", *, subject: int = 0) -> Matrix:
        """Return a value per voxel: that of its parcel, or of its nearest centre.

        Parameters
        ----------
        what : str, default="score"
            "score", "excess" (over chance), "baseline", "baseline_excess",
            "difference", or "log_p", "log_p_fdr" and "log_p_max" (-log10 p).
        subject : int, default=0
            In whose voxels; neighbourhoods have their centres in those of the first.

        Returns
        -------
        ndarray of shape (n_voxels,)
            NaN where nothing was scored.
        """
        check_option("what", what, tuple(SHOWN), owner="InformationMap")
        table = self.to_frame()
        table["excess"] = table["score"] - table["chance"]
        table["baseline_excess"] = table["baseline"] - table["chance"]
        of_place = table[what.removeprefix("log_")].to_numpy()
        if what.startswith("log_"):
            of_place = -np.log10(of_place)
        n = self.n_voxels[subject]
        values, nearest = np.full(n, np.nan), np.full(n, np.inf)
        for k, own in enumerate(self.columns[subject]):
            far = np.zeros(own.size)
            if self.centers is not None and self.positions is not None:
                offsets = self.positions[subject][own] - self.centers[k]
                far = np.linalg.norm(offsets, axis=1)
            closer = own[far < nearest[own]]
            values[closer], nearest[own] = of_place[k], np.minimum(nearest[own], far)
        return values

    def to_image(self, what: str = "score", *, subject: int = 0) -> Any:
        """Return an image in the space of a subject; zero where there is no value.

        Parameters
        ----------
        what, subject : various
            As in :meth:`voxel_values`.

        Returns
        -------
        image
            NIfTI, CIFTI, GIfTI (of two hemispheres a dict), or what nilearn gave.
        """
        if self.spaces[subject] is None:
            raise InputError(
                f"Subject {self.ids[subject]!r} does not know its brain space. Give a "
                "Study that was loaded from images."
            )
        values = np.nan_to_num(self.voxel_values(what, subject=subject))
        return self.spaces[subject].to_image(values.astype(np.float32))

    def plot(self, what: str = "excess", **options: Any) -> Any:
        """Plot the map on a glass brain, or on inflated surfaces.

        Parameters
        ----------
        what : str, default="excess"
            As in :meth:`voxel_values`.
        **options : various
            Passed to :func:`brainweave.plotting.plot_brain`: ``title``, ``limit``,
            ``colorbar``.

        Returns
        -------
        nilearn display or Figure
            What nilearn returns.
        """
        from brainweave.plotting.model import plot_brain

        options = {"title": SHOWN[what], **options}
        return plot_brain(self.to_image(what), self.spaces[0], **options)

    def save(self, folder: str | PathLike[str], *, name: str = "") -> list[Path]:
        """Write images, a table of places, and what they are.

        Parameters
        ----------
        folder : path
            Made if it does not exist.
        name : str, default=""
            What file names begin with, such as "task-film_space-MNI152NLin6Asym".

        Returns
        -------
        list of Path
            The files: ``stat-<what>_statmap`` images, ``places.tsv``, ``places.json``.
        """
        place = Path(folder)
        place.mkdir(parents=True, exist_ok=True)
        start, paths = f"{name}_" if name else "", []
        known = np.isfinite(self.baseline).any()
        for what in SHOWN:
            if self.spaces[0] is None or (
                not known and what.startswith(("baseline", "difference"))
            ):
                continue
            stem = f"{start}stat-{what.replace('_', '')}_statmap"
            paths += _write_image(self.to_image(what), place / stem)
        table = place / f"{start}places.tsv"
        write_table(table, self.to_frame())
        told = {
            "Measure": self.measure,
            "Subjects": self.ids,
            "Places": len(self.names),
            "Skipped": {str(k): v for k, v in self.skipped.items()},
            "Test": "sign flips over subjects, one-sided; two-sided for differences",
            "Columns": {k: v for k, v in SHOWN.items() if not k.startswith("log")},
            "GeneratedBy": [{"Name": "brainweave", "Version": __version__}],
        }
        write_text(table.with_suffix(".json"), json.dumps(told, indent=2) + "\n")
        return [*paths, table, table.with_suffix(".json")]

    def __str__(self) -> str:
        table = self.to_frame()
        n = int((table["p_fdr"] < SIGNIFICANT).sum())
        what = "neighborhoods" if self.centers is not None else "places"
        best = int(table["score"].argmax())
        gain = table["difference"].mean()
        more = "" if np.isnan(gain) else f"; {gain:+z.3f} by alignment, on average"
        return (
            f"{UNITS.get(self.measure, self.measure)} above chance in {n} of "
            f"{len(table)} {what} (FDR {SIGNIFICANT:g}), highest in "
            f"{self.names[best]}: {table['score'][best]:z.3f}, chance "
            f"{self.chance[best]:z.3f}{more}"
        )


def information_map(
    aligner: Any,
    study: Any,
    y: Any = None,
    *,
    measure: Any = None,
    halves: Any = "category",
    leave_out: int = 1,
    protocol: str = "held-out",
    random_state: int = 0,
    **options: Any,
) -> InformationMap:
    """Score an alignment at every place of the brain on held-out samples.

    In each parcel, or neighbourhood, the voxels alone are aligned and scored as
    :func:`brainweave.score_alignment` does for all voxels, and once more without
    alignment: where masks differ on the voxels that all subjects have.

    Parameters
    ----------
    aligner : Parcelwise or Searchlight
        Says what the places are, and what aligns each. With ``spacing=`` a searchlight
        scores some thousands of neighbourhoods in place of all.
    study : Study, SplitStudy or list of arrays of shape (n_samples_i, n_voxels_i)
        The data.
    y : list of array-like, optional
        As in :func:`brainweave.score_alignment`.
    measure : {"classification", "matching", "isc"}, optional
        As in :func:`brainweave.score_alignment`.
    halves, leave_out, protocol : various
        As in :func:`brainweave.score_alignment`; :func:`brainweave.split_study` divides
        a study in other ways.
    random_state : int, default=0
        Seeds what is random.
    **options : various
        The parameters of the measure, such as `classifier` or `window`.

    Returns
    -------
    InformationMap
        Scores, tests, images, and a table of places.

    Notes
    -----
    What a :class:`GDM` chooses by itself it chooses in each place and fold, from
    samples that align, without the subjects who are left out. In searchlights of more
    than 96 neighbourhoods 24 of them choose for all, fold by fold. Maps take a fraction
    of the time if the ridges and the number of components are given, or `leave_out`
    tests several subjects at a time.

    Tests are over subjects: signs of their scores above chance are flipped, all 2^M of
    them up to 14 subjects. Scores of left-out subjects share those they are compared
    with, so these tests are approximate; simulations in the tests of the package count
    what they find in noise. With n subjects no p is below 2^-n: with many places 10
    subjects are few.

    Examples
    --------
    Only the second of three parcels knows the categories:

    >>> from brainweave import GDM, Parcelwise
    >>> rng = np.random.default_rng(0)
    >>> y, parcels = [[0, 1, 2] * 8] * 8, np.repeat([1, 2, 3], 20)
    >>> X = [rng.normal(size=(24, 60)) for _ in y]
    >>> for x in X:
    ...     x[:, 20:40] += rng.normal(size=(3, 20))[y[0]]
    >>> found = information_map(Parcelwise(GDM(2), parcels), X, y)
    >>> table = found.to_frame()
    >>> table["place"][table["p_fdr"] < 0.05].tolist()
    [2]
    >>> table["difference"].round(1).tolist()[1] > 0.3
    True
    """
    if not isinstance(aligner, PiecewiseAligner):
        raise TypeError(
            "information_map takes Parcelwise(aligner, parcels) or Searchlight(aligner,"
            f" radius), which say what places are; got {type(aligner).__name__}."
        )
    place = getattr(aligner.aligner, "place", None)
    if place is not None and not (isinstance(place, str) and place == "auto"):
        raise InputError(
            f"place of {type(aligner.aligner).__name__} must be 'auto' or None in an "
            "information map, where places are the voxels of each piece."
        )
    split = split_study(study, y, halves=halves)
    chosen = choose_measure(measure, split.categories, **options)
    first = split.splits[0].scored
    spaces, n_voxels = [s.space for s in first], [s.n_voxels for s in first]
    pieces = aligner._pieces_of([s.samples for s in first], spaces)
    # each half once, whichever role it has; then what tells which voxels correspond
    halves_of = {id(h): h for p in split.splits for h in (p.aligning, p.scored)}
    order, codes = list(halves_of), _codes(spaces, n_voxels, "voxel_labels")
    coarse = codes
    if max(own.size for columns in pieces.columns for own in columns) > MOST_COLUMNS:
        coarse = _codes(spaces, n_voxels, "place_labels")
    arrays = [s.samples for half in halves_of.values() for s in half]
    arrays += [own[None] for own in (*codes, *coarse)]
    task = _Task(
        [
            [_copy_with(s, np.empty((s.n_samples, 0)), None) for s in half]
            for half in halves_of.values()
        ],
        [
            (order.index(id(p.aligning)), order.index(id(p.scored)))
            for p in split.splits
        ],
        chosen,
        {"leave_out": leave_out, "protocol": protocol, "seed": random_state},
        [_settled(aligner, pieces, part, leave_out, protocol) for part in split.splits],
    )
    log = PieceLog(aligner._piece)
    columns = pieces.columns * (len(order) + 2)
    cut = pieces._replace(columns=columns, places=None)
    with closing(aligner._each_piece(score_piece, cut, arrays, log, task)) as scored:
        found = dict(scored)
    scores, without, chance = map(np.array, zip(*found.values(), strict=True))
    log.warn()
    centers, positions = getattr(aligner, "centers_", None), None
    if centers is not None:
        at = aligner._layouts(aligner.coordinates, n_voxels, spaces)
        positions = [positions_of(parts) for parts in at]
    return InformationMap(
        names=[pieces.names[k] for k in found],
        scores=scores,
        baseline=without,
        chance=chance,
        ids=list(split.ids),
        measure=getattr(chosen, "name", type(chosen).__name__),
        columns=[[own[k] for k in found] for own in pieces.columns],
        spaces=spaces,
        n_voxels=n_voxels,
        positions=positions,
        centers=None if centers is None else np.asarray(centers)[list(found)],
        skipped=log.skipped,
    )


# -- one place -------------------------------------------------------------------------


class _Task(NamedTuple):
    """What is done at every place."""

    halves: list[list[Subject]]  # what is known of the samples, without these
    parts: list[tuple[int, int]]  # the halves that align and are scored
    measure: Any
    how: dict[str, Any]
    # for each part: folds (None for all), and parameters of the aligner in these
    settled: list[list[tuple[int | None, dict[str, Any]]]]


def score_piece(aligner: Any, X: list[Any], places: Any, task: _Task) -> Any:
    """Return the scores of a piece, those without alignment, and chance."""
    n = len(task.halves[0])
    codes, coarse = ([own[0] for own in part] for part in (X[-2 * n : -n], X[-n:]))
    local = clone(aligner)
    if "n_jobs" in local.get_params(deep=False):
        local.set_params(n_jobs=1)  # pieces are what runs in parallel
    known = bool((codes[0] >= 0).all())
    many = np.unique(np.concatenate(codes)).size > MOST_COLUMNS
    places_of = coarse if many else codes
    spaces: list[Any] = [None] * n
    if max(own.max() for own in places_of) >= 0:
        names = [[None if c < 0 else c for c in own.tolist()] for own in places_of]
        spaces = [PieceSpace("", own, "places of the brain") for own in names]
    arrays = [X[k * n : k * n + n] for k in range(len(task.halves))]
    scores, chance = _scores_of(local, task, arrays, spaces)
    without = np.full(n, np.nan)
    common = reduce(np.intersect1d, codes)
    if known and common.size:
        rows = [np.flatnonzero(np.isin(own, common)) for own in codes]
        rows = [own[np.argsort(c[own])] for own, c in zip(rows, codes, strict=True)]
        arrays = [[x[:, r] for x, r in zip(h, rows, strict=True)] for h in arrays]
        without = _scores_of(NoAlignment(), task, arrays, [None] * n)[0]
    return scores, without, chance


def _scores_of(
    aligner: Any, task: _Task, arrays: list[list[Any]], spaces: list[Any]
) -> tuple[Matrix, float]:
    """Return the score of each subject, and chance."""
    halves = []
    for known, samples in zip(task.halves, arrays, strict=True):
        own = zip(known, samples, spaces, strict=True)
        halves.append(Study(_copy_with(*each) for each in own))
    ids = halves[0].ids
    records, scores = [], np.zeros((len(task.parts), len(ids)))
    for k, (aligning, scored) in enumerate(task.parts):
        part = SplitStudy([Split(halves[aligning], halves[scored])])
        for fold, chosen in task.settled[k] if aligner._chooses else [(None, {})]:
            model = clone(aligner).set_params(**chosen)
            only = None if fold is None else {(0, fold)}
            for record in score_folds(
                model, part, task.measure, only=only, n_jobs=1, **task.how
            ):
                records.append(record)
                each = zip(
                    record["test_subjects"], record["subject_scores"], strict=True
                )
                for id, score in each:
                    scores[k, ids.index(id)] = np.nan if score is None else score
    if np.isnan(scores).any():
        raise InputError("a subject has no samples here that can be scored.")
    chances = [r["chance"] for r in records if "chance" in r]
    return scores.mean(axis=0), float(np.mean(chances or [chance_level(records)]))


def _copy_with(subject: Subject, samples: Any, space: Any) -> Subject:
    """Return a subject with other voxels; what is known of samples was checked."""
    other = copy(subject)
    other.samples, other.space = samples, space
    return other


def _settled(
    aligner: Any, pieces: Any, part: Split, leave_out: int, protocol: str
) -> list[tuple[int | None, dict[str, Any]]]:
    """Return what some of many pieces choose for all, in each fold.

    They choose from samples that align, of subjects who are not left out. Where pieces
    are few each chooses by itself.
    """
    local = aligner.aligner
    used = part.for_aligner(local)
    people, y = used.aligning.subjects, used.y_for(local)
    folds: list[Any] = list(enumerate(subject_folds(len(people), leave_out)))
    if protocol == "joint":
        folds = [(None, [])]
    settled = []
    for fold, test in folds:
        who = [i for i in range(len(people)) if i not in test]
        kept = [people[i] for i in who]
        columns, spaces = [s.n_voxels for s in kept], [s.space for s in kept]
        own = pieces._replace(
            columns=[pieces.columns[i] for i in who],
            places=aligner._find_places(columns, spaces),
        )
        of_fold = (
            [s.samples for s in kept],
            None if y is None else [y[i] for i in who],
            [s.runs for s in kept],
        )
        if not (found := aligner._settled(own, *of_fold)):
            return [(None, {})]
        settled.append((fold, found))
    return settled


def _codes(spaces: list[Any], n_voxels: list[int], what: str) -> list[NDArray[np.intp]]:
    """Return a number per voxel, equal where places of subjects are; -1 for none."""
    same = all(space is spaces[0] or space == spaces[0] for space in spaces)
    if what == "voxel_labels" and same and len(set(n_voxels)) == 1:
        return [np.arange(n) for n in n_voxels]
    asked = [getattr(space, what, None) for space in spaces]
    labels = [None if ask is None else ask() for ask in asked]
    known = [own for own in labels if own is not None]
    if len(known) < len(labels) or len({frame for frame, _, _ in known}) > 1:
        return [np.full(n, -1) for n in n_voxels]
    code_of: dict[Any, int] = {None: -1}
    return [
        np.array([code_of.setdefault(v, len(code_of)) for v in names])
        for _, names, _ in known
    ]


# -- images ----------------------------------------------------------------------------


def _write_image(image: Any, stem: Path) -> list[Path]:
    """Write an image of any kind; return the files."""
    if isinstance(image, dict):  # of hemispheres
        return [p for i in image.values() for p in _write_image(i, stem)]
    name = stem.name
    if hasattr(image, "darrays"):
        structure = str(image.meta.get("AnatomicalStructurePrimary", ""))
        side = {"CortexLeft": "hemi-L_", "CortexRight": "hemi-R_"}.get(structure, "")
        name = name.replace("stat-", f"{side}stat-") + ".shape.gii"
    else:
        is_cifti = hasattr(image.header, "get_axis")
        name += ".dscalar.nii" if is_cifti else ".nii.gz"
    path = stem.with_name(name)
    image.to_filename(path)
    return [path]
