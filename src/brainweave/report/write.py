"""Write a report: one HTML file that needs nothing else."""

import base64
import hashlib
import os
from collections.abc import Iterable, Mapping
from datetime import date
from pathlib import Path
from typing import Any

from markupsafe import Markup

from brainweave._io import write_text
from brainweave._validation import check_int
from brainweave._version import __version__
from brainweave.exceptions import InputError
from brainweave.report.accuracy import results_section
from brainweave.report.data import data_section
from brainweave.report.elements import asset, render
from brainweave.report.inputs import gather
from brainweave.report.methods import write_methods
from brainweave.report.sections import details_section, maps_section, model_section
from brainweave.report.space import space_section
from brainweave.report.summary import collect_warnings, give_verdict, headlines


def write_report(
    path: str | os.PathLike[str],
    *,
    study: Any = None,
    model: Any = None,
    results: Any = None,
    config: Mapping[str, Any] | None = None,
    title: str = "Functional alignment",
    shared: Any = None,
    warnings: Iterable[Any] = (),
    seconds: Mapping[str, float] | None = None,
    n_maps: int = 3,
    n_map_subjects: int = 3,
) -> Path:
    """Write one self-contained HTML file about a study, a model and its results.

    Give what there is; chapters without content are left out. The file loads nothing
    from anywhere, and is written whole or not at all.

    Parameters
    ----------
    path : path
        The file to write; its folder is made if needed. An older file is replaced.
    study : Study, optional
        The data the model was fitted on.
    model : aligner, optional
        Fitted.
    results : result, list of results, or mapping of names to results, optional
        What :func:`brainweave.between_subject_classification` returned, for one method
        or several, of one protocol or both.
    config : mapping, optional
        All settings; default: the parameters of the model.
    title : str
        Heading of the report.
    shared : list of arrays of shape (n_samples_i, n_components), optional
        Shared features to draw; default: those of the aligning samples under models
        that were fitted without them, or, where that cannot be, those of the study.
    warnings : iterable of str or warnings.WarningMessage, optional
        What was warned of on the way; shown with what the report itself finds.
    seconds : mapping of str to float, optional
        Time of each stage of this run; results bring their own.
    n_maps, n_map_subjects : int, default=3
        Shared features a reader can choose to see on the brain, and of how many
        subjects, 0 for none: every map takes half a second and 60 kB.

    Returns
    -------
    Path
        Where the report is.

    Examples
    --------
    >>> from brainweave import GDM
    >>> rng = np.random.default_rng(0)
    >>> y = [["a", "b", "c"] * 4, ["c", "b", "a"] * 4]
    >>> model = GDM(n_components=2).fit([rng.normal(size=(12, 20)) for _ in y], y)
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = write_report(Path(folder) / "report.html", model=model)
    ...     path.read_text().startswith("<!doctype html>")
    True
    """
    path = Path(path)
    if path.is_dir():
        raise InputError(
            f"{str(path)!r} is a folder. Name a file in it: "
            f"{str(path / 'report.html')!r}."
        )
    check_int("n_maps", n_maps, minimum=0, owner="write_report")
    check_int("n_map_subjects", n_map_subjects, minimum=0, owner="write_report")
    inputs = gather(
        study=study, model=model, results=results, config=config, shared=shared
    )
    if study is None and model is None and not inputs.results:
        raise InputError("A report needs a study, a model or results; got none.")
    maps = maps_section(inputs, n_maps, n_map_subjects)
    chapters = [
        data_section(inputs),
        results_section(inputs),
        space_section(inputs),
        model_section(inputs),
        maps,
        details_section(inputs, seconds),
    ]
    script = asset("report.js")
    text = render(
        "report.html.jinja",
        title=str(title),
        study_name=str(getattr(study, "name", "") or ""),
        today=date.today().isoformat(),
        version=__version__,
        style=Markup(asset("report.css")),
        script=Markup(script),
        policy=_policy(script),
        verdict=give_verdict(inputs),
        headlines=headlines(inputs),
        warnings=collect_warnings(inputs, warnings),
        methods=write_methods(inputs, shows_maps=maps is not None),
        sections=[chapter for chapter in chapters if chapter is not None],
    )
    # labels may hold anything, and half a character or a zero byte is no UTF-8 text
    write_text(path, str(text).replace("\x00", "").encode(errors="replace").decode())
    return path


def _policy(script: str) -> str:
    """Forbid the page every connection, and every script but ours."""
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return (
        "default-src 'none'; img-src data:; style-src 'unsafe-inline'; "
        f"script-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"
    )
