"""Headlines, warnings, settings, versions and times."""

import json
import platform
import warnings
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import numpy as np

from brainweave._version import __version__
from brainweave.plotting.results import aligns_nothing, method_of, protocol_of
from brainweave.plotting.style import clean_text, percent, subject_name
from brainweave.report.elements import Table
from brainweave.report.inputs import Inputs

_LIBRARIES = (
    *("numpy", "scipy", "scikit-learn", "joblib", "pandas"),
    *("nibabel", "nilearn", "matplotlib"),
)
_LOST_SHARE = 0.05
_SIGNIFICANT = 0.05


@dataclass(frozen=True)
class Headline:
    """A number worth a large font, what it is, and what it must be seen against."""

    value: str
    name: str
    note: str = ""


def ordered_protocols(results: list[tuple[str, Any]]) -> list[str]:
    """Return the protocols of results, the one that favours nobody first."""
    found = dict.fromkeys(protocol_of(result) for _, result in results)
    return sorted(found, key=lambda p: p != "held-out")


def headlines(inputs: Inputs) -> list[Headline]:
    """Choose the numbers a reader wants first."""
    found = []
    for protocol in ordered_protocols(inputs.results):
        members = [r for r in inputs.results if protocol_of(r[1]) == protocol]
        name, result = main_result(members, inputs.method)
        mean = float(np.mean(result.scores))
        shown = spoken_name(name, result, members)
        note = f"{shown}; chance {percent(float(result.chance))}"
        baseline = [r for n, r in members if aligns_nothing(n, r)]
        if baseline and not aligns_nothing(name, result):
            without = float(np.mean(baseline[0].scores))
            note += f", without alignment {percent(without)}"
        p = getattr(result, "p_value", None)
        if p is not None:
            note += f", p = {p:.2g}"
        what = ", ".join(filter(None, ("accuracy", protocol)))
        found.append(Headline(percent(mean), what, note))
    found += _data_headlines(inputs)
    k = getattr(inputs.model, "n_components_", None)
    if k is not None:
        check, note = inputs.check, "of the model"
        if check is not None and check.available:
            held = "none holds" if check.n_holding == 0 else f"{check.n_holding} hold"
            note = f"of the model; {held} up on samples that did not align"
        found.append(Headline(str(k), "shared features", note))
    return found


def main_result(members: list[tuple[str, Any]], method: str) -> tuple[str, Any]:
    """Take the result of the model's method, else of the best that aligns."""
    own = [m for m in members if method and method_of(*m) == method]
    aligned = [m for m in members if not aligns_nothing(*m)]
    candidates = own or aligned or members
    return max(candidates, key=lambda m: float(np.mean(m[1].scores)))


def spoken_name(name: str, result: Any, members: list[tuple[str, Any]]) -> str:
    """Call a result by its method, or by its name where two share the method."""
    if aligns_nothing(name, result):
        return "without alignment"
    same = [m for m in members if method_of(*m) == method_of(name, result)]
    return clean_text(method_of(name, result) if len(same) == 1 else name)


def _data_headlines(inputs: Inputs) -> list[Headline]:
    if not inputs.names:
        return []
    found = []
    note = ""
    if inputs.study is not None:
        voxels = [s.n_voxels for s in inputs.study]
        low, high = min(voxels), max(voxels)
        note = f"{low:,} voxels" if low == high else f"{low:,}–{high:,} voxels"
    found.append(Headline(str(len(inputs.names)), "subjects", note))
    if inputs.sequences is not None:
        lengths = [len(s) for s in inputs.sequences.labels]
        categories = len(inputs.sequences.categories)
        note = f"in {categories} categories" if categories else "without labels"
        found.append(Headline(f"{sum(lengths):,}", "samples", note))
    return found


