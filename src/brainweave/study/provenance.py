"""Provenance: the record of what was done to the data of a study, and its words."""

from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, TypeAlias

from brainweave._core.version import __version__
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
    """Return what was done to these subjects, in values that JSON can hold.

    `runs` has, by subject id and name of the run, what :func:`run_record` returns.
    """
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
    for id in record.get("runs") or {}:
        own = _runs_of({"runs": {id: record["runs"][id]}})
        lost, total = _count(own, "scrubbed"), _count(own, "volumes")
        if total and lost / total > MAX_SCRUBBED:
            share = f"{lost} of {total} volumes ({lost / total:.0%})"
            texts.append(f"sub-{id}: {share} were left out.")
    runs = _runs_of(record)
    remedy = "Consider fewer confounds: motion alone, or none."
    # by confounds and drifts per volume that is left
    crowded = {_n_removed(run) / max(_n_left(run), 1): run for run in runs}
    n_crowded = sum(_n_removed(run) > MAX_NUISANCE * _n_left(run) for run in runs)
    if n_crowded:
        worst = crowded[max(crowded)]
        texts.append(
            f"{_n_removed(worst)} confounds and drifts are removed from "
            f"{_n_left(worst)} volumes in {n_crowded} of {len(runs)} runs, and with "
            f"them much of the signal. {remedy}"
        )
    explained = [run for run in runs if run.get("lost", 0) > MAX_EXPLAINED]
    if explained:
        worst = max(explained, key=lambda run: run["lost"])
        texts.append(
            f"The {_n_removed(worst)} confounds and drifts explain "
            f"{worst['lost']:.0%} of the categories' own time courses, in "
            f"{len(explained)} of {len(runs)} runs more than half. {remedy}"
        )
    return texts


def describe_record(record: Record | None) -> list[tuple[str, str]]:
    """Return what was done, as pairs of a name and a short text.

    What is not in the record is not known, and is left out.
    """
    record = record or {}
    settings, runs = record.get("settings") or {}, _runs_of(record)
    texts = {"images": _describe_images(settings, len(runs))}
    samples = settings.get("samples")
    if samples is not None:
        when = f"{settings.get('hrf_delay', 0):g} s after the stimulus"
        if str(samples).startswith("trials"):
            when = "Glover's response"
        named = settings.get("label", "") is not None  # else there is no stimulus
        texts["samples"] = _SAMPLES.get(samples, samples) + f", {when}" * named
    if settings.get("label") is not None:
        texts["labels"] = f"column {settings['label']}"
    elif "label" in settings or "labels" in settings:
        texts["labels"] = str(settings.get("labels") or "none")
    if record.get("left_out"):
        listed = (f"{label} ({n})" for label, n in record["left_out"].items())
        texts["labels"] += f"; events left out: {', '.join(listed)}"
    times = sorted({round(float(run["t_r"]), 4) for run in runs if run.get("t_r")})
    texts["repetition time"] = ", ".join(f"{t:g}" for t in times) + " s" * bool(times)
    names = [str(name) for name in record.get("confounds") or ()]
    if "confounds" in settings:
        texts["confounds"] = _describe_confounds(settings["confounds"], names)
    texts |= _describe_volumes(settings, runs)
    if settings.get("high_pass"):
        texts["filters"] = f"high-pass {settings['high_pass']:.2g} Hz (cosines)"
        n_done = sum(bool(run.get("high_pass", True)) for run in runs)
        if n_done < len(runs):
            known = f" in {n_done} of {len(runs)} runs, whose repetition time is known"
            texts["filters"] += known
    elif "high_pass" in settings:
        by_cosines = any("cosine" in name for name in names)
        done = "high-pass by the cosines among the confounds"
        texts["filters"] = done if by_cosines else "none"
    scale = str(record.get("zscore") or settings.get("standardize") or "")
    texts["scale"] = _SCALES.get(scale, scale)
    if "smoothing_fwhm" in settings:
        fwhm = settings["smoothing_fwhm"]
        texts["smoothing"] = f"{fwhm:g} mm" if fwhm else "none"
    mask = str(settings.get("mask") or "")
    texts["mask"] = _MASKS.get(mask, mask)
    texts["voxels"] = str(record.get("voxels") or "")
    for what in ("missing_runs", "runs_without_events"):
        texts[what.replace("_", " ")] = "; ".join(
            f"sub-{id}: {', '.join(map(str, names))}"
            for id, names in (record.get(what) or {}).items()
        )
    texts |= _describe_films(record, settings) | _describe_alignment(record)
    return [(name, text) for name, text in texts.items() if text]


def _describe_films(record: Record, settings: Record) -> dict[str, str]:
    films = str(settings.get("films") or "")
    texts = {"films": "one per run" if films == "runs" else films}
    steps = sorted(set((record.get("film_clock") or {}).values()))
    if steps:
        listed = ", ".join(f"{step:.4g}" for step in steps)
        texts["film clock"] = f"interpolated to one sample every {listed} s"
    return texts


def _describe_alignment(record: Record) -> dict[str, str]:
    texts = {}
    if match := record.get("match"):
        lost = ", ".join(
            f"sub-{k} {n}" for k, n in match.get("dropped", {}).items() if n
        )
        used = f"{match['how']}: {match['used']} of {match['had']} samples used"
        texts["matching"] = used + f"; dropped: {lost}" * bool(lost)
    if zero_shot := record.get("zero_shot"):
        people = ", ".join(f"sub-{id}" for id in zero_shot["subjects"])
        texts["new subjects"] = f"{people}; {zero_shot['how']}"
    return texts


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


def _describe_volumes(settings: Record, runs: list[Record]) -> dict[str, str]:
    """Describe the volumes that were left out, for motion or for other reasons."""
    total, texts = _count(runs, "volumes"), {}
    lost, unsteady = _count(runs, "scrubbed"), _count(runs, "unsteady")
    told = f"{lost} of {total} volumes" if lost else ""
    limit = settings.get("scrub")
    if limit is not None or "scrub" in str(settings.get("confounds")):
        above = "" if limit is None else f"above {limit:g} mm: "
        texts["scrubbing"] = above + (told or "no volume")
    else:
        texts["scrubbing"] = "none" if "scrub" in settings else ""
        texts["volumes left out"] = told
    if unsteady:
        texts["unsteady volumes"] = f"{unsteady} of {total} left out"
    return texts


def _runs_of(record: Record) -> list[Record]:
    return [run for own in (record.get("runs") or {}).values() for run in own.values()]


def _count(runs: Iterable[Record], what: str) -> int:
    return sum(run.get(what, 0) for run in runs)


def _n_left(run: Record) -> int:
    return int(run["volumes"] - run.get("scrubbed", 0) - run.get("unsteady", 0))


def _n_removed(run: Record) -> int:
    """Count the confounds and drifts that are removed from a run."""
    return int(run.get("nuisance") or run.get("confounds", 0))
