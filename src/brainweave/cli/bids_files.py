"""Files of the BIDS App: what a basis is made from, and the derivative it goes to."""

import csv
import json
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from brainweave._io import atomic_path, file_stamp, has_changed, write_text
from brainweave._version import __version__
from brainweave.cli.console import UsageError
from brainweave.cli.options import refuse_unknown
from brainweave.cli.reading import READING

if TYPE_CHECKING:
    from brainweave.study.formats.bids_files import BidsRun, Dataset
    from brainweave.study.study import Study

BIDS_VERSION = "1.10.0"
BASIS = "_desc-brainweave_basis.safetensors"
# files whose names BIDS does not define yet; the validator passes over them
IGNORED = (
    *("*.safetensors", "*_basis.json", "*_model.json", "*_timeseries.*"),
    *("*.toml", "*.html"),
)
# options of load_bids that choose files
_CHOICE = ("task", "space", "sessions", "runs", "entities")
_COLUMNS = {
    "label": "Category of the sample; n/a if it has none",
    "run": "Run that the sample is from",
    "stimulus": "Stimulus that the sample shows",
}


class Inputs:
    """A dataset, listed once, and how subjects are read from it."""

    def __init__(self, folder: Path, options: dict[str, Any]) -> None:
        from brainweave.study.formats.bids import load_bids
        from brainweave.study.options import option_names

        self.folder, self.options = folder, dict(options)
        self.derivatives = self.options.pop("derivatives", "auto")
        known = option_names(load_bids)[1:]
        no_such = "--bids-param {}: load_bids has no such option"
        refuse_unknown(self.options, known, no_such)
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
        from brainweave.study.formats.bids_files import open_dataset

        return open_dataset(self.folder, self.derivatives)

    def study(self, id: str) -> "Study":
        """Return the study of one subject, which says what was done to the data."""
        from brainweave.study.formats.bids import load_bids

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
        from brainweave.study.formats.bids_files import find_runs

        chosen = {k: v for k, v in self.options.items() if k in _CHOICE}
        found = find_runs(self.dataset, subjects=[id], **chosen)
        paths = {path for run in found.get(id, []) for path in self._of_run(run)}
        mask = self.options.get("mask")
        if isinstance(mask, str) and Path(mask).is_file():
            paths.add(Path(mask))
        return sorted(paths)

    def _of_run(self, run: "BidsRun") -> Iterator[Path]:
        from brainweave.study.formats.bids_files import inherited_files

        yield from run.image.values() if isinstance(run.image, dict) else [run.image]
        raw, images = self.dataset.raw, self.dataset.images
        for root, suffix, ending in (
            (raw, "events", ".tsv"),
            (raw, "bold", ".json"),
            (images, "bold", ".json"),
            (images, "desc-confounds_timeseries", ".tsv"),
            (images, "desc-confounds_timeseries", ".json"),
            (images, "desc-brain_mask", ".nii.gz"),
        ):
            yield from inherited_files(root, run, suffix, ending)

    def _name(self, path: Path) -> str:
        inside = path.is_relative_to(self.folder)
        named = path.relative_to(self.folder) if inside else path.absolute()
        return named.as_posix()


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
    if bare != name or name in READING:
        return f"--{bare.replace('_', '-')}"
    return f"--bids-param {name}"


# -- the derivative --------------------------------------------------------------------


