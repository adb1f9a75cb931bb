"""Model and basis files, which name classes of a closed list only.

These are aligners of the package, registered ones, those that installed packages offer,
and subclasses of ``Stored``. A package names its class in its ``pyproject.toml``:

.. code-block:: toml

    [project.entry-points."brainweave.aligners"]
    my-method = "my_package:MyAligner"

``--method my-method`` then finds it, too.
"""

from collections.abc import Iterator, Mapping
from copy import copy
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from os import PathLike
from pathlib import Path
from pkgutil import walk_packages
from typing import Any, ClassVar

import numpy as np

import brainweave
from brainweave import aligners
from brainweave._core import __version__
from brainweave._core.arrays import to_numpy
from brainweave._core.exceptions import InputError, ModelFileError
from brainweave._core.stored import Stored
from brainweave.aligners.base import BaseAligner
from brainweave.aligners.check.alignment_check import AlignmentCheck
from brainweave.aligners.maps import SubjectMap
from brainweave.basis.basis import Spectrum, SubjectBasis
from brainweave.basis.kernels import NAMES, check_kernel
from brainweave.basis.voxels import N_SIGNATURES
from brainweave.graphs.builders import Graph
from brainweave.persistence.codec import (
    KINDS,
    NO_FUNCTION,
    Kind,
    Node,
    Writer,
    read_container,
    write_container,
)

_REGISTERED: dict[str, type[BaseAligner]] = {}
GROUP = "brainweave.aligners"  # of entry points


def register_aligner(aligner: type[BaseAligner]) -> type[BaseAligner]:
    """Register an aligner of another package, so that model files can contain it.

    Use as a decorator, in a module that is imported before loading. Declare learned
    attributes (those whose names end in ``_``) in ``_stored``, see ``BaseAligner``.

    Parameters
    ----------
    aligner : type
        A subclass of the aligners' base.

    Returns
    -------
    type
        The same class.

    Examples
    --------
    >>> from brainweave import NoAlignment
    >>> @register_aligner
    ... class Unaligned(NoAlignment):
    ...     pass
    >>> Unaligned.__name__
    'Unaligned'
    """
    if not (isinstance(aligner, type) and issubclass(aligner, BaseAligner)):
        raise TypeError(f"register_aligner takes an aligner class, got {aligner!r}.")
    name = aligner.__name__
    if _find_aligner(name) not in (None, aligner):
        raise ModelFileError(
            f"An aligner named {name} is known already. Choose another name."
        )
    _REGISTERED[name] = aligner
    return aligner


def plugins() -> dict[str, EntryPoint]:
    """Return what installed packages offer, by the name of the method."""
    return {point.name: point for point in entry_points(group=GROUP)}


def load_plugin(point: EntryPoint) -> type[BaseAligner]:
    """Import the aligner of an entry point."""
    found = point.load()
    if isinstance(found, type) and issubclass(found, BaseAligner):
        return found
    raise InputError(
        f"The entry point {point.name} = {point.value} of {GROUP} is no subclass of "
        "BaseAligner. Correct or uninstall that package."
    )


def _find_aligner(name: Any) -> type[BaseAligner] | None:
    """Return the aligner of that name, ours or registered; None if there is none."""
    if not isinstance(name, str):
        return None
    if name in brainweave.__all__:  # imported when a file names one
        found = getattr(brainweave, name)
        is_aligner = isinstance(found, type) and issubclass(found, BaseAligner)
        if is_aligner and found.__module__.startswith(aligners.__name__):
            return found
    if name not in _REGISTERED:  # an installed package may offer it
        for point in plugins().values():
            if point.attr == name:
                return load_plugin(point)
    return _REGISTERED.get(name)


def _write_object(writer: Writer, value: Stored, path: str) -> dict[str, Any]:
    form = value._stored_form()
    name = type(form).__name__
    if Stored._known.get(name) is not type(form):
        raise ModelFileError(f"{path} is a {name}, which model files do not know.")
    kinds = form._stored_kinds().items()
    kept = [key.rstrip("?") for key, kind in kinds if kind is not None]
    values = {key: form._stored_value(key) for key in kept}
    return {"class": name, "values": writer.encode_table(values, path)}


