"""All methods on two small real studies: Raider's images, and a story."""

import itertools
from collections.abc import Sequence
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from brainweave import PaperGDM
from brainweave._core.exceptions import StudyError
from brainweave._core.workers import Progress
from brainweave.aligners.gdm.gdm import GDM
from brainweave.aligners.hyperalignment import Hyperalignment, RegularizedHyperalignment
from brainweave.aligners.srm.semisupervised import SemiSupervisedSRM
from brainweave.aligners.srm.srm import SRM
from brainweave.evaluation.evaluate import PROTOCOLS
from brainweave.evaluation.grid import Grid, GridStudy, run_grid
from brainweave.evaluation.measures import Matching
from brainweave.evaluation.splits import split_study
from brainweave.evaluation.tuning import GDMCV
from brainweave.study.formats.matlab import load_matlab
from brainweave.study.study import Study
from reproduction.grids import BothNuSVMs, summarise, vary, with_missing
from reproduction.output import (
    count_choices,
    draw_curves,
    pieman_text,
    raider_text,
    result_folder,
    select_methods,
    sort_by_order,
    splits_text,
    write_table,
)
from reproduction.settings import (
    WITHOUT,
    competing_methods,
    dataset,
    our_gdm,
)

if TYPE_CHECKING:
    import pandas as pd


Folder = str | PathLike[str]

N_COMPONENTS = 6  # what 7 categories tell apart at most
ENERGY = 0.82  # Table 1's for datasets with categories
NUMBERS = (6, 10, 20)
ENERGIES = (0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.82, 0.9, 0.95, 1.0)
MISSING = (0.1, 0.2, 0.3, 0.4, 0.5)
LEAVE_OUT = 4  # subjects of the story
PAPER = "paper's GDM, K = 10"
_IMAGES = ("image_data_lh.mat", "image_data_rh.mat", "label.mat")


def load_raider_images(folder: Folder) -> Study:
    """Read the image half of Raider: 10 subjects, 8 runs of 7 categories.

    Parameters
    ----------
    folder : path
        With ``image_data_lh.mat``, ``image_data_rh.mat`` and ``label.mat``, or with a
        folder ``raider_images`` that has them.

    Returns
    -------
    Study
        56 samples of 1000 voxels per subject, with labels and runs.
    """
    left, right, label = _find_files(folder, "raider_images", _IMAGES)
    runs = np.repeat(range(1, 9), 7)
    return load_matlab([left, right], labels=label, runs=runs, name="Raider")


def load_pieman(folder: Folder) -> Study:
    """Read the story: 36 subjects, 300 samples of 100 factors, locked in time.

    Parameters
    ----------
    folder : path
        With ``weights.mat``, or with a folder ``pieman_htfa`` that has it.

    Returns
    -------
    Study
        Without labels.
    """
    (file,) = _find_files(folder, "pieman_htfa", ("weights.mat",))
    return load_matlab(file, name="pieman")


def _find_files(folder: Folder, inside: str, names: Sequence[str]) -> list[Path]:
    """Return the files of these names in a folder, or in the one inside it."""
    for parent in (Path(folder), Path(folder) / inside):
        files = [parent / name for name in names]
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
    linear nu-SVM with nu = 0.5 is trained on the others: 10 folds. The table has both:
    overlapping pairs by their means, and LIBSVM's. All methods have 6 shared features,
    as many as 7 categories tell apart, and then 10 and 20; the paper's GDM keeps 82 %
    energy, and GDM as it is by default chooses all by itself.

    Parameters
    ----------
    data : path or Study
        Folder of the files (see :func:`load_raider_images`), or the study.
    out : path
        Folder for ``raider.csv``, ``raider_components.csv``, ``raider.md``,
        ``raider_choices.csv`` (of GDMCV),
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
    folder = result_folder(out)
    study = data if isinstance(data, Study) else load_raider_images(data)
    setting = dataset("Raider")
    split = split_study(study, halves="run")
    source = GridStudy("Raider", split, leave_out=setting.leave_out)
    k, v = N_COMPONENTS, max(s.n_voxels for s in study)
    available = {
        **competing_methods(k, v),
        "SSSRM": SemiSupervisedSRM(k),
        "GDM": PaperGDM(k, energy=ENERGY),
        "GDM, time graph": PaperGDM(k, energy=ENERGY, graph="time"),
        "GDMCV": GDMCV(leave_out=setting.leave_out),
        **our_gdm(),
    }
    chosen = select_methods(available, methods, required=(WITHOUT, "GDM"))
    gdm = {"GDM": available["GDM"]}
    sized = {m: a for m, a in chosen.items() if m not in (WITHOUT, "GDMCV")}

    def grid(methods: dict[str, Any], n_permutations: int = 0) -> Grid:
        measure = BothNuSVMs(setting.nu, n_permutations)
        return Grid(source, methods, PROTOCOLS, measure, random_state)

    def run(grids: Any) -> Any:
        return run_grid(grids, folder / "store", n_jobs=n_jobs, progress=progress)

    # one after the other, so that each has its own summary; they share the store
    main = run(grid(chosen, n_permutations))
    energy = run(vary(grid(gdm), "energy", ENERGIES))
    missing = run(with_missing(grid(gdm), MISSING, repeats))
    number = run(vary(grid(sized), "n_components", NUMBERS))
    order = {"method": list(available), "protocol": PROTOCOLS}
    table = sort_by_order(summarise(main), **order)
    by_number = sort_by_order(summarise(number), **order)
    choices = count_choices(main)
    write_table(folder, "raider", table, raider_text(table, by_number, choices))
    write_table(folder, "raider_choices", choices)
    write_table(folder, "raider_components", by_number)
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
    folder = result_folder(out)
    study = data if isinstance(data, Study) else load_pieman(data)
    n = study.subjects[0].n_samples
    first = np.arange(n) < n // 2
    k, v = n_components, max(s.n_voxels for s in study)
    available = {
        **competing_methods(k, v),
        "SSSRM": SemiSupervisedSRM(k),
        "GDM": PaperGDM(k, energy=ENERGY, graph="time"),
        **our_gdm("time"),
    }
    split = split_study(study, halves=[first] * len(study))
    grid = Grid(
        GridStudy("pieman", split, leave_out=LEAVE_OUT),
        select_methods(available, methods),
        protocols=PROTOCOLS,
        measure=Matching(window),
        random_state=random_state,
    )
    result = run_grid(grid, folder / "store", n_jobs=n_jobs, progress=progress)
    table = sort_by_order(summarise(result), method=list(available), protocol=PROTOCOLS)
    write_table(folder, "pieman", table, pieman_text(table))
    return table


