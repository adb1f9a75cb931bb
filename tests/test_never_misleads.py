"""Stories of users who were misled, or left with nothing; none may happen again.

Each test is one way to publish something false, or to fail on an ordinary study, told
as the user met it. The modules' own tests look closer.
"""

import numpy as np
import pytest

# -- the solver ------------------------------------------------------------------------


# -- labels, subjects and their order --------------------------------------------------


def _labelled_study(n_subjects=4, seed=0):
    from brainweave import Study, Subject

    rng = np.random.default_rng(seed)
    patterns = 2 * rng.normal(size=(3, 6))
    y = np.tile(["cat", "dog", "face"], 12)
    codes = np.tile([0, 1, 2], 12)
    return Study(
        Subject(
            f"s{i}",
            patterns[codes] @ rng.normal(size=(6, 30)) + rng.normal(size=(36, 30)),
            labels=y,
        )
        for i in range(n_subjects)
    )


def _relabelled(study, who, old, new):
    return study.map(
        lambda s: (
            s._replace(labels=[new if v == old else v for v in s.labels])
            if s.id in who
            else s
        )
    )


@pytest.mark.filterwarnings("default::brainweave.exceptions.LabelWarning")
@pytest.mark.filterwarnings("ignore:nu=0.5 is infeasible")
def test_a_category_spelt_in_two_ways_is_pointed_out():
    from brainweave import GDM, between_subject_classification
    from brainweave.exceptions import LabelWarning

    study = _relabelled(_labelled_study(), ("s0", "s1"), "face", "Face")
    message = "'Face' and 'face' differ by case, blanks or type only"
    with pytest.warns(LabelWarning, match=message):
        GDM(2).fit(study)
    with pytest.warns(LabelWarning, match=message):
        between_subject_classification(GDM(2), study)


def test_groups_of_subjects_without_a_common_label_are_not_aligned():
    from brainweave import GDM, between_subject_classification
    from brainweave.exceptions import InputError

    study = _labelled_study()
    for old in ("cat", "dog", "face"):
        study = _relabelled(study, ("s0", "s1"), old, old.upper())
    message = "'s0', 's1' have 'CAT', 'DOG', 'FACE'; 's2', 's3' have"
    with pytest.raises(InputError, match=message):
        GDM(2).fit(study)
    with pytest.raises(InputError, match=message):
        between_subject_classification(GDM(2), study)


@pytest.mark.parametrize("missing", [None, float("nan"), "", "n/a"])
def test_samples_without_a_label_are_no_category_anywhere(missing):
    from brainweave import GDM, Study

    study = _labelled_study()
    labels = [[missing if v == "face" else v for v in s.labels] for s in study]
    X, _ = study.to_lists()
    by_lists = GDM(1).fit(X, labels)
    known = Study(s._replace(labels=y) for s, y in zip(study, labels, strict=True))
    assert by_lists.graph_.groups[0].names == ("cat", "dog")
    assert GDM(1).fit(known).graph_.groups[0].names == ("cat", "dog")


def test_a_study_in_another_order_is_mapped_by_its_ids():
    from brainweave import GDM

    study = _labelled_study()
    model = GDM(2).fit(study)
    turned = study.subset(study.ids[::-1])
    for found, expected in zip(
        model.transform(turned), model.transform(study)[::-1], strict=True
    ):
        np.testing.assert_array_equal(found, expected)


def test_a_subject_called_1_is_not_confused_with_the_second_one():
    from brainweave import GDM, Study, Subject, between_subject_classification
    from brainweave.exceptions import InputError

    named = _labelled_study()
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


