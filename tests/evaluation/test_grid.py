import os
import subprocess
import sys
import time
import warnings
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import scipy.sparse
from numpy.testing import assert_allclose
from sklearn.base import BaseEstimator
from sklearn.svm import NuSVC

from brainweave import (
    GDM,
    SRM,
    NoAlignment,
    PaperGDM,
    Study,
    Subject,
    between_subject_classification,
    split_study,
)
from brainweave._core.exceptions import InputError
from brainweave.evaluation.grid import (
    Grid,
    GridStudy,
    ResultStore,
    run_grid,
)
from brainweave.evaluation.measures import Classification, Matching
from brainweave.graphs.builders import label_graph
from evaluation_studies import score_matching, unrelated_study
from small_grid import TracedGDM, frame_of, small_data, small_grid

SCRIPT = Path(__file__).parents[1] / "small_grid.py"
# what differs between two runs of the same cells
INCIDENTAL = ["seconds", "finished"]


def small_split():
    return split_study(*small_data())


def table(result):
    return frame_of(result).drop(columns=INCIDENTAL)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """The table of a run that nothing disturbed."""
    return table(run_grid(small_grid(), tmp_path_factory.mktemp("whole"), n_jobs=1))


def start(store, log, seconds):
    path = os.pathsep.join([str(SCRIPT.parent), os.environ.get("PYTHONPATH", "")])
    known = {"FIT_LOG": str(log), "FIT_SECONDS": str(seconds), "PYTHONPATH": path}
    return subprocess.Popen(
        [sys.executable, str(SCRIPT), str(store)], env={**os.environ, **known}
    )


# -- numbers ---------------------------------------------------------------------------


@pytest.mark.parametrize("protocol", ["joint", "held-out"])
@pytest.mark.parametrize("aligner", [PaperGDM(2, energy=0.7), SRM(3), NoAlignment()])
def test_cells_are_the_folds_of_the_evaluation(tmp_path, protocol, aligner):
    X, y = small_data()
    grid = Grid(
        GridStudy("s", split_study(X, y), leave_out=2),
        {"m": aligner},
        protocols=(protocol,),
        measure=Classification(n_permutations=20),
        random_state=3,
    )
    result = run_grid(grid, tmp_path)
    expected = between_subject_classification(
        aligner,
        X,
        y,
        leave_out=2,
        protocol=protocol,
        n_permutations=20,
        random_state=3,
    )
    assert_allclose(frame_of(result)["score"], expected.scores, atol=1e-12)
    found = result.result_of("m", protocol)
    for name in ("mean", "std", "p_value", "chance", "balanced_accuracy"):
        assert_allclose(getattr(found, name), getattr(expected, name), atol=1e-12)


def test_matching_cells_are_the_scores_of_the_evaluation(tmp_path):
    rng = np.random.default_rng(0)
    story = rng.normal(size=(60, 4))
    X = [story @ rng.normal(size=(4, 20)) + rng.normal(size=(60, 20)) for _ in "abc"]
    model = GDM(4, graph="time")
    grid = Grid(GridStudy("story", X), {"GDM": model}, measure=Matching(window=5))
    result = run_grid(grid, tmp_path)
    expected = score_matching(model, X, window=5)
    assert_allclose(frame_of(result)["score"], expected.scores.ravel(), atol=1e-12)
    assert_allclose(frame_of(result)["chance"].mean(), expected.chance, atol=1e-12)


def test_a_wide_linear_svm_gives_what_its_features_give(tmp_path):
    X, y = small_data()
    rng = np.random.default_rng(1)
    wide = [np.hstack([x, 0.1 * rng.normal(size=(len(x), 400))]) for x in X]
    plain = between_subject_classification(
        NoAlignment(),
        wide,
        y,
        # another kernel of the same meaning, which is not taken for a linear one
        classifier=NuSVC(nu=0.5, kernel="poly", degree=1, gamma=1.0),
    )
    by_products = between_subject_classification(NoAlignment(), wide, y)
    assert_allclose(by_products.scores, plain.scores, atol=1e-12)
    assert (by_products.confusion == plain.confusion).all()


