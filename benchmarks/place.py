"""When does it help to know the place? Registration, topography, groups, artefacts.

python benchmarks/place.py -o docs/results simulates brains in one space, aligns them by
one film and matches segments of another, and writes place.csv and .toml. It takes about
a quarter of an hour of one core, and uses all; --quick, half a minute.

GDM has the masks of the subjects, which differ, and finds supervoxels of 8 mm; "GDM,
common voxels" and the other methods have the voxels inside of all masks, which are
places by themselves. A subject is held out: the others are aligned, it joins them by
the same film, and its segments of the other film are matched with their mean.
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
from packaging.version import Version

from brainweave import (
    GDM,
    SRM,
    Hyperalignment,
    NoAlignment,
    Study,
    __version__,
    simulate_brains,
    split_study,
    time_segment_matching,
)
from brainweave.evaluation.evaluate import align_folds
from brainweave.study.spaces import common_voxels

MISREGISTRATION = (0.0, 4.0, 8.0, 12.0)  # mm
OWN_TOPOGRAPHY = (0.0, 0.5, 1.0)
SUBJECTS = 6
COMPONENTS = 10
SEED = 0
N_SEEDS = 8
BRAINS: dict[str, Any] = {
    **{"n_components": COMPONENTS, "n_samples": 120, "signal": 0.25},
    "mask_variability": 0.02,
}
#: Aligners, and whether they are given the common voxels.
METHODS: dict[str, tuple[Any, bool]] = {
    "GDM": (GDM(COMPONENTS, graph="time", n_jobs=1), False),
    "GDM, place=None": (GDM(COMPONENTS, graph="time", place=None, n_jobs=1), False),
    "GDM, common voxels": (GDM(COMPONENTS, graph="time", n_jobs=1), True),
    "GDM, common voxels, place=None": (
        GDM(COMPONENTS, graph="time", place=None, n_jobs=1),
        True,
    ),
    "no alignment": (NoAlignment(), True),
    "SRM": (SRM(COMPONENTS, random_state=0), True),
    "hyperalignment": (Hyperalignment(), True),
}


def film(study: Study, name: str) -> Study:
    """Return the samples of one film."""
    return study.map(lambda s: s.select(s.runs == name))


def match(own: Any, others: list[Any]) -> float:
    """Return the share of a subject's segments found in the mean of others."""
    return float(time_segment_matching([own, np.mean(others, axis=0)]).scores[0])


def held_out(study: Study, aligner: Any) -> tuple[float, float]:
    """Return the accuracy of subjects who join, and how often places were used."""
    split = split_study(film(study, "b"), align=[film(study, "a")])
    scores, used = [], []
    for batch in align_folds(aligner, split, n_jobs=1):
        for fold in batch:
            (own,) = fold.test
            scores.append(
                match(fold.features[own], [fold.features[i] for i in fold.train])
            )
            placement = getattr(fold.aligner, "place_", None)
            used.append(placement is not None and placement.used)
    return float(np.mean(scores)), float(np.mean(used))


def ordinary(seed: int, **brains: Any) -> Iterator[dict[str, Any]]:
    """Align subjects who saw one film, by all methods."""
    study = simulate_brains(
        SUBJECTS, films=["a", "b"], random_state=seed, **{**BRAINS, **brains}
    )
    common = common_voxels(study)
    for name, (aligner, on_common) in METHODS.items():
        accuracy, used = held_out(common if on_common else study, aligner)
        yield {"method": name, "accuracy": accuracy, "used": used}


def standardised(study: Study) -> list[Any]:
    """Return the samples of each subject, voxels standardised."""
    samples = [s.data() for s in common_voxels(study)]
    return [(x - x.mean(axis=0)) / x.std(axis=0) for x in samples]