# -- all ways of halving ---------------------------------------------------------------


def halvings(runs: Sequence[Any]) -> list[tuple[Any, ...]]:
    """Return all ways of taking half of the runs, each way once with its complement.

    Examples
    --------
    >>> halvings([1, 2, 3, 4])
    [(1, 2), (1, 3), (1, 4)]
    >>> len(halvings(range(8)))
    35
    """
    names = list(dict.fromkeys(runs))
    ways = itertools.combinations(names, len(names) // 2)
    return [way for way in ways if names[0] in way]


def raider_all_splits(
    data: Folder | Study,
    out: Folder,
    *,
    methods: Sequence[str] | None = None,
    most: int | None = None,
    random_state: int = 0,
    n_jobs: int | None = None,
    progress: Progress | None = None,
) -> "pd.DataFrame":
    """Classify Raider's images under all ways of halving the runs, both protocols.

    One way of halving 8 runs is one draw: methods that differ by 4 points on it may
    change places on the next. So every way is taken, both directions, and the means and
    their standard errors over ways are told. Nothing is tuned on what is scored.

    Parameters
    ----------
    data : path or Study
        Folder of the files (see :func:`load_raider_images`), or the study.
    out : path
        Folder for ``raider_all_splits.csv`` and ``.md``, and the store.
    methods : sequence of str, optional
        Rows of the table; default all.
    most : int, optional
        Take this many ways only.
    random_state, n_jobs, progress
        As in :func:`table2`.

    Returns
    -------
    DataFrame
        One row per method and protocol: ``mean``, its standard error ``se`` over ways
        of halving, and ``over_paper``, the mean paired difference to the paper's GDM
        with its own ``over_paper_se``; ``beside_mean`` and ``beside_se`` are those of
        LIBSVM's nu-SVM in place of the default classifier.
    """
    folder = result_folder(out)
    study = data if isinstance(data, Study) else load_raider_images(data)
    reliable: Any = {"standardize": "reliability"}
    available = {
        PAPER: PaperGDM(10, energy=ENERGY),
        "paper's GDM, K = 6": PaperGDM(6, energy=ENERGY),
        "RHA, K = 10": RegularizedHyperalignment(10),
        "SRM, K = 10": SRM(10),
        "HA, K = 10": Hyperalignment(10),
        "GDM, shrinkage, K = 6": GDM(6),
        "+ reliable voxels": GDM(6, **reliable),
        "+ labels and time, K = 20": GDM(20, graph="labels+time", **reliable),
        "RHA with reliable voxels, K = 10": RegularizedHyperalignment(10, **reliable),
        "RHA tuned": RegularizedHyperalignment(10, alpha="auto"),
        "RHA with reliable voxels, tuned": RegularizedHyperalignment(
            10, alpha="auto", **reliable
        ),
    }
    chosen = select_methods(available, methods)
    runs = [np.asarray(s.runs) for s in study]
    grids = [
        Grid(
            GridStudy(
                f"Raider, runs {' '.join(map(str, way))}",
                split_study(study, halves=[np.isin(own, way) for own in runs]),
                leave_out=min(2, len(study) - 1),
            ),
            chosen,
            protocols=PROTOCOLS,
            measure=BothNuSVMs(),
            random_state=random_state,
        )
        for way in halvings(runs[0].tolist())[:most]
    ]
    result = run_grid(grids, folder / "store", n_jobs=n_jobs, progress=progress)
    table = _summarise_splits(summarise(result), list(chosen))
    write_table(folder, "raider_all_splits", table, splits_text(table))
    return table


def _summarise_splits(summary: "pd.DataFrame", methods: list[str]) -> "pd.DataFrame":
    """Return means, and differences to the paper's GDM, over ways of halving."""
    import pandas as pd

    where: Any = {"index": "study", "columns": ["method", "protocol"]}
    means = summary.pivot(**where, values="mean")
    plain = summary.pivot(**where, values="beside_mean")
    rows = []
    for method, protocol in itertools.product(methods, PROTOCOLS):
        own = means[method, protocol]
        row = {"method": method, "protocol": protocol, "mean": own.mean()}
        row |= {"se": _standard_error(own), "n_splits": len(own)}
        beside = plain[method, protocol]
        row |= {"beside_mean": beside.mean(), "beside_se": _standard_error(beside)}
        if method != PAPER and (PAPER, protocol) in means:
            over = own - means[PAPER, protocol]
            row |= {"over_paper": over.mean(), "over_paper_se": _standard_error(over)}
        errors = summary.loc[summary["method"] == method, "error"]
        row["error"] = next((error for error in errors if error), "")
        rows.append(row)
    return pd.DataFrame(rows)


def _standard_error(values: "pd.Series[float]") -> float:
    return float(values.std() / np.sqrt(len(values)))
