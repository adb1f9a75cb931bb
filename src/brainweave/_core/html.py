"""What notebooks show of studies, results, checks, models and maps.

Tables are pandas' own, and every value is escaped. Nothing is read or computed.
"""

from typing import Any

import numpy as np
from markupsafe import Markup

from brainweave._core.validation import format_list

MAX_ROWS = 20  # of a table; of longer ones, the middle is left out


def frame_html(title: Any, *parts: Any) -> str:
    """Show data frames, facts (mappings) and notes below a title."""
    import pandas as pd

    how: Any = {"index": False, "border": 0, "max_rows": MAX_ROWS, "na_rep": "n/a"}
    shown = []
    for part in parts:
        if isinstance(part, dict | pd.DataFrame):
            table = pd.DataFrame([part]) if isinstance(part, dict) else part
            shown.append(Markup(table.to_html(float_format="{:.3g}".format, **how)))
        elif part:
            shown.append(Markup("<p>{}</p>").format(part))
    block = '<div style="max-width:60em;overflow-x:auto"><p><b>{}</b></p>{}</div>'
    return str(Markup(block).format(title, Markup("").join(shown)))


def study_html(study: Any) -> str:
    """Show a study: a row per subject."""
    total = f"{sum(s.n_samples for s in study)} samples"
    if study.categories:
        bare = sum(s.n_unlabelled for s in study)
        labels = format_list(map(str, study.categories))
        total += f", {bare} without a label. Categories: {labels}"
    title = f"Study {study.name or ''} (subjects: {len(study)})"
    return frame_html(title, study.summary().reset_index(), f"{total}.")


def result_html(result: Any, interval: tuple[float, float] | None) -> str:
    """Show a result: mean, interval over subjects, chance, p, and the folds."""
    p = getattr(result, "p_value", None)
    facts = {"mean": f"{result.mean:z.3f}", "std": f"{result.std:.3f}"}
    if interval is not None:
        facts["95 % interval"] = f"{interval[0]:z.3f} to {interval[1]:z.3f}"
    facts["chance"] = f"{result.chance:z.3f}"
    if p is not None:
        facts["p"] = f"{p:.3g} (at least {result.smallest_p:.3g})"
    frame = result.to_frame()
    score = getattr(result, "score", "accuracy")
    who = "subject" if "subject" in frame else "test_subjects"
    shown = [n for n in ("half", "fold", who, score, "n_test") if n in frame]
    note = f"Chance is {result.chance_is}; the interval is over subjects."
    title = f"{result.method} ({result.protocol}), {score}"
    return frame_html(title, facts, note, frame[shown])


def check_html(check: Any) -> str:
    """Show whether alignment worked, and the agreement of each feature or piece."""
    import pandas as pd

    if check.pieces is not None:
        return frame_html(check.verdict, check.pieces.reset_index())
    holds = np.where(check.holds, "yes", "no")
    columns = {"agreement": check.agreement_cv, "p": check.p, "p < .05": holds}
    frame = pd.DataFrame(columns).rename_axis("feature").reset_index()
    return frame_html(check.verdict, frame)


def aligner_html(aligner: Any, diagram: str) -> str:
    """Add what was learned below scikit-learn's diagram of a fitted aligner."""
    if not hasattr(aligner, "maps_"):
        return diagram
    voxels = {m.n_voxels for m in aligner.maps_}
    spread = " to ".join(map(str, sorted({min(voxels), max(voxels)})))
    k = aligner.maps_[0].n_components
    title = f"{len(aligner.maps_)} subjects, {spread} voxels, {k} shared features"
    known = getattr(aligner, "best_estimator_", aligner)
    told = [vars(known).get("_check"), getattr(known, "place_", None)]
    best = getattr(aligner, "best_params_", None)
    notes = [str(one) for one in (*told, best and f"Chosen: {best}") if one]
    return diagram + frame_html(title, *notes)


def map_html(subject_map: Any) -> str:
    """Show a subject's map: its size, kernel and where its voxels are."""
    m = subject_map
    facts = {"voxels": m.n_voxels, "shared features": m.n_components}
    facts |= {"kernel": m.kernel, "space": m.space or "not known"}
    if m.n_undetermined:
        facts["undetermined features"] = m.n_undetermined
    return frame_html("Map into the shared space", facts)
