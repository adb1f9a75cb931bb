"""Fit an aligner to many pieces of the brain, in parallel, and report on it."""

import threading
import warnings
from abc import abstractmethod
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import AbstractContextManager, closing, nullcontext
from copy import copy
from dataclasses import KW_ONLY, dataclass
from functools import partial
from typing import Any, ClassVar, NamedTuple

import numpy as np
from joblib import cpu_count, effective_n_jobs
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.utils.validation import check_is_fitted

from brainweave._core.arrays import column_chunks, is_torch, ops_for, to_numpy
from brainweave._core.exceptions import (
    InputError,
    SkippedWarning,
    SolverError,
    warn_user,
)
from brainweave._core.validation import check_n_jobs, check_shape, one_per_subject
from brainweave._core.workers import (
    WarningCollector,
    blas_threads,
    on_workers,
    shown_progress,
)
from brainweave.aligners.base import BaseAligner
from brainweave.aligners.maps import SubjectMap
from brainweave.basis.places import PlacesOfPieces, is_per_subject
from brainweave.basis.voxels import N_SIGNATURES, signed_sums

Columns = NDArray[np.intp]
Positions = NDArray[np.float64]
MapSettings = dict[str, Any]  # mean, signatures and space of a whole-brain map

# of more neighbourhoods than this, some settle what an aligner chooses by itself
MANY_PIECES, N_PILOTS = 96, 24

# what a piece with too little in it may raise; anything else is a mistake to show
LOCAL_ERRORS = (InputError, SolverError, np.linalg.LinAlgError)

_COLLECTOR = WarningCollector()

# of a local aligner, what is only of use to the subjects it was fitted on
NOT_FOR_NEW_SUBJECTS = (
    *("bases_", "coef_", "mixing_", "individual_"),
    *("_runs", "_spaces", "_aligning_places", "_aligning_matrices", "_amplitudes"),
)


# places of voxels, and the dimensions of what is given for one subject
PER_SUBJECT = {"parcels": 1, "coordinates": 2}


def once_per_space(find: Callable[[Any, str], Any], spaces: Sequence[Any]) -> list[Any]:
    """Return what is found for each subject; equal spaces are asked once, and share."""
    found: dict[Any, Any] = {}
    for i, space in enumerate(spaces):
        if space not in found:
            found[space] = find(space, f"X[{i}]")
    return [found[space] for space in spaces]


def places_per_subject(
    name: str, given: Any, n_voxels: list[int], *, owner: str
) -> list[NDArray[Any]]:
    """Return an array with a row per voxel for each subject, given once or for each."""
    n_dims = PER_SUBJECT[name]
    what, dtype = ("one label", None) if n_dims == 1 else ("a row", float)
    if not is_per_subject(given, n_dims):
        given = np.asarray(given, dtype)
    listed = one_per_subject(name, given, len(n_voxels), owner=owner)
    arrays = [np.asarray(own, dtype) for own in listed]
    for i, (array, v) in enumerate(zip(arrays, n_voxels, strict=True)):
        if array.ndim != n_dims or len(array) != v:
            raise InputError(
                f"{name} of {owner} must have {what} for each of the {v} voxels of "
                f"X[{i}]; got shape {array.shape}."
            )
    return arrays


class Pieces(NamedTuple):
    """The pieces of the brain: their names, and per subject the voxels of each."""

    names: list[Any]
    columns: list[list[Columns]]
    places: PlacesOfPieces | None = None  # if the local aligner may use them


Fits = Iterable[tuple[int, Any]]  # number of a piece and its aligner, as they come


def fit_piece(
    aligner: Any, X: list[Any], places: Any, y: Any, runs: list[Any], **known: Any
) -> Any:
    """Fit a copy of an aligner to one piece, with parameters that are known for all."""
    local = clone(aligner).set_params(**known)
    local._runs = runs
    if places is not None and local.place is not None:
        local._spaces, place = places
        local.set_params(place=place)
    local._warns_of_input = False  # warned of once, for the whole brain
    local._is_piece = True
    if "n_jobs" in local.get_params(deep=False):
        local.set_params(n_jobs=1)  # pieces are what runs in parallel
    return local.fit(X, y)


def fit_local(aligner: Any, X: list[Any], *more: Any, **known: Any) -> Any:
    """Fit a copy of an aligner to one piece, and drop what holds the data."""
    local = fit_piece(aligner, X, *more, **known)
    local.maps_ = [m.detach() for m in local.maps_]
    for m in local.maps_:
        m.signatures = m.space = None  # those of the whole are kept with the whole map
    for name in NOT_FOR_NEW_SUBJECTS:
        local.__dict__.pop(name, None)
    return local