def collect_warnings(inputs: Inputs, given: Iterable[Any] = ()) -> list[str]:
    """Say what a reader must know before believing the numbers."""
    texts = [*inputs.notes, *(_warning_text(w) for w in given)]
    said = any("not unique" in text for text in texts)
    if not said and getattr(inputs.model, "is_unique_", True) is False:
        model = inputs.model
        texts.append(
            f"The shared space is not unique: {model.n_informative_} of "
            f"{model.n_components_} components gain from the graph, the others are "
            "arbitrary directions. n_components='auto' keeps those that hold up."
        )
    for name, basis in zip(inputs.names, inputs.bases, strict=False):
        constant = len(getattr(basis, "constant_voxels", ()))
        if constant:
            texts.append(
                f"{subject_name(name)}: {constant} of {basis.n_voxels} voxels are "
                "constant and were left out. Check the mask."
            )
        if basis.energy < 1 and basis.lost_share > _LOST_SHARE:
            texts.append(
                f"{subject_name(name)}: the {basis.kernel.name} kernel loses "
                f"{percent(basis.lost_share)} of the energy to negative eigenvalues."
            )
    texts += _missing_categories(inputs)
    for name, result in inputs.results:
        p = getattr(result, "p_value", None)
        if p is not None and p > _SIGNIFICANT:
            protocol = protocol_of(result)
            members = [r for r in inputs.results if protocol_of(r[1]) == protocol]
            shown = spoken_name(name, result, members)
            texts.append(
                f"{shown} ({protocol or 'classification'}): accuracy is not "
                f"above chance by the permutation test, p = {p:.2g}."
            )
    # a warning raised while fitting is often also found here
    return list(dict.fromkeys(texts))


def _warning_text(warning: Any) -> str:
    if isinstance(warning, warnings.WarningMessage):
        return f"{warning.category.__name__}: {warning.message}"
    return str(warning)


def _missing_categories(inputs: Inputs) -> Iterator[str]:
    if inputs.sequences is None:
        return
    categories = inputs.sequences.categories
    for name, labels in zip(inputs.names, inputs.sequences.labels, strict=True):
        lacking = [c for c in categories if c not in set(labels)]
        if lacking and len(categories) <= 100:
            listed = ", ".join(clean_text(c) for c in lacking[:6])
            more = f" and {len(lacking) - 6} more" if len(lacking) > 6 else ""
            yield f"{subject_name(name)} has no sample of: {listed}{more}."


def flatten(config: Mapping[str, Any], prefix: str = "") -> list[list[str]]:
    """Turn nested settings into rows of names and values.

    Examples
    --------
    >>> flatten({"gdm": {"energy": 0.8, "graph": "labels"}})
    [['gdm.energy', '0.8'], ['gdm.graph', 'labels']]
    """
    rows = []
    for key, value in config.items():
        name = f"{prefix}{key}"
        if isinstance(value, Mapping):
            rows += flatten(value, f"{name}.") or [[name, "{}"]]
        else:
            rows.append([name, _setting(value)])
    return rows


def _setting(value: Any) -> str:
    if isinstance(value, str):
        return value
    if value is None or isinstance(value, (bool, int, float)):
        return repr(value)
    if hasattr(value, "shape"):
        return f"{type(value).__name__} of shape {tuple(value.shape)}"
    if isinstance(value, (list, tuple)):
        return clean_text(json.dumps([_setting(v) for v in value]), limit=500)
    if callable(value):
        return str(getattr(value, "__name__", type(value).__name__))
    return clean_text(value, limit=500)


def versions() -> Table:
    """List what the numbers were computed with."""
    rows = [["brainweave", __version__], ["Python", platform.python_version()]]
    for name in _LIBRARIES:
        try:
            rows.append([name, version(name)])
        except PackageNotFoundError:  # e.g. an optional library
            continue
    rows.append(["platform", f"{platform.system()} {platform.machine()}"])
    return Table(["software", "version"], rows)


def times(inputs: Inputs, seconds: Mapping[str, float] | None) -> Table | None:
    """Tabulate the seconds of each stage: of this run, and of each result."""
    spent = {"this run": dict(seconds)} if seconds else {}
    for name, result in inputs.results:
        of_result = getattr(result, "seconds", None)
        if of_result:
            who = ", ".join(filter(None, (clean_text(name), protocol_of(result))))
            spent[who] = dict(of_result)
    stages = list(dict.fromkeys(stage for of in spent.values() for stage in of))
    stages.sort(key=lambda stage: stage == "total")  # the sum comes last
    rows = [
        [who, *(None if s not in of else round(float(of[s]), 3) for s in stages)]
        for who, of in spent.items()
    ]
    return Table(["", *map(str, stages)], rows) if rows else None
