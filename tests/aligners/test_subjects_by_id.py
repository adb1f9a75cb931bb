"""Subjects that have ids are matched by them, never by their place in a list."""

import numpy as np
import pytest

from brainweave import (
    GDM,
    SRM,
    PaperGDM,
    Parcelwise,
    Searchlight,
    between_subject_classification,
    load,
    save,
)
from brainweave._core.exceptions import InputError
from brainweave.study import Study, Subject
from evaluation_studies import labelled_study


@pytest.fixture
def study():
    rng = np.random.default_rng(0)
    y = np.arange(24) % 3
    return Study(
        Subject(f"s{i}", rng.normal(size=(24, 12)) + y[:, None], labels=y)
        for i in range(4)
    )


def lists_of(study):
    return [s.samples for s in study], [s.labels for s in study]


def test_a_model_knows_the_ids_it_was_fitted_on(study, tmp_path):
    model = GDM(2).fit(study)
    assert model.ids_ == ["s0", "s1", "s2", "s3"]
    assert GDM(2).fit(*lists_of(study)).ids_ is None
    again = PaperGDM(2, energy=0.5).fit(model.bases_[::-1], [s.labels for s in study])
    assert again.ids_ == ["s3", "s2", "s1", "s0"]
    assert load(save(model, tmp_path / "m.safetensors")).ids_ == model.ids_
    assert SRM(2, random_state=0).fit(study).ids_ == study.ids


ALIGNERS = {
    "GDM": GDM(2),
    "SRM": SRM(2, random_state=0),
    "Parcelwise": Parcelwise(SRM(2, random_state=0), np.repeat([1, 2], 6)),
    "Searchlight": Searchlight(
        SRM(2, random_state=0), 4, coordinates=np.arange(12.0)[:, None], centers=[3, 8]
    ),
}


@pytest.mark.parametrize("name", ALIGNERS)
def test_the_order_of_a_study_does_not_matter(study, name):
    model = ALIGNERS[name].fit(study)
    expected = dict(zip(study.ids, model.transform(study), strict=True))
    assert model.ids_ == study.ids
    for ids in (study.ids[::-1], ["s2"], ["s3", "s1"]):
        some = study.subset(ids)
        for id, found in zip(ids, model.transform(some), strict=True):
            np.testing.assert_array_equal(found, expected[id])
    back = model.inverse_transform([expected["s2"]], ["s2"])
    shared = Study(Subject(i, expected[i]) for i in ("s3", "s2"))
    np.testing.assert_array_equal(model.inverse_transform(shared)[1], back[0])
    others = study.subset(["s3", "s0", "s1"])
    X = [s.data() for s in study]
    np.testing.assert_allclose(
        model.predict_subject("s2", others),
        model.predict_subject(2, [X[0], X[1], X[3]]),
    )
    # the target's own samples say nothing of how well others predict it
    np.testing.assert_array_equal(
        model.predict_subject("s2", study.subset(["s3", "s0", "s1", "s2"])),
        model.predict_subject("s2", others),
    )


def test_unknown_subjects_are_refused(study):
    model = GDM(2).fit(study)
    other = Study([Subject("s9", study[0].samples)])
    with pytest.raises(InputError, match=r"Unknown subject 's9'.*'s0', 's1'"):
        model.transform(other)
    with pytest.raises(InputError, match="Unknown subject 's9'"):
        model.predict_subject("s9", study)
    with pytest.raises(InputError, match=r"X\[0\] is subject 's1', but subjects= says"):
        model.transform(study.subset(["s1"]), subjects=[0])
    by_arrays = GDM(2).fit(*lists_of(study))
    with pytest.raises(InputError, match="arrays, which have no ids"):
        by_arrays.transform([study[1].samples], subjects=["s1"])
    # said by hand, another name is no hindrance
    (named,) = model.transform(other, subjects=["s0"])
    np.testing.assert_array_equal(named, model.transform(study)[0])


