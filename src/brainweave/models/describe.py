"""What is in a model or basis file, how large its parts are, and why."""

from collections.abc import Mapping
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any

from brainweave.aligners.base import BaseAligner
from brainweave.models.bases import read_basis
from brainweave.models.codec import Reader
from brainweave.models.container import BASIS, Container, read_container
from brainweave.models.files import load_from

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
        lines = [
            f"{self.path}: {self.what}",
            f"format {self.kind} version {self.version}, written by brainweave "
            f"{self.brainweave}, {size_text(self.n_bytes)}",
        ]
        lines += [f"  {name}: {value}" for name, value in self.facts.items()]
        for name, (size, why) in self.parts.items():
            reason = f" ({why})" if why else ""
            lines.append(f"  {size_text(size):>10}  {name}{reason}")
        return "\n".join(lines)


def size_text(n_bytes: float) -> str:
    """Write a number of bytes for people.

    Examples
    --------
    >>> size_text(812), size_text(4_200_000)
    ('812 B', '4.2 MB')
    """
    for unit, size in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if n_bytes >= size:
            return f"{n_bytes / size:.1f} {unit}"
    return f"{n_bytes:.0f} B"


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
    made = Reader(container).value(container.document.get("provenance"), "provenance")
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
    for name in ("n_informative_", "is_unique_", "objective_", "eigenvalues_"):
        value = getattr(model, name, None)
        if value is not None:
            facts[name] = value.tolist() if hasattr(value, "tolist") else value
    voxels = sorted({m.n_voxels for m in model.maps_})
    kernels = sorted({m.kernel for m in model.maps_})
    spread = str(voxels[0]) if len(voxels) == 1 else f"{voxels[0]} to {voxels[-1]}"
    what = (
        f"{type(model).__name__} of {model.n_subjects_} subjects with {spread} voxels, "
        f"{model.n_components_} shared features, {' and '.join(kernels)} kernel"
    )
    return what, facts


def _basis_facts(container: Container) -> tuple[str, dict[str, Any]]:
    number = container.document.get("basis")
    basis = read_basis(Reader(container), number, "its basis")
    names = ("n_samples", "n_voxels", "n_kept", "energy")
    facts = {name: getattr(basis, name) for name in names}
    facts["kernel"] = basis.kernel.name
    name = container.document.get("id") or basis.name
    return f"basis of subject {name}", facts
