"""Files with right checksums and wrong content, and what cannot be stored."""

import copy
import json

import nibabel as nib
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import brainweave as bw
from brainweave._core.exceptions import InputError, ModelFileError
from brainweave.aligners.maps import WeightMap
from brainweave.persistence import codec
from brainweave.persistence.codec import read_container, write_container
from brainweave.study import Study, Subject
from brainweave.study.spaces import VolumeSpace

N = 24


def make_data(sizes=(30, 30, 30)):
    rng = np.random.default_rng(0)
    codes = np.repeat(np.arange(4), 6)
    centroids = rng.normal(size=(4, 5))
    X = [
        centroids[codes] @ rng.normal(size=(5, v)) + rng.normal(size=(N, v))
        for v in sizes
    ]
    return X, [codes] * len(X)


def rewritten(path, edit=None, arrays=None):
    """Write a file anew, with another document or other arrays."""
    read = read_container(path)
    document = copy.deepcopy(read.document)
    document.pop("arrays")
    if edit is not None:
        edit(document)
    values = {**read.arrays, **(arrays or {})}
    target = path.with_name("wrong.safetensors")
    write_container(target, document, values)
    return target


def state_of(document):
    return document["model"]["aligner"]["state"]


def values_of(stored):
    return stored["object"]["values"]


def basis_of(document):
    return values_of(state_of(document)["maps_"][0])["basis"]["basis"]["values"]


def refused(path, match, edit=None, arrays=None):
    with pytest.raises(ModelFileError, match=match):
        bw.load(rewritten(path, edit, arrays))


# -- bases -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"energy": 0.0}, "energy has a wrong value"),
        ({"energy": True}, "energy has a wrong value"),
        ({"lost_share": 1e301}, "lost_share has a wrong value"),
        ({"n_voxels": 0}, "n_voxels has a wrong value"),
        ({"n_voxels": 29}, "arrays of other than 29 voxels"),
        ({"kernel": "cubic"}, "kernel has a wrong value"),
        ({"standardize": "twice"}, "standardize has a wrong value"),
        ({"hp": "x"}, "damaged"),
        ({"samples": None}, "lacks its samples"),
        ({"products": None}, "lacks its samples, or their products"),
    ],
)
def test_wrong_bases_are_refused(tmp_path, change, match):
    X, y = make_data()
    model = bw.GDM(3, kernel="gaussian").fit(X, y)
    path = bw.save(model, tmp_path / "m.safetensors")
    refused(path, match, lambda d: basis_of(d).update(change))


def test_wrong_arrays_of_bases_are_refused(tmp_path):
    X, y = make_data()
    model = bw.GDM(3, kernel="gaussian").fit(X, y)
    path = bw.save(model, tmp_path / "m.safetensors")
    stored = basis_of(read_container(path).document)
    names = {name: stored[name]["array"] for name in ("spectrum", "vectors")}
    arrays = read_container(path).arrays
    spectrum, vectors = arrays[names["spectrum"]], arrays[names["vectors"]]
    for wrong in (spectrum[::-1], -spectrum, np.full(spectrum.shape, np.nan)):
        refused(path, "spectrum that is not one", None, {names["spectrum"]: wrong})
    few, one = spectrum[:2], vectors[:, :1]
    refused(path, "of 2", None, {names["spectrum"]: few})
    refused(path, "keeps 23 of 1 directions", None, {names["vectors"]: one})


@pytest.mark.parametrize("standardize", [True, False])
@pytest.mark.parametrize("n_voxels", [10, 60])
def test_stored_linear_bases_map_new_samples(tmp_path, n_voxels, standardize):
    (X,), _ = make_data((n_voxels,))
    basis = bw.SubjectBasis(X, standardize=standardize)
    loaded = bw.load(bw.save(basis, tmp_path / "b.safetensors"))
    Z = X[:5] + np.random.default_rng(1).normal(size=(5, n_voxels))
    got, want = loaded.products_with(Z), basis.products_with(Z)
    assert_allclose(got.cross, want.cross, atol=1e-9)
    Z[2, 3] = np.nan
    with pytest.raises(InputError, match="NaN or infinite"):
        loaded.products_with(Z)
    for (_, a), (_, b) in zip(loaded.chunks(), basis.chunks(), strict=True):
        assert_allclose(a, b, atol=1e-9)


def test_stored_kernel_bases_have_their_samples(tmp_path):
    (X,), _ = make_data((30,))
    basis = bw.SubjectBasis(X, kernel="gaussian")
    loaded = bw.load(bw.save(basis, tmp_path / "b.safetensors"))
    with pytest.raises(InputError, match="only the linear kernel has voxel weights"):
        loaded.combine(np.ones((N, 2)))
    for (_, a), (_, b) in zip(loaded.chunks(), basis.chunks(), strict=True):
        assert_allclose(a, b, atol=1e-9)


