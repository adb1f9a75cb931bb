"""What is to be evaluated: studies, methods and protocols, cut into cells.

A cell is found again by a digest of all that its result depends on. Two things that
could give different results must never share one; so whatever has no content that can
be told (a lambda, a generator) is refused.
"""

import hashlib
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, cached_property, partial
from itertools import product
from pathlib import Path
from types import BuiltinFunctionType, CodeType, FunctionType, MethodType
from typing import Any

import joblib
import numpy as np
import scipy.sparse
from sklearn.base import BaseEstimator, clone

from brainweave._core.arrays import is_torch, to_numpy
from brainweave._core.exceptions import InputError
from brainweave._core.validation import check_fraction, check_int, check_option
from brainweave._core.version import __version__
from brainweave.evaluation.align_folds import PROTOCOLS
from brainweave.evaluation.measures import Classification, Measure
from brainweave.evaluation.results import INCIDENTAL
from brainweave.evaluation.shared_bases import Part
from brainweave.evaluation.splits import (
    SplitStudy,
    select_samples,
    split_study,
    subject_folds,
)
from brainweave.study.samples import drop_samples
from brainweave.study.study import Study, Subject

__all__ = ["Cell", "Grid", "GridStudy", "Job", "digest", "drop_aligning_samples"]

#: Folders of the package whose code results depend on, beside its modules.
CODE = ("aligners", "evaluation", "study")


@dataclass(frozen=True)
class GridStudy:
    """A study in a grid, read when one of its cells has to be computed.

    Parameters
    ----------
    name : str
        How tables call it.
    study : Study, list of arrays, SplitStudy, or callable that gives one
        The data. With a callable nothing is read before it is needed, nor kept in
        memory longer, and `version` must say what it gives.
    y, halves, align, match
        As in :func:`brainweave.split_study`.
    leave_out : int, default=1
        Subjects that are tested at a time.
    version : str, default=""
        Stands for the data of a callable: another version, other cells.
    shape : tuple of two ints, optional
        Number of parts and of subjects, if known: then the study need not be read
        to count its cells.
    """

    name: str
    study: Any = field(repr=False)
    y: Any = field(default=None, repr=False)
    halves: Any = field(default="category", repr=False)
    align: Any = field(default=None, repr=False)
    match: str | None = None
    leave_out: int = 1
    version: str = ""
    shape: tuple[int, int] | None = None

    def __post_init__(self) -> None:
        if callable(self.study) and not self.version:
            raise InputError(
                f"Study {self.name!r} is read by a function: give version=..., a text "
                "that changes when its data do, so that finished cells are found again."
            )

    def open(self) -> SplitStudy:
        """Read and split the study."""
        study = self.study() if callable(self.study) else self.study
        split = split_study(
            study, self.y, halves=self.halves, align=self.align, match=self.match
        )
        if self.shape not in (None, split.shape):
            raise InputError(
                f"Study {self.name!r} has {split.shape[0]} parts and {split.shape[1]} "
                f"subjects, but shape={self.shape} was given."
            )
        return split

    def known_shape(self) -> tuple[int, int] | None:
        """Return the numbers of parts and subjects, if no data have to be read."""
        if self.shape is not None or callable(self.study):
            return self.shape
        if isinstance(self.study, SplitStudy):
            return self.study.shape
        return 2 if self.align is None else len(self.align), len(self.study)

    @cached_property
    def identity(self) -> str:
        """A short text that stands for the data and how they are split."""
        data = self.version if callable(self.study) else self.study
        how = (data, self.y, self.halves, self.align)
        return digest([*map(describe, how), self.match])


@dataclass(frozen=True)
class Cell:
    """One number to compute: one fold of one method on one study."""

    study: str  # its name in the grid, as that of the method
    method: str
    params: dict[str, Any]  # the settings that the grid varies
    protocol: str
    missing: float  # share of the aligning samples that was removed
    repeat: int  # from 0, as half (which part aligned) and fold (who was left out)
    half: int
    fold: int
    seed: int  # what everything random in the cell is drawn from
    name: str = ""  # of its record, with a digest of all that the result depends on


