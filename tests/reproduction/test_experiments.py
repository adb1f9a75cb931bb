import os
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose
from threadpoolctl import threadpool_limits

from brainweave import GDM, PaperGDM, Study, Subject, between_subject_classification
from brainweave._core.exceptions import InputError, StudyError, UniquenessWarning
from brainweave.evaluation.splits import match_study
from brainweave.study.simulation import SimulationSettings, simulate_study
from reproduction import (
    METHODS,
    figure,
    figures,
    overlap,
    pieman,
    raider,
    table2,
    unaligned,
)
from reproduction.output import pieman_text
from reproduction.overlap import _score_design, _share
from reproduction.settings import OURS, dataset, grid_study, simulate_like

pytestmark = pytest.mark.thorough  # examples-quick runs them

BRIEF = SimulationSettings(duration=2.5)


@pytest.fixture(scope="module")
def out(tmp_path_factory):
    """One folder for all, so that cells are shared."""
    return tmp_path_factory.mktemp("paper")


@pytest.fixture(scope="module")
def table(out):
    return table2(out, datasets=["DS001", "Raider"], quick=True)


# -- Table 2 ---------------------------------------------------------------------------


def test_table_2_has_all_methods_on_every_dataset(table, out):
    # the film of Raider has no labels, and so no labels+time
    assert table["dataset"].tolist() == ["DS001"] * 11 + ["Raider"] * 10
    assert table["method"].tolist() == [*METHODS, *METHODS[:-1]]
    assert (table["n_failed"] == 0).all()
    assert (table["data"] == "simulated").all()
    assert table["mean"].between(0, 1).all()
    # 8 subjects, 4 left out, two halves; 4 subjects, 2 left out, three thirds
    assert table.groupby("dataset")["n_folds"].unique().map(list).to_dict() == {
        "DS001": [4],
        "Raider": [6],
    }
    text = (out / "table2.md").read_text()
    assert "| DS001 (simulated) | joint |" in text
    assert "**" in text
    assert "compare methods, not studies" in text
    written = pd.read_csv(out / "table2.csv")
    assert_allclose(written["mean"], table["mean"], atol=1e-12)


def test_table_2_is_the_same_again_and_from_the_store(table, out, tmp_path):
    again = table2(out, datasets=["DS001", "Raider"], quick=True)
    pd.testing.assert_frame_equal(again, table)
    afresh = table2(tmp_path, datasets=["DS001"], methods=["GDM", "SRM"], quick=True)
    for method in ("GDM", "SRM"):
        assert_allclose(
            afresh.set_index("method").loc[method, "mean"],
            table[table["dataset"] == "DS001"].set_index("method").loc[method, "mean"],
            atol=1e-12,
        )


def test_a_table_is_the_same_to_the_last_digit_whatever_runs_in_parallel(
    table, out, tmp_path
):
    """One fit at a time in one thread, two of both, and other methods beside it."""
    with threadpool_limits(1):
        table2(tmp_path / "1", datasets=["DS001"], quick=True, n_jobs=1)
    script = (
        "import sys; from reproduction import table2; "
        "table2(sys.argv[1], datasets=['DS001'], quick=True, n_jobs=2)"
    )
    threads = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "2")
    subprocess.run(
        [sys.executable, "-W", "ignore", "-c", script, str(tmp_path / "2")],
        env={**os.environ, **threads},
        check=True,
    )
    texts = [(tmp_path / number / "table2.md").read_text() for number in "12"]
    assert texts[0] == texts[1]
    cells = (out / "table2.md").read_text().splitlines()[2]
    assert cells in texts[0].splitlines()
    # whose features may be made from what another method left
    alone = table2(tmp_path, datasets=["DS001"], methods=["KHA"], quick=True)
    of_all = table[table["dataset"] == "DS001"].set_index("method")
    assert alone["mean"].item() == of_all.loc["KHA", "mean"]