def test_labels_of_another_length_than_the_basis_are_refused(tmp_path):
    (X,), (y,) = make_data((30,))
    subject = Subject("1", X, labels=y)
    path = tmp_path / "b.safetensors"
    bw.save(bw.SubjectBasis(X), path, subject=subject)
    few = {"objects": {"shape": [2], "items": [1, 2], "text": False}}

    def edit(document):
        document["model"]["basis"]["values"].update(labels=few)

    wrong = rewritten(path, edit)
    with pytest.raises(ModelFileError, match="of different shapes"):
        bw.load(wrong)


# -- maps and aligners -----------------------------------------------------------------


def test_a_map_alone_is_described_and_of_a_foreign_kind_refused(tmp_path):
    X, y = make_data()
    model = bw.GDM(3).fit(X, y)
    path = bw.save(model.maps_[0], tmp_path / "map.safetensors")
    about = bw.describe(path)
    assert about["what"] == "a map of one subject, 30 voxels, linear kernel"
    assert about["facts"] == {"n_components": 3}

    class Odd(WeightMap):
        pass

    loaded = bw.load(path)
    loaded.__class__ = Odd
    with pytest.raises(ModelFileError, match="is a Odd, which model files do not know"):
        bw.save(loaded, path)


def test_undetermined_dimensions_come_back_and_cannot_exceed_the_features(tmp_path):
    X, y = make_data()
    model = bw.GDM(3).fit(X, y)
    model.maps_[1].n_undetermined = 2
    path = bw.save(model, tmp_path / "m.safetensors")
    assert [m.n_undetermined for m in bw.load(path).maps_] == [0, 2, 0]

    def edit(document):
        values_of(state_of(document)["maps_"][1])["n_undetermined"] = 4

    refused(path, "more undetermined dimensions", edit)


def test_the_graph_that_a_function_made_is_stored_for_it(tmp_path):
    X, y = make_data()
    model = bw.GDM(3, graph=lambda labels: bw.label_graph(labels)).fit(X, y)
    loaded = bw.load(bw.save(model, tmp_path / "m.safetensors"))
    assert loaded.graph.lengths == model.graph_.lengths
    for a, b in zip(loaded.transform(X), model.transform(X), strict=True):
        assert_allclose(a, b, atol=1e-10)


def test_only_aligner_classes_are_registered():
    with pytest.raises(TypeError, match="takes an aligner class, got 3"):
        bw.register_aligner(3)


# -- graphs, texts, spaces -------------------------------------------------------------


def test_wrong_graphs_are_refused(tmp_path):
    X, y = make_data()
    path = bw.save(bw.GDM(3).fit(X, y), tmp_path / "m.safetensors")

    def graph_of(document):
        return values_of(state_of(document)["graph_"])

    def twice(document):
        names = values_of(graph_of(document)["groups"]["tuple"][0])["names"]["tuple"]
        names[:] = [names[0]] * len(names)

    refused(path, "names a group twice", twice)
    refused(path, "is not a tuple", lambda d: graph_of(d).update(lengths=3))


def test_wrong_sparse_matrices_are_refused(tmp_path):
    import scipy.sparse

    X, y = make_data()
    codes = np.concatenate(y)
    same = scipy.sparse.csr_array(np.equal.outer(codes, codes).astype(float))
    path = bw.save(bw.GDM(3, graph=same).fit(X, y), tmp_path / "m.safetensors")
    arrays = read_container(path).arrays
    (ends,) = (n for n in arrays if n.startswith("graph") and n.endswith("indptr"))
    refused(path, "damaged", None, {ends: arrays[ends][::-1].copy()})

    def smaller(document):
        graph = values_of(state_of(document)["graph_"])
        graph["lengths"] = {"tuple": [N, N, N - 1]}

    refused(path, "not have the same 71 samples", smaller)


def test_texts_that_are_none_are_refused(tmp_path):
    X, y = make_data()
    model = bw.SemiSupervisedSRM(3, random_state=0, tol=0, max_iter=2)
    model.fit(X, [np.array(list("abcd"))[codes] for codes in y])
    path = bw.save(model, tmp_path / "m.safetensors")
    assert bw.load(path).classes_.tolist() == list("abcd")

    def edit(document):
        state_of(document)["classes_"]["objects"]["items"][0] = 1

    refused(path, "something else than texts", edit)


@pytest.fixture
def with_space(tmp_path):
    X, y = make_data((12, 12))
    mask = nib.Nifti1Image(np.ones((3, 2, 2), np.uint8), np.eye(4))
    subjects = [
        Subject(str(i), x, labels=labels, space=VolumeSpace(mask))
        for i, (x, labels) in enumerate(zip(X, y, strict=True))
    ]
    return bw.save(bw.GDM(2).fit(Study(subjects)), tmp_path / "m.safetensors")


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"suffix": "/../../stolen.nii.gz"}, "wrong name"),
        ({"suffix": "\0"}, "damaged"),
        ({"file": "none"}, "damaged"),
    ],
)
def test_files_of_spaces_stay_in_their_folder(with_space, change, match):
    def edit(document):
        first = values_of(state_of(document)["maps_"][0])
        first["space"]["space"]["files"][0].update(change)

    refused(with_space, match, edit)


