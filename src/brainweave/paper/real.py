"""All methods on two small real studies: Raider's images, and a story."""

from collections.abc import Sequence
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.svm import NuSVC

from brainweave._io import write_text
from brainweave._progress import Progress
from brainweave.aligners.gdm import GDM
from brainweave.aligners.semisupervised_srm import SemiSupervisedSRM
from brainweave.evaluation.grid import Grid, GridStudy
from brainweave.evaluation.measures import Classification, Matching
from brainweave.evaluation.runner import run_grid
from brainweave.evaluation.tuning import GDMCV
from brainweave.exceptions import InputError, StudyError
from brainweave.paper import settings
from brainweave.paper.methods import WITHOUT, competing_methods
from brainweave.paper.real_output import (
    draw_curves,
    in_order,
    pieman_text,
    raider_text,
)
from brainweave.study.formats.matlab import load_matlab
from brainweave.study.study import Study

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["load_pieman", "load_raider_images", "pieman", "raider"]

Folder = str | PathLike[str]

N_COMPONENTS = 6  # what 7 categories tell apart at most
ENERGY = 0.82  # Table 1's for datasets with categories
NUMBERS = (6, 10, 20)
ENERGIES = (0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.82, 0.9, 0.95, 1.0)
MISSING = (0.1, 0.2, 0.3, 0.4, 0.5)
LEAVE_OUT = 4  # subjects of the story
_IMAGES = ("image_data_lh.mat", "image_data_rh.mat", "label.mat")


def load_raider_images(folder: Folder) -> Study:
    """Read the image half of Raider: 10 subjects, 8 runs of 7 categories.

    Parameters
    ----------
    folder : path
        With ``image_data_lh.mat``, ``image_data_rh.mat`` and ``label.mat``, or with a
        folder ``raider_images`` that has them.
    """
    left, right, label = _find(folder, "raider_images", _IMAGES)
    return load_matlab([left, right], labels=label, samples_per_run=7, name="Raider")


def load_pieman(folder: Folder) -> Study:
    """Read the story: 36 subjects, 300 samples of 100 factors, locked in time.

    Parameters
    ----------
    folder : path
        With ``weights.mat``, or with a folder ``pieman_htfa`` that has it.
    """
    (file,) = _find(folder, "pieman_htfa", ("weights.mat",))
    return load_matlab(file, name="pieman")


def _find(folder: Folder, inside: str, names: Sequence[str]) -> list[Path]:
    for place in (Path(folder), Path(folder) / inside):
        files = [place / name for name in names]
        if all(file.is_file() for file in files):
            return files
    raise StudyError(
        f"{str(folder)!r} has no {', '.join(names)}, nor has a folder {inside!r} in "
        "it. Give the folder of the files."
    )


