"""Two sizes of one test: the gate's, and that of ``make test-thorough``."""

import pytest


def few_or_many(few, *many):
    """Return cases to parametrize: the first in the gate, the others not."""
    marks = (pytest.mark.thorough, pytest.mark.timeout(3000))
    return [few, *(pytest.param(*_as_tuple(case), marks=marks) for case in many)]


def _as_tuple(case):
    return case if isinstance(case, tuple) else (case,)
