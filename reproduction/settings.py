"""The paper's datasets, figures and methods, and the studies that stand for them.

Settings and published numbers are read from ``settings.toml``; datasets are those that
are given, or simulated ones of the same shape.
"""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np

from brainweave import PaperGDM
from brainweave._core.exceptions import InputError
from brainweave.aligners.gdm.gdm import GDM
from brainweave.aligners.hyperalignment import (
    Hyperalignment,
    KernelHyperalignment,
    RegularizedHyperalignment,
    SVDHyperalignment,
)
from brainweave.aligners.no_alignment import NoAlignment
from brainweave.aligners.srm.robust import RobustSRM
from brainweave.aligners.srm.srm import SRM, DetSRM
from brainweave.evaluation.grid import GridStudy
from brainweave.evaluation.splits import SplitStudy, match_study, split_study
from brainweave.study.simulation import (
    SimulatedStudy,
    SimulationSettings,
    simulate_study,
)
from brainweave.study.study import Study

#: No alignment: the classifier alone.
WITHOUT = "nu-SVM"
#: The six that the paper compares GDM with.
COMPETING = ("HA", "KHA", "SVDHA", "SRM", "RSRM", "RHA")
#: Forms of GDM beside the paper's, which is called "GDM".
OURS = ("GDM, default", "GDM, labels+time")
#: All, in the order of Table 2, the deterministic SRM, and the forms of GDM.
METHODS = (WITHOUT, *COMPETING, "DetSRM", "GDM", *OURS)
#: In the order to compute them in, so that no core waits for the last one.
SLOWEST_FIRST = ("RSRM", *(m for m in METHODS if m != "RSRM"))


