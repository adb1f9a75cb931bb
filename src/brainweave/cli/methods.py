"""From a method's options to an aligner, and the samples and voxels that it gets."""

import inspect
import re
from collections.abc import Iterable
from dataclasses import dataclass, field, fields, make_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from brainweave._core.exceptions import warn_user
from brainweave.cli.console import Console, UsageError
from brainweave.cli.options import (
    RUN_PANEL,
    option,
    parse_params,
    refuse_unknown,
    with_params,
)

if TYPE_CHECKING:
    from brainweave.evaluation.splits import SplitStudy
    from brainweave.study.study import Study

# what people type -> the class at the top of the package
METHODS = {
    "gdm": "GDM",
    "paper-gdm": "PaperGDM",
    "gdmcv": "GDMCV",
    "hyperalignment": "Hyperalignment",
    "regularized-hyperalignment": "RegularizedHyperalignment",
    "kernel-hyperalignment": "KernelHyperalignment",
    "svd-hyperalignment": "SVDHyperalignment",
    "srm": "SRM",
    "detsrm": "DetSRM",
    "robust-srm": "RobustSRM",
    "semi-supervised-srm": "SemiSupervisedSRM",
    "none": "NoAlignment",
}
SHORT = {  # as papers call them
    "ha": "hyperalignment",
    "rha": "regularized-hyperalignment",
    "kha": "kernel-hyperalignment",
    "svdha": "svd-hyperalignment",
    "rsrm": "robust-srm",
    "sssrm": "semi-supervised-srm",
}
MATCHES = ("truncate", "average", "intersect")
SHRINKAGES = ("auto", "ledoit-wolf", "oas")
SCHAEFER = tuple(range(100, 1001, 100))
# options that are parameters of aligners, in the order of a configuration file
SHARED = (
    *("n_components", "energy", "shrinkage", "constraint", "kernel", "hp", "graph"),
    *("balance", "standardize", "random_state", "n_jobs"),
)
SHARED_BY_METHODS = (
    *("n_components", "energy", "random_state", "match", "parcels", "searchlight"),
    "n_jobs",
)


@dataclass
class Method:
    """Which aligner, and its parameters; None leaves the aligner's own default."""

    panel: ClassVar[str] = "Method"
    method: str = option(
        "gdm, paper-gdm (as published), gdmcv (chooses its settings inside the "
        "aligning samples), "
        "hyperalignment, regularized-hyperalignment, kernel-hyperalignment, "
        "svd-hyperalignment, srm, detsrm, robust-srm, semi-supervised-srm or none.",
        default="gdm",
    )
    n_components: str | None = option("Shared features: a number, or auto (gdm).")
    energy: float | None = option(
        "Share of the singular values that each subject keeps; not for gdm, which "
        "shrinks: use paper-gdm."
    )
    shrinkage: str | None = option(
        "How far each subject is shrunk: a number, auto, ledoit-wolf or oas; gdm."
    )
    constraint: str | None = option(
        "global, or subject: unit covariance in each subject, the default of graphs "
        "with time; gdm."
    )
    kernel: str | None = option("linear, gaussian, quadratic or sigmoid.")
    hp: float | None = option("Parameter of the kernel.", "--hp")
    graph: str | None = option(
        "labels (categories), time (stimuli) or labels+time; gdm."
    )
    balance: str | None = option(
        "How groups of the graph count: groups (all alike), subjects (by how many have "
        "them) or none; gdm."
    )
    standardize: bool | None = option(
        "Give every voxel mean 0 and variance 1. Reliable voxels count more with "
        "--param standardize=reliability."
    )
    random_state: int | None = option("Seed of methods that start at random.")
    match: str | None = option(
        "Make the samples of all subjects correspond first: truncate, average or "
        "intersect. For methods that are locked in time."
    )
    parcels: str | None = option(
        "Align parcel by parcel: an atlas image with a label per voxel, or "
        "schaefer-100 (200, ... 1000) where nilearn has it in its cache."
    )
    searchlight: float | None = option(
        "Align in every neighbourhood of this radius in mm, and average to one map."
    )
    param: list[str] | None = option(
        "Any other parameter, NAME=VALUE; may be repeated.", "--param"
    )
    n_jobs: int | None = option(
        "Subjects worked on at the same time; default one per core.",
        rich_help_panel=RUN_PANEL,
    )


# options of comparisons, which hold for all methods
SharedOptions: Any = make_dataclass(
    "SharedOptions",
    [
        (f.name, f.type, field(default=f.default, metadata=f.metadata))
        for f in fields(Method)
        if f.name in SHARED_BY_METHODS
    ],
    namespace={"panel": Method.panel},
)


