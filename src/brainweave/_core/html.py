"""What notebooks show of studies, results, checks, models and maps.

Colours come from the page, so that light and dark themes both work; every value is
escaped. Nothing is read or computed that is not in memory already.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from markupsafe import Markup

MAX_ROWS = 20  # of a table; the rest is counted
MAX_CELLS = 48  # of a strip: more would be too narrow to see

STYLE = Markup("""<style>
.bw{font:13px/1.45 system-ui,sans-serif;max-width:60em;overflow-x:auto}
.bw p{margin:.2em 0 .5em} .bw b{font-weight:600}
.bw table{border-collapse:collapse;margin:.3em 0;font-size:12px}
.bw th,.bw td{padding:.15em .8em .15em 0;text-align:left;background:none;
border:0;border-bottom:1px solid rgba(127,127,127,.35);white-space:nowrap}
.bw td.n,.bw th.n{text-align:right;font-variant-numeric:tabular-nums}
.bw .strip{display:inline-flex;gap:1px;vertical-align:middle}
.bw .strip i{width:9px;height:13px;background:currentColor;border-radius:1px}
.bw .strip i.none{background:none;box-shadow:inset 0 0 0 1px rgba(127,127,127,.6)}
.bw .good{border-left:4px solid #2a9d62;padding-left:.6em}
.bw .bad{border-left:4px solid #d1495b;padding-left:.6em}
.bw .open{border-left:4px solid rgba(127,127,127,.6);padding-left:.6em}
</style>""")


def table(columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> Markup:
    """Lay out rows; numbers are aligned to the right, rows behind the 20th counted."""
    rows = [list(row) for row in rows]

    def cell(tag: str, value: Any, sample: Any) -> Markup:
        kind = Markup(' class="n"') if isinstance(sample, int | float) else ""
        return Markup("<{0}{1}>{2}</{0}>").format(tag, kind, _shown(value))

    first = rows[0] if rows else columns
    head = [cell("th", name, like) for name, like in zip(columns, first, strict=True)]
    lines = [[cell("td", value, value) for value in row] for row in rows[:MAX_ROWS]]
    if len(rows) > MAX_ROWS:
        more = f"and {len(rows) - MAX_ROWS} more"
        lines.append([Markup('<td colspan="{}">{}</td>').format(len(columns), more)])
    made = (Markup("<tr>{}</tr>").format(Markup("").join(r)) for r in [head, *lines])
    return Markup("<table>{}</table>").format(Markup("").join(made))


def strip(counts: Counter[Any], names: Sequence[Any], full: int) -> Markup:
    """Draw a cell per name: the stronger the more samples, outlined for none."""
    if len(names) > MAX_CELLS:
        return Markup("{} of {}").format(sum(counts[n] > 0 for n in names), len(names))
    cells = []
    for name in names:
        n = counts[name]
        dark = Markup('style="opacity:{:.2f}"').format(0.25 + 0.6 * n / max(full, 1))
        looks = dark if n else Markup('class="none"')
        cells.append(Markup('<i {} title="{}: {}"></i>').format(looks, name, n))
    return Markup('<span class="strip">{}</span>').format(Markup("").join(cells))


def page(title: Any, *parts: Any, kind: str = "open") -> str:
    """Put a title and what is below it into one block with its style."""
    body = Markup("").join(part for part in parts if part)
    block = Markup('{}<div class="bw"><p class="{}"><b>{}</b></p>{}</div>')
    return str(block.format(STYLE, kind, title, body))


def study_html(study: Any) -> str:
    """Show a study: a row per subject, with strips of its runs and categories."""
    columns, marks = ["subject", "samples", "voxels"], []
    for name, found in (("runs", study.run_ids), ("labels", study.categories)):
        if found:
            own = [Counter(_listed(getattr(s, name))) for s in study]
            full = max((c[value] for c in own for value in found), default=0)
            marks.append([strip(counts, found, full) for counts in own])
            columns.append("categories" if name == "labels" else name)
    rows = [
        [s.id, s.n_samples, s.n_voxels, *(mark[i] for mark in marks)]
        for i, s in enumerate(study)
    ]
    many = f"{len(study)} subject{'s' if len(study) > 1 else ''}"
    title = f"Study{f' {study.name}' if study.name else ''}: {many}"
    total = f"{sum(s.n_samples for s in study)} samples"
    if study.categories:
        bare = sum(int(s.unlabelled().sum()) for s in study)
        labels = ", ".join(map(str, study.categories[:8]))
        more = f" and {len(study.categories) - 8} more" * (len(study.categories) > 8)
        total += f", {bare} without a label. Categories: {labels}{more}"
    legend = "A strong colour means many samples, an outline none." if marks else ""
    return page(
        title, Markup("<p>{}.</p>").format(total), table(columns, rows), _note(legend)
    )


def result_html(result: Any, interval: tuple[float, float] | None) -> str:
    """Show a result: mean, interval over subjects, chance, p, and the folds."""
    p = getattr(result, "p_value", None)
    facts: dict[str, Any] = {"mean": result.mean, "std": result.std}
    if interval is not None:
        facts["95 % interval"] = f"{interval[0]:.3f} to {interval[1]:.3f}"
    facts["chance"] = result.chance
    if p is not None:
        facts["p"] = f"{p:.3g} (at least {result.smallest_p:.3g})"
    frame = result.to_frame()
    score = getattr(result, "score", "accuracy")
    who = "subject" if "subject" in frame else "test_subjects"
    shown = [n for n in ("half", "fold", who, score, "n_test") if n in frame]
    rows = frame[shown].itertuples(index=False, name=None)
    return page(
        f"{result.method} ({result.protocol}), {score}",
        table(list(facts), [list(facts.values())]),
        _note(f"Chance is {result.chance_is}; the interval is over subjects."),
        _folded("Folds" if "fold" in frame else "Subjects", table(shown, rows)),
    )


def frame_html(title: Any, frame: Any, note: str = "") -> str:
    """Show a data frame below a title."""
    rows = frame.itertuples(index=False, name=None)
    return page(title, table([str(c) for c in frame], rows), _note(note))


def check_html(check: Any) -> str:
    """Show whether alignment worked, and the agreement of each feature or piece."""
    kind = {True: "good", False: "bad", None: "open"}[check.worked]
    if check.pieces is not None:
        frame = check.pieces.reset_index()
        columns = [str(c) for c in frame]
        return page(
            check.verdict, table(columns, frame.itertuples(index=False)), kind=kind
        )
    pairs = zip(check.agreement_cv, check.p, check.holds, strict=True)
    rows = [
        [k, float(r), float(p), "yes" if ok else "no"]
        for k, (r, p, ok) in enumerate(pairs)
    ]
    columns = ["feature", "agreement", "p", "holds up"]
    return page(check.verdict, table(columns, rows) if rows else "", kind=kind)


def aligner_html(aligner: Any, diagram: str) -> str:
    """Add what was learned below scikit-learn's diagram of a fitted aligner."""
    if not hasattr(aligner, "maps_"):
        return diagram
    voxels = sorted({m.n_voxels for m in aligner.maps_})
    spread = f"{voxels[0]}" if len(voxels) == 1 else f"{voxels[0]} to {voxels[-1]}"
    k = getattr(aligner, "n_components_", aligner.maps_[0].n_components)
    title = f"{len(aligner.maps_)} subjects, {spread} voxels, {k} shared features"
    known = getattr(aligner, "best_estimator_", aligner)
    told = [vars(known).get("_check"), getattr(known, "place_", None)]
    best = getattr(aligner, "best_params_", None)
    notes = [_note(str(one)) for one in (*told, best and f"Chosen: {best}") if one]
    return diagram + page(title, *notes)


def map_html(subject_map: Any) -> str:
    """Show a subject's map: its size, kernel and where its voxels are."""
    m = subject_map
    facts = {"voxels": m.n_voxels, "shared features": m.n_components}
    facts |= {"kernel": m.kernel, "space": m.space or "not known"}
    if m.n_undetermined:
        facts["undetermined features"] = m.n_undetermined
    return page("Map into the shared space", table(list(facts), [list(facts.values())]))


def _shown(value: Any) -> Any:
    if isinstance(value, float):
        few = ".3f" if abs(value) >= 0.01 or value == 0 else ".2g"
        return "n/a" if np.isnan(value) else format(value, few)
    return "n/a" if value is None else value


def _listed(values: Any) -> list[Any]:
    return [] if values is None else np.asarray(values).tolist()


def _note(text: str) -> Markup | str:
    return text and Markup("<p>{}</p>").format(text)


def _folded(title: str, body: Markup) -> Markup:
    made = Markup("<details><summary>{}</summary>{}</details>")
    return made.format(title, body)
