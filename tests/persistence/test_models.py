"""Model files: what is saved comes back, and anything else is refused."""

import json
import pickle
import subprocess
import sys

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from safetensors import SafetensorError
from sklearn.base import clone

import brainweave as bw
from brainweave import GDM, load, save
from brainweave._core.exceptions import InputError, ModelFileError
from brainweave.aligners.maps import BasisMap, SubjectMap
from brainweave.aligners.piecewise.parcelwise import Parcelwise
from brainweave.aligners.piecewise.searchlight import Searchlight
from brainweave.aligners.srm.robust import RobustSRM
from brainweave.aligners.srm.semisupervised import SemiSupervisedSRM
from brainweave.persistence import codec
from brainweave.persistence.codec import read_container, write_container
from brainweave.persistence.models import register_aligner
from brainweave.study import Study, Subject
from evaluation_studies import three_subjects


def make_data(sizes=(40, 50, 10), seed=0, dtype=float):
    rng = np.random.default_rng(seed)
    centroids = rng.normal(size=(4, 5))
    y = [[0, 1, 2, 3] * 6, [3, 2, 1, 0] * 6, [0, 0, 1, 1, 2, 2, 3, 3] * 3][: len(sizes)]
    X = [
        centroids[labels] @ rng.normal(size=(5, v)) + 0.1 * rng.normal(size=(24, v))
        for labels, v in zip(y, sizes, strict=True)
    ]
    names = np.array(["cat", "dog", "été", "x"], dtype=object)
    return [x.astype(dtype) for x in X], [names[labels] for labels in y]


SETTINGS = {
    "linear": {},
    "gaussian": {"kernel": "gaussian", "kernel_params": {"hp": 100}},
    "mixed": {"kernel": ["linear", "sigmoid", "quadratic"]},
    "raw quadratic": {"kernel": "quadratic", "standardize": False},
    "energies": {"energy": [0.9, 0.7, 1.0]},
    "auto": {"n_components": "auto"},
}


@pytest.mark.parametrize("settings", SETTINGS.values(), ids=SETTINGS)
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_a_loaded_model_maps_as_the_saved_one(tmp_path, settings, dtype):
    X, y = make_data(dtype=dtype)
    kind = bw.PaperGDM if "energy" in settings else bw.GDM
    model = kind(**{"n_components": 3, **settings}).fit(X, y)
    loaded = bw.load(bw.save(model, tmp_path / "m.safetensors"))
    tol = 1000 * np.finfo(dtype).eps
    for a, b in zip(model.transform(X), loaded.transform(X), strict=True):
        assert a.dtype == b.dtype
        assert_allclose(b, a, rtol=0, atol=tol)
    assert loaded.get_params() == model.get_params()
    assert_array_equal(loaded.eigenvalues_, model.eigenvalues_)
    assert loaded.graph_.groups[0].names == model.graph_.groups[0].names
    assert loaded.is_unique_ is model.is_unique_
    columns = ["graph_fit", "agreement", "variance_1"]
    assert_allclose(
        loaded.component_summary()[columns], model.component_summary()[columns]
    )


@pytest.mark.parametrize("kernel", ["linear", "gaussian"])
def test_a_new_subject_joins_a_loaded_model(tmp_path, kernel):
    X, y = make_data()
    model = bw.GDM(3, kernel=kernel).fit(X[:2], y[:2])
    loaded = bw.load(bw.save(model, tmp_path / "m.safetensors"))
    wanted = model.fit_new_subject(X[0][::-1], y[0][::-1])
    got = loaded.fit_new_subject(X[0][::-1], y[0][::-1])
    assert_allclose(got.transform(X[0]), wanted.transform(X[0]), atol=1e-10)
    again = bw.load(bw.save(got, tmp_path / "map.safetensors"))
    assert isinstance(again, SubjectMap)
    assert_allclose(again.transform(X[0]), wanted.transform(X[0]), atol=1e-10)
    assert again.objective_history == got.objective_history


def test_linear_maps_keep_patterns_and_go_back_to_voxels(tmp_path):
    X, y = make_data()
    model = bw.PaperGDM(3, energy=0.82).fit(X, y)
    loaded = bw.load(bw.save(model, tmp_path / "m.safetensors"))
    shared = model.transform(X)
    for a, b in zip(
        model.inverse_transform(shared), loaded.inverse_transform(shared), strict=True
    ):
        assert_allclose(b, a, atol=1e-12)
    assert "weights" not in vars(BasisMap(model.bases_[0], model.coef_[0]))