def test_real_data_take_the_place_of_simulated_ones_beside_published_numbers(tmp_path):
    study = simulate_study(n_subjects=8, n_voxels=60, categories=4, n_runs=4)
    result = table2(
        tmp_path, data={"DS001": study}, datasets=["DS001"], methods=["nu-SVM", "GDM"]
    )
    assert (result["data"] == "real").all()
    found = result.set_index("method")
    assert_allclose(found["published_mean"], [0.3432, 0.6268], atol=1e-12)
    scores = {}
    for name in ("nu-svm-means", "nu-svm"):
        with pytest.warns(UniquenessWarning):  # 10 components for 4 categories
            scores[name] = between_subject_classification(
                PaperGDM(10, energy=0.82),
                match_study(study, "truncate"),
                leave_out=4,
                protocol="joint",
                classifier=name,
                random_state=0,
            ).mean
    ours, plain = scores.values()
    assert_allclose(found.loc["GDM", "mean"], ours, atol=1e-12)
    assert_allclose(found.loc["GDM", "beside_mean"], plain, atol=1e-12)
    assert plain != ours
    printed = (tmp_path / "table2.md").read_text()
    assert "DS001 (real), LIBSVM's nu-SVM | joint |" in printed
    assert (
        "| DS001 (published) | joint | 34.3 ± 2.1 | 62.7 ± 1.5 |"
        in (tmp_path / "table2.md").read_text()
    )


def test_the_aligned_version_is_reordered_and_truncated_by_category():
    rng = np.random.default_rng(0)
    labels = [list("aabbb"), list("babaa")]
    study = Study(
        Subject(str(i), rng.normal(size=(5, 3)), labels=known)
        for i, known in enumerate(labels)
    )
    aligned = match_study(study, "truncate")
    assert [s.labels.tolist() for s in aligned] == [list("aabb")] * 2
    assert_allclose(aligned[1].data(), study[1].data()[[1, 3, 0, 2]], atol=0)


def test_a_real_film_aligns_in_thirds():
    setting = dataset("Raider", quick=True)
    film = simulate_like(4, 130, 50, None)
    images = simulate_like(4, 84, 50, 7, settings=BRIEF, n_runs=12, aligned=True)
    split = grid_study(setting, (film, images)).open()
    assert [part.aligning.name for part in split.splits] == [
        "third 1",
        "third 2",
        "third 3",
    ]
    rows = [part.aligning[0].data() for part in split.splits]
    assert_allclose(np.concatenate(rows), film[0].data()[:120], atol=0)
    with pytest.raises(InputError, match="has 100 samples of the film; 3 parts of 40"):
        grid_study(setting, (simulate_like(4, 100, 50, None), images))


def test_only_gdm_and_no_alignment_run_on_unaligned_data(out):
    result = unaligned(out, datasets=["DS001"], quick=True).set_index("method")
    unlocked = ["nu-SVM", "GDM", *OURS]
    assert result.loc[unlocked, "mean"].notna().all()
    others = result.drop(unlocked)
    assert others["mean"].isna().all()
    assert (others["n_failed"] == others["n_folds"]).all()
    assert others["error"].str.contains("GDM").all()  # the way out
    text = (out / "unaligned.md").read_text()
    assert "Why numbers are missing:" in text
    assert "- SRM (DS001): InputError: SRM " in text


# -- figures ---------------------------------------------------------------------------


