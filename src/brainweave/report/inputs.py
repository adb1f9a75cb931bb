"""The inputs of a report, checked to be of one study."""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from brainweave._core.arrays import to_numpy
from brainweave._core.exceptions import InputError
from brainweave._core.validation import format_ids
from brainweave.aligners.check.alignment_check import AlignmentCheck, alignment_check
from brainweave.plotting.films import Timeline, read_timeline
from brainweave.plotting.results import Scored, Sequences, list_results, read_sequences
from brainweave.plotting.style import clean_text, name_subjects, span


@dataclass
class Inputs:
    """A study, a model and results, as far as they are there."""

    study: Any
    model: Any  # fitted
    results: list[Scored]
    config: Mapping[str, Any]  # settings as they were used
    names: list[str] = field(default_factory=list)  # of the subjects
    sequences: Sequences | None = None  # labels and runs of the samples
    film: Timeline | None = None  # when what is told is that of a film
    shared: list[NDArray[np.float64]] | None = None  # features of each subject
    drawn: str = "aligned"  # whether these samples did "not align"
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
        """Results of each protocol, held-out first, with methods in one order."""
        order = list(dict.fromkeys(r.method for r in self.results))
        listed = sorted(self.results, key=lambda r: order.index(r.method))
        protocols = dict.fromkeys(r.protocol for r in self.results)
        held_out_first = sorted(protocols, key=lambda name: name != "held-out")
        return [(p, [r for r in listed if r.protocol == p]) for p in held_out_first]

    def title(self, scored: Scored) -> str:
        """Return the one name of a result in all parts of the report."""
        members = [r for r in self.results if r.protocol == scored.protocol]
        return ", ".join(filter(None, (scored.shown(members), scored.protocol)))

    def main_result(self, members: list[Scored]) -> Scored:
        """Return the result of the model's method, else of the best that aligns."""
        of_model = [m for m in members if self.method and m.method == self.method]
        aligned = [m for m in members if not m.aligns_nothing]
        return max(of_model or aligned or members, key=lambda m: m.mean)


def gather(*, study: Any, model: Any, results: Any, config: Any) -> Inputs:
    """Return the arguments of a report, checked against each other."""
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
    scores = {r.called for r in inputs.results}
    if len(scores) > 1:
        raise InputError(
            f"The results are of different measures, {' and '.join(sorted(scores))}. "
            "Write a report of each."
        )
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
    inputs.film = None if study is None else _film_of(study, model, inputs)
    inputs.notes = check_same_study(study, model, inputs.results, method)
    if model is not None:
        # by runs where the study has them and is what aligned
        found = None if study is None else alignment_check(model, study)
        useful = found is not None and found.available
        inputs.check = found if useful else alignment_check(model)
        inputs.drawn, shared = _features_to_draw(inputs)
        if shared is not None:
            inputs.shared = [np.asarray(to_numpy(s), dtype=float) for s in shared]
    return inputs


def _film_of(study: Any, model: Any, inputs: Inputs) -> Timeline | None:
    """Return the time steps of a film, if samples are aligned or scored by time."""
    joined: set[str] = getattr(model, "_joined_by", set)()
    by_time = any(r.score != "accuracy" for r in inputs.results) or "rows" in joined
    if inputs.sequences is not None and inputs.sequences.categories:
        by_time = (by_time or bool(joined)) and "labels" not in joined
    else:
        by_time = by_time or all(s.stimuli is not None for s in study)
    with suppress(InputError):  # ids that are no times
        return read_timeline(study) if by_time else None
    return None