@pytest.mark.parametrize("as_matrix", [False, True])
def test_graphs_given_as_objects_or_matrices_come_back(tmp_path, as_matrix):
    X, y = make_data()
    graph = bw.label_graph(y) + 0.5 * bw.time_graph([range(24)] * 3)
    graph = graph.to_sparse() if as_matrix else graph
    model = bw.GDM(3, graph=graph).fit(X)
    loaded = bw.load(bw.save(model, tmp_path / "m.safetensors"))
    got, want = loaded.graph_.to_sparse(), model.graph_.to_sparse()
    assert_allclose(got.toarray(), want.toarray(), atol=1e-15)
    if as_matrix:
        edges = np.asarray(want.toarray()[:24])
        a = model.fit_new_subject(X[0], edges=edges).transform(X[0])
        b = loaded.fit_new_subject(X[0], edges=edges).transform(X[0])
        assert_allclose(b, a, atol=1e-10)


def test_brain_spaces_come_back(tmp_path):
    nib = pytest.importorskip("nibabel")
    from brainweave.study.spaces import VolumeSpace

    X, y = make_data((12, 12))
    mask = np.zeros((3, 4, 2), np.uint8)
    mask[:, :2] = 1
    space = VolumeSpace(nib.Nifti1Image(mask, np.diag([2.0, 2, 2, 1])))
    study = Study(
        Subject(str(i), x, labels=labels, space=space)
        for i, (x, labels) in enumerate(zip(X, y, strict=True))
    )
    model = bw.GDM(2).fit(study)
    loaded = bw.load(bw.save(model, tmp_path / "m.safetensors"))
    assert loaded.maps_[1].space == space
    assert_allclose(
        loaded.maps_[1].to_image(0).get_fdata(), model.maps_[1].to_image(0).get_fdata()
    )
    stored = read_container(tmp_path / "m.safetensors").arrays
    assert [name for name in stored if "space" in name] == ["maps_.0.space.0"]


def test_the_same_model_gives_the_same_bytes(tmp_path):
    X, y = make_data()
    model = bw.GDM(3, kernel=["linear", "gaussian", "linear"]).fit(X, y)
    first = bw.save(model, tmp_path / "a.safetensors", provenance={"n": [1, 2.5]})
    second = bw.save(
        bw.load(first), tmp_path / "b.safetensors", provenance={"n": [1, 2.5]}
    )
    assert first.read_bytes() == second.read_bytes()


def test_other_tools_open_the_file(tmp_path):
    from safetensors import safe_open

    X, y = make_data()
    model = bw.GDM(3).fit(X, y)
    path = bw.save(model, tmp_path / "m.safetensors")
    with safe_open(path, "np") as file:
        assert_allclose(
            file.get_tensor("maps_.1.weights"), model.maps_[1].weights, atol=1e-12
        )
        _, text = file.metadata()["brainweave"].split("\n")
        document = json.loads(text)
        assert document["format"] == "brainweave-model"
        assert document["model"]["aligner"]["class"] == "GDM"


def test_arrays_are_mapped_and_the_file_is_never_changed(tmp_path):
    X, y = make_data()
    path = bw.save(bw.GDM(3).fit(X, y), tmp_path / "m.safetensors")
    before = path.read_bytes()
    weights = bw.load(path).maps_[0].weights
    base = weights
    while isinstance(base, np.ndarray) and not isinstance(base, np.memmap):
        base = base.base
    assert isinstance(base, np.memmap)
    weights[:] = 7
    assert path.read_bytes() == before


def test_provenance_and_description(tmp_path):
    X, y = make_data()
    made = {"subjects": ["01", "02", "03"], "when": "2020", "nested": {"a": (1, None)}}
    path = bw.save(
        bw.GDM(3, kernel="gaussian").fit(X, y),
        tmp_path / "m.safetensors",
        provenance=made,
    )
    info = bw.describe(path)
    assert info["provenance"] == made
    assert info["kind"] == "model"
    assert info["brainweave"] == bw.__version__
    assert info["n_bytes"] == path.stat().st_size
    assert "10 to 50 voxels, 3 shared features, gaussian kernel" in info["what"]
    assert info["facts"]["kernel"] == "gaussian"


