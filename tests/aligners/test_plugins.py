"""Packages of somebody else bring their aligners by an entry point."""

import importlib.util
import sys
from importlib.metadata import EntryPoint
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_allclose

import brainweave as bw
from brainweave._core.exceptions import InputError, ModelFileError
from brainweave.cli.console import UsageError
from brainweave.cli.models import make_aligner
from brainweave.persistence import models as module
from brainweave.testing import check_aligner

PLUGIN = Path(__file__).parents[2] / "plugin_template/src/brainweave_mean_template"


@pytest.fixture
def installed(monkeypatch):
    """The package of the example, as if it were installed."""
    name = PLUGIN.name
    spec = importlib.util.spec_from_file_location(name, PLUGIN / "__init__.py")
    package = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, name, package)
    spec.loader.exec_module(package)
    point = EntryPoint("mean-template", f"{name}:MeanTemplate", module.GROUP)
    monkeypatch.setattr(module, "entry_points", lambda group: [point])
    return package.MeanTemplate


def study():
    rng = np.random.default_rng(0)
    shared = rng.normal(size=(30, 4))
    return [shared @ rng.normal(size=(4, v)) + rng.normal(size=(30, v)) for v in (9, 8)]


def test_the_command_finds_it_by_name(installed):
    aligner = make_aligner("mean-template", {"n_components": "3"})
    assert type(aligner) is installed
    assert aligner.n_components == 3
    with pytest.raises(UsageError, match="none, mean-template"):
        make_aligner("median-template")


def test_a_model_file_holds_it_without_an_import(installed, tmp_path):
    model = installed(3).fit(study())
    loaded = bw.load(bw.save(model, tmp_path / "own.safetensors"))
    assert type(loaded) is installed
    for a, b in zip(loaded.transform(study()), model.transform(study()), strict=True):
        assert_allclose(a, b, atol=1e-10)


def test_without_the_package_the_file_is_refused(installed, tmp_path, monkeypatch):
    path = bw.save(installed(3).fit(study()), tmp_path / "own.safetensors")
    monkeypatch.setattr(module, "entry_points", lambda group: [])
    with pytest.raises(ModelFileError, match="MeanTemplate"):
        bw.load(path)


def test_it_passes_what_all_aligners_pass(installed):
    check_aligner(installed())


def test_an_entry_point_that_is_no_aligner_is_refused(monkeypatch):
    point = EntryPoint("odd", "json:dumps", module.GROUP)
    monkeypatch.setattr(module, "entry_points", lambda group: [point])
    with pytest.raises(InputError, match=r"odd = json:dumps.*no subclass"):
        make_aligner("odd")


def test_the_template_is_short():
    code = [
        line
        for line in (PLUGIN / "__init__.py").read_text("utf-8").splitlines()
        if line.strip()
    ]
    assert len(code) <= 30
