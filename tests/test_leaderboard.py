"""The leaderboard: cells, resuming, paired differences and the page."""

import importlib.util
import json
import sys
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def board():
    path = ROOT / "benchmarks" / "leaderboard.py"
    spec = importlib.util.spec_from_file_location("leaderboard", path)
    module = importlib.util.module_from_spec(spec)
    sys.modules["leaderboard"] = module
    spec.loader.exec_module(module)
    return module


def made_up(bed, method, joint, held_out):
    row = {"seconds": 1.0, "megabytes": 2.0}
    scores = zip(("joint", "held-out"), (joint, held_out), strict=True)
    both = {p: {**row, "scores": s} for p, s in scores}
    return {"bed": bed, "method": method, "chance": 0.1, **both}


@pytest.fixture
def cells():
    failed = made_up("pieman", "odd", None, None)
    failed["joint"]["error"] = failed["held-out"]["error"] = "ValueError: no"
    return [
        made_up("pieman", "GDM", [0.5, 0.7], [0.4, 0.6]),
        made_up("pieman", "SRM", [0.6, 0.6], [0.5, 0.5]),
        made_up("raider", "GDM", [0.5, 0.7], [0.6, 0.8]),
        made_up("raider", "SRM", [0.4, 0.6], [0.4, 0.7]),
        failed,
    ]


def test_differences_are_paired_and_errors_are_kept(board, cells):
    table = board.to_frame(cells).set_index(["bed", "method", "protocol"])
    srm = table.loc[("raider", "SRM", "held-out")]
    over = np.array([-0.2, -0.1])
    assert srm["over_gdm"] == pytest.approx(over.mean())
    assert srm["over_gdm_se"] == pytest.approx(over.std(ddof=1) / np.sqrt(2))
    assert srm["mean"] == pytest.approx(0.55)
    assert table.loc[("pieman", "odd", "joint"), "error"] == "ValueError: no"
    assert np.isnan(table.loc[("pieman", "odd", "joint"), "mean"])


def test_the_page_says_where_gdm_is_not_first(board, cells):
    cells[1]["joint"]["scores"] = [0.7, 0.7]
    table = board.to_frame(cells)
    text = board._first(table)
    assert "Pieman, joint: GDM is number 2 of 2; SRM is first, by 10.0 ± 10.0." in text
    assert "by 10.0 ± 10.0. GDM is within a standard error.\n" in text
    assert "Raider, images, held-out: GDM is first of 2." in text
    cells[1]["method"] = "GDM, K given"
    cells.append(made_up("pieman", "SRM", [0.4, 0.5], [0.4, 0.6]))
    text = board._first(board.to_frame(cells))
    first = "number 2 of 3; GDM, K given is first, by 10.0 ± 10.0."
    others = "GDM is within a standard error. Best of the others: SRM, -15.0 ± 5.0."
    assert f"Pieman, joint: GDM is {first} {others}" in text
    whole = board._scores(table[table["protocol"] == "held-out"])
    assert "| SRM |" in whole
    assert "55.0 (-15.0 ± 5.0)" in whole
    assert "–" in whole


def test_figures_are_drawn(board, cells, tmp_path):
    board.figures(board.to_frame(cells), tmp_path, {"dark": board.SHADES["dark"]})
    kinds = ("ranks", "time", "benchmarks")
    names = {f"leaderboard_{kind}_dark.svg" for kind in kinds}
    assert {p.name for p in tmp_path.glob("*.svg")} == names


def test_a_finished_cell_is_not_run_again(board, tmp_path, monkeypatch):
    asked = []

    def in_a_child(file, bed, method, *more):
        asked.append(method)
        if method == "slow":  # the kernel ended it
            return int(board.SIGXCPU)
        file.write_text(json.dumps(made_up(bed, method, [1.0], [1.0])), "utf-8")
        return 0

    monkeypatch.setattr(board, "_in_a_child", in_a_child)
    how = {"quick": True, "limit": 5}
    for _ in range(2):
        found = list(board.run(tmp_path, ROOT, ["overlap"], ["GDM", "slow"], **how))
    assert len(asked) == 2
    assert found[1]["joint"]["error"] == "more than 5 processor seconds"
    how["finished"] = True
    found = list(board.run(tmp_path, ROOT, ["overlap"], ["GDM", "SRM"], **how))
    assert [cell["method"] for cell in found] == ["GDM"]
    assert len(asked) == 2


@pytest.mark.parametrize("bed", ["unaligned", "overlap", "brains"])
def test_a_cell_scores_a_method_under_both_protocols(board, bed):
    found = board.cell(bed, "SRM", ROOT, True, 0)
    for protocol in board.BEDS[bed].protocols:
        assert found[protocol]["scores"][0] > found["chance"]


def test_the_page_has_a_place_for_every_part(board):
    text = (ROOT / "docs" / "leaderboard.md").read_text("utf-8")
    for part in ("made", "first", "held-out", "joint", "cost"):
        assert f"<!-- {part} -->" in text
    for bed in board.BEDS.values():
        assert bed.title.split(",")[0] in text
