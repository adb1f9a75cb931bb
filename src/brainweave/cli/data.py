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
STRATEGIES = ("simple", "scrubbing", "compcor", "ica_aroma")  # of load_confounds


def convert(
    context: typer.Context,
    sources: Annotated[
        list[Path],
        typer.Argument(
            help="A BIDS folder, .mat files, or .nii.gz, .dtseries.nii or .gii files "
            "of all subjects, followed by the study folder to create."
        ),
    ],
    *,
    labels: Annotated[
        Path | None,
        c.option(
            "Labels of the samples: a .tsv file with a column label and, if subjects "
            "differ, a column subject; a .mat file for MATLAB data."
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
    config: c.Config = None,
    quiet: c.Quiet = False,
) -> None:
    """Convert BIDS, NIfTI, CIFTI, GIfTI or MATLAB files to a study folder."""
    from brainweave.plotting.style import span
    from brainweave.study.formats.any_format import load_study
    from brainweave.study.provenance import cautions, describe_record

    console: Console = context.obj
    if len(sources) < 2:
        raise UsageError("Give the files to read, then the study folder to create.")
    *inputs, out = sources
    files.check_new_folder(out)
    console.resume_hint = "Nothing was left behind; run the same command again."
    options = {
        **load_options(context.params),
        "subjects": participant_label or None,
        "labels": labels,
    }
    params = c.parse_params(param)
    if options.get("confounds", "") is None:  # none is a choice, not a gap
        params = {"confounds": None, **params}
    with console.stage("Reading headers"):
        study = load_study(inputs, **c.with_params(options, params))
    files.save_study(study, out, console, n_jobs=n_jobs)
    for text in cautions(study.record):
        warn_user(text)
    samples = span([s.n_samples for s in study], "samples")
    voxels = span([s.n_voxels for s in study], "voxels")
    console.result(f"{out}: {len(study)} subjects, {samples}, {voxels}")
    if not quiet:
        for name, text in describe_record(study.record):
            console.result(f"  {name}: {text}")


def load_options(params: dict[str, Any]) -> dict[str, Any]:
    """Return those options of a command that ``load_bids`` takes, where given."""
    given = {n: params[n] for n in LOAD_OPTIONS if params[n] not in (None, [], ())}
    if "confounds" in given:
        named = tuple(given["confounds"])
        known = {"none": None, **{name: name for name in STRATEGIES}}
        given["confounds"] = known.get(named[0], named) if len(named) == 1 else named
    mask = given.get("mask", "own")
    if mask not in ("own", "common", "epi") and not Path(mask).is_file():
        raise UsageError(
            f"--mask must be own, common, epi or an image file; there is no {mask!r}."
        )
    if mask == "own":
        given.pop("mask", None)
    return given