class Derivative:
    """A BIDS derivative: its folder and what it was made from."""

    def __init__(self, root: Path, source: Path) -> None:
        self.root, self.source = root, source

    def describe(self) -> None:
        """Write ``dataset_description.json``, ``README`` and ``.bidsignore``."""
        self.root.mkdir(parents=True, exist_ok=True)
        of = _description(self.source)
        name = str(of.get("Name") or self.source.resolve().name)
        origin = {"URL": self.source.resolve().as_uri()}
        if of.get("DatasetDOI"):
            origin["DOI"] = str(of["DatasetDOI"])
        description = {
            "Name": f"brainweave: functional alignment of {name}",
            "BIDSVersion": BIDS_VERSION,
            "DatasetType": "derivative",
            "License": str(of.get("License", "n/a")),
            "GeneratedBy": [
                {
                    "Name": "brainweave",
                    "Version": __version__,
                    "Description": "Functional alignment of fMRI data",
                }
            ],
            **({"Authors": of["Authors"]} if of.get("Authors") else {}),
            "SourceDatasets": [origin],
            "DatasetLinks": {"source": self.source.resolve().as_uri()},
        }
        self._write("dataset_description.json", _json(description))
        self._write(
            "README.md",
            f"# Functional alignment of {name}\n\n"
            f"Made by brainweave {__version__}. Files `*_basis.safetensors` hold the "
            "kernel coordinates of one subject, `*_model.safetensors` the maps of all "
            "subjects into the shared space, `*_timeseries.tsv` the shared features. "
            "Read them with `brainweave info FILE` or `brainweave.load(FILE)`.\n",
        )
        self._write(".bidsignore", "\n".join(IGNORED) + "\n")

    def _write(self, name: str, text: str) -> None:
        path = self.root / name
        if not path.is_file() or path.read_text(encoding="utf-8") != text:
            write_text(path, text)

    def basis(self, id: str, kind: str) -> Path:
        """Return the place of a subject's basis; its kind is the name's entities."""
        return self._of_subject(id, f"{kind}{BASIS}")

    def bases(self, selection: Any) -> tuple[str, dict[str, Path]]:
        """Find the bases of the subjects that were asked for; all are of one kind."""
        kinds: dict[str, dict[str, Path]] = {}
        for path in sorted(self.root.glob(f"sub-*/func/sub-*{BASIS}")):
            id = path.parent.parent.name.removeprefix("sub-")
            kind = path.name.removeprefix(f"sub-{id}").removesuffix(BASIS)
            kinds.setdefault(kind, {})[id] = path
        wanted = {i.removeprefix("sub-") for i in selection.participant_label or ()}
        kind = _one_kind(kinds, selection, wanted)
        found = kinds.get(kind, {})
        ids = [i for i in found if not wanted or i in wanted]
        missing = sorted(wanted - set(found))
        if missing or not ids:
            who = f"subject {missing[0]!r}" if missing else "any subject"
            raise UsageError(
                f"There is no basis file of {who} in {str(self.root)!r}. Run the level "
                "participant first, with the same --task and --space."
            )
        return kind, {id: found[id] for id in ids}

    def model(self, kind: str, method: str) -> Path:
        """Return the place of the model."""
        return self.root / f"{named(kind, method)}_model.safetensors".lstrip("_")

    def _of_subject(self, id: str, name: str) -> Path:
        return self.root / f"sub-{id}" / "func" / f"sub-{id}{name}"

    def features(
        self,
        basis: Any,
        values: Any,
        aligned: Any,
        name: str,
        n_informative: int | None,
    ) -> None:
        """Write the shared features of a subject's samples as a table.

        What is known of the samples stands beside them, and features that gain nothing
        from the alignment are marked in the sidecar.
        """
        import pandas as pd

        place = self._of_subject(basis.id, f"{name}_timeseries.tsv")
        names = [f"feature{k}" for k in range(values.shape[1])]
        table = pd.DataFrame(values, columns=names)
        for column in _COLUMNS:
            found = getattr(basis, f"{column}s" if column != "stimulus" else "stimuli")
            if found is not None:
                table[column] = [_cell(value) for value in found.tolist()]
        known = [column for column in _COLUMNS if column in table]
        table["aligned"] = aligned.astype(int)
        form: Any = {"sep": "\t", "index": False, "quoting": csv.QUOTE_NONE}
        write_text(place, table.to_csv(float_format="%.8g", **form))
        about: dict[str, Any] = {
            "Description": "Shared features of the samples, in order",
            "SamplingFrequency": "n/a",
            **{
                name: {
                    "Description": f"Shared feature {k}",
                    **({} if n_informative is None else {"Gains": k < n_informative}),
                }
                for k, name in enumerate(names)
            },
            **{name: {"Description": _COLUMNS[name]} for name in known},
            "aligned": {
                "Description": "Whether the sample took part in the alignment through "
                "its label or its place in time; scoring such samples is circular",
                "Levels": {"0": "no", "1": "yes"},
            },
        }
        self.sidecar(place, about)

    def mask(self, basis: Any, kind: str) -> None:
        """Write the voxels that were used, as a mask image, if they lie in a volume."""
        if getattr(basis.space, "kind", None) != "volume":
            return
        import numpy as np

        path = self._of_subject(basis.id, f"{kind}_desc-brainweave_mask.nii.gz")
        image = basis.space.to_image(np.ones(basis.n_voxels, np.uint8))
        path.parent.mkdir(parents=True, exist_ok=True)
        with atomic_path(path) as work:
            image.to_filename(work)
        about = {"Type": "ROI", "Sources": self.sources(basis.id)}
        self.sidecar(path.with_suffix(""), about)

    def sidecar(self, path: Path, content: dict[str, Any]) -> None:
        """Write the JSON file beside a file."""
        write_text(path.with_suffix(".json"), _json(content))

    def sources(self, id: str) -> list[str]:
        """Return the BIDS URI of a subject of the source dataset."""
        return [f"bids:source:sub-{id}"]

    def uri(self, path: Path) -> str:
        """Return the BIDS URI of a file of the derivative."""
        return f"bids::{path.relative_to(self.root).as_posix()}"


def kind_of(selection: Any) -> str:
    """Return the entities of file names that a selection asks for."""
    task = f"_task-{selection.task}" if selection.task else ""
    space = f"_space-{selection.space}" if selection.space else ""
    return task + space


def _one_kind(
    kinds: dict[str, dict[str, Path]], selection: Any, wanted: set[str]
) -> str:
    """Choose the bases to combine: those asked for, or the only ones there are."""
    asked = kind_of(selection)
    fitting = {
        kind: sorted(ids)
        for kind, ids in kinds.items()
        if all(part in kind.split("_") for part in asked.split("_"))
        and (not wanted or wanted & set(ids))
    }
    every = {id for ids in fitting.values() for id in ids}
    if asked in fitting and set(fitting[asked]) == every:
        return asked
    if len(fitting) > 1:
        listed = "; ".join(
            f"{kind.lstrip('_') or 'no task'} (sub-{', sub-'.join(ids)})"
            for kind, ids in fitting.items()
        )
        raise UsageError(
            f"The bases are of several kinds, which do not go together: {listed}. "
            "Choose one with --task and --space."
        )
    return next(iter(fitting), asked)


def _cell(value: Any) -> str:
    """Return what is known of a sample as a cell of a BIDS table."""
    text = "" if value is None else " ".join(str(value).split())
    return text or "n/a"


def named(kind: str, method: str) -> str:
    """Return the entities of names of files that a method made."""
    return f"{kind}_desc-{''.join(c for c in method if c.isalnum())}"


def _json(content: dict[str, Any]) -> str:
    return json.dumps(content, indent=1, default=str) + "\n"


def _description(folder: Path) -> dict[str, Any]:
    try:
        value = json.loads((folder / "dataset_description.json").read_text("utf-8"))
    except (OSError, ValueError):
        return {}
    return value if isinstance(value, dict) else {}