def test_a_space_of_another_size_is_refused(with_space, tmp_path):
    small = tmp_path / "small.nii.gz"
    nib.save(nib.Nifti1Image(np.ones((2, 2, 2), np.uint8), np.eye(4)), small)
    content = np.frombuffer(small.read_bytes(), np.uint8)
    wrong = {"maps_.0.space.0": content}
    refused(with_space, "has 12 voxels, its brain space 8", None, wrong)


def test_a_space_that_cannot_be_saved_is_named(tmp_path):
    class Space:
        kind, n_voxels = "own", 30

        def to_image(self, values):
            return values

    (X, Z), y = make_data((30, 30))
    subjects = [
        Subject("1", X, labels=y[0], space=Space()),
        Subject("2", Z, labels=y[1]),
    ]
    model = bw.GDM(2).fit(Study(subjects))
    with pytest.raises(ModelFileError, match="Space, which a model file cannot hold"):
        bw.save(model, tmp_path / "m.safetensors")


# -- the file itself -------------------------------------------------------------------


def test_numbers_of_numpy_are_numbers_and_names_of_arrays_are_their_own(tmp_path):
    X, y = make_data()
    model, path = bw.GDM(3).fit(X, y), tmp_path / "m.safetensors"
    bw.save(model, path, provenance={"n": np.int64(3), "x": np.float32(0.5)})
    assert bw.describe(path)["provenance"] == {"n": 3, "x": 0.5}
    both = {"a.b": np.arange(2), "a": {"b": np.arange(3)}}
    with pytest.raises(ModelFileError, match=r"Two arrays .* 'provenance\.a\.b'"):
        bw.save(model, path, provenance=both)
    with pytest.raises(ModelFileError, match="ndarray, which a model file"):
        bw.save(model, path, provenance={"z": np.zeros(2, complex)})


def test_what_a_container_cannot_hold_is_refused(tmp_path, monkeypatch):
    path = tmp_path / "m.safetensors"
    with pytest.raises(ModelFileError, match="complex128, which model files cannot"):
        write_container(path, {}, {"a": np.zeros(2, complex)})
    write_container(path, {}, {})
    assert read_container(path).arrays == {}
    monkeypatch.setattr(codec, "MAX_HEADER", 10)
    with pytest.raises(ModelFileError, match="too many for one"):
        write_container(path, {}, {"a": np.zeros(2)})


def written_by_hand(path, text, arrays, *, entries=(), padding=b""):
    """Write a safetensors file whose document has a right checksum."""
    ours = f"{codec._digest_of_text(text)}\n{text}"
    header, data = {"__metadata__": {"brainweave": ours}}, b""
    for name, (code, shape, content) in arrays.items():
        offsets = [len(data), len(data) + len(content)]
        header[name] = {"dtype": code, "shape": shape, "data_offsets": offsets}
        data += content
    head = json.dumps(header).encode()
    head += b" " * (-len(head) % 8) + padding
    path.write_bytes(len(head).to_bytes(8, "little") + head + data)
    return path


def test_files_of_other_writers_are_read_or_refused(tmp_path):
    path = tmp_path / "m.safetensors"
    values = np.arange(3.0)
    digest = codec._digest({"a": values})
    entry = {"a": ("F64", [3], values.tobytes())}
    ours = {"format": "brainweave-model", "version": codec.VERSION}
    text = json.dumps({**ours, "arrays": digest})
    for padding in (b"", b"   "):  # arrays need not be aligned
        written_by_hand(path, text, entry, padding=padding)
        assert_array_equal(read_container(path).arrays["a"], values)
    for text, match in (
        ("[]", "its description is not that of a model"),
        ("{", "its description is not readable"),
        ("{}", "its description is not that of a model"),
        (json.dumps(ours), "checksum of its arrays does not match"),
    ):
        with pytest.raises(ModelFileError, match=match):
            read_container(written_by_hand(path, text, entry))
    half = {"a": ("BF16", [3], bytes(6))}
    text = json.dumps({**ours, "arrays": digest})
    with pytest.raises(ModelFileError, match="unknown type"):
        read_container(written_by_hand(path, text, half))


@pytest.mark.parametrize(
    ("text", "match"), [("x", "did not write it"), ("x\n{}", "checksum of its desc")]
)
def test_a_header_of_somebody_else_is_refused(tmp_path, text, match):
    from safetensors.numpy import save_file

    path = tmp_path / "m.safetensors"
    save_file({"a": np.zeros(2)}, path, {"brainweave": text})
    with pytest.raises(ModelFileError, match=match):
        bw.load(path)
