"""Digests of data and settings by their content, so that results are found again.

Two things that could give different results must never share a digest; so whatever has
no content that can be told (a lambda, a generator) is refused.
"""

import hashlib
import json
from collections.abc import Mapping
from functools import partial
from types import BuiltinFunctionType, CodeType, FunctionType, MethodType
from typing import Any

import joblib
import numpy as np
import scipy.sparse
from sklearn.base import BaseEstimator

from brainweave._arrays import is_torch, to_numpy
from brainweave.exceptions import InputError
from brainweave.study.study import Study, Subject

__all__ = ["describe", "digest", "plain_settings"]

# no result depends on these
INCIDENTAL = ("n_jobs", "progress")


def digest(value: Any) -> str:
    """Return a short digest of what JSON can write."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:20]


def describe(value: Any) -> Any:
    """Put anything that a result may depend on into terms of JSON."""
    return _describe(value, ())


def plain_settings(estimator: Any) -> dict[str, Any]:
    """Return the parameters of an estimator for people: JSON values, or their repr."""
    params = getattr(estimator, "get_params", dict)
    given = params(deep=False) if params is not dict else {}
    return {k: _plain(v) for k, v in given.items() if k not in INCIDENTAL}


def _plain(value: Any) -> Any:
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, list | tuple):
        return [_plain(v) for v in value]
    if isinstance(value, Mapping):
        return {str(k): _plain(v) for k, v in value.items()}
    if isinstance(value, np.ndarray):
        return f"array of shape {value.shape}"
    return repr(value)


def _describe(value: Any, inside: tuple[int, ...]) -> Any:
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float | np.generic):
        return _describe_scalar(value)
    if id(value) in inside:
        raise InputError(
            f"A {type(value).__name__} that contains itself cannot be told apart from "
            "others, so results with it cannot be kept."
        )
    inside = (*inside, id(value))
    for kinds, tell in _TELLERS:
        if isinstance(value, kinds):
            return tell(value, inside)
    return _describe_object(value, inside)


def _describe_scalar(value: Any) -> Any:
    plain = value.item() if isinstance(value, np.generic) else value
    if isinstance(plain, bool | int | str):
        return plain
    # tagged, so that 0.5 is not "0.5"
    return [type(plain).__name__, repr(plain)]


def _describe_mapping(value: Any, inside: tuple[int, ...]) -> Any:
    pairs = [[_describe(k, inside), _describe(v, inside)] for k, v in value.items()]
    return ["dict", *sorted(pairs, key=json.dumps)]


def _describe_set(value: Any, inside: tuple[int, ...]) -> Any:
    return ["set", *sorted((_describe(v, inside) for v in value), key=json.dumps)]


def _describe_list(value: Any, inside: tuple[int, ...]) -> Any:
    return [_describe(v, inside) for v in value]


def _describe_subject(value: Any, inside: tuple[int, ...]) -> Any:
    known = (value.labels, value.runs, value.stimuli)
    content = value.samples if is_torch(value.samples) else value.data()
    told = [_describe(v, inside) for v in (content, *known)]
    # where voxels lie matters to methods that go by neighbourhood or atlas
    return ["subject", value.id, *told, _describe(value.space, inside)]


def _describe_estimator(value: Any, inside: tuple[int, ...]) -> Any:
    params = value.get_params(deep=False)
    kept = {k: v for k, v in params.items() if k not in INCIDENTAL}
    return [_path(type(value)), _describe(kept, inside)]


def _describe_array(value: Any, inside: tuple[int, ...] = ()) -> Any:
    if value.dtype == object:
        cells = [_describe(v, inside) for v in value.ravel().tolist()]
        return ["array", list(value.shape), cells]
    flat = np.ascontiguousarray(value).reshape(-1)
    content = hashlib.sha256(flat.view(np.uint8) if flat.size else b"").hexdigest()
    return ["array", str(value.dtype), list(value.shape), content]


def _describe_sparse(value: Any, inside: tuple[int, ...]) -> Any:
    rows = scipy.sparse.csr_array(value)
    rows.sum_duplicates()
    arrays = (rows.data, rows.indices.astype(np.int64), rows.indptr.astype(np.int64))
    told = [_describe_array(a) for a in arrays]
    return ["sparse", list(value.shape), *told]


def _describe_partial(value: Any, inside: tuple[int, ...]) -> Any:
    parts = (value.func, value.args, value.keywords)
    return ["partial", *(_describe(v, inside) for v in parts)]


def _describe_method(value: Any, inside: tuple[int, ...]) -> Any:
    return ["method", *(_describe(v, inside) for v in (value.__self__, value.__func__))]


def _describe_function(value: Any, inside: tuple[int, ...]) -> Any:
    if "<" in value.__qualname__:
        raise InputError(
            f"{value!r} has no name that could be found again, so results with it "
            "cannot be kept. Define it with def at the top of a module."
        )
    defaults = (value.__defaults__, value.__kwdefaults__)
    told = [_describe(v, inside) for v in defaults]
    return ["function", _path(value), _describe_code(value.__code__), *told]


def _describe_code(code: CodeType) -> Any:
    """Tell the code of a function itself, which may change under its name."""
    constants = [
        _describe_code(c) if isinstance(c, CodeType) else repr(c)
        for c in code.co_consts
    ]
    content = hashlib.sha256(code.co_code).hexdigest()
    return [content, list(code.co_names), constants]


def _describe_named(value: Any, inside: tuple[int, ...]) -> Any:
    return _path(value)


def _describe_object(value: Any, inside: tuple[int, ...]) -> Any:
    if is_torch(value):
        return _describe_array(to_numpy(value), inside)
    if hasattr(value, "shape") and hasattr(value, "dtype"):
        return _describe_array(np.asarray(value), inside)
    if isinstance(value, np.random.RandomState | np.random.Generator):
        return [_path(type(value)), joblib.hash(value)]
    state = dict(getattr(value, "__dict__", {}))
    for kind in type(value).__mro__:
        slots = kind.__dict__.get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else slots:
            if name not in ("__dict__", "__weakref__") and hasattr(value, name):
                state[name] = getattr(value, name)
    if state:
        return [_path(type(value)), _describe(state, inside)]
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


_TELLERS: tuple[tuple[Any, Any], ...] = (
    (Mapping, _describe_mapping),
    (BaseEstimator, _describe_estimator),
    (Subject, _describe_subject),
    ((Study, list, tuple, range), _describe_list),
    ((set, frozenset), _describe_set),
    (np.ndarray, _describe_array),
    ((scipy.sparse.sparray, scipy.sparse.spmatrix), _describe_sparse),
    (partial, _describe_partial),
    (MethodType, _describe_method),
    (FunctionType, _describe_function),
    ((type, BuiltinFunctionType, np.ufunc), _describe_named),
)