# -- what a run leaves -----------------------------------------------------------------


def test_the_table_says_where_every_number_comes_from(tmp_path, whole):
    assert len(whole) == 3 * 2 * 2 * 2  # methods, protocols, halves, folds
    assert whole["score"].between(0, 1).all()
    assert whole.loc[whole["fold"] == 1, "test_subjects"].unique().tolist() == ["2, 3"]
    assert (whole["seed"] == 0).all()
    assert whole["name"].is_unique
    for name in ("brainweave", "python", "numpy", "scipy", "scikit-learn"):
        assert whole[name].str.match(r"\d+\.\d+").all()
    result = run_grid(small_grid(), tmp_path)
    frame = frame_of(result)
    assert (frame["seconds"] > 0).all()
    assert repr(result) == "GridResult(24 cells, 0 failed)"


def test_a_method_that_fails_is_recorded_and_the_rest_goes_on(tmp_path):
    grid = small_grid(
        methods={"GDM": TracedGDM(2), "too many": TracedGDM(200, energy=0.82)}
    )
    result = run_grid(grid, tmp_path)
    frame = frame_of(result).set_index("method")
    assert frame.loc["GDM", "score"].notna().all()
    assert frame.loc["too many", "score"].isna().all()
    assert frame.loc["too many", "error"].str.startswith("InputError: ").all()
    assert frame.loc["too many", "error"].str.contains("200").all()


def test_a_method_whose_bases_fail_does_not_stop_the_others(tmp_path):
    X, y = small_data()
    bad = GDM(2, kernel="gaussian", kernel_params={"hp": -1.0})
    grid = Grid(
        GridStudy("small", split_study(X, y)), {"bad": bad, "none": NoAlignment()}
    )
    result = run_grid(grid, tmp_path)
    assert result.result_of("bad", "held-out").startswith("InputError: ")
    assert "hp" in result.result_of("bad", "held-out")
    assert result.result_of("none", "held-out").scores.size == 8


def test_failed_cells_are_tried_again_only_on_request(tmp_path, monkeypatch):
    calls = []

    def broken(self, X, y=None):
        calls.append(1)
        raise RuntimeError("the disk is full")

    with monkeypatch.context() as patch:
        patch.setattr(TracedGDM, "fit", broken)
        first = run_grid(small_grid(protocols=("joint",)), tmp_path)
        again = run_grid(small_grid(protocols=("joint",)), tmp_path)
    assert len(calls) == 4
    assert frame_of(first)["error"].value_counts().max() == 8
    pd.testing.assert_frame_equal(frame_of(first), frame_of(again))
    fixed = run_grid(small_grid(protocols=("joint",)), tmp_path, retry_failed=True)
    assert (frame_of(fixed)["error"] == "").all()


def test_warnings_of_a_fit_are_in_its_cells(tmp_path):
    grid = small_grid(methods={"GDM": TracedGDM(6)}, protocols=("joint",))
    frame = frame_of(run_grid(grid, tmp_path))
    assert frame["warnings"].str.contains("UniquenessWarning: ").all()


def test_progress_counts_up_to_all_cells(tmp_path):
    seen = []
    run_grid(small_grid(), tmp_path, progress=lambda *told: seen.append(told))
    done = [told[0] for told in seen]
    assert done == sorted(done)
    assert seen[0][:2] == (0, 24)
    assert seen[-1][:2] == (24, 24)
    assert any("small, GDM, held-out, half 2, fold 1" in told[2] for told in seen)


def names_in(store):
    return {path.stem for path in store.cells.glob("[!.]*.json")}


# -- finished cells --------------------------------------------------------------------


