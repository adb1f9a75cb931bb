"""Save and load fitted models and subjects' bases, and say what a file holds."""

from collections.abc import Mapping
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from brainweave._version import __version__
from brainweave.aligners.base import BaseAligner
from brainweave.aligners.components import AlignmentCheck
from brainweave.aligners.maps import SubjectMap
from brainweave.basis import SubjectBasis
from brainweave.exceptions import ModelFileError
from brainweave.models.aligners import read_aligner, write_aligner
from brainweave.models.codec import KINDS, Kind, Node, Writer, open_document
from brainweave.models.container import (
    BASIS,
    MAX_DEPTH,
    MODEL,
    SUFFIX,
    Container,
    is_nested_too_deeply,
    read_container,
    write_container,
)
from brainweave.models.maps import (
    StoredBasis,
    read_basis,
    read_map,
    write_basis,
    write_map,
)

Pathlike = str | PathLike[str]

_PER_SAMPLE = ("labels", "runs", "stimuli")

KINDS |= {
    "aligner": Kind(lambda v: isinstance(v, BaseAligner), write_aligner, read_aligner),
    "map": Kind(lambda v: isinstance(v, SubjectMap), write_map, read_map),
    "basis": Kind(lambda v: isinstance(v, SubjectBasis), write_basis, read_basis),
}


def save(
    model: BaseAligner | SubjectMap,
    path: Pathlike,
    *,
    provenance: Mapping[str, Any] | None = None,
) -> Path:
    """Write a fitted aligner, or one subject's map, to one ``.safetensors`` file.

    Maps of the linear kernel are written as voxel weights and patterns, without the
    data they were learned from; other kernels need their aligning samples to map new
    ones, and these are written too. Nothing is pickled. The file appears whole or not
    at all.

    Parameters
    ----------
    model : aligner or SubjectMap
        What was learned.
    path : path
        Where to; an existing file is replaced. The suffix must be ``.safetensors``.
    provenance : mapping, optional
        How the model was made, for people: texts, numbers, lists and dicts. Found
        again as ``describe(path).provenance``. Its ``study_fingerprint``, if it has
        one, becomes the attribute of that name of the loaded model.

    Returns
    -------
    Path
        The file.

    See Also
    --------
    load : The way back.
    brainweave.models.describe : What is in a file, and why it is so large.
    """
    if not isinstance(model, (BaseAligner, SubjectMap)):
        raise TypeError(
            f"save takes a fitted aligner or a SubjectMap, got {type(model).__name__}."
        )
    known = getattr(model, "study_fingerprint", None)
    if known is None and isinstance(provenance, Mapping):
        known = provenance.get("study_fingerprint")
    writer = Writer()
    document = {
        "model": writer.encode(model, "" if isinstance(model, BaseAligner) else "map"),
        "summary": writer.encode(_component_table(model), "summary"),
        "check": writer.encode(_write_check(vars(model).get("_check")), "check"),
        "study_fingerprint": None if known is None else str(known),
        "joins_samples": bool(getattr(model, "_joins_samples", True)),
    }
    return _write(path, MODEL, document, writer, provenance)


def load(path: Pathlike, *, verify: bool = True) -> Any:
    """Read a model file; arrays stay on disk until they are used.

    Loading never runs code from the file. Every shape and type is checked first.

    Parameters
    ----------
    path : path
        What :func:`save` wrote.
    verify : bool, default=True
        Compare the checksums of all arrays, which reads the file once. False opens a
        large file at once and trusts its arrays.

    Returns
    -------
    aligner or SubjectMap

    Raises
    ------
    ModelFileError
        If the file is damaged, cut off, foreign, or newer than this brainweave.
    """
    return load_from(read_container(Path(path), kind=MODEL, verify=verify))


def load_from(container: Container) -> Any:
    """Make the model of an open file."""
    with open_document(container) as document:
        model = document["model"].decode()
        if not isinstance(model, (BaseAligner, SubjectMap)):
            document["model"].refuse("is neither an aligner nor a map")
        summary = document.get("summary").decode()
        check = _read_check(document.get("check"))
        fingerprint = document.get("study_fingerprint").value
    if isinstance(summary, dict) and isinstance(model, BaseAligner):
        model.__dict__["_component_table"] = summary
    if check is not None and isinstance(model, BaseAligner):
        model.__dict__["_check"] = check
    if fingerprint is not None:
        model.__dict__["study_fingerprint"] = str(fingerprint)
    return model


