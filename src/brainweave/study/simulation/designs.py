"""What a simulated study is made of: its settings, and who sees what, when.

A design is a list of runs for one subject; a run is its :class:`Events` and its number
of volumes. All are in seconds and know nothing of brains.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from brainweave._core.exceptions import InputError
from brainweave.study.formats.events import Events


@dataclass(frozen=True)
class Timing:
    """When things are shown and scanned.

    Parameters
    ----------
    repetitions : int, optional
        Blocks, trials or scenes per category and run (1 with blocks, 6 with events, 2
        with a movie).
    duration : float, optional
        Seconds of one of them (22.5, 2 and 20); whole volumes except for events.
    gap : tuple of two floats, optional
        Least and most seconds between them.
    tr : float, default=2.5
        Seconds from one volume to the next.
    hrf_delay : float, default=5.0
        Seconds by which the labels of volumes lag the stimuli.
    hrf : bool, default=True
        Whether responses are blurred and late; use ``hrf_delay=0`` without.
    """

    repetitions: int | None = None
    duration: float | None = None
    gap: tuple[float, float] | None = None
    tr: float = 2.5
    hrf_delay: float = 5.0
    hrf: bool = True

    def __post_init__(self) -> None:
        _check(self, "tr", above_zero=True)
        _check(self, "hrf_delay", above_zero=False)


@dataclass(frozen=True)
class Responses:
    """What brains do when something is shown, and where.

    Parameters
    ----------
    n_shared : int, default=10
        Dimensions of the shared space.
    signal : float, default=2.5
        Standard deviation over voxels of a category's response, in per cent of a mean
        image of 100.
    within, trial_variability : float, default=0.3
        How much the stimuli of a category differ, in all subjects alike, and how much
        a response differs from trial to trial, relative to the categories.
    smoothness : float, default=1.2
        Width of the spatial kernel of all maps, in voxels.
    baseline : float, default=100.0
        Level of the mean image.
    """

    n_shared: int = 10
    signal: float = 2.5
    within: float = 0.3
    trial_variability: float = 0.3
    smoothness: float = 1.2
    baseline: float = 100.0

    def __post_init__(self) -> None:
        _check(self, "n_shared", "smoothness", above_zero=True)
        not_negative = ("signal", "within", "trial_variability", "baseline")
        _check(self, *not_negative, above_zero=False)


@dataclass(frozen=True)
class Noise:
    """What else is in the images.

    Parameters
    ----------
    structured_noise, local_noise : float, default=4.0, 0.3
        Standard deviation over voxels, in per cent of a mean image of 100: of noise
        with a spatial pattern of the subject's own, and of noise of each voxel's own.
    n_nuisance : int, default=40
        Rank of the structured noise.
    spontaneous : float, default=0.35
        Activity of the subject's own in the places that respond, relative to the
        responses.
    autocorrelation : float, default=0.3
        Of the local noise, from one volume to the next.
    """

    structured_noise: float = 4.0
    local_noise: float = 0.3
    n_nuisance: int = 40
    spontaneous: float = 0.35
    autocorrelation: float = 0.3

    def __post_init__(self) -> None:
        not_negative = ("structured_noise", "local_noise", "n_nuisance", "spontaneous")
        _check(self, *not_negative, above_zero=False)
        if not -1 < self.autocorrelation < 1:
            raise InputError(
                f"autocorrelation={self.autocorrelation} must be in (-1, 1)."
            )


def _check(options: object, *names: str, above_zero: bool) -> None:
    """Refuse fields that are too low; None is a field that is left open."""
    for name in names:
        value = getattr(options, name)
        if value is not None and not (value > 0 if above_zero else value >= 0):
            wanted = "be positive" if above_zero else "not be negative"
            raise InputError(f"{name}={value} must {wanted}.")


# What is left open: runs, presentations of a category and run, seconds of one, and
# (least, most) seconds between them.
DESIGNS: dict[str, dict[str, Any]] = {
    "blocks": {"n_runs": 4, "repetitions": 1, "duration": 22.5, "gap": (10.0, 15.0)},
    "events": {"n_runs": 4, "repetitions": 6, "duration": 2.0, "gap": (4.0, 8.0)},
    "movie": {"n_runs": 3, "repetitions": 2, "duration": 20.0, "gap": (0.0, 0.0)},
}


@dataclass(frozen=True)
class RunDesign:
    """One run: its number (from 1), what is shown, and how long it is scanned."""

    number: int
    events: Events
    n_volumes: int


@dataclass(frozen=True, kw_only=True)
class Design(Timing):
    """A timing that leaves nothing open, what is shown, and how often."""

    kind: str
    categories: tuple[str, ...]
    n_runs: int
    n_samples: int | None = None
    repetitions: int
    duration: float
    gap: tuple[float, float]

    def __post_init__(self) -> None:
        super().__post_init__()
        positive = ("n_runs", "repetitions", "duration", "n_samples")
        _check(self, *positive, above_zero=True)
        if len(self.gap) != 2 or not 0 <= self.gap[0] <= self.gap[1]:
            raise InputError(f"gap={self.gap} must be (least, most) in seconds.")


def plan_runs(design: Design, rng: np.random.Generator) -> list[RunDesign]:
    """Draw the order and the gaps of all runs of one subject.

    Subjects that share a sequence get it by being given generators in the same state.
    Every presentation has a stimulus of its own, named ``<category>_<number>.png``:
    the same stimulus is found in every subject, wherever it comes in the sequence.
    """
    n_categories = len(design.categories)
    left = design.n_samples  # volumes still to be shown, if their number is given
    if left is None:
        per_run = [n_categories * design.repetitions] * design.n_runs
    else:
        n_blocks = -(-left // _volumes(design.duration, design.tr))
        n_runs = min(design.n_runs, n_blocks)
        per_run = [n_blocks // n_runs + (r < n_blocks % n_runs) for r in range(n_runs)]
    n_shown = np.zeros(n_categories, dtype=np.int64)  # presentations so far
    runs = []
    for number, n_presentations in enumerate(per_run, start=1):
        order = _draw_order(n_categories, n_presentations, rng)
        run, left = _schedule(
            design, number, order, rng=rng, n_shown=n_shown, left=left
        )
        runs.append(run)
    return runs


def stimulus_number(stimulus: str) -> int:
    """Return the number in the name of a stimulus that :func:`plan_runs` made."""
    return int(stimulus.removesuffix(".png").rpartition("_")[2])


def _schedule(
    design: Design,
    number: int,
    order: NDArray[np.int64],
    *,
    rng: np.random.Generator,
    n_shown: NDArray[np.int64],
    left: int | None,
) -> tuple[RunDesign, int | None]:
    """Put presentations on the clock, on volume boundaries unless they are brief."""
    tr, brief = design.tr, design.kind == "events"
    step = min(tr, 0.5) if brief else tr
    now = 0.0
    rows = []
    for c in order:
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
        if brief:  # at least a volume for each, so that every event keeps one
            pause = max(pause, tr - seconds)
        now += seconds + pause
    last = int(np.ceil((rows[-1][0] + rows[-1][1]) / tr + 1e-9))
    # scan on until the last response has passed
    after = int(np.ceil(design.hrf_delay / tr)) + _volumes(max(design.gap[1], tr), tr)
    return RunDesign(number, Events.from_rows(rows), last + after), left


def _draw_order(
    n_categories: int, n_presentations: int, rng: np.random.Generator
) -> NDArray[np.int64]:
    """Shuffle category by category cycle, without direct repeats where possible."""
    order: list[int] = []
    while len(order) < n_presentations:
        cycle = rng.permutation(n_categories)
        if order and n_categories > 1 and cycle[0] == order[-1]:
            cycle = np.roll(cycle, 1)
        order.extend(cycle.tolist())
    return np.array(order[:n_presentations], dtype=np.int64)


def _volumes(seconds: float, tr: float) -> int:
    return max(round(seconds / tr), 1)
