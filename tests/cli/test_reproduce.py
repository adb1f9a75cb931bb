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
    ],
)
def test_wrong_experiments_are_explained(tmp_path, call, arguments, said):
    _, error = call("reproduce", *arguments, "-o", tmp_path / "r", code=2)
    assert said in error