def test_nothing_is_computed_twice(tmp_path, monkeypatch):
    log = tmp_path / "log"
    monkeypatch.setenv("FIT_LOG", str(log))
    first = run_grid(small_grid(), tmp_path / "store")
    n_fits = len(log.read_text().splitlines())
    assert n_fits == 2 * 2 * (1 + 2)  # energies, halves, one joint fit and two held out
    again = run_grid(small_grid(), tmp_path / "store")
    assert len(log.read_text().splitlines()) == n_fits
    pd.testing.assert_frame_equal(frame_of(first), frame_of(again))
    # more of the grid, and only that is computed
    wider = small_grid(methods={**small_grid().methods, "all": TracedGDM(2, energy=1)})
    run_grid(wider, tmp_path / "store")
    assert len(log.read_text().splitlines()) == n_fits * 3 // 2


def test_a_cell_may_belong_to_several_grids(tmp_path, monkeypatch):
    monkeypatch.setenv("FIT_LOG", str(tmp_path / "log"))
    plain = small_grid(methods={"GDM": TracedGDM(2, energy=0.5)})
    tagged = replace(plain, tags={"energy": 0.5})
    for store, grids in (("a", [plain, tagged]), ("b", [tagged, plain])):
        frame = frame_of(run_grid(grids, tmp_path / store))
        assert frame["energy"].isna().sum() == 8
        assert (frame["energy"] == 0.5).sum() == 8
        assert frame["name"].nunique() == 8
    assert len((tmp_path / "log").read_text().splitlines()) == 2 * 2 * (1 + 2)


def test_a_study_is_read_only_when_a_cell_is_missing(tmp_path):
    reads = []

    def read():
        reads.append(1)
        return small_split()

    study = GridStudy("lazy", read, version="1", shape=(2, 4))
    grid = Grid(study, {"GDM": GDM(2)})
    run_grid(grid, tmp_path)
    assert len(reads) == 1
    run_grid(grid, tmp_path)
    assert len(reads) == 1
    other = GridStudy("lazy", read, version="2", shape=(2, 4))
    run_grid(Grid(other, {"GDM": GDM(2)}), tmp_path)
    assert len(reads) == 2


def test_other_data_settings_or_seeds_are_other_cells(tmp_path):
    X, y = small_data()
    grids = [
        Grid(GridStudy("s", split_study(X, y)), {"m": GDM(2)}),
        Grid(
            GridStudy("s", split_study([x + (x == x.max()) for x in X], y)),
            {"m": GDM(2)},
        ),
        Grid(GridStudy("s", split_study(X, y)), {"m": PaperGDM(2, energy=0.81)}),
        Grid(
            GridStudy("s", split_study(X, y, halves=[np.arange(24) < 12] * 4)),
            {"m": GDM(2)},
        ),
        Grid(GridStudy("s", split_study(X, y)), {"m": GDM(2)}, random_state=1),
        Grid(
            GridStudy("s", split_study(X, y)),
            {"m": GDM(2)},
            measure=Classification(NuSVC(nu=0.3, kernel="linear")),
        ),
    ]
    names = [next(g.jobs()).names[0] for g in grids]
    assert len(set(names)) == len(grids)
    same = Grid(GridStudy("s", split_study(X, y)), {"m": GDM(2, n_jobs=2)})
    assert next(same.jobs()).names[0] == names[0]


@pytest.mark.skipif(sys.platform == "win32", reason="SIGKILL")
def test_a_killed_run_goes_on_and_gives_the_identical_table(tmp_path, whole):
    store = ResultStore(tmp_path / "store")
    run = start(store.folder, tmp_path / "log", 0.3)
    while len(names_in(store)) < 5 and run.poll() is None:
        time.sleep(0.02)
    run.kill()
    assert run.wait() != 0
    done = {name: store.get(name) for name in names_in(store)}
    assert 5 <= len(done) < len(whole)
    result = run_grid(small_grid(), store, n_jobs=1)
    pd.testing.assert_frame_equal(table(result), whole)
    # what was done before the kill is as it was, to the second it was finished
    assert all(store.get(name) == record for name, record in done.items())
    assert not list(tmp_path.rglob("*.damaged"))


