"""Tables and figures of the experiments, as text and as files."""

from collections import Counter
from collections.abc import Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from brainweave._core.exceptions import InputError
from brainweave._core.io import write_text
from brainweave.evaluation.evaluate import PROTOCOLS
from brainweave.evaluation.results import GridResult
from reproduction.grids import summarise
from reproduction.settings import COMPETING, METHODS, OURS, WITHOUT, Dataset, Figure

if TYPE_CHECKING:
    import pandas as pd

    from reproduction.curves import CurvePanel


#: Other forms of GDM, which are not counted among the methods that are compared.
VARIANTS = ("GDM, time graph", "GDMCV", *OURS)
_COLUMNS = (
    *("dataset", "data", "method", "protocol", "mean", "std", "n_folds", "n_failed"),
    *("beside_mean", "beside_std", "chance", "p_value"),
    *("published_mean", "published_std", "seconds", "error"),
)
#: What the columns and rows of the other classifier are called.
PLAIN = "LIBSVM's nu-SVM"


def result_folder(out: str | PathLike[str]) -> Path:
    """Make the folder that results go into."""
    folder = Path(out)
    if folder.exists() and not folder.is_dir():
        raise InputError(f"{str(out)!r} is a file; results go into a folder.")
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def select_methods(
    available: Mapping[str, Any],
    wanted: Sequence[str] | None,
    required: Sequence[str] = (),
) -> dict[str, Any]:
    """Return the methods that are wanted, all for None, in the order available."""
    if wanted is None:
        return dict(available)
    unknown = [m for m in wanted if m not in available]
    lacking = [m for m in required if m not in wanted]
    if unknown or lacking or not wanted:
        also = f", {' and '.join(required)} among them" if required else ""
        raise InputError(
            f"methods={list(wanted)} must be some of {', '.join(available)}{also}."
        )
    return {m: available[m] for m in available if m in wanted}


def sort_by_order(table: "pd.DataFrame", **orders: Sequence[str]) -> "pd.DataFrame":
    """Sort a table by columns, each in the order of its values given here."""
    return table.sort_values(
        list(orders),
        key=lambda column: column.map(list(orders[str(column.name)]).index),
        kind="stable",
        ignore_index=True,
    )


def write_table(folder: Path, name: str, table: "pd.DataFrame", text: str = "") -> None:
    """Write a table as CSV and, if there is one, its text as Markdown."""
    write_text(folder / f"{name}.csv", table.to_csv(index=False))
    if text:
        write_text(folder / f"{name}.md", text)


# -- text ------------------------------------------------------------------------------


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


def methods_table(columns: Sequence[tuple[str, Mapping[str, str]]]) -> str:
    """Write a Markdown table with a row per method; columns are titles and cells."""
    rows = [[m, *(cells[m] for _, cells in columns)] for m in columns[0][1]]
    return markdown(["method", *(title for title, _ in columns)], rows)


def _format_means(
    found: "pd.DataFrame", *, bold: bool = True, of: str = ""
) -> dict[str, str]:
    """Write the mean of each method, the best in bold; a dash if a fold failed.

    With ``of="beside_"`` those of the other classifier.
    """
    means = found[f"{of}mean"].where(found["n_failed"] == 0)
    best = means.max() if bold else None
    cells = {}
    for method, mean in means.items():
        # no mean of the folds that happen to be left
        failed = np.isnan(mean)
        text = "—" if failed else percent(mean, found.loc[method, f"{of}std"])
        cells[str(method)] = f"**{text}**" if mean == best else text
    return cells


def add_published(
    summary: "pd.DataFrame", chosen: Sequence[Dataset], *, real: Mapping[str, Any]
) -> "pd.DataFrame":
    """Return a summary with the published numbers beside, in the paper's order."""
    published = {(d.name, m): p for d in chosen for m, p in d.published.items()}
    table = summary.rename(columns={"study": "dataset"})
    table["data"] = ["real" if n in real else "simulated" for n in table["dataset"]]
    pairs = zip(table["dataset"], table["method"], strict=True)
    numbers = np.array([published.get(pair, (np.nan, np.nan)) for pair in pairs]) / 100
    table["published_mean"], table["published_std"] = numbers.T
    names = [d.name for d in chosen]
    ordered = sort_by_order(table, dataset=names, protocol=PROTOCOLS, method=METHODS)
    return ordered[list(_COLUMNS)]


