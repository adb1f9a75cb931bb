"""A text that stands for a study's content, so that what is combined must fit."""

import hashlib
import json
from collections.abc import Iterable
from typing import Any

import numpy as np

from brainweave._arrays import to_numpy
from brainweave.study.subject import Subject

__all__ = ["fingerprint"]

WHOLE = 2**21  # subjects with so many numbers, or fewer, are read whole
N_BLOCKS, BLOCK = 8, 32  # of larger ones, so many blocks of so many voxels


def fingerprint(subjects: Iterable[Subject]) -> str:
    """Return a text that two studies share if they hold the same content.

    It covers each subject's id, shape, labels, runs, stimuli and samples, whatever the
    order of the subjects and whether samples are in memory, mapped or lazy; not the
    name, the onsets or the brain space. Of subjects with more than 2 million numbers
    all samples of 256 voxels are read (a lazy source is read whole), so a change in a
    few other voxels is not seen.

    Examples
    --------
    >>> a, b = (Subject(i, np.full((2, 3), i), labels=["x", "y"]) for i in (1, 2))
    >>> fingerprint([a, b]) == fingerprint([b, a])
    True
    >>> fingerprint([a, b]) == fingerprint([a, b.select([1, 0])])
    False
    """
    entries = sorted(([s.id, _digest(s)] for s in subjects), key=lambda e: e[0])
    return hashlib.sha256(json.dumps(entries).encode()).hexdigest()


def _digest(subject: Subject) -> str:
    known = [
        None if values is None else values.tolist()
        for values in (subject.labels, subject.runs, subject.stimuli)
    ]
    head = [subject.n_samples, subject.n_voxels, *known]
    content = hashlib.sha256(json.dumps(head).encode())
    samples: Any = subject.data() if subject.is_lazy else subject.samples
    for columns in _columns(subject.n_samples, subject.n_voxels):
        values = to_numpy(samples[:, columns])
        # as float64, so that the same numbers count as the same; and no negative zero
        numbers = np.ascontiguousarray(values, dtype="<f8") + 0.0
        content.update(numbers.data)
    return content.hexdigest()


def _columns(n_samples: int, n_voxels: int) -> list[slice]:
    """Choose the voxels to read, by the shape alone; neighbours share a disk page."""
    if n_samples * n_voxels <= WHOLE or n_voxels <= N_BLOCKS * BLOCK:
        return [slice(0, n_voxels)]
    starts = np.linspace(0, n_voxels - BLOCK, N_BLOCKS).astype(int)
    return [slice(int(start), int(start) + BLOCK) for start in starts]
