"""Provenance: the record of what was done to the data of a study, and its words."""

from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, TypeAlias

from brainweave._core import __version__
from brainweave.persistence.codec import plain
from brainweave.study.spaces import image_name

Record: TypeAlias = Mapping[str, Any]

AS_GIVEN = "as given"  # where a record has no better name of labels and the like
MAX_CONFOUND_NAMES = 6  # so many are listed by name

# Shares from which on a record is worth a caution:
MAX_SCRUBBED = 1 / 2  # of a subject's volumes
MAX_NUISANCE = 1 / 3  # confounds and drifts per volume
MAX_EXPLAINED = 1 / 2  # of the categories' time courses, by confounds and drifts

# Words for the values of settings; other values are shown as they are.
_SAMPLES = {
    "volumes": "single volumes",
    "blocks": "means of blocks",
    "trials": "one estimate per trial (least squares separate)",
}
_MASKS = {
    "runs": "voxels in the brain masks of all runs of each subject",
    "common": "voxels in the brain masks of all runs of all subjects",
    "epi": "computed from the images: voxels in the masks of at least half of a "
    "subject's runs",
}
_SOURCES = {"nifti": "NIfTI", "cifti": "CIFTI", "gifti": "GIfTI", "matlab": "MATLAB"}
_SCALES = {
    "zscore": "z-scores of each voxel and run",
    "run": "z-scores of each voxel and run",
    "psc": "per cent signal change",
    "all": "z-scores of each voxel over all samples",
}


def make_record(
    settings: Record, subjects: Iterable[Any], runs: Record, **more: Any
) -> dict[str, Any]:
    """Return what was done to these subjects, as JSON; `runs` are run_records."""
    samples = {}
    for s in subjects:
        labels = [None] * s.n_samples if s.labels is None else s.labels
        counts = Counter("n/a" if label is None else str(label) for label in labels)
        samples[s.id] = dict(sorted(counts.items()))
    return {
        "brainweave": __version__,
        "settings": plain(settings, other=image_name, arrays=False),
        **more,
        "runs": dict(runs),
        "samples": samples,
    }


def run_record(run: Any, high_pass: Any) -> dict[str, Any]:
    """Return what was done to a run whose header is known."""
    n_volumes = run.header.n_samples
    counts = {} if run.plan is None else run.plan.counts
    return {
        "file": Path(run.name).name,
        "t_r": run.repetition_time,
        "scrubbed": n_volumes - len(run.used()) - counts.get("unsteady", 0),
        "samples": run.n_samples,
        "volumes": n_volumes,
        "high_pass": run.cutoff(high_pass),
        **counts,
    }


def scaled_within(record: Record | None) -> str | None:
    """Return what a voxel's scale was taken over: "run", "all", or None if unknown."""
    record = record or {}
    if record.get("zscore"):
        return str(record["zscore"])
    return "run" if (record.get("settings") or {}).get("standardize") else None


def volume_seconds(record: Record | None) -> float | None:
    """Return the repetition time of a study whose samples are volumes, if known."""
    record = record or {}
    if (record.get("settings") or {}).get("samples", "volumes") != "volumes":
        return None
    runs = _runs_of(record)
    times = {round(float(run["t_r"]), 4) for run in runs if run.get("t_r")}
    return times.pop() if len(times) == 1 else None


def cautions(record: Record | None) -> list[str]:
    """Return what a reader should know before believing numbers of these data."""
    record, texts = record or {}, []
    for id, own in (record.get("runs") or {}).items():
        lost, total = (_count(own.values(), what) for what in ("scrubbed", "volumes"))
        if total and lost / total > MAX_SCRUBBED:
            share = f"{lost} of {total} volumes ({lost / total:.0%})"
            texts.append(f"sub-{id}: {share} were left out.")
    runs = _runs_of(record)
    removed = [int(run.get("nuisance") or run.get("confounds", 0)) for run in runs]
    crowded, explained = [], []
    for run, n in zip(runs, removed, strict=True):
        left = run["volumes"] - run.get("scrubbed", 0) - run.get("unsteady", 0)
        if n > MAX_NUISANCE * left:
            crowded.append((n / max(left, 1), n, left))
        if run.get("lost", 0) > MAX_EXPLAINED:
            explained.append((run["lost"], n))
    remedy = "Consider fewer confounds: motion alone, or none."
    if crowded:
        _, n, left = max(crowded)
        texts.append(
            f"{n} confounds and drifts are removed from {left} volumes in "
            f"{len(crowded)} of {len(runs)} runs, and with them much of the signal. "
            f"{remedy}"
        )
    if explained:
        share, n = max(explained)
        texts.append(
            f"The {n} confounds and drifts explain {share:.0%} of the categories' own "
            f"time courses, in {len(explained)} of {len(runs)} runs more than half. "
            f"{remedy}"
        )
    return texts


