"""All methods on two small real studies: Raider's images, and a story."""

from collections.abc import Callable, Sequence
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.svm import NuSVC

from brainweave.aligners.gdm import GDM
from brainweave.aligners.semisupervised_srm import SemiSupervisedSRM
from brainweave.evaluation.grid import Grid, GridStudy
from brainweave.evaluation.measures import Classification, Matching
from brainweave.evaluation.results import GridResult
from brainweave.evaluation.runner import run_grid
from brainweave.evaluation.store import write_atomically
from brainweave.evaluation.tuning import GDMCV
from brainweave.exceptions import InputError, StudyError
from brainweave.paper import settings
from brainweave.paper.methods import COMPETING, WITHOUT, competing_methods
from brainweave.paper.output import markdown, percent, save_figure
from brainweave.study.matlab import load_matlab
from brainweave.study.study import Study

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["load_pieman", "load_raider_images", "pieman", "raider"]

Progress = Callable[[int, int, str], None]
Folder = str | PathLike[str]

N_COMPONENTS = 6  # what 7 categories tell apart at most
ENERGY = 0.82  # Table 1's for datasets with categories
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
    n_permutations: int = 200,
    repeats: int = 10,
    random_state: int = 0,
    n_jobs: int | None = None,
    progress: Progress | None = None,
) -> "pd.DataFrame":
    """Compare all methods on the real Raider images, runs 1-4 against 5-8.

    Each half of the runs aligns once; two subjects are left out at a time, and a
    linear nu-SVM with nu = 0.5 is trained on the others: 10 folds. All methods have 6
    shared features, as many as 7 categories tell apart; GDM keeps 82 % energy.

    Parameters
    ----------
    data : path or Study
        Folder of the files (see :func:`load_raider_images`), or the study.
    out : path
        Folder for ``raider.csv``, ``raider.md``, ``raider_energy.svg`` and ``.csv``,
        ``raider_incompleteness.svg`` and ``.csv``, and the store of finished cells.
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
    methods = {
        **competing_methods(k, v),
        "SSSRM": SemiSupervisedSRM(k),
        "GDM": model,
        "GDM, time graph": GDM(k, energy=ENERGY, graph="time"),
        "GDMCV": GDMCV(leave_out=setting.leave_out),
    }
    plain = Classification(classifier)
    grids = [
        Grid(
            source, methods, measure=Classification(classifier, n_permutations), **both
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
    ]
    # one after the other, so that each has its own summary; they share the store
    store = folder / "store"
    main, energy, missing = (
        run_grid(grid, store, n_jobs=n_jobs, progress=progress) for grid in grids
    )
    table = _ordered(main.summary(), list(methods))
    write_atomically(folder / "raider.csv", table.to_csv(index=False))
    write_atomically(folder / "raider.md", _raider_text(table, main))
    _raider_curves(folder, table, energy, missing)
    return table


def _ordered(summary: "pd.DataFrame", methods: list[str]) -> "pd.DataFrame":
    order = sorted(
        range(len(summary)),
        key=lambda i: (
            methods.index(summary["method"].iloc[i]),
            summary["protocol"].iloc[i] != "joint",
        ),
    )
    return summary.iloc[order].reset_index(drop=True)


def _raider_text(table: "pd.DataFrame", result: GridResult) -> str:
    joint, held = (
        table[table["protocol"] == p].set_index("method") for p in ("joint", "held-out")
    )
    rows = []
    for method in joint.index:
        row = [str(method)]
        for found in (joint, held):
            mean, std = found.loc[method, "mean"], found.loc[method, "std"]
            failed = found.loc[method, "n_failed"] > 0
            row += (
                ["—", "—"]
                if failed
                else [
                    percent(mean, std),
                    f"{found.loc[method, 'p_value']:.3f}",
                ]
            )
        rows.append(row)
    text = markdown(["method", "joint", "p", "held-out", "p"], rows)
    text += "\n" + _verdict(joint, held) + "\n" + _chosen(result)
    for (method, protocol), why in table.set_index(["method", "protocol"])[
        "error"
    ].items():
        text += f"\n{method}, {protocol}, is missing: {why}\n" if why else ""
    return text


def _verdict(joint: "pd.DataFrame", held: "pd.DataFrame") -> str:
    """Say plainly which method is best, and where GDM stands."""
    sentences = []
    for name, found in (("joint", joint), ("held-out", held)):
        means = found["mean"].drop(["GDMCV", "GDM, time graph"], errors="ignore")
        best, rank = means.idxmax(), int((means > means["GDM"]).sum()) + 1
        gdm = percent(means["GDM"])
        if rank == 1:
            others = means.drop("GDM")
            sentences.append(
                f"Under the {name} protocol GDM is the best method ({gdm} %), before "
                f"{others.idxmax()} ({percent(others.max())} %)."
            )
        else:
            sentences.append(
                f"Under the {name} protocol GDM ({gdm} %) is not the best: {best} "
                f"reaches {percent(means[best])} %; GDM is number {rank} of "
                f"{means.notna().sum()}."
            )
    chance = float(joint["chance"].iloc[0])
    sentences.append(f"Guessing reaches {percent(chance)} %.")
    return " ".join(sentences) + "\n"


def _chosen(result: GridResult) -> str:
    """Tell what GDMCV chose, half by half (and fold by fold where it saw others)."""
    rows: dict[tuple[str, int], dict[str, int]] = {}
    for record in result.records:
        chosen = record.get("best_params")
        if chosen:
            counts = rows.setdefault((record["protocol"], record["half"]), {})
            text = f"energy {chosen['energy']}, K {chosen['n_components']}"
            counts[text] = counts.get(text, 0) + 1
    lines = []
    for (protocol, half), counts in sorted(rows.items(), reverse=True):
        said = "; ".join(
            f"{text} ({n} of {sum(counts.values())} folds)"
            for text, n in counts.items()
        )
        lines.append(f"- {protocol}, aligned with half {half + 1}: {said}\n")
    return "\nGDMCV chose:\n\n" + "".join(lines) if lines else ""


def _raider_curves(
    folder: Path, table: "pd.DataFrame", energy: GridResult, missing: GridResult
) -> None:
    import pandas as pd

    from brainweave.plotting import CurvePanel, plot_curve_panels

    curves = {"energy": energy.summary(), "incompleteness": missing.summary()}
    curves["energy"]["x"] = curves["energy"]["param_energy"]
    whole = table[table["method"] == "GDM"].assign(missing=0.0)
    curves["incompleteness"] = pd.concat([whole, curves["incompleteness"]])
    curves["incompleteness"]["x"] = curves["incompleteness"]["missing"]
    for what, found in curves.items():
        panels = []
        for protocol in ("joint", "held-out"):
            own = found[found["protocol"] == protocol].sort_values("x")
            means = table[table["protocol"] == protocol].set_index("method")["mean"]
            panels.append(
                CurvePanel(
                    f"Raider images, {protocol}",
                    (100 * own["x"]).tolist(),
                    {"GDM": own["mean"].tolist()},
                    {"GDM": own["std"].tolist()},
                    {
                        "without alignment": float(means[WITHOUT]),
                        "best of others": float(means[list(COMPETING)].max()),
                        "guess": float(table["chance"].iloc[0]),
                    },
                )
            )
        columns = ["protocol", "x", "mean", "std", "n_folds", "n_failed", "error"]
        numbers = found[columns].rename(columns={"x": what})
        numbers = numbers.sort_values(["protocol", what], ascending=[False, True])
        write_atomically(folder / f"raider_{what}.csv", numbers.to_csv(index=False))
        drawn = plot_curve_panels(panels, xlabel=f"{what} (%)")
        save_figure(drawn, folder / f"raider_{what}.svg")


def pieman(
    data: Folder | Study,
    out: Folder,
    *,
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
    n = study[0].n_samples
    first = np.arange(n) < n // 2
    k, v = n_components, max(s.n_voxels for s in study)
    methods = {
        **competing_methods(k, v),
        "SSSRM": SemiSupervisedSRM(k),
        "GDM": GDM(k, energy=ENERGY, graph="time"),
    }
    grid = Grid(
        GridStudy("pieman", study, halves=[first] * len(study), leave_out=LEAVE_OUT),
        methods,
        protocols=("joint", "held-out"),
        measure=Matching(window),
        random_state=random_state,
    )
    result = run_grid(grid, folder / "store", n_jobs=n_jobs, progress=progress)
    table = _ordered(result.summary(), list(methods))
    write_atomically(folder / "pieman.csv", table.to_csv(index=False))
    write_atomically(folder / "pieman.md", _pieman_text(table))
    return table


def _pieman_text(table: "pd.DataFrame") -> str:
    joint, held = (
        table[table["protocol"] == p].set_index("method") for p in ("joint", "held-out")
    )
    rows = [
        [str(m)]
        + [
            "—" if f.loc[m, "n_failed"] else percent(f.loc[m, "mean"], f.loc[m, "std"])
            for f in (joint, held)
        ]
        for m in joint.index
    ]
    text = markdown(["method", "joint", "held-out"], rows)
    text += (
        f"\nGuessing reaches {percent(float(joint['chance'].dropna().iloc[0]))} %.\n"
    )
    for method, why in joint["error"].items():
        text += f"\n{method} is missing: {why}\n" if why else ""
    return text


def _made(out: Folder) -> Path:
    folder = Path(out)
    if folder.exists() and not folder.is_dir():
        raise InputError(f"{str(out)!r} is a file; results go into a folder.")
    folder.mkdir(parents=True, exist_ok=True)
    return folder
