"""Films on the command line: from files with gaps to scores, models and a report."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

import brainweave as bw
from brainweave.study import Study, Subject

SEEN = [range(60), range(60), range(60), range(45), range(12, 60)]
METHODS = ("--method", "gdm,srm,none", "--n-components", 3)


def film(seen=SEEN, name="film@{:.2f}", step=2.0, n_voxels=20):
    """A film that people saw in part, with little noise."""
    rng = np.random.default_rng(0)
    story = rng.normal(size=(60, 3))
    subjects = []
    for i, rows in enumerate(seen):
        X = story[rows] @ rng.normal(size=(3, n_voxels))
        ids = [name.format(step * t) for t in rows]
        X += 0.3 * rng.normal(size=X.shape)
        subjects.append(Subject(f"0{i + 1}", X, stimuli=ids))
    return Study(subjects, "story")


@pytest.fixture(scope="module")
def gaps(tmp_path_factory):
    folder = tmp_path_factory.mktemp("film") / "study"
    film().save(folder)
    return folder


def test_films_are_matched_by_what_people_saw(gaps, tmp_path, call):
    out = tmp_path / "c"
    how = ("--protocol", "held-out", "--param", "window=5", "--param", "leave_out=3")
    shown, _ = call("compare", gaps, "-o", out, *METHODS, *how, "-q")
    found = bw.Comparison.load(out).results
    methods = {
        "gdm": bw.GDM(3, graph="time"),
        "srm": bw.SRM(3, random_state=0),
        "without alignment": bw.NoAlignment(),
    }
    want = bw.compare_methods(Study.open(gaps), methods, window=5, leave_out=3).results
    assert list(found) == list(want)
    for name in want:
        assert_allclose(found[name].scores, want[name].scores)
    assert found["gdm"].mean > 0.8
    # half of the film, and half of what all saw
    frame = bw.Comparison.load(out).to_frame().set_index("method")["aligned_on"]
    assert frame["gdm"] == np.mean([len(rows) / 2 for rows in SEEN])
    assert frame["srm"] == 33 / 2
    assert "aligned_on" in shown
    page = (out / "report.html").read_text()
    for text in ("Who saw what", "Between-subject matching", "All subjects saw 33 of"):
        assert text in page
    assert "classif" not in page


def test_how_many_samples_aligned_is_shown_only_where_methods_differ(gaps, tmp_path):
    methods = {"a": bw.NoAlignment(), "b": bw.NoAlignment()}
    found = bw.compare_methods(Study.open(gaps), methods, window=5)
    assert "aligned_on" not in str(found)
    assert "aligned_on" in found.to_frame()


@pytest.mark.parametrize(
    ("measure", "score"), [("isc", "isc"), ("reconstruction", "correlation")]
)
def test_measures_and_blocks_can_be_chosen(gaps, tmp_path, call, measure, score):
    out = tmp_path / "c"
    split = ("--halves", "time", "--param", "block=10", "--param", "border=1")
    method = ("--method", "detsrm", "--n-components", 3, "--protocol", "joint")
    call("compare", gaps, "-o", out, *method, *split, "--measure", measure, "-q")
    (result,) = bw.Comparison.load(out).results.values()
    assert result.score == score
    assert result.mean > 0.5
    assert {k: result.design[k] for k in ("halves", "block", "border")} == {
        "halves": "time",
        "block": 10,
        "border": 1,
    }
    page = (out / "report.html").read_text()
    assert "Every other block of 10 time steps aligned" in page
    assert "1 time steps after each change were left out" in page


def test_a_measure_refuses_what_it_does_not_have(gaps, tmp_path, call):
    words = ("compare", gaps, "-o", tmp_path / "c", "-q")
    _, said = call(*words, "--n-permutations", 9, code=2)
    assert "The measure 'matching' has no parameter 'n_permutations'" in said
    _, said = call(*words, "--measure", "classification", code=1)
    assert "with measure='matching'" in said


def test_a_film_is_fitted_by_time_and_rows_by_what_all_saw(gaps, tmp_path, call):
    data = Study.open(gaps)
    call("fit", gaps, "-o", tmp_path / "g.safetensors", "--n-components", 3, "-q")
    model, want = bw.load(tmp_path / "g.safetensors"), bw.GDM(3, graph="time")
    assert model.graph == "time"
    want.fit(data)
    for a, b in zip(model.maps_, want.maps_, strict=True):
        assert_allclose(a.weights, b.weights, rtol=0, atol=1e-10)
    how = ("--method", "detsrm", "--n-components", 3, "--param", "random_state=0")
    _, said = call("fit", gaps, "-o", tmp_path / "s.safetensors", *how)
    assert "aligns the 33 samples that all subjects have, of 60" in said
    assert bw.load(tmp_path / "s.safetensors").shared_response_.shape == (33, 3)
    half = tmp_path / "h.safetensors"
    call("fit", gaps, "-o", half, "--n-components", 3, "--halves", "time", "-q")
    shown, _ = call("transform", half, gaps, tmp_path / "new", "--only-new", "-q")
    assert "138 of 273 samples took part" in shown


def test_people_who_join_a_film_with_a_part_join_at_what_all_saw():
    # the last sample of a half of a film makes little difference
    fractions, data = (0.96, 1), film()
    curve = bw.learning_curve(bw.SRM(3, random_state=0), data, fractions=fractions)
    nearly, whole = curve.to_frame()["mean"]
    assert whole > 0.5
    assert_allclose(nearly, whole, atol=0.15)


@pytest.mark.parametrize(
    ("study", "said"),
    [
        (film([range(60)] * 3 + [[*range(59), 0]]), "more than once"),
        (film([range(60)] * 2, "{:.2f}"), ""),
        (film([range(30)] * 2 + [range(30, 60)]), "no stimulus id in common"),
    ],
    ids=["twice", "fine", "apart"],
)
def test_wrong_ids_get_one_sentence(study, said, tmp_path, call):
    study.save(tmp_path / "st")
    out = ("-o", tmp_path / "c", "--method", "gdm", "--n-components", 3, "-q")
    how = ("--param", "window=5", "--protocol", "joint", "--no-report")
    _, err = call("compare", tmp_path / "st", *out, *how, code=2 if said else 0)
    if said:
        assert said in err
        assert len(err.strip().splitlines()) == 1


def test_ids_in_other_units_get_one_sentence(tmp_path, call):
    mixed = [*film([range(60)] * 2), *film([range(60)] * 3, step=2000.0).subjects[2:]]
    Study(mixed).save(tmp_path / "st")
    _, err = call("compare", tmp_path / "st", "-o", tmp_path / "c", "-q", code=2)
    assert "advance by 2000" in err
    assert len(err.strip().splitlines()) == 1


@pytest.fixture(scope="module")
def tree(tmp_path_factory):
    """A BIDS dataset of a film without events, in which one of three missed parts."""
    folder = tmp_path_factory.mktemp("bids") / "ds"
    simulated = bw.simulate_study(
        n_subjects=3,
        design="movie",
        n_voxels=30,
        n_runs=2,
        repetitions=1,
        missing_parts=1,
    )
    simulated.to_bids(folder, task="film", events=False)
    return folder


def test_a_task_without_events_goes_through_the_bids_app(tree, tmp_path, call):
    out, given = tmp_path / "out", ("--task", "film", "--films", "runs")
    scrub = ("--bids-param", "scrub=0.5", "-q")
    call("run", tree, out, "participant", *given, *scrub)
    model = ("--n-components", 2, "--param", "place=none")
    call("run", tree, out, "group", *given, *model, *scrub)
    _, said = call("run", tree, out, "group", "--method", "srm", *scrub, code=2)
    assert "--method srm needs equal rows" in said
    (path,) = out.glob("*_model.safetensors")
    model = bw.load(path)
    assert model.graph == "time"
    data = bw.load_bids(tree, task="film", films="runs", scrub=0.5)
    assert len({s.n_samples for s in data}) == 2
    want = bw.GDM(2, graph="time", place=None).fit(data)
    for a, b in zip(model.maps_, want.maps_, strict=True):
        assert_allclose(np.abs(a.weights), np.abs(b.weights), rtol=1e-4, atol=1e-5)
    assert "Who saw what" in path.with_suffix(".html").read_text()


def test_films_from_a_table_are_checked_by_the_bids_app(tree, tmp_path, call):
    table = tmp_path / "films.tsv"
    table.write_text("run\tfilm\tonset\tstart\n1\tPieman\t5\t0\n2\tPieman\t0\t900\n")
    out, given = tmp_path / "out", ("--films", table, "--participant-label", "01")
    call("run", tree, out, "participant", *given, "-q")
    (basis,) = out.rglob("*_basis.safetensors")
    made = basis.stat().st_mtime_ns
    call("run", tree, out, "participant", *given, "-q")
    assert basis.stat().st_mtime_ns == made
    ids = bw.load(basis).stimuli
    assert {str(id).split("@")[0] for id in ids if id} == {"Pieman"}
    table.write_text("run\tfilm\n1\tPieman\n2\tSherlock\n")  # it is an input
    call("run", tree, out, "participant", *given, "-q")
    ids = bw.load(basis).stimuli
    assert {str(id).split("@")[0] for id in ids if id} == {"Pieman", "Sherlock"}
