"""Ctrl-C is heard, also where a library swallows it."""

import signal
import time
from contextlib import suppress

import pytest


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="needs timers of Unix")
def test_an_interruption_that_a_library_swallows_is_raised_again(monkeypatch):
    from brainweave.cli import console

    monkeypatch.setattr(signal, "setitimer", setitimer := Recorded(signal.setitimer))
    setitimer.seconds = 0.05

    def swallow_one():
        with console._insisting_interrupts():
            with suppress(KeyboardInterrupt):  # as a callback of C does
                signal.raise_signal(signal.SIGINT)
            time.sleep(5)

    with pytest.raises(KeyboardInterrupt):
        swallow_one()
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    with console._insisting_interrupts():
        pass
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


class Recorded:
    """A timer that waits no longer than its seconds."""

    def __init__(self, timer):
        self.timer, self.seconds = timer, 0.0

    def __call__(self, which, seconds):
        return self.timer(which, min(seconds, self.seconds))
