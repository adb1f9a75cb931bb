"""Simulate fMRI studies with a known shared space."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from numbers import Integral
from typing import Any

import numpy as np
from numpy.typing import NDArray

from brainweave._core.exceptions import InputError
from brainweave._core.validation import check_list_option, check_option
from brainweave.study.formats.events import Events
from brainweave.study.simulation.bids_writer import write_bids
from brainweave.study.simulation.engine import (
    DESIGNS,
    Design,
    Simulation,
    SimulationSettings,
)
from brainweave.study.spaces import VolumeSpace
from brainweave.study.study import Study
from brainweave.study.subject import Subject

# The eight categories of Haxby et al. (2001), then others.
_CATEGORIES = (
    *("bottle", "cat", "chair", "face", "house", "scissors", "scrambled", "shoe"),
    *("car", "flower", "tool", "word", "bird", "body", "fruit", "landscape"),
)
# Random stream of voxel counts; Simulation uses smaller numbers.
_VOXEL_STREAM = 100


@dataclass(frozen=True)
class SimulationTruth:
    """Ground truth of a simulated study.

    Parameters
    ----------
    categories : tuple of str
        All categories, including those that some subjects lack.
    centroids : ndarray of shape (n_categories, n_shared)
        Mean response to each category in the shared space.
    shared : tuple of ndarray of shape (n_samples, n_shared)
        Noise-free response of each sample in the shared space, per subject.
    maps : tuple of ndarray of shape (n_shared, n_voxels)
        Spatial map of each shared dimension, per subject.
    masks : tuple of ndarray of bool
        Brain mask of each subject.
    affine : ndarray of shape (4, 4)
        Affine of all masks, from voxel indices to millimetres.
    events : tuple of dict of int to Events
        Events of each run, per subject.
    tr : float
        Repetition time in seconds.
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
    """A :class:`Study` with its ground truth, returned by :func:`simulate_study`.

    Parameters
    ----------
    simulation : Simulation
        Parameters of the simulation.

    Attributes
    ----------
    truth : SimulationTruth
        Shared responses, spatial maps, masks and events.
    """

    truth: SimulationTruth
    simulation: Simulation

    def __init__(self, simulation: Simulation) -> None:
        self.simulation = simulation
        subjects, shared, brains, events = [], [], [], []
        for i, id in enumerate(simulation.ids):
            brain, runs = simulation.brain(i), simulation.runs(i)
            plans = [run.plan for run in runs]
            subjects.append(
                Subject(
                    id,
                    simulation.samples(i, runs, brain),
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
        super().__init__(subjects, "simulated")
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
    repetitions: int | None = None,
    n_samples: int | None = None,
    n_voxels: int | tuple[int, int] | Sequence[int] = (1200, 1800),
    own_sequence: bool | None = None,
    missing_samples: float = 0.0,
    missing_runs: int | Mapping[str, Sequence[int]] = 0,
    missing_categories: int | Mapping[str, Sequence[str]] = 0,
    signal: float = 2.5,
    dtype: str = "float32",
    random_state: int | None = 0,
    settings: SimulationSettings | None = None,
) -> SimulatedStudy:
    r"""Simulate an fMRI study whose shared space is known.

    Volume t of subject i is

    .. math:: x_i(t) = b_i + W_i^\top (s_i(t) + u_i(t)) + N_i^\top n_i(t) + e_i(t)

    where :math:`s_i(t)` are responses in a shared space of few dimensions, blurred by
    the haemodynamic response: category centroids, plus variation between the stimuli
    of a category and from trial to trial. :math:`u_i(t)` is spontaneous activity in
    the same voxels, :math:`W_i` are smooth maps that differ between subjects,
    :math:`N_i` and :math:`n_i(t)` are structured noise that differs between subjects
    and in part between runs, :math:`e_i(t)` is local AR(1) noise, and :math:`b_i` the
    mean image. A classifier trained on the voxels of other subjects is at chance. An
    alignment that keeps too few dimensions of each subject misses responses, and one
    that keeps too many learns noise.

    Parameters
    ----------
    n_subjects : int, default=8
        Number of subjects.
    categories : int or sequence of str, default=8
        Number or names of the categories.
    design : {"blocks", "events", "movie"}, default="blocks"
        ``"blocks"`` shows blocks of a category with rest in between; ``"events"``
        shows brief trials with jittered onsets; ``"movie"`` shows scenes that belong
        to categories, without rest, and every moment has a response of its own.
    n_runs : int, optional
        Number of runs. By default 4, or 3 for a movie.
    repetitions : int, optional
        Number of blocks, trials or scenes per category and run. By default 1 block, 6
        trials or 2 scenes.
    n_samples : int, optional
        Exact number of labelled volumes per subject, instead of `repetitions`. As many
        blocks or scenes are shown as needed, and the last one is shortened. Not for
        ``"events"``.
    n_voxels : int, tuple of two ints or sequence of ints, default=(1200, 1800)
        Number of voxels. An int gives all subjects the same mask. A tuple (least,
        most) gives each subject a mask of its own, with a size drawn from this range.
        A list has the size of each subject's mask.
    own_sequence : bool, optional
        Whether each subject sees its own sequence of categories. By default True,
        except for a movie.
    missing_samples : float, default=0.0
        Share of samples that each subject lacks, chosen at random.
    missing_runs : int or mapping of subject id to run numbers, default=0
        Number of subjects that lack one run, or the missing runs of each subject.
    missing_categories : int or mapping of subject id to category names, default=0
        Number of subjects that lack one category, or the missing categories of each
        subject.
    signal : float, default=2.5
        Standard deviation over voxels of the response to a category, in percent of
        the mean image. Lower it for a harder study.
    dtype : {"float32", "float64"}, default="float32"
        Data type of the samples.
    random_state : int or None, default=0
        Seed. Brains depend only on the seed, `n_subjects` and `n_voxels`: two studies
        with the same seed are two experiments with the same people.
    settings : SimulationSettings, optional
        Timing, kind of samples, noise and response variability.

    Returns
    -------
    SimulatedStudy
        Study with its ground truth in ``truth``.

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
    settings = settings or SimulationSettings()
    if not n_subjects > 0:
        raise InputError(f"n_subjects={n_subjects} must be positive.")
    if not signal >= 0:
        raise InputError(f"signal={signal} must not be negative.")
    if not 0 <= missing_samples < 1:
        raise InputError(f"missing_samples={missing_samples} must be in [0, 1).")
    dtype = np.dtype(dtype).name
    check_option("dtype", dtype, ("float32", "float64"), owner="simulate_study")
    if n_samples is not None and design == "events":
        raise InputError(
            'n_samples counts the volumes of blocks or scenes; with design="events", '
            "set n_runs and repetitions."
        )
    if random_state is None:
        random_state = int(np.random.SeedSequence().generate_state(1)[0])
    chosen = {"n_runs": n_runs, "repetitions": repetitions}
    chosen |= {"duration": settings.duration, "gap": settings.gap}  # type: ignore[dict-item]
    plan = Design(
        kind=design,
        categories=names,
        tr=settings.tr,
        hrf_delay=settings.hrf_delay,
        n_samples=n_samples,
        **(DESIGNS[design] | {k: v for k, v in chosen.items() if v is not None}),
    )
    width = max(2, len(str(n_subjects)))
    ids = tuple(f"{i + 1:0{width}d}" for i in range(n_subjects))
    runs = range(1, plan.n_runs + 1)
    simulation = Simulation(
        seed=int(random_state),
        ids=ids,
        design=plan,
        settings=settings,
        signal=signal,
        voxel_counts=_count_voxels(n_voxels, n_subjects, int(random_state)),
        own_sequence=design != "movie" if own_sequence is None else own_sequence,
        missing_samples=missing_samples,
        missing_runs=_missing_by_subject("missing_runs", missing_runs, runs, ids),
        missing_categories=_missing_by_subject(
            "missing_categories", missing_categories, names, ids
        ),
        dtype=dtype,
    )
    return SimulatedStudy(simulation)


def simulate_like(
    n_subjects: int,
    n_samples: int,
    n_voxels: int,
    n_categories: int | None,
    *,
    aligned: bool = False,
    **options: Any,
) -> SimulatedStudy:
    """Simulate a study of a given shape, for instance that of a published one.

    Parameters
    ----------
    n_subjects : int
        Number of subjects.
    n_samples : int
        Number of labelled samples of every subject.
    n_voxels : int
        Number of voxels, which are the same for all subjects.
    n_categories : int or None
        Number of categories, shown in blocks; None for a movie.
    aligned : bool, default=False
        Show all subjects the same sequence, so that samples are aligned in time.
    **options
        Further parameters of :func:`simulate_study`.

    Returns
    -------
    SimulatedStudy
        Study of that shape.

    Examples
    --------
    >>> study = simulate_like(2, 97, 500, 4, aligned=True)
    >>> study[0].labels.tolist() == study[1].labels.tolist()
    True
    >>> study[0]
    Subject('01': 97 samples x 500 voxels, 4 categories, 4 runs)
    """
    movie = n_categories is None
    return simulate_study(
        n_subjects=n_subjects,
        n_samples=n_samples,
        n_voxels=n_voxels,
        design="movie" if movie else "blocks",
        categories=8 if n_categories is None else n_categories,
        own_sequence=not (movie or aligned),
        **options,
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
    """Return what each subject lacks, as given or one thing for the last subjects."""
    if isinstance(missing, Integral):
        n = int(missing)
        if not 0 <= n <= len(ids):
            raise InputError(f"{name}={n}, but there are {len(ids)} subjects.")
        if n and len(known) < 2:
            raise InputError(f"{name}={n} would leave subjects with nothing.")
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
