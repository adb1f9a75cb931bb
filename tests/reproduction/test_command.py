"""The command of the experiments, end to end, on small shapes."""

import csv
import functools

import pandas as pd
import pytest

import reproduction
from reproduction.__main__ import main

QUICK = ("--quick", "-q")


@pytest.fixture
def call(capsys):
    """Run the command in this process; check its status, return what it printed."""

    def run(*words, code=0):
        try:
            status = main([str(word) for word in words])
        except SystemExit as left:
            status = left.code
        printed = capsys.readouterr()
        assert status == code, printed.err
        return printed

    return run


def test_a_table_of_the_paper(tmp_path, call):
    out = tmp_path / "results"
    methods = ("--method", "GDM", "--method", "SRM", "--dataset", "DS105ROI")
    done = call("table2", "-o", out, *methods, *QUICK)
    with (out / "table2.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert {row["method"] for row in rows} == {"GDM", "SRM"}
    assert {row["dataset"] for row in rows} == {"DS105ROI"}
    assert str(out / "table2.csv") in done.out
    assert (out / "table2.md").is_file()


def test_a_figure_of_the_paper_goes_on_where_it_stopped(tmp_path, call):
    out = tmp_path / "results"
    call("figure1", "-o", out, "--dataset", "DS001", *QUICK)
    first = (out / "figure1.csv").read_text()
    assert (out / "figure1.svg").read_text().lstrip().startswith("<")
    cells = {p: p.stat().st_mtime_ns for p in (out / "store").rglob("*.json")}
    assert cells
    call("figure1", "-o", out, "--dataset", "DS001", *QUICK)
    assert (out / "figure1.csv").read_text() == first
    for path, when in cells.items():
        assert path.stat().st_mtime_ns == when


def test_a_folder_of_studies_takes_the_place_of_simulated_ones(tmp_path, call):
    from brainweave import simulate_study

    study = simulate_study(n_subjects=8, n_voxels=40, categories=4, n_runs=4)
    study.save(tmp_path / "data" / "DS001")
    shown = call(
        *("table2", "--data", tmp_path / "data", "--dataset", "DS001"),
        *("--method", "nu-SVM", "-o", tmp_path / "out", "-q"),
    ).out
    assert "real" in shown


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("table9",), "invalid choice: 'table9'"),
        (("table2", "--repeats", "3"), "unrecognized arguments: --repeats 3"),
        (("figure1", "--method", "GDM"), "unrecognized arguments: --method GDM"),
        (("figure1", "--protocol", "both"), "invalid choice: 'both'"),
        (("raider",), "arguments are required: --data"),
        (("table2", "--data", "DS001"), "Give such a folder, or DATASET=STUDY_FOLDER"),
        (("table2", "--data", "DS001=/none"), "'/none'"),
        (("table2", "--dataset", "DS000"), "DS000"),
        (("table2", "--data", "."), "has no folder with the name of a dataset"),
        (("raider", "--data", "none"), "'none' has no image_data_lh.mat"),
        (("table2", "--protocol", "cheat"), "invalid choice: 'cheat'"),
        (
            ("raider", "--data", ".", "--all-splits", "--repeats", "2"),
            "--repeats is no option of --all-splits",
        ),
    ],
)
def test_wrong_experiments_are_explained(tmp_path, call, arguments, said):
    assert said in call(*arguments, "-o", tmp_path / "r", code=2).err


def test_interrupting_ends_in_a_sentence(tmp_path, call, monkeypatch):
    def stop(**options):
        raise KeyboardInterrupt

    monkeypatch.setattr(reproduction, "overlap", stop)
    assert "continues after the finished folds" in call("overlap", code=130).out


@pytest.mark.parametrize(
    ("words", "function", "want"),
    [
        (("overlap", "--quick"), "overlap", {"quick": True}),
        (("overlap", "--data", "{}"), "overlap", {"data": "{}"}),
        (
            ("table2", "--protocol", "both", "--n-permutations", "9", "--n-jobs", "1"),
            "table2",
            {"protocols": ("joint", "held-out"), "n_permutations": 9, "n_jobs": 1},
        ),
        (
            ("unaligned", "--protocol", "held-out", "--method", "GDM"),
            "unaligned",
            {"protocols": ("held-out",), "methods": ["GDM"]},
        ),
        (
            ("figureS3", "--protocol", "held-out", "--dataset", "DS001"),
            "figureS3",
            {"protocol": "held-out", "panels": ["DS001"]},
        ),
        (
            ("raider", "--data", "{}", "--n-permutations", "0", "--repeats", "2"),
            "raider",
            {"n_permutations": 0, "repeats": 2},
        ),
        (("raider", "--all-splits", "--data", "{}"), "raider_all_splits", {}),
    ],
)
def test_options_reach_the_experiment(
    tmp_path, call, monkeypatch, words, function, want
):
    asked = {}

    @functools.wraps(getattr(reproduction, function))
    def experiment(**options):
        asked.update(options)
        return pd.DataFrame({"method": ["GDM"], "mean": [0.5], "hidden": [1]})

    monkeypatch.setattr(reproduction, function, experiment)
    filled = [word.format(tmp_path) for word in words]
    out = call(*filled, "-o", tmp_path / "r", "-q").out
    assert "GDM" in out
    assert "hidden" not in out
    for name, value in want.items():
        text = isinstance(value, str) and value.format(tmp_path)
        assert (str(asked[name]) if text else asked[name]) == (text or value)
    assert asked["out"] == tmp_path / "r"
    assert asked["progress"] is None
