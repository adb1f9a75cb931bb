"""fit, transform and add-subject, end to end."""

import os
import re
import tomllib
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from numpy.testing import assert_allclose

import brainweave as bw


def test_fit_gives_the_model_of_the_library(study, model):
    loaded, data = bw.load(model), bw.Study.open(study)
    want = bw.PaperGDM(2, energy=0.6).fit(data)
    X = [s.samples for s in data]
    for a, b in zip(loaded.transform(X), want.transform(X), strict=True):
        assert_allclose(a, b, rtol=0, atol=1e-10)
    made = bw.describe(model)["provenance"]
    assert made["subjects"] == ["01", "02", "03", "04"]
    assert made["command"] == "brainweave fit"


def test_fit_writes_a_configuration_that_gives_the_same_bytes_of_maps(
    study, model, tmp_path, call
):
    config = model.with_suffix(".toml")
    kept = tomllib.loads(config.read_text())["fit"]
    assert kept["method"] == "paper-gdm"
    assert 'kernel="linear"' in kept["param"]
    assert kept["n_components"] == "2"
    again = tmp_path / "again.safetensors"
    call("fit", "--config", config, "-o", again, "-q")
    a, b = bw.load(model), bw.load(again)
    for one, two in zip(a.maps_, b.maps_, strict=True):
        assert_allclose(one.weights, two.weights, rtol=0, atol=0)


def test_options_win_over_the_configuration(study, tmp_path, call):
    config = tmp_path / "study.toml"
    config.write_text(
        f'[fit]\nstudy = "{study}"\nmethod = "paper-gdm"\nparam = ["energy=0.9"]\n'
        'n-components = "2"\n'
        "[compare]\nhalves = 'run'\n"
    )
    out = tmp_path / "m.safetensors"
    call("fit", "--config", config, "--param", "energy=0.5", "-o", out, "-q")
    params = bw.load(out).get_params()
    assert params["energy"] == 0.5
    assert params["n_components"] == 2


@pytest.mark.parametrize(
    ("options", "cls"),
    [
        (("--method", "srm", "--match", "truncate", "--n-components", 2), "SRM"),
        (
            (
                *("--method", "gdm", "--param", "kernel=gaussian"),
                *("--param", "kernel_params={hp=900.0}"),
            ),
            "GDM",
        ),
        (
            (
                *("--method", "regularized-hyperalignment", "--match", "average"),
                *("--param", "alpha=0.9"),
            ),
            "RegularizedHyperalignment",
        ),
    ],
)
@pytest.mark.filterwarnings("ignore")
def test_every_kind_of_option_reaches_the_aligner(study, tmp_path, call, options, cls):
    out = tmp_path / "m.safetensors"
    call("fit", study, "-o", out, "-q", *options)
    model = bw.load(out)
    assert type(model).__name__ == cls
    params = model.get_params()
    if "kernel_params={hp=900.0}" in options:
        assert params["kernel_params"] == {"hp": 900.0}
    if cls.startswith("Regularized"):
        assert params["alpha"] == 0.9
        assert len(model.shared_response_) == 3  # one sample per category


def test_transform_writes_shared_features_with_labels(study, model, tmp_path, call):
    shown, _ = call("transform", model, study, tmp_path / "shared")
    assert "2 shared features" in shown
    shared, data = bw.Study.open(tmp_path / "shared"), bw.Study.open(study)
    want = bw.load(model).transform([s.samples for s in data])
    for a, b, subject in zip(shared, want, data, strict=True):
        assert_allclose(a.data(), b, rtol=0, atol=1e-12)
        assert a.labels.tolist() == subject.labels.tolist()
    assert (tmp_path / "shared" / "brainweave.toml").is_file()


