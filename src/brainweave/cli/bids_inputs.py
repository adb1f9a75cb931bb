"""What a subject's basis is made from: files of a BIDS dataset, and settings."""

from collections.abc import Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from brainweave._io import file_stamp, has_changed
from brainweave.cli.config import plain
from brainweave.cli.errors import UsageError

if TYPE_CHECKING:
    from brainweave.study.formats.bids.files import BidsRun, Dataset
    from brainweave.study.study import Study
    from brainweave.study.subject import Subject

BASIS_SETTINGS = ("kernel", "kernel_params", "energy", "standardize")
# options of load_bids that are options of the command
FLAT = (
    *("task", "space", "samples", "label", "stimulus", "ignore", "overlap"),
    *("hrf_delay", "hrf_model", "confounds", "scrub", "smoothing_fwhm", "high_pass"),
    "mask",
)
SEVERAL = ("ignore", "confounds")  # of these, those that take several values
# options of load_bids that choose files
_CHOICE = ("task", "space", "sessions", "runs", "entities")


class Inputs:
    """A dataset, listed once, and how subjects are read from it.

    Parameters
    ----------
    folder : Path
        The dataset.
    options : dict
        For ``load_bids``, as :meth:`Selection.options` returns them.
    """

    def __init__(self, folder: Path, options: dict[str, Any]) -> None:
        self.folder, self.options = folder, dict(options)
        self.derivatives = self.options.pop("derivatives", "auto")
        self._check_options()

    def _check_options(self) -> None:
        from brainweave.study.formats.bids.load import load_bids
        from brainweave.study.options import option_names

        known = option_names(load_bids)
        for name in self.options:
            if name not in known:
                raise UsageError(
                    f"--bids-param {name}: load_bids has no such option; there are "
                    f"{', '.join(known[1:])}."
                )
        for name in ("subjects", "name"):
            if name in self.options:
                raise UsageError(
                    f"--bids-param {name} cannot be used here; subjects are chosen "
                    "with --participant-label."
                )
        if self.options.get("mask") == "common":
            raise UsageError(
                "--mask common needs all subjects at once, and participant jobs see "
                "one each. Give a mask image: --mask FILE."
            )

    @cached_property
    def dataset(self) -> "Dataset":
        """The dataset, with its runs."""
        from brainweave.study.formats.bids.files import open_dataset

        return open_dataset(self.folder, self.derivatives)

    def load(self, id: str) -> "Subject":
        """Return one subject, its images not read yet."""
        (subject,) = self.study(id)
        return subject

    def study(self, id: str) -> "Study":
        """Return the study of one subject, which says what was done to the data."""
        from brainweave.study.formats.bids.load import load_bids

        return load_bids(self.dataset, subjects=[id], **self.options)

    def stamps(self, id: str) -> dict[str, Any]:
        """Describe the files that a subject's basis depends on, by name."""
        return {self._name(path): file_stamp(path) for path in self._files(id)}

    def are(self, id: str, stamps: Any) -> bool:
        """Tell whether a subject's files are those that were stamped, and no others."""
        names = {self._name(path): path for path in self._files(id)}
        if not isinstance(stamps, dict) or set(stamps) != set(names):
            return False
        return not any(has_changed(path, stamps[name]) for name, path in names.items())

    def _files(self, id: str) -> list[Path]:
        from brainweave.study.formats.bids.files import find_runs

        chosen = {k: v for k, v in self.options.items() if k in _CHOICE}
        found = find_runs(self.dataset, subjects=[id], **chosen)
        paths = {path for run in found.get(id, []) for path in self._of_run(run)}
        mask = self.options.get("mask")
        if isinstance(mask, str) and Path(mask).is_file():
            paths.add(Path(mask))
        return sorted(paths)

    def _of_run(self, run: "BidsRun") -> Iterator[Path]:
        from brainweave.study.formats.bids.files import inherited

        yield from run.image.values() if isinstance(run.image, dict) else [run.image]
        beside = [
            (self.dataset.raw, "events", ".tsv"),
            (self.dataset.raw, "bold", ".json"),
            (self.dataset.images, "bold", ".json"),
            (self.dataset.images, "desc-confounds_timeseries", ".tsv"),
            (self.dataset.images, "desc-confounds_timeseries", ".json"),
            (self.dataset.images, "desc-brain_mask", ".nii.gz"),
        ]
        for root, suffix, ending in beside:
            yield from inherited(root, run, suffix, ending)

    def _name(self, path: Path) -> str:
        inside = path.is_relative_to(self.folder)
        named = path.relative_to(self.folder) if inside else path.absolute()
        return named.as_posix()


def changed_files(folder: Path, stamps: Any) -> list[str]:
    """Return which stamped files are others now; those that are gone do not count."""
    known = stamps if isinstance(stamps, dict) else {}
    return [
        name
        for name, stamp in known.items()
        if (folder / name).is_file() and has_changed(folder / name, stamp)
    ]


def settings_of(aligner: Any, options: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a basis depends on: how it is made, and from which data."""
    params = aligner.get_params(deep=False)
    defaults = {"kernel": "linear", "energy": 1.0, "standardize": True}
    made = {name: params.get(name, defaults.get(name)) for name in BASIS_SETTINGS}
    made["energy"] = defaults["energy"] if made["energy"] is None else made["energy"]
    return {
        "basis": {k: plain(v) for k, v in made.items() if v is not None},
        "data": {k: "none" if v is None else plain(v) for k, v in options.items()},
    }


def option_name(name: str) -> str:
    """Return what a setting of the data, or of the basis, is on the command line.

    Examples
    --------
    >>> option_name("smoothing_fwhm"), option_name("standardize")
    ('--smoothing-fwhm', '--bids-param standardize')
    >>> option_name("basis standardize"), option_name("basis kernel_params")
    ('--standardize', '--hp')
    """
    if name == "basis kernel_params":
        return "--hp"
    bare = name.removeprefix("basis ")
    if bare != name or name in FLAT:
        return f"--{bare.replace('_', '-')}"
    return f"--bids-param {name}"