def save_basis(
    basis: SubjectBasis,
    path: Pathlike,
    *,
    subject: Any = None,
    provenance: Mapping[str, Any] | None = None,
) -> Path:
    """Write what alignment needs of one subject, so that voxels are not read again.

    A linear basis holds the eigenpairs at its energy, the inner products of the
    samples, and the voxel patterns of the kept directions (n_voxels x n_kept), which
    are read only for voxel weights. Other kernels hold their samples.

    Parameters
    ----------
    basis : SubjectBasis
        Its energy decides how much is stored: alignment can use this or less.
    path : path
        Where to; the suffix must be ``.safetensors``.
    subject : Subject, optional
        Whose basis it is: its id, labels, runs, stimuli and space are stored.
    provenance : mapping, optional
        How it was made.

    Returns
    -------
    Path
        The file.
    """
    if not isinstance(basis, SubjectBasis):
        raise TypeError(f"save_basis takes a SubjectBasis, got {type(basis).__name__}.")
    subject = basis if subject is None else subject
    writer = Writer()
    document = {
        "basis": write_basis(writer, basis, "basis"),
        "id": str(getattr(subject, "id", "")),
        "space": writer.space(getattr(subject, "space", None), "the subject"),
        **{key: writer.encode(getattr(subject, key, None), key) for key in _PER_SAMPLE},
    }
    return _write(path, BASIS, document, writer, provenance)


def load_basis(path: Pathlike, *, verify: bool = True) -> StoredBasis:
    """Read a basis file; it goes wherever a subject's samples go in ``fit``.

    Parameters
    ----------
    path : path
        What :func:`save_basis` wrote.
    verify : bool, default=True
        Compare the checksums of all arrays.

    Returns
    -------
    StoredBasis
        A :class:`SubjectBasis` that also knows its ``id``, ``labels``, ``runs``,
        ``stimuli`` and ``space``.
    """
    return _basis_from(read_container(Path(path), kind=BASIS, verify=verify))


def _basis_from(container: Container) -> StoredBasis:
    with open_document(container) as document:
        basis = read_basis(document["basis"])
        basis.id = str(document.value["id"])
        for key in _PER_SAMPLE:
            values = document.get(key).decode()
            if values is not None:
                if np.shape(values) != (basis.n_samples,):
                    document[key].refuse(
                        f"are not one for each of {basis.n_samples} samples"
                    )
                values = np.array(values)  # used one by one: out of the mapped file
            setattr(basis, key, values)
        basis.space = document.get("space").space(basis.n_voxels)
    return basis


def _write(
    path: Pathlike,
    kind: str,
    document: dict[str, Any],
    writer: Writer,
    provenance: Mapping[str, Any] | None,
) -> Path:
    target = Path(path)
    if target.suffix != SUFFIX:
        raise ModelFileError(
            f"{str(target)!r} must end in {SUFFIX}: {target.stem + SUFFIX!r}, say."
        )
    if target.is_dir():
        raise ModelFileError(f"{str(target)!r} is a folder. Choose a file name.")
    if provenance is not None and not isinstance(provenance, Mapping):
        raise TypeError(
            f"provenance must be a dict of texts and numbers, got {provenance!r}."
        )
    full = {
        "brainweave": __version__,
        "provenance": writer.encode(dict(provenance or {}), "provenance"),
        **document,
        "bases": writer.bases,
        "spaces": writer.spaces,
    }
    if is_nested_too_deeply(full):
        raise ModelFileError(
            f"{str(target)!r} would hold lists or tables that are nested too deeply: "
            f"more than {MAX_DEPTH} within each other. Simplify the provenance."
        )
    write_container(target, full, writer.arrays, kind=kind)
    return target


def _component_table(model: Any) -> dict[str, list[Any]] | None:
    """Keep what needs the bases, which stay behind: what each component means."""
    table = vars(model).get("_component_table")
    can_tell = hasattr(model, "component_summary") and hasattr(model, "bases_")
    if table is None and can_tell:
        frame = model.component_summary()  # the check stays with the model
        table = {str(name): frame[name].tolist() for name in frame.columns}
    return table


_OF_CHECK = ("agreement_cv", "p", "n_together", "n_permutations")


def _write_check(check: AlignmentCheck | None) -> dict[str, Any] | None:
    """Return what held-out samples told, without the features of these samples."""
    if check is None:
        return None
    if not check.available:
        return {"reason": check.reason}
    known: dict[str, Any] = {
        name: np.asarray(getattr(check, name)).tolist() for name in _OF_CHECK
    }
    if check.pieces is not None:
        known["pieces"] = check.pieces.reset_index().to_dict("list")
    return known


def _read_check(node: Node) -> AlignmentCheck | None:
    known = node.decode()
    if known is None:
        return None
    try:
        if "reason" in known:
            return AlignmentCheck(str(known["reason"]))
        pieces = known.get("pieces")
        if pieces is not None:
            import pandas as pd

            pieces = pd.DataFrame(pieces).set_index(next(iter(pieces)))
        p = np.asarray(known["p"], float).reshape(-1)
        return AlignmentCheck(
            agreement_cv=np.asarray(known["agreement_cv"], float).reshape(p.shape),
            p=p,
            n_together=int(known["n_together"]),
            n_permutations=int(known["n_permutations"]),
            pieces=pieces,
        )
    except (KeyError, TypeError, ValueError, AttributeError, StopIteration):
        node.refuse("is not what a check of held-out samples finds")


# the last part of an array's name -> why it is in the file
_WHY = {
    "weights": "from voxels to shared features",
    "patterns": "from shared features back to voxels",
    "samples": "aligning samples: a kernel that is not linear compares new ones with "
    "them",
    "loadings": "voxel patterns of the kept directions, for voxel weights",
    "products": "inner products of the aligning samples",
    "narrow": "standardised samples (fewer voxels than samples)",
    "vectors": "kept eigenvectors of the Gram matrices",
    "mean": "what standardises new samples",
    "scale": "what standardises new samples",
    "signatures": "by which aligning samples are known again",
}