def table_text(table: "pd.DataFrame", *, published: bool) -> str:
    """Write a row per dataset and protocol, a column per method, as in Table 2."""
    methods = list(dict.fromkeys(table["method"]))
    rows: list[list[str]] = []
    for (name, protocol), group in table.groupby(["dataset", "protocol"], sort=False):
        found = group.set_index("method")
        cells = _format_means(found)
        data = found["data"].iloc[0]
        rows.append(
            [f"{name} ({data})", str(protocol), *(cells.get(m, "") for m in methods)]
        )
        if "beside_mean" in found:
            cells = _format_means(found, of="beside_")
            texts = [cells.get(m, "") for m in methods]
            rows.append([f"{name} ({data}), {PLAIN}", str(protocol), *texts])
        is_published = found["published_mean"].notna()
        if published and is_published.any() and protocol == "joint":
            numbers = found[["published_mean", "published_std"]]
            texts = [
                percent(*numbers.loc[m]) if is_published.get(m) else "" for m in methods
            ]
            rows.append([f"{name} (published)", "joint", *texts])
    text = markdown(["dataset", "protocol", *methods], rows)
    text += "\nAccuracy in per cent, mean ± standard deviation over folds.\n"
    if "beside_mean" in table:
        text += (
            "The classifier is a nu-SVM that goes by means for pairs of categories "
            f"that overlap; {PLAIN}, the paper's, is named where it is meant.\n"
        )
    if "simulated" in set(table["data"]):
        text += (
            "Simulated data have the shape of the published ones, nothing else: their "
            "numbers compare methods, not studies.\n"
        )
    failed = table[table["error"] != ""]
    if not failed.empty:
        text += "\nWhy numbers are missing:\n\n"
    for method, group in failed.groupby("method", sort=False):
        names = ", ".join(dict.fromkeys(group["dataset"]))
        text += f"- {method} ({names}): {group['error'].iloc[0]}\n"
    return text


def raider_text(
    table: "pd.DataFrame", by_number: "pd.DataFrame", choices: "pd.DataFrame"
) -> str:
    """Write the tables, which method is best, and what GDMCV chose."""
    columns = []
    for protocol, found in _by_protocol(table).items():
        p_values = {
            str(method): "—" if row["n_failed"] else f"{row['p_value']:.3f}"
            for method, row in found.iterrows()
        }
        columns += [(protocol, _format_means(found, bold=False)), ("p", p_values)]
        if "beside_mean" in found:
            plain = _format_means(found, bold=False, of="beside_")
            columns.append((f"{protocol}, {PLAIN}", plain))
    text = methods_table(columns) + _verdict(table)
    text += "\nWith other numbers K of shared features, the best of a column in bold:\n"
    columns = [
        (f"{protocol}, K = {k}", _format_means(found[found["param_n_components"] == k]))
        for protocol, found in _by_protocol(by_number).items()
        for k in sorted(by_number["param_n_components"].unique())
    ]
    return f"{text}\n{methods_table(columns)}{_choices_text(choices)}"


def pieman_text(table: "pd.DataFrame") -> str:
    """Write the table of matched segments."""
    found = _by_protocol(table).items()
    columns = [(protocol, _format_means(t, bold=False)) for protocol, t in found]
    return methods_table(columns) + _verdict(table)


def splits_text(table: "pd.DataFrame") -> str:
    """Write a row per method: means and standard errors over ways of halving."""
    titles = [f"Raider, {table['n_splits'].max()} ways of halving", *PROTOCOLS]
    kinds = [("mean", "se")]
    if "beside_mean" in table:
        titles += [f"{protocol}, {PLAIN}" for protocol in PROTOCOLS]
        kinds.append(("beside_mean", "beside_se"))
    rows = []
    for method, found in table.groupby("method", sort=False):
        of = found.set_index("protocol")
        texts = [percent(*of.loc[p, list(k)]) for k in kinds for p in PROTOCOLS]
        rows.append([str(method), *texts])
    return markdown(titles, rows)


def _by_protocol(table: "pd.DataFrame") -> "dict[str, pd.DataFrame]":
    return {p: table[table["protocol"] == p].set_index("method") for p in PROTOCOLS}


def _verdict(table: "pd.DataFrame") -> str:
    """Say plainly which method is best, where GDM stands, and what is missing."""
    sentences = []
    for name, found in _by_protocol(table).items():
        means = found.loc[found["n_failed"] == 0, "mean"]
        means = means.drop(list(VARIANTS), errors="ignore")
        if "GDM" not in means:
            continue
        best, rank = means.idxmax(), int((means > means["GDM"]).sum()) + 1
        gdm = percent(means["GDM"])
        if rank == 1:
            others = means.drop("GDM")
            sentences.append(
                f"Under the {name} protocol GDM is the best method ({gdm} %), before "
                f"{others.idxmax()} ({percent(others.max())} %)."
            )
        else:
            sentences.append(
                f"Under the {name} protocol GDM ({gdm} %) is not the best: {best} "
                f"reaches {percent(means[best])} %; GDM is number {rank} of "
                f"{len(means)}."
            )
    chance = percent(float(table["chance"].dropna().iloc[0]))
    text = f"\n{' '.join(sentences)} Guessing reaches {chance} %.\n"
    for row in table[table["error"] != ""].itertuples():
        text += f"\n{row.method}, {row.protocol}, is missing: {row.error}\n"
    return text


