"""Plan what each subject of a simulated study sees, and when.

A design is a list of runs for one subject. A run has :class:`Events` and a number of
volumes. All times are in seconds; brains play no part here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from brainweave._core.exceptions import InputError
from brainweave.study.formats.events import Events
from brainweave.study.options import check_samples


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
    hrf_delay : float, default=5.0
        Seconds by which the labels of volumes lag the stimuli.
    samples : {"volumes", "blocks", "trials", "trials-lsa", "trials-lss"}
        What a sample is; see :func:`brainweave.load_bids`. Volumes by default.
    keep_rest : bool, default=False
        Keep the volumes that show nothing, without a label.
    n_shared : int, default=10
        Number of dimensions of the shared space.
    within : float, default=0.3
        How much the stimuli of a category differ, relative to the differences between
        categories. This variation is the same in all subjects.
    trial_variability : float, default=0.3
        How much responses differ from trial to trial, in the same units.
    structured_noise : float, default=4.0
        Standard deviation over voxels of noise with a spatial pattern that differs
        between subjects, in percent of the mean image.
    n_nuisance : int, default=40
        Rank of the structured noise.
    local_noise : float, default=0.3
        Standard deviation of independent noise in each voxel, in percent of the mean
        image.
    spontaneous : float, default=0.35
        Standard deviation of activity that is not evoked by stimuli but lies in the
        voxels that respond to them, relative to the responses.
    """

    duration: float | None = None
    gap: tuple[float, float] | None = None
    tr: float = 2.5
    hrf_delay: float = 5.0
    samples: str = "volumes"
    keep_rest: bool = False
    n_shared: int = 10
    within: float = 0.3
    trial_variability: float = 0.3
    structured_noise: float = 4.0
    n_nuisance: int = 40
    local_noise: float = 0.3
    spontaneous: float = 0.35

    def __post_init__(self) -> None:
        check_samples(self.samples, "SimulationSettings")
        _check_positive(self, "duration", "tr", "n_shared")
        if self.gap is not None and not 0 <= self.gap[0] <= self.gap[1]:
            raise InputError(f"gap={self.gap} must be (least, most) in seconds.")
        for name in (
            *("hrf_delay", "within", "trial_variability", "structured_noise"),
            *("n_nuisance", "local_noise", "spontaneous"),
        ):
            if not getattr(self, name) >= 0:
                raise InputError(f"{name}={getattr(self, name)} must not be negative.")


def _check_positive(settings: object, *names: str) -> None:
    """Refuse settings that are not above zero; None stands for a default."""
    for name in names:
        value = getattr(settings, name)
        if value is not None and not value > 0:
            raise InputError(f"{name}={value} must be positive.")


# Defaults: number of runs, presentations per category and run, seconds of each, and
# the shortest and longest time between two of them.
DESIGNS: dict[str, dict[str, Any]] = {
    "blocks": {"n_runs": 4, "repetitions": 1, "duration": 22.5, "gap": (10.0, 15.0)},
    "events": {"n_runs": 4, "repetitions": 6, "duration": 2.0, "gap": (4.0, 8.0)},
    "movie": {"n_runs": 3, "repetitions": 2, "duration": 20.0, "gap": (0.0, 0.0)},
}


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
    hrf_delay: float
    n_samples: int | None = None

    def __post_init__(self) -> None:
        _check_positive(self, "n_runs", "n_samples", "repetitions")


@dataclass(frozen=True)
class RunDesign:
    """A run: its number (from 1), its events and its number of volumes."""

    number: int
    events: Events
    n_volumes: int


def plan_runs(design: Design, rng: np.random.Generator) -> list[RunDesign]:
    """Draw the order and the gaps of all runs of one subject.

    Generators in the same state give the same sequence. Every presentation has a
    stimulus of its own, named ``<category>_<number>.png``, which all subjects see,
    wherever it comes in their sequences.
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
    """Assign onsets to presentations, on volume boundaries unless they are brief."""
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
        if brief:  # every event needs a volume of its own
            pause = max(pause, tr - seconds)
        now += seconds + pause
    last = int(np.ceil((rows[-1][0] + rows[-1][1]) / tr + 1e-9))
    # scan on until the last response has passed
    after = int(np.ceil(design.hrf_delay / tr)) + _volumes(max(design.gap[1], tr), tr)
    return RunDesign(number, Events.from_rows(rows), last + after), left


def _draw_order(
    n_categories: int, n_presentations: int, rng: np.random.Generator
) -> NDArray[np.int64]:
    """Shuffle the categories again and again, without direct repeats if possible."""
    order: list[int] = []
    while len(order) < n_presentations:
        cycle = rng.permutation(n_categories)
        if order and n_categories > 1 and cycle[0] == order[-1]:
            cycle = np.roll(cycle, 1)
        order.extend(cycle.tolist())
    return np.array(order[:n_presentations], dtype=np.int64)


def _volumes(seconds: float, tr: float) -> int:
    return max(round(seconds / tr), 1)