LOCKED = {
    "Hyperalignment": bw.Hyperalignment(),
    "some dimensions": bw.Hyperalignment(2, max_iter=3),
    "RegularizedHyperalignment": bw.RegularizedHyperalignment(alpha=0.9),
    "KernelHyperalignment": bw.KernelHyperalignment(3),
    "SVDHyperalignment": bw.SVDHyperalignment(3),
    "SRM": bw.SRM(3, random_state=0, tol=0, max_iter=3),
    "DetSRM": bw.DetSRM(3, random_state=0, tol=0, max_iter=3),
    "DetSRM, less energy": bw.DetSRM(3, energy=0.9, random_state=0, tol=0, max_iter=2),
    "RobustSRM": RobustSRM(3, random_state=0, tol=0, max_iter=3, lam=0.5),
    "RobustSRM, linear": RobustSRM(3, random_state=0, lam=np.inf, tol=0, max_iter=2),
    "NoAlignment": bw.NoAlignment(),
}


@pytest.mark.parametrize("aligner", LOCKED.values(), ids=LOCKED)
def test_every_aligner_comes_back(tmp_path, aligner):
    X, _ = make_data((30, 30, 30))
    model = clone(aligner).fit(X)
    loaded = bw.load(bw.save(model, tmp_path / "m.safetensors"))
    assert type(loaded) is type(model)
    assert loaded.get_params() == model.get_params()
    shared = model.transform(X)
    for a, b in zip(shared, loaded.transform(X), strict=True):
        assert_allclose(b, a, rtol=0, atol=1e-10)
    if aligner.get_params().get("kernel", "linear") == "linear":
        pairs = model.inverse_transform(shared), loaded.inverse_transform(shared)
        for a, b in zip(*pairs, strict=True):
            assert_allclose(b, a, rtol=0, atol=1e-8)
    new = X[0] + np.random.default_rng(3).normal(size=X[0].shape)
    assert_allclose(
        loaded.fit_new_subject(new).transform(new),
        model.fit_new_subject(new).transform(new),
        rtol=0,
        atol=1e-8,
    )
    again = bw.save(loaded, tmp_path / "again.safetensors")
    assert again.read_bytes() == (tmp_path / "m.safetensors").read_bytes()


def test_a_classifier_comes_back_with_its_model(tmp_path):
    X, y = make_data((30, 30, 30))
    y = [y[0]] * 3
    model = SemiSupervisedSRM(3, random_state=0, tol=0, max_iter=3).fit(X, y)
    loaded = bw.load(bw.save(model, tmp_path / "m.safetensors"))
    for a, b in zip(model.predict(X), loaded.predict(X), strict=True):
        assert_array_equal(a, b)
    assert loaded.classes_.dtype == model.classes_.dtype
    new = X[0] + 0.1
    assert_allclose(
        loaded.fit_new_subject(new, y[0]).transform(new),
        model.fit_new_subject(new, y[0]).transform(new),
        rtol=0,
        atol=1e-8,
    )


COORDINATES = np.arange(30.0)[:, None]
PARCELS = np.repeat([0, 1, 2, 3], [5, 10, 14, 1])
LOCAL = {
    "Parcelwise": Parcelwise(bw.DetSRM(2, random_state=0, tol=0, max_iter=2), PARCELS),
    "Parcelwise GDM": Parcelwise(bw.GDM(2), [PARCELS] * 3, progress=print),
    "Parcelwise, kernel": Parcelwise(bw.GDM(2, kernel="gaussian"), PARCELS),
    "Searchlight": Searchlight(bw.Hyperalignment(), 4, coordinates=COORDINATES),
}


@pytest.mark.parametrize("aligner", LOCAL.values(), ids=LOCAL)
@pytest.mark.filterwarnings("ignore::brainweave._core.exceptions.SkippedWarning")
def test_aligners_of_pieces_come_back(tmp_path, capsys, aligner):
    X, y = make_data((30, 30, 30))
    y = [y[0]] * 3
    model = clone(aligner).fit(X, y)
    loaded = bw.load(bw.save(model, tmp_path / "m.safetensors"))
    assert type(loaded) is type(model)
    for a, b in zip(model.transform(X), loaded.transform(X), strict=True):
        assert_allclose(b, a, rtol=0, atol=1e-10)
    assert loaded.skipped_ == model.skipped_
    new = X[0] + np.random.default_rng(3).normal(size=X[0].shape)
    options = {}
    if isinstance(aligner.get_params(deep=False).get("parcels"), list):
        options["parcels"] = PARCELS
    assert_allclose(
        loaded.fit_new_subject(new, y[0], **options).transform(new),
        model.fit_new_subject(new, y[0], **options).transform(new),
        rtol=0,
        atol=1e-8,
    )


