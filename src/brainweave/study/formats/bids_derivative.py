"""The BIDS derivative of an alignment: names, tables, masks and sidecars."""

import csv
import gzip
import json
from collections import Counter
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import nibabel as nib
import numpy as np
import pandas as pd

from brainweave._core import __version__
from brainweave._core.exceptions import InputError, StudyError
from brainweave._core.io import atomic_path, write_text
from brainweave.persistence.codec import plain
from brainweave.study.formats.bids import (
    BidsRun,
    Dataset,
    find_runs,
    inherited_files,
    missing_runs,
)
from brainweave.study.spaces import VolumeSpace
from brainweave.study.study import Study, Subject

BIDS_VERSION = "1.10.0"
CODE = "https://github.com/brainweave/brainweave"
BASIS_ENDING = "_desc-brainweave_basis.safetensors"
# files whose names BIDS 1.10 does not define; the validator passes over them. It also
# refuses *_components, *_mixing.tsv, *_decomposition.json and *_statmap, which are
# proposals; it accepts *_mask
IGNORED = (
    *("*.safetensors", "*_basis.json", "*_model.json", "*_timeseries.*"),
    *("*.toml", "*.html"),
)
# columns of what may be known of a sample: the attribute of a basis, and the meaning
COLUMNS = {
    "label": ("labels", "Category of the sample; n/a if it has none"),
    "run": ("runs", "Run that the sample is from"),
    "stimulus": ("stimuli", "Stimulus that the sample shows"),
}