def test_values_that_would_be_lost_are_refused():
    import scipy.sparse

    from brainweave import GDM, SRM, NoAlignment, Subject
    from brainweave.exceptions import InputError

    study = _labelled_study()
    X, y = study.to_lists()
    models = [GDM(2).fit(X, y), NoAlignment().fit(X), SRM(2, random_state=0).fit(X)]
    masked = np.ma.MaskedArray(X[0], mask=X[0] > 3)
    for bad, error, message in (
        (scipy.sparse.csr_array(X[0]), TypeError, "sparse"),
        (X[0] + 1j, TypeError, "real numbers"),
        (masked, InputError, "masked values"),
    ):
        with pytest.raises(error, match=message):
            Subject("s0", bad)
        for model in models:
            with pytest.raises(error, match=message):
                model.fit([bad, *X[1:]], y)
            with pytest.raises(error, match=message):
                model.transform([bad], [0])
            with pytest.raises(error, match=message):
                model.fit_new_subject(bad, y[0])
    unmasked = np.ma.MaskedArray(X[0], mask=False)
    np.testing.assert_array_equal(
        GDM(2).fit([unmasked, *X[1:]], y).eigenvalues_, models[0].eigenvalues_
    )


def test_arrays_in_the_order_of_brainiak_are_noticed():
    from brainweave import SRM
    from brainweave.exceptions import InputError, LayoutWarning

    rng = np.random.default_rng(0)
    own = [rng.normal(size=(40, v)) for v in (60, 70, 80)]
    with pytest.raises(InputError, match=r"BrainIAK takes voxels x samples.*x\.T"):
        SRM(2).fit([x.T for x in own])
    same = [rng.normal(size=(20, 2500)) for _ in range(2)]
    srm = SRM(2, max_iter=1, tol=0, random_state=0)
    with pytest.warns(LayoutWarning, match="2500 rows and 20 columns"):
        srm.fit([x.T for x in same])
    srm.fit(same)
    srm.fit([rng.normal(size=(300, 100)) for _ in range(2)])  # Pieman's shape


def test_a_string_is_not_a_list_of_letters():
    from brainweave import GDM

    study = _labelled_study()
    assert study.subset(labels="cat").categories == ["cat"]
    assert study.subset(subjects="s2").ids == ["s2"]
    model = GDM(2).fit(study)
    (found,) = model.transform([study["s2"].samples], subjects="s2")
    np.testing.assert_array_equal(found, model.transform(study)[2])


def test_transform_warns_of_circular_scoring():
    from sklearn.linear_model import LogisticRegression

    from brainweave import GDM

    rng = np.random.default_rng(0)
    X, y = [rng.normal(size=(70, 200)) for _ in range(6)], [np.arange(70) % 7] * 6
    shared = GDM(6).fit(X, y).transform(X)
    model = LogisticRegression().fit(np.concatenate(shared[1:]), np.concatenate(y[1:]))
    assert model.score(shared[0], y[0]) > 0.95  # as the docstrings say: circular
    for method in (GDM.transform, GDM.fit_transform):
        assert "noise" in method.__doc__
        assert "99 %" in method.__doc__


# -- voxels and files in memory --------------------------------------------------------


# -- evaluations and their store -------------------------------------------------------


# -- components and the report ---------------------------------------------------------


# -- the command line and the BIDS App -------------------------------------------------


def _command(capsys, *arguments, code=0):
    """Run a command as typed; return what it printed and what it said."""
    from brainweave.cli.errors import run

    got = run([str(a) for a in arguments])
    out, err = capsys.readouterr()
    assert got == code, err
    assert "should not happen" not in err
    return out, err


def _noise_folder(folder, ids, n_voxels=40):
    import brainweave as bw

    rng = np.random.default_rng(3)
    return bw.Study(
        bw.Subject(
            id, rng.normal(size=(28, n_voxels)), labels=np.arange(28) % 7, runs=[1] * 28
        )
        for id in ids
    ).save(folder)


def test_noise_that_was_aligned_cannot_be_scored_as_a_success(tmp_path, capsys):
    """I fitted noise, transformed it, scored the result, and got 99 %."""
    _noise_folder(tmp_path / "noise", ["01", "02", "03", "04"])
    model = tmp_path / "m.safetensors"
    _command(capsys, "fit", tmp_path / "noise", "-o", model, "--n-components", 5, "-q")
    out, _ = _command(
        capsys, "transform", model, tmp_path / "noise", tmp_path / "shared", "-q"
    )
    assert "112 of 112 samples took part in the alignment" in out
    for command in ("evaluate", "compare"):
        results = tmp_path / command
        _, said = _command(
            capsys, command, tmp_path / "shared", "-o", results, "-q", code=2
        )
        assert "took part" in said or "aligned" in said
        assert not (results / "results.json").exists()


