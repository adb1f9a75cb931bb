"""The paper's datasets: those that are given, and simulated ones of the same shape."""

from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np

from brainweave.evaluation.grid import GridStudy
from brainweave.evaluation.splits import SplitStudy, matched, split_study
from brainweave.exceptions import InputError
from brainweave.paper.settings import Dataset, datasets
from brainweave.study.simulation.simulate import simulate_like
from brainweave.study.study import Study

__all__ = ["Data", "check_data", "grid_study", "movie_parts"]

#: Studies by the name of the dataset; for Raider a pair, the film and the images.
Data = Mapping[str, Any]


def check_data(data: Data | None, *, quick: bool) -> dict[str, Any]:
    """Return the studies by name, checked."""
    if quick and data:
        raise InputError("quick=True simulates small studies; give no data with it.")
    given = dict(data or {})
    unknown = [name for name in given if name not in datasets()]
    if unknown:
        raise InputError(
            f"data has {', '.join(map(repr, unknown))}; the paper's datasets are "
            f"{', '.join(datasets())}."
        )
    for name, study in given.items():
        pair = isinstance(study, tuple) and len(study) == 2
        studies = study if pair else (study,)
        if pair != (name == "Raider") or not all(isinstance(s, Study) for s in studies):
            wanted = (
                "a pair of Study, (film, images)" if name == "Raider" else "a Study"
            )
            raise TypeError(f"data[{name!r}] must be {wanted}.")
    return given


def grid_study(
    setting: Dataset, study: Any = None, *, aligned: bool = True, random_state: int = 0
) -> GridStudy:
    """Return a dataset as the runner takes it: real, or simulated when needed.

    If samples are to be locked in time (`aligned`), real data are reordered and
    truncated by category, as in the paper, and simulated subjects see one sequence.
    Else real data stay as they are, and simulated subjects see sequences of their own
    and lack samples and, some of them, a category.
    """
    if study is None:
        s = setting
        film = f" after {s.movie_parts} x {s.movie_part_samples}" * bool(s.movie_parts)
        shape = f"{s.subjects} x {s.samples}{film} x {s.voxels} x {s.categories}"
        kind = "aligned" if aligned else "unaligned"
        return GridStudy(
            s.name,
            partial(_simulate, s, aligned, random_state),
            leave_out=s.leave_out,
            version=f"simulated {kind} {shape}, signal {s.signal}, seed {random_state}",
            shape=(s.n_parts, s.subjects),
        )
    if setting.movie_parts:
        film, images = study
        parts = movie_parts(film, setting)
        return GridStudy(setting.name, images, align=parts, leave_out=setting.leave_out)
    chosen = matched(study, "truncate") if aligned else study
    return GridStudy(setting.name, chosen, leave_out=setting.leave_out)


def movie_parts(film: Study, setting: Dataset) -> list[Study]:
    """Cut a film into the consecutive parts that align in turn."""
    length, n_parts = setting.movie_part_samples, setting.movie_parts
    for subject in film:
        if subject.n_samples < length * n_parts:
            raise InputError(
                f"Subject {subject.id!r} has {subject.n_samples} samples of the film; "
                f"{n_parts} parts of {length} are needed."
            )
    return [
        Study(
            (s.select(np.arange(k * length, (k + 1) * length)) for s in film),
            f"third {k + 1}" if n_parts == 3 else f"part {k + 1}",
        )
        for k in range(n_parts)
    ]


def _simulate(s: Dataset, aligned: bool, seed: int) -> SplitStudy | Study:
    """Simulate a dataset of these settings."""
    shape = s.subjects, s.samples, s.voxels, s.categories
    common: dict[str, Any] = {"signal": s.signal, "random_state": seed}
    if s.movie_parts:
        n_film = s.movie_parts * s.movie_part_samples
        film = simulate_like(s.subjects, n_film, s.voxels, None, **common)
        # one image at a time, every category once in a run; the same people
        common |= {"duration": 2.5, "n_runs": max(1, s.samples // s.categories)}
        images = simulate_like(*shape, aligned=True, **common)
        return split_study(images, align=movie_parts(film, s))
    if aligned:
        return simulate_like(*shape, aligned=True, **common)
    # a subject that lacks one of two categories has nothing to tell apart
    lacking = s.subjects // 3 if s.categories > 2 else 0
    return simulate_like(
        *shape, missing_samples=0.1, missing_categories=lacking, **common
    )
