"""Thousands of damaged model files: each is refused, or was not damaged at all."""

import json
import os
import re
import tempfile
from pathlib import Path

import numpy as np
import pytest

import brainweave as bw
from brainweave._core.exceptions import ModelFileError
from brainweave.persistence.codec import read_container, write_container

resource = pytest.importorskip("resource")  # Windows has no such measure of memory

N_FILES = 4_000
SEPARATE_DOCUMENTS = 400  # of these, so many have right checksums


@pytest.fixture
def wrong(tmp_path):
    """Give a file in memory where the system has such a folder: it is opened often."""
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else tmp_path
    with tempfile.TemporaryDirectory(dir=memory) as folder:
        yield Path(folder) / "wrong.safetensors"


@pytest.fixture(scope="module")
def original(tmp_path_factory):
    rng = np.random.default_rng(0)
    y = [[0, 1, 2] * 4, [2, 1, 0] * 4]
    X = [rng.normal(size=(12, v)) for v in (5, 14)]
    model = bw.GDM(2, kernel=["linear", "gaussian"]).fit(X, y)
    path = tmp_path_factory.mktemp("models") / "m.safetensors"
    return bw.save(model, path), X, y


def same(model, path, X, y):
    """Whether a loaded model does all that the original does."""
    original = bw.load(path)
    new = bw.SubjectBasis(X[1], kernel="gaussian")
    pairs = zip(model.transform(X), original.transform(X), strict=True)
    return (
        model.get_params() == original.get_params()
        and all(np.array_equal(a, b) for a, b in pairs)
        and np.array_equal(model.eigenvalues_, original.eigenvalues_)
        and np.array_equal(
            model.fit_new_subject(new, y[1]).transform(X[1]),
            original.fit_new_subject(new, y[1]).transform(X[1]),
        )
    )


def flip_bits(data, rng):
    out = bytearray(data)
    for _ in range(int(rng.integers(1, 4))):
        out[rng.integers(len(out))] ^= 1 << rng.integers(8)
    return bytes(out)


def truncate(data, rng):
    return data[: rng.integers(len(data))]


def state_another_length(data, rng):
    lengths = [0, 1, 2**31, 2**62, 2**64 - 1, int(rng.integers(2**40))]
    length = lengths[rng.integers(len(lengths))]
    return length.to_bytes(8, "little") + data[8:]


def edit_header_numbers(data, rng):
    """Change one number of the header, often to a huge one."""
    end = 8 + int.from_bytes(data[:8], "little")
    digits = [match.start() for match in re.finditer(b"[0-9]", data[:end])]
    digits = [place for place in digits if place >= 8]
    place = digits[rng.integers(len(digits))]
    numbers = [b"9", b"0", b"9" * 18, b"-1", b"1e400", b"null", b'"a"']
    new = numbers[rng.integers(len(numbers))]
    head = data[8:place] + new + data[place + 1 : end]
    return len(head).to_bytes(8, "little") + head + data[end:]


def change_block(data, rng):
    """Zero, remove, repeat or replace a block of bytes."""
    start, length = int(rng.integers(len(data))), int(rng.integers(1, 200))
    before, block, after = (
        data[:start],
        data[start : start + length],
        data[start + length :],
    )
    middle = [bytes(len(block)), b"", block * 2, rng.bytes(length)]
    return before + middle[rng.integers(4)] + after


def swap_header(data, rng):
    """Rename or retype something in the header, keeping its length."""
    pairs = [
        (b"F64", b"I64"),
        (b"F64", b"F32"),
        (b"shape", b"shade"),
        (b"data_offsets", b"data_Offsets"),
        (b"brainweave-model", b"brainweave-basis"),
        (b"maps_.0.weights", b"maps_.0.patches"),
        (b"__metadata__", b"__netadata__"),
        (b"GDM", b"Gdm"),
        (b"gaussian", b"eval(1)!"),
    ]
    old, new = pairs[rng.integers(len(pairs))]
    places = [match.start() for match in re.finditer(re.escape(old), data)]
    place = places[rng.integers(len(places))]
    return data[:place] + new + data[place + len(old) :]


MUTATIONS = [
    flip_bits,
    flip_bits,
    truncate,
    state_another_length,
    edit_header_numbers,
    change_block,
    swap_header,
]


def test_damaged_files_are_equal_or_refused_within_bounded_memory(original, wrong):
    path, X, y = original
    data, rng = path.read_bytes(), np.random.default_rng(1)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    n_refused = 0
    for i in range(N_FILES - SEPARATE_DOCUMENTS):
        mutation = MUTATIONS[i % len(MUTATIONS)]
        wrong.write_bytes(mutation(data, rng))
        try:
            model = bw.load(wrong)
        except ModelFileError:
            n_refused += 1
        else:
            assert same(model, path, X, y), f"file {i}, {mutation.__name__}"
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert grown < 100_000  # kilobytes
    assert n_refused > 0.95 * (N_FILES - SEPARATE_DOCUMENTS)


def places_of(node, path=()):
    """Give all places in the parts of a document that a reader relies on."""
    if isinstance(node, (dict, list)):
        items = node.items() if isinstance(node, dict) else enumerate(node)
        for key, value in items:
            if key not in ("params", "provenance", "summary", "names", "brainweave"):
                yield (*path, key)
                yield from places_of(value, (*path, key))


def test_wrong_documents_with_right_checksums_are_equal_or_refused(
    original, wrong, monkeypatch
):
    path, X, y = original
    monkeypatch.setattr(os, "fsync", lambda file: None)  # hundreds of files to write
    container = read_container(path)
    arrays = container.arrays
    given = ("arrays", "format", "version")  # by whoever writes the file
    described = {k: v for k, v in container.document.items() if k not in given}
    text, rng = json.dumps(described), np.random.default_rng(2)
    # these say nothing that mapping depends on
    free = {"lost_share", "history", "name", "hp", "energy", "standardize"}
    places = [p for p in places_of(described) if p[-1] not in free]
    values = [None, -1, 2**60, "x", [], {}, {"array": "eigenvalues_"}, [[]], 1.5, True]
    n_refused = 0
    for i in range(SEPARATE_DOCUMENTS):
        document = json.loads(text)
        *parents, last = places[rng.integers(len(places))]
        node = document
        for key in parents:
            node = node[key]
        if rng.random() < 0.2:
            del node[last]
        else:
            node[last] = values[rng.integers(len(values))]
        write_container(wrong, document, arrays)
        try:
            model = bw.load(wrong)
        except ModelFileError:
            n_refused += 1
        else:
            assert same(model, path, X, y), f"document {i}: {[*parents, last]}"
    assert n_refused > 0.8 * SEPARATE_DOCUMENTS


@pytest.mark.parametrize("shape", ["list", "tuple", "dict"])
def test_lists_within_lists_without_end_are_refused(original, wrong, shape):
    container = read_container(original[0])
    document = {k: v for k, v in container.document.items() if k != "arrays"}
    deep = []
    for _ in range(250 if shape == "dict" else 450):  # JSON itself goes to 1000
        whole = {"list": [deep], "tuple": {"tuple": [deep]}}
        deep = whole.get(shape, {"dict": [["a", deep]]})
    arrays = container.arrays
    document["model"] = deep
    write_container(wrong, document, arrays)
    for read in (bw.load, bw.describe):
        with pytest.raises(ModelFileError, match="is damaged"):
            read(wrong)
