"""Simulate fMRI studies whose shared space is known.

Random streams are keyed by their purpose (subject, run, brain or noise), so a subject
can be simulated again, alone, and the same seed gives the same brains.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import factorial
from numbers import Integral
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from brainweave._core.arrays import Codes, Mask, Matrix
from brainweave._core.exceptions import InputError
from brainweave._core.validation import check_number, check_option
from brainweave.study.formats.events import Events, SamplePlan, Sampling, plan_samples
from brainweave.study.spaces import VolumeSpace
from brainweave.study.study import Study
from brainweave.study.subject import Subject, moment

Rng: TypeAlias = np.random.Generator
Shape: TypeAlias = tuple[int, ...]
Single: TypeAlias = NDArray[np.float32]

# The eight categories of Haxby et al. (2001), then others.
_CATEGORIES = (
    *("bottle", "cat", "chair", "face", "house", "scissors", "scrambled", "shoe"),
    *("car", "flower", "tool", "word", "bird", "body", "fruit", "landscape"),
)
# Half-axes of the ellipsoid, relative to a sphere: left-right, front-back, up-down.
_AXES = np.array([0.88, 1.16, 0.96])
# Volume of a human brain in mm^3, and its centre in MNI space.
_BRAIN_VOLUME = 1.2e6
_BRAIN_CENTRE = np.array([0.0, -18.0, 10.0])
_SMOOTHNESS = 1.2  # width of the spatial kernel of all maps, in voxels
_BASELINE = 100.0  # level of the mean image
_AUTOCORRELATION = 0.3  # of local noise, from one volume to the next
_HRF_DELAY = 5.0  # seconds by which the labels of volumes lag the stimuli
# Random streams, one number per purpose.
_VOXEL_COUNTS = 100
_CENTROIDS, _EXEMPLARS, _BRAIN, _SEQUENCE, _NOISE, _MISSING, _NUISANCE, _RUN_MAPS = (
    range(8)
)
_STEPS = 10  # time points per volume of the neural time course

# Defaults: number of runs, presentations per category and run, seconds of each, and
# the shortest and longest time between two of them.
DESIGNS: dict[str, dict[str, Any]] = {
    "blocks": {"n_runs": 4, "repetitions": 1, "duration": 22.5, "gap": (10.0, 15.0)},
    "events": {"n_runs": 4, "repetitions": 6, "duration": 2.0, "gap": (4.0, 8.0)},
    "movie": {"n_runs": 3, "repetitions": 2, "duration": 20.0, "gap": (0.0, 0.0)},
}


@dataclass(frozen=True)
class SimulationSettings:
    """Settings of :func:`brainweave.simulate_study` that are rarely changed.

    Parameters
    ----------
    duration : float, optional
        Seconds of a block (22.5 by default), trial (2) or scene (20). Blocks and
        scenes are rounded to whole volumes.
    gap : tuple of two floats, optional
        Least and most seconds between blocks (10 and 15 by default), trials (4 and 8)
        or scenes (none).
    tr : float, default=2.5
        Repetition time in seconds.
    keep_rest : bool, default=False
        Keep the volumes that show nothing, without a label.
    n_shared : int, default=10
        Number of dimensions of the shared space.
    variability : float, default=0.3
        How much the stimuli of a category differ, in all subjects alike, and responses
        from trial to trial, relative to the differences between categories.
    structured_noise : float, default=4.0
        Standard deviation of noise with a spatial pattern, in percent of the mean.
    n_nuisance : int, default=40
        Rank of the structured noise.
    local_noise : float, default=0.3
        Standard deviation of independent noise in each voxel, in percent of the mean.
    spontaneous : float, default=0.35
        Standard deviation of activity in the same voxels that no stimulus evokes,
        relative to the responses.
    """

    duration: float | None = None
    gap: tuple[float, float] | None = None
    tr: float = 2.5
    keep_rest: bool = False
    n_shared: int = 10
    variability: float = 0.3
    structured_noise: float = 4.0
    n_nuisance: int = 40
    local_noise: float = 0.3
    spontaneous: float = 0.35

    def __post_init__(self) -> None:
        if self.gap is not None and not 0 <= self.gap[0] <= self.gap[1]:
            raise InputError(f"gap={self.gap} must be (least, most) in seconds.")
        for name, value in vars(self).items():
            if value is not None and name not in ("gap", "keep_rest"):
                above = "(" if name in ("duration", "tr", "n_shared") else "["
                check_number(name, value, f"{above}0, inf]", owner="SimulationSettings")


@dataclass(frozen=True, kw_only=True)
class Design:
    """What is shown, how often and for how long."""

    kind: str
    categories: tuple[str, ...]
    n_runs: int
    repetitions: int
    duration: float
    gap: tuple[float, float]
    tr: float
    n_samples: int | None = None


@dataclass(frozen=True)
class SimulatedRun:
    """A run: its number (from 1), its events, and the samples of its volumes."""

    number: int
    events: Events
    n_volumes: int
    plan: Any = None  # SamplePlan, once the missing volumes are known
    kept: Any = None  # the volumes that are not missing


def plan_runs(design: Design, rng: Rng) -> list[SimulatedRun]:
    """Draw the order and the gaps of all runs; each presentation has its own stimulus.

    Presentations begin with a volume, unless they are brief.
    """
    tr, n_categories = design.tr, len(design.categories)
    left = design.n_samples  # volumes still to be shown, if their number is given
    if left is None:
        per_run = [n_categories * design.repetitions] * design.n_runs
    else:
        n_blocks = -(-left // _volumes(design.duration, tr))
        n_runs = min(design.n_runs, n_blocks)
        per_run = [n_blocks // n_runs + (r < n_blocks % n_runs) for r in range(n_runs)]
    brief = design.kind == "events"
    step = min(tr, 0.5) if brief else tr
    # scan on until the last response has passed
    after = int(np.ceil(_HRF_DELAY / tr)) + _volumes(max(design.gap[1], tr), tr)
    n_shown = np.zeros(n_categories, dtype=np.intp)  # presentations so far
    runs = []
    for number, n_presentations in enumerate(per_run, start=1):
        now, rows = 0.0, []
        order: list[int] = []
        while len(order) < n_presentations:  # without direct repeats if possible
            cycle = rng.permutation(n_categories)
            if order and n_categories > 1 and cycle[0] == order[-1]:
                cycle = np.roll(cycle, 1)
            order.extend(cycle.tolist())
        for c in order[:n_presentations]:
            seconds = design.duration if brief else _volumes(design.duration, tr) * tr
            if left is not None:
                n_volumes = min(_volumes(seconds, tr), left)
                left -= n_volumes
                seconds = min(seconds, n_volumes * tr)
            n_shown[c] += 1
            category = design.categories[c]
            stimulus = f"{category}_{n_shown[c]:03d}.png"
            rows.append((round(now, 6), round(seconds, 6), category, stimulus))
            pause = round(rng.uniform(*design.gap) / step) * step
            if brief:  # every event needs a volume of its own
                pause = max(pause, tr - seconds)
            now += seconds + pause
        last = int(np.ceil((rows[-1][0] + rows[-1][1]) / tr + 1e-9))
        runs.append(SimulatedRun(number, Events.from_rows(rows), last + after))
    return runs


def _volumes(seconds: float, tr: float) -> int:
    return max(round(seconds / tr), 1)


def draw_stretch(n: int, length: int, rng: Rng) -> slice:
    """Draw where a stretch of samples lies."""
    start = int(rng.integers(n - length + 1))
    return slice(start, start + length)


class Brain(NamedTuple):
    """The voxels of one subject and what they respond to."""

    mask: Mask  # the voxels, in a volume
    affine: Matrix  # from voxel indices to millimetres
    maps: Single  # dimensions of the shared space x voxels
    baseline: Single  # the mean image


def choose_grid(n_voxels: int) -> tuple[tuple[int, ...], Matrix]:
    """Choose shape and affine of a volume in which brains have a realistic size."""
    radius = (3.0 * n_voxels / (4.0 * np.pi)) ** (1.0 / 3.0)
    # shapes differ by up to a tenth (see draw_mask)
    half = np.ceil(1.1 * radius * _AXES + 0.5).astype(int)
    size = max(round(2.0 * (_BRAIN_VOLUME / n_voxels) ** (1.0 / 3.0)) / 2.0, 0.5)
    affine = np.diag([size, size, size, 1.0])
    affine[:3, 3] = _BRAIN_CENTRE - size * half
    return tuple(int(2 * h + 1) for h in half), affine


def draw_mask(shape: Shape, n_voxels: int, rng: Rng | None = None) -> Mask:
    """Draw an ellipsoid of exactly `n_voxels` voxels; `rng` varies its shape."""
    axes = _AXES if rng is None else _AXES * rng.uniform(0.95, 1.05, size=3)
    grid = np.meshgrid(*(np.arange(n) - (n - 1) / 2 for n in shape), indexing="ij")
    radius = np.sqrt(sum((g / a) ** 2 for g, a in zip(grid, axes, strict=True)))
    if rng is not None:
        radius *= 1 + 0.05 * smooth_fields(shape, 1, 3.0, rng)[0]
    nearest = np.argsort(radius, axis=None, kind="stable")[:n_voxels]
    mask = np.zeros(radius.size, dtype=bool)
    mask[nearest] = True
    return mask.reshape(shape)


def smooth_fields(shape: Shape, n_fields: int, width: float, rng: Rng) -> Single:
    """Draw Gaussian random fields with unit variance and a given smoothing width."""
    from scipy.ndimage import gaussian_filter

    fields = rng.standard_normal((n_fields, *shape), dtype=np.float32)
    for field in fields:
        gaussian_filter(field, width, output=field, mode="wrap")
    scale = fields.std(axis=(1, 2, 3), keepdims=True)
    fields /= np.where(scale > 0, scale, 1)
    return fields


def draw_maps(mask: Mask, n_maps: int, rng: Rng) -> Single:
    """Draw smooth maps over the voxels of a mask, with zero mean and unit power."""
    maps = smooth_fields(mask.shape, n_maps, _SMOOTHNESS, rng)[:, mask]
    maps -= maps.mean(axis=1, keepdims=True)
    scale = np.sqrt((maps**2).mean(axis=1, keepdims=True))
    maps /= np.where(scale > 0, scale, 1)
    return maps


def double_gamma(step: float) -> Matrix:
    """Sample the haemodynamic response of Friston et al. (1998), scaled to unit sum."""
    times = np.arange(0.0, 32.0, step)
    # gamma densities of shape 6 and 16
    peak = times**5 * np.exp(-times) / factorial(5)
    undershoot = times**15 * np.exp(-times) / factorial(15)
    response = peak - undershoot / 6.0
    return np.asarray(response / response.sum())


def autoregressive_noise(
    n_samples: int, n_series: int, coefficient: float | Matrix, rng: Rng
) -> Single:
    """Draw stationary AR(1) series with unit variance."""
    noise = rng.standard_normal((n_samples, n_series), dtype=np.float32)
    phi = np.broadcast_to(np.asarray(coefficient, dtype=np.float32), (n_series,))
    noise[1:] *= np.sqrt(1 - phi**2)
    for t in range(1, n_samples):
        noise[t] += phi * noise[t - 1]
    return noise


@dataclass(frozen=True)
class Simulation:
    """The parameters of :func:`simulate_study`, checked and complete."""

    seed: int
    ids: list[str]
    design: Design
    settings: SimulationSettings
    signal: float
    voxel_counts: list[int]
    own_sequence: bool
    missing_samples: float
    missing_parts: int
    missing_runs: list[list[int]]
    missing_categories: list[list[str]]

    @property
    def same_mask(self) -> bool:
        """Whether all subjects have the same voxels."""
        return len(set(self.voxel_counts)) == 1

    @cached_property
    def centroids(self) -> Matrix:
        """Mean response to each category in the shared space."""
        shape = (len(self.design.categories), self.settings.n_shared)
        return self._stream(_CENTROIDS).standard_normal(shape)

    def brain(self, subject: int) -> Brain:
        """Draw the brain of a subject, the same at every call."""
        shape, affine = choose_grid(max(self.voxel_counts))
        rng = self._stream(_BRAIN, subject)
        form = None if self.same_mask else rng
        mask = draw_mask(shape, self.voxel_counts[subject], form)
        maps = draw_maps(mask, self.settings.n_shared + 1, rng)
        level = _BASELINE * (1 + 0.05 * np.clip(maps[-1], -3, 3))
        return Brain(mask, affine, maps[:-1], level.astype(np.float32))

    def runs(self, subject: int) -> list[SimulatedRun]:
        """Plan the runs of a subject: their events and samples."""
        sequence = self._stream(_SEQUENCE, subject if self.own_sequence else 0)
        lacking = self.missing_categories[subject]
        designed = [
            replace(run, events=run.events.take(~np.isin(run.events.label, lacking)))
            for run in plan_runs(self.design, sequence)
            if run.number not in self.missing_runs[subject]
        ]
        found = [np.asarray(self._plan(run).rows) for run in designed]
        ends = np.cumsum([len(rows) for rows in found])
        lost = np.zeros(ends[-1], dtype=bool)
        order = self._stream(_MISSING, subject).permutation(len(lost))
        lost[order[: round(self.missing_samples * len(lost))]] = True
        parts = np.split(lost, ends[:-1])
        if subject >= len(self.ids) - self.missing_parts:
            rng = self._stream(_MISSING, subject, 1)
            for part in parts:
                part[draw_stretch(len(part), len(part) // 3, rng)] = True
        runs = []
        for run, rows, part in zip(designed, found, parts, strict=True):
            kept = np.setdiff1d(np.arange(run.n_volumes), rows[part])
            runs.append(replace(run, plan=self._plan(run, kept), kept=kept))
        return runs

    def signals(self, subject: int, run: SimulatedRun) -> tuple[NDArray[Any], ...]:
        """Draw a run's shared, spontaneous and nuisance courses, always the same."""
        rng = self._stream(_NOISE, *self._noise_key(subject, run), 0)
        shared = self._shared_responses(run, rng)
        spontaneous = autoregressive_noise(run.n_volumes, shared.shape[1], 0.5, rng)
        # the strongest sources are the slowest
        n_sources = self.settings.n_nuisance
        phi = np.linspace(0.95, _AUTOCORRELATION, n_sources)
        nuisance = autoregressive_noise(run.n_volumes, n_sources, phi, rng)
        return shared, spontaneous, nuisance

    def volumes(
        self, subject: int, run: SimulatedRun, brain: Brain, maps: Single
    ) -> Single:
        """Simulate all volumes of one run; `maps` are the :meth:`nuisance_maps`."""
        settings = self.settings
        shared, spontaneous, nuisance = self.signals(subject, run)
        # a stream of its own, so that signals() need not draw the local noise
        rng = self._stream(_NOISE, *self._noise_key(subject, run), 1)
        shape = run.n_volumes, brain.maps.shape[1]
        data = autoregressive_noise(*shape, _AUTOCORRELATION, rng)
        data *= np.float32(settings.local_noise)
        scale = self.signal / np.sqrt(settings.n_shared)
        responses = scale * (shared + settings.spontaneous * spontaneous)
        data += responses.astype(np.float32) @ brain.maps
        # one source of structured noise in three lies elsewhere in every run
        maps = maps.copy()
        moves = self._stream(_RUN_MAPS, subject, run.number)
        maps[2::3] = draw_maps(brain.mask, len(maps[2::3]), moves)
        # few sources are strong, many are weak
        power = 1.0 / np.arange(1, settings.n_nuisance + 1)
        strength = np.sqrt(power / max(power.sum(), 1e-300))
        structured = settings.structured_noise * strength * nuisance
        data += structured.astype(np.float32) @ maps
        data += brain.baseline
        return data

    def nuisance_maps(self, subject: int, brain: Brain) -> Single:
        """Draw the maps of structured noise (n_nuisance, n_voxels)."""
        rng = self._stream(_NUISANCE, subject)
        return draw_maps(brain.mask, self.settings.n_nuisance, rng)

    def _plan(self, run: SimulatedRun, kept: Codes | None = None) -> SamplePlan:
        delay, keep_rest = _HRF_DELAY, self.settings.keep_rest
        sampling = Sampling(hrf_delay=delay, keep_rest=keep_rest)
        events, tr = run.events, self.design.tr
        plan = plan_samples(
            events, run.n_volumes, tr, sampling=sampling, kept_volumes=kept
        )
        if self.design.kind != "movie":
            return plan
        shown = plan.volume_event[plan.rows]  # type: ignore[index]
        seconds = plan.onsets - delay - np.append(events.onset, 0.0)[shown]
        pairs = zip(np.append(events.stimulus, "")[shown], seconds, strict=True)
        names = [moment(film, max(time, 0.0)) if film else "" for film, time in pairs]
        return replace(plan, stimuli=np.array(names, dtype=np.str_))

    def _shared_responses(self, run: SimulatedRun, rng: Rng) -> Matrix:
        from scipy.fft import irfft, rfft

        step, n_shared = self.design.tr / _STEPS, self.settings.n_shared
        neural = np.zeros((run.n_volumes * _STEPS, n_shared))
        for e in range(len(run.events)):
            start = round(run.events.onset[e] / step)
            stop = round((run.events.onset[e] + run.events.duration[e]) / step)
            stop = min(max(stop, start + 1), len(neural))
            own = self.settings.variability * rng.standard_normal(n_shared)
            neural[start:stop] += self._stimulus(run.events, e, stop - start) + own
        response = double_gamma(step)
        # scale so that the response to one presentation peaks at the neural level
        length = max(round(self.design.duration / step), 1)
        peak = np.convolve(response, np.ones(length)).max()
        n = len(neural) + len(response)
        spectrum = rfft(neural, n, axis=0) * rfft(response / peak, n)[:, None]
        return np.asarray(irfft(spectrum, n, axis=0)[: len(neural) : _STEPS])

    def _stimulus(self, events: Events, e: int, n_steps: int) -> Matrix:
        """Draw the neural response to a stimulus, the same in all subjects."""
        category = self.design.categories.index(str(events.label[e]))
        number = int(str(events.stimulus[e]).removesuffix(".png").rpartition("_")[2])
        rng = self._stream(_EXEMPLARS, category, number)
        n_shared = self.settings.n_shared
        own = self.settings.variability * rng.standard_normal(n_shared)
        level = self.centroids[category] + own
        if self.design.kind != "movie":
            return np.asarray(level[None, :])
        # responses to a movie change smoothly, within some seconds
        from scipy.ndimage import gaussian_filter1d

        course = rng.standard_normal((n_steps, n_shared))
        width = 2.0 * _STEPS / self.design.tr
        course = gaussian_filter1d(course, width, axis=0, mode="wrap")
        course /= max(float(course.std()), 1e-12)
        return np.asarray(level + course)

    def _noise_key(self, subject: int, run: SimulatedRun) -> tuple[int, int, int]:
        return subject, run.number, list(DESIGNS).index(self.design.kind)

    def _stream(self, *key: int) -> Rng:
        return np.random.default_rng([self.seed, *key])