def test_an_atlas_image_comes_back(tmp_path):
    nib = pytest.importorskip("nibabel")
    from brainweave.study.spaces import VolumeSpace

    X, y = make_data((12, 12))
    space = VolumeSpace(nib.Nifti1Image(np.ones((3, 2, 2), np.uint8), np.eye(4)))
    atlas = nib.Nifti1Image(
        np.arange(12, dtype=np.int16).reshape(3, 2, 2) // 6 + 1, np.eye(4)
    )
    study = Study(
        Subject(str(i), x, labels=labels, space=space)
        for i, (x, labels) in enumerate(zip(X, y, strict=True))
    )
    model = Parcelwise(bw.GDM(2), atlas).fit(study)
    loaded = bw.load(bw.save(model, tmp_path / "m.safetensors"))
    assert_array_equal(loaded.parcels.get_fdata(), atlas.get_fdata())
    want = model.fit_new_subject(study[0]).transform(X[0])
    assert_allclose(loaded.fit_new_subject(study[0]).transform(X[0]), want, atol=1e-8)


@register_aligner
class TwoInOne(bw.GDM):
    """An aligner of somebody else that holds another aligner."""

    _stored = {"inner_": bw.GDM, "notes_": dict}

    def fit(self, X, y=None):
        super().fit(X, y)
        self.inner_ = bw.GDM(2).fit(X, y)
        self.notes_ = {"a": np.arange(3), 2: float("nan"), "t": (1, "x")}
        return self


def test_nested_and_registered_aligners_come_back(tmp_path):
    X, y = make_data()
    model = TwoInOne(3).fit(X, y)
    loaded = bw.load(bw.save(model, tmp_path / "m.safetensors"))
    assert type(loaded) is TwoInOne
    for a, b in zip(model.inner_.transform(X), loaded.inner_.transform(X), strict=True):
        assert_allclose(b, a, atol=1e-12)
    assert np.isnan(loaded.notes_[2])
    assert loaded.notes_["t"] == (1, "x")
    assert_array_equal(loaded.notes_["a"], [0, 1, 2])


# -- what cannot be saved --------------------------------------------------------------


def test_what_cannot_be_saved_is_named(tmp_path):
    X, y = make_data()
    path = tmp_path / "m.safetensors"
    model = bw.GDM(3, kernel=lambda A, B: A @ B.T).fit(X, y)
    with pytest.raises(ModelFileError, match="kernel is a function"):
        bw.save(model, path)
    with pytest.raises(ModelFileError, match="function as its kernel"):
        bw.save(model.bases_[0], path)
    with pytest.raises(ModelFileError, match="GDM is not fitted yet"):
        bw.save(bw.GDM(), path)
    fitted = bw.GDM(3).fit(X, y)
    fitted.extra_ = 3
    with pytest.raises(ModelFileError, match="does not declare its attribute extra_"):
        bw.save(fitted, path)
    del fitted.extra_
    odd = bw.GDM(3).fit(X, y).set_params(scale=object())
    with pytest.raises(ModelFileError, match=r"scale is a builtins\.object"):
        bw.save(odd, path)

    class Unknown(bw.GDM):
        pass

    with pytest.raises(ModelFileError, match="Unknown is not an aligner"):
        bw.save(Unknown(3).fit(X, y), path)
    with pytest.raises(TypeError, match="takes a fitted aligner"):
        bw.save(X, path)
    with pytest.raises(ModelFileError, match="known already"):
        register_aligner(type("GDM", (bw.GDM,), {}))
    assert list(tmp_path.iterdir()) == []


def test_wrong_targets_are_refused_and_leave_nothing(tmp_path):
    X, y = make_data()
    model = bw.GDM(3).fit(X, y)
    with pytest.raises(ModelFileError, match=r"\.safetensors, such as 'm\.safet"):
        bw.save(model, tmp_path / "m.npz")
    with pytest.raises(ModelFileError, match="cannot be written"):
        bw.save(model, tmp_path / "nowhere" / "m.safetensors")
    (tmp_path / "d.safetensors").mkdir()
    with pytest.raises(ModelFileError, match="cannot be written"):
        bw.save(model, tmp_path / "d.safetensors")
    assert [p.name for p in tmp_path.iterdir()] == ["d.safetensors"]


