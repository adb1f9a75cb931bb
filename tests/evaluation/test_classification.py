"""Between-subject classification: the result, its invariants, its errors."""

import json
import warnings

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import BaseEstimator, clone
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import balanced_accuracy_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import NuSVC

from brainweave import (
    GDM,
    SRM,
    Hyperalignment,
    NoAlignment,
    PaperGDM,
    between_subject_classification,
    label_graph,
    load_matlab,
    split_study,
)
from brainweave._core.exceptions import ClassifierWarning, InputError
from brainweave.evaluation.classifiers import (
    SeparatingNuSVC,
    balanced_accuracy,
    largest_nu,
)
from brainweave.evaluation.evaluate import evaluation_metadata, score_folds
from brainweave.evaluation.measures import Classification
from evaluation_studies import as_named_study, score_matching, study_lists

PROTOCOLS = ("joint", "held-out")


def literal_joint(X, y, model, leave_out):
    """The paper's protocol, written out: fit, transform, train, test, swap."""
    first = [np.zeros(len(labels), bool) for labels in y]
    for mask, labels in zip(first, y, strict=True):
        for c in np.unique(labels):
            found = np.flatnonzero(labels == c)
            mask[found[: len(found) // 2]] = True
    scores = []
    for aligning in (first, [~m for m in first]):
        fitted = clone(model).fit(
            [x[m] for x, m in zip(X, aligning, strict=True)],
            [known[m] for known, m in zip(y, aligning, strict=True)],
        )
        shared = fitted.transform([x[~m] for x, m in zip(X, aligning, strict=True)])
        known = [labels[~m] for labels, m in zip(y, aligning, strict=True)]
        for start in range(0, len(X), leave_out):
            test = range(start, min(start + leave_out, len(X)))
            train = [i for i in range(len(X)) if i not in test]
            svm = SeparatingNuSVC(nu=0.5, kernel="linear").fit(
                np.concatenate([shared[i] for i in train]),
                np.concatenate([known[i] for i in train]),
            )
            hits = [svm.predict(shared[i]) == known[i] for i in test]
            scores.append(np.concatenate(hits).mean())
    return np.array(scores)


@pytest.mark.parametrize("kernel", ["linear", "gaussian"])
def test_joint_scores_equal_the_protocol_written_out(rng, kernel):
    X, y = study_lists(rng, n_subjects=5, noise=6.0)
    model = PaperGDM(2, energy=0.6, kernel=kernel)
    found = between_subject_classification(model, X, y, leave_out=2, protocol="joint")
    expected = literal_joint(X, y, model, 2)
    assert 0.4 < expected.mean() < 1
    assert_allclose(found.scores, expected, atol=1e-12)


def test_scores_of_voxels_equal_the_protocol_written_out(rng):
    X, y = study_lists(rng, n_subjects=4, voxels=300, noise=6.0)
    shared = X[0][np.argsort(y[0], kind="stable")]  # so that voxels do correspond
    X = [shared + 25 * rng.normal(size=shared.shape) for _ in X]
    y = [np.sort(y[0])] * 4
    found = between_subject_classification(NoAlignment(), X, y)
    expected = literal_joint(X, y, NoAlignment(), 1)
    assert 0.4 < expected.mean() < 1
    assert_allclose(found.scores, expected, atol=1e-12)


def test_held_out_scores_equal_the_protocol_written_out(rng):
    X, y = study_lists(rng, n_subjects=4, noise=6.0)
    masks = [np.arange(24) % 2 == 0] * 4
    found = between_subject_classification(
        PaperGDM(2, energy=0.6), X, y, halves=masks, protocol="held-out"
    )
    expected = []
    for m in (masks[0], ~masks[0]):
        for test in range(4):
            train = [i for i in range(4) if i != test]
            model = PaperGDM(2, energy=0.6)
            model.fit([X[i][m] for i in train], [y[i][m] for i in train])
            new = model.fit_new_subject(X[test][m], y[test][m])
            shared = model.transform([X[i][~m] for i in train])
            svm = SeparatingNuSVC(nu=0.5, kernel="linear").fit(
                np.concatenate(shared), np.concatenate([y[i][~m] for i in train])
            )
            expected.append(
                np.mean(svm.predict(new.transform(X[test][~m])) == y[test][~m])
            )
    assert_allclose(found.scores, expected, atol=1e-12)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_planted_categories_are_found(rng, protocol):
    X, y = study_lists(rng, n_subjects=5)
    result = between_subject_classification(GDM(2), X, y, protocol=protocol)
    assert result.mean > 0.9
    assert result.protocol == protocol
    assert result.method == "GDM"
    assert_allclose(result.chance, 1 / 3, rtol=1e-12)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_shuffled_labels_give_chance_level(rng, protocol):
    X, y = study_lists(rng, n_subjects=6, n_samples=48)
    shuffled = [rng.permutation(labels) for labels in y]
    result = between_subject_classification(GDM(2), X, shuffled, protocol=protocol)
    # 288 tested samples: three standard deviations of a binomial proportion
    assert abs(result.mean - 1 / 3) < 3 * np.sqrt(2 / 9 / 288)


def test_confusion_counts_agree_with_accuracy(rng):
    X, y = study_lists(rng, noise=6.0)
    result = between_subject_classification(GDM(2), X, y)
    assert result.confusion.sum() == sum(f["n_test"] for f in result.folds) == 4 * 24
    assert_array_equal(result.confusion.sum(axis=1), [32, 32, 32])
    assert_allclose(np.trace(result.confusion) / 96, result.mean, rtol=1e-12)
    assert_allclose(result.balanced_accuracy, result.mean, rtol=1e-12)
    assert_allclose(result.std, np.std(result.scores), rtol=1e-12)


def test_balanced_accuracy_is_the_mean_share_of_hits_per_category(rng):
    X, y = study_lists(rng, n_subjects=3, n_samples=36, noise=6.0)
    kept = [np.flatnonzero((labels > 0) | (np.arange(36) % 2 > 0)) for labels in y]
    X = [x[rows] for x, rows in zip(X, kept, strict=True)]
    y = [labels[rows] for labels, rows in zip(y, kept, strict=True)]
    measure = Classification(LogisticRegression())
    folds = list(
        score_folds(GDM(2), split_study(X, y), measure, leave_out=2, protocol="joint")
    )
    found = np.array([fold["confusion"] for fold in folds])
    hits = found.diagonal(axis1=1, axis2=2) / found.sum(axis=2)
    balanced = [fold["balanced_accuracy"] for fold in folds]
    assert_allclose(balanced, hits.mean(axis=1), rtol=1e-12)
    assert not np.allclose(balanced, [fold["score"] for fold in folds], rtol=1e-3)


def test_table_has_one_row_per_fold(rng):
    X, y = study_lists(rng)
    result = between_subject_classification(GDM(2), as_named_study(X, y), leave_out=2)
    table = result.to_frame()
    assert table["test_subjects"].tolist() == ["s0, s1", "s2, s3"] * 2
    assert table["half"].tolist() == [0, 0, 1, 1]
    assert_allclose(table["accuracy"], result.scores, rtol=0)
    assert set(table["method"]) == {"GDM"}
    assert result.seconds > 0


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_study_lists_and_split_agree(rng, protocol):
    X, y = study_lists(rng, noise=6.0)
    study = as_named_study(X, y)
    found = [
        between_subject_classification(GDM(2), *data, protocol=protocol).scores
        for data in ((X, y), (study,), (list(study),), (split_study(study),))
    ]
    for scores in found[1:]:
        assert_array_equal(scores, found[0])


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_result_is_the_same_for_a_seed_whatever_n_jobs(rng, protocol):
    X, y = study_lists(rng, noise=6.0)

    def run(n_jobs, seed=3):
        return between_subject_classification(
            GDM(2),
            X,
            y,
            protocol=protocol,
            n_permutations=6,
            random_state=seed,
            n_jobs=n_jobs,
        )

    one, two = run(1), run(2)
    assert_array_equal(one.scores, two.scores)
    assert_array_equal(one.permutation_scores, two.permutation_scores)
    assert one.p_value == two.p_value
    assert not np.array_equal(one.permutation_scores, run(1, seed=4).permutation_scores)


def test_permutations_tell_signal_from_noise(rng):
    X, y = study_lists(rng)
    good = between_subject_classification(
        GDM(2), X, y, n_permutations=39, random_state=0
    )
    assert_allclose(good.p_value, 1 / 40, rtol=1e-12)
    assert abs(good.permutation_scores.mean() - 1 / 3) < 0.05
    noise = [rng.normal(size=x.shape) for x in X]
    bad = between_subject_classification(
        GDM(2), noise, y, n_permutations=39, random_state=0
    )
    assert bad.p_value > 0.025
    assert between_subject_classification(GDM(2), X, y).p_value is None


def test_random_state_seeds_an_aligner_without_one_of_its_own(rng):
    X, y = study_lists(rng, noise=6.0)
    y = [y[0]] * 4
    scores = [
        between_subject_classification(
            SRM(3, max_iter=1, tol=0), X, y, random_state=seed
        ).scores
        for seed in (0, 0)
    ]
    assert_array_equal(scores[0], scores[1])


def test_any_classifier_serves(rng):
    X, y = study_lists(rng)
    model = make_pipeline(StandardScaler(), LogisticRegression())
    result = between_subject_classification(GDM(2), X, y, classifier=model)
    assert result.mean > 0.9
    assert result.folds[0]["nu"] is None


def test_infeasible_nu_is_lowered_warned_about_and_recorded(rng):
    X, y = study_lists(rng, n_subjects=3, n_samples=40, n_categories=2)
    y = [np.where(np.arange(40) < 30, 0, 1) for _ in y]
    model = SeparatingNuSVC(nu=0.8, kernel="linear")
    with pytest.warns(
        ClassifierWarning, match=r"nu=0.8 is infeasible.*lowered to 0.499"
    ):
        result = between_subject_classification(GDM(1), X, y, classifier=model)
    assert_allclose([f["nu"] for f in result.folds], 0.999 * 0.5, rtol=1e-12)
    assert model.nu == 0.8
    assert result.chance == 0.75


@pytest.mark.parametrize("counts", [(5, 5), (2, 6), (3, 4, 9)])
def test_largest_nu_is_where_libsvm_draws_the_line(rng, counts):
    y = np.repeat(np.arange(len(counts)), counts)
    X = rng.normal(size=(len(y), 3)) + y[:, None]
    largest = largest_nu(y)
    NuSVC(nu=0.999 * largest, kernel="linear").fit(X, y)
    if largest < 1:
        with pytest.raises(ValueError, match="infeasible"):
            NuSVC(nu=min(1, 1.001 * largest), kernel="linear").fit(X, y)


def test_unlabelled_samples_align_but_are_not_classified(rng):
    X, y = study_lists(rng)
    y = [labels.astype(object) for labels in y]
    for labels in y:
        labels[::6] = None
    result = between_subject_classification(GDM(2), X, y)
    assert result.confusion.sum() == 4 * 20
    assert result.mean > 0.9
    assert result.categories == [0, 1, 2]


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_category_that_training_lacks_is_missed(rng, protocol):
    X, y = study_lists(rng, n_subjects=3)
    y[0] = y[0] + 5 * (y[0] == 2)  # category 7 is seen by the first subject alone
    result = between_subject_classification(GDM(2), X, y, protocol=protocol)
    assert result.categories == [0, 1, 2, 7]
    assert result.confusion[3, 3] == 0
    assert result.confusion[3].sum() == 8


def test_results_keep_settings_that_json_can_hold(rng):
    X, y = study_lists(rng)
    graph = np.ones((len(y[0]),) * 2)
    model = PaperGDM(np.int64(2), energy=(np.float64(0.6),) * len(X), kernel_params={})
    result = between_subject_classification(model, X, y)
    kept = json.loads(json.dumps(result.settings))
    assert kept == result.settings
    assert (kept["n_components"], kept["energy"]) == (2, [0.6] * len(X))
    assert kept["kernel_params"] == {}
    assert "n_jobs" not in kept
    told = evaluation_metadata(GDM(graph=graph), split_study(X, y), Classification())[
        "settings"
    ]
    assert told["graph"] == f"array of shape {graph.shape}"
    told = evaluation_metadata(
        GDM(graph=label_graph), split_study(X, y), Classification()
    )
    assert told["settings"]["graph"].startswith("<function label_graph")


def test_settings_per_subject_follow_their_subject(rng):
    X, y = study_lists(rng)
    energies = [0.5, 0.6, 0.7, 0.8]
    joint = between_subject_classification(PaperGDM(2, energy=energies), X, y)
    held = between_subject_classification(
        PaperGDM(2, energy=energies), X, y, protocol="held-out"
    )
    assert min(joint.mean, held.mean) > 0.9


def test_inputs_and_aligner_are_unchanged(rng):
    X, y = study_lists(rng)
    copies, model = [x.copy() for x in X], GDM(2)
    between_subject_classification(model, X, y, protocol="held-out")
    for x, copy in zip(X, copies, strict=True):
        assert_array_equal(x, copy)
    assert not hasattr(model, "maps_")


@pytest.mark.parametrize("model", [Hyperalignment(), GDM(2, graph="time")])
def test_rows_of_different_categories_are_refused_when_joined_by_row(rng, model):
    X, y = study_lists(rng)
    with pytest.raises(ValueError, match=r"than those of .0.*match="):
        between_subject_classification(model, X, y)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        result = between_subject_classification(
            model, split_study(X, y, match="truncate")
        )
    assert result.mean > 0.6


def test_errors_say_what_is_wrong_and_what_to_do(rng):
    X, y = study_lists(rng)
    with pytest.raises(ValueError, match="protocol of the evaluation must be one of"):
        between_subject_classification(GDM(2), X, y, protocol="fair")
    with pytest.raises(TypeError, match="as objects such as GDM"):
        between_subject_classification(GDM, X, y)
    with pytest.raises(ValueError, match="'nu-svm-means', 'nu-svm'; got 'svm'"):
        between_subject_classification(GDM(2), X, y, classifier="svm")
    with pytest.raises(ValueError, match="match of the evaluation must be one of"):
        between_subject_classification(GDM(2), split_study(X, y, match="sort"))
    with pytest.raises(ValueError, match="at least two categories, each"):
        between_subject_classification(GDM(2), X)
    with pytest.raises(ValueError, match="leaves 1 of 4 subjects to make a template"):
        between_subject_classification(GDM(2), X, y, leave_out=3, protocol="held-out")
    with pytest.raises(TypeError, match="n_permutations of the evaluation"):
        between_subject_classification(GDM(2), X, y, n_permutations=1.5)
    with pytest.raises(TypeError, match="random_state of the evaluation must be"):
        between_subject_classification(GDM(2), X, y, random_state="lucky")
    with pytest.raises(ValueError, match="cannot be split into halves"):
        between_subject_classification(GDM(2, kernel="precomputed"), X, y)
    with pytest.raises(ValueError, match=r"'1' .* 41 voxels, the others have 40"):
        between_subject_classification(NoAlignment(), X, y)
    bare = [np.full(24, None), *y[1:]]
    other = [x[::-1] + rng.normal(size=x.shape) for x in X]
    apart = [as_named_study(other, [known[::-1] for known in y])]
    with pytest.raises(ValueError, match="Subject '0' has no labelled sample to test"):
        between_subject_classification(GDM(2), split_study(X, bare, align=apart))
    with pytest.raises(ValueError, match=r"without an edge .*; X\[2\]\."):
        between_subject_classification(
            GDM(2), X, [*y[:2], bare[0], y[3]], protocol="held-out"
        )
    X[1][3, 5] = np.nan
    with pytest.raises(ValueError, match=r"subject '1' \((aligning|scored) samples\)"):
        between_subject_classification(GDM(2), X, y)


def test_gdm_is_far_above_no_alignment_on_the_raider_images(real_data):
    folder = real_data / "raider_images"
    study = load_matlab(
        [folder / "image_data_lh.mat", folder / "image_data_rh.mat"],
        labels=folder / "label.mat",
        runs=np.repeat(range(8), 7),
    )
    split = split_study(study, halves="run")
    plain = between_subject_classification(NoAlignment(), split)
    for protocol in PROTOCOLS:
        gdm = between_subject_classification(
            PaperGDM(6, energy=0.65), split, protocol=protocol
        )
        assert len(gdm.scores) == 20
        assert_allclose(gdm.chance, 1 / 7, rtol=1e-12)
        assert gdm.mean > plain.mean + 0.3
        assert gdm.mean > 0.6


def test_a_classifier_that_fails_says_on_what(rng):
    from sklearn.base import BaseEstimator, ClassifierMixin

    class Fails(ClassifierMixin, BaseEstimator):
        def fit(self, X, y):
            raise ValueError("coefficients are not finite")

    X, y = study_lists(rng, n_subjects=3)
    with pytest.raises(InputError, match=r"categories\): coefficients are not"):
        between_subject_classification(GDM(2), X, y, classifier=Fails())


@pytest.mark.filterwarnings("ignore::brainweave._core.exceptions.LabelWarning")
def test_an_error_of_a_subject_that_joins_names_it(rng):
    X, y = study_lists(rng)
    y[3] = np.zeros_like(y[3])
    with pytest.raises(InputError, match=r"X\[3\], which joins the others: The edges"):
        between_subject_classification(GDM(2), X, y, protocol="held-out")


@pytest.mark.filterwarnings("ignore::brainweave._core.exceptions.LabelWarning")
def test_training_subjects_must_show_two_categories(rng):
    X, y = study_lists(rng, n_categories=2)
    ones = [np.zeros_like(known) for known in y[1:]]
    with pytest.raises(InputError, match="fewer than two categories"):
        between_subject_classification(
            NoAlignment(), [x[:, :40] for x in X], [y[0], *ones]
        )


class Untouched(BaseEstimator):
    """An aligner of somebody else, without a base class, parameters or jobs."""

    def fit(self, X, y=None):
        self.maps_ = [self] * len(X)
        return self

    def transform(self, X):
        return X


def test_features_of_different_width_cannot_be_classified_together(rng):
    X, y = study_lists(rng)
    with pytest.raises(InputError, match="different numbers of features"):
        between_subject_classification(Untouched(), X, y, protocol="joint")
    with pytest.raises(InputError, match="Untouched has no fit_new_subject"):
        between_subject_classification(Untouched(), X, y)


def test_rare_categories_weigh_the_same_in_the_balanced_accuracy():
    true, predicted = np.array([0, 0, 0, 0, 1, 1]), np.array([0, 0, 0, 0, 0, 1])
    assert_allclose(balanced_accuracy(true, predicted), 0.75, rtol=1e-12)
    assert_allclose(
        balanced_accuracy(true, predicted),
        balanced_accuracy_score(true, predicted),
        rtol=1e-12,
    )
    # a prediction of what does not occur is wrong, and no category of its own
    assert_allclose(balanced_accuracy(true[:4], predicted[:4] + 2), 0, atol=0)


def test_progress_is_told_by_the_library(rng):
    X, y = study_lists(rng)
    y = [y[0]] * 4
    told = []
    between_subject_classification(
        GDM(2), X, y, n_permutations=30, progress=lambda *said: told.append(said)
    )
    # 2 halves, 4 folds
    assert [t[0] for t in told] == list(range(1, 9))
    assert told[-1] == (8, 8, "GDM, held-out")
    score_matching(GDM(2), X, y, window=3, progress=True)
    with pytest.raises(TypeError, match="progress must be True, False or a function"):
        score_matching(GDM(2), X, y, window=3, progress=3)