def join_local(aligner: Any, X: Any, y: Any, spaces: list[Any] | None) -> SubjectMap:
    """Let a new subject join a local aligner."""
    local = copy(aligner)
    local._spaces = spaces
    joined: SubjectMap = local.fit_new_subject(X, y).detach()
    joined.space = None
    return joined


def try_piece(function: Callable[..., Any], *arguments: Any) -> tuple[Any, ...]:
    """Return a piece's result or None, why there is none, and what was warned of."""
    # on one thread, so that n_jobs cannot change a bit of the result;
    # in another process warnings are not collected yet, and BLAS has its threads
    with _catch_warnings(), _COLLECTOR.collect() as warned, blas_threads(1):
        try:
            return function(*arguments), None, warned
        except LOCAL_ERRORS as error:
            return None, str(error), warned


def _catch_warnings() -> AbstractContextManager[None]:
    """Catch the warnings of all threads; only the main one can, else they just pass.

    So can the threads of Dask's workers, which by default have one.
    """
    thread = threading.current_thread()
    main = thread is threading.main_thread() or "Dask-" in thread.name
    can = main and not _COLLECTOR.is_installed
    return _COLLECTOR.installed() if can else nullcontext()


class PieceLog:
    """Counts what was skipped and warned of, for one report at the end."""

    def __init__(self, what: str) -> None:
        self.what, self.total = what, 0
        self.skipped: dict[Any, str] = {}
        self._warned: dict[type[Warning], dict[Any, str]] = {}

    def add(self, name: Any, reason: str | None, warned: Iterable[Any] = ()) -> None:
        """Record why a piece was skipped, if it was, and what was warned of."""
        self.total += 1
        if reason is not None:
            self.skipped[name] = reason
        for category, text in warned:
            self._warned.setdefault(category, {}).setdefault(name, text)

    def tell(self, start: str, texts: dict[Any, str]) -> str:
        """Begin with how many pieces it was, and add what was said of the first."""
        name, text = next(iter(texts.items()))
        counted = start.format(f"{self.total} {self.what}s")
        return f"{counted} {self.what.capitalize()} {name}: {text}"

    def warn(self) -> None:
        """Warn once of each kind."""
        if n := len(self.skipped):
            start = f"{n} of {{}} were skipped; see skipped_."
            warn_user(self.tell(start, self.skipped), SkippedWarning)
        for category, texts in self._warned.items():
            warn_user(self.tell(f"In {len(texts)} of {{}}.", texts), category)


