"""Studies in the shared space of a fitted model, and subjects that join it."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from brainweave._core.exceptions import InputError
from brainweave.study.study import Study

__all__ = ["ZERO_SHOT", "add_subjects", "transform_study"]

ZERO_SHOT = "zero-shot: mapped by the shared map, without aligning data"


def transform_study(
    model: Any,
    study: Study,
    *,
    ids: Sequence[str] | None = None,
    only_new: bool = False,
    all_aligned: bool = False,
    new: bool = False,
    tick: Callable[[str], None] | None = None,
) -> Study:
    """Map the samples of a study into the shared space of a model.

    Samples that took part in the alignment are marked as aligned, since scoring them
    would be circular.

    Parameters
    ----------
    model : aligner
        Fitted on these subjects, or more.
    study : Study
        The samples; subjects are found in the model by their ids.
    ids : sequence of str, optional
        Ids of the model's subjects; by default those it was fitted with.
    only_new : bool, default=False
        Leave out samples that took part in the alignment.
    all_aligned : bool, default=False
        Whether all samples took part, as after averaging, which hides single ones.
    new : bool, default=False
        Map subjects that the model does not know by its shared map (zero-shot, see
        ``GDM.shared_map_``): they need no aligning data, but must lie in the space of
        the others.
    tick : callable, optional
        Called with the id of each subject that is done.

    Returns
    -------
    Study
        Shared features in place of voxels. Its record names, as ``zero_shot``, the
        subjects that were mapped by the shared map.

    Examples
    --------
    >>> from brainweave import GDM, simulate_study
    >>> study = simulate_study(n_subjects=3, n_voxels=40, random_state=0)
    >>> aligning, other = study.split_halves(by="run")
    >>> gdm = GDM(n_components=3).fit(aligning)
    >>> shared = transform_study(gdm, study, only_new=True)
    >>> [subject.n_samples for subject in shared] == [s.n_samples for s in other]
    True
    """
    known = list(ids if ids is not None else model.ids_ or [])
    unknown = [id for id in study.ids if id not in known]
    if unknown and new:
        shared_map = shared_map_of(model, f"Subject {unknown[0]!r}")
    elif unknown:
        raise InputError(
            f"The model does not know subject {unknown[0]!r}; it has "
            f"{', '.join(known)}. A new one joins by add_subjects; new=True maps it by "
            "the shared map of a model that has one."
        )
    shared = []
    for s in study:
        samples, name = s.data(), f"Subject {s.id!r}"
        if s.id in unknown:
            own = shared_map.map_for(s, name=name)
            flags = np.zeros(s.n_samples, dtype=bool)
        else:
            position = known.index(s.id)
            own = model.maps_[position]
            flags = model._took_part(samples, position)
            flags |= all_aligned and model._joins_samples
        features = own.transform(samples, name=name)
        if s.aligned is not None:
            flags |= s.aligned
        if only_new and flags.all():
            raise InputError(
                f"All {len(flags)} samples of subject {s.id!r} took part in the "
                "alignment. Fit on a part of them: study.split_halves('run')."
            )
        mapped = s._replace(samples=features, aligned=flags, space=None)
        shared.append(mapped.select(~flags) if only_new else mapped)
        if tick is not None:
            tick(s.id)
    record = None
    if unknown:
        record = {"zero_shot": {"subjects": unknown, "how": ZERO_SHOT}}
    return Study(shared, f"{study.name}, shared features" if study.name else "", record)


def shared_map_of(model: Any, who: str = "A subject") -> Any:
    """Return the map for subjects without aligning data, or say why there is none."""
    model = getattr(model, "best_estimator_", model)
    found = getattr(model, "shared_map_", None)
    if found is None:
        why = str(getattr(model, "place_", "")) or (
            f"{type(model).__name__} has no shared map; GDM has one where subjects lie "
            "in one space."
        )
        raise InputError(f"{who} cannot be mapped without aligning data. {why}")
    return found


def add_subjects(
    model: Any, study: Study, *, tick: Callable[[str], None] | None = None
) -> None:
    """Add the subjects of a study to a model; the maps of the others do not change.

    Parameters
    ----------
    model : aligner
        Fitted; it is changed in place.
    study : Study
        The aligning samples of subjects that the model does not have.
    tick : callable, optional
        Called with the id of each added subject.

    Examples
    --------
    >>> from brainweave import GDM, simulate_study
    >>> study = simulate_study(n_subjects=4, n_voxels=40, random_state=0)
    >>> gdm = GDM(n_components=3).fit(study.subset(["01", "02", "03"]))
    >>> add_subjects(gdm, study.subset(["04"]))
    >>> gdm.ids_
    ['01', '02', '03', '04']
    """
    local = getattr(model, "aligner", model)  # of one region
    by_row = local.get_params(deep=False).get("graph") == "time"
    for s in study:
        y = local._y_of(s)
        if y is None and by_row:
            y = list(range(s.n_samples))
        new = model.fit_new_subject(s, y)
        model.maps_ = [*model.maps_, new.detach()]
        model.n_subjects_ = len(model.maps_)
        for name in ("coef", "mixing"):
            arrays, array = vars(model).get(f"{name}_"), getattr(new, name)
            if isinstance(arrays, list) and array is not None:
                setattr(model, f"{name}_", [*arrays, array])
        vars(model).pop("bases_", None)
        if model.ids_ is not None:
            model.ids_ = [*model.ids_, s.id]
        if tick is not None:
            tick(s.id)
