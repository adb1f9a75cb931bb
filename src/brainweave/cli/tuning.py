"""The command that chooses settings inside a study: tune."""

import warnings
from pathlib import Path
from typing import Annotated, Any

import typer

from brainweave.cli.config import effective, write_config, write_whole
from brainweave.cli.console import Console
from brainweave.cli.errors import UsageError
from brainweave.cli.methods import open_study, resolved
from brainweave.cli.modelling import StudyFolder, provenance
from brainweave.cli.options import Running, bundled
from brainweave.cli.scoring import OutFolder, prepare_folder


@bundled(running=Running)
def tune(
    context: typer.Context,
    study: StudyFolder,
    *,
    energies: Annotated[
        str, typer.Option(help="Energies to try, with commas.")
    ] = "0.2,0.35,0.5,0.65,0.82,1",
    n_components: Annotated[
        str, typer.Option(help="Numbers of components to try, with commas, or auto.")
    ] = "auto",
    kernels: Annotated[
        str,
        typer.Option(help="Kernels to try, with commas; gaussian:5000 sets hp."),
    ] = "linear",
    protocol: Annotated[str, typer.Option(help="held-out or joint.")] = "held-out",
    leave_out: Annotated[int, typer.Option(help="Subjects tested at a time.")] = 1,
    n_jobs: Annotated[int | None, typer.Option(help="Subjects at a time.")] = None,
    output: OutFolder = Path("tuning"),
    running: Running,
) -> None:
    """Choose the settings of GDM inside the study; write the best model."""
    import brainweave

    console = Console(running.quiet)
    counts: Any = [c if c == "auto" else _whole(c) for c in _parts(n_components)]
    search = brainweave.GDMCV(
        energies=[_real("energies", e) for e in _parts(energies)],
        n_components=counts,
        kernels=[_kernel(k) for k in _parts(kernels)],
        protocol=protocol,
        leave_out=leave_out,
        n_jobs=n_jobs,
    )
    subjects = open_study(study)
    prepare_folder(output)
    with console.collect_warnings():
        n_settings = len(search.energies) * len(counts) * len(search.kernels)
        with console.counted("Trying settings") as progress:
            search.fit(subjects, progress=progress)
        options = effective(context)
        made = provenance("tune", options, subjects.ids, score=search.best_score_)
        target = output / "model.safetensors"
        brainweave.save(search.best_estimator_, target, provenance=made)
        write_whole(output / "settings.tsv", _settings_table(search.cv_results_))
        best = resolved(search.best_estimator_)
        chosen = {"method": "gdm", **best, "study": str(study)}
        write_config(output / "best.toml", "fit", chosen)
        write_config(output / "tune.toml", "tune", options)
        for text in _at_the_edge(search, best):
            warnings.warn(text, stacklevel=1)
    shown = ", ".join(f"{k} {v}" for k, v in best.items() if k in _SHOWN)
    console.result(
        f"Best of {n_settings}: {shown}; accuracy {search.best_score_:.3f}, chosen on "
        "these data and so too high: score it with brainweave evaluate --method gdmcv"
    )
    console.result(f"{target}; the same by: brainweave fit --config {output}/best.toml")


def _at_the_edge(search: Any, best: dict[str, Any]) -> list[str]:
    """Say which best values are the first or last that were tried."""
    tried: dict[str, tuple[list[float], Any, float | None]] = {
        "energies": ([float(e) for e in search.energies], best.get("energy"), 1.0),
        "n_components": (
            [float(n) for n in search.n_components if n != "auto"],
            None if best.get("n_components") == "auto" else best.get("n_components"),
            None,
        ),
    }
    texts = []
    for name, (values, chosen, most) in tried.items():
        if chosen is None or len(values) < 2 or float(chosen) == most:
            continue  # no energy is beyond 1
        if float(chosen) in (min(values), max(values)):
            side = "less" if float(chosen) == min(values) else "more"
            texts.append(
                f"{name}={chosen} is the {'least' if side == 'less' else 'most'} that "
                f"was tried: {side} may be better. Try more values."
            )
    return texts


_SHOWN = ("n_components", "energy", "kernel", "hp")


def _settings_table(found: dict[str, Any]) -> str:
    rows = ["energy\tn_components\tkernel\thp\tmean\tstd\trank\terror"]
    for i, params in enumerate(found["params"]):
        hp = (params["kernel_params"] or {}).get("hp", "n/a")
        cells = [params["energy"], params["n_components"], params["kernel"], hp]
        cells += [found["mean_test_score"][i], found["std_test_score"][i]]
        cells += [found["rank_test_score"][i], found["error"][i] or "n/a"]
        rows.append("\t".join(" ".join(str(c).split()) for c in cells))
    return "\n".join(rows) + "\n"


def _parts(text: str) -> list[str]:
    return [part.strip() for part in str(text).split(",") if part.strip()]


def _real(name: str, text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise UsageError(f"--{name} takes numbers with commas; got {text!r}.") from None


def _whole(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise UsageError(
            f"--n-components takes whole numbers with commas, or auto; got {text!r}."
        ) from None


def _kernel(text: str) -> Any:
    name, colon, hp = text.partition(":")
    return (name, _real("kernels", hp)) if colon else name
