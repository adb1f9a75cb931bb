"""Save and load fitted models and subjects' bases."""

from collections.abc import Mapping
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from brainweave._version import __version__
from brainweave.aligners.base import BaseAligner
from brainweave.aligners.maps import SubjectMap
from brainweave.basis import SubjectBasis
from brainweave.exceptions import ModelFileError
from brainweave.models.aligners import read_aligner, write_aligner
from brainweave.models.bases import StoredBasis, read_basis, write_basis
from brainweave.models.codec import KINDS, Kind, Reader, Writer
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
from brainweave.models.maps import read_map, write_map

Pathlike = str | PathLike[str]

_OF_SAMPLES = ("labels", "runs", "stimuli")

KINDS |= {
    "aligner": Kind(BaseAligner, write_aligner, read_aligner),
    "map": Kind(SubjectMap, write_map, read_map),
    "basis": Kind(SubjectBasis, write_basis, read_basis),
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
    to = Writer()
    document = {
        "model": to.value(model, "" if isinstance(model, BaseAligner) else "map"),
        "summary": to.value(_component_table(model), "summary"),
        "study_fingerprint": None if known is None else str(known),
        "joins_samples": bool(getattr(model, "_joins_samples", True)),
    }
    return _write(path, MODEL, document, to, provenance)


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
    of, document = Reader(container), container.document
    model = of.value(document.get("model"), "")
    summary = of.value(document.get("summary"), "summary")
    if not isinstance(model, (BaseAligner, SubjectMap)):
        of.bad("its model", "is neither an aligner nor a map")
    if isinstance(summary, dict) and isinstance(model, BaseAligner):
        model.__dict__["_component_table"] = summary
    fingerprint = document.get("study_fingerprint")
    if fingerprint is not None:
        if not isinstance(fingerprint, str):
            of.bad("the fingerprint of its study", "is not a text")
        model.__dict__["study_fingerprint"] = fingerprint
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
    to = Writer()
    document = {
        "basis": write_basis(to, basis, "basis"),
        "id": str(getattr(subject, "id", "")),
        "space": to.space(getattr(subject, "space", None), "the subject"),
        **{key: to.value(getattr(subject, key, None), key) for key in _OF_SAMPLES},
    }
    return _write(path, BASIS, document, to, provenance)


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
    container = read_container(Path(path), kind=BASIS, verify=verify)
    document, of = container.document, Reader(container)
    basis = read_basis(of, document.get("basis"), "its basis")
    if not isinstance(document.get("id"), str):
        of.bad("its subject", "has no id")
    basis.id = document["id"]
    for key in _OF_SAMPLES:
        known = of.value(document.get(key), key)
        if known is not None:
            if np.shape(known) != (basis.n_samples,):
                of.bad(key, f"are not one for each of {basis.n_samples} samples")
            known = np.array(known)  # used one by one: out of the mapped file
        setattr(basis, key, known)
    basis.space = of.space(document.get("space"), "its space", basis.n_voxels)
    return basis


def _write(
    path: Pathlike,
    kind: str,
    document: dict[str, Any],
    to: Writer,
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
        "provenance": to.value(dict(provenance or {}), "provenance"),
        **document,
        "bases": to.bases,
        "spaces": to.spaces,
    }
    if is_nested_too_deeply(full):
        raise ModelFileError(
            f"{str(target)!r} would hold lists or tables that are nested too deeply: "
            f"more than {MAX_DEPTH} within each other. Simplify the provenance."
        )
    write_container(target, full, to.arrays, kind=kind)
    return target


def _component_table(model: Any) -> dict[str, list[Any]] | None:
    """Keep what needs the bases, which stay behind: what each component means."""
    table = vars(model).get("_component_table")
    if (
        table is None
        and hasattr(model, "component_summary")
        and hasattr(model, "bases_")
    ):
        frame = model.component_summary()
        table = {str(name): frame[name].tolist() for name in frame.columns}
    return table
