"""Digests of data and settings by their content, so that results are found again.

Two things that could give different results must never share a digest; so whatever has
no content that can be told (a lambda, a generator) is refused.
"""

import hashlib
import json
from collections.abc import Callable, Mapping
from functools import cache, partial
from pathlib import Path
from types import BuiltinFunctionType, CodeType, FunctionType, MethodType
from typing import Any

import joblib
import numpy as np
import scipy.sparse
from sklearn.base import BaseEstimator

from brainweave._arrays import is_torch, to_numpy
from brainweave.evaluation.results import INCIDENTAL
from brainweave.evaluation.splits import SplitStudy
from brainweave.exceptions import InputError
from brainweave.study.study import Study, Subject

__all__ = ["code_digest", "describe", "digest"]

#: Folders of the package whose code results depend on, beside its modules.
CODE = ("aligners", "evaluation", "study")


def digest(value: Any) -> str:
    """Return a short digest of what JSON can write."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:20]


@cache
def code_digest(folder: Path = Path(__file__).parents[1]) -> str:
    """Return a digest of the package's code, which may change under one version."""
    files = [
        *folder.glob("*.py"),
        *(f for n in CODE for f in folder.glob(f"{n}/**/*.py")),
    ]
    return digest(
        [hashlib.sha256(file.read_bytes()).hexdigest() for file in sorted(files)]
    )


def describe(value: Any) -> Any:
    """Put anything that a result may depend on into terms of JSON."""
    try:
        return _describe(value)
    except RecursionError:
        raise InputError(
            f"A {type(value).__name__} that contains itself cannot be told apart from "
            "others, so results with it cannot be kept."
        ) from None


def _describe(value: Any) -> Any:
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or isinstance(value, bool | int | str):
        return value
    for kinds, tell in _TELLERS:
        if isinstance(value, kinds):
            return tell(value)
    return _describe_object(value)


def _describe_all(values: Any) -> list[Any]:
    return [_describe(v) for v in values]


def _describe_mapping(value: Mapping[Any, Any]) -> Any:
    return ["dict", *sorted(map(_describe_all, value.items()), key=json.dumps)]


def _describe_subject(value: Subject) -> Any:
    content = value.samples if is_torch(value.samples) else value.data()
    # where voxels lie matters to methods that go by neighbourhood or atlas
    told = (content, value.labels, value.runs, value.stimuli, value.space)
    return ["subject", value.id, *_describe_all(told)]


def _describe_estimator(value: BaseEstimator) -> Any:
    params = value.get_params(deep=False)
    kept = {k: v for k, v in params.items() if k not in INCIDENTAL}
    return [_path(type(value)), _describe(kept)]


def _describe_array(value: Any) -> Any:
    if value.dtype == object:
        return ["array", list(value.shape), _describe_all(value.ravel().tolist())]
    flat = np.ascontiguousarray(value).reshape(-1)
    content = hashlib.sha256(flat.view(np.uint8).data).hexdigest()
    return ["array", str(value.dtype), list(value.shape), content]


def _describe_sparse(value: Any) -> Any:
    rows = scipy.sparse.csr_array(value)
    rows.sum_duplicates()
    arrays = (rows.data, rows.indices.astype(np.int64), rows.indptr.astype(np.int64))
    return ["sparse", list(value.shape), *map(_describe_array, arrays)]


def _describe_function(value: Any) -> Any:
    if "<" in value.__qualname__:
        raise InputError(
            f"{value!r} has no name that could be found again, so results with it "
            "cannot be kept. Define it with def at the top of a module."
        )
    defaults = _describe_all((value.__defaults__, value.__kwdefaults__))
    return ["function", _path(value), _describe_code(value.__code__), *defaults]


def _describe_code(code: CodeType) -> Any:
    """Tell the code of a function itself, which may change under its name."""
    constants = [
        _describe_code(c) if isinstance(c, CodeType) else repr(c)
        for c in code.co_consts
    ]
    content = hashlib.sha256(code.co_code).hexdigest()
    return [content, list(code.co_names), constants]


def _describe_object(value: Any) -> Any:
    if is_torch(value):
        return _describe_array(to_numpy(value))
    if hasattr(value, "shape") and hasattr(value, "dtype"):
        return _describe_array(np.asarray(value))
    state = dict(getattr(value, "__dict__", {}))
    for kind in type(value).__mro__:
        slots = kind.__dict__.get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else slots:
            if name not in ("__dict__", "__weakref__") and hasattr(value, name):
                state[name] = getattr(value, name)
    if state and not isinstance(value, np.random.RandomState | np.random.Generator):
        return [_path(type(value)), _describe(state)]
    try:
        return [_path(type(value)), joblib.hash(value)]
    except Exception as error:
        raise InputError(
            f"A {type(value).__name__} has no content that could be recognised again, "
            "so results with it cannot be kept. Give a list or an array."
        ) from error


def _path(thing: Any) -> str:
    name = getattr(thing, "__qualname__", None) or thing.__name__
    return f"{getattr(thing, '__module__', None)}.{name}"


_TELLERS: tuple[tuple[Any, Callable[[Any], Any]], ...] = (
    (float | complex, lambda v: [type(v).__name__, repr(v)]),  # 0.5 is not "0.5"
    (Mapping, _describe_mapping),
    (BaseEstimator, _describe_estimator),
    (Subject, _describe_subject),
    (SplitStudy, lambda v: _describe_all([p.aligning, p.scored] for p in v.parts)),
    ((Study, list, tuple, range), _describe_all),
    ((set, frozenset), lambda v: ["set", *sorted(_describe_all(v), key=json.dumps)]),
    (np.ndarray, _describe_array),
    ((scipy.sparse.sparray, scipy.sparse.spmatrix), _describe_sparse),
    (partial, lambda v: ["partial", *_describe_all((v.func, v.args, v.keywords))]),
    (MethodType, lambda v: ["method", *_describe_all((v.__self__, v.__func__))]),
    (FunctionType, _describe_function),
    ((type, BuiltinFunctionType, np.ufunc), _path),
)
