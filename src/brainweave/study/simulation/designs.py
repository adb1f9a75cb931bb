"""Experimental designs for simulated studies: who sees what, when.

A design is a list of runs for one subject; a run is its :class:`Events` and its number
of volumes. All are in seconds and know nothing of brains.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from brainweave.exceptions import InputError
from brainweave.study.formats.runs.events import Events

__all__ = ["DESIGNS", "Design", "ShownRun", "plan_runs", "stimulus_number"]

#: The designs that :func:`plan_runs` knows.
DESIGNS = ("blocks", "events", "movie")


@dataclass(frozen=True)
class ShownRun:
    """One run: its number (from 1), what was shown, and how long it was scanned."""

    number: int
    events: Events
    n_volumes: int


@dataclass(frozen=True)
class Design:
    """The parameters of a design; see :func:`brainweave.simulate_study`."""

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
        for name, value in (
            ("n_runs", self.n_runs),
            ("repetitions", self.repetitions),
            ("duration", self.duration),
            ("n_samples", 1 if self.n_samples is None else self.n_samples),
        ):
            if not value > 0:
                raise InputError(f"{name}={value} must be positive.")
        if len(self.gap) != 2 or not 0 <= self.gap[0] <= self.gap[1]:
            raise InputError(f"gap={self.gap} must be (least, most) in seconds.")

    @staticmethod
    def check_kind(kind: str) -> str:
        """Check the name of a design."""
        if kind not in DESIGNS:
            raise InputError(
                f"design={kind!r} is not known; choose one of "
                f"{', '.join(map(repr, DESIGNS))}."
            )
        return kind


def plan_runs(design: Design, rng: np.random.Generator) -> list[ShownRun]:
    """Draw the order and the gaps of all runs of one subject.

    Subjects that share a sequence get it by being given generators in the same state.
    Every presentation has a stimulus of its own, named ``<category>_<number>.png``:
    the same stimulus is found in every subject, wherever it comes in the sequence.
    """
    n_categories = len(design.categories)
    if design.n_samples is None:
        per_run = [n_categories * design.repetitions] * design.n_runs
        n_volumes_shown = None
    else:
        length = _volumes(design.duration, design.tr)
        n_blocks = -(-design.n_samples // length)
        n_runs = min(design.n_runs, n_blocks)
        per_run = [n_blocks // n_runs + (r < n_blocks % n_runs) for r in range(n_runs)]
        n_volumes_shown = design.n_samples
    shown = np.zeros(n_categories, dtype=np.int64)  # presentations so far, per category
    runs = []
    for number, n_presentations in enumerate(per_run, start=1):
        order = _draw_order(n_categories, n_presentations, rng)
        run, n_volumes_shown = _place(
            design, number, order, rng=rng, shown=shown, left=n_volumes_shown
        )
        runs.append(run)
    return runs


def stimulus_number(stimulus: str) -> int:
    """Return the number in the name of a stimulus that :func:`plan_runs` made.

    Examples
    --------
    >>> stimulus_number("face_012.png")
    12
    """
    return int(stimulus.removesuffix(".png").rpartition("_")[2])


def _place(
    design: Design,
    number: int,
    order: NDArray[np.int64],
    *,
    rng: np.random.Generator,
    shown: NDArray[np.int64],
    left: int | None,
) -> tuple[ShownRun, int | None]:
    """Put presentations on the clock, on volume boundaries unless they are brief."""
    tr = design.tr
    step = tr if design.kind != "events" else min(tr, 0.5)
    now = 0.0
    rows = []
    for c in order:
        seconds = _volumes(design.duration, tr) * tr
        if design.kind == "events":
            seconds = design.duration
        if left is not None:
            n_volumes = min(_volumes(seconds, tr), left)
            left -= n_volumes
            seconds = min(seconds, n_volumes * tr)
        shown[c] += 1
        category = design.categories[c]
        stimulus = f"{category}_{shown[c]:03d}.png"
        rows.append((round(now, 6), round(seconds, 6), category, stimulus))
        gap = rng.uniform(*design.gap)
        # at least a volume per brief event, so that every event keeps one for itself
        pause = round(gap / step) * step
        if design.kind == "events":
            pause = max(pause, tr - seconds)
        now += seconds + pause
    # scan on until the last response has passed
    n_volumes = int(np.ceil((rows[-1][0] + rows[-1][1]) / tr + 1e-9)) + int(
        np.ceil(design.hrf_delay / tr)
    )
    n_volumes += _volumes(max(design.gap[1], tr), tr)
    return ShownRun(number, Events.from_rows(rows), n_volumes), left


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