def _read_object(node: Node) -> Stored:
    node.check_keys("class", "values")
    name = node.value["class"]
    if name not in Stored._known:  # its module may not be imported yet
        for module in walk_packages(aligners.__path__, f"{aligners.__name__}."):
            import_module(module.name)
    cls = Stored._known.get(name)
    if cls is None or issubclass(cls, BaseAligner):
        node.refuse(f"is of the unknown class {str(name)[:60]!r}")
    kinds = {k: kind for k, kind in cls._stored_kinds().items() if kind is not None}
    node["values"].check_keys(*(key.rstrip("?") for key in kinds))
    values = node["values"].decode_table()
    node.check_values(values, kinds, {})
    made = cls(**values)
    for problem in made._misfits():
        node.refuse(problem)
    return made


def _write_aligner(writer: Writer, model: BaseAligner, path: str) -> dict[str, Any]:
    """Encode an aligner: its class by name, its parameters, what it learned."""
    name = type(model).__name__
    if _find_aligner(name) is not type(model):
        raise ModelFileError(
            f"{name} is not an aligner that model files know. Save its best_estimator_ "
            "if it has one, or decorate the class with brainweave.register_aligner."
        )
    if not path and not hasattr(model, "maps_"):
        raise ModelFileError(f"This {name} is not fitted yet: call fit, then save.")
    learned = {k: v for k, v in vars(model).items() if k.endswith("_") and k[0] != "_"}
    known = {key.rstrip("?"): kind for key, kind in model._stored_kinds().items()}
    for key in learned.keys() - known.keys():
        raise ModelFileError(
            f"{name} does not declare its attribute {key}, so it cannot be saved. Add "
            f'a line "{key}" to {name}._stored.'
        )
    kept = {k: v for k, v in learned.items() if known[k] is not None}
    params = dict(model.get_params(deep=False))
    if callable(params.get("progress")):
        params["progress"] = False  # it belongs to the session that fitted
    if callable(params.get("graph")) and isinstance(learned.get("graph_"), Graph):
        params["graph"] = learned["graph_"]  # in place of the function that made it
    return {
        "class": name,
        "params": writer.encode_table(params, path),
        "state": writer.encode_table(kept, path),
    }


def _read_aligner(node: Node) -> BaseAligner:
    """Make an aligner of a known class, with what it learned."""
    node.check_keys("class", "params", "state")
    name = node.value["class"]
    cls = _find_aligner(name)
    if cls is None:
        raise ModelFileError(
            f"{str(node.file.path)!r} holds an aligner {str(name)[:60]!r}, which this "
            "brainweave does not know. Update brainweave, or import the module that "
            "registers it."
        )
    if set(node.value["params"]) - set(cls._get_param_names()):
        node.refuse(f"has parameters that {name} does not take")
    model = cls(**node["params"].decode_table())
    nested = "." in node.path
    if nested and not node.value["state"]:  # a parameter, not fitted
        return model
    kinds = cls._stored_kinds()
    known = {key.rstrip("?") for key, kind in kinds.items() if kind is not None}
    learned = node["state"].decode_table()
    for key in learned.keys() - known:
        node.refuse(f"has a learned value with the name {key[:60]!r}")
    maps, k = learned.get("maps_"), learned.get("n_components_")
    if not maps and not (nested and maps == []):  # another aligner has them
        node.refuse("has no maps")
    node.check_values(learned, kinds, {"K": k} if type(k) is int else {})
    if any(m.n_components != k for m in maps):
        node.refuse(f"has maps without the {k} shared features it states")
    if maps and learned["n_subjects_"] != len(maps):
        node.refuse(f"has {len(maps)} maps, but not as many subjects")
    for key, value in learned.items():
        setattr(model, key, value)
    for problem in model._misfits():
        node.refuse(problem)
    bases = [m.basis for m in maps if m.basis is not None]
    if bases and len(bases) == len(maps):
        model.bases_ = bases
    return model


