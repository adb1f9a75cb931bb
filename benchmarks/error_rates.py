"""How often alignment_check is wrong: false alarms and power, by design.

python benchmarks/error_rates.py -o docs/results simulates studies of noise, and of weak
shared signals, checks a GDM of each, and writes error_rates.csv and .toml. It takes
about a quarter of an hour of one core, and uses all; --quick, half a minute.

All subjects have the same order of stimuli, the worst case: what time alone makes alike
falls on the same stimuli then. Noise is autocorrelated, AR(1), in single voxels and in
five strong patterns of each subject.
"""

import argparse
import warnings
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from joblib import Parallel, delayed
from scipy.signal import lfilter

from brainweave import GDM, Study, Subject, __version__, alignment_check

SUBJECTS = (2, 3, 5, 10)
AUTOCORRELATIONS = (0.0, 0.5, 0.9, 0.95)
SIGNALS = (0.15, 0.3)  # standard deviation of what is shared; that of noise is 1
VOXELS = 40
SEED = 0


def blocks(rng: np.random.Generator) -> tuple[Any, Any]:
    """Four categories, one block of ten samples of each in either run."""
    order = [rng.permutation(4) for _ in range(2)]
    return np.repeat(np.concatenate(order), 10), np.repeat([1, 2], 40)


def blocks_of_one_run(rng: np.random.Generator) -> tuple[Any, Any]:
    """Show the same in one run, which is cut in the middle."""
    return blocks(rng)[0], np.repeat([1], 80)


def slow_events(rng: np.random.Generator) -> tuple[Any, Any]:
    """Four categories, six events of three samples in either run, two of rest after."""
    order = np.concatenate([rng.permutation(4) for _ in range(12)])
    labels = np.repeat(order, 5).astype(object)
    labels[np.arange(labels.size) % 5 > 2] = None
    return labels, np.repeat([1, 2], 120)


def rapid_events(rng: np.random.Generator) -> tuple[Any, Any]:
    """Four categories, twelve events of one sample in either run."""
    order = [rng.permutation(np.arange(48) % 4) for _ in range(2)]
    return np.concatenate(order), np.repeat([1, 2], 48)


def film(rng: np.random.Generator) -> tuple[Any, Any]:
    """One run of 200 samples."""
    return None, np.repeat([1], 200)


DESIGNS = {
    "blocks": blocks,
    "blocks, one run": blocks_of_one_run,
    "slow events": slow_events,
    "rapid events": rapid_events,
    "film": film,
}


def autocorrelated(rng: np.random.Generator, n: int, columns: int, ar: float) -> Any:
    """Return AR(1) noise of unit variance."""
    white = rng.normal(size=(n + 200, columns))
    return lfilter([1], [1, -ar], white, axis=0)[200:] * np.sqrt(1 - ar**2)


def simulate(
    design: str, n_subjects: int, *, ar: float, drift: float, signal: float, seed: int
) -> Study:
    """Make one study."""
    rng = np.random.default_rng([SEED, seed, n_subjects, round(100 * ar)])
    labels, runs = DESIGNS[design](rng)
    n = runs.size
    means = rng.normal(size=(4, 3))
    responses = autocorrelated(rng, n, 3, 0.5)
    if labels is not None:
        rest = np.zeros(3)
        responses = np.array([rest if c is None else means[c] for c in labels])
    subjects = []
    for i in range(n_subjects):
        x = autocorrelated(rng, n, VOXELS, ar)
        x += autocorrelated(rng, n, 5, ar) @ rng.normal(size=(5, VOXELS))
        patterns = rng.normal(size=(2, VOXELS))  # of the drifts of this subject
        for run in np.unique(runs):
            time = np.linspace(-1, 1, int((runs == run).sum()))
            trends = np.column_stack([time, time**2]) @ patterns
            x[runs == run] += drift * trends
        x += signal * responses @ rng.normal(size=(3, VOXELS))
        subjects.append(Subject(f"{i:02}", x, labels=labels, runs=runs))
    return Study(subjects)


def cells() -> Iterator[dict[str, Any]]:
    """List the conditions."""
    for design in DESIGNS:
        for n in SUBJECTS:
            one = {"design": design, "n_subjects": n}
            for ar in AUTOCORRELATIONS:
                yield {**one, "ar": ar, "drift": 0.0, "signal": 0.0}
            yield {**one, "ar": 0.5, "drift": 5.0, "signal": 0.0}
            for signal in SIGNALS:
                yield {**one, "ar": 0.5, "drift": 0.0, "signal": signal}


def count(cell: dict[str, Any], n_studies: int) -> dict[str, Any]:
    """Count the studies in which alignment is said to have worked, or is not told."""
    worked = unknown = 0
    for seed in range(n_studies):
        gdm = GDM(3, graph="time" if cell["design"] == "film" else "labels", n_jobs=1)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            check = alignment_check(gdm.fit(simulate(**cell, seed=seed)))
        worked += check.worked is True
        unknown += not check.available
    return {**cell, "studies": n_studies, "worked": worked, "cannot tell": unknown}


def main() -> None:
    """Simulate, and write the table and how it was made."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("-o", "--output", type=Path, default=Path("out"))
    parser.add_argument("--quick", action="store_true", help="5 studies a cell")
    asked = parser.parse_args()
    asked.output.mkdir(parents=True, exist_ok=True)
    jobs = [
        delayed(count)(cell, 5 if asked.quick else 100 if cell["signal"] else 200)
        for cell in cells()
    ]
    rows = []
    for row in Parallel(n_jobs=-1, return_as="generator")(jobs):
        rows.append(row)
        print(*row.values(), flush=True)
    table = pd.DataFrame(rows)
    table.to_csv(asked.output / "error_rates.csv", index=False, lineterminator="\n")
    lines = [
        'command = "make error-rates"',
        f"date = {datetime.now(UTC).date()}",
        f'version = "{__version__}"',
        f"seed = {SEED}",
    ]
    (asked.output / "error_rates.toml").write_text("\n".join(lines) + "\n", "utf-8")


if __name__ == "__main__":
    main()
