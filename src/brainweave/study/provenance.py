"""Provenance: the record of what was done to the data of a study, and its words."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, TypeAlias

from brainweave._core.version import __version__
from brainweave.persistence.codec import plain
from brainweave.study.spaces import image_name

Record: TypeAlias = Mapping[str, Any]
RunRecords: TypeAlias = list[tuple[str, Record]]  # subject id, and one of its runs

AS_GIVEN = "as given"  # where a record has no better name of labels and the like
MAX_CONFOUND_NAMES = 6  # so many are listed by name

# Shares from which on a record is worth a caution:
MAX_SCRUBBED = 1 / 2  # of a subject's volumes
MAX_NUISANCE = 1 / 3  # confounds and drifts per volume
MAX_EXPLAINED = 1 / 2  # of the categories' time courses, by confounds and drifts

_SAMPLES = {
    "volumes": "single volumes",
    "blocks": "means of blocks",
    "trials": "one estimate per trial (least squares all)",
    "trials-lsa": "one estimate per trial (least squares all)",
    "trials-lss": "one estimate per trial (least squares separate)",
}
_MASKS = {
    "runs": "voxels in the brain masks of all runs of each subject",
    "common": "voxels in the brain masks of all runs of all subjects",
    "epi": "computed from the images: voxels in the masks of at least half of a "
    "subject's runs",
}
_SOURCES = {
    "nifti": "NIfTI",
    "cifti": "CIFTI",
    "gifti": "GIfTI",
    "matlab": "MATLAB",
    "openfmri": "OpenfMRI",
}
_SCALES = {
    "zscore": "z-scores of each voxel and run",
    "run": "z-scores of each voxel and run",
    "psc": "per cent signal change",
    "all": "z-scores of each voxel over all samples",
}


def make_record(
    settings: Record, subjects: Iterable[Any], runs: Record, **more: Any
) -> dict[str, Any]:
    """Return what was done to these subjects, in values that JSON can hold.

    `runs` has, by subject id and name of the run, what :func:`run_record` returns.
    """
    return {
        "brainweave": __version__,
        "settings": plain(settings, other=image_name, arrays=False),
        **more,
        "runs": dict(runs),
        "samples": {s.id: _samples_by_category(s) for s in subjects},
    }


def run_record(run: Any, high_pass: Any) -> dict[str, Any]:
    """Return what was done to a run whose header is known."""
    n_volumes = run.header.n_samples
    counts = {} if run.plan is None else asdict(run.plan.counts)
    return {
        "file": Path(run.name).name,
        "t_r": run.repetition_time,
        "scrubbed": n_volumes - len(run.used()) - counts.get("unsteady", 0),
        "samples": run.n_samples,
        "volumes": n_volumes,
        "high_pass": run.cutoff(high_pass),
        **counts,
    }


def _samples_by_category(subject: Any) -> dict[str, int]:
    labels = [None] * subject.n_samples if subject.labels is None else subject.labels
    counts = Counter("n/a" if label is None else str(label) for label in labels)
    return dict(sorted(counts.items()))


def scaled_within(record: Record | None) -> str | None:
    """Return what a voxel's scale was taken over: "run", "all", or None if unknown."""
    record = record or {}
    if record.get("zscore"):
        return str(record["zscore"])
    return "run" if (record.get("settings") or {}).get("standardize") else None


def cautions(record: Record | None) -> list[str]:
    """Return what a reader should know before believing numbers of these data."""
    texts = []
    runs = _run_records(record or {})
    for id in dict(runs):
        lost, total = _count_scrubbed(runs, id)
        if total and lost / total > MAX_SCRUBBED:
            share = f"{lost / total:.0%}"
            texts.append(
                f"sub-{id}: {lost} of {total} volumes ({share}) were left out."
            )
    counts = [
        (_count_nuisance(r), r["volumes"] - r.get("scrubbed", 0) - r.get("unsteady", 0))
        for _, r in runs
    ]
    crowded = [(n, left) for n, left in counts if n > MAX_NUISANCE * left]
    remedy = "Fewer confounds may serve better: motion alone, or none."
    if crowded:
        n, left = max(crowded, key=lambda pair: pair[0] / max(pair[1], 1))
        texts.append(
            f"{n} confounds and drifts are removed from {left} volumes in "
            f"{len(crowded)} of {len(runs)} runs, and with them much of the signal. "
            f"{remedy}"
        )
    explained = [r for _, r in runs if r.get("lost", 0) > MAX_EXPLAINED]
    if explained:
        worst = max(explained, key=lambda r: r["lost"])
        texts.append(
            f"The {_count_nuisance(worst)} confounds and drifts explain "
            f"{worst['lost']:.0%} of the categories' own time courses, in "
            f"{len(explained)} of {len(runs)} runs more than half: what goes slowly, "
            f"as blocks do, cannot be told from them. {remedy}"
        )
    return texts