def make_aligner(options: Method, *, lenient: bool = False) -> Any:
    """Make the aligner that options ask for.

    `lenient` ignores shared options that the method does not have.
    """
    import brainweave

    name = options.method.lower().replace("_", "-")
    class_name = METHODS.get(SHORT.get(name, name))
    if class_name is None:
        several = " (one; compare takes several)" if "," in options.method else ""
        raise UsageError(
            f"There is no method {options.method!r}; choose one of "
            f"{', '.join(METHODS)}{several}."
        )
    cls = getattr(brainweave, class_name)
    parameters = set(inspect.signature(cls).parameters)
    given = {name: getattr(options, name) for name in SHARED}
    given["n_components"] = number_or(options.n_components, int, "n-components", "auto")
    given["shrinkage"] = number_or(options.shrinkage, float, "shrinkage", *SHRINKAGES)
    hp = given.pop("hp")
    if hp is not None:
        given["kernel_params"] = {"hp": hp}
    values = with_params(given, parse_params(options.param))
    if hp is not None and options.kernel in (None, "linear"):
        raise UsageError(
            "--hp is the parameter of a kernel that is not linear: choose one with "
            "--kernel gaussian, quadratic or sigmoid."
        )
    if options.match not in (None, *MATCHES):
        raise UsageError(
            f"--match must be one of {', '.join(MATCHES)}; got {options.match!r}."
        )
    unknown = [n for n in values if n not in parameters]
    for name in unknown:
        if name == "n_jobs" or (lenient and name in SHARED):
            del values[name]
    unknown = [n.replace("_", "-") for n in unknown if n in values]
    unknown = ["hp" if n == "kernel-params" else n for n in unknown]
    if class_name == "GDM" and {"energy", "solver"} & set(unknown):
        raise UsageError(
            f"--method gdm has no {unknown[0]}: the paper's model is paper-gdm."
        )
    no_option = f"--{{}} is no option of {options.method}"
    refuse_unknown(unknown, sorted(parameters), no_option)
    return by_region(cls(**values), options.parcels, options.searchlight)


def number_or(text: str | None, kind: Any, name: str, *words: str) -> Any:
    """Parse the value of an option: a number, or one of a few words."""
    if text is None or text in words:
        return text
    try:
        return kind(text)
    except ValueError:
        allowed = " or ".join(", ".join(["a number", *words]).rsplit(", ", 1))
        raise UsageError(f"--{name} must be {allowed}; got {text!r}.") from None


def region_aligner(aligner: Any) -> Any:
    """Return the aligner of one region if this one works region by region."""
    return getattr(aligner, "aligner", aligner)


def resolved_options(aligner: Any) -> dict[str, Any]:
    """Return the parameters of an aligner, defaults too, as options."""
    params = dict(region_aligner(aligner).get_params(deep=False))
    kernel_params = params.pop("kernel_params", None)
    if isinstance(kernel_params, dict):
        params["hp"] = kernel_params.get("hp")
    simple = {k: v for k, v in params.items() if isinstance(v, (bool, int, float, str))}
    options: dict[str, Any] = {k: simple.pop(k) for k in SHARED if k in simple}
    for name in {"n_components", "shrinkage"} & set(options):
        options[name] = str(options[name])
    rest = [
        f"{k}={v!r}".replace("'", '"').replace("True", "true").replace("False", "false")
        for k, v in simple.items()
    ]
    return {**options, "param": rest} if rest else options


# -- region by region ------------------------------------------------------------------


def by_region(aligner: Any, parcels: str | None, radius: float | None) -> Any:
    """Return the aligner, or one that applies it to every region of the brain."""
    if parcels is not None and radius is not None:
        raise UsageError("--parcels and --searchlight are two ways: choose one.")
    whole = parcels is None and radius is None
    if whole or type(aligner).__name__ == "NoAlignment":
        return aligner
    import brainweave

    if radius is None:
        return brainweave.Parcelwise(aligner, _atlas(str(parcels)))
    if not radius > 0:
        raise UsageError(f"--searchlight must be a radius above 0 mm; got {radius:g}.")
    return brainweave.Searchlight(aligner, radius)


def _atlas(parcels: str) -> Any:
    from brainweave._core.exceptions import StudyError
    from brainweave.study.spaces import load_image

    path = Path(parcels)
    named = re.fullmatch(r"schaefer-?(\d+)", parcels.lower())
    if named and not path.exists():
        path = _schaefer(int(named[1]))
    if not path.is_file():
        raise UsageError(
            "--parcels must be an atlas image, or schaefer-100; there is no "
            f"{parcels!r}."
        )
    try:
        return load_image(path)
    except StudyError:
        raise UsageError(
            f"--parcels {parcels} is no image that nibabel can read."
        ) from None


