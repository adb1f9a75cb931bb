"""Put together what a report is about, and refuse what does not belong together."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from brainweave._arrays import to_numpy
from brainweave.aligners.components import AlignmentCheck, alignment_check
from brainweave.exceptions import InputError
from brainweave.plotting.results import list_results
from brainweave.plotting.sequences import Sequences, read_sequences
from brainweave.report.fit import check_fit

MAX_FEATURES = 20  # more are not features to look at one by one


@dataclass
class Inputs:
    """A study, a model and results, as far as they are there.

    Parameters
    ----------
    study : Study or None
        The data.
    model : aligner or None
        Fitted.
    results : list of (name, result)
        Classification results.
    config : mapping
        Settings as they were used.
    names : list of str
        The subjects.
    sequences : Sequences or None
        Labels and runs of the samples.
    shared : list of ndarray or None
        Shared features of the samples, per subject.
    drawn : str
        Whether they are those of samples that did "not align", that may have been
        "aligned", or were "given".
    method : str
        Class of the model.
    check : AlignmentCheck or None
        Whether the model holds up on samples that did not align.
    notes : list of str
        What a reader must know of how these fit together.
    """

    study: Any
    model: Any
    results: list[tuple[str, Any]]
    config: Mapping[str, Any]
    names: list[str] = field(default_factory=list)
    sequences: Sequences | None = None
    shared: list[NDArray[np.float64]] | None = None
    drawn: str = "given"
    method: str = ""
    check: AlignmentCheck | None = None
    notes: list[str] = field(default_factory=list)

    @property
    def bases(self) -> list[Any]:
        """Bases of the model's subjects, if it still has them."""
        return list(getattr(self.model, "bases_", None) or [])


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
            f"This {inputs.method} is not fitted: call fit before writing its report."
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
        inputs.names = [f"subject {i}" for i in range(len(model.maps_))]
        inputs.sequences = _sequences_of_graph(model, inputs.names)
    inputs.notes = check_fit(study, model, inputs.results, method=method)
    inputs.check = None if model is None else _check(model, study)
    inputs.shared = _shared_features(inputs, shared)
    return inputs


def _check(model: Any, study: Any) -> AlignmentCheck:
    """Check the model, by runs where the study has them and is what aligned."""
    if study is not None:
        found = alignment_check(model, study)
        if found.available:
            return found
    return alignment_check(model)


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


def _shared_features(inputs: Inputs, shared: Any) -> list[NDArray[np.float64]] | None:
    if shared is None and inputs.model is not None:
        held = None if inputs.check is None else inputs.check.features
        inputs.drawn = "aligned"
        if held is not None and _fits(inputs, held):
            inputs.drawn, shared = "not align", held
        elif inputs.study is not None:
            shared = inputs.model.transform(list(inputs.study))
        elif inputs.bases and getattr(inputs.model, "coef_", None):
            pairs = zip(inputs.bases, inputs.model.coef_, strict=True)
            shared = [basis.coordinates @ coef for basis, coef in pairs]
        elif inputs.bases and getattr(inputs.model, "mixing_", None):
            pairs = zip(inputs.bases, inputs.model.mixing_, strict=True)
            shared = [basis.gram_times(mixing) for basis, mixing in pairs]
    if shared is None:
        return None
    arrays = [np.asarray(to_numpy(s), dtype=float) for s in shared]
    _check_shared(inputs, arrays)
    return arrays


def _fits(inputs: Inputs, arrays: Sequence[NDArray[Any]]) -> bool:
    """Whether there are features for every sample, and some for each."""
    known = all(np.isfinite(a).all() for a in arrays)
    if inputs.sequences is None:
        return known
    return known and [len(a) for a in arrays] == [
        len(labels) for labels in inputs.sequences.labels
    ]


def _check_shared(inputs: Inputs, arrays: Sequence[NDArray[Any]]) -> None:
    if not inputs.names:
        inputs.names = [f"subject {i}" for i in range(len(arrays))]
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
        if inputs.sequences is not None:
            n = len(inputs.sequences.labels[i])
            if len(array) != n:
                raise InputError(
                    f"shared[{i}] has {len(array)} samples, subject "
                    f"{inputs.names[i]!r} of the study has {n}."
                )


def two_dimensional(
    arrays: Sequence[NDArray[np.float64]],
) -> tuple[NDArray[np.float64], str]:
    """Return columns to draw samples in, and what these are called.

    Shared features as they are when there are few; else, as for methods that stay in
    voxels, the principal components of all samples.
    """
    pooled = np.concatenate(arrays)
    if pooled.shape[1] == 1:
        return np.hstack([pooled, np.zeros_like(pooled)]), "shared feature"
    if pooled.shape[1] <= MAX_FEATURES:
        return pooled, "shared feature"
    from sklearn.decomposition import PCA

    n_components = min(5, *pooled.shape)
    pca = PCA(n_components, svd_solver="randomized", random_state=0)
    return pca.fit_transform(pooled), "principal component"
