"""The commands, in the order of a tour."""

from typing import Annotated

import typer

from brainweave._core.version import __version__
from brainweave.cli import (
    bids_app,
    data,
    modelling,
    reporting,
    scoring,
)

HELP = """
Weave many brains into one shared space.

Subjects may differ in voxels, in samples, and in what they saw when: GDM aligns them \
by what belongs together. Start with [bold]brainweave demo[/bold]; then bring your own \
data:

  brainweave convert BIDS_FOLDER STUDY       make a study folder

  brainweave compare STUDY                   which method suits it?

  brainweave fit STUDY --halves run          align with the first half of the runs

  brainweave transform model.safetensors STUDY SHARED --only-new

Every command explains itself: brainweave COMMAND --help.
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


START, DATA, ALIGN, SCORE, READ, CLUSTER = (
    "1. Start here",
    "2. Data",
    "3. Align",
    "4. How good is it?",
    "5. Read",
    "6. Clusters",
)

for command, name, panel in (
    (reporting.demo, "demo", START),
    (data.simulate, "simulate", DATA),
    (data.fetch, "fetch", DATA),
    (data.convert, "convert", DATA),
    (reporting.info, "info", DATA),
    (modelling.fit, "fit", ALIGN),
    (modelling.transform, "transform", ALIGN),
    (modelling.add_subject, "add-subject", ALIGN),
    (scoring.evaluate, "evaluate", SCORE),
    (scoring.compare, "compare", SCORE),
    (modelling.tune, "tune", SCORE),
    (reporting.report, "report", READ),
    (bids_app.run, "run", CLUSTER),
):
    app.command(name, rich_help_panel=panel)(command)
