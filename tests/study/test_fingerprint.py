"""The fingerprint stands for a study's content, and for nothing else."""

from pathlib import Path

import numpy as np
import pytest

from brainweave.study.study import Study, Subject
from brainweave.study.subject import BLOCK, N_BLOCKS, WHOLE, View, fingerprint


def subject(id: str = "01", **changes: object) -> Subject:
    values = np.random.default_rng(5).normal(size=(6, 4)).astype(np.float32)
    known: dict[str, object] = {
        "labels": list("aabbcc"),
        "runs": [1, 1, 1, 2, 2, 2],
        "stimuli": range(6),
        "samples": values,
        **changes,
    }
    return Subject(id, known.pop("samples"), **known)  # type: ignore[arg-type]


def test_same_content_same_fingerprint(tmp_path: Path) -> None:
    study = Study([subject("01"), subject("02", labels=list("aab") + [None] * 3)])
    known = study.fingerprint()
    assert len(known) == 64
    assert study.save(tmp_path / "s").fingerprint() == known
    assert study.subset(["02", "01"]).fingerprint() == known
    values = study[0].samples
    lazy = View(np.vstack([values, values]), np.arange(6))
    assert Study([subject("01", samples=lazy), study[1]]).fingerprint() == known
    wide = subject("01", samples=values.astype(np.float64))
    assert Study([wide, study[1]]).fingerprint() == known


@pytest.mark.parametrize(
    "changes",
    [
        {"labels": list("aabbcd")},
        {"labels": None},
        {"labels": [0, 0, 1, 1, 2, 2]},
        {"runs": [1, 1, 2, 2, 2, 2]},
        {"stimuli": [0, 1, 2, 3, 5, 4]},
        {"samples": np.zeros((6, 4))},
    ],
)
def test_other_content_other_fingerprint(changes: dict[str, object]) -> None:
    assert fingerprint([subject(**changes)]) != fingerprint([subject()])


def test_ids_and_rows_count() -> None:
    assert fingerprint([subject("1")]) != fingerprint([subject("01")])
    swapped = subject().select([1, 0, 2, 3, 4, 5])
    assert fingerprint([swapped]) != fingerprint(
        [subject(stimuli=[1, 0, 2, 3, 4, 5], samples=subject().samples)]
    )


def test_large_subjects_are_sampled_in_all_rows() -> None:
    n = WHOLE // 400 + 1
    values = np.zeros((n, 401))
    before = fingerprint([Subject("01", values)])
    assert N_BLOCKS * BLOCK < 401
    values[n // 2] = 1
    assert fingerprint([Subject("01", values)]) != before
