"""What was done to a study's data, told to people: from ``Study.record``."""

from collections.abc import Mapping
from typing import Any, TypeAlias

__all__ = ["cautions", "preprocessing"]

Record: TypeAlias = Mapping[str, Any]
Runs: TypeAlias = list[tuple[str, Record]]  # the id of a subject, and one of its runs

FEW_NAMES = 6  # names of confounds that are listed
MUCH = 1 / 2  # share of scrubbed volumes that deserves a warning
MANY = 1 / 3  # confounds per volume that deserve one

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


def preprocessing(record: Record | None) -> list[tuple[str, str]]:
    """Return what was done, as names and short texts; nothing if it is not known.

    Examples
    --------
    >>> preprocessing({"settings": {"samples": "blocks", "hrf_delay": 5.0}})
    [('samples', 'means of blocks, 5 s after the stimulus')]
    """
    record = record or {}
    settings = record.get("settings") or {}
    runs = _runs(record)
    times = sorted({round(float(r["t_r"]), 4) for _, r in runs if r.get("t_r")})
    told = {
        **_samples(settings),
        "repetition time": ", ".join(f"{t:g}" for t in times) + " s" if times else "",
        **_cleaning(settings, record.get("confounds"), runs),
        "voxels": str(record.get("voxels") or ""),
        "missing runs": _per_subject(record.get("missing_runs")),
        "runs without events": _per_subject(record.get("runs_without_events")),
        "overlapping events": _overlaps(settings, runs),
        "matching": _matching(record.get("match")),
    }
    return [(name, text) for name, text in told.items() if text]


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
    crowded = [r for _, r in runs if r.get("confounds", 0) > MANY * r["volumes"]]
    if crowded:
        worst = max(crowded, key=lambda r: r["confounds"] / r["volumes"])
        texts.append(
            f"{worst['confounds']} confounds are removed from {worst['volumes']} "
            f"volumes in {len(crowded)} of {len(runs)} runs, and with them much of the "
            "signal. Fewer may serve better: confounds=motion, or none."
        )
    return texts


def _runs(record: Record) -> Runs:
    known = record.get("runs") or {}
    return [(id, run) for id, of in known.items() for run in of.values()]


def _scrubbed(runs: Runs, id: str | None = None) -> tuple[int, int]:
    """Count the volumes that were scrubbed, and all, of one subject or of everyone."""
    of = [run for whose, run in runs if id in (None, whose)]
    return sum(r.get("scrubbed", 0) for r in of), sum(r.get("volumes", 0) for r in of)


def _samples(settings: Record) -> dict[str, str]:
    """Tell what became samples; a setting that is not in the record is not known."""
    told = {}
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
    return told


def _cleaning(settings: Record, names: Any, runs: Runs) -> dict[str, str]:
    """Tell what was taken out of the images, and which voxels were kept."""
    told = {}
    if "confounds" in settings:
        told["confounds"] = _confounds(settings["confounds"], names)
    told["scrubbing"] = _scrubbing(settings, runs)
    if "detrend" in settings:
        parts = ["trends removed"] if settings["detrend"] else []
        for name in ("high_pass", "low_pass"):
            if settings.get(name):
                parts.append(f"{name.replace('_', '-')} {settings[name]:.4g} Hz")
        told["filters"] = ", ".join(parts) or "none beyond the confounds"
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
