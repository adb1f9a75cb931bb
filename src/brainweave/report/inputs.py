"""Put together what a report is about, and refuse what does not belong together."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from brainweave._arrays import to_numpy
from brainweave.aligners.components import AlignmentCheck, alignment_check
from brainweave.exceptions import InputError
from brainweave.plotting.results import (
    Scored,
    Sequences,
    by_protocol,
    list_results,
    read_sequences,
)
from brainweave.plotting.style import clean_text, name_subjects, span

SIGNIFICANT = 0.05


@dataclass
class Inputs:
    """A study, a model and results, as far as they are there."""

    study: Any
    model: Any  # fitted
    results: list[Scored]
    config: Mapping[str, Any]  # settings as they were used
    names: list[str] = field(default_factory=list)  # of the subjects
    sequences: Sequences | None = None  # labels and runs of the samples
    shared: list[NDArray[np.float64]] | None = None  # features of each subject
    drawn: str = "given"  # or of samples that did "not align", or may have "aligned"
    method: str = ""  # class of the model
    check: AlignmentCheck | None = None  # on samples that did not align
    notes: list[str] = field(default_factory=list)  # how these fit together

    @property
    def bases(self) -> list[Any]:
        """Bases of the model's subjects, if it still has them."""
        return list(getattr(self.model, "bases_", None) or [])

    @property
    def record(self) -> Mapping[str, Any]:
        """What was done to the data, as far as the study knows."""
        return getattr(self.study, "record", None) or {}

    @property
    def panels(self) -> list[tuple[str, list[Scored]]]:
        """Results of each protocol, the one that favours nobody first.

        The methods of all have one and the same order.
        """
        order = list(dict.fromkeys(one.method for one in self.results))
        listed = sorted(self.results, key=lambda one: order.index(one.method))
        first_seen = dict.fromkeys(one.protocol for one in self.results)
        groups = by_protocol(listed)
        names = sorted(first_seen, key=lambda protocol: protocol != "held-out")
        return [(name, groups[name]) for name in names]

    def main_result(self, members: list[Scored]) -> Scored:
        """Return the result of the model's method, else of the best that aligns."""
        own = [m for m in members if self.method and m.method == self.method]
        aligned = [m for m in members if not m.aligns_nothing]
        return max(own or aligned or members, key=lambda m: m.mean)


def gather(*, study: Any, model: Any, results: Any, config: Any, shared: Any) -> Inputs:
    """Check the arguments of a report against each other."""
    method = "" if model is None else type(model).__name__
    if config is None:
        config = model.get_params(deep=False) if hasattr(model, "get_params") else {}
        if hasattr(model, "best_params_"):
            config = {**config, "chosen": model.best_params_}
    # an aligner that tunes itself is described by what it chose
    model = getattr(model, "best_estimator_", model)
    if not isinstance(config, Mapping):
        raise TypeError(
            f"config must be a mapping of settings; got {type(config).__name__}."
        )
    inputs = Inputs(study, model, list_results(results), config, method=method)
    if model is not None and not hasattr(model, "maps_"):
        raise InputError(
            f"This {method} is not fitted: call fit before writing its report."
        )
    if study is not None:
        inputs.sequences = read_sequences(study)
        inputs.names = inputs.sequences.names
        if model is not None and len(inputs.names) != len(model.maps_):
            raise InputError(
                f"The study has {len(inputs.names)} subjects, the model was fitted on "
                f"{len(model.maps_)}. Give the study that the model was fitted on."
            )
    elif model is not None:
        inputs.names = name_subjects(None, len(model.maps_))
        inputs.sequences = _sequences_of_graph(model, inputs.names)
    inputs.notes = check_fit(study, model, inputs.results, method)
    if model is not None:
        # by runs where the study has them and is what aligned
        found = None if study is None else alignment_check(model, study)
        useful = found is not None and found.available
        inputs.check = found if useful else alignment_check(model)
    if shared is None and model is not None:
        inputs.drawn, shared = _draw(inputs)
    if shared is not None:
        inputs.shared = [np.asarray(to_numpy(s), dtype=float) for s in shared]
        _check_shared(inputs, inputs.shared)
    return inputs


def _sequences_of_graph(model: Any, names: list[str]) -> Sequences | None:
    """Recover the labels of the aligning samples from the graph of a GDM."""
    graph = getattr(model, "graph_", None)
    groups = getattr(graph, "groups", ())
    if graph is None or not groups or not hasattr(groups[0], "codes"):
        return None
    codes, known = np.asarray(groups[0].codes), groups[0].names
    labels = [
        [known[code] if code >= 0 else None for code in codes[rows]]
        for rows in graph.slices()
    ]
    return Sequences(list(names), labels, [[None] * len(one) for one in labels])


def _draw(inputs: Inputs) -> tuple[str, Any]:
    """Return the shared features of the samples, and of which samples they are."""
    model, held = inputs.model, None if inputs.check is None else inputs.check.features
    if held is not None and all(np.isfinite(a).all() for a in held):
        known = inputs.sequences
        if known is None or [len(a) for a in held] == known.lengths:
            return "not align", held
    if inputs.study is not None:
        return "aligned", model.transform(list(inputs.study))
    # maps of aligners of others, or of a file, may not know
    with suppress(InputError, AttributeError):
        return "aligned", [one.aligning_features() for one in model.maps_]
    return "aligned", None


def _check_shared(inputs: Inputs, arrays: Sequence[NDArray[Any]]) -> None:
    inputs.names = inputs.names or name_subjects(None, len(arrays))
    if len(arrays) != len(inputs.names):
        raise InputError(
            f"shared has {len(arrays)} arrays for {len(inputs.names)} subjects."
        )
    for i, array in enumerate(arrays):
        if array.ndim != 2 or array.shape[1] != arrays[0].shape[1]:
            raise InputError(
                f"shared[{i}] must be samples x features like shared[0] "
                f"{arrays[0].shape}; got shape {array.shape}."
            )
        n = None if inputs.sequences is None else inputs.sequences.lengths[i]
        if n is not None and len(array) != n:
            raise InputError(
                f"shared[{i}] has {len(array)} samples, subject {inputs.names[i]!r} of "
                f"the study has {n}."
            )


# -- whether they belong together ------------------------------------------------------


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
