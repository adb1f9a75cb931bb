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

__all__ = ["DESIGNS", "Design", "ShownRun", "plan_runs", "stimulus_number", "usual"]

# kind -> n_runs, repetitions, seconds shown, seconds between (least, most)
DESIGNS: dict[str, tuple[int, int, float, tuple[float, float]]] = {
    "blocks": (4, 1, 22.5, (10.0, 15.0)),
    "events": (4, 6, 2.0, (4.0, 8.0)),
    "movie": (3, 2, 20.0, (0.0, 0.0)),
}


def usual(kind: str) -> tuple[int, int, float, tuple[float, float]]:
    """Return the usual settings of a design, by its name."""
    if kind not in DESIGNS:
        known = ", ".join(map(repr, DESIGNS))
        raise InputError(f"design={kind!r} is not known; choose one of {known}.")
    return DESIGNS[kind]


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
        for name in ("n_runs", "repetitions", "duration", "n_samples"):
            value = getattr(self, name)
            if value is not None and not value > 0:
                raise InputError(f"{name}={value} must be positive.")
        if len(self.gap) != 2 or not 0 <= self.gap[0] <= self.gap[1]:
            raise InputError(f"gap={self.gap} must be (least, most) in seconds.")


def plan_runs(design: Design, rng: np.random.Generator) -> list[ShownRun]:
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
    shown = np.zeros(n_categories, dtype=np.int64)  # presentations so far, per category
    runs = []
    for number, n_presentations in enumerate(per_run, start=1):
        order = _draw_order(n_categories, n_presentations, rng)
        run, left = _place(design, number, order, rng=rng, shown=shown, left=left)
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
        shown[c] += 1
        category = design.categories[c]
        stimulus = f"{category}_{shown[c]:03d}.png"
        rows.append((round(now, 6), round(seconds, 6), category, stimulus))
        pause = round(rng.uniform(*design.gap) / step) * step
        if brief:  # at least a volume for each, so that every event keeps one
            pause = max(pause, tr - seconds)
        now += seconds + pause
    last = int(np.ceil((rows[-1][0] + rows[-1][1]) / tr + 1e-9))
    # scan on until the last response has passed
    after = int(np.ceil(design.hrf_delay / tr)) + _volumes(max(design.gap[1], tr), tr)
    return ShownRun(number, Events.from_rows(rows), last + after), left


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
