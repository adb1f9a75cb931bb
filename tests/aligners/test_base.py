"""What all aligners inherit: settings, names, jobs, predictions and refusals."""

import pickle
import re

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import brainweave as bw
from brainweave import GDM, SRM, Hyperalignment, KernelHyperalignment, NoAlignment
from brainweave._core.exceptions import InputError, KernelWarning, LabelWarning
from brainweave.aligners.base import seeded_copy


@pytest.fixture
def X(rng):
    shared = rng.normal(size=(20, 4))
    return [
        5 + shared @ rng.normal(size=(4, v)) + 0.1 * rng.normal(size=(20, v))
        for v in (12, 15, 11, 13)
    ]


def refused(message, error=InputError):
    return pytest.raises(error, match=f"^{re.escape(message)}$")


def test_a_voxel_pattern_is_predicted_from_the_mean_of_others(X):
    model = Hyperalignment(3).fit(X)
    features = model.transform(X)
    expected = model.maps_[2].inverse_transform(
        (features[0] + features[1] + features[3]) / 3
    )
    others = [X[0], X[1], X[3]]
    assert_allclose(model.predict_subject(2, others), expected, atol=1e-12)
    two = model.maps_[2].inverse_transform((features[3] + features[0]) / 2)
    found = model.predict_subject(2, [X[3], X[0]], subjects=[3, 0])
    assert_allclose(found, two, atol=1e-12)
    one = model.predict_subject(2, [X[3]], subjects=[3])
    assert_allclose(one, model.maps_[2].inverse_transform(features[3]), atol=1e-12)
    with refused(
        "predict_subject needs the same stimuli for all subjects; got [20, 19, 20] "
        "samples. Average per stimulus first, or pass one subject."
    ):
        model.predict_subject(2, [X[0], X[1][:-1], X[3]])
    with pytest.raises(InputError, match=r"2 arrays for 3 subjects"):
        model.predict_subject(2, [X[0], X[1]])
    named = Hyperalignment(3).fit(dict(zip("abcd", X, strict=True)))
    assert_allclose(named.predict_subject("c", others), expected, atol=1e-12)
    everyone = dict(zip("abcd", X, strict=True))
    assert_allclose(named.predict_subject("c", everyone), expected, atol=1e-12)
    assert_allclose(named.predict_subject(2, {"d": X[3]}), one, atol=1e-12)


def test_messages_name_subjects_by_id_or_number(X):
    wrong = [X[0], X[1][:, 1:], X[2], X[3]]
    plain, named = GDM(2, graph="time").fit(X), GDM(2, graph="time")
    named.fit(dict(zip("abcd", X, strict=True)))
    with pytest.raises(InputError, match=re.escape("X[1] (subject 1)")):
        plain.transform(wrong)
    with pytest.raises(InputError, match=re.escape("X[0] (subject 'b')")):
        named.transform({"b": wrong[1]})
    named.ids_ = named.ids_[:3]  # as after somebody was added by hand
    with pytest.raises(InputError, match=re.escape("X[1] (subject 1)")):
        named.transform(wrong)


def test_who_took_part_is_known_by_content(X):
    for model, all_of_them in (
        (GDM(2, graph="time").fit(X), True),
        (SRM(2, random_state=0).fit(X), True),
        (NoAlignment().fit([x[:, :11] for x in X]), False),
    ):
        given = [x[:, :11] for x in X] if not all_of_them else X
        some = np.vstack([given[1][3:5], given[1][:1] + 1])
        (found,) = model.took_part([some], [1])
        assert found.tolist() == [all_of_them, all_of_them, False]
        (elsewhere,) = (
            model.took_part([given[1][:, :11]], [2]) if all_of_them else ([],)
        )
        assert not np.any(elsewhere)


def test_labels_may_come_with_subjects_or_as_y(X):
    y = np.arange(20) % 4
    expected = GDM(2).fit(X, y).transform(X)
    subjects = [bw.Subject(str(i), x, labels=y) for i, x in enumerate(X)]
    model = GDM(2)
    for a, b in zip(model.fit(subjects).transform(X), expected, strict=True):
        assert_allclose(a, b, atol=1e-12)
    joined = model.fit_new_subject(subjects[1])
    by_hand = model.fit_new_subject(X[1], y)
    assert_allclose(joined.weights, by_hand.weights, atol=1e-12)
    with pytest.raises(InputError, match="y has 19 labels for 20 samples of the new"):
        model.fit_new_subject(X[1], y[1:])
    with pytest.raises(InputError, match="is it voxels x samples"):
        model.fit_new_subject(X[1], y[:15])


