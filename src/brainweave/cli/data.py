"""Commands that make studies: simulate, fetch, convert."""

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any

import typer

from brainweave._core.exceptions import StudyError, warn_user
from brainweave.cli import command as c
from brainweave.cli import files
from brainweave.cli.console import Console, UsageError

PUBLIC = "raider, raider-movie, haxby, or an OpenNeuro accession such as ds000105"
# options of load_bids that are options of commands
LOAD_OPTIONS = (
    *("task", "space", "samples", "label", "ignore", "keep", "confounds"),
    *("smoothing_fwhm", "high_pass", "mask"),
)
# what nilearn's load_confounds calls its components
COMPONENTS = (
    *("motion", "high_pass", "wm_csf", "global_signal", "compcor", "ica_aroma"),
    *("scrub", "non_steady_state"),
)
STRATEGIES = ("simple", "scrubbing", "compcor", "ica_aroma")


def _print_summary(console: Console, out: Path, study: Any) -> None:
    samples = _range(s.n_samples for s in study)
    voxels = _range(s.n_voxels for s in study)
    console.result(f"{out}: {len(study)} subjects, {samples} samples, {voxels} voxels")


def _range(numbers: Iterable[int]) -> str:
    found = sorted(numbers)
    low, high = found[0], found[-1]
    return str(low) if low == high else f"{low} to {high}"


def record_lines(record: dict[str, Any] | None) -> list[str]:
    """Return lines on what was done to the data, and on the samples of each subject."""
    from brainweave.study.provenance import describe_record

    lines = [f"{name}: {text}" for name, text in describe_record(record)]
    for id, counts in ((record or {}).get("samples") or {}).items():
        listed = ", ".join(f"{label} {n}" for label, n in counts.items())
        lines.append(f"sub-{id}: {listed}")
    return lines


# -- simulate and fetch ----------------------------------------------------------------


def simulate(
    context: typer.Context,
    out: Annotated[Path, typer.Argument(help="Folder to make.")],
    *,
    n_subjects: Annotated[int, c.option("Number of subjects.")] = 8,
    categories: Annotated[
        str | None, c.option("Number of categories, or names with commas.")
    ] = None,
    design: Annotated[str | None, c.option("blocks, events or movie.")] = None,
    n_runs: Annotated[int | None, c.option("Runs per subject.")] = None,
    n_voxels: Annotated[
        str | None, c.option("One number, or a range such as 1200-1800.")
    ] = None,
    bids: Annotated[
        bool, c.option("Write a BIDS dataset, not a study folder.", "--bids")
    ] = False,
    random_state: c.Seed = 0,
    param: c.Param = None,
    overwrite: c.Overwrite = False,
    config: c.Config = None,
    quiet: c.Quiet = False,
) -> None:
    """Make a study whose shared space is known, to try things on."""
    from brainweave.study.formats.any_format import call_with, option_names
    from brainweave.study.formats.bids_writer import check_empty
    from brainweave.study.simulation import simulate_study

    console: Console = context.obj
    if bids:
        files.check_writable(out)
        try:
            check_empty(out)
        except StudyError as error:
            raise UsageError(str(error)) from error
    else:
        files.check_new_folder(out, overwrite)
    params = c.parse_params(param)
    names = option_names(simulate_study)
    c.refuse_unknown(params, names, "simulate has no setting '{}'")
    options: dict[str, Any] = {
        "n_subjects": n_subjects,
        "categories": categories and _parse_categories(categories, design),
        "design": design,
        "n_runs": n_runs,
        "n_voxels": None if n_voxels is None else _parse_voxels(n_voxels),
        "random_state": random_state,
    }
    with console.stage("Simulating"):
        study = call_with(simulate_study, **c.with_params(options, params))
    if bids:
        with console.stage("Writing BIDS files"):
            study.to_bids(out)
    else:
        files.save_study(study, out, console, overwrite=overwrite)
    _print_summary(console, out, study)


def _parse_categories(text: str, design: str | None) -> int | list[str]:
    names = [name.strip() for name in text.split(",") if name.strip()]
    number = int(text) if text.strip().isdigit() else None
    if (len(set(names)) if number is None else number) < 2 and design != "movie":
        raise UsageError(
            f"--categories must be 2 or more, to be told apart; got {text!r}."
        )
    return names if number is None else number


def _parse_voxels(text: str) -> int | tuple[int, ...]:
    try:
        numbers = tuple(int(part) for part in text.split("-"))
    except ValueError:
        numbers = ()
    if len(numbers) not in (1, 2):
        raise UsageError(
            f"--n-voxels must be a number or a range such as 300-400; got {text!r}."
        )
    return numbers[0] if len(numbers) == 1 else numbers


