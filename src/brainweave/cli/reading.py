"""Options that say how BIDS data become samples, for convert and for run."""

from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated, Any

import typer

from brainweave.cli.errors import UsageError

GROUP = "How to read BIDS data"
NOT_OPTIONS = ("participant_label", "bids_param")
# what nilearn's load_confounds calls its components
COMPONENTS = (
    *("motion", "high_pass", "wm_csf", "global_signal", "compcor", "ica_aroma"),
    *("scrub", "non_steady_state"),
)
STRATEGIES = ("simple", "scrubbing", "compcor", "ica_aroma")


def _option(text: str, *names: str) -> Any:
    return typer.Option(*names, help=text, rich_help_panel=GROUP)


@dataclass
class Reading:
    """What becomes a sample, and what is removed from it."""

    participant_label: Annotated[
        list[str] | None,
        _option(
            "Subjects, with or without sub-; all by default. Several may follow.",
            "--participant-label",
            "--participant_label",
        ),
    ] = None
    task: Annotated[
        str | None, _option("Task; needed where there are several.", "--task", "-t")
    ] = None
    space: Annotated[
        str | None,
        _option("Space of the images, such as MNI152NLin2009cAsym, T1w, fsaverage5."),
    ] = None
    samples: Annotated[
        str | None,
        _option(
            "What a sample is: volumes, blocks (means), or GLM betas of single trials, "
            "trials-lsa (one model per run) or trials-lss (one per trial)."
        ),
    ] = None
    label: Annotated[
        str | None,
        _option("Column of the events that holds the category; trial_type by default."),
    ] = None
    stimulus: Annotated[
        str | None, _option("Column of the events with the stimulus.")
    ] = None
    ignore: Annotated[
        list[str] | None,
        _option(
            "Labels that are no category; several may follow. Default: rest, baseline, "
            "fixation."
        ),
    ] = None
    overlap: Annotated[
        str | None,
        _option(
            "Which event a volume shows that lies under several: longest (default), "
            "last, drop or error."
        ),
    ] = None
    hrf_delay: Annotated[
        float | None,
        _option("Seconds from stimulus to response, for volumes and blocks; 5."),
    ] = None
    hrf_model: Annotated[
        str | None, _option("Response of GLM betas, one of nilearn's; glover.")
    ] = None
    confounds: Annotated[
        list[str] | None,
        _option(
            "What to remove: simple (default for fMRIPrep), scrubbing, compcor or "
            "ica_aroma; components such as motion wm_csf; columns; or none."
        ),
    ] = None
    scrub: Annotated[
        float | None,
        _option("Leave out volumes that moved by more than so many mm."),
    ] = None
    smoothing_fwhm: Annotated[float | None, _option("Smooth by so many mm.")] = None
    high_pass: Annotated[float | None, _option("High-pass cut-off in Hz.")] = None
    mask: Annotated[
        str | None,
        _option(
            "own (fMRIPrep's mask of each subject; default), common (voxels in all of "
            "them), epi (computed), or an image file."
        ),
    ] = None

    def given(self) -> dict[str, Any]:
        """Return what was said, as options of ``load_bids``, but for the subjects."""
        said = {f.name: getattr(self, f.name) for f in fields(self)}
        found = {
            name: value
            for name, value in said.items()
            if value not in (None, [], ()) and name not in NOT_OPTIONS
        }
        if "ignore" in found:
            found["ignore"] = [] if self.ignore == ["none"] else list(found["ignore"])
        if "confounds" in found:
            found["confounds"] = confounds_of(found["confounds"])
        if "mask" in found:
            found = {**found, **_mask(str(found.pop("mask")))}
        return found


def confounds_of(given: list[str]) -> Any:
    """Return what ``load_bids`` takes: a strategy, components, columns or None.

    Examples
    --------
    >>> confounds_of(["simple"]), confounds_of(["none"])
    ('simple', None)
    >>> confounds_of(["motion", "wm_csf"]), confounds_of(["trans_x", "csf"])
    (('motion', 'wm_csf'), ['trans_x', 'csf'])
    """
    if given == ["none"]:
        return None
    alone = [name for name in given if name in ("none", *STRATEGIES)]
    if len(given) == 1 and alone:
        return given[0]
    mixed = [name for name in alone if name not in COMPONENTS]
    if mixed:
        raise UsageError(
            f"--confounds {mixed[0]} stands alone; got {' '.join(given)!r}. Name "
            f"components ({', '.join(COMPONENTS)}) or columns to combine them."
        )
    return tuple(given) if set(given) <= set(COMPONENTS) else list(given)


def _mask(mask: str) -> dict[str, Any]:
    if mask == "own":
        return {}
    if mask not in ("common", "epi") and not Path(mask).is_file():
        raise UsageError(
            f"--mask must be own, common, epi or an image file; there is no {mask!r}."
        )
    return {"mask": mask}