KINDS["aligner"] = Kind(
    lambda v: isinstance(v, BaseAligner), _write_aligner, _read_aligner
)
_KNOWN = ("id", "labels", "runs", "stimuli", "space")  # of a subject's samples
_OF_VOXELS = ("mean", "scale", "signatures")


def _is_number(value: Any) -> bool:
    return type(value) is float and abs(value) < 1e300


class StoredBasis(SubjectBasis, Stored):
    """A basis made from stored arrays, with what is known of its samples."""

    # k of s directions, u standardised voxels
    _stored: ClassVar[dict[str, Any]] = {
        "id": str,
        "name": str,
        "labels?": "n of any",
        "runs?": "n of any",
        "stimuli?": "n of any",
        "space?": object,
        "kernel": lambda name: name in NAMES,
        "hp?": object,
        "energy": lambda value: _is_number(value) and 0 < value <= 1,
        "standardize": lambda how: how in (True, False, "reliability"),
        "dtype": lambda name: name in ("float32", "float64"),
        "n_voxels": lambda value: type(value) is int and value > 0,
        "lost_share": _is_number,
        "spectrum": "s",
        "vectors": "n k",
        "mean": "u",
        "scale": "u",
        "signatures": f"n {N_SIGNATURES}",
        "samples?": "n v of real",  # not of a precomputed Gram matrix
        "products?": "n n",
        "narrow?": "n v",  # the standardised samples, where voxels are fewer
    }

    def __init__(self, **values: Any) -> None:
        for name in (*_KNOWN, "name", "standardize", "energy", *_OF_VOXELS, "n_voxels"):
            setattr(self, name, values[name])
        for name in ("products", "narrow"):
            setattr(self, f"_{name}", values[name])
        hp = {} if values["hp"] is None else {"hp": values["hp"]}
        self.kernel = check_kernel(values["kernel"], hp, owner="a basis")
        self.dtype = np.dtype(values["dtype"])
        self.reliable = self.standardize == "reliability"
        self.n_samples = len(values["vectors"])
        self.constant_voxels = np.flatnonzero(np.isinf(self.scale))
        self._data = values["samples"]
        self._spectrum = Spectrum(
            values["spectrum"], values["vectors"], values["lost_share"]
        )

    def _misfits(self) -> Iterator[str]:
        given, v = self.kernel.name == "precomputed", self.n_voxels
        sizes = [x.shape[1] for x in (self._data, self._narrow) if x is not None]
        if self.n_samples < 2 or {*sizes, *([] if given else [len(self.mean)])} - {v}:
            yield f"has too few samples, or arrays of other than {v} voxels"
        if self.space is not None and self.space.n_voxels != v:
            yield f"has a space of other than {v} voxels"
        products = self._narrow if self.uses_covariance else self._products
        if products is None or (self._data is None) != given:
            yield "lacks its samples, or their products"
        spectrum: Any = self._spectrum
        values, k = spectrum.values, spectrum.vectors.shape[1]
        positive = values.size and np.isfinite(values).all() and values[-1] > 0
        if not positive or (np.diff(values) > 0).any():
            yield "has a spectrum that is not one"
        elif not 1 <= self.n_kept <= k <= len(values):
            yield f"keeps {self.n_kept} of {k} directions of {len(values)}"


def _write_basis(writer: Writer, basis: SubjectBasis, path: str) -> dict[str, Any]:
    kernel, narrow = basis.kernel, basis.uses_covariance
    if kernel.function is not None:
        raise ModelFileError(
            f"{basis.name} has a function as its kernel, which {NO_FUNCTION}"
        )
    names = ("name", "standardize", "n_voxels", "spectrum", "vectors", *_OF_VOXELS)
    values = {
        **{key: getattr(basis, key, None) for key in (*_KNOWN, *names)},
        "id": str(getattr(basis, "id", "")),
        "kernel": kernel.name,
        "hp": kernel.hp,
        "energy": float(basis.energy),
        "dtype": basis.dtype.name,
        "lost_share": float(basis.lost_share),
        "samples": None if basis._data is None else to_numpy(basis._data),
        "products": None if narrow else basis.products(),
        "narrow": basis._narrow if narrow else None,
    }
    return {"class": "StoredBasis", "values": writer.encode_table(values, path)}