def test_add_subject_joins_without_changing_the_others(study, tmp_path, call):
    three = tmp_path / "three"
    call(
        *("convert", study, three, "-q", "--participant-label", "01"),
        *("--participant-label", "02", "--participant-label", "04"),
    )
    small, large = tmp_path / "m.safetensors", tmp_path / "n.safetensors"
    how = ("--method", "paper-gdm", "--n-components", 2, "--param", "energy=0.6")
    call("fit", three, "-o", small, *how, "-q")
    shown, _ = call("add-subject", small, study, "-o", large, "-q")
    assert "joined: 03" in shown
    before, after = bw.load(small), bw.load(large)
    assert after.n_subjects_ == 4
    for a, b in zip(before.maps_, after.maps_, strict=False):
        assert_allclose(a.weights, b.weights, rtol=0, atol=0)
    new = bw.Study.open(study)["03"]
    want = before.fit_new_subject(new).transform(new.data())
    (got,) = after.transform([new.data()], [3])
    assert_allclose(got, want, rtol=0, atol=1e-8)
    assert bw.describe(large)["provenance"]["subjects"] == ["01", "02", "04", "03"]
    _, error = call("add-subject", large, study, code=2)
    assert "already in the model" in error


# -- who is who ------------------------------------------------------------------------


def test_a_model_without_ids_is_refused(study, tmp_path, call):
    data = bw.Study.open(study).subset(subjects=["04", "02", "01"])
    nameless, out = tmp_path / "nameless.safetensors", tmp_path / "shared"
    X, y = [s.samples for s in data], [s.labels for s in data]
    bw.save(bw.PaperGDM(2, energy=0.6).fit(X, y), nameless)
    for command in (
        ("transform", nameless, study, out),
        ("add-subject", nameless, study, "-o", tmp_path / "n.safetensors"),
        ("report", tmp_path / "r.html", "--study", study, "--model", nameless),
    ):
        _, said = call(*command, code=2)
        assert "does not say who its 3 subjects are" in said
        assert "Fit it on a Study" in said
    assert not out.exists()


def test_a_model_that_was_joined_has_the_fingerprint_of_no_study(study, tmp_path, call):
    small, out = tmp_path / "m.safetensors", tmp_path / "n.safetensors"
    data = bw.Study.open(study)
    bw.save(bw.GDM(2).fit(data.subset(subjects=["04", "02", "01"])), small)
    stdout, _ = call("add-subject", small, study, "-o", out, "-q")
    assert "joined: 03" in stdout
    assert bw.load(out).ids_ == ["04", "02", "01", "03"]
    made = bw.describe(out)["provenance"]
    assert "study_fingerprint" not in made
    assert made["joined_from"] == data.fingerprint()


def test_transform_matches_a_python_model_by_id_whatever_the_order(
    study, tmp_path, call
):
    data, path = bw.Study.open(study), tmp_path / "m.safetensors"
    fitted = bw.PaperGDM(2, energy=0.6).fit(
        data.subset(subjects=["04", "02", "01", "03"])
    )
    bw.save(fitted, path)
    call("transform", path, study, tmp_path / "shared", "-q")
    shared = bw.Study.open(tmp_path / "shared")
    for id, position in (("01", 2), ("04", 0)):
        want = fitted.maps_[position].transform(data[id].data())
        assert_allclose(shared[id].data(), want, rtol=0, atol=1e-9)


def test_files_say_which_study_they_came_from(study, model, tmp_path, call):
    data = bw.Study.open(study)
    assert bw.describe(model)["provenance"]["study_fingerprint"] == data.fingerprint()
    made = tomllib.loads((study / "brainweave.toml").read_text())["made"]
    assert made["study_fingerprint"] == data.fingerprint()
    assert set(made["versions"]) >= {"python", "brainweave", "numpy"}
    call("transform", model, study, tmp_path / "shared", "-q")
    made = tomllib.loads((tmp_path / "shared" / "brainweave.toml").read_text())["made"]
    assert made["source_fingerprint"] == data.fingerprint()
    assert made["model_fingerprint"] == data.fingerprint()


@pytest.mark.parametrize(
    "command",
    [
        ("fit", "{study}", "-o", "{bad}/m.safetensors"),
        ("transform", "{model}", "{study}", "{bad}/shared"),
        ("add-subject", "{model}", "{study}", "-o", "{bad}/m.safetensors"),
        ("convert", "{study}", "{bad}/st"),
        ("report", "{bad}/r.html", "--study", "{study}"),
        ("demo", "{bad}/demo"),
        ("compare", "{study}", "-o", "{bad}/e"),
    ],
    ids=lambda c: " ".join(c[::3]),
)
def test_an_unwritable_target_is_found_before_any_work(
    study, model, call, monkeypatch, command
):
    from brainweave.study.study import Subject

    def read(self):
        raise AssertionError("the voxels were read")

    monkeypatch.setattr(Subject, "data", read)
    filled = [c.format(study=study, model=model, bad="/proc") for c in command]
    _, said = call(*filled, "-q", code=1)
    assert "/proc" in said


