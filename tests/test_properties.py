"""Whatever the container, size, type or tie: the right answer, or a refusal.

The gate tries the same few examples every time; ``HYPOTHESIS_PROFILE=explore`` seeks
new ones, many more. Warnings of NumPy (overflow, division by zero) are errors here.
"""

import os
import subprocess
import sys
import warnings

import numpy as np
import pandas as pd
import pytest
import scipy.sparse
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from sklearn.base import clone
from threadpoolctl import threadpool_limits

import brainweave as bw
from brainweave._core.exceptions import BrainweaveError, InputError
from brainweave.basis import voxels
from every_aligner import CASES

EXPLORES = os.environ.get("HYPOTHESIS_PROFILE", "gate") != "gate"
SLOW = {"GDMCV": 1, "Parcelwise": 2, "Searchlight": 2, "SemiSupervisedSRM": 2}


def some(n_examples):
    """Let the gate try so many examples, and a search fifty times as many."""
    return settings(
        max_examples=50 * n_examples if EXPLORES else n_examples,
        suppress_health_check=[HealthCheck.too_slow],
    )


def strided(x):
    wide = np.zeros((2 * x.shape[0], 3 * x.shape[1]), x.dtype)
    wide[::2, ::3] = x
    return wide[::2, ::3]


def read_only(x):
    x = x.copy()
    x.flags.writeable = False
    return x


# the values are whole numbers below 2**11, so that every type holds the same ones
EXACT = {
    "fortran": np.asfortranarray,
    "strided": strided,
    "backwards": lambda x: x[::-1, ::-1].copy()[::-1, ::-1],
    "read-only": read_only,
    "big-endian": lambda x: x.astype(">f8"),
    "int64": lambda x: x.astype(np.int64),
    "int16": lambda x: x.astype(np.int16),
    "big-endian integers": lambda x: x.astype(">i4"),
    "longdouble": lambda x: x.astype(np.longdouble),
    "table": pd.DataFrame,
    "table of integers": lambda x: pd.DataFrame(x).astype(int),
    "matrix": np.asmatrix,
    "masked": np.ma.MaskedArray,
    "lists": lambda x: x.tolist(),
    "tuples": lambda x: tuple(map(tuple, x)),
    "objects": lambda x: x.astype(object),
    "texts": lambda x: x.astype(str),
    "complex": lambda x: x.astype(complex),
    "sparse": scipy.sparse.csr_array,
}
REFUSED = ("objects", "texts", "complex", "sparse")
SINGLE = {
    "float32": lambda x: x.astype(np.float32),
    "big-endian float32": lambda x: x.astype(">f4"),
    "strided float32": lambda x: strided(x.astype(np.float32)),
    "float16": lambda x: x.astype(np.float16),
}
LABELS = {
    "lists": list,
    "objects": lambda y: np.array(list(y), object),
    "series": lambda y: pd.Series(y, index=np.arange(len(y))[::-1]),
    "read-only": read_only,
    "strided": lambda y: np.repeat(y, 2)[::2],
    "tuple": tuple,
}


def whole_numbers(case, seed, n_samples=24):
    X, y = case.study()
    rng = np.random.default_rng(seed)
    X = [np.round(30 * x + rng.normal(size=x.shape)) for x in X]
    assert max(np.abs(x).max() for x in X) < 2**11
    return X, y


def inner_products(features):
    """Return what does not depend on signs and rotations of the shared space."""
    together = np.vstack([np.asarray(f, np.float64) for f in features])
    return together @ together.T


def assert_same_space(ours, theirs, tolerance):
    ours, theirs = inner_products(ours), inner_products(theirs)
    assert_allclose(ours, theirs, rtol=0, atol=tolerance * np.abs(theirs).max())


@pytest.fixture(autouse=True)
def _quiet():
    with warnings.catch_warnings():
        warnings.simplefilter(
            "ignore", UserWarning
        )  # ours; NumPy's are RuntimeWarnings
        warnings.simplefilter("ignore", PendingDeprecationWarning)  # of np.matrix
        yield


# -- containers ------------------------------------------------------------------------


