"""An aligner of somebody else's goes through everything, and src knows nothing of it.

CONTRIBUTING.md shows this class; a test compares the two.
"""

import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_allclose

import brainweave as bw
from brainweave._core.exceptions import ModelFileError
from brainweave.aligners.base import BaseAligner
from brainweave.evaluation.grid import Grid, GridStudy, run_grid
from brainweave.report import write_report
from brainweave.testing import CHECKS, Case, check_aligner
from small_grid import frame_of


# -- toy aligner --
@bw.register_aligner
class CategoryAxes(BaseAligner):
    """One shared feature per category, found in each subject by least squares."""

    _stored = {"categories_": "K of any"}  # what it learns: one line per attribute

    def __init__(self, *, energy=0.5, standardize=True, n_jobs=None):
        self.energy = energy
        self.standardize = standardize
        self.n_jobs = n_jobs

    def _joined_by(self, y=None):
        return {"labels"}  # equal labels are what ties subjects together

    def _solve(self, bases, y):
        self.categories_ = np.unique(np.concatenate(y))
        return [self._solve_new(b, known) for b, known in zip(bases, y, strict=True)]

    def _solve_new(self, basis, y):
        shown = np.asarray(y)[:, None] == self.categories_
        target = shown - shown.mean(axis=0)
        return np.linalg.lstsq(basis.coordinates, target, rcond=None)[0]


# -- end --


CASE = Case(CategoryAxes(), labels=True)


@pytest.fixture(scope="module")
def study():
    return bw.simulate_study(
        n_subjects=4, categories=3, n_runs=4, n_voxels=(150, 200), random_state=1
    )


@pytest.mark.parametrize("name", CHECKS)
def test_it_passes_every_check(name):
    CHECKS[name](CASE)


@pytest.mark.parametrize("protocol", ["joint", "held-out"])
def test_it_is_evaluated_under_both_protocols(study, protocol):
    result = bw.between_subject_classification(
        CategoryAxes(), study, halves="run", protocol=protocol
    )
    assert result.method == "CategoryAxes"
    assert result.mean > result.chance + 0.2
    if protocol == "held-out":  # the report knows the method by its name alone
        assert "CategoryAxes (held-out)" in str(result)


def test_it_is_compared_with_others_and_resumed(study, tmp_path):
    grid = Grid(
        GridStudy("simulated", bw.split_study(study, halves="run")),
        {"toy": CategoryAxes(), "GDM": bw.PaperGDM(2, energy=0.5)},
        protocols=("joint", "held-out"),
    )
    table = frame_of(run_grid(grid, tmp_path, n_jobs=1))
    assert set(table["method"]) == {"toy", "GDM"}
    assert table["error"].isna().all() or (table["error"] == "").all()
    told = []
    run_grid(grid, tmp_path, n_jobs=1, progress=lambda *step: told.append(step))
    assert [done for done, _, _ in told] == [len(table)]  # nothing is done again


def test_it_is_saved_loaded_described_and_reported(study, tmp_path):
    model = CategoryAxes().fit(study)
    path = tmp_path / "toy.safetensors"
    bw.save(model, path)
    loaded = bw.load(path)
    assert type(loaded) is CategoryAxes
    for a, b in zip(loaded.transform(study), model.transform(study), strict=True):
        assert_allclose(a, b, atol=1e-9)
    assert "CategoryAxes" in str(bw.describe(path))
    result = bw.between_subject_classification(CategoryAxes(), study, halves="run")
    report = write_report(
        tmp_path / "report.html", study=study, model=loaded, results=result
    )
    assert "CategoryAxes" in report.read_text(encoding="utf-8")


def test_a_file_never_makes_a_class_that_was_not_registered(study, tmp_path):
    path = tmp_path / "toy.safetensors"
    bw.save(CategoryAxes().fit(study), path)
    code = f"""
    import brainweave as bw
    from brainweave._core.exceptions import ModelFileError
    try:
        bw.load({str(path)!r})
    except ModelFileError as error:
        print(error)
    """
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            "import brainweave._core.exceptions\n" + textwrap.dedent(code),
        ],
        capture_output=True,
        text=True,
        check=True,
    )
    assert "CategoryAxes" in done.stdout
    assert "import the module that registers it" in done.stdout


def test_two_classes_of_one_name_are_refused():
    with pytest.raises(ModelFileError, match="CategoryAxes is known already"):
        bw.register_aligner(type("CategoryAxes", (BaseAligner,), {}))


def test_contributing_shows_this_class():
    here = Path(__file__).read_text(encoding="utf-8")
    shown = here.split("# -- toy aligner --\n")[1].split("# -- end --")[0]
    page = Path(__file__).parents[1] / "CONTRIBUTING.md"
    assert shown.strip() in page.read_text(encoding="utf-8")
    assert len(shown.strip().splitlines()) <= 25


def test_what_is_excused_is_not_run_and_what_fails_is_named(monkeypatch):
    def fails(case):
        raise AssertionError("never")

    monkeypatch.setattr("brainweave.testing.CHECKS", {"sulking": fails})
    with pytest.raises(AssertionError, match="never") as raised:
        check_aligner(CategoryAxes())
    assert raised.value.__notes__ == ["in the check 'sulking' of CategoryAxes"]
    check_aligner(Case(CategoryAxes(), excused={"sulking": "it may"}))
    with pytest.raises(ValueError, match="excused names no checks: flying"):
        check_aligner(CategoryAxes(), excused={"flying": "it may"})
