"""Defaults are those that the documentation tells."""

import ast
import inspect
import re

import pytest

import brainweave as bw
from every_aligner import CASES


def documented_defaults(name):
    """Return the defaults that the docstring of a public name tells, as literals."""
    doc = inspect.getdoc(getattr(bw, name)) or ""
    told = {}
    for names, other in re.findall(
        r"^(\w[\w, ]*)\n    As in :class:`(\w+)`", doc, re.M
    ):
        there = documented_defaults(other)
        told |= {n: there[n] for n in names.split(", ") if n in there}
    for names, text in re.findall(r"^(\w[\w, ]*) : .*?default=(.+)$", doc, re.M):
        told |= dict.fromkeys(names.split(", "), text)
    return told


PUBLIC = [
    name for name in bw.__all__ if "default=" in (getattr(bw, name).__doc__ or "")
]


@pytest.mark.parametrize("name", PUBLIC)
def test_defaults_are_those_of_the_documentation(name):
    told = documented_defaults(name)
    given = inspect.signature(getattr(bw, name)).parameters
    known = {n: given[n].default for n in told if n in given}
    assert known
    for parameter, value in known.items():
        if isinstance(value, type):
            assert value.__name__ == told[parameter]
        else:
            assert value == ast.literal_eval(told[parameter]), parameter


def test_the_documentation_tells_most_defaults_of_aligners():
    told = {name: documented_defaults(name) for name in CASES}
    assert told["DetSRM"]["tol"] == "1e-5"
    assert sum(map(len, told.values())) >= 40