class SimulationTruth(NamedTuple):
    """Ground truth of a simulated study.

    Attributes
    ----------
    shared : list of ndarray of shape (n_samples, n_shared)
        Noise-free response of each sample in the shared space, per subject.
    maps : list of ndarray of shape (n_shared, n_voxels)
        Spatial map of each shared dimension, per subject; mean square 1.
    centroids : ndarray of shape (n_categories, n_shared), or None
        Mean response to each category in the shared space, if there are categories.
    """

    shared: list[NDArray[Any]]
    maps: list[Single]
    centroids: Matrix | None = None


class SimulatedStudy(Study):
    """A :class:`Study` with its ground truth.

    Returned by :func:`simulate_study` and :func:`simulate_brains`.

    Attributes
    ----------
    truth : SimulationTruth
        Shared responses, spatial maps, and the centroids of categories.
    """

    def __init__(
        self, subjects: Any, name: str, truth: SimulationTruth, simulation: Any = None
    ) -> None:
        super().__init__(subjects, name)
        self.truth, self.simulation = truth, simulation

    def to_bids(self, folder: str | PathLike[str], **options: Any) -> Path:
        """Write a BIDS dataset: raw images, and derivatives like fMRIPrep's.

        Derivatives have brain masks and confounds, in the space ``T1w`` of each
        subject, or in ``MNI152NLin2009cAsym`` if all have the same voxels. Missing
        volumes are written with a framewise displacement above 0.5 mm.

        Parameters
        ----------
        folder : path
            Folder to create. It must not exist, or be empty.
        **options : various
            ``task``, the name of the task (``"objects"``); ``raw``, ``derivatives`` and
            ``events``, each False to leave these files out.

        Returns
        -------
        Path
            Folder of the dataset.
        """
        from brainweave.study.formats.bids_writer import write_bids

        return write_bids(self, folder, **options)


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
    missing_parts: int = 0,
    missing_runs: int = 0,
    missing_categories: int = 0,
    signal: float = 2.5,
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
    mean image. A classifier trained on the voxels of other subjects is at chance.

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
        Exact number of labelled volumes per subject, instead of `repetitions`; the
        last block or scene is shortened. Not for ``"events"``.
    n_voxels : int, tuple of two ints or sequence of ints, default=(1200, 1800)
        Number of voxels. An int gives all subjects the same mask, a tuple (least, most)
        or a list of sizes gives each subject a mask of its own.
    own_sequence : bool, optional
        Whether each subject sees its own sequence of categories. By default True,
        except for a movie.
    missing_samples : float, default=0.0
        Share of samples that each subject lacks, chosen at random.
    missing_parts : int, default=0
        Number of subjects, the last ones, who lack a third of each run: a stretch
        somewhere, as of a film that they did not see whole.
    missing_runs : int, default=0
        Number of subjects, the last ones, who lack one run: the first of them run 1,
        the next run 2 and so on.
    missing_categories : int, default=0
        Number of subjects, the last ones, who lack one category, in the same way.
    signal : float, default=2.5
        Standard deviation over voxels of the response to a category, in percent of
        the mean image. Lower it for a harder study.
    random_state : int or None, default=0
        Seed. Two studies with the same seed, `n_subjects` and `n_voxels` are two
        experiments with the same people.
    settings : SimulationSettings, optional
        Timing, noise and response variability.

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
    some = f"[0, {n_subjects}]"
    for name, number, interval in (
        ("n_subjects", n_subjects, "(0, inf]"),
        ("n_runs", n_runs, "(0, inf]"),
        ("n_samples", n_samples, "(0, inf]"),
        ("repetitions", repetitions, "(0, inf]"),
        ("signal", signal, "[0, inf]"),
        ("missing_samples", missing_samples, "[0, 1)"),
        ("missing_parts", missing_parts, some),
        ("missing_runs", missing_runs, some),
        ("missing_categories", missing_categories, some),
    ):
        if number is not None:
            check_number(name, number, interval, owner="simulate_study")
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
        n_samples=n_samples,
        **(DESIGNS[design] | {k: v for k, v in chosen.items() if v is not None}),
    )
    lacking: list[list[Any]] = []
    for what, n, known in (
        ("missing_runs", missing_runs, range(1, plan.n_runs + 1)),
        ("missing_categories", missing_categories, names),
    ):
        if n and len(known) < 2:
            raise InputError(f"{what}={n} would leave subjects with nothing.")
        own = [[known[i % len(known)]] for i in range(n)]
        lacking.append([[]] * (n_subjects - n) + own)
    width = max(2, len(str(n_subjects)))
    simulation = Simulation(
        seed=int(random_state),
        ids=[f"{i + 1:0{width}d}" for i in range(n_subjects)],
        design=plan,
        settings=settings,
        signal=signal,
        voxel_counts=_count_voxels(n_voxels, n_subjects, int(random_state)),
        own_sequence=design != "movie" if own_sequence is None else own_sequence,
        missing_samples=missing_samples,
        missing_parts=missing_parts,
        missing_runs=lacking[0],
        missing_categories=lacking[1],
    )
    truth = SimulationTruth([], [], simulation.centroids)
    subjects = [_simulate_subject(simulation, i, truth) for i in range(n_subjects)]
    return SimulatedStudy(subjects, "simulated", truth, simulation)