def raider(
    data: Folder | Study,
    out: Folder,
    *,
    methods: Sequence[str] | None = None,
    n_permutations: int = 200,
    repeats: int = 10,
    random_state: int = 0,
    n_jobs: int | None = None,
    progress: Progress | None = None,
) -> "pd.DataFrame":
    """Compare all methods on the real Raider images, runs 1-4 against 5-8.

    Each half of the runs aligns once; two subjects are left out at a time, and a
    linear nu-SVM with nu = 0.5 is trained on the others: 10 folds. All methods have 6
    shared features, as many as 7 categories tell apart, and then 10 and 20; GDM keeps
    82 % energy.

    Parameters
    ----------
    data : path or Study
        Folder of the files (see :func:`load_raider_images`), or the study.
    out : path
        Folder for ``raider.csv``, ``raider_components.csv``, ``raider.md``,
        ``raider_energy.svg`` and ``.csv``, ``raider_incompleteness.svg`` and ``.csv``,
        and the store of finished cells.
    methods : sequence of str, optional
        Which to run, "nu-SVM" and "GDM" among them; default all.
    n_permutations : int, default=200
        Permutations for p-values.
    repeats : int, default=10
        How often samples are removed anew for each incompleteness.
    random_state, n_jobs, progress
        As in :func:`table2`.

    Returns
    -------
    DataFrame
        One row per method and protocol.
    """
    folder = _made(out)
    study = data if isinstance(data, Study) else load_raider_images(data)
    setting = settings.dataset("Raider")
    source = GridStudy("Raider", study, halves="run", leave_out=setting.leave_out)
    k, v = N_COMPONENTS, max(s.n_voxels for s in study)
    classifier = NuSVC(nu=setting.nu, kernel="linear")
    model = GDM(k, energy=ENERGY)
    both: dict[str, Any] = {
        "protocols": ("joint", "held-out"),
        "random_state": random_state,
    }
    known = {
        **competing_methods(k, v),
        "SSSRM": SemiSupervisedSRM(k),
        "GDM": model,
        "GDM, time graph": GDM(k, energy=ENERGY, graph="time"),
        "GDMCV": GDMCV(leave_out=setting.leave_out),
    }
    chosen = _chosen(known, methods, needed=(WITHOUT, "GDM"))
    plain = Classification(classifier)
    grids = [
        Grid(
            source, chosen, measure=Classification(classifier, n_permutations), **both
        ),
        Grid(source, {"GDM": model}, vary={"energy": ENERGIES}, measure=plain, **both),
        Grid(
            source,
            {"GDM": model},
            missing=MISSING,
            repeats=repeats,
            measure=plain,
            **both,
        ),
        Grid(
            source,
            {m: a for m, a in chosen.items() if m not in (WITHOUT, "GDMCV")},
            vary={"n_components": NUMBERS},
            measure=plain,
            **both,
        ),
    ]
    # one after the other, so that each has its own summary; they share the store
    store = folder / "store"
    main, energy, missing, number = (
        run_grid(grid, store, n_jobs=n_jobs, progress=progress) for grid in grids
    )
    table = in_order(main.summary(), list(known))
    by_number = in_order(number.summary(), list(known))
    write_text(folder / "raider.csv", table.to_csv(index=False))
    write_text(folder / "raider_components.csv", by_number.to_csv(index=False))
    write_text(folder / "raider.md", raider_text(table, by_number, main))
    draw_curves(folder, table, energy, missing)
    return table


def pieman(
    data: Folder | Study,
    out: Folder,
    *,
    methods: Sequence[str] | None = None,
    window: int = 9,
    n_components: int = 10,
    random_state: int = 0,
    n_jobs: int | None = None,
    progress: Progress | None = None,
) -> "pd.DataFrame":
    """Match time segments of a story with every method, halves swapped.

    Each half of the 300 samples aligns once; in the other, every segment of a subject
    is sought among those of the average of the subjects that are not left out with it,
    four at a time.

    Parameters
    ----------
    data : path or Study
        Folder of the file (see :func:`load_pieman`), or the study.
    out : path
        Folder for ``pieman.csv``, ``pieman.md`` and the store of finished cells.
    methods : sequence of str, optional
        Which to run; default all.
    window : int, default=9
        Samples per segment.
    n_components : int, default=10
        Number of shared features.
    random_state, n_jobs, progress
        As in :func:`table2`.

    Returns
    -------
    DataFrame
        One row per method and protocol.
    """
    folder = _made(out)
    study = data if isinstance(data, Study) else load_pieman(data)
    n = study.subjects[0].n_samples
    first = np.arange(n) < n // 2
    k, v = n_components, max(s.n_voxels for s in study)
    known = {
        **competing_methods(k, v),
        "SSSRM": SemiSupervisedSRM(k),
        "GDM": GDM(k, energy=ENERGY, graph="time"),
    }
    grid = Grid(
        GridStudy("pieman", study, halves=[first] * len(study), leave_out=LEAVE_OUT),
        _chosen(known, methods),
        protocols=("joint", "held-out"),
        measure=Matching(window),
        random_state=random_state,
    )
    result = run_grid(grid, folder / "store", n_jobs=n_jobs, progress=progress)
    table = in_order(result.summary(), list(known))
    write_text(folder / "pieman.csv", table.to_csv(index=False))
    write_text(folder / "pieman.md", pieman_text(table))
    return table


def _chosen(
    known: dict[str, Any], methods: Sequence[str] | None, needed: Sequence[str] = ()
) -> dict[str, Any]:
    if methods is None:
        return known
    unknown = [m for m in methods if m not in known]
    lacking = [m for m in needed if m not in methods]
    if unknown or lacking or not methods:
        also = f", {' and '.join(needed)} among them" if needed else ""
        raise InputError(
            f"methods={list(methods)} must be some of {', '.join(known)}{also}."
        )
    return {m: known[m] for m in known if m in methods}


def _made(out: Folder) -> Path:
    folder = Path(out)
    if folder.exists() and not folder.is_dir():
        raise InputError(f"{str(out)!r} is a file; results go into a folder.")
    folder.mkdir(parents=True, exist_ok=True)
    return folder
