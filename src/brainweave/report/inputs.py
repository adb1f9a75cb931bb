"""The inputs of a report, checked to be of one study."""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from brainweave._core.arrays import to_numpy
from brainweave._core.exceptions import InputError
from brainweave._core.validation import format_ids
from brainweave.aligners.check.alignment_check import AlignmentCheck, alignment_check
from brainweave.plotting.films import Timeline, read_timeline
from brainweave.plotting.results import Scored, list_results
from brainweave.plotting.style import clean_text, span


@dataclass
class Inputs:
    """A study, a model and results, as far as they are there."""

    study: Any
    model: Any  # fitted
    results: list[Scored]
    config: Mapping[str, Any]  # settings as they were used
    names: list[str] = field(default_factory=list)  # of the subjects
    film: Timeline | None = None  # when what is told is that of a film
    shared: list[NDArray[np.float64]] | None = None  # features of each subject
    drawn: str = "aligned"  # whether these samples did "not align"
    method: str = ""  # class of the model
    check: AlignmentCheck | None = None  # on samples that did not align
    notes: list[str] = field(default_factory=list)  # how these fit together

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
    listed = list_results([] if results is None else results)
    inputs = Inputs(study, model, listed, config, method=method)
    scores = {r.called for r in inputs.results}
    if len(scores) > 1:
        raise InputError(
            f"The results are of different measures, {' and '.join(sorted(scores))}. "
            "Write a report of each."
        )
    if model is not None:
        check_is_fitted(model, "maps_")
    if study is not None:
        inputs.names = study.ids
    elif model is not None:
        inputs.names = [f"subject {i}" for i in range(len(model.maps_))]
    inputs.notes = check_same_study(study, model, inputs.results)
    inputs.film = None if study is None else _film_of(study, model, inputs)
    if model is None:
        return inputs
    # by runs where the study has them and is what aligned
    inputs.check = None if study is None else alignment_check(model, study)
    if inputs.check is None or not inputs.check.available:
        inputs.check = alignment_check(model)
    if study is not None:
        held = getattr(inputs.check, "features", None)
        fits = [*map(len, held or [])] == [s.n_samples for s in study]
        if held and fits and all(np.isfinite(a).all() for a in held):
            inputs.drawn = "not align"
        else:
            held = model.transform(list(study))
        inputs.shared = [np.asarray(to_numpy(s), dtype=float) for s in held]
    return inputs


def _film_of(study: Any, model: Any, inputs: Inputs) -> Timeline | None:
    """Return the time steps of a film, if samples are aligned or scored by time."""
    joined: set[str] = getattr(model, "_joined_by", set)()
    by_time = any(r.score != "accuracy" for r in inputs.results) or "rows" in joined
    if study.categories:
        by_time = (by_time or bool(joined)) and "labels" not in joined
    by_time |= not study.categories and all(s.stimuli is not None for s in study)
    with suppress(InputError):  # no ids, or ids that are no times
        return read_timeline(study) if by_time else None
    return None


def check_same_study(study: Any, model: Any, results: list[Scored]) -> list[str]:
    """Refuse what is of different studies; return what else a reader must know."""
    of_results = {r.study["fingerprint"] for r in results if r.study.get("fingerprint")}
    if len(of_results) > 1:
        raise InputError(
            "The results are of different studies, or of different versions of one. "
            "Write a report of each."
        )
    if study is None:
        return []
    have = {str(s.id): int(s.n_samples) for s in study}
    notes = [] if model is None else _check_model(have, model, study.fingerprint())
    for scored in results:
        its_own, known = scored.study.get("fingerprint"), scored.study.get("subjects")
        tested = [id for fold in scored.folds for id in fold.get("test_subjects", ())]
        strange = {*map(str, known or tested)} - {*have}
        matched = scored.design.get("match")
        differs = its_own not in (None, study.fingerprint()) and not matched
        if strange or differs:
            raise InputError(
                f"The result {scored.name!r} is of another study than the one given, "
                f"{format_ids(have)}, or of another version of it. Give the one it is "
                "of."
            )
        if matched:
            notes.append(f"{clean_text(scored.name)} was scored on matched samples.")
    return list(dict.fromkeys(notes))


def _check_model(have: dict[str, int], model: Any, fingerprint: str) -> list[str]:
    ids, its_own = (getattr(model, n, None) for n in ("ids_", "study_fingerprint"))
    graph, bases = (getattr(model, name, None) for name in ("graph_", "bases_"))
    counts = [b.n_samples for b in bases or []] if graph is None else graph.lengths
    counts, given = [int(n) for n in counts], list(have.values())
    fewer = bool(counts) and counts != given
    others = ids is not None and [str(i) for i in ids] != list(have)
    others |= len(model.maps_) != len(have)
    if others or (not fewer and its_own not in (None, fingerprint)):
        raise InputError(
            f"The model was fitted on another study than the one given, "
            f"{format_ids(have)}, or on another version of it. Give the study that the "
            "model was fitted on, its subjects in that order."
        )
    if not fewer:
        return []
    return [
        f"The model was fitted on {span(counts, 'samples')} per subject; the study "
        f"shown here has {span(given, 'samples')}."
    ]
