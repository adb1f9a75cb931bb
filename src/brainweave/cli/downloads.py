"""Public datasets by the names that people type."""

from typing import Any

from brainweave.cli.errors import UsageError

KNOWN = "raider, raider-movie, haxby, or an OpenNeuro accession such as ds000105"


def fetch_dataset(name: str, options: dict[str, Any], *, quiet: bool) -> Any:
    """Download a dataset; return a Study, or the folder of an OpenNeuro one."""
    cache, progress = options["cache_dir"], not quiet
    kind = kind_of(name)
    if kind == "haxby":
        from brainweave.study.public.datasets import fetch_haxby

        return fetch_haxby(_numbers(options), cache_dir=cache, progress=progress)
    if kind == "openneuro":
        from brainweave.study.public.openneuro import fetch_openneuro

        return fetch_openneuro(
            name.lower(),
            subjects=options["subjects"],
            task=options["task"],
            cache_dir=cache,
            progress=progress,
        )
    from brainweave.study.public.datasets import fetch_raider

    _refuse_subjects(options)
    part: Any = "movie" if kind == "raider-movie" else "images"
    return fetch_raider(part, cache_dir=cache, progress=progress)


def plan_of(name: str, options: dict[str, Any]) -> Any:
    """Say what would be downloaded, how much and where to."""
    cache, kind = options["cache_dir"], kind_of(name)
    if kind == "haxby":
        from brainweave.study.public.datasets import haxby_plan

        return haxby_plan(_numbers(options), cache)
    if kind == "openneuro":
        from brainweave.study.public.openneuro import openneuro_plan

        return openneuro_plan(
            name.lower(),
            subjects=options["subjects"],
            task=options["task"],
            cache_dir=cache,
        )
    from brainweave.study.public.datasets import raider_plan

    _refuse_subjects(options)
    part: Any = "movie" if kind == "raider-movie" else "images"
    return raider_plan(part, cache)


def kind_of(name: str) -> str:
    """Return the kind of dataset that a name stands for."""
    lowered = name.lower()
    if lowered in ("raider", "raider-movie", "haxby"):
        return lowered
    if lowered.startswith("ds") and lowered[2:].isdigit():
        return "openneuro"
    raise UsageError(f"There is no dataset {name!r}; choose {KNOWN}.")


def _numbers(options: dict[str, Any]) -> list[int] | None:
    given = options["subjects"]
    if given is None:
        return None
    try:
        return [int(str(label).removeprefix("sub-")) for label in given]
    except ValueError:
        raise UsageError(
            f"Haxby's subjects have numbers from 1 to 6; got {', '.join(given)}."
        ) from None


def _refuse_subjects(options: dict[str, Any]) -> None:
    if options["subjects"] is not None:
        raise UsageError("The Raider study comes whole: leave out --participant-label.")
