"""The paper's experiments: Table 2, Figures 1 and 2, Figures S3 to S8.

Each writes its numbers, next to the published ones where there are any, and can be
stopped and taken up again: finished cells are in ``store`` in the output folder, which
all experiments with the same folder share.
"""

from collections.abc import Sequence
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sklearn.svm import NuSVC

from brainweave._progress import Progress
from brainweave.evaluation.grid import Grid
from brainweave.evaluation.measures import Classification
from brainweave.evaluation.runner import run_grid
from brainweave.exceptions import InputError
from brainweave.paper import settings
from brainweave.paper.data import Data, check_data, grid_study
from brainweave.paper.methods import (
    COMPETING,
    METHODS,
    SLOWEST_FIRST,
    WITHOUT,
    competing_methods,
    gdm,
)
from brainweave.paper.output import draw_figure, table_of, write_table
from brainweave.paper.settings import Dataset, Figure

if TYPE_CHECKING:
    import pandas as pd

__all__ = [
    "figure",
    "figure1",
    "figure2",
    "figureS3",
    "figureS4",
    "figureS5",
    "figureS6",
    "figureS7",
    "figureS8",
    "table2",
    "unaligned",
]

Folder = str | PathLike[str]


def table2(
    out: Folder,
    *,
    data: Data | None = None,
    datasets: Sequence[str] | None = None,
    methods: Sequence[str] | None = None,
    protocols: Sequence[str] = ("joint",),
    n_permutations: int = 0,
    quick: bool = False,
    random_state: int = 0,
    n_jobs: int | None = None,
    progress: Progress | None = None,
) -> "pd.DataFrame":
    """Compare all methods on temporally aligned datasets: Table 2.

    Parameters
    ----------
    out : path
        Folder for ``table2.csv``, ``table2.md`` and the store of finished cells.
    data : mapping of str to Study, optional
        Real data by the paper's name of the dataset; for Raider a pair, the film and
        the images. Datasets that are not given are simulated in the same shape.
    datasets : sequence of str, optional
        Which to run; default all six.
    methods : sequence of str, optional
        Names from :data:`brainweave.paper.METHODS`; default all nine.
    protocols : sequence of str, default=("joint",)
        The paper's, or "held-out", or both; see
        :func:`brainweave.between_subject_classification`.
    n_permutations : int, default=0
        Permutations for p-values.
    quick : bool, default=False
        Small simulated shapes, to try it out; the numbers mean nothing.
    random_state : int, default=0
        Seed.
    n_jobs : int, optional
        Fits at the same time; default one per core.
    progress : callable, optional
        Called with the number of finished cells, of all cells, and what was done.

    Returns
    -------
    DataFrame
        One row per dataset, method and protocol.
    """
    return _table(
        "table2",
        out,
        [
            settings.dataset(name, quick=quick)
            for name in datasets or settings.datasets()
        ],
        data=_data(data, quick),
        aligned=True,
        methods=methods,
        protocols=protocols,
        n_permutations=n_permutations,
        random_state=random_state,
        n_jobs=n_jobs,
        progress=progress,
    )


def unaligned(
    out: Folder,
    *,
    data: Data | None = None,
    datasets: Sequence[str] | None = None,
    methods: Sequence[str] | None = None,
    protocols: Sequence[str] = ("joint",),
    n_permutations: int = 0,
    quick: bool = False,
    random_state: int = 0,
    n_jobs: int | None = None,
    progress: Progress | None = None,
) -> "pd.DataFrame":
    """Run the same comparison on datasets whose samples are not locked in time.

    Given data are taken as they are; simulated subjects see sequences of their own and
    lack samples and, some of them, a category. The methods that need time-locked
    samples cannot run; the table says why. Parameters are those of :func:`table2`;
    writes ``unaligned.csv`` and ``unaligned.md``.
    """
    names = datasets or [n for n in settings.datasets() if n != "Raider"]
    if "Raider" in names:
        raise InputError(
            "Raider is aligned by its film, which is locked in time: there is no "
            "unaligned version of it. See figure1 for missing samples."
        )
    return _table(
        "unaligned",
        out,
        [settings.dataset(name, quick=quick) for name in names],
        data=_data(data, quick),
        aligned=False,
        methods=methods,
        protocols=protocols,
        n_permutations=n_permutations,
        random_state=random_state,
        n_jobs=n_jobs,
        progress=progress,
    )


