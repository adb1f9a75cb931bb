"""What was done to a study's data, told to people: from ``Study.record``."""

from collections.abc import Mapping
from typing import Any

__all__ = ["cautions", "preprocessing"]

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


def preprocessing(record: Mapping[str, Any] | None) -> list[tuple[str, str]]:
    """Return what was done, as names and short texts; nothing if it is not known.

    Parameters
    ----------
    record : mapping or None
        ``Study.record``.

    Examples
    --------
    >>> preprocessing({"settings": {"samples": "blocks", "hrf_delay": 5.0}})
    [('samples', 'means of blocks, 5 s after the stimulus')]
    """
    record = record or {}
    settings = record.get("settings") or {}
    runs = _runs(record)
    found = [
        ("images", _images(settings)),
        ("samples", _samples(settings)),
        ("labels", _labels(settings)),
        ("repetition time", _repetition_times(runs)),
        ("confounds", _confounds(record, settings)),
        ("scrubbing", _scrubbing(settings, runs)),
        ("filters", _filters(settings)),
        ("smoothing", _smoothing(settings)),
        ("mask", _mask(settings)),
        ("voxels", str(record.get("voxels") or "")),
        ("missing runs", _per_subject(record.get("missing_runs"))),
        ("runs without events", _per_subject(record.get("runs_without_events"))),
        ("overlapping events", _overlaps(settings, runs)),
        ("matching", _matching(record.get("match"))),
    ]
    return [(name, text) for name, text in found if text]


def cautions(record: Mapping[str, Any] | None) -> list[str]:
    """Return what a reader should know before believing numbers of these data."""
    texts = []
    runs = _runs(record or {})
    for id, of in _by_subject(runs).items():
        lost, all_ = (sum(r.get(k, 0) for r in of) for k in ("scrubbed", "volumes"))
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


def _runs(record: Mapping[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    known = record.get("runs") or {}
    return [(id, run) for id, of in known.items() for run in of.values()]


def _by_subject(
    runs: list[tuple[str, dict[str, Any]]],
) -> dict[str, list[dict[str, Any]]]:
    found: dict[str, list[dict[str, Any]]] = {}
    for id, run in runs:
        found.setdefault(id, []).append(run)
    return found


def _images(settings: Mapping[str, Any]) -> str:
    if "preprocessed" not in settings:
        return ""
    text = "output of fMRIPrep" if settings["preprocessed"] else "raw images"
    chosen = [f"{n} {settings[n]}" for n in ("task", "space") if settings.get(n)]
    return ", ".join([text, *chosen])


def _samples(settings: Mapping[str, Any]) -> str:
    kind = settings.get("samples")
    if kind is None:
        return ""
    text = _SAMPLES.get(kind, str(kind))
    if str(kind).startswith("trials"):
        return f"{text}, response {settings.get('hrf_model', 'unknown')}"
    return f"{text}, {settings.get('hrf_delay', 0):g} s after the stimulus"


def _labels(settings: Mapping[str, Any]) -> str:
    if "label" not in settings:
        return ""
    if settings["label"] is None:
        return "none"
    ignored = ", ".join(map(str, settings.get("ignore") or ())) or "nothing"
    return f"column {settings['label']}; ignored: {ignored}"


def _repetition_times(runs: list[tuple[str, dict[str, Any]]]) -> str:
    times = sorted({round(float(r["t_r"]), 4) for _, r in runs if r.get("t_r")})
    return ", ".join(f"{t:g}" for t in times) + " s" if times else ""


def _confounds(record: Mapping[str, Any], settings: Mapping[str, Any]) -> str:
    if "confounds" not in settings:
        return ""
    if settings["confounds"] is None:
        return "none removed"
    chosen = settings["confounds"]
    text = chosen if isinstance(chosen, str) else ", ".join(map(str, chosen))
    names = record.get("confounds")
    if not isinstance(names, list) or not names:
        return text
    listed = ", ".join(names[:FEW_NAMES]) + (", ..." if names[FEW_NAMES:] else "")
    return f"{text}: {len(names)} columns ({listed})"


def _scrubbing(
    settings: Mapping[str, Any], runs: list[tuple[str, dict[str, Any]]]
) -> str:
    lost, all_ = (sum(r.get(k, 0) for _, r in runs) for k in ("scrubbed", "volumes"))
    limit = settings.get("scrub")
    if not lost and limit is None:
        return "none" if "scrub" in settings else ""
    above = "" if limit is None else f"above {limit:g} mm: "
    by = {
        id: sum(r.get("scrubbed", 0) for r in of)
        for id, of in _by_subject(runs).items()
    }
    listed = ", ".join(f"sub-{id} {n}" for id, n in by.items() if n)
    return f"{above}{lost} of {all_} volumes" + (f" ({listed})" if listed else "")


def _filters(settings: Mapping[str, Any]) -> str:
    if "detrend" not in settings:
        return ""
    parts = ["trends removed"] if settings["detrend"] else []
    for name, text in (("high_pass", "high-pass"), ("low_pass", "low-pass")):
        if settings.get(name):
            parts.append(f"{text} {settings[name]:.4g} Hz")
    return ", ".join(parts) or "none beyond the confounds"


def _smoothing(settings: Mapping[str, Any]) -> str:
    if "smoothing_fwhm" not in settings:
        return ""
    fwhm = settings["smoothing_fwhm"]
    return f"{fwhm:g} mm" if fwhm else "none"


def _mask(settings: Mapping[str, Any]) -> str:
    if "mask" not in settings:
        return ""
    named = {
        None: "the brain mask of each subject",
        "common": "voxels in the brain masks of all subjects",
        "epi": "computed from the images of each subject",
    }
    mask = settings["mask"]
    return named.get(mask if isinstance(mask, str | None) else "", str(mask))


def _per_subject(found: Any) -> str:
    if not found:
        return ""
    return "; ".join(f"sub-{id}: {', '.join(map(str, v))}" for id, v in found.items())


def _overlaps(
    settings: Mapping[str, Any], runs: list[tuple[str, dict[str, Any]]]
) -> str:
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
    lost = {id: n for id, n in match.get("dropped", {}).items() if n}
    listed = ", ".join(f"sub-{id} {n}" for id, n in lost.items())
    return f"{text}; dropped: {listed}" if listed else text
