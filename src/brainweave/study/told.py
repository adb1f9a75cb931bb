"""What a reader was asked for, and what was done to the data: options and records."""

import inspect
import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, fields, is_dataclass, replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any, TypeAlias, get_args, get_type_hints

import numpy as np

from brainweave._version import __version__
from brainweave.study.spaces import image_name

Record: TypeAlias = Mapping[str, Any]
Runs: TypeAlias = list[tuple[str, Record]]  # the id of a subject, and one of its runs

FEW_NAMES = 6  # names of confounds that are listed
MUCH = 1 / 2  # share of scrubbed volumes that deserves a warning
MANY = 1 / 3  # confounds and drifts per volume that deserve one
SHARED = 1 / 2  # share of the categories' time courses in them that deserves one

_SAMPLES = {
    "volumes": "single volumes",
    "blocks": "means of blocks",
    "trials": "one estimate per trial (least squares all)",
    "trials-lsa": "one estimate per trial (least squares all)",
    "trials-lss": "one estimate per trial (least squares separate)",
}
_MASKS = {
    None: "the brain mask of each subject",
    "common": "voxels in the brain masks of all subjects",
    "epi": "computed from the images of each subject",
}
_SOURCES = {
    "nifti": "NIfTI",
    "cifti": "CIFTI",
    "gifti": "GIfTI",
    "matlab": "MATLAB",
    "openfmri": "OpenfMRI",
}
AS_GIVEN = "as given"  # where a record has no better name of labels and the like
_SCALES = {
    "zscore": "z-scores of each voxel and run",
    "psc": "per cent signal change",
    "all": "z-scores of each voxel over all samples",
}


def made_record(
    settings: Record, subjects: Iterable[Any], runs: Record, **more: Any
) -> dict[str, Any]:
    """Return what was done to these subjects, in values that JSON can hold.

    `runs` are those of each subject id, by their names, as :func:`run_record` has them.
    """
    return {
        "brainweave": __version__,
        "settings": json.loads(json.dumps(settings, default=_plain)),
        **more,
        "runs": dict(runs),
        "samples": {s.id: _samples_by_category(s) for s in subjects},
    }


def run_record(run: Any) -> dict[str, Any]:
    """Tell what was done to a run, whose header is known."""
    n_volumes = run.header.n_samples
    return {
        "file": Path(run.name).name,
        "t_r": run.repetition_time,
        "scrubbed": n_volumes - len(run.used()),
        "samples": run.n_samples,
        "volumes": n_volumes,
        **({} if run.plan is None else asdict(run.plan.counts)),
    }


def _samples_by_category(subject: Any) -> dict[str, int]:
    labels = [None] * subject.n_samples if subject.labels is None else subject.labels
    counts = Counter("n/a" if label is None else str(label) for label in labels)
    return dict(sorted(counts.items()))


def _plain(value: Any) -> Any:
    """Return a setting as JSON can hold it; images become their names."""
    if isinstance(value, np.generic):
        return value.item()
    return list(value) if isinstance(value, set | frozenset) else image_name(value)


def preprocessing(record: Record | None) -> list[tuple[str, str]]:
    """Return what was done, as names and short texts; nothing if it is not known."""
    record = record or {}
    settings = record.get("settings") or {}
    runs = _runs(record)
    times = sorted({round(float(r["t_r"]), 4) for _, r in runs if r.get("t_r")})
    told = {
        **_samples(settings, len(runs)),
        "repetition time": ", ".join(f"{t:g}" for t in times) + " s" if times else "",
        **_cleaning(settings, record.get("confounds"), runs),
        "voxels": str(record.get("voxels") or ""),
        "missing runs": _per_subject(record.get("missing_runs")),
        "runs without events": _per_subject(record.get("runs_without_events")),
        "overlapping events": _overlaps(settings, runs),
        "matching": _matching(record.get("match")),
    }
    if record.get("zscore"):
        told["scale"] = _SCALES["all" if record["zscore"] == "all" else "zscore"]
    return [(name, text) for name, text in told.items() if text]


def scaled_within(record: Record | None) -> str | None:
    """Return what a voxel's scale was taken over: "run", "all" or None: not known."""
    record = record or {}
    if record.get("zscore"):
        return str(record["zscore"])
    return "run" if (record.get("settings") or {}).get("standardize") else None


