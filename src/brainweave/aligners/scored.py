"""Habits of scikit-learn: score, and shared features as one ordinary table."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from brainweave._arrays import to_numpy
from brainweave._subjects import ids_of
from brainweave._validation import check_known, check_list_of_subjects
from brainweave.exceptions import InputError
from brainweave.labels import as_label_list

if TYPE_CHECKING:
    from brainweave.aligners.maps import SubjectMap


class Stacked(NamedTuple):
    """Shared features of several subjects in one table.

    Attributes
    ----------
    features : ndarray of shape (n_samples, n_components)
        The samples of all subjects, one below the other.
    groups : ndarray of shape (n_samples,)
        Whose each sample is; for ``LeaveOneGroupOut``.
    """

    features: NDArray[Any]
    groups: NDArray[Any]


class SubjectTransformer(TransformerMixin, BaseEstimator):
    """The map of one subject of a fitted aligner, as a step of a Pipeline.

    Parameters
    ----------
    aligner : aligner
        Fitted.
    subject : int or str
        Which of its subjects, by position or id.
    """

    def __init__(self, aligner: Any, subject: int | str) -> None:
        self.aligner = aligner
        self.subject = subject

    def fit(self, X: Any = None, y: Any = None) -> Self:
        """Do nothing: the aligner is fitted."""
        check_is_fitted(self.aligner, "maps_")
        return self

    def transform(self, X: Any) -> NDArray[Any]:
        """Map samples of the subject, (n_samples, n_voxels), to shared features."""
        return np.asarray(to_numpy(self.aligner.transform([X], [self.subject])[0]))

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self.aligner, "maps_")

    def __sklearn_clone__(self) -> Self:
        """Return itself: a clone would lose what the aligner learned."""
        return self


class Scored:
    """Adds what scikit-learn users look for to an aligner."""

    maps_: "list[SubjectMap]"

    def score(
        self, X: Any, y: Any = None, subjects: Sequence[int | str] | None = None
    ) -> float:
        """Score samples that did not align.

        With labels: accuracy of a linear support vector machine that is trained on
        some subjects and tested on another, in the shared space. Without: mean
        correlation of the shared features between subjects, row by row.

        Parameters
        ----------
        X : list of arrays of shape (n_samples_i, n_voxels_i), dict, or a Study
            Samples of at least two subjects. Without `subjects`, bare arrays are taken
            for new people, as in the folds of ``GridSearchCV``: each joins the model
            with the first half of its samples of each category, and the others are
            scored. So do subjects of a dict or Study that the model does not know.
        y : list of array-like, dict, or one list for all, optional
            Their categories; by default those of the Study.
        subjects : sequence of int or str, optional
            Which fitted subjects these are; all their samples are scored, and must not
            have taken part in the fit.

        Returns
        -------
        float
        """
        check_is_fitted(self, "maps_")
        owner = type(self).__name__
        entries = check_list_of_subjects(X, owner=f"score of {owner}")
        samples = [_data(entry) for entry in entries]
        known = _labels(entries, samples, y, owner)
        who = self._fitted_ones(entries, subjects)
        self._refuse_aligned(samples)
        if who is not None:
            pairs = zip(samples, who, strict=True)
            features = [to_numpy(self.maps_[i].transform(x)) for x, i in pairs]
        else:
            features, known = self._joined(samples, known)
        return _agreement(features) if known is None else _accuracy(features, known)

    def stack(self, X: Any, subjects: Sequence[int | str] | None = None) -> Stacked:
        """Return the shared features of several subjects as one table, and whose.

        What scikit-learn takes from here: ``features`` for a scaler or a classifier,
        ``groups`` for ``LeaveOneGroupOut``, and ``np.concatenate(y)`` for the labels.

        Parameters
        ----------
        X, subjects
            As in ``transform``.
        """
        check_is_fitted(self, "maps_")
        arrays = [to_numpy(a) for a in self.transform(X, subjects)]  # type: ignore[attr-defined]
        _, who = self._pair(X, subjects)  # type: ignore[attr-defined]
        ids = getattr(self, "ids_", None)
        names = np.array([i if ids is None else ids[i] for i in who])
        return Stacked(np.vstack(arrays), np.repeat(names, [len(a) for a in arrays]))

    def for_subject(self, subject: int | str) -> SubjectTransformer:
        """Return one subject's map as an ordinary transformer, for a Pipeline.

        Parameters
        ----------
        subject : int or str
            By position or id.
        """
        check_is_fitted(self, "maps_")
        self._indices([subject])  # type: ignore[attr-defined]
        return SubjectTransformer(self, subject)

    def _fitted_ones(self, entries: list[Any], subjects: Any) -> list[int] | None:
        """Return which fitted subjects these are; None for new people."""
        if subjects is not None:
            return list(self._pair(entries, subjects)[1])  # type: ignore[attr-defined]
        own, ids = getattr(self, "ids_", None), ids_of(entries, owner="score")
        if own is None or ids is None or not set(ids) & set(own):
            return None
        return list(self._pair(entries, None)[1])  # type: ignore[attr-defined]

    def _refuse_aligned(self, samples: list[Any]) -> None:
        for k, x in enumerate(samples):
            for map_ in self.maps_:
                known = getattr(map_, "signatures", None) is not None
                if known and map_.n_voxels == x.shape[1] and map_.took_part(x).any():
                    raise InputError(
                        f"X[{k}] has samples that took part in the fit: scoring them "
                        "would be circular. Score other samples, or use "
                        "brainweave.between_subject_classification."
                    )

    def _joined(
        self, samples: list[Any], known: list[list[Any]] | None
    ) -> tuple[list[NDArray[Any]], list[list[Any]] | None]:
        """Let new people join with half of their samples; return the other half."""
        features, kept = [], []
        for k, x in enumerate(samples):
            labels = None if known is None else known[k]
            joins = _first_half(len(x), labels)
            y = None if labels is None else [labels[i] for i in np.flatnonzero(joins)]
            new = self.fit_new_subject(x[joins], y)  # type: ignore[attr-defined]
            features.append(to_numpy(new.transform(x[~joins])))
            if labels is not None:
                kept.append([labels[i] for i in np.flatnonzero(~joins)])
        return features, None if known is None else kept


def _data(entry: Any) -> Any:
    samples = entry.data() if hasattr(entry, "labels") else entry
    return np.asarray(to_numpy(samples))


def _labels(entries: list[Any], samples: list[Any], y: Any, owner: str) -> Any:
    if y is None:
        found = [getattr(entry, "labels", None) for entry in entries]
        if any(labels is None for labels in found):
            return None
        y = found
    counts = [len(x) for x in samples]
    listed = check_known(y, ids_of(entries, owner=owner), counts, owner=owner)
    known = [as_label_list(part, f"y[{i}]") for i, part in enumerate(listed)]
    if len(known) != len(samples):
        raise InputError(f"y has {len(known)} entries for {len(samples)} subjects.")
    for i, (labels, n) in enumerate(zip(known, counts, strict=True)):
        if len(labels) != n:
            raise InputError(f"y[{i}] has {len(labels)} labels for {n} samples.")
    return known


def _first_half(n: int, labels: list[Any] | None) -> NDArray[np.bool_]:
    """Choose the first half of the samples of each category, or of all."""
    groups: dict[Any, list[int]] = {}
    for i in range(n):
        groups.setdefault(None if labels is None else labels[i], []).append(i)
    chosen = np.zeros(n, dtype=bool)
    for rows in groups.values():
        chosen[rows[: (len(rows) + 1) // 2]] = True
    if chosen.all():
        raise InputError(
            "score needs two samples of a category at least: one to join, one to score."
        )
    return chosen


def _accuracy(features: list[NDArray[Any]], known: list[list[Any]]) -> float:
    from sklearn.svm import SVC

    n_right = n_all = 0
    for k, tested in enumerate(features):
        rest = [i for i in range(len(features)) if i != k]
        pairs = [
            (row, y)
            for i in rest
            for row, y in zip(features[i], known[i], strict=True)
            if y is not None
        ]
        classifier = SVC(kernel="linear")
        classifier.fit(np.array([row for row, _ in pairs]), [y for _, y in pairs])
        labelled = np.array([y is not None for y in known[k]])
        if labelled.any():
            guessed = classifier.predict(tested[labelled])
            truth = [y for y in known[k] if y is not None]
            n_right += int(sum(g == t for g, t in zip(guessed, truth, strict=True)))
            n_all += len(truth)
    return n_right / n_all


def _agreement(features: list[NDArray[Any]]) -> float:
    counts = {len(f) for f in features}
    if len(counts) > 1:
        raise InputError(
            f"score without labels compares row by row, but the subjects have "
            f"{sorted(counts)} samples. Pass y, or the same stimuli for all."
        )
    found = []
    for i, a in enumerate(features):
        for b in features[i + 1 :]:
            a0, b0 = a - a.mean(axis=0), b - b.mean(axis=0)
            scale = np.sqrt((a0**2).sum(axis=0) * (b0**2).sum(axis=0))
            found.append(((a0 * b0).sum(axis=0) / np.where(scale > 0, scale, 1)).mean())
    return float(np.mean(found))
