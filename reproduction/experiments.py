"""The paper's experiments: Table 2, Figures 1 and 2, Figures S3 to S8.

Each writes its numbers, next to the published ones where there are any, and can be
stopped and taken up again: finished cells are in ``store`` in the output folder, which
all experiments with the same folder share.
"""

from collections.abc import Sequence
from functools import partial
from os import PathLike
from typing import TYPE_CHECKING, Any

from brainweave._core.exceptions import InputError
from brainweave._core.workers import Progress
from brainweave.evaluation.grid import Grid, run_grid
from reproduction import settings
from reproduction.grids import BothNuSVMs, summarise, vary, with_missing
from reproduction.output import (
    add_published,
    draw_figure,
    result_folder,
    select_methods,
    table_text,
    write_table,
)
from reproduction.settings import (
    COMPETING,
    METHODS,
    SLOWEST_FIRST,
    WITHOUT,
    Data,
    Dataset,
    check_data,
    competing_methods,
    gdm,
    grid_study,
    our_gdm,
)

if TYPE_CHECKING:
    import pandas as pd


Folder = str | PathLike[str]


def table2(
    out: Folder,
    *,
    aligned: bool = True,
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
    aligned : bool, default=True
        Whether samples are locked in time, as in the paper's table; see
        ``unaligned`` for when they are not.
    data : mapping of str to Study, optional
        Real data by the paper's name of the dataset; for Raider a pair, the film and
        the images. Datasets that are not given are simulated in the same shape.
    datasets : sequence of str, optional
        Which to run; default all six.
    methods : sequence of str, optional
        Names from :data:`reproduction.METHODS`; default all.
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
        One row per dataset, method and protocol: ``mean`` and ``std`` with the default
        classifier, which goes by means for pairs of categories that overlap, and
        ``beside_mean`` and ``beside_std`` with LIBSVM's nu-SVM, the paper's.
    """
    given = check_data(data, quick=quick)
    wanted = select_methods(dict.fromkeys(METHODS), methods)
    names = datasets or settings.datasets()
    chosen = [settings.dataset(name, quick=quick) for name in names]
    grids = []
    for setting in chosen:
        k, v = setting.n_components, _n_voxels(setting, given)
        available = {**competing_methods(k, v), "GDM": gdm(setting)}
        available |= our_gdm(setting.graph)
        study = grid_study(
            setting,
            given.get(setting.name),
            aligned=aligned,
            random_state=random_state,
        )
        grids.append(
            Grid(
                study,
                {
                    m: available[m]
                    for m in SLOWEST_FIRST
                    if m in wanted and m in available
                },
                protocols=protocols,
                measure=BothNuSVMs(setting.nu, n_permutations),
                random_state=random_state,
            )
        )
    folder = result_folder(out)
    result = run_grid(grids, folder / "store", n_jobs=n_jobs, progress=progress)
    table = add_published(summarise(result), chosen, real=given)
    name = "table2" if aligned else "unaligned"
    write_table(folder, name, table, table_text(table, published=aligned))
    return table


def unaligned(
    out: Folder, *, datasets: Sequence[str] | None = None, **options: Any
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
    return table2(out, aligned=False, datasets=names, **options)


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
        "figure1" (incompleteness) or "figure2" (energy), with the linear kernel;
        "figureS3" to "figureS5" (incompleteness) or "figureS6" to "figureS8" (energy),
        with the Gaussian, quadratic and sigmoid kernels. Each is a function, too.
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
    names = [panel.name for panel in plan.panels]
    wanted = names if panels is None else list(panels)
    if not wanted or not set(wanted) <= set(names):
        raise InputError(
            f"panels={wanted} of {plan.name} must be some of {', '.join(names)}."
        )
    chosen = [panel for panel in plan.panels if panel.name in wanted]
    given = check_data(data, quick=quick)
    grids = []
    for setting in chosen:
        study = grid_study(setting, given.get(setting.name), random_state=random_state)
        measure = BothNuSVMs(setting.nu)
        model = {"GDM": gdm(setting, kernel=plan.kernel, hp=plan.hp)}
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
            grids += vary(Grid(study, model, **common), "energy", plan.values)
        else:
            whole = [v for v in plan.values if v == 0]
            rest = [v for v in plan.values if v > 0]
            grids += with_missing(Grid(study, model, **common), whole)
            grids += with_missing(Grid(study, model, **common), rest, repeats)
    folder = result_folder(out)
    result = run_grid(grids, folder / "store", n_jobs=n_jobs, progress=progress)
    return draw_figure(plan, chosen, summarise(result), folder, real=given)


# Incompleteness with the linear kernel; energy with the linear kernel; then the same
# with the Gaussian, quadratic and sigmoid kernels.
figure1 = partial(figure, "figure1")
figure2 = partial(figure, "figure2")
figureS3 = partial(figure, "figureS3")
figureS4 = partial(figure, "figureS4")
figureS5 = partial(figure, "figureS5")
figureS6 = partial(figure, "figureS6")
figureS7 = partial(figure, "figureS7")
figureS8 = partial(figure, "figureS8")


def _n_voxels(setting: Dataset, data: dict[str, Any]) -> int:
    study = data.get(setting.name)
    if study is None:
        return setting.voxels
    return max(s.n_voxels for s in (study[1] if isinstance(study, tuple) else study))