def test_a_config_that_cannot_be_replaced_is_found_before_any_work(
    study, tmp_path, call
):
    (tmp_path / "m.toml").mkdir()
    _, said = call("fit", study, "-o", tmp_path / "m.safetensors", code=2)
    assert "m.toml' is a folder" in said


# -- which samples aligned -------------------------------------------------------------


class _Map:
    """A map that knows the first two of four samples."""

    signatures = True

    def took_part(self, samples, *, name):
        return np.array([True, True, False, False])


@pytest.mark.parametrize(
    ("model", "map_", "want"),
    [
        (bw.GDM(), _Map(), [1, 1, 0, 0]),
        (bw.NoAlignment(), _Map(), [0, 0, 0, 0]),
    ],
    ids=["some", "none"],
)
def test_a_model_knows_the_samples_that_aligned(model, map_, want):
    model.maps_, model.n_subjects_ = [map_], 1
    (got,) = model.took_part([np.zeros((4, 3))])
    assert got.astype(int).tolist() == want


def test_a_parameter_reaches_the_model(study, tmp_path, call):
    out, scale = tmp_path / "m.safetensors", ("--param", 'scale="unit"')
    call("fit", study, "-o", out, "--n-components", 2, *scale, "-q")
    loaded, data = bw.load(out), bw.Study.open(study)
    assert_allclose(loaded.scale_, bw.GDM(2, scale="unit").fit(data).scale_)
    kept = tomllib.loads(out.with_suffix(".toml").read_text())["fit"]
    assert 'scale="unit"' in kept["param"]
    _, said = call("fit", study, "-o", out, "--param", "scale=all", "-q", code=2)
    assert "scale" in said
    options = ("--method", "srm", *scale)
    _, said = call("fit", study, "-o", out, *options, "-q", code=2)
    assert "srm has no parameter 'scale'" in said


# -- who and what does not fit ---------------------------------------------------------


def test_transform_of_a_stranger_names_who_is_known(study, tmp_path, call):
    people = bw.Study.open(study)
    people.subset(subjects=people.ids[:3]).save(tmp_path / "three")
    out = tmp_path / "m.safetensors"
    call("fit", tmp_path / "three", "-o", out, "--n-components", 2, "-q")
    _, said = call("transform", out, study, tmp_path / "shared", code=2)
    assert "does not know subject '04'; it has 01, 02, 03" in said
    assert not (tmp_path / "shared").exists()
    _, said = call("add-subject", out, study, "--subject", "sub-02", code=2)
    assert "Subject '02' is already in the model" in said


def test_people_without_aligning_data_are_mapped_zero_shot(tmp_path, call):
    rng, y = np.random.default_rng(0), np.tile(np.arange(4), 12)
    centroids = rng.normal(size=(4, 30))
    people = bw.Study(
        bw.Subject(id, centroids[y] + rng.normal(size=(48, 30)), labels=y.tolist())
        for id in ("01", "02", "03", "04")
    )
    people.save(tmp_path / "all")
    people[:3].save(tmp_path / "three")
    path, out = tmp_path / "m.safetensors", tmp_path / "shared"
    how = ("--n-components", 2, "--param", "place_shrinkage=0.1", "-q")
    call("fit", tmp_path / "three", "-o", path, *how)
    said, _ = call("transform", path, tmp_path / "all", out, "--new", "-q")
    told = "zero-shot: mapped by the shared map, without aligning data"
    assert f"04: {told}" in said
    assert f'new_subjects_are = "{told}"' in (out / "brainweave.toml").read_text()
    want = bw.load(path).shared_map_.transform(people["04"])
    assert_allclose(bw.Study.open(out)["04"].data(), want, atol=1e-12)
    said, _ = call("info", out)
    assert f"sub-04; {told}" in said
    said, _ = call("info", path)
    assert "place_: A map shared by all subjects over 30 places (equal col" in said
    call("fit", tmp_path / "three", "-o", path, "--param", "place_shrinkage=inf", "-q")
    _, said = call("transform", path, tmp_path / "all", tmp_path / "b", "--new", code=2)
    assert "No shared map" in said