def cautions(record: Record | None) -> list[str]:
    """Return what a reader should know before believing numbers of these data."""
    texts = []
    runs = _runs(record or {})
    for id in dict(runs):
        lost, all_ = _scrubbed(runs, id)
        if all_ and lost / all_ > MUCH:
            texts.append(
                f"sub-{id}: {lost} of {all_} volumes ({lost / all_:.0%}) were scrubbed."
            )
    taken = [(_removed(r), r["volumes"] - r.get("scrubbed", 0)) for _, r in runs]
    crowded = [(n, of) for n, of in taken if n > MANY * of]
    fewer = "Fewer confounds may serve better: motion alone, or none."
    if crowded:
        n, of = max(crowded, key=lambda pair: pair[0] / max(pair[1], 1))
        texts.append(
            f"{n} confounds and drifts are removed from {of} volumes in {len(crowded)} "
            f"of {len(runs)} runs, and with them much of the signal. {fewer}"
        )
    alike = [r for _, r in runs if r.get("lost", 0) > SHARED]
    if alike:
        worst = max(alike, key=lambda r: r["lost"])
        texts.append(
            f"The {_removed(worst)} confounds and drifts explain {worst['lost']:.0%} "
            f"of the categories' own time courses, in {len(alike)} of {len(runs)} runs "
            "more than half: what goes slowly, as blocks do, cannot be told from them. "
            f"{fewer}"
        )
    return texts


def _removed(run: Record) -> int:
    """Count the confounds and drifts that are removed from a run."""
    return int(run.get("nuisance") or run.get("confounds", 0))


def _runs(record: Record) -> Runs:
    known = record.get("runs") or {}
    return [(id, run) for id, of in known.items() for run in of.values()]


def _scrubbed(runs: Runs, id: str | None = None) -> tuple[int, int]:
    """Count the volumes that were scrubbed, and all, of one subject or of everyone."""
    of = [run for whose, run in runs if id in (None, whose)]
    return sum(r.get("scrubbed", 0) for r in of), sum(r.get("volumes", 0) for r in of)


def _samples(settings: Record, n_runs: int) -> dict[str, str]:
    """Tell what became samples; a setting that is not in the record is not known."""
    told = {}
    if settings.get("source") in _SOURCES:
        files = settings.get("files") or []
        count = f"{n_runs} runs" if n_runs else ", ".join(map(str, files))
        told["images"] = f"{_SOURCES[settings['source']]}, {count}"
    if "preprocessed" in settings:
        kind = "output of fMRIPrep" if settings["preprocessed"] else "raw images"
        chosen = [f"{n} {settings[n]}" for n in ("task", "space") if settings.get(n)]
        told["images"] = ", ".join([kind, *chosen])
    samples = settings.get("samples")
    if samples is not None:
        when = f"{settings.get('hrf_delay', 0):g} s after the stimulus"
        if str(samples).startswith("trials"):
            when = f"response {settings.get('hrf_model', 'unknown')}"
        told["samples"] = f"{_SAMPLES.get(samples, samples)}, {when}"
    if "label" in settings:
        ignored = ", ".join(map(str, settings.get("ignore") or ())) or "nothing"
        column = settings["label"]
        text = f"column {column}; ignored: {ignored}"
        told["labels"] = "none" if column is None else text
    elif "labels" in settings:
        told["labels"] = str(settings["labels"] or "none")
    return told


def _cleaning(settings: Record, names: Any, runs: Runs) -> dict[str, str]:
    """Tell what was taken out of the images, and which voxels were kept."""
    told = {}
    if "confounds" in settings:
        told["confounds"] = _confounds(settings["confounds"], names)
        fitted = [bool(r["levels"]) for _, r in runs if r.get("nuisance")]
        if fitted and not str(settings.get("samples")).startswith("trials"):
            how = "with a level for each event" if any(fitted) else "without events"
            some = f" in {sum(fitted)} of {len(fitted)} runs"
            mixed = some if any(fitted) and not all(fitted) else ""
            told["confounds"] += f", fitted {how}{mixed}"
    told["scrubbing"] = _scrubbing(settings, runs)
    if "detrend" in settings:
        parts = ["trends removed"] if settings["detrend"] else []
        for name in ("high_pass", "low_pass"):
            if settings.get(name):
                parts.append(f"{name.replace('_', '-')} {settings[name]:.4g} Hz")
        told["filters"] = ", ".join(parts) or "none beyond the confounds"
    if settings.get("standardize"):
        scale = str(settings["standardize"])
        told["scale"] = _SCALES.get(scale, scale)
    if "smoothing_fwhm" in settings:
        fwhm = settings["smoothing_fwhm"]
        told["smoothing"] = f"{fwhm:g} mm" if fwhm else "none"
    if "mask" in settings:
        mask = settings["mask"]
        known = mask if isinstance(mask, str | None) else ""
        told["mask"] = _MASKS.get(known, str(mask))
    return told


