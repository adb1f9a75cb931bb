from types import SimpleNamespace

import numpy as np
import pytest

from brainweave._core.exceptions import InputError, StudyError
from brainweave.study.formats.events import (
    Events,
    Sampling,
    check_events,
    check_tr,
    resolve_tr,
)
from brainweave.study.formats.runs import Run, warn_of_runs
from brainweave.study.spaces import RunHeader


def test_repetition_times_are_seconds():
    assert check_tr(2, "TR") == 2.0
    assert check_tr(np.float32(0.72), "TR") == pytest.approx(0.72)
    with pytest.raises(StudyError, match=r"TR is 2500; .*\(not milliseconds\)"):
        check_tr(2500, "TR")
    for wrong in ("two", True, None, [2.0]):
        with pytest.raises(StudyError, match=r"TR is .* must be a number"):
            check_tr(wrong, "TR")
    for wrong in (0, -2.0, float("nan"), float("inf")):
        with pytest.raises(StudyError, match=r"TR is .* between 0\.01 and 100"):
            check_tr(wrong, "TR")
    assert Sampling().t_r is None
    with pytest.raises(InputError, match="t_r=0 is 0; it must"):
        Sampling(t_r=0)


def test_sidecar_and_header_must_agree():
    assert resolve_tr(2.0, "side", RunHeader(100, 2.0005), "bold") == 2.0
    assert resolve_tr(None, "", RunHeader(100, 1.5), "bold") == 1.5
    assert resolve_tr(2.0, "side", RunHeader(100, None), "bold") == 2.0
    # what a header says that nobody filled in
    assert resolve_tr(2.0, "side", RunHeader(100, 1.0, True), "bold") == 2.0
    with pytest.raises(StudyError, match=r"side is 2 s, but .* 1 s.*overrule both"):
        resolve_tr(2.0, "side", RunHeader(100, 1.0), "bold")
    # within one per cent, but half a volume apart at the end of a long run
    with pytest.raises(StudyError, match=r"says 2\.01 s"):
        resolve_tr(2.0, "side", RunHeader(1000, 2.01), "bold")
    with pytest.raises(StudyError, match="no repetition time"):
        resolve_tr(None, "", RunHeader(100, None), "bold")


def test_events_must_fit_their_run():
    fitting = Events.from_rows([(0, 2, "a"), (10, 2, "a"), (30, 2, "a")])
    assert check_events(fitting, 10, 2.0) == 1
    assert check_events(Events.from_rows([]), 10, 2.0) == 0
    late = Events.from_rows([(0, 2, "a"), (10e3, 2, "a"), (15e3, 2, "b")])
    with pytest.raises(StudyError, match=r"2 of 3 events lie outside.*milliseconds"):
        check_events(late, 10, 2.0)
    long = Events.from_rows([(0, 2000, "a")])
    with pytest.raises(StudyError, match=r"the longest lasts 2000 s.*milliseconds"):
        check_events(long, 10, 2.0)
    # a film that goes on after the scan
    assert check_events(Events.from_rows([(0, 30, "film")]), 10, 2.0) == 0


def test_losses_are_told_once_with_the_runs():
    counts = [
        ("run-1", {"outside": 2}),
        ("run-2", {"shared_volumes": 3}),
        ("run-3", {}),
    ]
    runs = [Run(name, t_r=2.0, plan=SimpleNamespace(counts=c)) for name, c in counts]
    with pytest.warns(UserWarning, match="events") as told:
        warn_of_runs(runs)
    outside, shared = (str(warning.message) for warning in told)
    assert outside.startswith("2 events lie before or after their run")
    assert shared.startswith("3 volumes lie under events of more than one category")
    assert shared.endswith(": run-2: 3.")
    warn_of_runs(runs[2:])  # a warning would be an error