def test_bare_lists_go_by_position(study):
    model = GDM(2).fit(study)
    X = [s.data() for s in study]
    a, b = model.transform(X[1:3], [1, 2]), model.transform(X[1:3], ["s1", "s2"])
    for one, other in zip(a, b, strict=True):
        np.testing.assert_array_equal(one, other)
    with pytest.raises(InputError, match="2 arrays for 4 subjects"):
        model.transform(X[:2])
    twice = model.transform([X[1], X[1]], [1, 1])
    np.testing.assert_array_equal(twice[0], twice[1])


def test_a_number_that_may_mean_two_people_is_refused(study):
    numbered = Study(
        Subject(i + 1, s.samples, labels=s.labels) for i, s in enumerate(study)
    )
    model = GDM(2).fit(numbered)
    X = numbered["1"].samples
    with pytest.raises(InputError, match=r"1 could mean two subjects.*as a string"):
        model.transform([X], [1])
    with pytest.raises(InputError, match="1 could mean two"):
        model.predict_subject(1, numbered)
    model.transform([X], ["1"])
    model.transform([X], [0])  # nobody is called 0


def test_labels_of_a_study_find_their_bases(study, tmp_path):
    bases = GDM(2).fit(study).bases_
    for i, basis in enumerate(bases):
        save(basis, tmp_path / f"{i}.safetensors")
    # what is known of the samples differs from subject to subject
    mixed = Study(s._replace(labels=np.roll(s.labels, i)) for i, s in enumerate(study))
    expected = GDM(2).fit(bases, [s.labels for s in mixed])
    for given in (bases, [load(tmp_path / f"{i}.safetensors") for i in range(4)]):
        found = GDM(2).fit(given, {s.id: s.labels for s in reversed(mixed)})
        assert found.ids_ == study.ids
        np.testing.assert_allclose(found.eigenvalues_, expected.eigenvalues_)


def test_a_new_subject_comes_with_the_settings_of_the_fit(study):
    model = GDM(2).fit(study.subset(["s0", "s1", "s2"]))
    raw = GDM(2, standardize=False).fit(study).bases_[3]
    with pytest.raises(InputError, match=r"standardize=False; this GDM has .*=True"):
        model.fit_new_subject(raw, study["s3"].labels)


def test_rows_are_not_taken_as_categories(study):
    model = GDM(2).fit(study)
    with pytest.raises(InputError, match="pass those of the new subject"):
        model.fit_new_subject(study["s0"].samples[:3])  # as many rows as categories


def test_a_subject_called_1_is_not_confused_with_the_second_one():
    named = labelled_study()
    study = Study(
        Subject(i, s.samples, labels=s.labels) for i, s in enumerate(named, start=1)
    )
    for ask in (lambda: study[1], lambda: study.subset([1])):
        with pytest.raises(InputError, match="1 could mean two subjects"):
            ask()
    assert study["1"] is study.subjects[0]
    assert study.subset(["1"]).ids == ["1"]
    assert study[0].id == "1"  # nobody is called 0
    assert next(reversed(study)).id == "4"
    assert study.index(study["3"]) == 2
    # the package itself never means an id when it counts
    for protocol in ("joint", "held-out"):
        result = between_subject_classification(GDM(2), study, protocol=protocol)
        assert result.mean > 0.8


def test_a_string_is_not_a_list_of_letters():
    study = labelled_study()
    assert study.subset(subjects="s2").ids == ["s2"]
    model = GDM(2).fit(study)
    (found,) = model.transform([study["s2"].samples], subjects="s2")
    np.testing.assert_array_equal(found, model.transform(study)[2])


@pytest.mark.parametrize("key", [True, 1.0, None])
def test_a_subject_is_named_by_a_number_or_a_text(study, key):
    model = GDM(2).fit(study)
    with pytest.raises(TypeError, match=f"numbers 0, 1, ... or ids; got {key}"):
        model.transform([study[1].samples], [key])
