"""Refuse a study, a model and results that do not belong together."""

from typing import Any

import numpy as np

from brainweave.exceptions import InputError
from brainweave.plotting.results import method_of
from brainweave.plotting.style import clean_text


def check_fit(
    study: Any, model: Any, results: list[tuple[str, Any]], *, method: str
) -> list[str]:
    """Refuse what is of different studies; return what else a reader must know.

    Fingerprints decide where both sides have one; else ids, categories and numbers of
    samples must be possible.
    """
    notes = []
    own = study.fingerprint() if hasattr(study, "fingerprint") else None
    if study is not None and model is not None:
        notes += _check_model(study, model, own)
    prints = {}
    for name, result in results:
        notes += _check_result(study, name, result, own)
        theirs = getattr(result, "study_fingerprint", None)
        if theirs is not None:
            prints[name] = theirs
    if len(set(prints.values())) > 1:
        one, *others = prints
        other = next(n for n in others if prints[n] != prints[one])
        raise InputError(
            f"The results {one!r} and {other!r} are of different studies. Write a "
            "report of each."
        )
    notes += _check_components(model, results, method)
    return list(dict.fromkeys(notes))


def _check_model(study: Any, model: Any, own: str | None) -> list[str]:
    ids = getattr(model, "ids_", None)
    shown = [str(s.id) for s in study if hasattr(s, "id")]
    if ids is not None and shown and [str(i) for i in ids] != shown:
        raise InputError(
            f"The model was fitted on subjects {_some(ids)}; the study has "
            f"{_some(shown)}. Give the study that the model was fitted on, its "
            "subjects in that order."
        )
    theirs = getattr(model, "study_fingerprint", None)
    counts = _aligned_counts(model)
    given = [int(s.n_samples) for s in study if hasattr(s, "n_samples")]
    if counts is not None and given and counts != given:
        return [
            f"The model was fitted on {_span(counts)} samples per subject; the study "
            f"shown here has {_span(given)}."
        ]
    if theirs is not None and own is not None and theirs != own:
        raise InputError(
            "The model was fitted on another study than the one given, or on an older "
            "state of it. Give the study that the model was fitted on."
        )
    return []


def _aligned_counts(model: Any) -> list[int] | None:
    graph = getattr(model, "graph_", None)
    if graph is not None:
        return [int(n) for n in graph.lengths]
    bases = getattr(model, "bases_", None)
    return None if bases is None else [int(b.n_samples) for b in bases]


def _check_result(study: Any, name: str, result: Any, own: str | None) -> list[str]:
    scored = getattr(result, "study", None)
    scored = scored if isinstance(scored, dict) else {}
    theirs = getattr(result, "study_fingerprint", None)
    if study is None or (theirs is not None and theirs == own):
        return []
    ids = [str(s.id) for s in study if hasattr(s, "id")]
    folds = [f for f in getattr(result, "folds", None) or [] if isinstance(f, dict)]
    tested = {str(i) for fold in folds for i in fold.get("test_subjects", ())}
    strange = sorted((tested | set(map(str, scored.get("subjects", ())))) - set(ids))
    if ids and strange:
        raise InputError(
            f"The result {name!r} is of another study: it has subject {strange[0]!r}, "
            f"the study given has {_some(ids)}."
        )
    counts = scored.get("n_samples") or {}
    design = getattr(result, "design", None)
    matched = isinstance(design, dict) and design.get("match")
    have = {str(s.id): int(s.n_samples) for s in study if hasattr(s, "n_samples")}
    fewer = {i: n for i, n in counts.items() if n < have.get(str(i), n)}
    if theirs is not None and own is not None and not (matched or fewer):
        raise InputError(
            f"The result {name!r} is of another study than the one given, or of an "
            "older state of it. Score the study again, or give the study it is of."
        )
    _check_categories(study, name, result)
    most = sum(have.values()) * max(1, len({f.get("half") for f in folds}))
    if have and sum(int(f.get("n_test") or 0) for f in folds) > most:
        raise InputError(
            f"The result {name!r} is of another study: it tested more samples than the "
            "study given has."
        )
    if fewer:
        return [
            f"{clean_text(name)} was scored on matched samples: "
            f"{_span([int(n) for n in counts.values()])} of "
            f"{_span([have[str(i)] for i in counts])} per subject."
        ]
    return []


def _check_categories(study: Any, name: str, result: Any) -> None:
    labels = [s.labels for s in study if getattr(s, "labels", None) is not None]
    if not labels:
        return
    known = {str(v) for own in labels for v in np.asarray(own, object).tolist()}
    strange = [c for c in getattr(result, "categories", ()) if str(c) not in known]
    if strange:
        raise InputError(
            f"The result {name!r} is of another study: it has the category "
            f"{clean_text(strange[0])!r}, which the study given does not have."
        )


def _check_components(
    model: Any, results: list[tuple[str, Any]], method: str
) -> list[str]:
    """Say so when results used other numbers of features than the model has."""
    k = getattr(model, "n_components_", None)
    notes = []
    for name, result in results:
        used = components_used(result)
        if (
            k is not None
            and method_of(name, result) == method
            and used not in ([], [k])
        ):
            notes.append(
                f"The model shown has {k} shared features; the result "
                f"{clean_text(name)!r} was reached with {_span(used)}."
            )
    return notes


def components_used(result: Any) -> list[int]:
    """Return the numbers of shared features over the folds of a result, sorted."""
    used = getattr(result, "n_components", None)
    if isinstance(used, (list, tuple)):
        return sorted({int(n) for n in used})
    settings = getattr(result, "settings", None)
    asked = settings.get("n_components") if isinstance(settings, dict) else None
    return [asked] if isinstance(asked, int) else []


def _span(values: list[int]) -> str:
    low, high = min(values), max(values)
    return str(low) if low == high else f"{low}–{high}"


def _some(ids: Any) -> str:
    listed = [repr(str(i)) for i in list(ids)[:4]]
    return ", ".join(listed) + (", ..." if len(ids) > 4 else "")