def _confounds(chosen: Any, names: Any) -> str:
    if chosen is None:
        return "none removed"
    text = chosen if isinstance(chosen, str) else ", ".join(map(str, chosen))
    if not isinstance(names, list) or not names:
        return text
    listed = ", ".join(names[:FEW_NAMES]) + (", ..." if names[FEW_NAMES:] else "")
    return f"{text}: {len(names)} columns ({listed})"


def _scrubbing(settings: Record, runs: Runs) -> str:
    lost, all_ = _scrubbed(runs)
    limit = settings.get("scrub")
    if not lost and limit is None:
        return "none" if "scrub" in settings else ""
    above = "" if limit is None else f"above {limit:g} mm: "
    each = {id: _scrubbed(runs, id)[0] for id in dict(runs)}
    return f"{above}{lost} of {all_} volumes" + _counts(each, " ({})")


def _per_subject(found: Any) -> str:
    listed = (found or {}).items()
    return "; ".join(f"sub-{id}: {', '.join(map(str, v))}" for id, v in listed)


def _counts(each: Mapping[str, int], form: str) -> str:
    """List the subjects with a count above zero; nothing if there are none."""
    listed = ", ".join(f"sub-{id} {n}" for id, n in each.items() if n)
    return form.format(listed) if listed else ""


def _overlaps(settings: Record, runs: Runs) -> str:
    shared = sum(r.get("shared_volumes", 0) for _, r in runs)
    lost = sum(r.get("overshadowed", 0) for _, r in runs)
    if not shared:
        return ""
    return (
        f"{shared} volumes lie under events of several categories (rule: "
        f"{settings.get('overlap')}); {lost} events have no volume of their own"
    )


def _matching(match: Any) -> str:
    if not isinstance(match, Mapping):
        return ""
    text = f"{match['how']}: {match['used']} of {match['had']} samples used"
    return text + _counts(match.get("dropped", {}), "; dropped: {}")


def gathered(owner: str, details: Mapping[str, Any], *groups: Any) -> tuple[Any, ...]:
    """Put details that were given to `owner` into the objects that have them.

    So ``load_bids(folder, ignore="rest")`` is short for
    ``load_bids(folder, events=EventRules(ignore="rest"))``.
    """
    names = [[f.name for f in fields(group)] for group in groups]
    known = [name for listed in names for name in listed]
    for name in details:
        if name not in known:
            near = get_close_matches(name, known, n=1)
            all_ = (
                f"{type(group).__name__} has {', '.join(listed)}"
                for group, listed in zip(groups, names, strict=True)
            )
            hint = f"Did you mean {near[0]}?" if near else f"{'; '.join(all_)}."
            raise TypeError(f"Unknown option {name!r} of {owner}. {hint}")
    return tuple(
        replace(group, **{name: details[name] for name in listed if name in details})
        for group, listed in zip(groups, names, strict=True)
    )


def option_names(function: Callable[..., Any]) -> list[str]:
    """List the options of a function, with the fields of objects that it takes.

    For those who have names and values only, such as a command line.
    """
    hints = get_type_hints(function)
    names: list[str] = []
    for parameter in inspect.signature(function).parameters.values():
        if parameter.kind is parameter.VAR_KEYWORD:
            continue
        kinds = [k for k in get_args(hints.get(parameter.name)) if is_dataclass(k)]
        if kinds:
            names += [f.name for kind in kinds for f in fields(kind)]
        else:
            names.append(parameter.name)
    return names