@dataclass(frozen=True)
class Dataset:
    """One row of Table 1, with its row of Table 2.

    Attributes
    ----------
    name : str
        As in the paper.
    subjects, samples, voxels, categories : int
        The shape; `samples` are those per subject that are classified.
    n_components : int
        Number of shared features K.
    energy : float
        Share of the singular values that GDM keeps.
    nu : float
        Of the nu-SVM.
    leave_out : int
        Subjects left out at a time.
    graph : str
        Graph of GDM: "labels", or "time" where a film aligns.
    published : mapping of str to tuple of two floats
        Accuracy in per cent and its standard deviation, by method.
    movie_samples, movie_parts, movie_part_samples : int
        Of a film that aligns: its samples, and the parts that are used; else 0.
    signal : float
        Strength of the responses where the dataset is simulated.
    """

    name: str
    subjects: int
    samples: int
    voxels: int
    categories: int
    n_components: int
    energy: float
    nu: float
    leave_out: int
    graph: str
    published: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    movie_samples: int = 0
    movie_parts: int = 0
    movie_part_samples: int = 0
    signal: float = 1.0

    @property
    def n_parts(self) -> int:
        """How often the alignment is learned: from each half, or part of the film."""
        return self.movie_parts or 2

    @property
    def n_folds(self) -> int:
        """Number of folds: 16 subjects, 4 left out, two halves make 8."""
        return -(-self.subjects // self.leave_out) * self.n_parts

    def shrunk(self) -> "Dataset":
        """Return a small dataset of the same kind, to try things out."""
        small = _content()["quick"]
        return replace(
            self,
            subjects=max(4, 2 * self.leave_out),
            samples=self.categories * small["samples_per_category"],
            voxels=small["voxels"],
            signal=small["signal"],
            n_components=min(self.n_components, small["n_components"]),
            movie_part_samples=self.movie_parts and small["movie_part_samples"],
            published={},  # they are of other data
        )


@dataclass(frozen=True)
class Figure:
    """A figure: GDM against incompleteness or energy, a panel per dataset.

    Attributes
    ----------
    name : str
        "figure1", "figureS3", ...
    what : str
        "incompleteness" or "energy".
    kernel, hp : str, float or None
        The kernel of GDM.
    panels : tuple of Dataset
        With the settings of this figure.
    values : tuple of float
        The shares on the horizontal axis.
    """

    name: str
    what: str
    kernel: str
    hp: float | None
    panels: tuple[Dataset, ...]
    values: tuple[float, ...]


@lru_cache(maxsize=1)
def _content() -> dict[str, Any]:
    text = Path(__file__).with_name("settings.toml").read_text("utf-8")
    return tomllib.loads(text)


def datasets() -> list[str]:
    """List the datasets of the paper."""
    return list(_content()["datasets"])


def figures() -> list[str]:
    """List the figures of the paper."""
    return list(_content()["figures"])


def dataset(name: str, *, quick: bool = False) -> Dataset:
    """Return the settings of a dataset.

    Examples
    --------
    >>> dataset("DS001").n_folds
    8
    """
    if name not in datasets():
        raise InputError(
            f"There is no dataset {name!r} in the paper; it has "
            f"{', '.join(datasets())}."
        )
    entry = dict(_content()["datasets"][name])
    published = {k: (v[0], v[1]) for k, v in entry.pop("published").items()}
    simulation = _content()["simulation"]
    found = Dataset(name=name, published=published, **entry, **simulation)
    return found.shrunk() if quick else found


def figure(name: str, *, quick: bool = False) -> Figure:
    """Return the settings of a figure.

    Examples
    --------
    >>> [panel.energy for panel in figure("figureS3").panels]
    [0.65, 0.6, 0.35]
    """
    content = _content()
    if name not in content["figures"]:
        raise InputError(
            f"There is no figure {name!r}; the paper has "
            f"{', '.join(content['figures'])}."
        )
    entry = content["figures"][name]
    changed = {k: entry[k] for k in ("n_components", "energy", "nu") if k in entry}
    panels = []
    for position, panel in enumerate(content["panels"]["datasets"]):
        changes = {
            k: v[position] if isinstance(v, list) else v for k, v in changed.items()
        }
        setting = replace(dataset(panel), **changes)
        panels.append(setting.shrunk() if quick else setting)
    values = content["quick" if quick else "panels"][entry["what"]]
    return Figure(
        name=name,
        what=entry["what"],
        kernel=entry["kernel"],
        hp=entry.get("hp"),
        panels=tuple(panels),
        values=tuple(values),
    )


def competing_methods(n_components: int, n_voxels: int) -> dict[str, Any]:
    """Return all methods but GDM with one number of shared features.

    Their other settings are the defaults of this package, which follow the original
    publications; what the paper chose for them is not stated there. The width of KHA's
    Gaussian kernel is the mean squared distance of two standardised samples.
    """
    k = n_components
    return {
        WITHOUT: NoAlignment(),
        "HA": Hyperalignment(k),
        "KHA": KernelHyperalignment(k, kernel_params={"hp": 2.0 * n_voxels}),
        "SVDHA": SVDHyperalignment(k),
        "SRM": SRM(k),
        "RSRM": RobustSRM(k),
        "RHA": RegularizedHyperalignment(k),
        "DetSRM": DetSRM(k),
    }


def gdm(setting: Dataset, *, kernel: str = "linear", hp: float | None = None) -> GDM:
    """Return GDM with the settings of a dataset."""
    return PaperGDM(
        setting.n_components,
        energy=setting.energy,
        graph=setting.graph,
        kernel=kernel,
        kernel_params=None if hp is None else {"hp": hp},
    )


def our_gdm(graph: str = "labels") -> dict[str, GDM]:
    """Return GDM as it is by default, with shrinkage; and what ids add to labels."""
    if graph == "time":  # a film has no labels
        return {"GDM, default": GDM(graph="time")}
    return {"GDM, default": GDM(), "GDM, labels+time": GDM(graph="labels+time")}


# -- data ------------------------------------------------------------------------------

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
        split = split_study(images, align=parts)
    else:
        split = split_study(match_study(study, "truncate") if aligned else study)
    return GridStudy(setting.name, split, leave_out=setting.leave_out)


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


def simulate_like(
    n_subjects: int,
    n_samples: int,
    n_voxels: int,
    n_categories: int | None,
    *,
    aligned: bool = False,
    **options: Any,
) -> SimulatedStudy:
    """Simulate a study of a given shape, for instance that of a published one.

    Parameters
    ----------
    n_subjects : int
        Number of subjects.
    n_samples : int
        Number of labelled samples of every subject.
    n_voxels : int
        Number of voxels, which are the same for all subjects.
    n_categories : int or None
        Number of categories, shown in blocks; None for a movie.
    aligned : bool, default=False
        Show all subjects the same sequence, so that samples are aligned in time.
    **options
        Further parameters of :func:`simulate_study`.

    Returns
    -------
    SimulatedStudy
        Study of that shape.
    """
    movie = n_categories is None
    return simulate_study(
        n_subjects=n_subjects,
        n_samples=n_samples,
        n_voxels=n_voxels,
        design="movie" if movie else "blocks",
        categories=8 if n_categories is None else n_categories,
        own_sequence=not (movie or aligned),
        **options,
    )


def _simulate(s: Dataset, aligned: bool, seed: int) -> SplitStudy | Study:
    """Simulate a dataset of these settings."""
    shape = s.subjects, s.samples, s.voxels, s.categories
    common: dict[str, Any] = {"signal": s.signal, "random_state": seed}
    if s.movie_parts:
        n_film = s.movie_parts * s.movie_part_samples
        film = simulate_like(s.subjects, n_film, s.voxels, None, **common)
        # one image at a time, every category once in a run; the same people
        images = simulate_like(
            *shape,
            aligned=True,
            n_runs=max(1, s.samples // s.categories),
            settings=SimulationSettings(duration=2.5),
            **common,
        )
        return split_study(images, align=movie_parts(film, s))
    if aligned:
        return simulate_like(*shape, aligned=True, **common)
    # a subject that lacks one of two categories has nothing to tell apart
    lacking = s.subjects // 3 if s.categories > 2 else 0
    return simulate_like(
        *shape, missing_samples=0.1, missing_categories=lacking, **common
    )