def _features_to_draw(inputs: Inputs) -> tuple[str, Any]:
    """Return which kind of samples is drawn (see Inputs), and their features."""
    model, held = inputs.model, None if inputs.check is None else inputs.check.features
    if held is not None and all(np.isfinite(a).all() for a in held):
        sequences = inputs.sequences
        if sequences is None or [len(a) for a in held] == sequences.lengths:
            return "not align", held
    # maps of aligners of others, or of a file, may not know
    with suppress(InputError, AttributeError):
        known = [model._features(i) for i in range(len(model.maps_))]
        if inputs.sequences is None or [*map(len, known)] == inputs.sequences.lengths:
            return "aligned", known
    if inputs.study is not None:
        return "aligned", model.transform(list(inputs.study))
    return "aligned", None


def check_same_study(
    study: Any, model: Any, results: list[Scored], method: str
) -> list[str]:
    """Refuse what is of different studies; return what else a reader must know."""
    have = {} if study is None else {str(s.id): int(s.n_samples) for s in study}
    fingerprint = study.fingerprint() if hasattr(study, "fingerprint") else None
    notes = _check_model(have, model, fingerprint) if have and model else []
    names: dict[str, str] = {}  # of the first result of each study
    for scored in results:
        its_own = getattr(scored.result, "study_fingerprint", None)
        if its_own is not None:
            names.setdefault(its_own, scored.name)
        if have and (its_own is None or its_own != fingerprint):
            differs = None not in (fingerprint, its_own)
            notes += _check_result(have, scored, differs=differs)
        k = getattr(model, "n_components_", None)
        used = getattr(scored.result, "n_components", None) or []
        if k is not None and scored.method == method and set(used) - {k}:
            notes.append(
                f"The model shown has {k} shared features; the result "
                f"{clean_text(scored.name)!r} was reached with "
                f"{span(used, 'features')}."
            )
    if len(names) > 1:
        first, other, *_ = names.values()
        raise InputError(
            f"The results {first!r} and {other!r} are of different studies. Write a "
            "report of each."
        )
    return list(dict.fromkeys(notes))


def _check_model(
    have: dict[str, int], model: Any, fingerprint: str | None
) -> list[str]:
    ids, its_own = (getattr(model, n, None) for n in ("ids_", "study_fingerprint"))
    if ids is not None and [str(i) for i in ids] != list(have):
        raise InputError(
            f"The model was fitted on subjects {format_ids(ids)}; the study has "
            f"{format_ids(have)}. Give the study that the model was fitted on, its "
            "subjects in that order."
        )
    graph, bases = (getattr(model, name, None) for name in ("graph_", "bases_"))
    fitted = [b.n_samples for b in bases or []] if graph is None else graph.lengths
    counts, given = [int(n) for n in fitted], list(have.values())
    if counts and counts != given:
        return [
            f"The model was fitted on {span(counts, 'samples')} per subject; the study "
            f"shown here has {span(given, 'samples')}."
        ]
    if None not in (its_own, fingerprint) and its_own != fingerprint:
        raise InputError(
            "The model was fitted on another study than the one given, or on an "
            "earlier version of it. Give the study that the model was fitted on."
        )
    return []


def _check_result(have: dict[str, int], scored: Scored, *, differs: bool) -> list[str]:
    """Check a result whose fingerprint is unknown or differs from that of the study."""
    tested = [i for fold in scored.folds for i in fold.get("test_subjects", ())]
    strange = {*map(str, tested), *map(str, scored.study.get("subjects", ()))} - {*have}
    if strange:
        raise InputError(
            f"The result {scored.name!r} is of another study: it has subject "
            f"{min(strange)!r}, the study given has {format_ids(have)}."
        )
    counts = {str(i): int(n) for i, n in (scored.study.get("n_samples") or {}).items()}
    fewer = any(n < have.get(i, n) for i, n in counts.items())
    if differs and not (scored.design.get("match") or fewer):
        raise InputError(
            f"The result {scored.name!r} is of another study than the one given, or of "
            "an earlier version of it. Score the study again, or give the one it is of."
        )
    if not fewer:
        return []
    used = span(list(counts.values()), "of")
    given = span([have[i] for i in counts], "per subject")
    return [f"{clean_text(scored.name)} was scored on matched samples: {used} {given}."]
