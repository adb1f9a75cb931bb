"""From a method's name and options to an aligner, and from a study to its fit."""

import inspect
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

from brainweave.cli.errors import UsageError
from brainweave.cli.options import Method, parse_params, with_params
from brainweave.cli.regions import by_region

if TYPE_CHECKING:
    from brainweave.cli.console import Console
    from brainweave.study.study import Study

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
# compare voxels by their number, so that they must be the same for all subjects
SAME_VOXELS = ("NoAlignment",)
MATCHES = ("truncate", "average", "intersect")
OF_GDM = ("kernel", "graph", "shrinkage", "constraint")
SHARED = ("n_components", "energy", "standardize", "random_state", "n_jobs")


def make_aligner(options: Method, *, lenient: bool = False) -> Any:
    """Make the aligner that options ask for.

    Parameters
    ----------
    options : Method
        What was asked.
    lenient : bool, default=False
        Pass over shared options that the method does not have: for comparisons.
    """
    cls = _class_of(options.method)
    accepted = set(inspect.signature(cls).parameters)
    options_given = {
        "n_components": _components(options.n_components),
        "energy": options.energy,
        "shrinkage": _shrinkage(options.shrinkage),
        "constraint": options.constraint,
        "kernel": options.kernel,
        "kernel_params": None if options.hp is None else {"hp": options.hp},
        "graph": options.graph,
        "standardize": options.standardize,
        "random_state": options.random_state,
        "n_jobs": options.n_jobs,
    }
    values = with_params(options_given, parse_params(options.param))
    if options.hp is not None and options.kernel in (None, "linear"):
        raise UsageError(
            "--hp is the parameter of a kernel that is not linear: choose one with "
            "--kernel gaussian, quadratic or sigmoid."
        )
    if options.match not in (None, *MATCHES):
        raise UsageError(f"--match must be one of {', '.join(MATCHES)}.")
    for name in list(values):
        if name in accepted:
            continue
        if name == "n_jobs" or (lenient and name in {*SHARED, *OF_GDM}):
            del values[name]
            continue
        shown = "hp" if name == "kernel_params" else name.replace("_", "-")
        raise UsageError(
            f"--{shown} is no option of {options.method}; it takes "
            f"{', '.join(sorted(accepted))}."
        )
    return by_region(cls(**values), options.parcels, options.searchlight)


def _class_of(name: str) -> Any:
    import brainweave

    known = METHODS.get(name.lower().replace("_", "-"))
    if known is None or known not in brainweave.__all__:
        raise UsageError(
            f"There is no method {name!r}; choose one of {', '.join(METHODS)}."
        )
    return getattr(brainweave, known)


def _components(text: str | None) -> int | str | None:
    if text is None or text == "auto":
        return text
    try:
        return int(text)
    except ValueError:
        raise UsageError(
            f"--n-components must be a number or auto; got {text!r}."
        ) from None


def _inner(aligner: Any) -> Any:
    """Return what aligns a region, of an aligner that works region by region."""
    return getattr(aligner, "aligner", aligner)


def _shrinkage(text: str | None) -> float | str | None:
    if text is None or text in ("auto", "ledoit-wolf", "oas"):
        return text
    try:
        return float(text)
    except ValueError:
        raise UsageError(
            f"--shrinkage must be a number, auto, ledoit-wolf or oas; got {text!r}."
        ) from None


def resolved(aligner: Any) -> dict[str, Any]:
    """Return the parameters that an aligner ends up with, as options."""
    params = dict(_inner(aligner).get_params(deep=False))
    kernel_params = params.pop("kernel_params", None)
    if isinstance(kernel_params, dict):
        params["hp"] = kernel_params.get("hp")
    options: dict[str, Any] = {}
    names = (
        *("n_components", "energy", "shrinkage", "constraint"),
        *("kernel", "hp", "graph", "standardize"),
    )
    for name in (*names, "random_state", "n_jobs"):
        value = params.pop(name, None)
        if isinstance(value, (bool, int, float, str)):
            options[name] = value
    for name in ("n_components", "shrinkage"):
        if name in options:
            options[name] = str(options[name])
    rest = [
        f"{k}={v!r}".replace("'", '"').replace("True", "true").replace("False", "false")
        for k, v in params.items()
        if isinstance(v, (bool, int, float, str))
    ]
    if rest:
        options["param"] = rest
    return options


def open_study(path: Path) -> "Study":
    """Open a study folder; say what to do with anything else."""
    from brainweave.study.study import Study

    if not path.exists():
        raise UsageError(f"There is no folder {str(path)!r}. Check the path.")
    if not (path / "study.json").is_file():
        raise UsageError(
            f"{str(path)!r} is not a study folder. Make one with: brainweave convert "
            f"{path} STUDY, or: brainweave simulate STUDY."
        )
    return Study.open(path)


