"""Where the BIDS App puts its files, and how it describes them."""

import json
from pathlib import Path
from typing import Any

from brainweave._io import whole_path, write_text
from brainweave._version import __version__
from brainweave.cli.errors import UsageError

BIDS_VERSION = "1.10.0"
BASIS = "_desc-brainweave_basis.safetensors"
# files whose names BIDS does not define yet; the validator passes over them
IGNORED = (
    "*.safetensors",
    "*_basis.json",
    "*_model.json",
    "*_timeseries.*",
    "*.toml",
    "*.html",
)


_COLUMNS = {
    "label": "Category of the sample; n/a if it has none",
    "run": "Run that the sample is from",
    "stimulus": "Stimulus that the sample shows",
}


class Derivative:
    """A BIDS derivative: its folder and what it was made from.

    Parameters
    ----------
    root : Path
        Folder of the derivative.
    source : Path
        The dataset it is made from.
    """

    def __init__(self, root: Path, source: Path) -> None:
        self.root, self.source = root, source

    def describe(self) -> None:
        """Write ``dataset_description.json``, ``README`` and ``.bidsignore``."""
        self.root.mkdir(parents=True, exist_ok=True)
        of = _read_json(self.source / "dataset_description.json")
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
        self._write("dataset_description.json", json.dumps(description, indent=1))
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
        text = text.rstrip("\n") + "\n"
        if not path.is_file() or path.read_text(encoding="utf-8") != text:
            write_text(path, text)

    def basis(self, id: str, kind: str) -> Path:
        """Return the place of a subject's basis; its kind is the name's entities."""
        return self.root / f"sub-{id}" / "func" / f"sub-{id}{kind}{BASIS}"

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
        entities = kind.lstrip("_")
        stem = f"{entities}_" if entities else ""
        word = "".join(c for c in method if c.isalnum())
        return self.root / f"{stem}desc-{word}_model.safetensors"

    def features(
        self,
        basis: Any,
        values: Any,
        aligned: Any,
        kind: str,
        method: str,
        *,
        n_informative: int | None = None,
    ) -> None:
        """Write the shared features of a subject's samples as a table.

        What is known of the samples stands beside them, and features that gain nothing
        from the alignment are marked in the sidecar.
        """
        word = "".join(c for c in method if c.isalnum())
        stem = f"sub-{basis.id}{kind}_desc-{word}_timeseries"
        folder = self.root / f"sub-{basis.id}" / "func"
        folder.mkdir(parents=True, exist_ok=True)
        names = [f"feature{k}" for k in range(values.shape[1])]
        known = {
            column: [_cell(v) for v in found.tolist()]
            for column, found in (
                ("label", basis.labels),
                ("run", basis.runs),
                ("stimulus", basis.stimuli),
            )
            if found is not None
        }
        rows = ["\t".join([*names, *known, "aligned"])]
        rows += [
            "\t".join([*(f"{v:.8g}" for v in row), *facts, str(int(flag))])
            for row, *facts, flag in zip(values, *known.values(), aligned, strict=True)
        ]
        write_text(folder / f"{stem}.tsv", "\n".join(rows) + "\n")
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
        write_text(folder / f"{stem}.json", json.dumps(about, indent=1) + "\n")

    def mask(self, basis: Any, kind: str) -> None:
        """Write the voxels that were used, as a mask image, if they lie in a volume."""
        if getattr(basis.space, "kind", None) != "volume":
            return
        import numpy as np

        stem = f"sub-{basis.id}{kind}_desc-brainweave_mask"
        path = self.root / f"sub-{basis.id}" / "func" / f"{stem}.nii.gz"
        image = basis.space.to_image(np.ones(basis.n_voxels, np.uint8))
        path.parent.mkdir(parents=True, exist_ok=True)
        with whole_path(path) as work:
            image.to_filename(work)
        about = {"Type": "ROI", "Sources": self.sources(basis.id)}
        text = json.dumps(about, indent=1) + "\n"
        write_text(path.with_name(f"{stem}.json"), text)

    def sidecar(self, path: Path, content: dict[str, Any]) -> None:
        """Write the JSON file beside a file."""
        text = json.dumps(content, indent=1, default=str) + "\n"
        write_text(path.with_suffix(".json"), text)

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


def _read_json(path: Path) -> dict[str, Any]:
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return value if isinstance(value, dict) else {}
