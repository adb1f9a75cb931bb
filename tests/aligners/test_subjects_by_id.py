"""Subjects that have ids are matched by them, never by their place in a list."""

import numpy as np
import pytest

from brainweave import GDM, SRM, load, save
from brainweave.study import Study, Subject


@pytest.fixture
def study():
    rng = np.random.default_rng(0)
    y = np.arange(24) % 3
    return Study(
        Subject(f"s{i}", rng.normal(size=(24, 12)) + y[:, None], labels=y)
        for i in range(4)
    )


def test_a_model_knows_the_ids_it_was_fitted_on(study, tmp_path):
    model = GDM(2).fit(study)
    assert model.ids_ == ["s0", "s1", "s2", "s3"]
    assert GDM(2).fit(*study.to_lists()).ids_ is None
    again = GDM(2, energy=0.5).fit(model.bases_[::-1], [s.labels for s in study])
    assert again.ids_ == ["s3", "s2", "s1", "s0"]
    assert load(save(model, tmp_path / "m.safetensors")).ids_ == model.ids_
    assert SRM(2, random_state=0).fit(study).ids_ == study.ids
