"""Wrong paths, types and options: one sentence, exit 2 or 1, nothing half-written."""

import os
import shutil
import signal
import subprocess
import time

import pytest

from brainweave.cli.console import run as run_in_process

HERE = "{tmp}"

WRONG = [
    # arguments ({study}, {model}, {tmp} are filled in), exit code, what is said
    (("fit", "{tmp}/none", "-o", "{tmp}/m.safetensors"), 2, "is not a study"),
    (("fit", "{tmp}", "-o", "{tmp}/m.safetensors"), 2, "is not a study folder"),
    (("fit", "{study}", "-o", "{tmp}/m.pkl"), 2, "must end in .safetensors"),
    (("fit", "{study}", "-o", "{tmp}/a/m.safetensors"), 2, "There is no folder"),
    (("fit", "{study}", "-o", "/proc/m.safetensors"), 1, "cannot be written"),
    (("fit", "{study}", "--method", "magic"), 2, "There is no method 'magic'"),
    (("fit", "{study}", "--n-components", "many"), 2, "must be a number or auto"),
    (("fit", "{study}", "--searchlight", "lots"), 2, "'--searchlight'"),
    (
        ("fit", "{study}", "--method=paper-gdm", "--param", "energy=82"),
        2,
        "82 % is written 0.82",
    ),
    (
        ("fit", "{study}", "--method=paper-gdm", "--param", "energy=82%"),
        2,
        "got '82%'.",
    ),
    (("transform", "{study}", "m", "out"), 1, "cannot be read"),
    (("fit", "{study}", "--n-jobs", "0"), 2, "--n-jobs must be a number other than 0"),
    (("compare", "{study}", "--n-jobs", "0"), 2, "--n-jobs must be a number other"),
    (("convert", "{study}", "{tmp}/s", "--n-jobs", "0"), 2, "got 0"),
    (("compare", "{study}", "--param=leave_out=9", "-o", "{tmp}/e"), 2, "leave_out"),
    (
        ("fit", "{study}", "--n-components=1", "--param", "n_components=1"),
        2,
        "by --n-components and by --param",
    ),
    (("fit", "{study}", "--param", "hp=5"), 2, "no parameter 'hp'"),
    (
        ("fit", "{study}", "--method", "srm", "--param", "kernel=linear"),
        2,
        "srm has no parameter 'kernel'",
    ),
    (("fit", "{study}", "--method", "srm"), 2, "aligns row by row"),
    (("fit", "{study}", "--method", "srm"), 2, "On the command line: --match."),
    (("fit", "{study}", "--param", "alpha"), 2, "takes NAME=VALUE"),
    (("fit", "{study}", "--param", "alpha=1"), 2, "gdm has no parameter 'alpha'"),
    (("fit", "{study}", "--match", "guess"), 2, "got 'guess'."),
    (("fit", "{study}", "--graph", "sketch"), 2, "On the command line: --graph."),
    (
        ("fit", "{study}", "--method", "paper-gdm", "--n-components", "9999"),
        2,
        "is more than the",
    ),
    (("fit", "{study}", "--config", "{tmp}/none.toml"), 2, "No such file"),
    (("fit", "{study}", "--config", "{tmp}"), 2, "cannot be read (Is a directory)"),
    (("fit", "{study}", "--nonsense"), 2, "No such option"),
    (("fit",), 2, "Missing argument"),
    (("frobnicate",), 2, "No such command"),
    (("transform", "{model}", "{tmp}/none", "{tmp}/o"), 2, "is not a study"),
    (("transform", "{tmp}/x.safetensors", "{study}", "{tmp}/o"), 1, "There is no file"),
    (("transform", "{model}", "{study}", "{study}"), 2, "exists. Choose another"),
    (("add-subject", "{model}", "{study}"), 2, "is already in the model"),
    (("add-subject", "{model}", "{study}", "--subject", "9"), 1, "no subject '9'"),
    (("info", "{tmp}/none"), 1, "There is no file"),
    (("info", "{study}/sub-01.npy"), 1, "is no model file"),
    (("convert", "{tmp}/none", "{tmp}/s"), 2, "There is no"),
    (("convert", "{tmp}"), 2, "then the study folder to create"),
    (("convert", "{tmp}", "{tmp}/s"), 2, "is not clear"),
    (("convert", "{study}", "{tmp}/s", "--task", "x"), 2, "copied without task"),
    (("compare", "{study}", "-o", "{model}"), 1, "File exists"),
    (
        ("compare", "{study}", "--protocol", "cheat", "-o", "{tmp}/e"),
        2,
        "'held-out', 'joint', 'both'",
    ),
    (("compare", "{study}", "--halves", "x", "-o", "{tmp}/e"), 2, "halves"),
    (("compare", "{study}", "-o", "/proc/e"), 1, "/proc/e"),
    (("compare", "{study}", "--method", "x", "-o", "{tmp}/e"), 2, "no method 'x'"),
    (("fit", "{study}", "--method", "gdm,srm"), 2, "There is no method"),
    (("demo", "{tmp}/d", "--n-subjects", "2"), 2, "than or equal to 3"),
    (("report", "{tmp}/r.html"), 2, "needs --study, --model or --results"),
    (("report", "{tmp}/r.pdf", "--study", "{study}"), 2, "is an HTML file"),
    (("report", "{tmp}/r.html", "--results", "{model}"), 2, "does not hold results"),
    (("report", "/proc/r.html", "--study", "{study}"), 1, "/proc"),
    (("run", "{tmp}/none", "{tmp}/o", "participant"), 2, "There is no folder"),
    (("run", "{study}", "{tmp}/o", "participant"), 2, "has no subjects"),
    (("run", "{study}", "{tmp}/o", "village"), 2, "'participant', 'group'"),
]