def test_a_model_is_never_applied_to_other_people(tmp_path, capsys):
    """My model of 04, 02, 05 mapped sub-01 with the map of 04."""
    import brainweave as bw

    study = _noise_folder(tmp_path / "st", ["01", "02", "03", "04", "05"])
    fitted = study.subset(subjects=["04", "02", "05"])
    model = tmp_path / "m.safetensors"
    bw.save(bw.GDM(2).fit(*fitted.to_lists()), model)
    study.subset(subjects=["01"]).save(tmp_path / "one")
    target = tmp_path / "out"
    _, said = _command(capsys, "transform", model, tmp_path / "one", target, code=2)
    assert "does not say who its 3 subjects are" in said
    bw.save(bw.GDM(2).fit(fitted), model)
    _, said = _command(capsys, "transform", model, tmp_path / "one", target, code=2)
    assert "does not know subject '01'; it has 04, 02, 05" in said
    assert not target.exists()


def test_a_group_is_of_one_kind_of_data(tmp_path, capsys):
    """group took one task of some subjects and another task of the others."""
    import brainweave as bw

    data, out = tmp_path / "bids", tmp_path / "out"
    bw.simulate_study(
        n_subjects=3, n_voxels=20, categories=2, n_runs=2, n_nuisance=2
    ).to_bids(data, derivatives=False)
    for path in list(data.glob("sub-03/func/*")):
        path.rename(path.with_name(path.name.replace("objects", "faces")))

    def app(level, *options, code=0):
        return _command(
            capsys, "run", data, out, level, "--no-report", "-q", *options, code=code
        )[1]

    app("participant", "--task", "objects", "--participant-label", "01", "02")
    app("participant", "--task", "faces", "--participant-label", "03")
    said = app("group", code=2)
    assert "task-objects (sub-01, sub-02); task-faces (sub-03)" in said
    # and one subject kept its basis of other smoothing, since its new job had failed
    objects = ("--task", "objects", "--n-components", 1)
    app("participant", *objects, "--smoothing-fwhm", 3, "--participant-label", "02")
    said = app("group", *objects, code=2)
    assert "--smoothing-fwhm was not given for sub-01; 3.0 for sub-02" in said
    # and the images of a subject were replaced, but not its basis
    app("participant", *objects, "--participant-label", "01", "02")
    first, second = sorted(data.glob("sub-02/func/*_bold.nii.gz"))
    second.write_bytes(first.read_bytes())
    assert "has changed since the basis of sub-02" in app("group", *objects, code=2)
    app("participant", *objects, "--participant-label", "02")
    app("group", *objects)


def test_overwriting_a_dataset_spares_what_is_not_ours(tmp_path, capsys):
    """--overwrite deleted my scans: any folder with a dataset description would do."""
    scans = tmp_path / "scans"
    scans.mkdir()
    (scans / "dataset_description.json").write_text('{"Name": "years of work"}')
    small = ("--n-subjects", 2, "--n-voxels", 20, "--categories", 2, "--n-runs", 2)
    options = ("--bids", "--overwrite", *small, "-q")
    _, said = _command(capsys, "simulate", scans, *options, code=2)
    assert "--overwrite does not delete" in said
    assert (scans / "dataset_description.json").is_file()
    ours = tmp_path / "ours"
    _command(capsys, "simulate", ours, *options, "--dtype", "float64")
    (ours / "notes.txt").write_text("mine")
    _command(capsys, "simulate", ours, *options)
    assert (ours / "notes.txt").read_text() == "mine"


# -- files from elsewhere --------------------------------------------------------------


def bids_dataset(folder, **options):
    from brainweave.study import simulate_study

    study = simulate_study(
        n_subjects=2, categories=3, n_runs=2, n_voxels=120, duration=10.0, **options
    )
    return study.to_bids(folder / "bids", raw=False), study