# the first part of an array's name -> what all of it is called
_WHOLE = {"spaces": "brain masks", "graph": "graph", "graph_": "graph"}


@dataclass(frozen=True)
class Description:
    """What a file holds.

    Attributes
    ----------
    path : Path
        The file.
    kind : str
        ``"model"`` or ``"basis"``.
    version : int
        Version of the format.
    brainweave : str
        Version of brainweave that wrote the file.
    what : str
        One line: what the file holds.
    facts : dict
        Its parameters and learned numbers.
    provenance : dict
        How it was made.
    n_bytes : int
        Size of the file.
    parts : dict of str to (int, str)
        Bytes of each kind of array and why it is there, largest first.
    """

    path: Path
    kind: str
    version: int
    brainweave: str
    what: str
    facts: dict[str, Any]
    provenance: dict[str, Any]
    n_bytes: int
    parts: dict[str, tuple[int, str]]

    def __str__(self) -> str:
        from rich.filesize import decimal

        lines = [
            f"{self.path}: {self.what}",
            f"format {self.kind} version {self.version}, written by brainweave "
            f"{self.brainweave}, {decimal(self.n_bytes)}",
        ]
        lines += [f"  {name}: {value}" for name, value in self.facts.items()]
        for name, (size, why) in self.parts.items():
            reason = f" ({why})" if why else ""
            lines.append(f"  {decimal(size):>10}  {name}{reason}")
        return "\n".join(lines)


def describe(path: str | PathLike[str], *, verify: bool = False) -> Description:
    """Say what a model or basis file holds, how large its parts are, and why.

    Parameters
    ----------
    path : path
        What :func:`brainweave.save` or :func:`brainweave.models.save_basis` wrote.
    verify : bool, default=False
        Compare the checksums of all arrays.

    Returns
    -------
    Description
    """
    path = Path(path)
    container = read_container(path, verify=verify)
    is_basis = container.kind == BASIS
    what, facts = _basis_facts(container) if is_basis else _facts(container)
    with open_document(container) as document:
        made = document.get("provenance").decode()
    return Description(
        path=path,
        kind="basis" if is_basis else "model",
        version=container.version,
        brainweave=str(container.document.get("brainweave")),
        what=what,
        facts=facts,
        provenance=made if isinstance(made, dict) else {},
        n_bytes=path.stat().st_size,
        parts=_parts(container.arrays),
    )


def _parts(arrays: Mapping[str, Any]) -> dict[str, tuple[int, str]]:
    sizes: dict[str, int] = {}
    for name, array in arrays.items():
        first = name.partition(".")[0]
        if first in _WHOLE:
            part = _WHOLE[first]
        else:
            part = next(p for p in reversed(name.split(".")) if not p.isdigit())
        sizes[part] = sizes.get(part, 0) + array.nbytes
    ordered = sorted(sizes.items(), key=lambda item: -item[1])
    return {part: (size, _WHY.get(part, "")) for part, size in ordered}


def _facts(container: Container) -> tuple[str, dict[str, Any]]:
    model = load_from(container)
    if not isinstance(model, BaseAligner):
        what = f"a map of one subject, {model.n_voxels} voxels, {model.kernel} kernel"
        return what, {"n_components": model.n_components}
    facts: dict[str, Any] = {
        "subjects": ", ".join(getattr(model, "ids_", None) or []) or "without ids",
        "study_fingerprint": model.study_fingerprint,
        "aligned by labels, ids or rows": "yes" if model._joins_samples else "no",
    }
    facts |= {
        name: value if isinstance(value, (int, float, str, type(None), dict)) else "..."
        for name, value in model.get_params(deep=False).items()
    }
    chosen = ("constraint_", "shrinkage_by_", "n_informative_", "is_unique_")
    for name in (*chosen, "objective_", "eigenvalues_"):
        value = getattr(model, name, None)
        if value is not None:
            facts[name] = value.tolist() if hasattr(value, "tolist") else value
    if "_check" in vars(model):
        facts["held-out check"] = vars(model)["_check"].verdict
    voxels = sorted({m.n_voxels for m in model.maps_})
    kernels = sorted({m.kernel for m in model.maps_})
    spread = str(voxels[0]) if len(voxels) == 1 else f"{voxels[0]} to {voxels[-1]}"
    what = (
        f"{type(model).__name__} of {model.n_subjects_} subjects with {spread} voxels, "
        f"{model.n_components_} shared features, {' and '.join(kernels)} kernel"
    )
    return what, facts


def _basis_facts(container: Container) -> tuple[str, dict[str, Any]]:
    basis = _basis_from(container)
    names = ("n_samples", "n_voxels", "n_kept", "energy")
    facts = {name: getattr(basis, name) for name in names}
    facts["kernel"] = basis.kernel.name
    return f"basis of subject {basis.id or basis.name}", facts