class Derivative:
    """A BIDS derivative: its folder and what it was made from."""

    def __init__(self, root: Path, source: Path) -> None:
        self.root, self.source = root, source

    def write_description(self) -> None:
        """Write ``dataset_description.json``, ``README`` and ``.bidsignore``."""
        self.root.mkdir(parents=True, exist_ok=True)
        source: dict[str, Any] = {}
        with suppress(OSError, ValueError):
            text = (self.source / "dataset_description.json").read_text("utf-8")
            source = dict(json.loads(text))
        name = str(source.get("Name") or self.source.resolve().name)
        address = self.source.resolve().as_uri()
        doi = {"DOI": str(source["DatasetDOI"])} if source.get("DatasetDOI") else {}
        made_by = {"Name": "brainweave", "Version": __version__, "CodeURL": CODE}
        authors = {"Authors": source["Authors"]} if source.get("Authors") else {}
        description = {
            "Name": f"brainweave: functional alignment of {name}",
            "BIDSVersion": BIDS_VERSION,
            "DatasetType": "derivative",
            "License": str(source.get("License", "n/a")),
            "GeneratedBy": [made_by],
            **authors,
            "SourceDatasets": [{"URL": address, **doi}],
            "DatasetLinks": {"source": address},
        }
        readme = (
            f"# Functional alignment of {name}\n\n"
            f"Made by brainweave {__version__}. Files `*_basis.safetensors` hold the "
            "kernel coordinates of one subject, `*_model.safetensors` the maps of all "
            "subjects into the shared space, `*_timeseries.tsv` the shared features, "
            "`*_mask.nii.gz` the voxels that were read. "
            "Read them with `brainweave info FILE` or `brainweave.load(FILE)`.\n"
        )
        self.describe("brainweave", "Kernel coordinates of one subject by brainweave")
        for file, text in (
            ("dataset_description.json", _json(description)),
            ("README.md", readme),
            (".bidsignore", "\n".join(IGNORED) + "\n"),
        ):
            path = self.root / file
            if not path.is_file() or path.read_text(encoding="utf-8") != text:
                write_text(path, text)

    def describe(self, label: str, text: str) -> None:
        """Say in ``descriptions.tsv`` what ``desc-<label>`` in file names means."""
        path = self.root / "descriptions.tsv"
        known = {}
        with suppress(OSError):
            lines = path.read_text(encoding="utf-8").splitlines()[1:]
            known = dict(line.split("\t", 1) for line in lines if "\t" in line)
        known[f"desc-{label}"] = text
        rows = "".join(f"{k}\t{v}\n" for k, v in sorted(known.items()))
        write_text(path, f"desc_id\tdescription\n{rows}")
        meaning = {"Description": "What desc-<desc_id> in the names of files means"}
        self.write_sidecar(path, {"description": meaning})

    def basis_path(self, id: str, entities: str) -> Path:
        """Return the path of a subject's basis; entities are such as _task-faces."""
        return self._subject_path(id, f"{entities}{BASIS_ENDING}")

    def write_mask(self, basis: Path, space: Any, source: Path) -> None:
        """Write which voxels of a volume a basis is of, beside it."""
        if not isinstance(space, VolumeSpace):
            return
        path = Path(str(basis).replace("_basis.safetensors", "_mask.nii.gz"))
        image = nib.Nifti1Image(space.mask.astype(np.uint8), space.affine)
        image.header.set_xyzt_units("mm")
        with atomic_path(path) as part:
            part.write_bytes(gzip.compress(image.to_bytes(), mtime=0))
        where, root = source.resolve().as_uri(), self.source.resolve()
        if source.resolve().is_relative_to(root):
            inside = source.resolve().relative_to(root)
            where = f"bids:source:{inside.as_posix()}"
        about = {"Description": "Voxels that were read", "Type": "Brain"}
        content = {**about, "Sources": [where], "SpatialReference": where}
        self.write_sidecar(path.with_suffix(""), content)

    def find_bases(
        self, subjects: Iterable[str] = (), **entities: str | None
    ) -> tuple[str, dict[str, Path]]:
        """Return the entities of the bases chosen, and their paths by subject."""
        found: dict[str, dict[str, Path]] = {}
        for path in sorted(self.root.glob(f"sub-*/func/sub-*{BASIS_ENDING}")):
            id = path.parent.parent.name.removeprefix("sub-")
            kind = path.name.removeprefix(f"sub-{id}").removesuffix(BASIS_ENDING)
            found.setdefault(kind, {})[id] = path
        wanted = {id.removeprefix("sub-") for id in subjects}
        selected = name_entities(**entities)
        fitting = {
            kind: set(paths)
            for kind, paths in found.items()
            if set(selected.split("_")) <= set(kind.split("_"))
            and (not wanted or wanted & set(paths))
        }
        if len(fitting) > 1 and fitting.get(selected) != set().union(*fitting.values()):
            listed = "; ".join(
                f"{kind.lstrip('_') or 'no task'} (sub-{', sub-'.join(sorted(ids))})"
                for kind, ids in fitting.items()
            )
            raise InputError(
                f"The bases are of several kinds, which do not go together: {listed}. "
                "Choose one with task=... and space=..."
            )
        chosen = selected if selected in fitting else next(iter(fitting), selected)
        paths = found.get(chosen, {})
        missing = sorted(wanted - set(paths))
        if missing or not paths:
            who = f"subject {missing[0]!r}" if missing else "any subject"
            raise InputError(
                f"There is no basis file of {who} in {str(self.root)!r}. Run the level "
                "participant first, with the same task and space."
            )
        return chosen, {i: p for i, p in paths.items() if not wanted or i in wanted}

    def model_path(self, entities: str) -> Path:
        """Return the path of the model; its entities have no subject."""
        return self.root / f"{entities}_model.safetensors".lstrip("_")

    def _subject_path(self, id: str, name: str) -> Path:
        return self.root / f"sub-{id}" / "func" / f"sub-{id}{name}"

    def write_features(
        self, basis: Any, values: Any, aligned: Any, entities: str, samples: str
    ) -> None:
        """Write the shared features of a subject's samples as a table with a sidecar.

        Columns with the label, run and stimulus of the samples follow, where they are
        known. Only volumes follow a clock and have a sampling frequency.
        """
        path = self._subject_path(basis.id, f"{entities}_timeseries.tsv")
        features = [f"feature{k}" for k in range(values.shape[1])]
        table = pd.DataFrame(values, columns=features)
        for column, (attribute, _) in COLUMNS.items():
            found = getattr(basis, attribute)
            if found is not None:
                cells = ["" if v is None else str(v).split() for v in found.tolist()]
                table[column] = [" ".join(cell) or "n/a" for cell in cells]
        table["aligned"] = aligned.astype(int)
        settings: Any = {"sep": "\t", "index": False, "quoting": csv.QUOTE_NONE}
        write_text(path, table.to_csv(float_format="%.8g", **settings))
        content: dict[str, Any] = {
            "Description": "Shared features of the samples, in order",
            **({"SamplingFrequency": "TR"} if samples == "volumes" else {}),
        }
        for k, name in enumerate(features):
            content[name] = {"Description": f"Shared feature {k}"}
        for name, (_, text) in COLUMNS.items():
            if name in table:
                content[name] = {"Description": text}
        content["aligned"] = {
            "Description": "Whether the sample took part in the alignment through "
            "its label or its place in time; scoring such samples is circular",
            "Levels": {"0": "no", "1": "yes"},
        }
        self.write_sidecar(path, content)

    def write_sidecar(self, path: Path, content: dict[str, Any]) -> None:
        """Write the JSON file beside a file."""
        write_text(path.with_suffix(".json"), _json(content))