def count_choices(result: GridResult) -> "pd.DataFrame":
    """Count in how many folds GDMCV chose which energy, by protocol and half."""
    import pandas as pd

    chosen = sorted(
        (PROTOCOLS.index(r["protocol"]), r["half"], r["fold"], best["energy"])
        for r in result.records
        if (best := r.get("best_params"))
    )
    counts = Counter((PROTOCOLS[p], half + 1, energy) for p, half, _, energy in chosen)
    columns = ["protocol", "half", "energy", "n_folds"]
    return pd.DataFrame([(*key, n) for key, n in counts.items()], columns=columns)


def _choices_text(choices: "pd.DataFrame") -> str:
    text = "" if choices.empty else "\nGDMCV chose:\n\n"
    for (protocol, half), found in choices.groupby(["protocol", "half"], sort=False):
        n = found["n_folds"].sum()
        energies = "; ".join(
            f"energy {row.energy} ({row.n_folds}/{n} folds)"
            for row in found.itertuples()
        )
        text += f"- {protocol}, aligned with half {half}: {energies}\n"
    return text


# -- figures ---------------------------------------------------------------------------


def draw_figure(
    plan: Figure,
    chosen: Sequence[Dataset],
    summary: "pd.DataFrame",
    folder: Path,
    *,
    real: Mapping[str, Any],
) -> "pd.DataFrame":
    """Draw the panels, and write their numbers beside them."""
    import pandas as pd

    panels, rows = [], []
    for setting in chosen:
        found = summary[summary["study"] == setting.name]
        curve = found[found["method"] == "GDM"]
        column = "param_energy" if plan.what == "energy" else "missing"
        curve = curve.set_index(column).loc[list(plan.values)].reset_index()
        kind = "real" if setting.name in real else "simulated"
        means = found[found["missing"] == 0].set_index("method")["mean"]
        guess = 1 / setting.categories
        title = f"{setting.name} ({kind})"
        panel = _panel(title, curve.assign(x=curve[column]), means, guess)
        panels.append(panel)
        common: dict[str, Any] = {"figure": plan.name, "dataset": setting.name}
        common |= {"data": kind, "kernel": plan.kernel, "hp": plan.hp}
        common |= {"n_components": setting.n_components, "nu": setting.nu}
        points = pd.DataFrame({plan.what: plan.values, "mean": panel.mean})
        points = points.assign(std=panel.std, error=curve["error"])
        points = points.assign(beside_mean=curve["beside_mean"])
        rows += [
            {**common, "curve": "GDM", **point} for point in points.to_dict("records")
        ]
        rows += [
            {**common, "curve": name, "mean": level}
            for name, level in panel.lines.items()
        ]
    table = pd.DataFrame(rows)
    _save_curves(folder, plan.name, panels, plan.what, table)
    return table


def draw_curves(
    folder: Path, table: "pd.DataFrame", energy: GridResult, missing: GridResult
) -> None:
    """Draw GDM against energy and against incompleteness, and write the numbers."""
    import pandas as pd

    whole = table[table["method"] == "GDM"].assign(missing=0.0)
    incomplete = pd.concat([whole, summarise(missing)])
    curves = {
        "energy": summarise(energy).assign(x=lambda found: found["param_energy"]),
        "incompleteness": incomplete.assign(x=incomplete["missing"]),
    }
    guess = float(table["chance"].iloc[0])
    for what, found in curves.items():
        found = found.sort_values("x", kind="stable")
        panels = [
            _panel(
                f"Raider images, {protocol}",
                found[found["protocol"] == protocol],
                others["mean"],
                guess,
            )
            for protocol, others in _by_protocol(table).items()
        ]
        columns = ["protocol", "x", "mean", "std", "beside_mean", "n_folds"]
        columns += ["n_failed", "error"]
        numbers = found[columns].rename(columns={"x": what})
        numbers = sort_by_order(numbers, protocol=PROTOCOLS)
        _save_curves(folder, f"raider_{what}", panels, what, numbers)


def _panel(
    title: str, curve: "pd.DataFrame", means: "pd.Series[float]", guess: float
) -> "CurvePanel":
    """Make a panel of GDM against x, with the means of the others as lines."""
    from reproduction.curves import CurvePanel

    # no mean of the folds that happen to be left
    whole = curve[["mean", "std"]].where(curve["n_failed"] == 0)
    return CurvePanel(
        title,
        (100 * curve["x"]).tolist(),
        whole["mean"].tolist(),
        whole["std"].tolist(),
        {
            "without alignment": float(means[WITHOUT]),
            "best of others": float(means[[m for m in COMPETING if m in means]].max()),
            "guess": guess,
        },
    )


def _save_curves(
    folder: Path,
    name: str,
    panels: "list[CurvePanel]",
    what: str,
    numbers: "pd.DataFrame",
) -> None:
    """Write numbers, and a figure that is the same file whenever it is the same."""
    import matplotlib as mpl

    from reproduction.curves import plot_curve_panels

    write_table(folder, name, numbers)
    drawn = plot_curve_panels(panels, f"{what} (%)")
    with mpl.rc_context({"svg.hashsalt": name}):
        drawn.savefig(folder / f"{name}.svg", metadata={"Date": None})
