"""The commands, in the order of a tour."""

from typing import Annotated

import typer

from brainweave._core import __version__
from brainweave.cli import bids_app, data, models, reporting
from brainweave.cli.command import Command

HELP = """
Weave many brains into one shared space.

Align the fMRI data of subjects who may differ in voxels, samples and stimulus \
sequences. Start with [bold]brainweave demo[/bold], then use your own data:

  brainweave convert BIDS_FOLDER STUDY    make a study folder

  brainweave compare STUDY                compare methods

  brainweave fit STUDY --halves run       align with half of the runs

  brainweave transform model.safetensors STUDY SHARED --only-new
"""

app = typer.Typer(
    name="brainweave",
    help=HELP,
    no_args_is_help=True,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,
)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"brainweave {__version__}")
        raise typer.Exit()


@app.callback()
def _root(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_version, is_eager=True, help="Print the version."
        ),
    ] = False,
) -> None:
    pass


for command, name, panel in (
    (reporting.demo, "demo", "1. Start here"),
    (data.convert, "convert", "2. Data"),
    (reporting.info, "info", "2. Data"),
    (models.fit, "fit", "3. Align"),
    (models.transform, "transform", "3. Align"),
    (models.add_subject, "add-subject", "3. Align"),
    (reporting.compare, "compare", "4. Score and report"),
    (reporting.information_map, "map", "4. Score and report"),
    (reporting.report, "report", "4. Score and report"),
    (bids_app.run, "run", "5. Clusters"),
):
    app.command(name, cls=Command, rich_help_panel=panel)(command)
