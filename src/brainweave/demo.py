"""A study that no time-locked method can align, aligned: ``make demo``."""

import warnings

from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from brainweave.aligners.gdm import GDM
from brainweave.aligners.none import NoAlignment
from brainweave.evaluation.classification import between_subject_classification
from brainweave.exceptions import UniquenessWarning
from brainweave.study.common import common_voxels
from brainweave.study.simulate import simulate_study


def main() -> None:
    """Simulate an unaligned study, align it, print how well classifiers transfer."""
    console = Console()
    warnings.simplefilter("ignore", UniquenessWarning)
    with Progress(console=console, transient=True) as progress:
        task = progress.add_task("Simulating 8 subjects", total=4)
        study = simulate_study(
            missing_categories=2, missing_runs=2, missing_samples=0.1
        )
        progress.update(task, advance=1, description="Classifying without alignment")
        plain = between_subject_classification(NoAlignment(), common_voxels(study))
        progress.update(task, advance=1, description="Aligning with GDM")
        joint = between_subject_classification(GDM(), study)
        progress.update(task, advance=1, description="GDM, test subject held out")
        held_out = between_subject_classification(GDM(), study, protocol="held-out")
    console.print(study.summary()[["samples", "voxels", "categories"]].to_string())
    table = Table(title="Accuracy of classifiers across subjects")
    table.add_column("alignment")
    table.add_column("accuracy", justify="right")
    table.add_row("none (same place in the brain)", f"{plain.mean:.1%}")
    table.add_row("GDM, all subjects in the fit", f"{joint.mean:.1%}")
    table.add_row("GDM, test subject joins later", f"{held_out.mean:.1%}")
    table.add_row("chance", f"{joint.chance:.1%}")
    console.print(table)


if __name__ == "__main__":
    main()