@pytest.mark.parametrize("name", CASES)
def test_samples_mean_the_same_in_every_container(name):
    case = CASES[name]

    @some(SLOW.get(name, 6))
    @given(st.sampled_from(sorted(EXACT)), st.integers(0, 99))
    def check(container, seed):
        X, y = whole_numbers(case, seed)
        want = case.new().fit(X, y).transform(X)
        given_as = [EXACT[container](x) for x in X]
        if container in REFUSED:
            with pytest.raises(TypeError, match=r"X\[0\]"):
                case.new().fit(given_as, y)
            return
        got = case.new().fit(given_as, y).transform(given_as)
        assert_same_space(got, want, 1e-8)

    check()


@pytest.mark.parametrize("name", CASES)
def test_single_precision_gives_the_result_of_double(name):
    case = CASES[name]

    @some(SLOW.get(name, 4))
    @given(st.sampled_from(sorted(SINGLE)), st.integers(0, 99))
    def check(container, seed):
        X, y = whole_numbers(case, seed)
        want = case.new().fit(X, y).transform(X)
        given_as = [SINGLE[container](x) for x in X]
        got = case.new().fit(given_as, y).transform(given_as)
        assert_same_space(got, want, 1e-3)

    check()


@some(10)
@given(st.sampled_from(sorted(LABELS)), st.booleans(), st.integers(0, 99))
def test_labels_mean_the_same_in_every_container(container, texts, seed):
    X, y = whole_numbers(CASES["GDM"], seed)
    y = [k.astype(str) if texts else k for k in y]
    want = bw.GDM(3).fit(X, y).transform(X)
    got = bw.GDM(3).fit(X, [LABELS[container](k) for k in y]).transform(X)
    assert_same_space(got, want, 1e-12)


# -- sizes, ties and degeneracies ------------------------------------------------------

