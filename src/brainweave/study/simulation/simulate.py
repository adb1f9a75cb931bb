"""Studies whose truth is known: the embedded default, and the ground for tests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from numbers import Integral
from typing import Any

import numpy as np
from numpy.typing import NDArray

from brainweave._core.exceptions import InputError
from brainweave._core.validation import check_list_option, check_option
from brainweave.study.formats.events import Events
from brainweave.study.options import check_samples, merge_options
from brainweave.study.simulation.bids_writer import write_bids
from brainweave.study.simulation.designs import (
    DESIGNS,
    Design,
    Noise,
    Responses,
    Timing,
)
from brainweave.study.simulation.engine import Simulation, SubjectSource
from brainweave.study.spaces import VolumeSpace
from brainweave.study.study import Study
from brainweave.study.subject import Subject

# The eight categories of Haxby et al. (2001), then others.
_CATEGORIES = (
    *("bottle", "cat", "chair", "face", "house", "scissors", "scrambled", "shoe"),
    *("car", "flower", "tool", "word", "bird", "body", "fruit", "landscape"),
)
# The stream that voxel counts are drawn from; Simulation has those below it.
_VOXEL_STREAM = 100


@dataclass(frozen=True)
class SimulationTruth:
    """What a simulated study was made of.

    Parameters
    ----------
    categories : tuple of str
        All categories, also those that a subject lacks.
    centroids : ndarray of shape (n_categories, n_shared)
        Mean response to each category in the shared space.
    shared : tuple of ndarray of shape (n_samples, n_shared)
        Per subject, the shared response behind each of its samples, without noise.
    maps : tuple of ndarray of shape (n_shared, n_voxels)
        Per subject, where the dimensions of the shared space lie in its brain.
    masks : tuple of ndarray of bool
        Per subject, its voxels in the volume.
    affine : ndarray of shape (4, 4)
        From voxel indices to millimetres, for all masks.
    events : tuple of dict of int to Events
        Per subject, the events of each run that it has.
    tr : float
        Seconds from one volume to the next.
    """

    categories: tuple[str, ...]
    centroids: NDArray[np.float64]
    shared: tuple[NDArray[np.float64], ...]
    maps: tuple[NDArray[np.float32], ...]
    masks: tuple[NDArray[np.bool_], ...]
    affine: NDArray[np.float64]
    events: tuple[dict[int, Events], ...]
    tr: float


class SimulatedStudy(Study):
    """A :class:`Study` that knows what it was made of.

    Parameters
    ----------
    simulation : Simulation
        All settings.
    name : str
        Name of the study.
    lazy : bool
        Whether samples are simulated at each reading instead of once.

    Attributes
    ----------
    truth : SimulationTruth
        The shared responses, spatial maps, masks and designs.
    """

    truth: SimulationTruth
    simulation: Simulation

    def __init__(
        self, simulation: Simulation, name: str = "simulated", *, lazy: bool = False
    ) -> None:
        self.simulation = simulation
        subjects, shared, brains, events = [], [], [], []
        for i, id in enumerate(simulation.ids):
            brain, runs = simulation.brain(i), simulation.runs(i)
            plans = [run.plan for run in runs]
            source = SubjectSource(simulation, i, runs)
            subjects.append(
                Subject(
                    id,
                    source if lazy else source.read(brain),
                    labels=np.concatenate([plan.labels for plan in plans]),
                    runs=np.repeat([r.number for r in runs], [len(p) for p in plans]),
                    onsets=np.concatenate([plan.onsets for plan in plans]),
                    stimuli=np.concatenate([plan.stimuli for plan in plans]),
                    space=VolumeSpace.from_mask(brain.mask, brain.affine),
                )
            )
            signals = [simulation.signals(i, run) for run in runs]
            responses = [p.apply(s.shared) for p, s in zip(plans, signals, strict=True)]
            shared.append(np.concatenate(responses))
            brains.append(brain)
            events.append({run.number: run.events for run in runs})
        super().__init__(subjects, name)
        self.truth = SimulationTruth(
            categories=simulation.design.categories,
            centroids=simulation.centroids,
            shared=tuple(shared),
            maps=tuple(brain.maps for brain in brains),
            masks=tuple(brain.mask for brain in brains),
            affine=brains[0].affine,
            events=tuple(events),
            tr=simulation.design.tr,
        )

    to_bids = write_bids


def simulate_study(
    *,
    n_subjects: int = 8,
    categories: int | Sequence[str] = 8,
    design: str = "blocks",
    n_runs: int | None = None,
    n_samples: int | None = None,
    n_voxels: int | tuple[int, int] | Sequence[int] = (1200, 1800),
    own_sequence: bool | None = None,
    samples: str = "volumes",
    keep_rest: bool = False,
    missing_samples: float = 0.0,
    missing_runs: int | Mapping[str, Sequence[int]] = 0,
    missing_categories: int | Mapping[str, Sequence[str]] = 0,
    timing: Timing | None = None,
    responses: Responses | None = None,
    noise: Noise | None = None,
    dtype: str = "float32",
    lazy: bool = False,
    name: str = "simulated",
    random_state: int | None = 0,
    **details: Any,
) -> SimulatedStudy:
    r"""Simulate an fMRI study whose shared space is known.

    Volume t of subject i is

    .. math:: x_i(t) = b_i + W_i^\top (s_i(t) + u_i(t)) + N_i^\top n_i(t) + e_i(t)

    where :math:`s_i(t)` are responses in a shared space of few dimensions (category
    centroids, plus stimuli that differ within a category, plus variation from trial to
    trial, all blurred by the haemodynamic response), :math:`u_i(t)` is spontaneous
    activity in the same places, :math:`W_i` are smooth maps that differ from subject
    to subject, :math:`N_i` and :math:`n_i(t)` structured noise of the subject's own,
    strong and slow or weak and fast, part of it elsewhere in every run,
    :math:`e_i(t)` local AR(1) noise, and :math:`b_i` the mean image. So a classifier
    trained on other subjects' voxels is at chance, and an alignment that keeps too
    few or too many dimensions of each subject misses the responses or learns noise.

    Parameters
    ----------
    n_subjects : int, default=8
        Number of subjects.
    categories : int or sequence of str, default=8
        Number or names of the categories.
    design : {"blocks", "events", "movie"}, default="blocks"
        Blocks of a category with rest between; brief trials at jittered times; or a
        film whose scenes belong to categories, without rest, in which every moment
        has a response of its own.
    n_runs : int, optional
        Number of runs (4 with blocks and events, 3 with a movie).
    n_samples : int, optional
        The exact number of labelled volumes per subject, instead of `repetitions`:
        as many blocks as it takes, the last one shortened. Not with ``"events"``.
    n_voxels : int, tuple of two ints or sequence of ints, default=(1200, 1800)
        One number: all subjects have the same voxels. A tuple of two: counts are drawn
        from this range, and masks differ. A list: one count per subject.
    own_sequence : bool, optional
        Whether each subject sees a sequence of its own; by default so, but not with a
        movie.
    samples : {"volumes", "blocks", "trials", "trials-lsa", "trials-lss"}
        What is a sample; see :func:`brainweave.load_bids`.
    keep_rest : bool, default=False
        Whether volumes that show nothing are kept, without a label.
    missing_samples : float, default=0.0
        Share of the samples that each subject lacks, at random.
    missing_runs : int or mapping of subject id to run numbers, default=0
        A number: so many subjects lack a run each.
    missing_categories : int or mapping of subject id to category names, default=0
        A number: so many subjects lack a category each.
    timing : Timing, optional
        Repetitions, durations, gaps, the repetition time, and how late responses are.
    responses : Responses, optional
        The shared space, how strong and how variable responses are, and how smooth.
    noise : Noise, optional
        Structured, spontaneous and local noise.
    dtype : {"float32", "float64"}, default="float32"
        Of the samples.
    lazy : bool, default=False
        Whether a subject is simulated anew at each reading and never kept, for
        studies larger than the memory.
    name : str, default="simulated"
        Name of the study.
    random_state : int or None, default=0
        Seed. Brains depend on it and on `n_voxels`, not on the design: simulate twice
        with the same seed for two experiments with the same people.
    **details
        Fields of `timing`, `responses` and `noise` by their names, such as ``tr=2.0``
        or ``signal=1.0``.

    Returns
    -------
    SimulatedStudy
        With the ground truth in ``truth``.

    Examples
    --------
    >>> study = simulate_study(n_subjects=2, n_voxels=[300, 400], n_runs=2)
    >>> study.summary()[["samples", "voxels", "runs", "categories"]]
             samples  voxels  runs  categories
    subject
    01           144     300     2           8
    02           144     400     2           8
    >>> study.truth.shared[0].shape
    (144, 10)
    """
    names = _check_categories(categories)
    check_option("design", design, list(DESIGNS), owner="simulate_study")
    timing, responses, noise = merge_options(
        "simulate_study",
        details,
        timing or Timing(),
        responses or Responses(),
        noise or Noise(),
    )
    if not n_subjects > 0:
        raise InputError(f"n_subjects={n_subjects} must be positive.")
    if not 0 <= missing_samples < 1:
        raise InputError(f"missing_samples={missing_samples} must be in [0, 1).")
    dtype_name = np.dtype(dtype).name
    if dtype_name not in ("float32", "float64"):
        raise InputError(f'dtype={dtype!r} must be "float32" or "float64".')
    if n_samples is not None and design == "events":
        raise InputError(
            'n_samples counts the volumes of blocks or scenes; with design="events", '
            "set n_runs and repetitions."
        )
    if random_state is None:
        random_state = int(np.random.SeedSequence().generate_state(1)[0])
    given = {"n_runs": n_runs, **asdict(timing)}
    given = {name: value for name, value in given.items() if value is not None}
    fields = {**DESIGNS[design], **given, "n_samples": n_samples}
    plan = Design(kind=design, categories=names, **fields)
    width = max(2, len(str(n_subjects)))
    ids = tuple(f"{i + 1:0{width}d}" for i in range(n_subjects))
    runs = range(1, plan.n_runs + 1)
    simulation = Simulation(
        seed=int(random_state),
        ids=ids,
        design=plan,
        responses=responses,
        noise=noise,
        voxel_counts=_count_voxels(n_voxels, n_subjects, int(random_state)),
        own_sequence=design != "movie" if own_sequence is None else own_sequence,
        samples=check_samples(samples, "simulate_study"),
        keep_rest=keep_rest,
        missing_samples=missing_samples,
        missing_runs=_missing_by_subject("missing_runs", missing_runs, runs, ids),
        missing_categories=_missing_by_subject(
            "missing_categories", missing_categories, names, ids
        ),
        dtype=dtype_name,
    )
    return SimulatedStudy(simulation, name, lazy=lazy)


def simulate_like(
    n_subjects: int,
    n_samples: int,
    n_voxels: int,
    n_categories: int | None,
    *,
    aligned: bool = False,
    **settings: Any,
) -> SimulatedStudy:
    """Simulate a study of given shape, for instance that of a published one.

    Parameters
    ----------
    n_subjects, n_samples, n_voxels : int
        The exact shape: every subject has `n_samples` labelled samples and the same
        `n_voxels` voxels.
    n_categories : int or None
        Number of categories, shown in blocks; None for a movie.
    aligned : bool, default=False
        Whether all subjects see the same sequence, so that samples are locked in time.
    **settings
        Further options of :func:`simulate_study`; ``lazy=True`` keeps no subject in
        memory.

    Returns
    -------
    SimulatedStudy
        Of that shape.

    Examples
    --------
    >>> study = simulate_like(2, 97, 500, 4, aligned=True)
    >>> study[0].labels.tolist() == study[1].labels.tolist()
    True
    >>> study[0]
    Subject('01': 97 samples x 500 voxels, 4 categories, 4 runs)
    """
    movie = n_categories is None
    options: dict[str, Any] = {
        "design": "movie" if movie else "blocks",
        "categories": 8 if n_categories is None else n_categories,
        "own_sequence": not (movie or aligned),
        **settings,
    }
    return simulate_study(
        n_subjects=n_subjects, n_samples=n_samples, n_voxels=n_voxels, **options
    )


def _check_categories(categories: int | Sequence[str]) -> tuple[str, ...]:
    if isinstance(categories, Integral):
        n = int(categories)
        if n < 1:
            raise InputError(f"categories={n}: there must be at least one.")
        more = [f"category{k + 1:02d}" for k in range(len(_CATEGORIES), n)]
        return tuple([*_CATEGORIES, *more][:n])
    if isinstance(categories, str):
        raise TypeError(f"categories={categories!r} must be a number or a list.")
    names = tuple(str(c) for c in categories)  # type: ignore[union-attr]
    if not names or len(set(names)) < len(names) or "" in names:
        raise InputError(f"categories={list(names)} must be different names.")
    return names


def _count_voxels(
    n_voxels: int | Sequence[int], n_subjects: int, seed: int
) -> tuple[int, ...]:
    if isinstance(n_voxels, Integral):
        counts = [int(n_voxels)] * n_subjects
    elif isinstance(n_voxels, tuple) and len(n_voxels) == 2:
        low, high = n_voxels
        if not low <= high:
            raise InputError(f"n_voxels={n_voxels} must be (least, most).")
        rng = np.random.default_rng([seed, _VOXEL_STREAM])
        counts = rng.integers(low, high, size=n_subjects, endpoint=True).tolist()
    else:
        counts = [int(n) for n in n_voxels]  # type: ignore[union-attr]
        if len(counts) != n_subjects:
            raise InputError(
                f"n_voxels lists {len(counts)} counts for {n_subjects} subjects. Give "
                "one per subject, one number for all, or a tuple (least, most)."
            )
    if min(counts) < 1:
        raise InputError(f"n_voxels={n_voxels}: every subject needs a voxel.")
    return tuple(counts)


def _missing_by_subject(
    name: str,
    missing: int | Mapping[str, Sequence[Any]],
    known: Sequence[Any],
    ids: tuple[str, ...],
) -> tuple[tuple[Any, ...], ...]:
    """Return what each subject lacks: as given, or one thing for the last subjects."""
    if isinstance(missing, Integral):
        n = int(missing)
        if not 0 <= n <= len(ids):
            raise InputError(f"{name}={n}, but there are {len(ids)} subjects.")
        if n and len(known) < 2:
            raise InputError(f"{name}={n} would leave subjects with nothing.")
        # the last subjects lack the first things, one each
        first = len(ids) - n
        return tuple(
            (known[(i - first) % len(known)],) if i >= first else ()
            for i in range(len(ids))
        )
    unknown = [id for id in missing if id not in ids]  # type: ignore[union-attr]
    if unknown:
        raise InputError(
            f"{name} names the subjects {', '.join(map(repr, unknown))}, but the "
            f"subjects are {', '.join(map(repr, ids))}."
        )
    lacking = {
        id: check_list_option(f"{name}[{id!r}]", things, "simulate_study")
        for id, things in missing.items()  # type: ignore[union-attr]
    }
    for id, things in lacking.items():
        strange = [thing for thing in things if thing not in known]
        if strange or set(known) <= set(things):
            raise InputError(
                f"{name}[{id!r}] is {things}; choose some, not all, of {list(known)}."
            )
    return tuple(tuple(lacking.get(id, ())) for id in ids)
