"""The command that maps where in the brain information is shared."""

from pathlib import Path
from typing import Annotated

import typer

from brainweave.cli import command as c
from brainweave.cli import files
from brainweave.cli.console import Console, UsageError
from brainweave.cli.models import make_aligner, match_and_report


def information_map(
    context: typer.Context,
    study: c.StudyFolder,
    *,
    output: c.OutFolder = Path("map"),
    parcels: c.Parcels = None,
    searchlight: c.Radius = None,
    spacing: Annotated[
        float | None,
        c.option(
            "Searchlights at centres no nearer than so many mm; half the radius by "
            "default.",
            panel=c.METHOD,
        ),
    ] = None,
    method: c.Method = "gdm",
    n_components: c.Components = None,
    graph: c.Graph = None,
    random_state: c.RandomState = None,
    match: c.Match = None,
    param: c.MethodParam = None,
    measure: c.Measure = None,
    halves: c.Halves = "category",
    leave_out: c.LeaveOut = 1,
    n_jobs: c.Jobs = None,
    dask: c.Dask = None,
    config: c.Config = None,
    quiet: c.Quiet = False,
) -> None:
    """Map where in the brain information is shared, place by place.

    Every parcel, or neighbourhood, is aligned and scored by itself, on samples that did
    not align, of subjects who are left out, and once more without alignment. Written
    are images, a table of places with corrected p-values, and a report.
    """
    import brainweave

    console: Console = context.obj
    if (parcels is None) == (searchlight is None):
        raise UsageError("Say what places are: --parcels ATLAS or --searchlight MM.")
    if spacing is not None and searchlight is None:
        raise UsageError("--spacing is for --searchlight.")
    people = match_and_report(files.open_study(study), match, console)
    aligner = make_aligner(method, context.params, study=people)
    if searchlight is not None:
        given = searchlight / 2 if spacing is None else spacing
        aligner.set_params(spacing=given)
    aligner.set_params(n_jobs=n_jobs)
    files.prepare_folder(output)
    with console.progress("Scoring places") as progress:
        aligner.set_params(progress=lambda *done: progress(*done))
        found = brainweave.information_map(
            aligner,
            people,
            measure=measure,
            halves=halves,
            leave_out=leave_out,
            random_state=random_state or 0,
        )
    paths = found.save(output)
    files.write_page(output / "report.html", console, information=found)
    options = files.used_options(console, spacing=getattr(aligner, "spacing", None))
    files.write_config(output / "map.toml", "map", options)
    console.result(f"{output}: {found} ({len(paths)} files)")