def describe_record(record: Record | None) -> list[tuple[str, str]]:
    """Return what was done, as far as it is known, as pairs of a name and a text."""
    record = record or {}
    settings, runs = record.get("settings") or {}, _runs_of(record)
    samples = settings.get("samples")
    when = f"{settings.get('hrf_delay', 0):g} s after the stimulus"
    if str(samples).startswith("trials"):
        when = "Glover's response"
    named = settings.get("label", "") is not None  # else there is no stimulus
    labels = str(settings.get("labels") or "none")
    if settings.get("label") is not None:
        labels = f"column {settings['label']}"
    elif not {"label", "labels"} & set(settings):
        labels = ""
    if record.get("left_out"):
        listed = (f"{label} ({n})" for label, n in record["left_out"].items())
        labels += f"; events left out: {', '.join(listed)}"
    times = sorted({round(float(run["t_r"]), 4) for run in runs if run.get("t_r")})
    total, lost, unsteady = (
        _count(runs, what) for what in ("volumes", "scrubbed", "unsteady")
    )
    left_out, limit = (
        f"{lost} of {total} volumes" if lost else "",
        settings.get("scrub"),
    )
    scrubbing = "none" if "scrub" in settings else ""
    if limit is not None or "scrub" in str(settings.get("confounds")):
        above = "" if limit is None else f"above {limit:g} mm: "
        scrubbing, left_out = above + (left_out or "no volume"), ""
    names = [str(name) for name in record.get("confounds") or ()]
    filters = ""
    if settings.get("high_pass"):
        filters = f"high-pass {settings['high_pass']:.2g} Hz (cosines)"
        n_done = sum(bool(run.get("high_pass", True)) for run in runs)
        if n_done < len(runs):
            known = f" in {n_done} of {len(runs)} runs, whose repetition time is known"
            filters += known
    elif "high_pass" in settings:
        by_cosines = any("cosine" in name for name in names)
        done = "high-pass by the cosines among the confounds"
        filters = done if by_cosines else "none"
    scale = str(record.get("zscore") or settings.get("standardize") or "")
    fwhm, mask = settings.get("smoothing_fwhm"), str(settings.get("mask") or "")
    lacking = {
        what: "; ".join(
            f"sub-{id}: {', '.join(map(str, listed))}"
            for id, listed in (record.get(what) or {}).items()
        )
        for what in ("missing_runs", "runs_without_events")
    }
    films = str(settings.get("films") or "")
    clock = sorted(set((record.get("film_clock") or {}).values()))
    steps = ", ".join(f"{step:.4g}" for step in clock)
    match, zero_shot = record.get("match"), record.get("zero_shot")
    texts = {
        "images": _describe_images(settings, len(runs)),
        "samples": samples and _SAMPLES.get(samples, samples) + f", {when}" * named,
        "labels": labels,
        "repetition time": ", ".join(f"{t:g}" for t in times) + " s" * bool(times),
        "confounds": "confounds" in settings
        and _describe_confounds(settings["confounds"], names),
        "scrubbing": scrubbing,
        "volumes left out": left_out,
        "unsteady volumes": unsteady and f"{unsteady} of {total} left out",
        "filters": filters,
        "scale": _SCALES.get(scale, scale),
        "smoothing": "smoothing_fwhm" in settings
        and (f"{fwhm:g} mm" if fwhm else "none"),
        "mask": _MASKS.get(mask, mask),
        "voxels": str(record.get("voxels") or ""),
        "missing runs": lacking["missing_runs"],
        "runs without events": lacking["runs_without_events"],
        "films": "one per run" if films == "runs" else films,
        "film clock": steps and f"interpolated to one sample every {steps} s",
        "matching": match and _describe_matching(match),
        "new subjects": zero_shot
        and f"sub-{', sub-'.join(zero_shot['subjects'])}; {zero_shot['how']}",
    }
    return [(name, text) for name, text in texts.items() if text]


def _describe_matching(match: Record) -> str:
    used = f"{match['how']}: {match['used']} of {match['had']} samples used"
    lost = [f"sub-{id} {n}" for id, n in match.get("dropped", {}).items() if n]
    return used + f"; dropped: {', '.join(lost)}" * bool(lost)


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


def _describe_confounds(chosen: Any, names: list[str]) -> str:
    if chosen is None:
        return "none removed"
    text = chosen if isinstance(chosen, str) else ", ".join(map(str, chosen))
    more = ", ..." if len(names) > MAX_CONFOUND_NAMES else ""
    listed = ", ".join(names[:MAX_CONFOUND_NAMES]) + more
    return f"{text}: {len(names)} columns ({listed})" if names else text


def _runs_of(record: Record) -> list[Record]:
    return [run for own in (record.get("runs") or {}).values() for run in own.values()]


def _count(runs: Iterable[Record], what: str) -> int:
    return sum(run.get(what, 0) for run in runs)