def test_a_failed_save_keeps_the_old_file(tmp_path):
    X, y = make_data()
    model = bw.GDM(3).fit(X, y)
    path = bw.save(model, tmp_path / "m.safetensors")
    before = path.read_bytes()
    other = bw.GDM(3).fit(X, y)
    X[0][:] = 1.0  # the weights are computed while writing, and refuse changed data
    with pytest.raises(InputError, match="was changed in place"):
        bw.save(other, path)
    assert path.read_bytes() == before
    assert [p.name for p in tmp_path.iterdir()] == ["m.safetensors"]


def test_a_full_disk_is_named(tmp_path, monkeypatch):
    X, y = make_data()
    model = bw.GDM(3).fit(X, y)

    def full(arrays, path, metadata):
        # what the library says of a small file system that is full
        said = "Error while serializing: I/O error: No space left on device"
        raise SafetensorError(f"{said} (os error 28)")

    monkeypatch.setattr(codec, "save_file", full)
    with pytest.raises(ModelFileError, match=r"cannot be written .*Free some space"):
        bw.save(model, tmp_path / "m.safetensors")
    assert list(tmp_path.iterdir()) == []


# -- what cannot be loaded -------------------------------------------------------------


def test_each_kind_of_wrong_file_is_named(tmp_path):
    from safetensors.numpy import save_file

    X, y = make_data()
    path = bw.save(bw.PaperGDM(3, energy=0.82).fit(X, y), tmp_path / "m.safetensors")
    content, wrong = path.read_bytes(), tmp_path / "wrong.safetensors"

    def refused(data, match):
        wrong.write_bytes(data)
        with pytest.raises(ModelFileError, match=match):
            bw.load(wrong)

    with pytest.raises(ModelFileError, match="There is no file"):
        bw.load(tmp_path / "none.safetensors")
    with pytest.raises(ModelFileError, match="cannot be read"):
        bw.load(tmp_path)
    refused(b"", "cut off")
    refused(pickle.dumps({"a": 1}), "is no model file")
    refused(content[:-1], "cut off")
    refused(content[:100], "cut off, appended to or damaged")
    refused(content + b"x", "appended to")
    flipped = bytearray(content)
    flipped[-1] ^= 1
    refused(bytes(flipped), "damaged: the checksum of its arrays")
    refused(content.replace(b"0.82", b"0.83", 1), "checksum of its description")
    refused(content.replace(b'"F64"', b'"F32"', 1), "damaged in its header")
    save_file({"a": np.zeros(2)}, wrong)
    with pytest.raises(ModelFileError, match="brainweave did not write it"):
        bw.load(wrong)


def test_other_versions_of_the_format_are_refused(tmp_path, monkeypatch):
    X, y = make_data()
    model, path = bw.GDM(3).fit(X, y), tmp_path / "m.safetensors"
    for version in (3, 1):
        monkeypatch.setattr(codec, "VERSION", version)
        bw.save(model, path)
        monkeypatch.undo()
        with pytest.raises(ModelFileError, match=f"has format version '{version}'"):
            bw.load(path)


def test_a_file_without_verification_opens_at_once(tmp_path):
    X, y = make_data()
    path = bw.save(bw.GDM(3).fit(X, y), tmp_path / "m.safetensors")
    content = path.read_bytes()
    place = content.index(X[0].mean(axis=0)[:1].tobytes())
    flipped = bytearray(content)
    flipped[place] ^= 1
    path.write_bytes(bytes(flipped))
    assert bw.load(path, verify=False).n_subjects_ == 3
    with pytest.raises(ModelFileError, match="checksum"):
        bw.load(path)


def rewritten(path, target, edit, arrays=None):
    """Write a file whose checksums are right, but whose document was edited."""
    read = read_container(path)
    document = json.loads(json.dumps(read.document))
    document.pop("arrays")
    values = {**read.arrays, **(arrays or {})}
    edit(document)
    write_container(target, document, values)
    return target