@dataclass(eq=False, repr=False)
class PiecewiseAligner(BaseAligner):
    """Base of those that fit an aligner to pieces of the brain."""

    _from_grams = False
    _takes_bases = False  # a basis of all voxels cannot be cut into pieces
    _piece = "piece"  # what messages call one
    _settles = False  # whether a few pieces may choose settings for all
    _stored: ClassVar[dict[str, Any]] = {"skipped_": dict}

    aligner: BaseAligner
    _: KW_ONLY
    n_jobs: int | None = None
    progress: Any = False

    @abstractmethod
    def _find_pieces(self, n_voxels: list[int], spaces: list[Any]) -> Pieces:
        """Return which voxels of each subject belong to each piece."""

    @abstractmethod
    def _combine(self, pieces: Pieces, fits: Fits, settings: list[MapSettings]) -> None:
        """Make the maps, and set what was learned; fits come one by one, in order."""

    def _find_y(self, subjects: list[Any], y: Any) -> list[Any] | None:
        if not isinstance(self.aligner, BaseAligner):
            raise TypeError(
                f"aligner of {self._owner} must be an aligner such as "
                f"SRM(n_components=10); got {self.aligner!r}."
            )
        return super()._find_y(subjects, y)

    def _fit(self, subjects: list[Any], y: list[Any] | None) -> None:
        arrays = [read_samples(s, f"X[{i}]") for i, s in enumerate(subjects)]
        spaces = [getattr(s, "space", None) for s in subjects]
        pieces = self._pieces_of(arrays, spaces)
        each = enumerate(zip(arrays, pieces.columns, spaces, strict=True))
        settings = [read_map_settings(*own, name=f"X[{i}]") for i, own in each]
        log, runs = PieceLog(self._piece), [getattr(s, "runs", None) for s in subjects]
        fit = partial(fit_local, **self._settled(pieces, arrays, y, runs))
        fitted = self._each_piece(fit, pieces, arrays, log, y, runs)
        with closing(fitted) as fits:  # an error would keep it alive, catching warnings
            self._combine(pieces, fits, settings)
        self.skipped_ = log.skipped
        log.warn()
        self.n_subjects_ = len(arrays)

    def _settled(
        self, pieces: Pieces, arrays: list[Any], y: list[Any] | None, runs: list[Any]
    ) -> dict[str, Any]:
        """Return the parameters that fits of some pieces choose for all of many."""
        n = len(pieces.names)
        if not (self._settles and self.aligner._chooses) or n <= MANY_PIECES:
            return {}
        chosen = np.linspace(0, n - 1, N_PILOTS).round().astype(int).tolist()
        names = [pieces.names[k] for k in chosen]
        columns = [[own[k] for k in chosen] for own in pieces.columns]
        few = pieces._replace(names=names, columns=columns)
        quiet, log = copy(self), PieceLog(self._piece)
        quiet.progress = False
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # they are told when all pieces are fitted
            try:
                found = quiet._each_piece(fit_piece, few, arrays, log, y, runs)
                return self.aligner._settled_by([local for _, local in found])
            except InputError:
                return {}

    def _pieces_of(self, arrays: list[Any], spaces: list[Any]) -> Pieces:
        """Return the pieces, with the places of their voxels."""
        columns = [int(x.shape[1]) for x in arrays]
        pieces = self._find_pieces(columns, spaces)
        return pieces._replace(places=self._find_places(columns, spaces))

    def _find_places(
        self, columns: list[int], spaces: list[Any]
    ) -> PlacesOfPieces | None:
        place = getattr(self.aligner, "place", None)
        if place is None or (is_per_subject(place) and len(place) != len(columns)):
            return None  # of a new subject nothing is given
        return PlacesOfPieces(place, spaces, columns, type(self.aligner).__name__)

    def _each_piece(
        self,
        function: Callable[..., Any],
        pieces: Pieces,
        arrays: list[Any],
        log: PieceLog,
        *arguments: Any,
    ) -> Generator[tuple[int, Any]]:
        """Yield what ``function(aligner, X, places, *arguments)`` finds in pieces."""
        (names, columns, places), numbers = pieces, []
        for k, name in enumerate(names):
            size, i = min((own[k].size, i) for i, own in enumerate(columns))
            if size > 1:
                numbers.append(k)
            else:
                log.add(name, f"X[{i}] has {size} voxel(s) in it.")
        pairs = list(zip(arrays, columns, strict=True))
        tasks = (
            (
                self.aligner,
                [x[:, own[k]] for x, own in pairs],
                None if places is None else places.cut([own[k] for own in columns]),
                *arguments,
            )
            for k in numbers
        )
        return self._run(function, numbers, names, tasks, log, arrays=arrays)

    def _join_pieces(
        self,
        X: Any,
        y: Any,
        numbers: list[int],
        names: list[Any],
        columns_of: Callable[[int, Any], list[Columns]],
    ) -> tuple[list[Columns], dict[int, SubjectMap], MapSettings]:
        """Return a new subject's columns, its map by piece, and whole-map settings."""
        samples, space = read_samples(X, "the new subject"), getattr(X, "space", None)
        columns = columns_of(int(samples.shape[1]), space)
        settings = read_map_settings(samples, columns, space, name="the new subject")
        if y is None and hasattr(X, "labels"):
            y = self._y_of(X)
        log = PieceLog(self._piece)
        places = self._find_places([int(samples.shape[1])], [space])

        def task(local: Any, own: Columns) -> tuple[Any, ...]:
            spaces = None if places is None else places.cut([own])[0]
            return local, samples[:, own], y, spaces

        pairs = zip(self.aligners_, numbers, strict=True)
        tasks = (task(local, columns[k]) for local, k in pairs)
        run = self._run(join_local, numbers, names, tasks, log, arrays=[samples])
        with closing(run) as joined:
            maps = dict(joined)
        log.warn()
        return columns, maps, settings

    def _run(
        self,
        function: Callable[..., Any],
        numbers: list[int],
        names: list[Any],
        tasks: Iterable[tuple[Any, ...]],
        log: PieceLog,
        *,
        arrays: list[Any],
    ) -> Generator[tuple[int, Any]]:
        """Yield the number and result of each piece, in order, from workers."""
        # a device serves one process
        own_device = getattr(self.aligner, "device", None) or any(map(is_torch, arrays))
        n_jobs = check_n_jobs(self.n_jobs)
        if n_jobs is None and effective_n_jobs(None) == 1:  # nothing is configured
            n_jobs = cpu_count()
        with (
            shown_progress(self.progress, len(numbers), "Aligning") as tick,
            _catch_warnings(),
            blas_threads(1),
        ):
            calls = ((function, *task) for task in tasks)
            n_small = 0 if own_device else len(numbers)
            outcomes = on_workers(try_piece, calls, n_jobs, n_small=n_small)
            try:
                for k, (result, *told) in zip(numbers, outcomes, strict=True):
                    tick()
                    log.add(names[k], *told)
                    if told[0] is None:
                        yield k, result
            finally:
                # after an error joblib would warn of pieces that were fitted in vain
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    outcomes.close()
        if log.skipped and len(log.skipped) == log.total:
            start = "None of the {} could be aligned."
            raise InputError(log.tell(start, log.skipped))

    def piece_image(self, values: Any) -> Any:
        """Return an image with a value for each piece of the brain.

        Parameters
        ----------
        values : mapping or Series of piece to number
            Such as a column of ``alignment_check(model, study).pieces``.

        Returns
        -------
        image
            In the space of the first subject, or of the reference of neighborhoods.
            A voxel in several pieces has their mean, in none zero.
        """
        check_is_fitted(self, "maps_")
        own, where = self._places_of_pieces()
        if own.space is None:
            raise InputError(
                f"The brain space of {self._name_of(0)} is not known. Fit on a "
                "Study that was loaded from images."
            )
        total, count = np.zeros(own.n_voxels), np.zeros(own.n_voxels)
        for name, value in dict(values).items():
            if name not in where:
                raise InputError(
                    f"This model has no {self._piece} {name!r}; it has "
                    f"{', '.join(map(str, list(where)[:8]))}, ..."
                )
            total[where[name]] += value
            count[where[name]] += 1
        return own.space.to_image((total / np.maximum(count, 1)).astype(np.float32))

    def component_summary(self, *, check: Any = None) -> Any:
        """Describe the shared features of each piece: a pandas table.

        Parameters
        ----------
        check : AlignmentCheck, optional
            What :func:`brainweave.alignment_check` found for this model and its
            samples; by default its last result.

        Returns
        -------
        DataFrame
            A row per component, indexed by piece. Columns: ``component``, from 0 in
            each piece, and those of :meth:`GDM.component_summary`, with the mean of
            the subjects as ``variance``; other aligners have ``informative``,
            ``agreement_cv`` and ``p``, which is not corrected for the number of pieces.
        """
        check = check or vars(self).get("_check")
        if getattr(check, "components", None) is None:
            raise InputError(
                f"The components of this {self._owner} have not been checked. Call "
                "alignment_check(model, study) with the aligning samples first."
            )
        return check.components

    @abstractmethod
    def _places_of_pieces(self) -> tuple[SubjectMap, dict[Any, Columns]]:
        """Return a map, which knows its space, and its voxels of each piece."""

    def _for_rows(self, rows: Any, y: Any) -> tuple[Any, Any]:
        part: Any = copy(self)
        parts = [local._for_rows(rows, y) for local in part.aligners_]
        part.aligners_ = [local for local, _ in parts]
        return part, parts[0][1] if parts else y

    def _y_of(self, subject: Any) -> Any:
        return self.aligner._y_of(subject)

    def _labels_from(self, y: list[Any]) -> list[Any]:
        return self.aligner._labels_from(y)

    def _joined_by(self, y: Any = None) -> set[str]:
        return self.aligner._joined_by(y)

    def fit_transform(self, X: Any, y: Any = None) -> list[Any]:
        """Fit, and return what :meth:`transform` gives for the same samples."""
        return self.fit(X, y).transform(X)

    def __getstate__(self) -> dict[str, Any]:
        """Pickle everything but a progress callback, which belongs to its session."""
        state = super().__getstate__()
        return {**state, "progress": False} if callable(self.progress) else state