def name_entities(**values: str | None) -> str:
    """Return entities as they are in file names; native is a space without one."""
    bare = {k: (v or "").removeprefix(f"{k}-") for k, v in values.items()}
    return "".join(f"_{k}-{v}" for k, v in bare.items() if v not in ("", "native"))


def _json(content: dict[str, Any]) -> str:
    return json.dumps(plain(content, other=str), indent=1) + "\n"


def entities_of(dataset: Dataset, id: str, options: Mapping[str, Any]) -> str:
    """Return the task and the space of a subject's files, chosen or the only one."""
    known = {key: str(options.get(key) or "") for key in ("task", "space")}
    with suppress(StudyError, InputError):
        run = _runs_of(dataset, id, options)[0]
        known = {key: run.value(key) for key in known}
    return name_entities(**known)


def first_image(dataset: Dataset, id: str, options: Mapping[str, Any]) -> Path:
    """Return the path of a subject's first image."""
    return _runs_of(dataset, id, options)[0].path


def _runs_of(dataset: Dataset, id: str, options: Mapping[str, Any]) -> list[BidsRun]:
    choosing = ("task", "space", "sessions", "runs", "entities")
    chosen = {k: v for k, v in options.items() if k in choosing}
    return find_runs(dataset, subjects=[id], **chosen)[id]


def source_files(dataset: Dataset, id: str, options: Mapping[str, Any]) -> list[Path]:
    """Return all files that the samples of a subject depend on."""
    paths: set[Path] = set()
    for run in _runs_of(dataset, id, options):
        paths.update(run.image.values() if isinstance(run.image, dict) else [run.image])
        for root, suffix, ending in (
            (dataset.raw, "events", ".tsv"),
            (dataset.raw, "bold", ".json"),
            (dataset.images, "bold", ".json"),
            (dataset.images, "desc-confounds_timeseries", ".tsv"),
            (dataset.images, "desc-confounds_timeseries", ".json"),
            (dataset.images, "desc-brain_mask", ".nii.gz"),
        ):
            paths.update(inherited_files(root, run, suffix, ending))
    mask = options.get("mask")
    if isinstance(mask, str) and Path(mask).is_file():
        paths.add(Path(mask))
    return sorted(paths)


def study_without_voxels(bases: list[Any], records: list[Any]) -> Study:
    """Return a study of what is known of bases, with zeros as voxels and one record."""
    subjects = []
    for basis in bases:
        zeros = np.broadcast_to(np.float32(0), (basis.n_samples, basis.n_voxels))
        known = {n: getattr(basis, n) for n in ("labels", "runs", "stimuli", "space")}
        subjects.append(Subject(basis.id, zeros, **known))
    if not records or not all(isinstance(r, dict) for r in records):
        return Study(subjects)
    joined = dict(records[0])
    for part in ("runs", "runs_without_events", "samples"):
        joined[part] = {k: v for r in records for k, v in (r.get(part) or {}).items()}
    left_out = sum((Counter(r.get("left_out") or {}) for r in records), Counter())
    joined["left_out"] = dict(sorted(left_out.items()))
    joined["missing_runs"] = missing_runs(joined["runs"])
    return Study(subjects, record=joined)