def test_two_runs_share_one_store(tmp_path, whole):
    runs = [start(tmp_path / "store", tmp_path / "log", 0.1) for _ in range(2)]
    assert [run.wait() for run in runs] == [0, 0]
    assert names_in(ResultStore(tmp_path / "store")) == set(whole["name"])
    result = run_grid(small_grid(), tmp_path / "store")
    pd.testing.assert_frame_equal(table(result), whole)
    left = {p.name for p in (tmp_path / "store").iterdir()}
    assert left == {"cells"}


def test_the_table_does_not_depend_on_the_number_of_threads(tmp_path, whole):
    result = run_grid(small_grid(), tmp_path, n_jobs=4)
    pd.testing.assert_frame_equal(table(result), whole)


# -- errors ----------------------------------------------------------------------------


def test_grids_that_cannot_be_are_refused():
    study = GridStudy("s", small_split())
    with pytest.raises(InputError, match="grid of 's' has no method"):
        Grid(study, {})
    with pytest.raises(ValueError, match="protocols"):
        Grid(study, {"m": GDM()}, protocols=("leave one out",))
    for known in ({}, {"version": "1"}, {"shape": (2, 4)}):
        with pytest.raises(InputError, match="is a function: give version and shape"):
            GridStudy("s", lambda: small_data(), **known)


def test_a_wrong_shape_is_refused(tmp_path):
    study = GridStudy("s", lambda: small_split(), version="1", shape=(2, 5))
    with pytest.raises(InputError, match=r"4 subjects, but shape=\(2, 5\)"):
        run_grid(Grid(study, {"m": GDM(2)}), tmp_path)


def test_a_setting_without_a_lasting_name_is_refused(tmp_path):
    grid = Grid(
        GridStudy("s", small_split()), {"m": GDM(2, kernel=lambda a, b: a @ b.T)}
    )
    with pytest.raises(InputError, match="cannot be kept"):
        run_grid(grid, tmp_path)


class Plain(BaseEstimator):
    """An aligner of somebody else, which knows nothing of jobs."""

    def fit(self, X, y=None):
        self.maps_ = [self] * len(X)
        self.best_params_ = {"energy": np.float64(0.5), "graph": Path("here")}
        return self

    def transform(self, X):
        return X


def test_an_aligner_of_somebody_else_is_run_and_recorded(tmp_path):
    X, y = small_data()
    source = GridStudy("small", split_study(X, y), leave_out=2)
    grid = Grid(source, {"theirs": Plain()}, protocols=("joint",))
    result = run_grid(grid, tmp_path)
    assert not frame_of(result)["error"].any()
    # what JSON does not know is put into its terms
    kept = result.records[0]["best_params"]
    assert kept["energy"] == 0.5
    assert "here" in kept["graph"]


def test_a_method_that_fails_has_a_reason_in_place_of_a_result(tmp_path):
    X, y = small_data()
    grid = Grid(
        GridStudy("small", split_study(X, y)),
        {"none": NoAlignment(), "GDM": PaperGDM(5000)},
    )
    result = run_grid(grid, tmp_path)
    assert "n_components=5000 is more than" in result.result_of("GDM", "held-out")
    assert result.result_of("none", "held-out").seconds > 0


def test_a_split_study_knows_its_cells_without_reading(tmp_path):
    X, y = small_data()
    split = split_study(X, y)
    assert GridStudy("small", split).shape == (2, 4)
    result = run_grid(
        Grid(GridStudy("small", split), {"none": NoAlignment()}), tmp_path
    )
    assert len(result) == 8


def as_study(n_subjects=4):
    """Subjects who know their labels and ids."""
    pairs = enumerate(zip(*small_data(n_subjects), strict=True))
    return Study(
        Subject(str(i), x, labels=known, stimuli=np.arange(len(x)) + 100)
        for i, (x, known) in pairs
    )


def test_another_study_under_the_same_version_is_noticed(tmp_path):
    fewer = GridStudy("s", lambda: as_study(3), version="1", shape=(2, 4))
    with pytest.raises(InputError, match="3 subjects, but shape"):
        run_grid(Grid(fewer, {"GDM": GDM(2)}), tmp_path)