def read_samples(subject: Any, name: str) -> Any:
    """Return the samples of a subject, refusing what has no voxels or shape."""
    own = hasattr(subject, "labels") and hasattr(subject, "data")
    samples = subject.data() if own else subject
    check_shape(samples, name)
    return samples


def read_map_settings(
    X: Any, pieces: list[Columns], space: Any, *, name: str
) -> MapSettings:
    """Return what a whole-brain map keeps; refuse NaN in the voxels of the pieces."""
    used = np.zeros(X.shape[1], dtype=bool)
    used[np.concatenate(pieces)] = True
    mean = np.empty(X.shape[1])
    signatures = np.zeros((X.shape[0], N_SIGNATURES))
    ops = ops_for(X)
    for columns, raw in column_chunks(X):
        signatures += signed_sums(ops, ops.array(raw), columns)
        chunk = to_numpy(raw)
        with np.errstate(invalid="ignore"):
            mean[columns] = chunk.mean(axis=0, dtype=np.float64)
        bad = ~np.isfinite(mean[columns]) & used[columns]
        if bad.any():
            voxel = int(np.flatnonzero(bad)[0])
            sample = int(np.flatnonzero(~np.isfinite(chunk[:, voxel]))[0])
            raise InputError(
                f"{name} has NaN or infinite values, first at sample {sample}, voxel "
                f"{columns.start + voxel}. Mask these voxels or drop these samples."
            )
    mean = np.where(np.isfinite(mean), mean, 0.0)
    return {"mean": mean, "signatures": signatures, "space": space}
