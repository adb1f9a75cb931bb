"""Tables and figures of the experiments, as files."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from brainweave._io import write_text
from brainweave.paper.methods import COMPETING, METHODS, WITHOUT
from brainweave.paper.settings import Dataset, Figure

if TYPE_CHECKING:
    import pandas as pd

__all__ = [
    "draw_figure",
    "markdown",
    "percent",
    "save_figure",
    "table_of",
    "write_table",
]

_COLUMNS = (
    "dataset",
    "data",
    "method",
    "protocol",
    "mean",
    "std",
    "n_folds",
    "n_failed",
    "chance",
    "p_value",
    "published_mean",
    "published_std",
    "seconds",
    "error",
)


def table_of(
    summary: "pd.DataFrame",
    chosen: Sequence[Dataset],
    *,
    simulated: Callable[[str], bool],
) -> "pd.DataFrame":
    """Put the numbers of a summary beside the published ones, in the paper's order."""
    published = {d.name: d.published for d in chosen}
    rank = {name: n for n, name in enumerate([d.name for d in chosen] + list(METHODS))}
    table = summary.rename(columns={"study": "dataset"})
    table["data"] = ["simulated" if simulated(n) else "real" for n in table["dataset"]]
    pairs = [
        published[d].get(m, (np.nan, np.nan))
        for d, m in zip(table["dataset"], table["method"], strict=True)
    ]
    table["published_mean"] = [p[0] / 100 for p in pairs]
    table["published_std"] = [p[1] / 100 for p in pairs]
    order = sorted(
        range(len(table)),
        key=lambda i: (
            rank[table["dataset"].iloc[i]],
            table["protocol"].iloc[i] != "joint",
            rank[table["method"].iloc[i]],
        ),
    )
    return table.iloc[order][list(_COLUMNS)].reset_index(drop=True)


def write_table(
    table: "pd.DataFrame", folder: Path, name: str, *, published: bool
) -> None:
    """Write a table of numbers, and the same in the form of Table 2."""
    write_text(folder / f"{name}.csv", table.to_csv(index=False))
    write_text(folder / f"{name}.md", _paper_form(table, published=published))


def _paper_form(table: "pd.DataFrame", *, published: bool) -> str:
    """Write a row per dataset and protocol, a column per method, the best in bold."""
    methods = list(dict.fromkeys(table["method"]))
    rows: list[list[str]] = []
    reasons: dict[str, tuple[str, list[str]]] = {}
    for (name, protocol), group in table.groupby(["dataset", "protocol"], sort=False):
        found = group.set_index("method")
        best = found.loc[found["n_failed"] == 0, "mean"].max()
        row = [f"{name} ({found['data'].iloc[0]})", str(protocol)]
        for method in methods:
            mean, std = found.loc[method, "mean"], found.loc[method, "std"]
            # no mean of the folds that happen to be left
            text = "—" if found.loc[method, "n_failed"] else percent(mean, std)
            row.append(f"**{text}**" if mean == best else text)
            if found.loc[method, "error"]:
                first = reasons.setdefault(method, (found.loc[method, "error"], []))
                first[1].append(str(name))
        rows.append(row)
        known = found["published_mean"].notna().any()
        if published and known and protocol == "joint":
            rows.append(
                [f"{name} (published)", "joint"]
                + [
                    percent(
                        found.loc[m, "published_mean"], found.loc[m, "published_std"]
                    )
                    if found.loc[m, "published_mean"] > 0
                    else ""
                    for m in methods
                ]
            )
    text = markdown(["dataset", "protocol", *methods], rows)
    text += "\nAccuracy in per cent, mean ± standard deviation over folds.\n"
    if "simulated" in set(table["data"]):
        text += (
            "Simulated data have the shape of the published ones, nothing else: their "
            "numbers compare methods, not studies.\n"
        )
    if reasons:
        text += "\nWhy numbers are missing:\n\n"
        for method, (reason, names) in reasons.items():
            text += f"- {method} ({', '.join(dict.fromkeys(names))}): {reason}\n"
    return text


def markdown(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Write a Markdown table.

    Examples
    --------
    >>> print(markdown(["a", "b"], [["1", "2"]]), end="")
    | a | b |
    |---|---|
    | 1 | 2 |
    """
    lines = [header, *rows]
    text = ["| " + " | ".join(cells) + " |" for cells in lines]
    text.insert(1, "|" + "---|" * len(header))
    return "\n".join(text) + "\n"


def percent(mean: float, std: float | None = None) -> str:
    """Write a share in per cent, with its deviation if there is one."""
    return f"{100 * mean:.1f}" + ("" if std is None else f" ± {100 * std:.1f}")


def draw_figure(
    plan: Figure,
    chosen: Sequence[Dataset],
    summary: "pd.DataFrame",
    folder: Path,
    *,
    simulated: Mapping[str, bool],
) -> "pd.DataFrame":
    """Draw the panels, and write their numbers beside them."""
    import pandas as pd

    from brainweave.plotting import CurvePanel, plot_curve_panels

    panels, rows = [], []
    for setting in chosen:
        own = summary[summary["study"] == setting.name]
        curve = _curve(plan, own[own["method"] == "GDM"])
        lines = _lines(own, setting)
        kind = "simulated" if simulated[setting.name] else "real"
        panels.append(
            CurvePanel(
                f"{setting.name} ({kind})",
                [100 * v for v in plan.values],
                {"GDM": curve["mean"].tolist()},
                {"GDM": curve["std"].tolist()},
                lines,
            )
        )
        common: dict[str, Any] = {"figure": plan.name, "dataset": setting.name}
        common |= {"data": kind, "kernel": plan.kernel, "hp": plan.hp}
        common |= {"n_components": setting.n_components, "nu": setting.nu}
        for value, point in zip(plan.values, curve.itertuples(), strict=True):
            x = {"curve": "GDM", plan.what: value}
            y = {"mean": point.mean, "std": point.std, "error": point.error}
            rows.append({**common, **x, **y})
        rows += [{**common, "curve": name, "mean": v} for name, v in lines.items()]
    table = pd.DataFrame(rows)
    write_text(folder / f"{plan.name}.csv", table.to_csv(index=False))
    drawn = plot_curve_panels(panels, xlabel=f"{plan.what} (%)")
    save_figure(drawn, folder / f"{plan.name}.svg")
    return table


def save_figure(figure: Any, path: Path) -> None:
    """Save a figure that is the same file whenever it is the same figure."""
    import matplotlib as mpl

    with mpl.rc_context({"svg.hashsalt": path.stem}):
        figure.savefig(path, metadata={"Date": None})


def _curve(plan: Figure, own: "pd.DataFrame") -> "pd.DataFrame":
    column = "param_energy" if plan.what == "energy" else "missing"
    if plan.what == "incompleteness" and "param_energy" in own:
        own = own[own["param_energy"].isna()]
    indexed = own.set_index(column).loc[list(plan.values)]
    # no mean of the folds that happen to be left
    whole = indexed["n_failed"] == 0
    return indexed[["mean", "std"]].where(whole).assign(error=indexed["error"])


def _lines(own: "pd.DataFrame", setting: Dataset) -> dict[str, float]:
    means = own[own["missing"] == 0].set_index("method")["mean"]
    return {
        "without alignment": float(means[WITHOUT]),
        "best of others": float(means[list(COMPETING)].max()),
        "guess": 1 / setting.categories,
    }
