"""The BIDS App: one independent job per subject, then one small job for the group."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from brainweave.cli.bids_group import align_group
from brainweave.cli.bids_inputs import Inputs
from brainweave.cli.bids_output import Derivative
from brainweave.cli.bids_participant import Job, make_bases
from brainweave.cli.console import Console
from brainweave.cli.errors import UsageError
from brainweave.cli.options import (
    RUN_GROUP,
    Method,
    Running,
    bundled,
    parse_params,
)
from brainweave.cli.reading import GROUP, Reading

LEVELS = ("participant", "group")
# --bids-param takes what became an option later as well, for scripts that have it
WAS_FLAT = ("task", "space", "samples", "label", "stimulus", "smoothing_fwhm")


def _option(text: str, *names: str, group: str = GROUP) -> Any:
    return typer.Option(*names, help=text, rich_help_panel=group)


@dataclass
class Selection(Reading):
    """What of the dataset to use."""

    bids_param: Annotated[
        list[str] | None, _option("Any other option of load_bids, NAME=VALUE.")
    ] = None

    def options(self) -> dict[str, Any]:
        """Return the options of ``load_bids``, but for the subjects."""
        given = self.given()
        others = parse_params(self.bids_param, option="--bids-param")
        for name in others:
            if name in WAS_FLAT or name in given:
                raise UsageError(
                    f"--bids-param {name}=... has an option of its own: "
                    f"--{name.replace('_', '-')}."
                )
        return {"samples": "volumes", "label": "trial_type", **given, **others}


@dataclass
class Resources:
    """What the machine may spend."""

    work_dir: Annotated[
        Path | None,
        _option("Folder for temporary files.", "--work-dir", "-w", group=RUN_GROUP),
    ] = None
    mem_mb: Annotated[
        int | None,
        _option("Most memory to use, in MB.", "--mem-mb", "--mem_mb", group=RUN_GROUP),
    ] = None
    verbose: Annotated[
        int,
        typer.Option(
            "--verbose", "-v", count=True, help="Say more.", rich_help_panel=RUN_GROUP
        ),
    ] = 0
    skip_bids_validation: Annotated[
        bool,
        _option(
            "Do not look whether BIDS_DIR is a BIDS dataset.",
            "--skip-bids-validation",
            "--skip_bids_validation",
            group=RUN_GROUP,
        ),
    ] = False
    report: Annotated[
        bool,
        _option(
            "Write an HTML report (group).", "--report/--no-report", group=RUN_GROUP
        ),
    ] = True
    overwrite: Annotated[
        bool,
        _option("Make bases that are there again.", "--overwrite", group=RUN_GROUP),
    ] = False


@bundled(selection=Selection, method=Method, resources=Resources, running=Running)
def run(
    context: typer.Context,
    bids_dir: Annotated[Path, typer.Argument(help="BIDS dataset, or fMRIPrep output.")],
    output_dir: Annotated[Path, typer.Argument(help="Folder of the derivative.")],
    analysis_level: Annotated[str, typer.Argument(help="participant or group.")],
    *,
    selection: Selection,
    method: Method,
    resources: Resources,
    running: Running,
) -> None:
    """Run as a BIDS App.

    participant writes one basis file per subject; run it for all, or as one job per
    subject on any scheduler. group aligns from these files. Exit codes: 0 done, 1 a
    subject failed (it is named, the others are done), 2 wrong usage.
    """
    if analysis_level not in LEVELS:
        raise UsageError(
            f"The level must be participant or group; got {analysis_level!r}."
        )
    check_dataset(bids_dir, resources.skip_bids_validation)
    if output_dir.exists() and not output_dir.is_dir():
        raise UsageError(f"{str(output_dir)!r} is a file, not a folder.")
    if output_dir.resolve() == bids_dir.resolve():
        raise UsageError("OUTPUT_DIR must not be BIDS_DIR itself.")
    for name in ("match", "parcels", "searchlight"):
        if getattr(method, name) is not None:
            raise UsageError(f"--{name} needs a study folder: use brainweave fit.")
    if method.method.lower() == "gdmcv":
        raise UsageError("--method gdmcv needs a study folder: use brainweave tune.")
    if resources.mem_mb is not None and resources.mem_mb < 1:
        raise UsageError(f"--mem-mb must be 1 or more; got {resources.mem_mb}.")
    job = Job(
        console=Console(running.quiet),
        inputs=Inputs(bids_dir, selection.options()),
        derivative=Derivative(output_dir, bids_dir),
        selection=selection,
        method=method,
        resources=resources,
        context=context,
    )
    use_work_dir(resources.work_dir)
    with job.console.collect_warnings():
        if analysis_level == "participant":
            make_bases(job)
        else:
            align_group(job)


def check_dataset(folder: Path, skip: bool) -> None:
    """Refuse what is not a BIDS dataset."""
    if not folder.is_dir():
        raise UsageError(f"There is no folder {str(folder)!r}. Check BIDS_DIR.")
    if skip:
        return
    if not (folder / "dataset_description.json").is_file():
        raise UsageError(
            f"{str(folder)!r} has no dataset_description.json, so it is no BIDS "
            "dataset. If it is one all the same, add --skip-bids-validation."
        )
    if not any(folder.glob("sub-*")):
        raise UsageError(f"{str(folder)!r} has no subjects (folders sub-...).")


def use_work_dir(folder: Path | None) -> None:
    """Put temporary files into a folder of the user's choice."""
    if folder is None:
        return
    import tempfile

    folder.mkdir(parents=True, exist_ok=True)
    tempfile.tempdir = str(folder)
