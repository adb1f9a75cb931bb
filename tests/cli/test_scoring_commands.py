"""compare, a search, report and demo, end to end."""

import csv
import json
import tomllib

import nibabel as nib
import numpy as np
import pytest
from numpy.testing import assert_allclose

import brainweave as bw
from brainweave.evaluation.splits import match_study
from evaluation_studies import unrelated_study


def test_evaluate_gives_the_scores_of_the_library(study, tmp_path, call):
    out = tmp_path / "ev"
    shown, _ = call(
        *("compare", study, "-o", out, "--method", "paper-gdm"),
        *("--n-components", 2, "--param", "energy=0.6"),
        *("--n-permutations", 3, "-q"),
    )
    results = bw.Comparison.load(out / "results.json").results
    # both protocols unless told otherwise, the one that favours nobody first
    assert list(results) == ["paper-gdm (held-out)", "paper-gdm (joint)"]
    data = bw.Study.open(study)
    for name, protocol in zip(results, ("held-out", "joint"), strict=True):
        want = bw.between_subject_classification(
            bw.PaperGDM(2, energy=0.6),
            data,
            protocol=protocol,
            n_permutations=3,
            random_state=0,
        )
        assert_allclose(results[name].scores, want.scores)
        assert results[name].p_value == want.p_value
        assert results[name].confusion.tolist() == want.confusion.tolist()
        assert f"{want.mean:.3f}" in shown
    with (out / "folds.tsv").open() as file:
        rows = list(csv.DictReader(file, delimiter="\t"))
    assert len(rows) == 16
    assert {r["method"] for r in rows} == set(results)
    ours = "nu-SVM, overlapping pairs by their means"
    assert {r["classifier"] for r in rows} == {ours}
    assert f"classifier: {ours}" in shown
    assert "chance: the most frequent category" in shown
    assert "p: permuted labels, at least 0.25" in shown
    assert results["paper-gdm (joint)"].smallest_p == 0.25
    assert (out / "report.html").read_text().startswith("<!doctype html>")
    kept = tomllib.loads((out / "compare.toml").read_text())["compare"]
    assert kept["protocol"] == "both"
    assert kept["param"] == ["energy=0.6"]


def test_compare_scores_methods_and_keeps_those_that_are_done(study, tmp_path, call):
    out = tmp_path / "cmp"
    options = ("--match", "truncate", "--n-components", 2, "--no-report", "-o", out)
    options = (*options, "--protocol", "joint")
    call("compare", study, "--method", "gdm", *options, "-q")
    cells = {p: p.stat().st_mtime_ns for p in (out / "store" / "cells").iterdir()}
    assert len(cells) == 8  # halves and subjects
    call("compare", study, "--method", "gdm, hyperalignment", *options, "-q")
    assert all(p.stat().st_mtime_ns == when for p, when in cells.items())
    lines = (out / "comparison.tsv").read_text().splitlines()
    assert lines[0].split("\t")[:3] == ["method", "protocol", "mean"]
    assert [line.split("\t")[0] for line in lines[1:]] == ["gdm", "hyperalignment"]
    results = bw.Comparison.load(out / "results.json").results
    data = match_study(bw.Study.open(study), "truncate")
    want = bw.between_subject_classification(
        bw.GDM(2), data, protocol="joint", random_state=0
    )
    assert_allclose(results["gdm"].scores, want.scores)
    assert results["gdm"].categories == want.categories
    assert results["gdm"].settings["n_components"] == 2
    assert results["gdm"].n_components == [2]
    assert results["gdm"].study_fingerprint == bw.Study.open(study).fingerprint()
    assert not (out / "report.html").exists()
    # other settings: done again
    before = (out / "comparison.tsv").read_text()
    call("compare", study, "--method", "paper-gdm", *options, "--param", "energy=0.3")
    assert len(list((out / "store" / "cells").iterdir())) == 3 * len(cells)
    assert (out / "comparison.tsv").read_text() != before


def test_compare_reads_each_subject_once_per_half(study, tmp_path, call, monkeypatch):
    from brainweave.basis.voxels import VoxelPass

    reads, read = [], VoxelPass._read_voxels

    def counted(self, **options):
        reads.append(self.name)
        return read(self, **options)

    monkeypatch.setattr(VoxelPass, "_read_voxels", counted)
    methods = ("--method", "gdm", "--method", "srm", "--method", "detsrm")
    call(
        *("compare", study, *methods, "--match", "truncate"),
        *("--n-components", 2, "--no-report", "-o", tmp_path / "c", "-q"),
    )
    assert len(reads) == 4 * 2
    assert len(bw.Comparison.load(tmp_path / "c" / "results.json").results) == 6


