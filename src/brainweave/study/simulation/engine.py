"""The engine of :func:`brainweave.simulate_study`: one subject's run at a time.

Everything is drawn from streams that are keyed by what they are for (which subject,
which run, brain or noise). So a subject can be simulated again at any time, alone, and
two studies with the same seed and the same voxel counts have the same brains, whatever
was shown to them.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from brainweave.study.formats.runs.events import Events
from brainweave.study.formats.runs.sampling import SamplePlan, plan_samples
from brainweave.study.simulation.brains import (
    Brain,
    autoregressive_noise,
    choose_grid,
    double_gamma,
    draw_brain,
    draw_maps,
    draw_mask,
    mix_time_courses,
)
from brainweave.study.simulation.designs import (
    DESIGNS,
    Design,
    ShownRun,
    plan_runs,
    stimulus_number,
)

__all__ = ["RunSignals", "Simulation", "SubjectSource"]

# One number per purpose, so that streams never meet.
_CENTROIDS, _EXEMPLARS, _BRAIN, _SEQUENCE, _NOISE, _MISSING, _NUISANCE, _RUN_MAPS = (
    range(8)
)
# Fine steps per volume for the neural time course.
_STEPS = 10


@dataclass(frozen=True)
class RunSignals:
    """What one run of one subject is made of, without local noise.

    Parameters
    ----------
    shared : ndarray of shape (n_volumes, n_shared)
        Responses in the shared space.
    spontaneous : ndarray of shape (n_volumes, n_shared)
        Activity of the subject's own in the same places, with unit variance.
    nuisance : ndarray of shape (n_volumes, n_nuisance)
        Time courses of structured noise, with unit variance.
    """

    shared: NDArray[np.float64]
    spontaneous: NDArray[np.float32]
    nuisance: NDArray[np.float32]


@dataclass(frozen=True)
class Simulation:
    """All settings of a simulated study; see :func:`brainweave.simulate_study`."""

    seed: int
    design: Design
    voxel_counts: tuple[int, ...]
    own_sequence: bool
    samples: str
    keep_rest: bool
    missing_samples: float
    missing_runs: tuple[tuple[int, ...], ...]
    missing_categories: tuple[tuple[str, ...], ...]
    n_shared: int
    n_nuisance: int
    signal: float
    spontaneous: float
    structured_noise: float
    local_noise: float
    autocorrelation: float
    within: float
    trial_variability: float
    smoothness: float
    baseline: float
    hrf: bool
    dtype: str

    @property
    def n_subjects(self) -> int:
        """Number of subjects."""
        return len(self.voxel_counts)

    @property
    def ids(self) -> tuple[str, ...]:
        """The subjects' ids."""
        width = max(2, len(str(self.n_subjects)))
        return tuple(f"{i + 1:0{width}d}" for i in range(self.n_subjects))

    @property
    def same_mask(self) -> bool:
        """Whether all subjects have the same voxels."""
        return len(set(self.voxel_counts)) == 1

    @cached_property
    def centroids(self) -> NDArray[np.float64]:
        """Mean response to each category in the shared space."""
        rng = self._stream(_CENTROIDS)
        return rng.standard_normal((len(self.design.categories), self.n_shared))

    def brain(self, subject: int) -> Brain:
        """Draw the brain of a subject (always the same)."""
        shape, affine = choose_grid(max(self.voxel_counts))
        rng = self._stream(_BRAIN, subject)
        form = None if self.same_mask else rng
        mask = draw_mask(shape, self.voxel_counts[subject], form)
        return draw_brain(
            mask,
            affine,
            n_shared=self.n_shared,
            smoothness=self.smoothness,
            baseline=self.baseline,
            rng=rng,
        )

    def runs(self, subject: int) -> list[ShownRun]:
        """List the runs that the subject has, with the events that it saw."""
        sequence = self._stream(_SEQUENCE, subject if self.own_sequence else 0)
        runs = []
        for run in plan_runs(self.design, sequence):
            if run.number in self.missing_runs[subject]:
                continue
            events = run.events
            lacking = list(self.missing_categories[subject])
            events = events.take(~np.isin(events.label, lacking))
            runs.append(ShownRun(run.number, events, run.n_volumes))
        if self.missing_samples and self.samples != "volumes":
            runs = self._lose_events(subject, runs)
        return runs

    def plans(self, subject: int) -> list[SamplePlan]:
        """Plan the samples of each run of a subject."""
        plans = []
        for run, kept in zip(
            self.runs(subject), self.kept_volumes(subject), strict=True
        ):
            plan = self._plan(run, kept)
            plans.append(plan)
        return plans

    def kept_volumes(self, subject: int) -> list[NDArray[np.int64]]:
        """List the volumes of each run that are not lost."""
        runs = self.runs(subject)
        kept = [np.arange(run.n_volumes) for run in runs]
        if self.samples != "volumes" or not self.missing_samples:
            return kept
        plans = [self._plan(run, None) for run in runs]
        lost = self._choose_lost(subject, sum(map(len, plans)))
        start = 0
        for r, plan in enumerate(plans):
            here = lost[start : start + len(plan)]
            start += len(plan)
            if plan.rows is not None:
                kept[r] = np.setdiff1d(kept[r], plan.rows[here])
        return kept

    def signals(self, subject: int, run: ShownRun) -> RunSignals:
        """Draw what the run is made of; the same at every call."""
        rng = self._noise_stream(subject, run)
        shared = self._shared_responses(run, rng)
        spontaneous = autoregressive_noise(run.n_volumes, self.n_shared, 0.5, rng)
        # the strongest sources are the slowest
        phi = np.linspace(0.95, self.autocorrelation, self.n_nuisance)
        nuisance = autoregressive_noise(run.n_volumes, self.n_nuisance, phi, rng)
        return RunSignals(shared, spontaneous, nuisance)

    def volumes(
        self,
        subject: int,
        run: ShownRun,
        brain: Brain,
        nuisance_maps: NDArray[np.float32] | None = None,
    ) -> NDArray[np.float32]:
        """Simulate all volumes of one run (n_volumes, n_voxels).

        `nuisance_maps` spares drawing :meth:`nuisance_maps` again for each run.
        """
        if nuisance_maps is None:
            nuisance_maps = self.nuisance_maps(subject, brain)
        signals = self.signals(subject, run)
        # a stream of its own, so that signals() need not draw the local noise
        rng = self._noise_stream(subject, run, local=True)
        data = autoregressive_noise(
            run.n_volumes, brain.n_voxels, self.autocorrelation, rng
        )
        data *= np.float32(self.local_noise)
        scale = self.signal / np.sqrt(self.n_shared)
        own = self.spontaneous * signals.spontaneous
        data += mix_time_courses(scale * (signals.shared + own), brain.maps)
        data += mix_time_courses(
            self.nuisance_scale * signals.nuisance,
            self._change_maps(nuisance_maps, subject, run, brain),
        )
        data += brain.baseline
        return data

    @cached_property
    def nuisance_scale(self) -> NDArray[np.float64]:
        """Standard deviation of each structured noise: few strong, many weak."""
        power = 1.0 / np.arange(1, self.n_nuisance + 1)
        scale = np.sqrt(power / max(power.sum(), 1e-300))
        return np.asarray(self.structured_noise * scale)

    def nuisance_maps(self, subject: int, brain: Brain) -> NDArray[np.float32]:
        """Draw where the sources of structured noise lie (n_nuisance, n_voxels)."""
        rng = self._stream(_NUISANCE, subject)
        return draw_maps(brain.mask, self.n_nuisance, self.smoothness, rng)

    def _change_maps(
        self, maps: NDArray[np.float32], subject: int, run: ShownRun, brain: Brain
    ) -> NDArray[np.float32]:
        """Move one source of structured noise in three, as each run does."""
        maps = maps.copy()
        rng = self._stream(_RUN_MAPS, subject, run.number)
        maps[2::3] = draw_maps(brain.mask, len(maps[2::3]), self.smoothness, rng)
        return maps

    def _plan(self, run: ShownRun, kept: NDArray[np.int64] | None) -> SamplePlan:
        return plan_samples(
            run.events,
            run.n_volumes,
            self.design.tr,
            samples=self.samples,
            hrf_delay=self.design.hrf_delay,
            keep_rest=self.keep_rest,
            moments=self.design.kind == "movie",
            kept_volumes=kept,
        )

    def _shared_responses(
        self, run: ShownRun, rng: np.random.Generator
    ) -> NDArray[np.float64]:
        step = self.design.tr / _STEPS
        neural = np.zeros((run.n_volumes * _STEPS, self.n_shared))
        for e in range(len(run.events)):
            start = round(run.events.onset[e] / step)
            stop = round((run.events.onset[e] + run.events.duration[e]) / step)
            stop = min(max(stop, start + 1), len(neural))
            own = self.trial_variability * rng.standard_normal(self.n_shared)
            neural[start:stop] += self._stimulus(run.events, e, stop - start) + own
        if not self.hrf:
            return neural[::_STEPS]
        from scipy.fft import irfft, rfft

        response = double_gamma(step)
        # one presentation alone peaks at its own level
        length = max(round(self.design.duration / step), 1)
        peak = np.convolve(response, np.ones(length)).max()
        n = len(neural) + len(response)
        spectrum = rfft(neural, n, axis=0) * rfft(response / peak, n)[:, None]
        return np.asarray(irfft(spectrum, n, axis=0)[: len(neural) : _STEPS])

    def _stimulus(self, events: Events, e: int, n_steps: int) -> NDArray[np.float64]:
        """Shared neural response to one stimulus: the same in all subjects."""
        category = self.design.categories.index(str(events.label[e]))
        name = "" if events.stimulus is None else str(events.stimulus[e])
        number = stimulus_number(name)
        rng = self._stream(_EXEMPLARS, category, number)
        level = self.centroids[category]
        level = level + self.within * rng.standard_normal(self.n_shared)
        if self.design.kind != "movie":
            return np.asarray(level[None, :])
        # a film moves: a smooth course with a time scale of some seconds
        from scipy.ndimage import gaussian_filter1d

        width = 2.0 * _STEPS / self.design.tr
        course = gaussian_filter1d(
            rng.standard_normal((n_steps, self.n_shared)), width, axis=0, mode="wrap"
        )
        course /= max(float(course.std()), 1e-12)
        return np.asarray(level + course)

    def _choose_lost(self, subject: int, n: int) -> NDArray[np.bool_]:
        lost = np.zeros(n, dtype=bool)
        rng = self._stream(_MISSING, subject)
        lost[rng.permutation(n)[: round(self.missing_samples * n)]] = True
        return lost

    def _lose_events(self, subject: int, runs: list[ShownRun]) -> list[ShownRun]:
        lost = self._choose_lost(subject, sum(len(run.events) for run in runs))
        left, start = [], 0
        for run in runs:
            here = lost[start : start + len(run.events)]
            start += len(run.events)
            left.append(ShownRun(run.number, run.events.take(~here), run.n_volumes))
        return left

    def _noise_stream(
        self, subject: int, run: ShownRun, *, local: bool = False
    ) -> np.random.Generator:
        kind = DESIGNS.index(self.design.kind)
        return self._stream(_NOISE, subject, run.number, kind, int(local))

    def _stream(self, *key: int) -> np.random.Generator:
        return np.random.default_rng([self.seed, *key])


class SubjectSource:
    """The samples of one simulated subject, computed when read."""

    def __init__(self, simulation: Simulation, subject: int, n_samples: int) -> None:
        self.simulation = simulation
        self.subject = subject
        self.shape = (n_samples, simulation.voxel_counts[subject])
        self.dtype: np.dtype[Any] = np.dtype(simulation.dtype)

    def read(self, brain: Brain | None = None) -> NDArray[Any]:
        """Simulate the subject; one run is in memory besides the result."""
        simulation, subject = self.simulation, self.subject
        brain = simulation.brain(subject) if brain is None else brain
        maps = simulation.nuisance_maps(subject, brain)
        out = np.empty(self.shape, dtype=self.dtype)
        start = 0
        for run, plan in zip(
            simulation.runs(subject), simulation.plans(subject), strict=True
        ):
            stop = start + len(plan)
            out[start:stop] = plan.apply(simulation.volumes(subject, run, brain, maps))
            start = stop
        return out

    def __repr__(self) -> str:
        return f"SubjectSource({self.simulation.ids[self.subject]!r}, {self.shape})"
