"""Texts that stand for data and settings, so that results are found again."""

import hashlib
import json
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator

from brainweave.exceptions import InputError
from brainweave.study.study import Study, Subject

__all__ = ["describe", "digest"]


def digest(value: Any) -> str:
    """Give a short digest of what JSON can write."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:20]


def describe(value: Any) -> Any:
    """Put anything that a result may depend on into terms of JSON."""
    if value is None or isinstance(value, bool | int | float | str | np.generic):
        plain = value.item() if isinstance(value, np.generic) else value
        return repr(plain) if isinstance(plain, float) else plain
    if isinstance(value, Mapping):
        return {str(k): describe(v) for k, v in sorted(value.items(), key=str)}
    if isinstance(value, BaseEstimator):
        return _describe_estimator(value)
    if isinstance(value, Subject):
        return [value.id, *map(describe, (value.data(), *_known(value)))]
    if isinstance(value, Study | list | tuple | set | frozenset):
        entries = (
            sorted(value, key=str) if isinstance(value, set | frozenset) else value
        )
        return [describe(v) for v in entries]
    return _describe_object(value)


def _known(subject: Subject) -> tuple[Any, ...]:
    return subject.labels, subject.runs, subject.stimuli


def _describe_estimator(value: Any) -> Any:
    params = value.get_params(deep=False)
    params.pop("n_jobs", None)  # results do not depend on it
    return [_path(type(value)), describe(params)]


def _describe_array(value: Any) -> Any:
    if value.dtype == object:
        return ["array", [describe(v) for v in value.ravel().tolist()]]
    content = hashlib.sha256(np.ascontiguousarray(value).data).hexdigest()
    return ["array", str(value.dtype), list(value.shape), content]


def _describe_object(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return _describe_array(value)
    if isinstance(value, Callable) and hasattr(value, "__qualname__"):  # type: ignore[arg-type]
        if "<" in value.__qualname__:
            raise InputError(
                f"{value!r} has no name that could be found again, so results with it "
                "cannot be kept. Define it with def at the top of a module."
            )
        return _path(value)
    if hasattr(value, "__dict__") and not hasattr(value, "shape"):
        return [_path(type(value)), describe(vars(value))]
    return _describe_array(np.asarray(value))


def _path(thing: Any) -> str:
    return f"{thing.__module__}.{thing.__qualname__}"