# -- the store -------------------------------------------------------------------------


def test_a_record_is_kept(tmp_path):
    store = ResultStore(tmp_path)
    store.put("a", {"x": 1})
    assert store.get("a") == {"x": 1}
    assert store.get("b") is None
    assert sorted(p.name for p in tmp_path.rglob("*.*")) == ["a.json"]


def test_a_damaged_record_is_set_aside_and_counts_as_missing(tmp_path):
    store = ResultStore(tmp_path)
    for damage in (lambda text: text[:5], lambda text: text.replace("0.25", "0.95")):
        store.put("a", {"score": 0.25})
        path = tmp_path / "cells" / "a.json"
        path.write_text(damage(path.read_text()))
        with pytest.warns(RuntimeWarning, match=r"a\.json' is damaged"):
            assert store.get("a") is None
        assert not path.exists()
    assert len(list((tmp_path / "cells").glob("*.damaged"))) == 2


@pytest.mark.parametrize("kind", ["folder", "link"])
@pytest.mark.filterwarnings("ignore:The record:RuntimeWarning")
def test_what_is_no_record_gives_way(tmp_path, kind):
    store = ResultStore(tmp_path)
    path = tmp_path / "cells" / "a.json"
    if kind == "folder":
        path.mkdir()
    else:
        path.symlink_to(tmp_path / "nowhere")
    assert store.get("a") is None
    store.put("a", {"x": 1})
    assert store.get("a") == {"x": 1}


class Slotted:
    __slots__ = ("weight",)

    def __init__(self, weight):
        self.weight = weight

    def graph(self, y):
        return label_graph(y, different=self.weight)


def test_a_result_of_another_graph_is_not_taken_from_the_store(rng, tmp_path):
    study = unrelated_study(rng)
    n = 4 * 14
    graphs = [
        "labels",
        label_graph,
        partial(label_graph, same=0, different=1),
        partial(label_graph, same=1, different=0),
        Slotted(1.0).graph,
        Slotted(2.0).graph,
        scipy.sparse.eye_array(n).tocsr(),
        2 * scipy.sparse.eye_array(n).tocsr(),
        0.5,
        "0.5",
    ]
    grids = [Grid(GridStudy("s", study), {"GDM": GDM(2, graph=g)}) for g in graphs]
    grids += [
        Grid(GridStudy("s", split_study(study, match=how)), {"GDM": GDM(2)})
        for how in ("truncate", "average")
    ]
    names = [next(grid.jobs()).names[0] for grid in grids]
    assert len(set(names)) == len(names)
    again = Grid(
        GridStudy("s", study),
        {"GDM": GDM(2, graph=partial(label_graph, same=0, different=1))},
    )
    assert next(again.jobs()).names[0] == names[2]
    for untold in ((g for g in "ab"), lambda y: label_graph(y)):
        grid = Grid(GridStudy("s", study), {"GDM": GDM(2, graph=untold)})
        with pytest.raises(ValueError, match="cannot be kept"):
            next(grid.jobs())


def test_a_damaged_store_gives_the_same_table_or_says_why(rng, tmp_path):
    def run():
        source = GridStudy("s", lambda: study, version="1", shape=(2, len(study)))
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "The record", RuntimeWarning)
            return frame_of(run_grid(Grid(source, {"GDM": GDM(2)}), tmp_path))

    study = unrelated_study(rng)
    shown = ["half", "fold", "score", "error"]
    whole = run()[shown]
    cells = sorted((tmp_path / "cells").iterdir())
    cells[0].write_text("{")
    cells[1].write_text("{}")
    cells[2].unlink()
    cells[2].mkdir()
    cells[3].write_text(cells[4].read_text())  # whole, and of another fold
    cells[5].write_bytes(b"\xff\xfe")
    pd.testing.assert_frame_equal(run()[shown], whole)
