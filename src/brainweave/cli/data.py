"""The command that makes a study: convert."""

from pathlib import Path
from typing import Annotated, Any

import typer

from brainweave._core.exceptions import warn_user
from brainweave.cli import command as c
from brainweave.cli import files
from brainweave.cli.console import Console, UsageError

# options of load_bids that are options of commands
LOAD_OPTIONS = (
    *("task", "space", "samples", "films", "ignore", "confounds", "smoothing_fwhm"),
    "mask",
)
# what nilearn's load_confounds calls its components
COMPONENTS = (
    *("motion", "high_pass", "wm_csf", "global_signal", "compcor", "ica_aroma"),
    *("scrub", "non_steady_state"),
)
STRATEGIES = ("simple", "scrubbing", "compcor", "ica_aroma")


def record_lines(record: dict[str, Any] | None) -> list[str]:
    """Return lines on what was done to the data, and on the samples of each subject."""
    from brainweave.study.provenance import describe_record

    lines = [f"{name}: {text}" for name, text in describe_record(record)]
    for id, counts in ((record or {}).get("samples") or {}).items():
        if set(counts) != {"n/a"}:
            listed = ", ".join(f"{label} {n}" for label, n in counts.items())
            lines.append(f"sub-{id}: {listed}")
    return lines


def convert(
    context: typer.Context,
    sources: Annotated[
        list[Path],
        typer.Argument(
            help="A BIDS folder, .mat files, or the .nii.gz, .dtseries.nii or .gii "
            "files of all subjects; then the folder to make."
        ),
    ],
    *,
    labels: Annotated[
        Path | None,
        c.option(
            "Labels of samples: a .tsv file with columns label and, if they differ, "
            "subject; a .mat file for MATLAB."
        ),
    ] = None,
    participant_label: c.Participants = None,
    task: c.Task = None,
    space: c.Space = None,
    samples: c.Samples = None,
    films: c.Films = None,
    ignore: c.Ignore = None,
    confounds: c.Confounds = None,
    smoothing_fwhm: c.Smoothing = None,
    mask: c.Mask = None,
    param: c.Param = None,
    n_jobs: c.Jobs = None,
    overwrite: c.Overwrite = False,
    config: c.Config = None,
    quiet: c.Quiet = False,
) -> None:
    """Turn BIDS, NIfTI, CIFTI, GIfTI or MATLAB files into a study folder."""
    from brainweave.plotting.style import span
    from brainweave.study.formats.any_format import load_study
    from brainweave.study.provenance import cautions

    console: Console = context.obj
    if len(sources) < 2:
        raise UsageError("Name the files to read, then the folder to make.")
    *inputs, out = sources
    files.check_new_folder(out, overwrite)
    console.resume_hint = "Nothing was left behind; run the same command again."
    options = {
        **load_options(context.params),
        "subjects": participant_label or None,
        "labels": labels,
    }
    params = c.parse_params(param)
    if options.get("confounds", "") is None:  # none is a choice, not a gap
        params = {"confounds": None, **params}
    with console.stage("Looking at the files"):
        study = load_study(inputs, **c.with_params(options, params))
    files.save_study(study, out, console, overwrite=overwrite, n_jobs=n_jobs)
    for text in cautions(study.record):
        warn_user(text)
    samples = span([s.n_samples for s in study], "samples")
    voxels = span([s.n_voxels for s in study], "voxels")
    console.result(f"{out}: {len(study)} subjects, {samples}, {voxels}")
    if not quiet:
        for line in record_lines(study.record):
            console.result(f"  {line}")


def load_options(params: dict[str, Any]) -> dict[str, Any]:
    """Return those options of a command that ``load_bids`` takes, where given."""
    given = {n: params[n] for n in LOAD_OPTIONS if params[n] not in (None, [], ())}
    if "confounds" in given:
        given["confounds"] = parse_confounds(given["confounds"])
    mask = given.get("mask", "own")
    if mask not in ("own", "common", "epi") and not Path(mask).is_file():
        raise UsageError(
            f"--mask must be own, common, epi or an image file; there is no {mask!r}."
        )
    if mask == "own":
        given.pop("mask", None)
    return given


def parse_confounds(given: list[str]) -> Any:
    """Return what ``load_bids`` takes: a strategy, components, columns or None.

    Examples
    --------
    >>> parse_confounds(["simple"]), parse_confounds(["none"])
    ('simple', None)
    >>> parse_confounds(["motion", "wm_csf"]), parse_confounds(["trans_x", "csf"])
    (('motion', 'wm_csf'), ['trans_x', 'csf'])
    """
    if given == ["none"]:
        return None
    if len(given) == 1 and given[0] in STRATEGIES:
        return given[0]
    return tuple(given) if set(given) <= set(COMPONENTS) else list(given)
