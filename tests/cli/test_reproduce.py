"""reproduce, end to end, on small shapes."""

import csv
import tomllib

import pytest

pytest.importorskip("brainweave.paper")

QUICK = ("--quick", "-q")


def test_a_table_of_the_paper(tmp_path, execute):
    out = tmp_path / "results"
    methods = ("--method", "GDM", "--method", "SRM", "--dataset", "DS105ROI")
    done = execute("reproduce", "table2", "-o", out, *methods, *QUICK)
    with (out / "table2.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert {row["method"] for row in rows} == {"GDM", "SRM"}
    assert {row["dataset"] for row in rows} == {"DS105ROI"}
    assert str(out / "table2.csv") in done.stdout
    assert (out / "table2.md").is_file()
    kept = tomllib.loads((out / "table2.toml").read_text())["reproduce"]
    assert kept["what"] == "table2"
    assert kept["quick"] is True


def test_a_figure_of_the_paper_goes_on_where_it_stopped(tmp_path, call):
    out = tmp_path / "results"
    call("reproduce", "figure1", "-o", out, "--dataset", "DS001", *QUICK)
    first = (out / "figure1.csv").read_text()
    assert (out / "figure1.svg").read_text().lstrip().startswith("<")
    cells = {p: p.stat().st_mtime_ns for p in (out / "store").rglob("*.json")}
    assert cells
    call("reproduce", "figure1", "-o", out, "--dataset", "DS001", *QUICK)
    assert (out / "figure1.csv").read_text() == first
    for path, when in cells.items():
        assert path.stat().st_mtime_ns == when


def test_a_folder_of_studies_takes_the_place_of_simulated_ones(tmp_path, call):
    from brainweave import simulate_study

    study = simulate_study(n_subjects=8, n_voxels=40, categories=4, n_runs=4)
    study.save(tmp_path / "data" / "DS001")
    shown, _ = call(
        *("reproduce", "table2", "--data", tmp_path / "data", "--dataset", "DS001"),
        *("--method", "nu-SVM", "-o", tmp_path / "out", "-q"),
    )
    assert "real" in shown


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("table9",), "There is no 'table9'"),
        (("table2", "--repeats", "3"), "--repeats is no option of reproduce table2"),
        (("figure1", "--method", "GDM"), "--method is no option of reproduce figure1"),
        (("figure1", "--protocol", "both"), "must be joint or held-out for a figure"),
        (("raider",), "needs --data FOLDER"),
        (("raider", "--quick"), "--quick is no option of reproduce raider"),
        (("table2", "--data", "DS001"), "takes DATASET=STUDY_FOLDER"),
        (("table2", "--data", "DS001=/none"), "There is no folder '/none'"),
        (("table2", "--dataset", "DS000"), "DS000"),
        (("table2", "--data", "."), "has no folder with the name of a dataset"),
        (("pieman", "--data", ".", "--repeats", "2"), "--repeats is no option"),
        (("raider", "--data", "none"), "There is no folder 'none'. Check --data"),
        (("raider", "--protocol", "both"), "--protocol is no option"),
        (("table2", "--protocol", "cheat"), "joint or held-out, or both; got 'cheat'"),
        (("table2", "--all-splits"), "--all-splits is no option"),
        (("raider", "--all-splits", "--repeats", "2"), "of reproduce raider --all-sp"),
        (("overlap", "--dataset", "DS001"), "--dataset is no option"),
    ],
)
def test_wrong_experiments_are_explained(tmp_path, call, arguments, said):
    _, error = call("reproduce", *arguments, "-o", tmp_path / "r", code=2)
    assert said in error


@pytest.mark.parametrize(
    ("words", "function", "want"),
    [
        (("overlap", "--quick"), "overlap", {"quick": True, "data": None}),
        (("overlap", "--data", "{}"), "overlap", {"data": "{}"}),
        (
            ("table2", "--protocol", "both", "--n-permutations", "9", "--n-jobs", "1"),
            "table2",
            {"protocols": ("held-out", "joint"), "n_permutations": 9, "n_jobs": 1},
        ),
        (
            ("UNALIGNED", "--protocol", "held-out", "--method", "GDM"),
            "unaligned",
            {"protocols": ("held-out",), "methods": ["GDM"]},
        ),
        (
            ("figures3", "--protocol", "held-out", "--dataset", "DS001"),
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
    import functools

    import pandas as pd

    from brainweave import paper

    asked = {}

    @functools.wraps(getattr(paper, function))
    def experiment(*places, progress, **options):
        progress(1, 1, "done")
        asked.update(options, places=places)
        return pd.DataFrame({"method": ["GDM"], "mean": [0.5], "hidden": [1]})

    monkeypatch.setattr(paper, function, experiment)
    filled = [word.format(tmp_path) for word in words]
    out, _ = call("reproduce", *filled, "-o", tmp_path / "r", "-q")
    assert "GDM" in out
    assert "hidden" not in out
    for name, value in want.items():
        text = isinstance(value, str) and value.format(tmp_path)
        assert (str(asked[name]) if text else asked[name]) == (text or value)
    real = function.startswith("raider")
    assert asked["places"] == ((tmp_path,) if real else ()) + (tmp_path / "r",)
    assert (tmp_path / "r" / f"{function}.toml").is_file()