KINDS = {
    "noise": lambda rng, x: x,
    "constant voxels": lambda rng, x: np.where(np.arange(x.shape[1]) % 2, x, 5.0),
    "all constant": lambda rng, x: np.full_like(x, 3.0),
    "zero": lambda rng, x: np.zeros_like(x),
    "equal samples": lambda rng, x: np.repeat(x[:1], len(x), axis=0),
    "pairs of equal samples": lambda rng, x: x[np.arange(len(x)) // 2],
    "equal voxels": lambda rng, x: np.repeat(x[:, :1], x.shape[1], axis=1),
    "ties": lambda rng, x: np.sign(x),
    "huge": lambda rng, x: x * 1e200,
    "tiny": lambda rng, x: x * 1e-200,
    "large offset": lambda rng, x: x + 1e9,
    "one sample apart": lambda rng, x: x * np.where(np.arange(len(x)), 1, 1e6)[:, None],
    "missing": lambda rng, x: np.where(x > 1, np.nan, x),
    "infinite": lambda rng, x: np.where(x > 1, np.inf, x),
    "single": lambda rng, x: (x * 1e30).astype(np.float32),
    "empty": lambda rng, x: x[:0],
}


@st.composite
def odd_studies(draw):
    seed = draw(st.integers(0, 999))
    rng = np.random.default_rng(seed)
    n_subjects, n_samples = draw(st.integers(1, 4)), draw(st.integers(1, 9))
    n_voxels = draw(st.integers(1, 12))
    X = [rng.normal(size=(n_samples, n_voxels)) for _ in range(n_subjects)]
    who = draw(st.sampled_from(["all", "first"]))
    change = KINDS[draw(st.sampled_from(sorted(KINDS)))]
    X = [change(rng, x) if who == "all" or i == 0 else x for i, x in enumerate(X)]
    n_labels = draw(st.integers(1, 4))
    y = [rng.integers(n_labels, size=len(x)) for x in X]
    return X, y


@pytest.mark.parametrize("name", CASES)
def test_degenerate_studies_are_aligned_or_refused(name):
    case = CASES[name]

    @some(5 * SLOW.get(name, 5))
    @given(odd_studies(), st.booleans())
    def check(study, standardize):
        X, y = study
        aligner = clone(case.estimator)
        if "standardize" in aligner.get_params():
            aligner.set_params(standardize=standardize)
        try:
            features = aligner.fit(X, y if case.labels else None).transform(X)
        except BrainweaveError:
            return
        for x, f in zip(X, features, strict=True):
            assert f.shape == (len(x), features[0].shape[1])
            assert np.isfinite(f).all()

    check()


# -- graphs ----------------------------------------------------------------------------

GRAPHS = {
    "label": bw.label_graph,
    "time": bw.time_graph,
    "affinity": lambda ids: bw.affinity_graph(
        ids, (lambda n: np.eye(n) + 0.5)(len(set(np.concatenate(list(map(list, ids))))))
    ),
}


def test_every_exported_graph_is_tried():
    exported = {n.removesuffix("_graph") for n in bw.__all__ if n.endswith("_graph")}
    assert exported == {*GRAPHS, "feature", "neighbor", "matrix"}


@pytest.mark.parametrize("name", GRAPHS)
def test_graphs_do_not_depend_on_the_container_of_labels(name):
    @some(15)
    @given(
        st.lists(st.lists(st.integers(0, 3), min_size=1, max_size=6), min_size=1,
                 max_size=3),
        st.sampled_from(sorted({*LABELS, "big-endian", "int8", "unsigned", "floats"})),
        st.booleans(),
    )  # fmt: skip
    def check(ids, container, texts):
        y = [np.array(k) for k in ids]
        numbers = {"big-endian": ">i8", "int8": "i1", "unsigned": "u4", "floats": "f8"}
        if container in numbers:
            given_as = [k.astype(numbers[container]) for k in y]
        else:
            y = [k.astype(str) if texts else k for k in y]
            given_as = [LABELS[container](k) for k in y]
        if name == "label" and len(set(np.concatenate(y))) < 2:
            with pytest.raises(InputError, match="at least two categories"):
                GRAPHS[name](given_as)
            return
        want, got = (GRAPHS[name](k).to_sparse().toarray() for k in (y, given_as))
        assert_allclose(got, want, rtol=0, atol=1e-14)
        assert_allclose(got, got.T, rtol=0, atol=1e-14)

    check()


@some(20)
@given(
    st.sampled_from(sorted({*EXACT, *SINGLE})),
    st.integers(0, 99),
    st.integers(1, 12),
    st.booleans(),
)
def test_neighbors_do_not_depend_on_the_container(container, seed, n_neighbors, ties):
    rng = np.random.default_rng(seed)
    features = [np.round(rng.normal(size=(5, 3)) * (1 if ties else 500)) for _ in "ab"]
    try:
        want = bw.neighbor_graph(features, n_neighbors=n_neighbors).to_sparse()
    except InputError:
        assert n_neighbors > 5
        return
    try:
        given_as = [{**EXACT, **SINGLE}[container](f) for f in features]
        got = bw.neighbor_graph(given_as, n_neighbors=n_neighbors).to_sparse()
    except (InputError, TypeError):
        assert container in REFUSED
        return
    assert_allclose(got.toarray(), want.toarray(), rtol=0, atol=1e-12)


@some(20)
@given(st.sampled_from(sorted({*EXACT, *SINGLE})), st.integers(0, 99), st.booleans())
def test_graphs_of_features_do_not_depend_on_the_container(container, seed, whiten):
    rng = np.random.default_rng(seed)
    features = [rng.integers(-4, 5, size=(n, 3)).astype(float) for n in (5, 7)]
    want = bw.feature_graph(features, whiten=whiten).to_sparse().toarray()
    centred = np.vstack(features) - np.vstack(features).mean(axis=0)
    values, axes = np.linalg.eigh(centred.T @ centred)
    if not whiten:  # inner products, as they are
        assert_allclose(want, centred @ centred.T, rtol=0, atol=1e-10)
    elif values[0] > 0.1 * values[-1]:  # every direction counts alike
        kept = centred @ axes / np.sqrt(values)
        assert_allclose(want, len(centred) * kept @ kept.T, rtol=0, atol=1e-10)
    try:
        given_as = [{**EXACT, **SINGLE}[container](f) for f in features]
        got = bw.feature_graph(given_as, whiten=whiten).to_sparse()
    except (InputError, TypeError):
        assert container in REFUSED
        return
    assert_allclose(got.toarray(), want, rtol=0, atol=1e-10)


@some(20)
@given(st.sampled_from(sorted({*EXACT, *SINGLE})), st.integers(0, 99))
def test_matrices_do_not_depend_on_the_container(container, seed):
    rng = np.random.default_rng(seed)
    matrix = rng.integers(-3, 4, size=(6, 6)).astype(float)
    matrix = matrix + matrix.T
    want = bw.matrix_graph(matrix, [2, 4]).to_sparse().toarray()
    assert_allclose(want, matrix, rtol=0, atol=0)
    try:
        got = bw.matrix_graph({**EXACT, **SINGLE}[container](matrix), [2, 4])
    except (InputError, TypeError):
        assert container in REFUSED
        return
    assert_allclose(got.to_sparse().toarray(), want, rtol=0, atol=1e-14)


# -- the same again --------------------------------------------------------------------


@pytest.mark.parametrize("name", CASES)
def test_the_same_seed_gives_the_same_features(name, monkeypatch):
    case = CASES[name]
    X, y = whole_numbers(case, 0)

    def fitted(**params):
        aligner = clone(case.estimator)
        known = aligner.get_params()
        aligner.set_params(**{k: v for k, v in params.items() if k in known})
        return aligner.fit(X, y).transform(X)

    want = fitted(n_jobs=1)
    assert all(map(np.array_equal, fitted(n_jobs=1), want))  # to the bit
    assert_same_space(fitted(n_jobs=2), want, 1e-10)
    with threadpool_limits(2):
        assert_same_space(fitted(n_jobs=1), want, 1e-10)

    def seven_at_a_time(X):
        for start in range(0, X.shape[1], 7):
            columns = slice(start, min(start + 7, X.shape[1]))
            yield columns, X[:, columns]

    monkeypatch.setattr(voxels, "column_chunks", seven_at_a_time)
    assert_same_space(fitted(n_jobs=1), want, 1e-9)


THREADS = """
import sys
import numpy as np
from threadpoolctl import threadpool_info
import brainweave as bw

rng = np.random.default_rng(0)
y = np.arange(200) % 5
shared = rng.normal(size=(5, 30))[y] + rng.normal(size=(200, 30))
X = [shared @ rng.normal(size=(30, v)) + rng.normal(size=(200, v)) for v in (900, 1100)]
aligners = {
    "GDM": bw.GDM(3),
    "GDM, paper": bw.PaperGDM(3, energy=0.82),
    "GDM, gaussian": bw.GDM(3, kernel="gaussian", kernel_params={"hp": 2000.0}),
    "Hyperalignment": bw.Hyperalignment(3),
    "SVDHyperalignment": bw.SVDHyperalignment(3),
    "SRM": bw.SRM(3, random_state=0),
    "RobustSRM": bw.RobustSRM(3, random_state=0, max_iter=5, tol=0),
}
found = {}
for name, aligner in aligners.items():
    locked = not name.startswith("GDM")
    features = np.vstack(aligner.fit(X, None if locked else [y, y]).transform(X))
    found[name] = (features @ features.T)[::7]
blas = [lib["num_threads"] for lib in threadpool_info() if lib["user_api"] == "blas"]
np.savez(sys.argv[1], **found, threads=blas)
"""


def test_a_process_with_more_blas_threads_gives_the_same_features(tmp_path):
    """Data so large that BLAS does divide the work, in a process of its own."""
    got = []
    for n in (1, 2):
        file = tmp_path / f"{n}.npz"
        names = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
        environment = {**os.environ, **dict.fromkeys(names, str(n))}
        command = [sys.executable, "-W", "ignore", "-c", THREADS, str(file)]
        subprocess.run(command, env=environment, check=True)
        got.append(dict(np.load(file)))
    one, two = got
    assert max(one.pop("threads")) == 1
    assert max(two.pop("threads")) == min(2, os.cpu_count())
    for name, want in one.items():
        off = np.abs(two[name] - want).max() / np.abs(want).max()
        assert off < 1e-9, f"{name}: {off:.1e}"
