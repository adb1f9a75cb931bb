"""What is written about the two real studies: tables, a verdict, curves."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from brainweave._io import write_text
from brainweave.evaluation.grid_result import GridResult
from brainweave.paper.methods import COMPETING, WITHOUT
from brainweave.paper.output import markdown, percent, save_figure

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["VARIANTS", "draw_curves", "in_order", "pieman_text", "raider_text"]

PROTOCOLS = ("joint", "held-out")
#: Other forms of GDM, which are not counted among the methods that are compared.
VARIANTS = ("GDM, time graph", "GDMCV")


def in_order(summary: "pd.DataFrame", methods: list[str]) -> "pd.DataFrame":
    """Sort a summary by the order of methods, "joint" first."""
    order = sorted(
        range(len(summary)),
        key=lambda i: (
            methods.index(summary["method"].iloc[i]),
            summary["protocol"].iloc[i] != "joint",
        ),
    )
    return summary.iloc[order].reset_index(drop=True)


def raider_text(
    table: "pd.DataFrame", by_number: "pd.DataFrame", result: GridResult
) -> str:
    """Write the tables, which method is best, and what GDMCV chose."""
    joint, held = _by_protocol(table)
    rows = []
    for method in joint.index:
        row = [str(method)]
        for found in (joint, held):
            row += [_cell(found.loc[method]), _p_value(found.loc[method])]
        rows.append(row)
    text = markdown(["method", "joint", "p", "held-out", "p"], rows)
    chance = percent(float(joint["chance"].iloc[0]))
    text += f"\n{_verdict(joint, held)} Guessing reaches {chance} %.\n"
    text += _reasons(table)
    text += "\nWith other numbers K of shared features, the best of a column in bold:\n"
    text += "\n" + _number_table(table, by_number)
    return text + _chosen(result)


def pieman_text(table: "pd.DataFrame") -> str:
    """Write the table of matched segments."""
    joint, held = _by_protocol(table)
    rows = [[str(m), _cell(joint.loc[m]), _cell(held.loc[m])] for m in joint.index]
    chance = percent(float(joint["chance"].dropna().iloc[0]))
    text = markdown(["method", "joint", "held-out"], rows)
    text += f"\n{_verdict(joint, held)} Guessing reaches {chance} %.\n"
    return text + _reasons(table)


def _by_protocol(table: "pd.DataFrame") -> "tuple[pd.DataFrame, pd.DataFrame]":
    joint, held = (table[table["protocol"] == p].set_index("method") for p in PROTOCOLS)
    return joint, held


def _cell(row: Any) -> str:
    """Write a mean, unless a fold is missing from it."""
    return "—" if row["n_failed"] else percent(row["mean"], row["std"])


def _p_value(row: Any) -> str:
    return "—" if row["n_failed"] else f"{row['p_value']:.3f}"


def _reasons(table: "pd.DataFrame") -> str:
    text = ""
    for (method, protocol), why in table.set_index(["method", "protocol"])[
        "error"
    ].items():
        text += f"\n{method}, {protocol}, is missing: {why}\n" if why else ""
    return text


def _verdict(joint: "pd.DataFrame", held: "pd.DataFrame") -> str:
    """Say plainly which method is best, and where GDM stands."""
    sentences = []
    for name, found in zip(PROTOCOLS, (joint, held), strict=True):
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
    return " ".join(sentences)


def _number_table(table: "pd.DataFrame", by_number: "pd.DataFrame") -> str:
    numbers = sorted(by_number["param_n_components"].unique())
    columns = {
        f"{protocol}, K = {k}": by_number[
            (by_number["protocol"] == protocol) & (by_number["param_n_components"] == k)
        ].set_index("method")
        for protocol in PROTOCOLS
        for k in numbers
    }
    methods = [
        m for m in dict.fromkeys(table["method"]) if m in set(by_number["method"])
    ]
    rows = []
    for method in methods:
        row = [str(method)]
        for found in columns.values():
            best = found.loc[found["n_failed"] == 0, "mean"].max()
            text = _cell(found.loc[method])
            row.append(f"**{text}**" if found.loc[method, "mean"] == best else text)
        rows.append(row)
    return markdown(["method", *columns], rows)


def _chosen(result: GridResult) -> str:
    """Tell what GDMCV chose, half by half (and fold by fold where it saw others)."""
    rows: dict[tuple[str, int], dict[str, int]] = {}
    for record in result.records:
        chosen = record.get("best_params")
        if chosen:
            counts = rows.setdefault((record["protocol"], record["half"]), {})
            text = f"energy {chosen['energy']}"
            counts[text] = counts.get(text, 0) + 1
    lines = []
    for protocol in PROTOCOLS:
        for (_, half), counts in sorted(
            kv for kv in rows.items() if kv[0][0] == protocol
        ):
            total = sum(counts.values())
            said = "; ".join(
                f"{text} ({n}/{total} folds)" for text, n in counts.items()
            )
            lines.append(f"- {protocol}, aligned with half {half + 1}: {said}\n")
    return "\nGDMCV chose:\n\n" + "".join(lines) if lines else ""


def draw_curves(
    folder: Path, table: "pd.DataFrame", energy: GridResult, missing: GridResult
) -> None:
    """Draw GDM against energy and against incompleteness, and write the numbers."""
    import pandas as pd

    by_energy, by_missing = energy.summary(), missing.summary()
    whole = table[table["method"] == "GDM"].assign(missing=0.0)
    _draw(folder, table, "energy", by_energy.assign(x=by_energy["param_energy"]))
    by_missing = pd.concat([whole, by_missing])
    _draw(folder, table, "incompleteness", by_missing.assign(x=by_missing["missing"]))


def _draw(
    folder: Path, table: "pd.DataFrame", what: str, found: "pd.DataFrame"
) -> None:
    from brainweave.plotting import CurvePanel, plot_curve_panels

    panels = []
    for protocol in PROTOCOLS:
        own = found[found["protocol"] == protocol].sort_values("x")
        whole = own["n_failed"] == 0  # no mean of the folds that happen to be left
        means = table[table["protocol"] == protocol].set_index("method")["mean"]
        others = [m for m in COMPETING if m in means]
        panels.append(
            CurvePanel(
                f"Raider images, {protocol}",
                (100 * own["x"]).tolist(),
                {"GDM": own["mean"].where(whole).tolist()},
                {"GDM": own["std"].where(whole).tolist()},
                {
                    "without alignment": float(means[WITHOUT]),
                    "best of others": float(means[others].max()),
                    "guess": float(table["chance"].iloc[0]),
                },
            )
        )
    columns = ["protocol", "x", "mean", "std", "n_folds", "n_failed", "error"]
    numbers = found[columns].rename(columns={"x": what})
    numbers = numbers.sort_values(["protocol", what], ascending=[False, True])
    write_text(folder / f"raider_{what}.csv", numbers.to_csv(index=False))
    drawn = plot_curve_panels(panels, xlabel=f"{what} (%)")
    save_figure(drawn, folder / f"raider_{what}.svg")
