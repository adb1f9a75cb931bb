"""Places on registered brains: a story in 36 people, a film in 17.

Both are in one space for all subjects, as they are; with the columns of every subject
shuffled they are not, and nothing may be lost.
"""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from brainweave import (
    GDM,
    SRM,
    Hyperalignment,
    NoAlignment,
    RegularizedHyperalignment,
    compare_methods,
    save,
)
from brainweave._core.workers import Progress
from brainweave.aligners.maps import SubjectMap
from brainweave.evaluation.evaluate import PROTOCOLS
from brainweave.study.study import Study
from brainweave.study.subject import Subject
from reproduction.output import markdown, percent, result_folder, write_table
from reproduction.real import Folder, _find_files, load_pieman

if TYPE_CHECKING:
    import pandas as pd

SETTINGS = {  # number of features, samples per segment, subjects left out
    "Pieman": (30, 10, 4),
    "Sherlock": (20, 9, 1),
}
ZERO_SHOT = "GDM, left out without aligning data"


class ZeroShot(GDM):
    """A GDM whose new subjects have no aligning data: the shared map is theirs."""

    def fit_new_subject(
        self, X: Any, y: Any = None, *, edges: Any = None
    ) -> SubjectMap:
        """Return the shared map, with the mean and deviation of the samples."""
        return self.shared_map_.map_for(getattr(X, "_data", X))


def load_sherlock(folder: Folder) -> Study:
    """Read the film: 17 subjects, 946 samples of 481 voxels, locked in time."""
    (file,) = _find_files(folder, "sherlock_pmc", ("run1.npz",))
    with np.load(Path(file)) as stored:
        movie = stored["movie"].astype(np.float64)
    people = [Subject(f"{i + 1:02d}", x) for i, x in enumerate(movie)]
    return Study(people, name="Sherlock")


def shuffled(study: Study, seed: int = 0) -> Study:
    """Return the study with the columns of every subject in an order of their own."""
    rng = np.random.default_rng(seed)
    return Study(
        [Subject(s.id, s.data()[:, rng.permutation(s.n_voxels)]) for s in study],
        name=f"{study.name}, shuffled",
    )


def methods(k: int) -> dict[str, Any]:
    """Return the methods that are compared, with k features."""
    return {
        "no alignment": NoAlignment(),
        "SRM": SRM(k),
        "HA": Hyperalignment(k),
        "RHA": RegularizedHyperalignment(k),
        "GDM without place": GDM(k, graph="time", place=None),
        "GDM": GDM(k, graph="time"),
        ZERO_SHOT: ZeroShot(k, graph="time", shrinkage=3.0, place_shrinkage=0.1),
    }


def registered(
    data: Folder,
    out: Folder,
    *,
    random_state: int = 0,
    n_jobs: int | None = None,
    progress: Progress | None = None,
) -> "pd.DataFrame":
    """Match segments of a story and a film, as they are and with shuffled columns.

    Parameters
    ----------
    data : path
        Folder with ``pieman_htfa`` and ``sherlock_pmc``.
    out : path
        Folder for ``registered.csv``, ``registered.md``, and the model
        ``pieman_shared.safetensors``: anybody with these 100 factors can be mapped by
        its ``shared_map_``. The data are under the MIT licence.
    random_state : int, default=0
        Seed of the shuffling.
    n_jobs, progress
        As in :func:`table2`.

    Returns
    -------
    DataFrame
        One row per data, method and protocol; ``se`` is over subjects.
    """
    import pandas as pd

    folder, rows = result_folder(out), []
    studies = [load_pieman(data), load_sherlock(data)]
    for original in studies:
        k, window, leave_out = SETTINGS[original.name.capitalize()]
        for study in (original, shuffled(original, random_state)):
            both = methods(k)
            alone = {ZERO_SHOT: both.pop(ZERO_SHOT)}
            asked: list[Any] = [(both, PROTOCOLS)]
            if study is original:  # else there is no shared map; joint, nobody is new
                asked.append((alone, ("held-out",)))
            for chosen, protocols in asked:
                compared = compare_methods(
                    study,
                    chosen,
                    measure="matching",
                    window=window,
                    leave_out=leave_out,
                    protocols=protocols,
                    store=folder / "store",
                    n_jobs=n_jobs,
                    progress=progress,
                )
                rows += [
                    _row(study.name, name.removesuffix(f" ({r.protocol})"), r)
                    for name, r in compared.results.items()
                ]
    table = pd.DataFrame(rows)
    write_table(folder, "registered", table, registered_text(table))
    save(
        GDM(SETTINGS["Pieman"][0], graph="time").fit(studies[0]),
        folder / "pieman_shared.safetensors",
    )
    return table


def _row(name: str, method: str, result: Any) -> dict[str, Any]:
    found = np.mean(result.scores, axis=0)
    return {
        "data": name.capitalize(),
        "method": method,
        "protocol": result.protocol,
        "mean": float(found.mean()),
        "se": float(found.std(ddof=1) / np.sqrt(found.size)),
        "chance": result.chance,
    }


def registered_text(table: "pd.DataFrame") -> str:
    """Write a row per method, a column per data and protocol."""
    keys = list(dict.fromkeys(zip(table["data"], table["protocol"], strict=True)))
    cells = table.set_index(["method", "data", "protocol"])
    rows = []
    for method in dict.fromkeys(table["method"]):
        found = [
            percent(*cells.loc[(method, *key), ["mean", "se"]])
            if (method, *key) in cells.index
            else ""
            for key in keys
        ]
        rows.append([method, *found])
    titles = ["segments found", *(f"{data}, {protocol}" for data, protocol in keys)]
    return markdown(titles, rows)