def matched(study: "Study", how: str | None) -> "Study":
    """Make the samples of all subjects correspond, if that was asked.

    What was dropped is in the record of the study that comes back.
    """
    if how is None:
        return study
    import numpy as np

    import brainweave
    from brainweave.study.study import Study, Subject

    use = "stimuli" if how == "intersect" else "labels"
    known = [getattr(s, use) for s in study]
    if any(k is None for k in known):
        raise UsageError(f"--match {how} needs the {use} of all samples.")
    average = how == "average"
    # rows suffice to choose among samples; a mean needs the samples themselves
    rows = [s.data() if average else np.empty((s.n_samples, 1)) for s in study]
    found = brainweave.match_samples(rows, known, how=how)
    if average:
        averaged = zip(study, found.X, found.y or [], strict=True)
        subjects = [Subject(s.id, x, labels=y, space=s.space) for s, x, y in averaged]
    else:
        subjects = [s.select(r) for s, r in zip(study, found.kept, strict=True)]
    dropped = found.summary.dropped.sum(axis=1)
    told = {
        "how": how,
        "had": int(found.summary.had.sum()),
        "used": int(found.summary.used.sum()),
        "dropped": {s.id: int(n) for s, n in zip(study, dropped, strict=True)},
    }
    return Study(subjects, study.name, {**(study.record or {}), "match": told})


def tell_matching(study: "Study", how: str | None, console: "Console") -> None:
    """Say what matching drops, and keep it in the study's record for the report."""
    if how is None:
        return
    from brainweave.study.told import preprocessing

    study.record = matched(study, how).record
    console.note(f"--match {dict(preprocessing(study.record))['matching']}")


def on_common_voxels(aligners: dict[str, Any], study: "Study") -> list[str]:
    """Return the methods that need the voxels which all subjects have; say so.

    Only where masks differ: equal numbers of voxels are not the same voxels.
    """
    import numpy as np

    from brainweave.exceptions import StudyError
    from brainweave.study.spaces import common_mask

    names = [n for n, a in aligners.items() if type(a).__name__ in SAME_VOXELS]
    masks: list[Any] = [getattr(s.space, "mask", None) for s in study]
    if not names or any(m is None for m in masks):
        return []
    first = masks[0]
    if all(m.shape == first.shape and np.array_equal(m, first) for m in masks):
        return []
    try:
        n = int(common_mask(study).sum())
    except StudyError:
        return []  # the method itself says why it cannot go on
    sizes = sorted(s.n_voxels for s in study)
    own = f"{sizes[0]} to {sizes[-1]}" if sizes[0] < sizes[-1] else str(sizes[0])
    warnings.warn(
        f"The masks differ: {', '.join(names)} compares voxel by voxel, so it is "
        f"scored on the {n} voxels that all subjects have ({own} each).",
        stacklevel=2,
    )
    return names


def samples_known(aligner: Any, study: "Study | list[Any]") -> list[Any] | None:
    """Return what a fit is to know of samples: categories, stimuli, or nothing."""
    graph = _inner(aligner).get_params(deep=False).get("graph")
    known: list[Any] = [s.stimuli for s in study]
    if graph == "labels+time":
        from brainweave.aligners.gdm_graph import paired

        labels = [s.labels for s in study]
        if any(v is None for v in (*known, *labels)):
            return None  # the labels alone, which then have to be locked in time
        return [paired(*both) for both in zip(labels, known, strict=True)]
    if graph != "time":
        return None  # the study's own labels
    if all(k is not None for k in known):
        return known
    counts = {s.n_samples for s in study}
    if len(counts) > 1:
        raise UsageError(
            "--graph time joins samples by their stimuli, which this study does not "
            f"have, or by their number, but the subjects have {sorted(counts)} samples."
        )
    return [list(range(s.n_samples)) for s in study]


def took_part(model: Any, basis: Any, known: Any = None) -> Any:
    """Return which aligning samples shaped the maps by what is known of them.

    Parameters
    ----------
    model : aligner
        Fitted.
    basis : SubjectBasis or Subject
        Of the aligning samples.
    known : sequence, optional
        What the fit knew of the samples, if not their labels.
    """
    import numpy as np

    from brainweave.study.subject import is_missing

    n = basis.n_samples
    if not uses_samples(model):
        return np.zeros(n, bool)
    graph = _inner(model).get_params(deep=False).get("graph")
    if known is None and graph in ("labels", "labels+time"):
        known = basis.labels
    if known is None:
        return np.ones(n, bool)
    table = np.asarray(known, dtype=object)
    if table.ndim == 2:  # labels and ids: either joins a sample
        return np.any([~is_missing(column) for column in table.T], axis=0)
    return ~is_missing(table)


def uses_samples(model: Any) -> bool:
    """Tell whether a model's maps depend on what is known of the samples."""
    return type(model).__name__ != "NoAlignment"


class Watched:
    """A subject that tells when it has been read."""

    def __init__(self, subject: Any, tick: Any) -> None:
        self._subject, self._tick = subject, tick

    def __getattr__(self, name: str) -> Any:
        return getattr(self._subject, name)

    def data(self) -> Any:
        """Read the samples."""
        samples = self._subject.data()
        self._tick(f"subject {self._subject.id}")
        return samples