def test_a_method_that_fails_is_a_row_and_the_others_are_kept(study, tmp_path, call):
    out = tmp_path / "c"
    options = ("--n-components", 2, "-o", out, "-q", "--protocol", "joint")
    # subjects with voxels and orders of their own: SRM cannot join their rows
    shown, _ = call("compare", study, "--method", "gdm", "--method", "srm", *options)
    assert "SRM joins samples by their row" in shown
    assert "srm was not scored: InputError: SRM joins samples by their row" in (
        (out / "report.html").read_text()
    )
    assert list(bw.Comparison.load(out / "results.json").results) == ["gdm"]
    with (out / "comparison.tsv").open() as file:
        rows = list(csv.DictReader(file, delimiter="\t"))
    assert [bool(row["error"]) for row in rows] == [False, True]
    loud = [option for option in options if option != "-q"]
    _, said = call("compare", study, "--method", "srm", *loud, code=1)
    assert "None of the methods could be scored" in said
    assert "Results are in" not in said
    assert f"Results are in {out}" in call("compare", study, *loud)[1]


def test_a_damaged_cell_of_a_comparison_is_computed_again(study, tmp_path, call):
    out = tmp_path / "c"
    options = ("--n-components", 2, "--no-report", "-o", out, "-q")
    options = (*options, "--protocol", "joint")
    call("compare", study, "--method", "gdm", *options)
    first = (out / "results.json").read_text()
    cells = sorted((out / "store" / "cells").iterdir())
    cells[0].write_text(cells[0].read_text()[:-40])
    cells[1].write_text(cells[1].read_text().replace('"score": ', '"score": 1'))
    _, said = call("compare", study, "--method", "gdm", *options)
    assert said.count("is damaged") == 2
    again = json.loads((out / "results.json").read_text())
    assert (
        again["results"]["gdm"]["scores"]
        == (json.loads(first)["results"]["gdm"]["scores"])
    )


@pytest.mark.filterwarnings("ignore:No evidence of a shared space")  # a small study
def test_a_search_writes_the_best_model_and_its_settings(study, tmp_path, call):
    out, again = tmp_path / "m.safetensors", tmp_path / "again.safetensors"
    how = ("--method", "gdmcv", "--param", "energies=[0.3, 0.8]")
    said, _ = call("fit", study, "-o", out, *how, "--param", "protocol=held-out", "-q")
    search = bw.GDMCV(energies=[0.3, 0.8], n_components=["auto"], protocol="held-out")
    search.fit(bw.Study.open(study))
    assert f"accuracy {search.best_score_:.3f}" in said
    model = bw.load(out)
    assert model.energy == search.best_params_["energy"]
    call("fit", "--config", out.with_suffix(".toml"), "-o", again, "-q")
    for a, b in zip(bw.load(again).maps_, model.maps_, strict=True):
        assert_allclose(a.weights, b.weights, rtol=0, atol=1e-10)


def test_report_joins_study_model_and_results(study, model, tmp_path, call):
    call(
        *("compare", study, "-o", tmp_path / "ev", "--n-components", 2),
        *("--no-report", "-q"),
    )
    page = tmp_path / "r.html"
    call(
        *("report", page, "--study", study, "--model", model, "-q"),
        *("--results", tmp_path / "ev" / "results.json"),
    )
    text = page.read_text()
    assert "<script src" not in text
    assert (tmp_path / "r.toml").is_file()


# -- what is known of fewer things -----------------------------------------------------


@pytest.mark.parametrize("how", ["intersect", "truncate"])
def test_matching_needs_what_it_matches_by(tmp_path, call, how):
    rng = np.random.default_rng(0)
    subjects = [bw.Subject(f"0{i}", rng.normal(size=(6, 4))) for i in range(2)]
    bw.Study(subjects).save(tmp_path / "st")
    _, said = call(
        *("compare", tmp_path / "st", "-o", tmp_path / "e", "--match", how, "-q"),
        code=2,
    )
    assert f"match={how!r} needs the categories of all aligning samples" in said
    assert "On the command line: --match." in said


def test_voxels_without_a_common_brain_are_left_to_the_method(tmp_path, call):
    """Masks on other grids: no alignment says itself why it cannot go on."""
    from brainweave.study.spaces import VolumeSpace

    rng = np.random.default_rng(0)
    subjects = []
    for i, shape in enumerate([(2, 2, 2), (2, 2, 3), (2, 2, 2)]):
        space = VolumeSpace(nib.Nifti1Image(np.ones(shape, np.uint8), np.eye(4)))
        X = rng.normal(size=(18, int(np.prod(shape))))
        subjects.append(bw.Subject(f"0{i}", X, labels=list("abc") * 6, space=space))
    bw.Study(subjects).save(tmp_path / "st")
    out = tmp_path / "c"
    shown, said = call(
        *("compare", tmp_path / "st", "-o", out, "--method", "gdm,none", "--no-report"),
        *("--n-components", 2, "-q"),
    )
    assert "The masks differ" not in said
    assert "n/a" in shown