@pytest.mark.parametrize(
    ("edit", "arrays", "match"),
    [
        (lambda d: d["model"]["aligner"].update({"class": "os"}), {}, "does not know"),
        (lambda d: d["model"]["aligner"].update({"class": []}), {}, "does not know"),
        (lambda d: d["model"]["aligner"]["params"].update(x=1), {}, "does not take"),
        (lambda d: d["model"]["aligner"]["state"].update(fit_=1), {}, "name 'fit_'"),
        (lambda d: d["model"]["aligner"]["state"].update(transform=1), {}, "with the"),
        (lambda d: d["model"]["aligner"]["state"].pop("maps_"), {}, "no maps"),
        (lambda d: d["model"].update(aligner={"call": 1}), {}, "not have the entries"),
        (lambda d: d.update(model={"call": "os"}), {}, "unknown kind 'call'"),
        (lambda d: d.update(model=3), {}, "neither an aligner, a map"),
        (lambda d: None, {"maps_.0.mean": np.zeros(3)}, "of different voxels"),
        (lambda d: None, {"maps_.0.weights": np.zeros((40, 2))}, "different shapes"),
        (lambda d: None, {"maps_.0.weights": np.zeros(40)}, "1 dimensions where 2"),
        (lambda d: None, {"maps_.0.mean": np.zeros(40, int)}, "not an array of numb"),
        (
            lambda d: None,
            {"eigenvalues_": np.zeros(9)},
            r"eigenvalues_ has shape",
        ),
        (lambda d: None, {"group_sums_.0": np.zeros((9, 3))}, "sums of its groups"),
        (
            lambda d: None,
            {"graph_.groups.0.codes": np.full(72, 9)},
            "groups that do not ex",
        ),
        (
            lambda d: None,
            {"graph_.groups.0.codes": np.zeros(7, int)},
            "same 72 samples",
        ),
        (
            lambda d: None,
            {"graph_.groups.0.affinity": np.full((4, 4), np.nan)},
            "not finite",
        ),
    ],
)
def test_edited_files_with_right_checksums_are_refused(tmp_path, edit, arrays, match):
    X, y = make_data()
    path = bw.save(bw.GDM(3).fit(X, y), tmp_path / "m.safetensors")
    wrong = rewritten(path, tmp_path / "wrong.safetensors", edit, arrays)
    with pytest.raises(ModelFileError, match=match):
        bw.load(wrong)


def test_loading_imports_no_pickle_and_runs_no_code_of_the_file(tmp_path):
    X, y = make_data()
    path = bw.save(bw.GDM(3).fit(X, y), tmp_path / "m.safetensors")
    code = (
        "import sys, pickle, brainweave\n"
        "def no(*a, **k): raise SystemExit('unpickled')\n"
        "pickle.load = pickle.loads = pickle.Unpickler = no\n"
        f"print(brainweave.load({str(path)!r}).n_components_)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False
    )
    assert done.stdout.strip() == "3", done.stderr


def test_a_file_can_be_read_by_whom_the_folder_lets(tmp_path):
    X, y = make_data()
    plain = tmp_path / "plain.txt"
    plain.write_text("")
    path = bw.save(bw.GDM(3).fit(X, y), tmp_path / "m.safetensors")
    assert path.stat().st_mode == plain.stat().st_mode


def test_a_model_keeps_whose_it_is_and_what_it_was_fitted_on(tmp_path):
    X, y = make_data()
    ids = ["07", "03", "11"]
    study = Study(
        Subject(i, x, labels=known) for i, x, known in zip(ids, X, y, strict=True)
    )
    model = bw.GDM(3).fit(study)
    path = tmp_path / "m.safetensors"
    plain = bw.load(bw.save(model, path))
    assert plain.ids_ == ids
    assert plain.study_fingerprint is None
    made = {"study_fingerprint": study.fingerprint()}
    loaded = bw.load(bw.save(model, path, provenance=made))
    assert loaded.study_fingerprint == study.fingerprint()
    again = bw.load(bw.save(loaded, path))
    assert again.study_fingerprint == study.fingerprint()
    facts = bw.describe(path)["facts"]
    assert facts["subjects"] == "07, 03, 11"
    assert facts["study_fingerprint"] == study.fingerprint()
    assert bw.load(bw.save(bw.GDM(3).fit(X, y), path)).ids_ is None


def test_a_saved_model_knows_the_samples_that_made_it(tmp_path):
    X, y = three_subjects()
    fitted = GDM(3).fit([x[:30] for x in X], [known[:30] for known in y])
    model = load(save(fitted, tmp_path / "model.safetensors"))
    for m, x in zip(model.maps_, X, strict=True):
        assert m.took_part(x).tolist() == [True] * 30 + [False] * 10