def figure(
    name: str,
    out: Folder,
    *,
    data: Data | None = None,
    panels: Sequence[str] | None = None,
    protocol: str = "joint",
    repeats: int = 1,
    quick: bool = False,
    random_state: int = 0,
    n_jobs: int | None = None,
    progress: Progress | None = None,
) -> "pd.DataFrame":
    """Draw a figure of the paper: GDM against incompleteness or energy.

    Parameters
    ----------
    name : str
        "figure1", "figure2", "figureS3" to "figureS8".
    out : path
        Folder for ``<name>.svg``, ``<name>.csv`` and the store of finished cells.
    data : mapping of str to Study, optional
        As in :func:`table2`.
    panels : sequence of str, optional
        Which of the three datasets to run; default all.
    protocol : {"joint", "held-out"}, default="joint"
        The paper's is "joint".
    repeats : int, default=1
        How often samples are removed anew for each incompleteness.
    quick, random_state, n_jobs, progress
        As in :func:`table2`.

    Returns
    -------
    DataFrame
        The curve of GDM, and the lines "without alignment", "best of others" (of the
        six competing methods, with complete data) and "guess", for each panel.
    """
    plan = settings.figure(name, quick=quick)
    chosen = _chosen_panels(plan, panels)
    given = _data(data, quick)
    grids = []
    for setting in chosen:
        study = grid_study(setting, given.get(setting.name), random_state=random_state)
        measure = Classification(NuSVC(nu=setting.nu, kernel="linear"))
        model = gdm(setting, kernel=plan.kernel, hp=plan.hp)
        common: dict[str, Any] = {
            "protocols": (protocol,),
            "measure": measure,
            "random_state": random_state,
        }
        # the lines are of the settings of Table 1, and shared with table2
        k = settings.dataset(setting.name, quick=quick).n_components
        others = competing_methods(k, _n_voxels(setting, given))
        lines = {m: others[m] for m in SLOWEST_FIRST if m in (WITHOUT, *COMPETING)}
        grids.append(Grid(study, lines, **common))
        if plan.what == "energy":
            grids.append(
                Grid(study, {"GDM": model}, vary={"energy": plan.values}, **common)
            )
        else:
            whole = [v for v in plan.values if v == 0]
            rest = [v for v in plan.values if v > 0]
            grids.append(Grid(study, {"GDM": model}, missing=whole, **common))
            grids.append(
                Grid(study, {"GDM": model}, missing=rest, repeats=repeats, **common)
            )
    folder = _folder(out)
    result = run_grid(grids, folder / "store", n_jobs=n_jobs, progress=progress)
    simulated = {s.name: s.name not in given for s in chosen}
    return draw_figure(plan, chosen, result.summary(), folder, simulated=simulated)


def figure1(out: Folder, **options: Any) -> "pd.DataFrame":
    """Draw Figure 1, incompleteness with the linear kernel; see :func:`figure`."""
    return figure("figure1", out, **options)


def figure2(out: Folder, **options: Any) -> "pd.DataFrame":
    """Draw Figure 2, energy with the linear kernel; see :func:`figure`."""
    return figure("figure2", out, **options)


def figureS3(out: Folder, **options: Any) -> "pd.DataFrame":
    """Draw Figure S3, incompleteness, Gaussian kernel; see :func:`figure`."""
    return figure("figureS3", out, **options)


def figureS4(out: Folder, **options: Any) -> "pd.DataFrame":
    """Draw Figure S4, incompleteness, quadratic kernel; see :func:`figure`."""
    return figure("figureS4", out, **options)


def figureS5(out: Folder, **options: Any) -> "pd.DataFrame":
    """Draw Figure S5, incompleteness, sigmoid kernel; see :func:`figure`."""
    return figure("figureS5", out, **options)


def figureS6(out: Folder, **options: Any) -> "pd.DataFrame":
    """Draw Figure S6, energy, Gaussian kernel; see :func:`figure`."""
    return figure("figureS6", out, **options)


def figureS7(out: Folder, **options: Any) -> "pd.DataFrame":
    """Draw Figure S7, energy, quadratic kernel; see :func:`figure`."""
    return figure("figureS7", out, **options)


def figureS8(out: Folder, **options: Any) -> "pd.DataFrame":
    """Draw Figure S8, energy, sigmoid kernel; see :func:`figure`."""
    return figure("figureS8", out, **options)


def _table(
    name: str,
    out: Folder,
    chosen: list[Dataset],
    *,
    data: dict[str, Any],
    aligned: bool,
    methods: Sequence[str] | None,
    protocols: Sequence[str],
    n_permutations: int,
    random_state: int,
    n_jobs: int | None,
    progress: Progress | None,
) -> "pd.DataFrame":
    wanted = list(METHODS) if methods is None else list(methods)
    unknown = [m for m in wanted if m not in METHODS]
    if unknown or not wanted:
        raise InputError(f"methods={wanted} must be some of {', '.join(METHODS)}.")
    grids = []
    for setting in chosen:
        k, v = setting.n_components, _n_voxels(setting, data)
        known = {**competing_methods(k, v), "GDM": gdm(setting)}
        grids.append(
            Grid(
                grid_study(
                    setting,
                    data.get(setting.name),
                    aligned=aligned,
                    random_state=random_state,
                ),
                {m: known[m] for m in SLOWEST_FIRST if m in wanted},
                protocols=protocols,
                measure=Classification(
                    NuSVC(nu=setting.nu, kernel="linear"), n_permutations
                ),
                random_state=random_state,
            )
        )
    folder = _folder(out)
    result = run_grid(grids, folder / "store", n_jobs=n_jobs, progress=progress)
    table = table_of(result.summary(), chosen, simulated=lambda n: n not in data)
    write_table(table, folder, name, published=aligned)
    return table


def _data(data: Data | None, quick: bool) -> dict[str, Any]:
    if quick and data:
        raise InputError("quick=True simulates small studies; give no data with it.")
    return check_data(data)


def _n_voxels(setting: Dataset, data: dict[str, Any]) -> int:
    study = data.get(setting.name)
    if study is None:
        return setting.voxels
    return max(s.n_voxels for s in (study[1] if isinstance(study, tuple) else study))


def _chosen_panels(plan: Figure, panels: Sequence[str] | None) -> list[Dataset]:
    known = [p.name for p in plan.panels]
    wanted = known if panels is None else list(panels)
    unknown = [p for p in wanted if p not in known]
    if unknown or not wanted:
        raise InputError(
            f"panels={wanted} of {plan.name} must be some of {', '.join(known)}."
        )
    return [p for p in plan.panels if p.name in wanted]


def _folder(out: Folder) -> Path:
    folder = Path(out)
    if folder.exists() and not folder.is_dir():
        raise InputError(f"{str(out)!r} is a file; results go into a folder.")
    folder.mkdir(parents=True, exist_ok=True)
    return folder