def test_the_map_of_one_subject_is_no_model(model, study, tmp_path, call):
    path = tmp_path / "map.safetensors"
    bw.save(bw.load(model).maps_[0], path)
    _, said = call("transform", path, study, tmp_path / "shared", code=2)
    assert "holds the map of one subject, not a model" in said


def locked(n_subjects=3, stimuli=False, n=12):
    """Subjects who saw the same, on voxels of their own."""
    rng = np.random.default_rng(0)
    signal, subjects = rng.normal(size=(n, 3)), []
    for i in range(n_subjects):
        X = signal @ rng.normal(size=(3, 8)) + 0.1 * rng.normal(size=(n, 8))
        ids = [f"s{t}" for t in range(n)] if stimuli else None
        subjects.append(bw.Subject(f"0{i + 1}", X, labels=list("abc") * 4, stimuli=ids))
    return bw.Study(subjects)


@pytest.mark.parametrize("graph", ["time", "labels+time"])
@pytest.mark.parametrize("stimuli", [True, False])
def test_graphs_of_time_join_by_stimuli_or_rows(tmp_path, call, graph, stimuli):
    whole = locked(stimuli=stimuli)
    whole.subset(subjects=["01", "02"]).save(tmp_path / "two")
    whole.save(tmp_path / "three")
    out = tmp_path / "m.safetensors"
    call("fit", tmp_path / "two", "-o", out, "--graph", graph, "--n-components", 2)
    want = bw.GDM(2, graph=graph).fit(whole.subset(subjects=["01", "02"]))
    assert_allclose(bw.load(out).eigenvalues_, want.eigenvalues_)
    call("add-subject", out, tmp_path / "three")
    joined = want.fit_new_subject(whole["03"])
    assert_allclose(bw.load(out).maps_[2].weights, joined.weights, atol=1e-10)


def test_a_part_of_the_rows_joins_by_their_numbers(tmp_path, call):
    whole = locked()
    whole.subset(subjects=["01", "02"]).save(tmp_path / "two")
    first = whole["03"].select(np.arange(9))
    bw.Study([first]).save(tmp_path / "new")
    out = tmp_path / "m.safetensors"
    call("fit", tmp_path / "two", "-o", out, "--graph", "time", "--n-components", 2)
    call("add-subject", out, tmp_path / "new")
    want = bw.GDM(2, graph="time").fit(whole.subset(subjects=["01", "02"]))
    joined = want.fit_new_subject(first, list(range(9)))
    assert_allclose(bw.load(out).maps_[2].weights, joined.weights, atol=1e-10)