KINDS["basis"] = Kind(lambda v: isinstance(v, SubjectBasis), _write_basis, _read_object)
KINDS["object"] = Kind(lambda v: isinstance(v, Stored), _write_object, _read_object)


def save(
    model: BaseAligner | SubjectMap | SubjectBasis,
    path: str | PathLike[str],
    *,
    subject: Any = None,
    provenance: Mapping[str, Any] | None = None,
) -> Path:
    """Write a fitted aligner, or one subject's map or basis, to one file.

    Maps of the linear kernel are written as voxel weights and patterns, those of other
    kernels with their aligning samples; a basis with its samples, their inner products
    and the kept eigenpairs. No partial file is left after an error.

    Parameters
    ----------
    model : aligner, SubjectMap or SubjectBasis
        What was learned.
    path : path
        File to write, with the suffix ``.safetensors``; it is replaced if it exists.
    subject : Subject, optional
        Whose basis it is: its id, labels, runs, stimuli and space are stored.
    provenance : mapping, optional
        How the model was made: texts, numbers, lists and dicts, which
        :func:`describe` returns. A ``study_fingerprint`` becomes the attribute of that
        name of the loaded model.

    Returns
    -------
    Path
        The file.

    See Also
    --------
    load : Read the file.
    describe : Describe a file without loading it.

    Examples
    --------
    >>> from brainweave import GDM, load, simulate_study
    >>> study = simulate_study(n_subjects=3, n_voxels=40, random_state=0)
    >>> gdm = GDM(n_components=3).fit(study)
    >>> path = save(gdm, "model.safetensors")
    >>> load(path)
    GDM(n_components=3)
    """
    if not isinstance(model, BaseAligner | SubjectMap | SubjectBasis):
        raise TypeError(
            "save takes a fitted aligner, a SubjectMap or a SubjectBasis, got "
            f"{type(model).__name__}."
        )
    if subject is not None:
        model = copy(model)
        for key in _KNOWN:
            setattr(model, key, getattr(subject, key, None))
    made = dict(provenance or {})
    known = getattr(model, "study_fingerprint", None) or made.get("study_fingerprint")
    # what each component means needs the bases, which stay behind
    summary = vars(model).get("_component_table")
    summarize: Any = getattr(model, "component_summary", None)
    if summary is None and summarize is not None and hasattr(model, "bases_"):
        frame = summarize()
        summary = {str(name): frame[name].tolist() for name in frame.columns}
    more = {
        "summary": summary,
        "check": vars(model).get("_check"),
        "study_fingerprint": None if known is None else str(known),
        "provenance": made,
    }
    writer = Writer()
    document = {"brainweave": __version__, "model": writer.encode(model, "")}
    document |= writer.encode_table(more, "")
    write_container(Path(path), document, writer.arrays)
    return Path(path)


def load(path: str | PathLike[str], *, verify: bool = True) -> Any:
    """Read a model file; arrays stay on disk until they are used.

    Every shape and type is checked first; no code of the file is run.

    Parameters
    ----------
    path : path
        What :func:`save` wrote.
    verify : bool, default=True
        Compare the checksums of all arrays, which reads the file once. False opens a
        large file at once and trusts its arrays.

    Returns
    -------
    aligner, SubjectMap or SubjectBasis
        What was saved. A basis has the ``id``, ``labels``, ``runs``, ``stimuli`` and
        ``space`` that were stored, so that ``GDM().fit(bases)`` needs nothing else.

    Raises
    ------
    ModelFileError
        If the file is damaged, truncated, not a model file, or written by a newer
        version.

    Examples
    --------
    >>> from brainweave import SRM, save, simulate_study
    >>> film = simulate_study(n_subjects=3, design="movie", n_voxels=40, random_state=0)
    >>> srm = SRM(n_components=5, random_state=0).fit(film)
    >>> path = save(srm, "model.safetensors")
    >>> newcomer = load(path).fit_new_subject(film[0].data())
    >>> newcomer.n_components
    5
    """
    file = read_container(Path(path), verify=verify)
    with file.reading() as document:
        model = document["model"].decode()
        if not isinstance(model, BaseAligner | SubjectMap | StoredBasis):
            document["model"].refuse("is neither an aligner, a map nor a basis")
        summary = document["summary"].decode()
        check = document["check"].decode()
        fingerprint = document["study_fingerprint"].value
    if isinstance(summary, dict) and isinstance(model, BaseAligner):
        model.__dict__["_component_table"] = summary
    if isinstance(check, AlignmentCheck) and isinstance(model, BaseAligner):
        model.__dict__["_check"] = check
    if fingerprint is not None:
        model.study_fingerprint = str(fingerprint)
    return model


