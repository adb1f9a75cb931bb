"""scikit-learn's own checks, where an estimator of lists of subjects can take them.

An aligner is fitted on a list with one array per subject. Checks that look at the
constructor, the parameters, the tags or the documentation apply as they are; those
that call ``fit`` on a single array cannot, and `brainweave.testing.check_aligner` asks
the same of lists instead.
"""

import numpy as np
import pytest
from sklearn.base import BaseEstimator
from sklearn.utils import TransformerTags, estimator_checks

import brainweave as bw
from brainweave.aligners.base import BaseAligner
from brainweave.testing import CHECKS

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
    "check_dict_unchanged": "inputs_unchanged",
    "check_dont_overwrite_parameters": "fit_does_not_touch_parameters",
    "check_dtype_object": "integers",
    "check_estimators_dtypes": "float32",
    "check_estimators_fit_returns_self": "fit_returns_self",
    "check_estimators_nan_inf": "nan_is_refused",
    "check_estimators_overwrite_params": "fit_does_not_touch_parameters",
    "check_estimators_pickle": "pickling",
    "check_estimators_unfitted": "wrong_input",
    "check_fit1d": "wrong_input",
    "check_fit2d_1feature": "constant_voxel",
    "check_fit2d_1sample": "wrong_input",
    "check_fit_idempotent": "same_result_whatever_n_jobs",
    "check_methods_subset_invariance": "one_sample_is_mapped_as_among_others",
    "check_n_features_in": "wrong_input",
    "check_n_features_in_after_fitting": "wrong_input",
    "check_readonly_memmap_input": "inputs_unchanged",
    "check_transformer_general": "fit_transform",
    "check_transformer_preserve_dtypes": "float32",
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


ALIGNERS = sorted(
    name
    for name in bw.__all__
    if isinstance(getattr(bw, name), type)
    and issubclass(getattr(bw, name), BaseAligner)
)


@pytest.mark.parametrize("check", APPLY)
@pytest.mark.parametrize("name", ALIGNERS)
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