def test_labels_reach_the_parcels_that_a_subject_joins(tmp_path, call):
    import nibabel as nib

    whole = bw.simulate_study(n_subjects=3, n_voxels=60, categories=3, n_runs=2)
    whole.subset(subjects=["01", "02"]).save(tmp_path / "two")
    whole.save(tmp_path / "three")
    space = whole["01"].space
    atlas = np.zeros(space.mask.shape, np.int16)
    atlas[: space.mask.shape[0] // 2] = 1
    atlas[space.mask.shape[0] // 2 :] = 2
    nib.Nifti1Image(atlas, space.affine).to_filename(tmp_path / "atlas.nii.gz")
    out = tmp_path / "m.safetensors"
    parcels = ("--parcels", tmp_path / "atlas.nii.gz", "--n-components", 2, "-q")
    call("fit", tmp_path / "two", "-o", out, *parcels)
    call("add-subject", out, tmp_path / "three", "-q")
    assert bw.load(out).ids_ == ["01", "02", "03"]


@pytest.mark.parametrize(
    ("parcels", "said"),
    [
        ("schaefer-100", "atlas.nii.gz"),
        ("schaefer-7", "the atlas 'schaefer-7' (no 7)"),
        ("nowhere.nii", "nowhere.nii"),
    ],
)
def test_atlases_come_from_files_or_from_nilearn(
    study, tmp_path, call, monkeypatch, parcels, said
):
    (tmp_path / "atlas.nii.gz").write_text("x")

    def fetch(n_rois, verbose):
        if n_rois == 7:
            raise ValueError("no 7")
        return SimpleNamespace(maps=str(tmp_path / "atlas.nii.gz"))

    monkeypatch.setattr("nilearn.datasets.fetch_atlas_schaefer_2018", fetch)
    out = ("-o", tmp_path / "m.safetensors")
    assert said in call("fit", study, *out, "--parcels", parcels, code=1)[1]


def test_the_tour_of_the_readme_gives_features_that_may_be_scored(
    study, tmp_path, call, monkeypatch
):
    readme = (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    os.symlink(study, "STUDY")
    for name in ("fit", "transform"):
        (line,) = re.findall(
            rf"^brainweave ({name} .*?STUDY.*?) *(?:#.*)?$", readme, re.M
        )
        shown, _ = call(*line.split(), "-q")
    data, shared = bw.Study.open(study), bw.Study.open("SHARED")
    aligning, other = data.split_halves("run")
    n = sum(s.n_samples for s in aligning)
    assert f"{n} of {sum(s.n_samples for s in data)} samples took part" in shown
    model = bw.load("model.safetensors")
    for a, b, s in zip(shared, model.transform(other), other, strict=True):
        assert_allclose(a.data(), b, rtol=0, atol=1e-12)
        assert a.labels.tolist() == s.labels.tolist()
        assert not a.aligned.any()
    call("compare", "SHARED", "--method", "none", "-q", "--no-report")


def test_tables_say_which_samples_aligned(study, tmp_path, call):
    model, shared = tmp_path / "m.safetensors", tmp_path / "shared"
    call("fit", study, "-o", model, "--halves", "category", "-q")
    _, said = call("transform", model, study, shared, "-q")
    assert said == ""
    data = bw.Study.open(study)
    aligning, _ = data.split_halves("category")
    for s, a in zip(data, aligning, strict=True):
        aligned = bw.Study.open(shared)[s.id].aligned
        assert aligned.sum() == a.n_samples
        rows = s.data()[aligned]
        assert_allclose(rows, a.data(), rtol=0, atol=0)
    flags = bw.load(model).took_part(data)
    place = ("-o", tmp_path / "c")
    _, said = call("compare", shared, "--method", "none", "-q", *place, code=2)
    assert "circular" in said
    # features of features
    call("fit", shared, "-o", model, "--method", "none", "-q")
    call("transform", model, shared, tmp_path / "again", "-q")
    for s, want in zip(bw.Study.open(tmp_path / "again"), flags, strict=True):
        assert s.aligned.tolist() == want.tolist()


def test_features_of_aligning_samples_alone_are_warned_of(study, tmp_path, call):
    model = tmp_path / "m.safetensors"
    for k, more in enumerate([(), ("--match", "average")]):
        call("fit", study, "-o", model, "-q", *more)
        _, said = call("transform", model, study, tmp_path / f"shared{k}", "-q")
        assert "samples took part in the alignment, so that nothing can be" in said
        assert "brainweave fit --halves run" in said
    words = ("transform", model, study, tmp_path / "new", "--only-new")
    _, said = call(*words, code=2)
    assert "samples of subject '01' took part in the alignment. Fit on a part" in said
    assert not (tmp_path / "new").exists()
    _, said = call("fit", study, "--halves", "odd", "-o", model, code=2)
    assert (
        "or one boolean mask per subject; got 'odd'. On the command line: --halves."
        in said
    )


def test_a_subject_may_join_with_half_of_its_samples(study, tmp_path, call):
    three, model = tmp_path / "three", tmp_path / "m.safetensors"
    labels = [w for i in ("01", "02", "04") for w in ("--participant-label", i)]
    call("convert", study, three, "-q", *labels)
    call("fit", three, "-o", model, "--halves", "run", "-q")
    call("add-subject", model, study, "--halves", "run", "-q")
    data = bw.Study.open(study)
    for s, flags in zip(data, bw.load(model).took_part(data), strict=True):
        assert 0 < flags.sum() < s.n_samples


def test_help_and_messages_read_as_meant(study, tmp_path, call):
    shown, _ = call("compare", "--help")
    assert "split_matched" not in shown
    nothing = bw.Study([bw.Subject(i, np.eye(6, 9)) for i in ("01", "02")])
    nothing.save(tmp_path / "st")
    _, said = call("fit", tmp_path / "st", "-o", tmp_path / "m.safetensors", code=2)
    assert "use graph='time'. On the command line: --graph." in said
