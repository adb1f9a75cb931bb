"""Every exported aligner passes the checks that all share, and scikit-learn's."""

import subprocess
import sys

import numpy as np
import pytest
from sklearn.base import BaseEstimator
from sklearn.utils import TransformerTags, estimator_checks

import brainweave as bw
from brainweave._core.exceptions import UniquenessWarning
from brainweave.testing import CHECKS, check_aligner
from every_aligner import CASES, exported_aligners


def test_every_exported_aligner_is_checked() -> None:
    assert set(exported_aligners()) == set(CASES)
    assert {"GDM", "SRM", "Parcelwise", "Searchlight", "NoAlignment"} <= set(CASES)


@pytest.mark.parametrize("check", CHECKS)
@pytest.mark.parametrize("name", CASES)
def test_aligner(name: str, check: str) -> None:
    case = CASES[name]
    if check in case.excused:
        pytest.skip(f"{name}: {case.excused[check]}")
    CHECKS[check](case)


@pytest.mark.parametrize("name", [n for n, case in CASES.items() if case.excused])
def test_excuses_are_true(name: str) -> None:
    """A check that passes after all needs no excuse."""
    case = CASES[name]
    assert set(case.excused) <= set(CHECKS)
    for check in case.excused:
        with pytest.raises((ValueError, AttributeError, AssertionError)):
            CHECKS[check](case)


def test_check_aligner_names_the_check_that_failed() -> None:
    class Forgetful(bw.DetSRM):
        def transform(self, X, subjects=None):  # type: ignore[no-untyped-def]
            return [f + 1 for f in super().transform(X, subjects)]

    with pytest.raises(AssertionError) as caught:
        check_aligner(Forgetful(4, random_state=0))
    assert caught.value.__notes__ == ["in the check 'fit_and_transform' of Forgetful"]
    with pytest.raises(ValueError, match="excused names no checks: speed"):
        check_aligner(bw.DetSRM(4), excused={"speed": "it is slow"})


def test_the_checks_need_no_pytest() -> None:
    code = "import sys, brainweave.testing; assert 'pytest' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


# -- scikit-learn's own checks ---------------------------------------------------------
# Those that look at the constructor, the parameters, the tags or the docs apply
# as they are. Those that call ``fit`` on a single array cannot: an aligner is fitted on
# a list with one array per subject, and the checks above ask the same of lists.

APPLY = (
    "check_estimator_cloneable",
    "check_estimator_repr",
    "check_no_attributes_set_in_init",
    "check_parameters_default_constructible",
    "check_get_params_invariance",
    "check_set_params",
    "check_valid_tag_types",
    "check_estimator_tags_renamed",
    "check_do_not_raise_errors_in_init_or_set_params",
)

ONE_ARRAY = "it fits one array; an aligner fits a list of subjects"
FRAMES = "features of a list of subjects are arrays, not frames"
# what scikit-learn asks of one array -> what check_aligner asks of a list of them
ASKED_OF_LISTS = {
    "check_dict_unchanged": "fit_and_transform",
    "check_dont_overwrite_parameters": "fit_and_transform",
    "check_dtype_object": "sample_types",
    "check_estimators_dtypes": "sample_types",
    "check_estimators_fit_returns_self": "fit_and_transform",
    "check_estimators_nan_inf": "wrong_input",
    "check_estimators_overwrite_params": "fit_and_transform",
    "check_estimators_pickle": "same_result",
    "check_estimators_unfitted": "wrong_input",
    "check_fit1d": "wrong_input",
    "check_fit2d_1feature": "sample_types",
    "check_fit2d_1sample": "wrong_input",
    "check_fit_idempotent": "same_result",
    "check_methods_subset_invariance": "fit_and_transform",
    "check_n_features_in": "wrong_input",
    "check_n_features_in_after_fitting": "wrong_input",
    "check_readonly_memmap_input": "fit_and_transform",
    "check_transformer_general": "fit_and_transform",
    "check_transformer_preserve_dtypes": "sample_types",
    "check_transformers_unfitted": "wrong_input",
}
# asked by no check of ours, and why
NOT_ASKED = {
    "check_array_api_input": "torch has tests of its own (test_torch)",
    "check_complex_data": "samples of fMRI are real; _validation refuses others",
    "check_estimator_sparse_array": "voxels are dense",
    "check_estimator_sparse_matrix": "voxels are dense",
    "check_estimator_sparse_tag": "voxels are dense",
    "check_estimators_empty_data_messages": ONE_ARRAY,
    "check_f_contiguous_array_estimator": "columns are read in chunks in any order",
    "check_fit2d_predict1d": "an aligner does not predict labels",
    "check_fit_check_is_fitted": "check_is_fitted looks for maps_, as ours does",
    "check_fit_score_takes_y": "an aligner has no score; evaluations have",
    "check_global_output_transform_pandas": FRAMES,
    "check_global_set_output_transform_polars": FRAMES,
    "check_methods_sample_order_invariance": ONE_ARRAY,
    "check_mixin_order": "there is no mixin: an aligner is no Transformer of an array",
    "check_pipeline_consistency": "a pipeline hands on one array",
    "check_positive_only_tag_during_fit": ONE_ARRAY,
    "check_set_output_transform": FRAMES,
    "check_set_output_transform_pandas": FRAMES,
    "check_set_output_transform_polars": FRAMES,
    "check_transformer_data_not_an_array": ONE_ARRAY,
    "check_transformer_n_iter": "n_iter_ is tested with each method that iterates",
    "check_transformers_unfitted_stateless": "an aligner has a state",
}


