"""Ctrl-C ends the work, also where Python loses it on the way."""

import os
import signal

import pytest

from brainweave.cli.console import Console, check_interrupted, remembering_interrupts


def _lost():
    """Interrupt inside of what swallows it, as a destructor would."""
    with pytest.raises(KeyboardInterrupt):
        os.kill(os.getpid(), signal.SIGINT)


def test_a_lost_interruption_is_raised_at_the_next_step():
    before = signal.getsignal(signal.SIGINT)
    with remembering_interrupts():
        check_interrupted()
        with Console(quiet=True).stage("Working", 3) as tick:
            tick("one")
            _lost()
            with pytest.raises(KeyboardInterrupt):
                tick("two")
    assert signal.getsignal(signal.SIGINT) is before
    check_interrupted()  # what is over is over