@dataclass(frozen=True)
class Grid:
    """One study, several methods, and all that is varied.

    Parameters
    ----------
    study : GridStudy
        The data.
    methods : mapping of str to aligner
        By the names that tables use. They are computed in this order: with the slowest
        first, no core waits for the last.
    protocols : sequence of str, default=("held-out",)
        "held-out", "joint", or both.
    vary : mapping of str to sequence, optional
        Settings that every method of the grid is given, in all combinations:
        ``{"energy": [0.2, 0.5, 1.0]}``.
    missing : sequence of float, default=(0.0,)
        Shares of every subject's aligning samples to remove at random.
    repeats : int, default=1
        How often to repeat with another seed; for what is random in the methods and
        in what is missing.
    measure : Measure, optional
        What a fold is scored by; default :class:`Classification`.
    random_state : int, default=0
        Repetition r has the seed ``random_state + r``.
    """

    study: GridStudy
    methods: Mapping[str, Any]
    protocols: Sequence[str] = ("held-out",)
    vary: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    missing: Sequence[float] = (0.0,)
    repeats: int = 1
    measure: Measure = field(default_factory=Classification)
    random_state: int = 0

    def __post_init__(self) -> None:
        if not self.methods:
            raise InputError(f"The grid of {self.study.name!r} has no method.")
        for protocol in self.protocols:
            check_option("protocols", protocol, PROTOCOLS, owner="Grid")
        check_int("repeats", self.repeats, minimum=1, owner="Grid")
        check_int("random_state", self.random_state, minimum=0, owner="Grid")
        for share in self.missing:
            check_fraction("1 - missing", 1 - share, owner="Grid")

    def jobs(self, n_parts: int, n_subjects: int) -> Iterator["Job"]:
        """Cut the grid into jobs: cells that share one fit."""
        folds = range(len(subject_folds(n_subjects, self.study.leave_out)))
        settings = [
            dict(zip(self.vary, values, strict=True))
            for values in product(*self.vary.values())
        ]
        for missing, repeat, part, method, params, protocol in product(
            self.missing,
            range(self.repeats),
            range(n_parts),
            self.methods,
            settings,
            self.protocols,
        ):
            aligner = clone(self.methods[method]).set_params(**params)
            # one fit serves all folds, or each fold has its own
            groups = [list(folds)] if protocol == "joint" else [[f] for f in folds]
            for group in groups:
                cells = [
                    Cell(
                        study=self.study.name,
                        method=method,
                        params=params,
                        protocol=protocol,
                        missing=float(missing),
                        repeat=repeat,
                        half=part,
                        fold=fold,
                        seed=self.random_state + repeat,
                    )
                    for fold in group
                ]
                yield Job(self, aligner, [self._named(c, aligner) for c in cells])

    def _named(self, cell: Cell, aligner: Any) -> Cell:
        """Name a cell, with a digest of all that its result depends on."""
        everything = {
            "version": [__version__, code_digest()],
            "study": [cell.study, self.study.identity, self.study.leave_out],
            "method": [cell.method, describe(aligner)],
            "measure": describe(self.measure),
            "where": [cell.protocol, cell.missing, cell.half, cell.fold],
            "seed": cell.seed,
        }
        where = f"half{cell.half}-fold{cell.fold}"
        words = [cell.study, cell.method, cell.protocol, where, digest(everything)]
        return replace(cell, name="_".join(_slug(w) for w in words))


@dataclass(frozen=True)
class Job:
    """Cells that one fit serves: all folds of a half, or one that is held out."""

    grid: Grid
    aligner: Any
    cells: list[Cell]

    @property
    def variant(self) -> tuple[float, int]:
        """Return the share that is missing, and the seed that chooses it."""
        first = self.cells[0]
        return first.missing, first.seed if first.missing else 0


def drop_aligning_samples(split: SplitStudy, share: float, seed: int) -> SplitStudy:
    """Remove a share of every subject's aligning samples, at random.

    Samples without stimulus ids get their row numbers, so that it stays known which
    belong to the same moment.
    """
    if share == 0:
        return split
    parts = []
    for number, part in enumerate(split.parts):
        with_ids = part.aligning.map(
            lambda s: (
                s._replace(stimuli=np.arange(s.n_samples)) if s.stimuli is None else s
            )
        )
        rows = [np.arange(s.n_samples)[:, None] for s in with_ids]
        drawn = np.random.SeedSequence([seed, number]).generate_state(1)[0]
        kept = drop_samples(rows, fraction=share, random_state=int(drawn)).kept
        parts.append(Part(select_samples(with_ids, kept), part.scored, name=part.name))
    return split.with_parts(parts)


def _slug(text: str) -> str:
    return re.sub(r"[^A-Za-z0-9.+-]+", "-", text).strip("-.")[:40] or "x"


# -- digests ---------------------------------------------------------------------------


def digest(value: Any) -> str:
    """Return a short digest of what JSON can write."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:20]


@cache
def code_digest(folder: Path = Path(__file__).parents[1]) -> str:
    """Return a digest of the package's code, which may change under one version."""
    files = [
        *folder.glob("*.py"),
        *(f for n in CODE for f in folder.glob(f"{n}/**/*.py")),
    ]
    return digest(
        [hashlib.sha256(file.read_bytes()).hexdigest() for file in sorted(files)]
    )