def describe_record(record: Record | None) -> list[tuple[str, str]]:
    """Return what was done, as pairs of a name and a short text.

    What is not in the record is not known, and is left out.
    """
    record = record or {}
    settings = record.get("settings") or {}
    runs = _run_records(record)
    scale = str(record.get("zscore") or settings.get("standardize") or "")
    texts = {
        "images": _describe_images(settings, len(runs)),
        "samples": _describe_samples(settings),
        "labels": _describe_labels(settings, record.get("left_out")),
        "repetition time": _describe_times(runs),
        "confounds": _describe_confounds(settings, record.get("confounds"), runs),
        "scrubbing": _describe_scrubbing(settings, runs),
        "volumes left out": "" if was_scrubbed(settings) else _count_lost(runs),
        "unsteady volumes": _describe_unsteady(runs),
        "filters": _describe_filters(settings, record.get("confounds"), runs),
        "scale": _SCALES.get(scale, scale),
        "smoothing": _describe_smoothing(settings),
        "mask": _describe_mask(settings),
        "voxels": str(record.get("voxels") or ""),
        "missing runs": _list_by_subject(record.get("missing_runs")),
        "runs without events": _list_by_subject(record.get("runs_without_events")),
        "overlapping events": _describe_overlaps(settings, runs),
        "matching": _describe_matching(record.get("match")),
    }
    return [(name, text) for name, text in texts.items() if text]


def _run_records(record: Record) -> RunRecords:
    subjects = record.get("runs") or {}
    return [(id, run) for id, runs in subjects.items() for run in runs.values()]


def _count_nuisance(run: Record) -> int:
    """Count the confounds and drifts that are removed from a run."""
    return int(run.get("nuisance") or run.get("confounds", 0))


def _count_scrubbed(runs: RunRecords, id: str | None = None) -> tuple[int, int]:
    """Count the volumes that were scrubbed, and all, of one subject or of everyone."""
    own = [run for owner, run in runs if id in (None, owner)]
    return sum(r.get("scrubbed", 0) for r in own), sum(r.get("volumes", 0) for r in own)


def _describe_images(settings: Record, n_runs: int) -> str:
    if "preprocessed" in settings:
        kind = "preprocessed images" if settings["preprocessed"] else "raw images"
        if settings.get("pipeline"):
            kind = f"output of {settings['pipeline']}"
        chosen = [f"{n} {settings[n]}" for n in ("task", "space") if settings.get(n)]
        return ", ".join([kind, *chosen])
    if settings.get("source") not in _SOURCES:
        return ""
    files = ", ".join(map(str, settings.get("files") or []))
    return f"{_SOURCES[settings['source']]}, {f'{n_runs} runs' if n_runs else files}"


def _describe_samples(settings: Record) -> str:
    samples = settings.get("samples")
    if samples is None:
        return ""
    when = f"{settings.get('hrf_delay', 0):g} s after the stimulus"
    if str(samples).startswith("trials"):
        when = f"response {settings.get('hrf_model', 'unknown')}"
    return f"{_SAMPLES.get(samples, samples)}, {when}"


def _describe_labels(settings: Record, left_out: Any) -> str:
    if "label" not in settings:
        text = str(settings["labels"] or "none") if "labels" in settings else ""
    else:
        text = "none" if settings["label"] is None else f"column {settings['label']}"
    counts = left_out or {}
    listed = ", ".join(f"{label} ({count})" for label, count in counts.items())
    return f"{text}; events left out: {listed}" if listed else text


def _describe_times(runs: RunRecords) -> str:
    times = sorted({round(float(r["t_r"]), 4) for _, r in runs if r.get("t_r")})
    return ", ".join(f"{t:g}" for t in times) + " s" if times else ""