@pytest.mark.parametrize("name", figures())
def test_every_figure_is_drawn_with_its_numbers(name, table, out):
    numbers = figure(name, out, panels=["DS001"], quick=True)
    assert (out / f"{name}.svg").read_text().lstrip().startswith("<?xml")
    written = pd.read_csv(out / f"{name}.csv")
    assert len(written) == len(numbers)
    curve = numbers[numbers["curve"] == "GDM"]
    assert len(curve) == 3
    lines = numbers.set_index("curve")["mean"].drop("GDM")
    assert set(lines.index) == {"without alignment", "best of others", "guess"}
    # the lines are those of Table 2
    of_table = table[table["dataset"] == "DS001"].set_index("method")["mean"]
    assert_allclose(lines["without alignment"], of_table["nu-SVM"], atol=1e-12)
    competing = of_table.drop(["nu-SVM", "DetSRM", "GDM", *OURS])
    assert_allclose(lines["best of others"], competing.max(), atol=1e-12)
    assert_allclose(lines["guess"], 0.25, atol=1e-12)
    if name == "figure1":
        assert_allclose(curve["mean"].iloc[0], of_table["GDM"], atol=1e-12)


# -- real studies ----------------------------------------------------------------------


def test_raider_and_pieman_write_tables_and_curves(tmp_path):
    images = simulate_like(4, 56, 40, 7, settings=BRIEF, n_runs=8, aligned=True)
    chosen = ["nu-SVM", "SRM", "RHA", "GDM", "GDMCV"]
    result = raider(images, tmp_path, methods=chosen, n_permutations=3, repeats=1)
    assert len(result) == 2 * len(chosen)
    assert result["p_value"].dropna().between(0.25, 1).all()
    assert (result["p_value"].isna() == (result["n_failed"] > 0)).all()
    text = (tmp_path / "raider.md").read_text()
    assert "| GDM |" in text
    assert "GDMCV chose:" in text
    assert "Guessing reaches 14.3 %." in text
    for what in ("energy", "incompleteness"):
        assert (tmp_path / f"raider_{what}.svg").exists()
        numbers = pd.read_csv(tmp_path / f"raider_{what}.csv")
        assert set(numbers["protocol"]) == {"joint", "held-out"}
    story = Study(Subject(s.id, s.data()) for s in simulate_like(6, 80, 30, None))
    matched = pieman(story, tmp_path, n_components=3).set_index(["method", "protocol"])
    assert matched.loc[("GDM", "joint"), "mean"] > matched["chance"].max()
    assert (
        "SSSRM, joint, is missing: InputError" in (tmp_path / "pieman.md").read_text()
    )
    numbers = pd.read_csv(tmp_path / "raider_components.csv")
    assert set(numbers["param_n_components"]) == {6, 10, 20}


def test_the_real_raider_images_are_read(real_data):
    from reproduction import load_pieman, load_raider_images

    images = load_raider_images(real_data)
    assert len(images) == 10
    assert images[0].samples.shape == (56, 1000)
    assert images[0].runs.tolist() == np.repeat(np.arange(1, 9), 7).tolist()
    story = load_pieman(real_data)
    assert len(story) == 36
    assert story[0].samples.shape == (300, 100)


# -- wrong input -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("experiment", "options", "message"),
    [
        (table2, {"datasets": ["DS7"]}, "There is no dataset 'DS7' in the paper"),
        (table2, {"methods": ["CCA"]}, "must be some of nu-SVM, HA"),
        (unaligned, {"datasets": ["Raider"]}, "there is no unaligned version of it"),
    ],
)
def test_unknown_names_are_refused(tmp_path, experiment, options, message):
    with pytest.raises(InputError, match=message):
        experiment(tmp_path, **options)
    with pytest.raises(InputError, match="must be some of DS232, DS001, Raider"):
        figure("figure1", tmp_path, panels=["DS011"])