def describe(value: Any) -> Any:
    """Put anything that a result may depend on into terms of JSON."""
    try:
        return _describe(value)
    except RecursionError:
        raise InputError(
            f"A {type(value).__name__} that contains itself cannot be told apart from "
            "others, so results with it cannot be kept."
        ) from None


def _describe(value: Any) -> Any:
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or isinstance(value, bool | int | str):
        return value
    for kinds, tell in _DESCRIBERS:
        if isinstance(value, kinds):
            return tell(value)
    return _describe_object(value)


def _describe_all(values: Any) -> list[Any]:
    return [_describe(v) for v in values]


def _sorted(told: Iterable[Any]) -> list[Any]:
    return sorted(told, key=json.dumps)


def _describe_subject(value: Subject) -> Any:
    content = value.samples if is_torch(value.samples) else value.data()
    # where voxels lie matters to methods that go by neighbourhood or atlas
    told = (content, value.labels, value.runs, value.stimuli, value.space)
    return ["subject", value.id, *_describe_all(told)]


def _describe_estimator(value: BaseEstimator) -> Any:
    params = value.get_params(deep=False)
    kept = {k: v for k, v in params.items() if k not in INCIDENTAL}
    return [_path(type(value)), _describe(kept)]


def _describe_array(value: Any) -> Any:
    if value.dtype == object:
        return ["array", list(value.shape), _describe_all(value.ravel().tolist())]
    flat = np.ascontiguousarray(value).reshape(-1)
    content = hashlib.sha256(flat.view(np.uint8).data).hexdigest()
    return ["array", str(value.dtype), list(value.shape), content]


def _describe_sparse(value: Any) -> Any:
    rows = scipy.sparse.csr_array(value)
    rows.sum_duplicates()
    arrays = (rows.data, rows.indices.astype(np.int64), rows.indptr.astype(np.int64))
    return ["sparse", list(value.shape), *map(_describe_array, arrays)]


def _describe_function(value: Any) -> Any:
    if "<" in value.__qualname__:
        raise InputError(
            f"{value!r} has no name that could be found again, so results with it "
            "cannot be kept. Define it with def at the top of a module."
        )
    defaults = _describe_all((value.__defaults__, value.__kwdefaults__))
    return ["function", _path(value), _describe_code(value.__code__), *defaults]


def _describe_code(code: CodeType) -> Any:
    """Tell the code of a function itself, which may change under its name."""
    constants = [
        _describe_code(c) if isinstance(c, CodeType) else repr(c)
        for c in code.co_consts
    ]
    content = hashlib.sha256(code.co_code).hexdigest()
    return [content, list(code.co_names), constants]


def _describe_object(value: Any) -> Any:
    if is_torch(value):
        return _describe_array(to_numpy(value))
    if hasattr(value, "shape") and hasattr(value, "dtype"):
        return _describe_array(np.asarray(value))
    state = dict(getattr(value, "__dict__", {}))
    for kind in type(value).__mro__:
        slots = kind.__dict__.get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else slots:
            if name not in ("__dict__", "__weakref__") and hasattr(value, name):
                state[name] = getattr(value, name)
    if state and not isinstance(value, np.random.RandomState | np.random.Generator):
        return [_path(type(value)), _describe(state)]
    try:
        return [_path(type(value)), joblib.hash(value)]
    except Exception as error:
        raise InputError(
            f"A {type(value).__name__} has no content that could be recognised again, "
            "so results with it cannot be kept. Give a list or an array."
        ) from error


def _path(thing: Any) -> str:
    name = getattr(thing, "__qualname__", None) or thing.__name__
    return f"{getattr(thing, '__module__', None)}.{name}"


_DESCRIBERS: tuple[tuple[Any, Callable[[Any], Any]], ...] = (
    (float | complex, lambda v: [type(v).__name__, repr(v)]),  # 0.5 is not "0.5"
    (Mapping, lambda v: ["dict", *_sorted(map(_describe_all, v.items()))]),
    (BaseEstimator, _describe_estimator),
    (Subject, _describe_subject),
    (SplitStudy, lambda v: _describe_all([p.aligning, p.scored] for p in v.parts)),
    ((Study, list, tuple, range), _describe_all),
    ((set, frozenset), lambda v: ["set", *_sorted(_describe_all(v))]),
    (np.ndarray, _describe_array),
    ((scipy.sparse.sparray, scipy.sparse.spmatrix), _describe_sparse),
    (partial, lambda v: ["partial", *_describe_all((v.func, v.args, v.keywords))]),
    (MethodType, lambda v: ["method", *_describe_all((v.__self__, v.__func__))]),
    (FunctionType, _describe_function),
    ((type, BuiltinFunctionType, np.ufunc), _path),
)