def _describe_confounds(settings: Record, names: Any, runs: RunRecords) -> str:
    if "confounds" not in settings:
        return ""
    chosen = settings["confounds"]
    if chosen is None:
        text = "none removed"
    else:
        text = chosen if isinstance(chosen, str) else ", ".join(map(str, chosen))
        if isinstance(names, list) and names:
            more = ", ..." if len(names) > MAX_CONFOUND_NAMES else ""
            listed = ", ".join(names[:MAX_CONFOUND_NAMES]) + more
            text += f": {len(names)} columns ({listed})"
    with_levels = [bool(r["levels"]) for _, r in runs if r.get("nuisance")]
    if not with_levels or str(settings.get("samples")).startswith("trials"):
        return text
    if not any(with_levels):
        return f"{text}, fitted without events"
    some = f" in {sum(with_levels)} of {len(with_levels)} runs"
    return f"{text}, fitted with a level for each event" + (
        "" if all(with_levels) else some
    )


def _describe_scrubbing(settings: Record, runs: RunRecords) -> str:
    if not was_scrubbed(settings):
        return "none" if "scrub" in settings else ""
    limit = settings.get("scrub")
    above = "" if limit is None else f"above {limit:g} mm: "
    return above + (_count_lost(runs) or "no volume")


def was_scrubbed(settings: Record) -> bool:
    """Say whether volumes were left out for motion.

    Others are left out too: those before the steady state, or by a mask of samples.
    """
    chosen = settings.get("confounds")
    if isinstance(chosen, Mapping):  # arguments of nilearn's load_confounds
        chosen = chosen.get("strategy", chosen.get("denoise_strategy"))
    return settings.get("scrub") is not None or "scrub" in str(chosen)


def _count_lost(runs: RunRecords) -> str:
    lost, total = _count_scrubbed(runs)
    by_subject = {id: _count_scrubbed(runs, id)[0] for id in dict(runs)}
    counted = f"{lost} of {total} volumes" + _list_counts(by_subject, " ({})")
    return counted if lost else ""


def _describe_unsteady(runs: RunRecords) -> str:
    n_unsteady = sum(run.get("unsteady", 0) for _, run in runs)
    total = sum(run.get("volumes", 0) for _, run in runs)
    return f"{n_unsteady} of {total} left out" if n_unsteady else ""


def _describe_filters(settings: Record, confounds: Any, runs: RunRecords) -> str:
    if "detrend" not in settings:
        return ""
    parts = ["trends removed"] if settings["detrend"] else []
    if settings.get("high_pass"):
        text = f"high-pass {settings['high_pass']:.2g} Hz (cosines)"
        n_done = sum(bool(run.get("high_pass", True)) for _, run in runs)
        if n_done < len(runs):
            text += f" in {n_done} of {len(runs)} runs, whose repetition time is known"
        parts.append(text)
    elif any(str(name).startswith("cosine") for name in confounds or ()):
        parts.append("high-pass by the cosines among the confounds")
    if settings.get("low_pass"):
        parts.append(f"low-pass {settings['low_pass']:.4g} Hz")
    return ", ".join(parts) or "none"


def _describe_smoothing(settings: Record) -> str:
    if "smoothing_fwhm" not in settings:
        return ""
    fwhm = settings["smoothing_fwhm"]
    return f"{fwhm:g} mm" if fwhm else "none"


def _describe_mask(settings: Record) -> str:
    if "mask" not in settings:
        return ""
    mask = settings["mask"]
    return _MASKS.get(mask, mask) if isinstance(mask, str) else str(mask or "")


def _describe_overlaps(settings: Record, runs: RunRecords) -> str:
    shared = sum(r.get("shared_volumes", 0) for _, r in runs)
    lost = sum(r.get("overshadowed", 0) for _, r in runs)
    if not shared:
        return ""
    return (
        f"{shared} volumes lie under events of several categories (rule: "
        f"{settings.get('overlap')}); {lost} events have no volume of their own"
    )


def _describe_matching(match: Any) -> str:
    if not isinstance(match, Mapping):
        return ""
    text = f"{match['how']}: {match['used']} of {match['had']} samples used"
    return text + _list_counts(match.get("dropped", {}), "; dropped: {}")


def _list_by_subject(values: Any) -> str:
    listed = (values or {}).items()
    return "; ".join(f"sub-{id}: {', '.join(map(str, v))}" for id, v in listed)


def _list_counts(by_subject: Mapping[str, int], form: str) -> str:
    """List the subjects with a count above zero; nothing if there are none."""
    listed = ", ".join(f"sub-{id} {n}" for id, n in by_subject.items() if n)
    return form.format(listed) if listed else ""