def test_wrong_data_are_refused(tmp_path):
    study = simulate_like(4, 24, 20, 2)
    with pytest.raises(InputError, match="data has 'Haxby'; the paper's datasets are"):
        table2(tmp_path, data={"Haxby": study})
    with pytest.raises(TypeError, match=r"data\['Raider'\] must be a pair"):
        table2(tmp_path, data={"Raider": study})
    with pytest.raises(TypeError, match=r"data\['DS001'\] must be a Study"):
        table2(tmp_path, data={"DS001": (study, study)})
    with pytest.raises(InputError, match="give no data with it"):
        table2(tmp_path, data={"DS001": study}, quick=True)
    with pytest.raises(InputError, match=r"methods=\['HA'\] .* nu-SVM and GDM among"):
        raider(study, tmp_path, methods=["HA"])
    with pytest.raises(StudyError, match=r"has no weights\.mat"):
        pieman(tmp_path, tmp_path)
    file = tmp_path / "file"
    file.write_text("")
    with pytest.raises(InputError, match="is a file; results go into a folder"):
        table2(file, quick=True)


def test_the_verdict_says_so_when_gdm_is_not_the_best():
    table = pd.DataFrame(
        {
            "method": ["SRM", "GDM", "GDMCV", "HA"] * 2,
            "protocol": ["joint"] * 4 + ["held-out"] * 4,
            "mean": [0.7, 0.6, 0.9, 0.95, 0.5, 0.6, 0.9, 0.55],
            "std": 0.1,
            "n_failed": [0, 0, 0, 1] + [0] * 4,
            "chance": 0.01,
            "error": [""] * 3 + ["InputError: too few"] + [""] * 4,
        }
    )
    text = pieman_text(table)
    assert "joint protocol GDM (60.0 %) is not the best: SRM reaches 70.0 %" in text
    assert "GDM is number 2 of 2." in text  # HA failed, GDMCV is a form of GDM
    assert "held-out protocol GDM is the best method (60.0 %), before HA" in text
    assert "| HA | — | 55.0 ± 10.0 |" in text
    assert "HA, joint, is missing: InputError: too few" in text


def test_a_share_has_the_error_of_its_pairs():
    whole = np.array([0.2, 0.3, 0.4, 0.3])
    assert_allclose(_share(0.9 * whole, whole), (0.9, 0), atol=1e-15)
    part = np.array([0.1, 0.3, 0.2, 0.4])
    flat = np.full(4, 0.5)  # then it is that of a mean
    assert_allclose(
        _share(part, flat), (0.5, part.std(ddof=1) / np.sqrt(4) / 0.5), rtol=1e-12
    )
    assert np.isnan(_share(part[:1], flat[:1])[1])


def test_partly_overlapping_studies_gain_from_all_the_data(tmp_path):
    """What the full bed promises, on a study of a size that takes a few seconds."""
    rows = ["paper's GDM", "GDM, default"]
    table = overlap(tmp_path, quick=True, methods=rows)
    found = table.set_index(["method", "design"])
    paper, ours = (found.loc[row, "mean"] for row in rows)
    assert (ours > paper).all()
    assert ours["groups"] > ours["intersection"]
    assert ours["ring"] > ours["intersection"]
    shares = found.loc["GDM, default", "of_complete"].dropna()
    assert shares.index.tolist() == ["groups", "ring"]
    assert (shares > 0.9).all()
    assert_allclose(shares["ring"], ours["ring"] / ours["complete, 3 groups"])
    text = (tmp_path / "overlap_simulated.md").read_text().splitlines()
    assert text[0].startswith("| segments found, % | groups | of complete | ring |")
    assert len(text) == 4
    with pytest.raises(InputError, match="must be some of"):
        overlap(tmp_path, methods=["RHA"])


