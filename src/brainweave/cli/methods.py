"""From a method's name and options to an aligner, and what it runs on."""

import inspect
import re
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any, ClassVar

import typer

from brainweave.cli.console import Console, UsageError
from brainweave.cli.options import (
    RUN_PANEL,
    option,
    parse_params,
    refuse_unknown,
    with_params,
)

# what people type -> the class at the top of the package
METHODS = {
    "gdm": "GDM",
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
PANEL = "Method"

Parcels = Annotated[
    str | None,
    typer.Option(
        help="Align parcel by parcel: an atlas image with a label per voxel, or "
        "schaefer-100 (200, ... 1000) where nilearn has it in its cache.",
        rich_help_panel=PANEL,
    ),
]
SearchlightRadius = Annotated[
    float | None,
    typer.Option(
        help="Align in every neighbourhood of this radius in mm, and average to one "
        "map.",
        rich_help_panel=PANEL,
    ),
]


@dataclass
class Method:
    """Which aligner, and its parameters; None leaves the aligner's own default."""

    panel: ClassVar[str] = PANEL
    method: str = option(
        "gdm, gdmcv (chooses its settings inside the aligning samples), "
        "hyperalignment, regularized-hyperalignment, kernel-hyperalignment, "
        "svd-hyperalignment, srm, detsrm, robust-srm, semi-supervised-srm or none.",
        default="gdm",
    )
    n_components: str | None = option("Shared features: a number, or auto (gdm).")
    energy: float | None = option(
        "Share of the singular values that each subject keeps; gdm: the paper's "
        "model, in place of shrinkage."
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
    parcels: Parcels = None
    searchlight: SearchlightRadius = None
    param: list[str] | None = option(
        "Any other parameter, NAME=VALUE; may be repeated.", "--param"
    )
    n_jobs: int | None = option(
        "Subjects worked on at the same time; default one per core.",
        rich_help_panel=RUN_PANEL,
    )


def make_aligner(options: Method, *, lenient: bool = False) -> Any:
    """Make the aligner that options ask for.

    A lenient one passes over shared options that the method does not have.
    """
    import brainweave

    name = options.method.lower().replace("_", "-")
    known = METHODS.get(SHORT.get(name, name))
    if known is None:
        several = " (one; compare takes several)" if "," in options.method else ""
        raise UsageError(
            f"There is no method {options.method!r}; choose one of "
            f"{', '.join(METHODS)}{several}."
        )
    cls = getattr(brainweave, known)
    accepted = set(inspect.signature(cls).parameters)
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
        raise UsageError(f"--match must be one of {', '.join(MATCHES)}.")
    for name in [name for name in values if name not in accepted]:
        if name == "n_jobs" or (lenient and name in SHARED):
            del values[name]
    unknown = [n.replace("_", "-") for n in values if n not in accepted]
    unknown = ["hp" if n == "kernel-params" else n for n in unknown]
    no_option = f"--{{}} is no option of {options.method}"
    refuse_unknown(unknown, sorted(accepted), no_option)
    return by_region(cls(**values), options.parcels, options.searchlight)


def number_or(text: str | None, kind: Any, name: str, *words: str) -> Any:
    """Return what was given for an option: a number, or one of a few words."""
    if text is None or text in words:
        return text
    try:
        return kind(text)
    except ValueError:
        allowed = " or ".join(", ".join(["a number", *words]).rsplit(", ", 1))
        raise UsageError(f"--{name} must be {allowed}; got {text!r}.") from None


def inner(aligner: Any) -> Any:
    """Return what aligns a region, of an aligner that works region by region."""
    return getattr(aligner, "aligner", aligner)


def resolved(aligner: Any) -> dict[str, Any]:
    """Return the parameters that an aligner ends up with, as options."""
    params = dict(inner(aligner).get_params(deep=False))
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
    import nibabel as nib

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
        return nib.load(path)
    except nib.filebasedimages.ImageFileError:
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


# -- what the work runs on -------------------------------------------------------------

NO_WORKERS = 60  # seconds to wait for the first worker of a cluster
NO_SCHEDULER = 10  # and for the scheduler's answer


@dataclass
class Engine:
    """What the work runs on."""

    panel: ClassVar[str] = RUN_PANEL
    dask: str | None = option(
        "Let the workers of a Dask cluster read the voxels: address of its scheduler, "
        "its scheduler file, or local (local:4 for 4 processes of this machine).",
        metavar="SCHEDULER",
    )
    memory_limit: str | None = option(
        "Most memory of this process, such as 2GB: fewer subjects at the same time, "
        "narrower chunks of voxels."
    )

    @contextmanager
    def running(self, console: Console) -> Iterator[None]:
        """Set it up, and take it down."""
        with ExitStack() as stack:
            if self.memory_limit is not None:
                from brainweave._arrays import memory_limit

                stack.enter_context(memory_limit(self.memory_limit))
            if self.dask is not None:
                import joblib

                stack.enter_context(_dask_client(self.dask, console))
                stack.enter_context(joblib.parallel_config(backend="dask"))
            yield


@contextmanager
def _dask_client(given: str, console: Console) -> Iterator[None]:
    """Connect to a scheduler, or start one here, and wait for a worker."""
    try:
        distributed: Any = import_module("distributed")
    except ImportError:
        raise UsageError(
            "--dask needs Dask, which is not installed: pip install 'brainweave"
            "[cluster]'."
        ) from None
    kind, _, number = given.partition(":")
    cluster: Any = nullcontext()
    where: dict[str, Any] = {"address": given}
    if kind == "local":
        if number and not (number.isdigit() and int(number)):
            raise UsageError(
                f"--dask local:N takes a number of workers; got {given!r}."
            )
        many = {"n_workers": int(number)} if number else {}
        one = {"threads_per_worker": 1, "dashboard_address": None}
        cluster = distributed.LocalCluster(**many, **one)
        where = {"address": cluster}
    elif Path(given).is_file():
        where = {"scheduler_file": given}
    elif "://" not in given and ":" not in given:
        raise UsageError(
            f"--dask takes the address of a scheduler, such as tcp://host:8786, its "
            f"scheduler file, or local; there is no file {given!r}."
        )
    with cluster:
        try:
            client = distributed.Client(**where, timeout=NO_SCHEDULER)
        except Exception as error:  # a file may hold anything
            raise UsageError(
                f"No Dask scheduler answers at {given!r} within {NO_SCHEDULER} s "
                f"({type(error).__name__}). Start one by: dask scheduler, and look for "
                "its address in what that prints."
            ) from None
        with client:
            if not client.scheduler_info()["workers"]:  # a queue may take its time
                console.note(f"Waiting for a worker of {given} ...")
            try:
                client.wait_for_workers(1, timeout=NO_WORKERS)
            except TimeoutError:
                raise UsageError(
                    f"The Dask scheduler at {given!r} has no workers after "
                    f"{NO_WORKERS} s. Start some by: dask worker {given}."
                ) from None
            yield