def fetch(
    context: typer.Context,
    dataset: Annotated[
        str,
        typer.Argument(help="raider, raider-movie, haxby, or an OpenNeuro ds000000."),
    ],
    out: Annotated[
        Path | None,
        typer.Argument(help="Study folder to make; for OpenNeuro see convert."),
    ] = None,
    *,
    participant_label: Annotated[
        list[str] | None, c.option("Subjects to fetch; may be repeated.")
    ] = None,
    task: Annotated[str | None, c.option("Task (OpenNeuro).")] = None,
    cache_dir: Annotated[Path | None, c.option("Where to keep downloads.")] = None,
    overwrite: c.Overwrite = False,
    config: c.Config = None,
    quiet: c.Quiet = False,
) -> None:
    """Download a public dataset and make a study folder of it."""
    console: Console = context.obj
    console.resume_hint = (
        "Run the same command again: files that have arrived are kept."
    )
    download, options = _find_dataset(dataset, participant_label or None, task)
    is_openneuro = "accession" in options
    if out is not None and is_openneuro:
        raise UsageError(
            "OpenNeuro datasets are fetched as BIDS. Leave out the folder, then: "
            "brainweave convert FETCHED STUDY."
        )
    if out is None and not is_openneuro:
        raise UsageError(f"Name the folder to make: brainweave fetch {dataset} STUDY.")
    if out is not None:
        files.check_new_folder(out, overwrite)
    if dataset.lower() == "haxby":
        options["progress"] = not quiet
    found = download(**options, cache_dir=cache_dir)
    if out is None:
        console.result(str(found))
        return
    files.save_study(found, out, console, overwrite=overwrite)
    _print_summary(console, out, found)


def _find_dataset(
    dataset: str, subjects: list[str] | None, task: str | None
) -> tuple[Any, dict[str, Any]]:
    """Return the function that downloads a dataset, and its options."""
    from brainweave.study import public

    name = dataset.lower()
    if name.startswith("ds") and name[2:].isdigit():
        options = {"accession": name, "subjects": subjects, "task": task}
        return public.fetch_openneuro, options
    if name == "haxby":
        try:
            ids: Any = subjects and [int(id.removeprefix("sub-")) for id in subjects]
        except ValueError:
            got = ", ".join(subjects or [])
            raise UsageError(
                f"Haxby's subjects have numbers from 1 to 6; got {got}."
            ) from None
        return public.fetch_haxby, {"subjects": ids}
    if name not in ("raider", "raider-movie"):
        raise UsageError(f"There is no dataset {dataset!r}; choose {PUBLIC}.")
    if subjects is not None:
        raise UsageError("The Raider study comes whole: leave out --participant-label.")
    part = "movie" if name == "raider-movie" else "images"
    return public.fetch_raider, {"part": part}


# -- convert ---------------------------------------------------------------------------


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
    format: Annotated[
        str,
        c.option("auto, bids, nifti, cifti, gifti, matlab or study (a copy)."),
    ] = "auto",
    labels: Annotated[
        Path | None,
        c.option(
            "Labels of samples: a .tsv file with columns label and, if they differ, "
            "subject; a .mat file for MATLAB."
        ),
    ] = None,
    name: Annotated[str | None, c.option("Name of the study.")] = None,
    participant_label: c.Participants = None,
    task: c.Task = None,
    space: c.Space = None,
    samples: c.Samples = None,
    label: c.Label = None,
    ignore: c.Ignore = None,
    keep: c.Keep = None,
    confounds: c.Confounds = None,
    smoothing_fwhm: c.Smoothing = None,
    high_pass: c.HighPass = None,
    mask: c.Mask = None,
    param: c.Param = None,
    n_jobs: c.Jobs = None,
    overwrite: c.Overwrite = False,
    config: c.Config = None,
    quiet: c.Quiet = False,
) -> None:
    """Turn BIDS, NIfTI, CIFTI, GIfTI or MATLAB files into a study folder."""
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
        "name": name,
    }
    params = c.parse_params(param)
    for choice in ("confounds", "high_pass"):
        if options.get(choice, "") is None:  # none is a choice, not a gap
            params = {choice: None, **params}
    with console.stage("Looking at the files"):
        study = load_study(inputs, format=format, **c.with_params(options, params))
    files.save_study(study, out, console, overwrite=overwrite, n_jobs=n_jobs)
    for text in cautions(study.record):
        warn_user(text)
    _print_summary(console, out, study)
    if not quiet:
        for line in record_lines(study.record):
            console.result(f"  {line}")


def load_options(params: dict[str, Any]) -> dict[str, Any]:
    """Return those options of a command that ``load_bids`` takes, where given."""
    given = {n: params[n] for n in LOAD_OPTIONS if params[n] not in (None, [], ())}
    if "confounds" in given:
        given["confounds"] = parse_confounds(given["confounds"])
    if "high_pass" in given:
        cutoff = c.number_or(given["high_pass"], float, "high-pass", "none")
        given["high_pass"] = None if cutoff == "none" else cutoff
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