def test_nobody_aligns_with_the_part_that_is_matched():
    """Three parts take turns in aligning; a fourth, if there is one, is matched."""
    seen, seen_by = [], []

    class Spy(GDM):
        def fit(self, X, y):
            each = [{sample.split("@")[0] for sample in own} for own in y]
            seen.append(set.union(*each))
            seen_by.append(each)
            return super().fit(X, y)

    rng = np.random.default_rng(0)
    shared = rng.normal(size=(3, 40, 3))
    # of one map in every part, and noise in the fourth
    maps = rng.normal(size=(6, 3, 9))
    mixed = [[*(shared @ own), rng.normal(size=(40, 9))] for own in maps]
    aligner = Spy(3, graph="time", shrinkage=0.1, constraint="subject")
    places = np.array([2, 0, 1, 5, 3, 4])
    assert _score_design(mixed, "ring", aligner, places=places).mean() < 0.2
    assert seen == [{"0", "1", "2"}] * 3
    assert seen_by[0][:3] == [{"2", "0"}, {"0", "1"}, {"1", "2"}] == seen_by[0][3:]
    # without a fourth it is the part that a subject did not see
    story = [own[:3] for own in mixed]
    assert _score_design(story, "ring", aligner, places=places).mean() > 0.9


def test_all_ways_of_halving(tmp_path):
    from brainweave import simulate_study
    from reproduction import raider_all_splits

    study = simulate_study(n_subjects=4, n_voxels=60, categories=3, n_runs=4)
    rows = ["paper's GDM, K = 6", "+ reliable voxels", "RHA, K = 10"]
    table = raider_all_splits(study, tmp_path, methods=rows, most=2, n_jobs=1)
    assert table["n_splits"].unique().tolist() == [2]
    assert len(table) == 6
    assert (tmp_path / "raider_all_splits.md").is_file()
    with pytest.raises(InputError, match="must be some of"):
        raider_all_splits(study, tmp_path, methods=["HA"])


def test_ways_of_halving_are_compared_with_the_papers_form(tmp_path):
    from brainweave import simulate_study
    from reproduction import raider_all_splits
    from reproduction.real import PAPER

    study = simulate_study(n_subjects=4, n_voxels=60, categories=3, n_runs=4)
    rows = [PAPER, "HA, K = 10"]
    table = raider_all_splits(study, tmp_path, methods=rows, most=3, n_jobs=1)
    found = table.set_index(["method", "protocol"])
    assert found.loc[PAPER, "over_paper"].isna().all()
    for protocol in ("joint", "held-out"):
        ours, theirs = (found.loc[(row, protocol), "mean"] for row in rows[::-1])
        over = found.loc[("HA, K = 10", protocol), "over_paper"]
        assert_allclose(over, ours - theirs, equal_nan=True)


def test_a_story_is_cut_into_thirds_for_groups_at_random(tmp_path, rng, monkeypatch):
    from scipy.io import savemat

    placed = []

    def score(parts, design, aligner, *, places):
        placed.append(tuple(places))
        return _score_design(parts, design, aligner, places=places)

    monkeypatch.setattr(sys.modules[overlap.__module__], "_score_design", score)

    shared = rng.normal(size=(60, 4))
    weights = np.empty((1, 6), object)
    for i in range(6):
        weights[0, i] = shared @ rng.normal(size=(4, 8)) + rng.normal(size=(60, 8))
    savemat(tmp_path / "weights.mat", {"weights": weights})
    steps = []
    table = overlap(
        tmp_path / "out",
        data=tmp_path,
        methods=["paper's GDM"],
        n_components=3,
        progress=lambda *step: steps.append(step),
    )
    assert table["study"].unique().tolist() == ["pieman"]
    assert table["se"].notna().all()  # over subjects
    assert (tmp_path / "out" / "overlap_pieman.md").is_file()
    assert steps[-1] == (5, 5, "paper's GDM, intersection")
    assert len(placed) == 5 * 12
    assert len(set(placed)) == 12  # the same divisions for every design
    assert {tuple(sorted(places)) for places in placed} == {tuple(range(6))}


def test_without_gdm_nothing_is_said_of_its_rank():
    known = {"protocol": ["joint", "held-out"], "mean": 0.5, "std": 0.1}
    rest = {"method": "SRM", "n_failed": 0, "chance": 0.1, "error": ""}
    text = pieman_text(pd.DataFrame({**known, **rest}))
    assert "GDM" not in text
    assert "Guessing reaches 10.0 %." in text
