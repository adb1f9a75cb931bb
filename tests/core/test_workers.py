"""Several subjects at a time: errors and warnings stay whose they are."""

import warnings

import joblib
import pytest

from brainweave._core.exceptions import InputError
from brainweave._core.workers import WarningCollector, map_subjects


def refuse_odd(number):
    if number % 2:
        raise InputError(f"{number} is odd")
    return 10 * number


def test_the_error_of_a_process_is_that_of_the_first_subject():
    with joblib.parallel_config(backend="loky", n_jobs=2):
        assert map_subjects(refuse_odd, [0, 2, 4]) == [0, 20, 40]
        with pytest.raises(InputError, match="3 is odd"):
            map_subjects(refuse_odd, [2, 3, 5])


def test_who_does_not_listen_lets_warnings_through():
    collector = WarningCollector()
    with warnings.catch_warnings(record=True) as shown, collector.installed():
        with collector.collect() as caught:
            warnings.warn("to one", UserWarning, stacklevel=1)
        warnings.warn("to all", UserWarning, stacklevel=1)
    assert caught == [(UserWarning, "to one")]
    assert [str(warning.message) for warning in shown] == ["to all"]