def add_button_presses(folder):
    import pandas as pd

    for path in folder.rglob("*_events.tsv"):
        table = pd.read_csv(path, sep="\t")
        presses = table.assign(
            onset=table["onset"] + 4.0, duration=0.0, trial_type="button_press"
        )
        pd.concat([table, presses]).to_csv(path, sep="\t", index=False, na_rep="n/a")


def test_one_label_to_ignore_is_ignored(tmp_path):
    from brainweave import load_bids

    folder, study = bids_dataset(tmp_path)
    add_button_presses(folder)
    loaded = load_bids(folder, ignore="button_press")
    assert loaded.categories == study.categories
    assert loaded[0].labels.tolist() == study[0].labels.tolist()


def test_button_presses_take_no_volumes_from_blocks(tmp_path):
    from brainweave import load_bids

    folder, study = bids_dataset(tmp_path)
    add_button_presses(folder)
    with pytest.warns(UserWarning, match="volumes lie under events of more than one"):
        loaded = load_bids(folder)
    assert loaded[0].labels.tolist() == study[0].labels.tolist()
    run = loaded.record["runs"]["01"]["1"]
    assert run["shared_volumes"] > 0
    assert run["overshadowed"] > 0


@pytest.mark.parametrize(
    ("what", "message"),
    [("RepetitionTime", "milliseconds: write 2.5"), ("onset", "milliseconds")],
)
def test_milliseconds_do_not_leave_a_study_of_four_samples(tmp_path, what, message):
    import json

    import pandas as pd

    from brainweave import load_bids
    from brainweave.exceptions import StudyError

    folder, _ = bids_dataset(tmp_path)
    for path in folder.rglob("*_bold.json"):
        content = json.loads(path.read_text())
        if what in content:
            path.write_text(json.dumps({**content, what: 1000 * content[what]}))
    for path in folder.rglob("*_events.tsv"):
        table = pd.read_csv(path, sep="\t")
        if what in table:
            table[what] *= 1000
            table.to_csv(path, sep="\t", index=False)
    with pytest.raises(StudyError, match=message):
        load_bids(folder)


def test_a_mat_file_reads_no_other_file(tmp_path):
    import h5py

    from brainweave.exceptions import StudyError
    from brainweave.study.matlab import load_matlab

    (tmp_path / "private").write_bytes(np.arange(24.0).tobytes())
    with h5py.File(tmp_path / "gift.mat", "w") as file:
        outside = [(str(tmp_path / "private"), 0, 24 * 8)]
        file.create_dataset("data", (2, 3, 4), "f8", external=outside)
    with pytest.raises(StudyError, match="lies in other files"):
        load_matlab(tmp_path / "gift.mat")


def test_replacing_a_study_keeps_the_notes_beside_it(tmp_path):
    from brainweave.study import simulate_study

    study = simulate_study(n_subjects=2, n_voxels=30, n_runs=1, categories=2)
    study.save(tmp_path / "study")
    (tmp_path / "study" / "notes.txt").write_text("three months of work")
    (tmp_path / "study" / "results").mkdir()
    (tmp_path / "study" / "results" / "table.csv").write_text("1,2")
    study.subset(["01"]).save(tmp_path / "study", overwrite=True)
    assert (tmp_path / "study" / "notes.txt").read_text() == "three months of work"
    assert (tmp_path / "study" / "results" / "table.csv").is_file()


def test_a_flipped_byte_does_not_go_into_a_fit(tmp_path):
    from brainweave.exceptions import StudyError
    from brainweave.study import Study, simulate_study

    study = simulate_study(n_subjects=2, n_voxels=30, n_runs=1, categories=2)
    study.save(tmp_path / "study")
    path = tmp_path / "study" / "sub-01.npy"
    content = bytearray(path.read_bytes())
    content[-1] ^= 64
    path.write_bytes(content)
    with pytest.raises(StudyError, match=r"sub-01.npy' was edited or damaged"):
        Study.open(tmp_path / "study")