def _schaefer(n: int) -> Path:
    """Find Schaefer's atlas where nilearn keeps it; nothing is downloaded."""
    from nilearn.datasets import get_data_dirs

    if n not in SCHAEFER:
        raise UsageError(
            f"Schaefer's atlas has {', '.join(map(str, SCHAEFER))} parcels; got {n}."
        )
    for folder in map(Path, get_data_dirs()):
        found = sorted(folder.glob(f"schaefer_2018/Schaefer2018_{n}Parcels_*.nii.gz"))
        if found:
            return found[0]
    raise UsageError(
        f"Schaefer's atlas with {n} parcels is not in nilearn's cache. Fetch it once, "
        f'with a network: python -c "from nilearn import datasets; '
        f'datasets.fetch_atlas_schaefer_2018(n_rois={n})", or name an image file.'
    )


# -- samples that correspond, voxels that correspond -----------------------------------


def matched(study: "Study", how: str | None) -> "Study":
    """Make the samples of all subjects correspond, unless `how` is None."""
    if how is None:
        return study
    from brainweave.evaluation import splits

    by = "stimuli" if how == "intersect" else "labels"
    if any(getattr(s, by) is None for s in study):
        raise UsageError(f"--match {how} needs the {by} of all samples.")
    return splits.match_study(study, how)


def match_and_report(study: "Study", how: str | None, console: Console) -> "Study":
    """Return the matched study; print what was dropped, and record it in both."""
    found = matched(study, how)
    if how is not None:
        from brainweave.study.provenance import describe_record

        study.record = found.record
        console.note(f"--match {dict(describe_record(found.record))['matching']}")
    return found


def split_matched(
    study: "Study", match: str | None, halves: Any, *, common: bool = False
) -> "SplitStudy":
    """Match a study, keep its common voxels if asked, and split it.

    The fingerprint stays that of the study before.
    """
    from brainweave.evaluation.splits import split_study
    from brainweave.study.spaces import common_voxels

    used = common_voxels(study) if common else study
    split = split_study(matched(used, match), halves=halves)
    if match is not None:
        split.design["match"] = match
    if common:
        split.design["voxels"] = "common"
    if match is not None or common:
        split.fingerprint = study.fingerprint()
    return split


def needing_common_voxels(aligners: dict[str, Any], study: "Study") -> list[str]:
    """Return, and warn of, the methods that need the voxels which all subjects have.

    None where all masks are the same: equal numbers of voxels are not enough.
    """
    import numpy as np

    from brainweave._core.exceptions import StudyError
    from brainweave.study.spaces import common_space

    names = [n for n, a in aligners.items() if type(a).__name__ == "NoAlignment"]
    masks: list[Any] = [getattr(s.space, "mask", None) for s in study]
    if not names or any(m is None for m in masks):
        return []
    if all(np.array_equal(m, masks[0]) for m in masks):
        return []
    try:
        n = common_space((s.id, s.space) for s in study).n_voxels
    except StudyError:
        return []  # the method itself says why it cannot go on
    n_own = format_range(s.n_voxels for s in study)
    warn_user(
        "The masks differ: without alignment subjects are compared voxel by voxel, so "
        f"this is scored on the {n} voxels that all subjects have ({n_own} each).",
    )
    return names


def format_range(numbers: Iterable[int]) -> str:
    """Write the least and the most of numbers.

    Examples
    --------
    >>> format_range([4, 4]), format_range([9, 4, 5])
    ('4', '4 to 9')
    """
    found = sorted(numbers)
    low, high = found[0], found[-1]
    return str(low) if low == high else f"{low} to {high}"


# -- fits ------------------------------------------------------------------------------


class ProgressSubject:
    """A subject that calls `tick` when its samples are read."""

    def __init__(self, subject: Any, tick: Any) -> None:
        from brainweave._core.workers import LocalCallback

        self._subject, self._tick = subject, LocalCallback(tick)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # asked of it while it is unpickled
            raise AttributeError(name)
        return getattr(self._subject, name)

    def data(self) -> Any:
        """Read the samples."""
        samples = self._subject.data()
        self._tick(f"subject {self._subject.id}")
        return samples


def fit_study(aligner: Any, study: "Study", console: Console) -> Any:
    """Fit an aligner on a study with a bar that counts subjects."""
    console.subject_ids = list(study.ids)
    with console.stage("Reading and aligning subjects", len(study)) as tick:
        return aligner.fit([ProgressSubject(s, tick) for s in study])