def test_equal_masks_need_no_cut(tmp_path, call):
    from brainweave.study.spaces import VolumeSpace

    rng = np.random.default_rng(0)
    space = VolumeSpace(nib.Nifti1Image(np.ones((2, 2, 2), np.uint8), np.eye(4)))
    subjects = [
        bw.Subject(
            f"0{i}", rng.normal(size=(18, 8)), labels=list("abc") * 6, space=space
        )
        for i in range(3)
    ]
    bw.Study(subjects).save(tmp_path / "st")
    options = ("--method", "none", "--no-report", "-q")
    _, said = call("compare", tmp_path / "st", "-o", tmp_path / "e", *options)
    assert said == ""


def test_warnings_of_folds_are_said_once_per_method(study, tmp_path, call):
    options = ("--method", "paper-gdm", "--n-components", 6, "--param", "energy=0.9")
    options += ("--no-report",)
    _, said = call("compare", study, "-o", tmp_path / "c", *options)
    lines = [line for line in said.splitlines() if line.startswith("Warning: paper")]
    assert len(lines) == 1
    assert " fits)" in lines[0]


def test_a_results_file_that_is_not_there_is_named(tmp_path, call):
    _, said = call(
        "report", tmp_path / "r.html", "--results", tmp_path / "no.json", code=2
    )
    assert "There is no file" in said


# -- info and report -------------------------------------------------------------------


def test_info_of_a_model_from_python_leaves_out_what_nobody_said(study, tmp_path, call):
    path = tmp_path / "m.safetensors"
    bw.save(
        bw.GDM(2).fit(
            [s.data() for s in bw.Study.open(study)],
            [s.labels for s in bw.Study.open(study)],
        ),
        path,
    )
    shown, _ = call("info", path)
    assert "subjects: without ids" in shown
    assert "made by" not in shown
    call("fit", study, "-o", path, "--n-components", 2, "-q")
    shown, _ = call("info", path)
    assert shown.count("subjects: 01, 02, 03, 04") == 1
    assert "made by: brainweave fit" in shown


def test_a_report_needs_the_subjects_of_the_model(study, model, tmp_path, call):
    people = bw.Study.open(study)
    people.subset(subjects=people.ids[:3]).save(tmp_path / "three")
    parts = ("--study", tmp_path / "three", "--model", model)
    _, said = call("report", tmp_path / "r.html", *parts, code=1)
    assert "no subject '04'" in said


def test_the_classifier_of_the_paper_can_be_chosen(study, tmp_path, call):
    out = tmp_path / "plain"
    options = ("--n-components", 2, "--protocol", "held-out", "--no-report", "-q")
    chosen = ("--method", "gdm", "--param", "classifier=nu-svm")
    said, _ = call("compare", study, "-o", out, *chosen, *options)
    (result,) = bw.Comparison.load(out / "results.json").results.values()
    assert result.classifier == "nu-SVM of LIBSVM"
    assert "classifier: nu-SVM of LIBSVM" in said
    want = bw.between_subject_classification(
        bw.GDM(2), bw.Study.open(study), classifier="nu-svm", random_state=0
    )
    assert_allclose(result.scores, want.scores)
    assert {fold["n_by_means"] for fold in result.folds} == {None}


def test_an_unknown_classifier_is_refused_in_one_sentence(study, tmp_path, call):
    _, said = call(
        *("compare", study, "-o", tmp_path / "no", "--param", "classifier=svm", "-q"),
        code=2,
    )
    assert "must be one of 'nu-svm-means', 'nu-svm'; got 'svm'" in said


def test_a_setting_that_no_method_has_is_refused(study, tmp_path, call):
    words = ("compare", study, "-o", tmp_path / "c", "--method", "srm,detsrm")
    _, said = call(*words, "--graph", "time", code=2)
    assert "None of these methods has a parameter 'graph'" in said


def test_noise_that_was_aligned_cannot_be_scored_as_a_success(rng, tmp_path, call):
    """Noise that is fitted, transformed and then scored reaches 99 %."""
    unrelated_study(rng, runs=[1] * 28).save(tmp_path / "noise")
    model = tmp_path / "m.safetensors"
    call("fit", tmp_path / "noise", "-o", model, "--n-components", 5, "-q")
    out, _ = call("transform", model, tmp_path / "noise", tmp_path / "shared", "-q")
    assert "112 of 112 samples took part in the alignment" in out
    results = tmp_path / "results"
    words = ("compare", tmp_path / "shared", "-o", results, "-q")
    _, said = call(*words, code=2)
    assert "took part" in said or "aligned" in said
    assert not (results / "results.json").exists()