def test_labels_that_do_not_meet_are_named_by_subject(X):
    y = [np.arange(20) % 4 for _ in X]
    y[2] = np.where(y[2] == 3, 0, y[2])
    with pytest.warns(LabelWarning, match=r"3 in X\[2\]"):
        GDM(2).fit(X, y)
    people = dict(zip("abcd", X, strict=True))
    with pytest.warns(LabelWarning, match="3 in 'c'"):
        GDM(2).fit(people, dict(zip("abcd", y, strict=True)))


def test_settings_may_differ_by_subject(X):
    energies = [1.0, 0.5, 0.9, 0.7]
    model = bw.PaperGDM(2, graph="time", energy=energies).fit(X)
    for i, basis in enumerate(model.bases_):
        alone = bw.SubjectBasis(X[i], energy=energies[i])
        assert basis.n_kept == alone.n_kept
        assert basis.energy == energies[i]
    new = model.fit_new_subject(bw.SubjectBasis(X[0], energy=0.6))
    assert new.basis.energy == 0.6
    with refused(
        "The subjects of this PaperGDM differ in energy: [1.0, 0.5, 0.9, 0.7]. Give "
        "the new subject as a SubjectBasis with its own kernel and energy."
    ):
        model.fit_new_subject(X[0])
    with refused(
        "energy of PaperGDM has 3 entries for 4 subjects. Give one value for all, or "
        "one per subject."
    ):
        bw.PaperGDM(2, graph="time", energy=energies[:3]).fit(X)
    whole = bw.PaperGDM(2, graph="time", energy=None).fit(X)
    assert [b.energy for b in whole.bases_] == [1.0] * 4
    with pytest.raises(
        TypeError, match=r"must be True, False or 'reliability', got 'z'"
    ):
        GDM(2, graph="time", standardize="z").fit(X)
    for standardize in (1, None, 0):
        with pytest.raises(TypeError, match="standardize of GDM must be True, False"):
            GDM(2, graph="time", standardize=standardize).fit(X)
    numpy = GDM(2, graph="time", standardize=np.False_).fit(X)
    assert numpy.bases_[0].standardize is False


def test_a_kernel_that_loses_energy_names_the_worst_subject(X):
    def indefinite(a, b):
        return a @ b.T - 0.05 * (a @ b.T) ** 2

    with pytest.warns(KernelWarning) as told:
        KernelHyperalignment(2, kernel=indefinite, kernel_params=None).fit(X)
    model_bases = [bw.SubjectBasis(x, kernel=indefinite) for x in X]
    worst = int(np.argmax([b.lost_share for b in model_bases]))
    said = [str(w.message) for w in told if w.category is KernelWarning]
    assert len(said) == 1
    share = f"{model_bases[worst].lost_share:.0%}"
    assert f"X[{worst}] loses {share} of its energy" in said[0]


def test_a_second_fit_leaves_nothing_of_the_first(X):
    y = [np.arange(20) % 4] * 4
    model = SRM(2, random_state=0).fit(dict(zip("abcd", X, strict=True)))
    assert model.ids_ == list("abcd")
    again = model.fit(X[:3])
    assert again is model
    assert again.ids_ is None
    assert again.n_subjects_ == 3
    assert len(again.mixing_) == 3
    gdm = GDM(2).fit(X, y)
    gdm._check = "of another fit"
    assert "_check" not in vars(gdm.fit(X, y))


def test_a_pickle_keeps_the_bases_that_mapping_needs(X):
    linear = pickle.loads(pickle.dumps(Hyperalignment(2).fit(X)))
    assert not hasattr(linear, "bases_")
    curved = KernelHyperalignment(2, kernel="gaussian", kernel_params={"hp": 20.0})
    again = pickle.loads(pickle.dumps(curved.fit(X)))
    assert len(again.bases_) == 4
    for a, b in zip(again.transform(X), curved.transform(X), strict=True):
        assert_array_equal(a, b)


def test_what_has_no_seed_of_its_own_gets_this_one():
    seeded = seeded_copy(SRM(2), 7)
    assert seeded.random_state == 7
    assert seeded_copy(SRM(2, random_state=3), 7).random_state == 3
    nested = seeded_copy(bw.Parcelwise(SRM(2), np.ones(4)), 5)
    assert nested.aligner.random_state == 5
    assert seeded_copy(NoAlignment(), 5).get_params() == NoAlignment().get_params()
    assert seeded_copy(SRM(2), None).random_state is None


def test_shared_features_are_checked_before_they_are_mapped_back(X):
    model = Hyperalignment(3).fit(X)
    features = model.transform(X)
    back = model.inverse_transform(features[2:], [2, 3])
    for a, i in zip(back, (2, 3), strict=True):
        assert_array_equal(a, model.maps_[i].inverse_transform(features[i]))
    with pytest.raises(TypeError, match=r"shared\[1\] must hold real numbers"):
        model.inverse_transform([features[0], features[1].astype(str)], [0, 1])
