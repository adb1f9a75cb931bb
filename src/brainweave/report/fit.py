"""Refuse a study, a model and results that do not belong together."""

from typing import Any

import numpy as np

from brainweave.exceptions import InputError
from brainweave.plotting.results import Scored
from brainweave.plotting.style import clean_text, span


def check_fit(study: Any, model: Any, results: list[Scored], method: str) -> list[str]:
    """Refuse what is of different studies; return what else a reader must know.

    Fingerprints decide where both sides have one; else ids, categories and numbers of
    samples must be possible.
    """
    notes = []
    own = study.fingerprint() if hasattr(study, "fingerprint") else None
    if study is not None and model is not None:
        notes += _check_model(study, model, own)
    prints = {}
    for one in results:
        theirs = getattr(one.result, "study_fingerprint", None)
        if study is not None and (theirs is None or theirs != own):
            notes += _check_result(study, one, None if own is None else theirs)
        if theirs is not None:
            prints[one.name] = theirs
        notes += _check_components(model, one, method)
    for name, theirs in prints.items():
        first = next(iter(prints))
        if theirs != prints[first]:
            raise InputError(
                f"The results {first!r} and {name!r} are of different studies. Write a "
                "report of each."
            )
    return list(dict.fromkeys(notes))


def _check_model(study: Any, model: Any, own: str | None) -> list[str]:
    ids = getattr(model, "ids_", None)
    shown = [str(s.id) for s in study]
    if ids is not None and [str(i) for i in ids] != shown:
        raise InputError(
            f"The model was fitted on subjects {_some(ids)}; the study has "
            f"{_some(shown)}. Give the study that the model was fitted on, its "
            "subjects in that order."
        )
    graph, bases = (getattr(model, name, None) for name in ("graph_", "bases_"))
    fitted = [b.n_samples for b in bases or []] if graph is None else graph.lengths
    counts, given = [int(n) for n in fitted], [int(s.n_samples) for s in study]
    if counts and counts != given:
        return [
            f"The model was fitted on {span(counts, 'samples')} per subject; the study "
            f"shown here has {span(given, 'samples')}."
        ]
    theirs = getattr(model, "study_fingerprint", None)
    if theirs is not None and own is not None and theirs != own:
        raise InputError(
            "The model was fitted on another study than the one given, or on an older "
            "state of it. Give the study that the model was fitted on."
        )
    return []


def _check_result(study: Any, one: Scored, theirs: str | None) -> list[str]:
    """Check a result whose fingerprint is not that of the study, or not known."""
    scored = getattr(one.result, "study", None)
    scored = scored if isinstance(scored, dict) else {}
    have = {str(s.id): int(s.n_samples) for s in study}
    tested = {str(i) for fold in one.folds for i in fold.get("test_subjects", ())}
    strange = sorted((tested | set(map(str, scored.get("subjects", ())))) - set(have))
    if strange:
        raise InputError(
            f"The result {one.name!r} is of another study: it has subject "
            f"{strange[0]!r}, the study given has {_some(list(have))}."
        )
    counts = {str(i): int(n) for i, n in (scored.get("n_samples") or {}).items()}
    design = getattr(one.result, "design", None)
    matched = isinstance(design, dict) and design.get("match")
    fewer = any(n < have.get(i, n) for i, n in counts.items())
    if theirs is not None and not (matched or fewer):
        raise InputError(
            f"The result {one.name!r} is of another study than the one given, or of an "
            "older state of it. Score the study again, or give the study it is of."
        )
    labels = [s.labels for s in study if s.labels is not None]
    known = {str(v) for of in labels for v in np.asarray(of, object).tolist()}
    others = [c for c in getattr(one.result, "categories", ()) if str(c) not in known]
    if labels and others:
        raise InputError(
            f"The result {one.name!r} is of another study: it has the category "
            f"{clean_text(others[0])!r}, which the study given does not have."
        )
    halves = {fold.get("half") for fold in one.folds}
    n_tested = sum(int(fold.get("n_test") or 0) for fold in one.folds)
    if n_tested > sum(have.values()) * max(1, len(halves)):
        raise InputError(
            f"The result {one.name!r} is of another study: it tested more samples than "
            "the study given has."
        )
    if not fewer:
        return []
    used = span(list(counts.values()), "of")
    given = span([have[i] for i in counts], "per subject")
    return [f"{clean_text(one.name)} was scored on matched samples: {used} {given}."]


def _check_components(model: Any, one: Scored, method: str) -> list[str]:
    """Say so when a result used other numbers of features than the model has."""
    k = getattr(model, "n_components_", None)
    used = getattr(one.result, "n_components", None) or []
    if k is None or one.method != method or set(used) <= {k}:
        return []
    return [
        f"The model shown has {k} shared features; the result "
        f"{clean_text(one.name)!r} was reached with {span(used, 'features')}."
    ]


def _some(ids: Any) -> str:
    listed = [repr(str(i)) for i in list(ids)[:4]]
    return ", ".join(listed) + (", ..." if len(ids) > 4 else "")