@pytest.mark.parametrize(
    ("arguments", "code", "said"), WRONG, ids=[" ".join(w[0][:4]) for w in WRONG]
)
def test_wrong_usage_is_one_sentence(
    study, model, tmp_path, call, monkeypatch, arguments, code, said
):
    monkeypatch.chdir(tmp_path)
    before = {p: p.stat().st_mtime_ns for p in study.parent.rglob("*")}
    filled = [a.format(study=study, model=model, tmp=tmp_path) for a in arguments]
    _, error = call(*filled, code=code)
    lines = [line for line in error.splitlines() if line.startswith("Error: ")]
    assert len(lines) == 1, error
    assert said in lines[0]
    left = [p.name for p in tmp_path.rglob("*") if "partial" in p.name or p.is_file()]
    assert left == []
    assert {p: p.stat().st_mtime_ns for p in study.parent.rglob("*")} == before


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("energy = ", "is not valid TOML"),
        ("energy = " + "[" * 5000, "is not valid TOML"),
        ("energy = 0.5", "Options of fit follow a line [fit]"),
        ("[fit]\nserchlight = 8", "not an option of fit. Did you mean 'searchlight'?"),
        ("[fitt]\nenergy = 0.5", "has 'fitt', which is not a table of a command"),
        ('[fit]\nsearchlight = "lots"', "'--searchlight'"),
        ("fit = 3", "has 'fit', which is not a table"),
        ("[fit]\nsearchlight = [8]", "'--searchlight'"),
        ("[fit]\nsearchlight = {a = 1}", "'--searchlight'"),
        ("[fit]\nparam = 3", "takes NAME=VALUE"),
        ("[fit.searchlight]\na = 1", "'--searchlight'"),
        ("[[fit]]\nenergy = 1", "has 'fit', which is not a table"),
        ("[fit]\nquiet = 3", "not an option of fit"),
        ("[fit]\nn_jobs = 0", "other than 0; got 0"),
        # a word is missing, and no hint about quotes follows
        ("[fit]\nparam = ['kernel=3']", "'precomputed'"),
    ],
)
def test_wrong_configurations_are_explained(study, tmp_path, call, text, said):
    (tmp_path / "c.toml").write_text(text)
    out = tmp_path / "m.safetensors"
    _, error = call("fit", study, "-o", out, "--config", tmp_path / "c.toml", code=2)
    assert said in error
    assert not out.exists()


def test_the_executable_says_the_same_as_the_function(study, tmp_path, execute):
    done = execute("fit", tmp_path / "none", code=2)
    assert done.stdout == ""
    assert done.stderr.startswith("Error: ")
    assert len(done.stderr.splitlines()) == 1


def test_damaged_files_are_named(study, model, tmp_path, call):
    broken = tmp_path / "m.safetensors"
    broken.write_bytes(model.read_bytes()[:-10])
    _, error = call("info", broken, code=1)
    assert "was cut off" in error
    shutil.copytree(study, tmp_path / "st")
    (tmp_path / "st" / "sub-02.npy").write_bytes(b"x")
    _, error = call("fit", tmp_path / "st", "-o", tmp_path / "n.safetensors", code=1)
    assert "sub-02.npy" in error


def test_an_interruption_leaves_whole_files_and_says_how_to_go_on(
    study, tmp_path, execute
):
    import sys
    from pathlib import Path

    out = tmp_path / "cmp"
    command = [
        *(Path(sys.executable).with_name("brainweave"), "compare", study, "-o", out),
        *("--method", "gdm", "--method", "none", "--n-permutations", "100000"),
        *("--n-components", "2", "--n-jobs", "1"),
    ]
    process = subprocess.Popen(
        list(map(str, command)),
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        # what a shell starts in the background does not hear it
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    try:
        assert "Scoring methods ..." in process.stderr.readline()
        time.sleep(1)
        process.send_signal(signal.SIGINT)
        _, error = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == 130
    assert "Traceback" not in error
    assert "no partial files were left" in error
    assert "finished folds are kept" in error
    assert not [p for p in out.rglob("*") if p.is_file()]


def test_a_mistake_of_ours_is_reported_without_a_traceback(monkeypatch, capsys):
    from brainweave.cli import reporting

    def broken(*_):
        raise ZeroDivisionError("oops")

    monkeypatch.setattr(reporting, "_describe_study", broken)
    monkeypatch.delenv("BRAINWEAVE_DEBUG", raising=False)
    assert run_in_process(["info", "."]) == 1
    error = capsys.readouterr().err
    assert "ZeroDivisionError: oops" in error
    assert "BRAINWEAVE_DEBUG=1" in error
    assert "Traceback" not in error
