"""Runs commands and lets them die: a process that forks for each command it is told.

A line of JSON on its input says what to run and what is to happen to it: `die_at`, the
number of the change to a file under `place` before which it is killed; `signals`,
pairs of seconds and a signal; `limit`, how many bytes a file may have. The answer says
how it ended, and how many such changes there were. Everything slow is imported once.
"""

import contextlib
import importlib
import json
import mmap
import os
import pkgutil
import resource
import signal
import struct
import sys
import time
import warnings

import brainweave as bw
from brainweave.cli.console import run

_CHANGES = {"os.rename", "os.link", "os.remove", "os.mkdir", "os.rmdir", "os.symlink"}


def count_changes(place, counter, die_at):
    """Count what changes files of a place; be killed before number `die_at`."""

    def hook(event, arguments):
        writes = event == "open" and isinstance(arguments[2], int) and arguments[2] & 3
        if (event in _CHANGES or writes) and str(arguments[0]).startswith(place):
            (done,) = struct.unpack("q", counter[:8])
            if done + 1 == die_at:
                os.kill(os.getpid(), signal.SIGKILL)
            counter[:8] = struct.pack("q", done + 1)

    sys.addaudithook(hook)


def work(job, counter):
    """Do the command, in the child."""
    nothing = os.open(os.devnull, os.O_RDWR)
    said = os.open(job["said"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    for number, to in ((0, nothing), (1, nothing), (2, said)):
        os.dup2(to, number)
    count_changes(job["place"], counter, job.get("die_at"))
    if "limit" in job:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (job["limit"], job["limit"]))
    return run(job["command"])


def main():
    warnings.simplefilter("ignore")
    ours = [m.name for m in pkgutil.walk_packages(bw.__path__, "brainweave.")]
    theirs = ("sklearn.svm", "pandas", "matplotlib.pyplot", "jinja2", "typer.testing")
    for name in (*ours, *theirs):
        if not name.endswith("__main__"):
            importlib.import_module(name)
    counter = mmap.mmap(-1, 8)
    print("ready", flush=True)
    for line in sys.stdin:
        job = json.loads(line)
        counter[:8] = struct.pack("q", 0)
        start, pid = time.monotonic(), os.fork()
        if pid == 0:
            code = 99
            with contextlib.suppress(BaseException):
                code = work(job, counter)
            sys.stderr.flush()
            os._exit(code)
        for seconds, number in job.get("signals", ()):
            time.sleep(max(0.0, start + seconds - time.monotonic()))
            if os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT):
                break  # it was faster
            os.kill(pid, number)
        _, status = os.waitpid(pid, 0)
        answer = {
            "code": os.waitstatus_to_exitcode(status),
            "changes": struct.unpack("q", counter[:8])[0],
            "seconds": time.monotonic() - start,
        }
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
