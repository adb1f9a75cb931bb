"""evaluate, compare, tune, report and demo, end to end."""

import csv
import json
import tomllib

import pytest
from numpy.testing import assert_allclose

import brainweave as bw
from brainweave.cli.methods import matched
from brainweave.cli.results import read_results


def test_evaluate_gives_the_scores_of_the_library(study, tmp_path, execute):
    out = tmp_path / "ev"
    done = execute(
        *("evaluate", study, "-o", out, "--n-components", 2, "--energy", 0.6),
        *("--protocol", "both", "--n-permutations", 3, "-q"),
    )
    results = read_results(out / "results.json")
    assert list(results) == ["gdm (joint)", "gdm (held-out)"]
    data = bw.Study.open(study)
    for name, protocol in zip(results, ("joint", "held-out"), strict=True):
        want = bw.between_subject_classification(
            bw.GDM(2, energy=0.6),
            data,
            protocol=protocol,
            n_permutations=3,
            random_state=0,
        )
        assert_allclose(results[name].scores, want.scores)
        assert results[name].p_value == want.p_value
        assert results[name].confusion.tolist() == want.confusion.tolist()
        assert f"{want.mean:.3f}" in done.stdout
    with (out / "folds.tsv").open() as file:
        rows = list(csv.DictReader(file, delimiter="\t"))
    assert len(rows) == 16
    assert {r["method"] for r in rows} == set(results)
    assert (out / "report.html").read_text().startswith("<!doctype html>")
    kept = tomllib.loads((out / "evaluate.toml").read_text())["evaluate"]
    assert kept["protocol"] == "both"
    assert kept["energy"] == 0.6


def test_compare_scores_methods_and_keeps_those_that_are_done(
    study, tmp_path, execute, call
):
    out = tmp_path / "cmp"
    options = ("--match", "truncate", "--n-components", 2, "--no-report", "-o", out)
    execute("compare", study, "--method", "gdm", *options, "-q")
    cell = out / "cells" / "gdm_joint.json"
    known = json.loads(cell.read_text())
    known["results"]["result"]["seconds"]["total"] = 12345.0  # to be recognised by
    cell.write_text(json.dumps(known))
    methods = ("--method", "gdm", "--method", "hyperalignment")
    shown, _ = call("compare", study, *methods, *options, "-q")
    assert "12345.0" in shown
    lines = (out / "comparison.tsv").read_text().splitlines()
    assert lines[0].split("\t")[:3] == ["method", "protocol", "mean"]
    assert [line.split("\t")[0] for line in lines[1:]] == ["gdm", "hyperalignment"]
    results = read_results(out / "results.json")
    data = matched(bw.Study.open(study), "truncate")
    want = bw.between_subject_classification(bw.GDM(2), data, random_state=0)
    assert_allclose(results["gdm"].scores, want.scores)
    assert not (out / "report.html").exists()
    shown, _ = call("compare", study, "--method", "gdm", *options, "--energy", 0.3)
    assert "12345.0" not in shown  # other settings: done again


def test_tune_writes_the_best_model_and_its_settings(study, tmp_path, execute, call):
    out = tmp_path / "tu"
    done = execute("tune", study, "--energies", "0.3,0.8", "-o", out, "-q")
    search = bw.GDMCV(energies=[0.3, 0.8], n_components=["auto"])
    search.fit(bw.Study.open(study))
    assert f"accuracy {search.best_score_:.3f}" in done.stdout
    model = bw.load(out / "model.safetensors")
    assert model.energy == search.best_params_["energy"]
    with (out / "settings.tsv").open() as file:
        rows = list(csv.DictReader(file, delimiter="\t"))
    assert [float(r["mean"]) for r in rows] == search.cv_results_["mean_test_score"]
    again = tmp_path / "m.safetensors"
    call("fit", "--config", out / "best.toml", "-o", again, "-q")
    for a, b in zip(bw.load(again).maps_, model.maps_, strict=True):
        assert_allclose(a.weights, b.weights, rtol=0, atol=1e-10)


def test_report_joins_study_model_and_results(study, model, tmp_path, execute, call):
    call(
        *("evaluate", study, "-o", tmp_path / "ev", "--n-components", 2),
        *("--no-report", "-q"),
    )
    page = tmp_path / "r.html"
    execute(
        *("report", page, "--study", study, "--model", model, "-q"),
        *("--results", tmp_path / "ev" / "results.json", "--title", "A <b> title"),
    )
    text = page.read_text()
    assert "A &lt;b&gt; title" in text
    assert "<script src" not in text
    assert (tmp_path / "r.toml").is_file()


@pytest.mark.slow
def test_demo_goes_the_whole_way(study, tmp_path, execute):
    done = execute("demo", tmp_path / "d", "--study", study, "-q")
    assert done.stdout.splitlines()[-1] == f"Report: {tmp_path / 'd' / 'report.html'}"
    made = {p.name for p in (tmp_path / "d").iterdir()}
    assert made == {
        "report.html",
        "results.json",
        "folds.tsv",
        "model.safetensors",
        "demo.toml",
    }
    results = read_results(tmp_path / "d" / "results.json")
    assert set(results) == {"GDM", "GDM, subject held out", "no alignment"}
    assert results["GDM"].mean > results["no alignment"].mean