def _simulate_subject(
    simulation: Simulation, i: int, truth: SimulationTruth
) -> Subject:
    """Simulate a subject, and add what it is made of to the truth."""
    brain, runs = simulation.brain(i), simulation.runs(i)
    maps, plans = simulation.nuisance_maps(i, brain), [run.plan for run in runs]
    ends = np.cumsum([len(plan) for plan in plans])
    samples = np.empty((ends[-1], simulation.voxel_counts[i]), np.float32)
    for run, part in zip(runs, np.split(samples, ends[:-1]), strict=True):
        part[:] = run.plan.apply(simulation.volumes(i, run, brain, maps))
    responses = [run.plan.apply(simulation.signals(i, run)[0]) for run in runs]
    truth.shared.append(np.concatenate(responses))
    truth.maps.append(brain.maps)
    known = {
        name: np.concatenate([getattr(plan, name) for plan in plans])
        for name in ("labels", "onsets", "stimuli")
    }
    known["runs"] = np.repeat([run.number for run in runs], [len(p) for p in plans])
    space = VolumeSpace.from_mask(brain.mask, brain.affine)
    return Subject(simulation.ids[i], samples, space=space, **known)


def _check_categories(categories: int | Sequence[str]) -> tuple[str, ...]:
    if isinstance(categories, Integral):
        n = max(int(categories), 0)
        more = (f"category{k:02d}" for k in range(len(_CATEGORIES) + 1, n + 1))
        categories = [*_CATEGORIES, *more][:n]
    elif isinstance(categories, str):
        raise TypeError(f"categories={categories!r} must be a number or a list.")
    names = tuple(str(c) for c in categories)  # type: ignore[union-attr]
    if not names or len(set(names)) < len(names) or "" in names:
        raise InputError(
            f"categories={list(names)}: there must be at least one, and they must be "
            "different names."
        )
    return names


def _count_voxels(n_voxels: Any, n_subjects: int, seed: int) -> list[int]:
    if isinstance(n_voxels, Integral):
        counts = [int(n_voxels)] * n_subjects
    elif isinstance(n_voxels, tuple) and len(n_voxels) == 2:
        least, most = n_voxels
        rng = np.random.default_rng([seed, _VOXEL_COUNTS])
        drawn = rng.integers(least, max(least, most), size=n_subjects, endpoint=True)
        counts = drawn.tolist() if least <= most else []
    else:
        counts = [int(n) for n in n_voxels]
    if len(counts) != n_subjects or min(counts) < 1:
        raise InputError(
            f"n_voxels={n_voxels} must be a number above 0, a tuple (least, most), or "
            f"a list of a number for each of the {n_subjects} subjects."
        )
    return counts