def describe(path: str | PathLike[str], *, verify: bool = False) -> dict[str, Any]:
    """Describe a model or basis file: its contents, and how it was made.

    Parameters
    ----------
    path : path
        What :func:`save` wrote.
    verify : bool, default=False
        Compare the checksums of all arrays.

    Returns
    -------
    dict
        With ``kind`` ("model" or "basis"), ``brainweave`` (the version that wrote the
        file), ``what`` (one line), ``facts`` (parameters and learned numbers),
        ``provenance`` (how it was made) and ``n_bytes`` (the size of the file).

    Examples
    --------
    >>> from brainweave import GDM, save, simulate_study
    >>> study = simulate_study(n_subjects=3, n_voxels=40, random_state=0)
    >>> path = save(GDM(n_components=3).fit(study), "model.safetensors")
    >>> describe(path)["what"]
    'GDM of 3 subjects with 40 voxels, 3 shared features, linear kernel'
    """
    path = Path(path)
    file = read_container(path, verify=verify)
    with file.reading() as document:
        made = document["provenance"].decode()
    model = load(path, verify=False)
    what, facts = _facts(model)
    return {
        "kind": "basis" if isinstance(model, StoredBasis) else "model",
        "brainweave": str(file.document.get("brainweave")),
        "what": what,
        "facts": facts,
        "provenance": made if isinstance(made, dict) else {},
        "n_bytes": path.stat().st_size,
    }


def _facts(model: Any) -> tuple[str, dict[str, Any]]:
    """Return one line on a basis, a map or an aligner, and numbers by their names."""
    if isinstance(model, StoredBasis):
        names = ("n_samples", "n_voxels", "n_kept", "energy")
        what = f"basis of subject {model.id or model.name}"
        return what, {name: getattr(model, name) for name in names}
    if isinstance(model, SubjectMap):
        what = f"a map of one subject, {model.n_voxels} voxels, {model.kernel} kernel"
        return what, {"n_components": model.n_components}
    simple, params = (int, float, str, type(None), dict), model.get_params(deep=False)
    own = [
        key.rstrip("?")
        for key, kind in model._stored_kinds().items()
        if kind in (bool, int, float, str) and key not in BaseAligner._stored
    ]
    facts = {
        "subjects": ", ".join(getattr(model, "ids_", None) or []) or "without ids",
        "study_fingerprint": model.study_fingerprint,
        **{k: v if isinstance(v, simple) else "..." for k, v in params.items()},
        **{key: getattr(model, key, None) for key in own},
    }
    if hasattr(model, "place_"):
        facts["place_"] = str(model.place_)
    if "_check" in vars(model):
        facts["held-out check"] = vars(model)["_check"].verdict
    sizes = [m.n_voxels for m in model.maps_]
    spread = " to ".join(map(str, sorted({min(sizes), max(sizes)})))
    kernels = sorted({m.kernel for m in model.maps_})
    what = (
        f"{type(model).__name__} of {model.n_subjects_} subjects with {spread} voxels, "
        f"{model.n_components_} shared features, {' and '.join(kernels)} kernel"
    )
    return what, facts