def default(name):
    cls = getattr(bw, name)
    inner = {"Parcelwise", "Searchlight"}
    return cls(bw.DetSRM(2)) if name in inner else cls()


@pytest.mark.parametrize("check", APPLY)
@pytest.mark.parametrize("name", sorted(exported_aligners()))
def test_what_scikit_learn_asks_of_any_estimator(name, check):
    function = getattr(estimator_checks, check, None)
    if function is None:
        pytest.skip(f"this scikit-learn has no {check}")
    function(name, default(name))


def test_every_other_check_has_its_reason():
    """A check that a new scikit-learn adds to transformers has to be placed here."""

    class Plain(BaseEstimator):
        def fit(self, X, y=None):
            return self

        def transform(self, X):
            return np.asarray(X)

        def __sklearn_tags__(self):
            tags = super().__sklearn_tags__()
            tags.transformer_tags = TransformerTags()
            return tags

    yielded = {
        getattr(check, "func", check).__name__
        for check in estimator_checks._yield_all_checks(Plain(), legacy=True)
    }
    placed = {*APPLY, *ASKED_OF_LISTS, *NOT_ASKED}
    assert yielded <= placed, sorted(yielded - placed)
    assert set(ASKED_OF_LISTS.values()) <= set(CHECKS)


def subjects_of_variances(variances, seed=0):
    """Return three subjects that differ by a rotation alone."""
    rng = np.random.default_rng(seed)
    noise = rng.normal(size=(16, len(variances)))
    U = np.linalg.qr(noise - noise.mean(axis=0))[0] * np.sqrt(variances)
    return [
        U @ np.linalg.qr(rng.normal(size=(v, U.shape[1])))[0].T for v in (9, 12, 20)
    ]


CUTS = {
    "Hyperalignment": {},
    "RegularizedHyperalignment": {},
    "KernelHyperalignment": {"kernel": "linear"},
    "SVDHyperalignment": {},
    "GDM": {"graph": "time", "shrinkage": 1.0},
}


@pytest.mark.parametrize("name", ["PaperGDM", "Hyperalignment", "DetSRM", "SRM"])
@pytest.mark.parametrize("gap", [0, 1e-12])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_an_energy_does_not_part_directions_that_are_equally_strong(name, gap, dtype):
    """Components of 9, 4, 4 and 1: two of them reach 0.6, and the third is as good."""
    X = [x.astype(dtype) for x in subjects_of_variances([9, 4 + gap, 4, 1])]
    options = {"PaperGDM": {"graph": "time"}, "DetSRM": {"random_state": 0}}
    options["SRM"] = options["DetSRM"]
    aligner = getattr(bw, name)(
        3, energy=0.6, standardize=False, **options.get(name, {})
    )
    assert [b.n_kept for b in aligner.fit(X).bases_] == [3, 3, 3]
    moved = [x * (1 + 4 * np.finfo(dtype).eps * np.sign(x - 0.1)) for x in X]
    features = [np.vstack(aligner.fit(x).transform(x)) for x in (X, moved)]
    grams = [f @ f.T for f in features]
    atol = 1e-9 if dtype == np.float64 else 1e-4
    np.testing.assert_allclose(*grams, rtol=0, atol=atol * np.abs(grams[0]).max())


@pytest.mark.parametrize("name", CUTS)
@pytest.mark.parametrize("gap", [0, 1e-12, 1e-3])
def test_components_that_are_equally_strong_are_not_parted_in_silence(name, gap):
    """A cut between equal eigenvalues keeps directions that the last bit chooses."""
    X = subjects_of_variances([9, 4 + gap, 4, 1])
    moved = [x * (1 + 1e-14 * np.sign(x - 0.1)) for x in X]
    aligner = getattr(bw, name)(2, standardize=False, **CUTS[name])
    if gap < 1e-9:
        with pytest.warns(UniquenessWarning, match="not unique") as told:
            aligner.fit(X)
        assert told[0].filename == __file__
        return
    features = [np.vstack(aligner.fit(x).transform(x)) for x in (X, moved)]
    grams = [f @ f.T for f in features]
    np.testing.assert_allclose(*grams, rtol=0, atol=1e-8 * np.abs(grams[0]).max())