def two_groups(seed: int, **brains: Any) -> Iterator[dict[str, Any]]:
    """Align groups who saw different films; match each subject with the other group."""
    films = [["a" if i < SUBJECTS // 2 else "b", "c"] for i in range(SUBJECTS)]
    study = simulate_brains(
        SUBJECTS, films=films, random_state=seed, **{**BRAINS, **brains}
    )
    aligning = study.map(lambda s: s.select(s.runs == s.runs[0]))
    scored = film(study, "c")
    gdm = GDM(COMPONENTS, graph="time", n_jobs=1)
    gdm.fit(aligning, [s.stimuli for s in aligning])
    found = {
        "GDM": gdm.transform([s.data() for s in scored]),
        "no alignment": standardised(scored),
    }
    for name, features in found.items():
        first, second = features[: SUBJECTS // 2], features[SUBJECTS // 2 :]
        scores = [match(x, second) for x in first] + [match(x, first) for x in second]
        used = float(name == "GDM" and gdm.place_.used)
        yield {"method": name, "accuracy": float(np.mean(scores)), "used": used}


def zero_shot(seed: int, **brains: Any) -> Iterator[dict[str, Any]]:
    """Map subjects without aligning data; match them with those who were aligned."""
    study = simulate_brains(
        SUBJECTS + 2, films=["a", "b"], random_state=seed, **{**BRAINS, **brains}
    )
    aligning, scored = film(study, "a")[:SUBJECTS], film(study, "b")
    gdm = GDM(COMPONENTS, graph="time", n_jobs=1)
    gdm.fit(aligning, [s.stimuli for s in aligning])
    plain = standardised(scored)
    found: dict[str, Any] = {"GDM": None}
    if gdm.place_.used:
        found["GDM"] = (
            gdm.transform([s.data() for s in scored[:SUBJECTS]]),
            [gdm.shared_map_.transform(s) for s in scored[SUBJECTS:]],
        )
    found["no alignment"] = (plain[:SUBJECTS], plain[SUBJECTS:])
    for name, both in found.items():
        accuracy = np.nan  # without places, nobody is mapped
        if both is not None:
            accuracy = float(np.mean([match(x, both[0]) for x in both[1]]))
        used = float(name == "GDM" and gdm.place_.used)
        yield {"method": name, "accuracy": accuracy, "used": used}


CONDITIONS = {
    "one film": ordinary,
    "artefact": lambda seed, **brains: ordinary(seed, artefact=1.0, **brains),
    "two groups": two_groups,
    "zero-shot": zero_shot,
}


def cells(quick: bool) -> Iterator[dict[str, Any]]:
    """List the conditions."""
    for condition in CONDITIONS:
        every = condition == "one film" and not quick
        for mm in MISREGISTRATION if every else (4.0,):
            for own in OWN_TOPOGRAPHY if not quick else (0.5,):
                if own == 1 and mm != 4:
                    continue  # nothing is shared that could be displaced
                yield {
                    "condition": condition,
                    "misregistration_mm": mm,
                    "own_topography": own,
                }


def measure(cell: dict[str, Any], seed: int) -> list[dict[str, Any]]:
    """Return a row per method."""
    brains = {name: value for name, value in cell.items() if name != "condition"}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = list(CONDITIONS[cell["condition"]](seed, **brains))
    return [{**cell, "seed": seed, **row} for row in found]


def main() -> None:
    """Simulate; write after each seed."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("-o", "--output", type=Path, default=Path("out"))
    parser.add_argument("--quick", action="store_true", help="one seed, four cells")
    parser.add_argument("--seeds", type=int, default=N_SEEDS, help="how many")
    parser.add_argument("--first-seed", type=int, default=SEED)
    asked = parser.parse_args()
    asked.output.mkdir(parents=True, exist_ok=True)
    last = asked.first_seed + (1 if asked.quick else asked.seeds)
    rows: list[dict[str, Any]] = []
    for seed in range(asked.first_seed, last):
        jobs = [delayed(measure)(cell, seed) for cell in cells(asked.quick)]
        for found in Parallel(n_jobs=-1, return_as="generator")(jobs):
            for row in found:
                print(*row.values(), flush=True)
            rows += found
        write(pd.DataFrame(rows), asked.output, asked.first_seed)


def write(table: pd.DataFrame, folder: Path, seed: int) -> None:
    """Write the table, and how it was made."""
    table.to_csv(
        folder / "place.csv", index=False, float_format="%.5g", lineterminator="\n"
    )
    lines = [
        'command = "make bench-place"',
        f"date = {datetime.now(UTC).date()}",
        f'version = "{Version(__version__).base_version}"',
        f"seed = {seed}",
    ]
    (folder / "place.toml").write_text("\n".join(lines) + "\n", "utf-8")


if __name__ == "__main__":
    main()
