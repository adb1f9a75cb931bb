"""Give every reader odd files: each is read right, or refused with a reason.

``python tools/fuzz.py --parser study --seconds 600`` tries inputs for so long (of
processor time) and prints how many there were, how many were refused, and what went
wrong. Input number k is made from the seed k alone: ``--first k --inputs 1`` makes it
again. Inputs are tried in a child process, so a crash and an endless loop are found
too. ``make fuzz`` gives ten minutes to each reader.

An input is *wrong* if the reader raises anything but a BrainweaveError, dies, takes
more than 20 seconds of CPU, or returns something that the class of the reader here
finds false: other values than were saved, a file outside of its folder, foreign HTML.
"""

import argparse
import contextlib
import copy
import gzip
import hashlib
import html.parser
import io
import json
import os
import random
import resource
import shutil
import signal
import sys
import tempfile
import traceback
import warnings
from collections import Counter
from pathlib import Path

import numpy as np

import brainweave as bw
from brainweave._core.exceptions import BrainweaveError

PATIENCE = 20  # seconds of CPU per input
MEMORY = 6 * 2**30
BATCH = 50

# fmt: off
# missing values, numbers in all spellings, formulas, HTML, templates, shells, ways out
# of a folder, names that systems reserve, letters that hide or combine, blanks
ODD_TEXTS = [
    "n/a", "NaN", "None", "null", "true", "1e999", "-1", "0", "-0", "1e-320", "1",
    "1.0", "01", "1_000", "0x10", "1,5", "١٢", "１", "inf", "nan ", " 1", "=1+1", "+1",
    "=cmd|'/C calc'!A0", "<script>alert(1)</script>", "</script><script>", "&amp;",
    '"><img src=x onerror=alert(1)>', "javascript:alert(1)", "{{7*7}}", "{% raw %}",
    "${x}", "$(id)", "`id`", "--help", "../../x", "/etc/passwd", "..", ".", "~", "a/b",
    "C:\\x", "CON", "a:b", "sub-01", "#", "-", "a b", "\\", "'", '"', '"""', "a\0b",
    "\u202eabc", "\ufeff", "\u200b", "é", "e\u0301", "😀", "", " ", "\t", "\n", "\r\n",
    "x" * 300, "x" * 70_000,
]
ODD_VALUES = [
    None, -1, 0, 1, 2, 1.5, 10**30, -(2**63), 1e308, True, False, [], {}, [[]], [1, 2],
    {"a": 1}, [None], "x", "sub-1.npy", "../x", "volume", "cifti", "surface", "<f8",
    "|O", float("nan"), float("inf"), {"file": "sub-1.npy"}, [4, 5], [0, 0], ["a"],
]
# fmt: on


# -- ways to change things -------------------------------------------------------------


def change_bytes(data, rng):
    """Flip, cut, repeat, insert or overwrite some bytes."""
    out = bytearray(data)
    for _ in range(rng.choice([1, 1, 1, 2, 3, 8])):
        at, length = rng.randrange(len(out) + 1), rng.choice([1, 2, 4, 8, 100])
        kind = rng.randrange(7)
        if kind == 0 and at < len(out):
            out[at] ^= 1 << rng.randrange(8)
        elif kind == 1:
            out[at : at + 1] = bytes([rng.choice([0, 1, 9, 10, 34, 127, 128, 255])])
        elif kind == 2:
            del out[at : at + length]
        elif kind == 3:
            out[at:at] = out[at : at + length]
        elif kind == 4:
            out[at : at + length] = rng.randbytes(length)
        elif kind == 5:
            ends = [b"\xff" * 4, b"\0" * 4, b"\0\0\0\x80", b"\xff\xff\xff\x7f", b"\x01"]
            out[at : at + 4] = rng.choice(ends)
        elif rng.random() < 0.3:
            del out[at:]
    return bytes(out)


def change_json(document, rng, keep=()):
    """Replace, remove, add or swap values somewhere in a document."""
    document = copy.deepcopy(document)

    def places():
        waiting, found = [document], []
        while waiting and len(found) < 5000:
            node = waiting.pop()
            items = node.items() if isinstance(node, dict) else enumerate(node)
            for key, value in items:
                if key not in keep:
                    found.append((node, key))
                    if isinstance(value, dict | list):
                        waiting.append(value)
        return found

    for _ in range(rng.choice([1, 1, 2, 4])):
        found = places()
        if not found:
            break
        node, key = rng.choice(found)
        kind = rng.random()
        if kind < 0.12:
            del node[key]
        elif kind < 0.2:
            other, at = rng.choice(found)
            with contextlib.suppress(LookupError, RecursionError):
                node[key] = copy.deepcopy(other[at])
        elif kind < 0.25:
            deep = []
            for _ in range(rng.choice([20, 2000])):
                deep = [deep]
            node[key] = deep
        elif kind < 0.3 and isinstance(node, list):
            node.append(node[key])
        else:
            odd = rng.choice(rng.choice([ODD_VALUES, ODD_TEXTS]))
            node[key] = copy.deepcopy(odd)
    return document


def change_table(text, rng, separator="\t"):
    """Change cells, columns, lines and bytes of a table of text; return bytes."""
    rows = [line.split(separator) for line in text.splitlines()]
    for _ in range(rng.choice([1, 1, 2, 4])):
        row = rng.choice(rows) if rows else []
        kind = rng.randrange(10)
        if kind < 4 and row:
            row[rng.randrange(len(row))] = rng.choice(ODD_TEXTS)
        elif kind == 4 and row:
            row[rng.randrange(len(row))] = repr(rng.uniform(-1e6, 1e6))
        elif kind == 5 and rows:
            rows.remove(row)
        elif kind == 6 and rows:
            rows.insert(rng.randrange(len(rows) + 1), list(row))
        elif kind == 7 and row:
            del row[rng.randrange(len(row))]
        elif kind == 8:
            row.append(rng.choice(ODD_TEXTS))
        elif rows:  # a column of one value
            at, value = rng.randrange(len(rows[0]) or 1), rng.choice(ODD_TEXTS)
            for each in rows[1:]:
                if at < len(each):
                    each[at] = value
    end = rng.choice(["\n", "\n", "\n", "\r\n", "\r"])
    data = (end.join(separator.join(row) for row in rows) + end).encode(
        rng.choice(["utf-8"] * 6 + ["utf-16", "utf-8-sig", "utf-32"])
    )
    return change_bytes(data, rng) if rng.random() < 0.3 else data


def small_study(**options):
    """Return a study of two subjects that is made in no time."""
    rng = np.random.default_rng(0)
    y = np.array([0, 1, 2] * 6)
    patterns = rng.normal(size=(3, 8)) * 3
    subjects = [
        bw.Subject(
            id,
            patterns[y] @ rng.normal(size=(8, v)) + rng.normal(size=(18, v)),
            labels=[f"c{k}" for k in y],
            runs=np.repeat([1, 2, 3], 6),
        )
        for id, v in (("1", 12), ("2", 15))
    ]
    return bw.Study(subjects, "fuzz", **options)


def same_study(one, other):
    """Tell whether two studies hold the same."""
    return one.ids == other.ids and all(
        np.array_equal(a.data(), b.data())
        and np.array_equal(np.asarray(a.labels, str), np.asarray(b.labels, str))
        for a, b in zip(one, other, strict=True)
    )


# -- the readers -----------------------------------------------------------------------


class Model:
    """Files of models and of bases: bytes, and documents with right checksums."""

    def __init__(self, folder):
        from brainweave.persistence.codec import read_container

        self.path = folder / "m.safetensors"
        study = small_study()
        self.X = [s.data() for s in study]
        fitted = bw.GDM(2, kernel=["linear", "gaussian"]).fit(study)
        self.files = []
        for model in (fitted, bw.DetSRM(2, random_state=0).fit(self.X)):
            path = bw.save(model, folder / f"{len(self.files)}.safetensors")
            container = read_container(path)
            document = {k: v for k, v in container.document.items() if k != "arrays"}
            want = bw.load(path).transform(self.X)
            self.files.append((path.read_bytes(), document, container.arrays, want))
        basis = bw.save(fitted.bases_[0], folder / "b.safetensors")
        self.basis = basis.read_bytes()

    def try_one(self, rng):
        from brainweave.persistence.codec import write_container

        if rng.random() < 0.2:
            self.path.write_bytes(change_bytes(self.basis, rng))
            bw.load(self.path)
            return
        data, document, arrays, want = rng.choice(self.files)
        exact = rng.random() < 0.6
        if exact:
            self.path.write_bytes(change_bytes(data, rng))
        else:
            try:
                changed = change_json(document, rng)
                write_container(self.path, changed, arrays)
            except (ValueError, TypeError, RecursionError):
                return  # no such document can be written
        bw.describe(self.path)
        model = bw.load(self.path)
        features = model.transform(self.X)
        if exact:
            for a, b in zip(features, want, strict=True):
                assert np.array_equal(a, b), "a damaged file gave other features"


class StudyFolder:
    """Study folders: index, tables, arrays, masks; links, gaps, absurd shapes."""

    def __init__(self, folder):
        import nibabel as nib

        from brainweave.study.spaces import VolumeSpace

        mask = np.zeros((3, 4, 2), np.uint8)
        mask.flat[:5] = 1
        space = VolumeSpace(nib.Nifti1Image(mask, np.diag([2.0, 2, 2, 1])))
        rng = np.random.default_rng(0)
        self.study = bw.Study(
            [
                bw.Subject(
                    "1",
                    rng.normal(size=(4, 5)),
                    labels=["a", None, "b", "c\td"],
                    runs=[1, 1, 2, 2],
                    onsets=[0, 1, 2, np.nan],
                    stimuli=[1, 2, 3, 4],
                    space=space,
                    aligned=[True, False, True, True],
                ),
                bw.Subject("2", rng.normal(size=(3, 6)).astype("f4"), labels=[1, 2, 3]),
            ],
            "x",
            record={"a": [1, 2]},
        )
        self.root, self.outside = folder / "study", folder / "outside.npy"
        self.study.save(self.root)
        np.save(self.outside, np.full((4, 5), 7.0))
        self.good = {p.name: p.read_bytes() for p in self.root.iterdir()}

    def try_one(self, rng):
        from brainweave.study.formats.folder import _index_checksum

        shutil.rmtree(self.root)
        self.root.mkdir()
        for name, data in self.good.items():
            (self.root / name).write_bytes(data)
        index = json.loads(self.good["study.json"])
        entries = [s[k] for s in index["subjects"] for k in ("samples", "table")]
        entries += [f for s in index["spaces"] for f in s["files"]]
        kind = rng.randrange(6)
        if kind == 0:  # damage: found, or without effect
            name = rng.choice(sorted(self.good))
            (self.root / name).write_bytes(change_bytes(self.good[name], rng))
            assert same_study(self._opened(), self.study), f"{name} is wrong, unseen"
            return
        if kind == 1:  # an index that somebody wrote
            index = change_json(index, rng, keep=("format", "version"))
        elif kind == 2:  # files that somebody wrote
            entry = rng.choice(entries)
            data = change_bytes(self.good[entry["file"]], rng)
            if entry["file"].endswith(".gz"):
                raw = bytearray(gzip.decompress(self.good[entry["file"]]))
                for _ in range(rng.choice([1, 1, 3])):
                    raw[rng.randrange(352)] = rng.randrange(256)
                data = gzip.compress(bytes(raw), 1)
            self._put(entry, data)
        elif kind == 3:  # a way out of the folder
            entry = rng.choice(entries[:1] + entries)
            entry["file"] = rng.choice(
                ["../outside.npy", str(self.outside), "./sub-1.npy", "..", "sub-1.npy/"]
            )
            self._stamp(entry, self.outside.read_bytes())
        elif kind == 4:  # a link out of the folder
            entry = rng.choice(entries)
            path = self.root / entry["file"]
            path.unlink()
            path.symlink_to(rng.choice([self.outside, "/dev/zero", "nowhere", path]))
            self._stamp(entry, self.outside.read_bytes())
        else:  # an absurd shape, with a file to match that takes no room
            entry = rng.choice(entries[:3:2])
            shape = rng.choice([(10**6, 10**6), (2**62, 4), (0, 5), (-1, 5), (4, 0)])
            head = io.BytesIO()
            header = {"descr": "<f8", "fortran_order": True, "shape": shape}
            np.lib.format.write_array_header_1_0(head, header)
            path = self.root / entry["file"]
            path.write_bytes(head.getvalue())
            size = min(len(head.getvalue()) + abs(8 * shape[0] * shape[1]), 2**43)
            with contextlib.suppress(OSError):
                os.truncate(path, size)
            entry |= {"shape": list(shape), "dtype": "<f8", "sha256": "0" * 64}
            entry["bytes"] = path.stat().st_size
        with contextlib.suppress(RecursionError):
            index["checksum"] = _index_checksum(index)
            (self.root / "study.json").write_text(json.dumps(index))
        opened = self._opened()
        if kind in (3, 4):
            assert not any((s.data() == 7).any() for s in opened), "read from outside"

    def _put(self, entry, data):
        (self.root / entry["file"]).write_bytes(data)
        self._stamp(entry, data)

    def _stamp(self, entry, data):
        entry |= {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}

    def _opened(self):
        study = bw.Study.open(self.root)
        study.summary()
        for subject in study:
            if subject.n_samples * subject.n_voxels < 10**6:
                subject.data()
        return study


class Store:
    """Records of comparisons: the record as it was, or none and a warning."""

    def __init__(self, folder):
        from brainweave.evaluation.grid import ResultStore

        self.root = folder / "store"
        self.record = {"score": 0.5, "fold": [1, 2], "name": "é"}
        ResultStore(self.root).put("a", self.record)
        self.good = {p: p.read_bytes() for p in self.root.rglob("*.json")}

    def try_one(self, rng):
        from brainweave.evaluation.grid import ResultStore

        shutil.rmtree(self.root)
        (self.root / "cells").mkdir(parents=True)
        for path, data in self.good.items():
            path.write_bytes(data)
        path = rng.choice(sorted(self.good))
        kind = rng.randrange(4)
        if kind == 0:
            path.unlink()
            if rng.random() < 0.5:
                path.symlink_to(rng.choice(["nowhere", "/dev/null", str(path)]))
            else:
                path.mkdir()
        elif kind == 1:
            document = change_json(json.loads(self.good[path]), rng)
            with contextlib.suppress(RecursionError):
                path.write_text(json.dumps(document))
        else:
            path.write_bytes(change_bytes(self.good[path], rng))
        store = ResultStore(self.root)
        found = store.get("a")
        assert found in (None, self.record), "a damaged record was believed"
        store.put("a", self.record)
        assert store.get("a") == self.record


class Config:
    """TOML files of options, by the command that reads them."""

    def __init__(self, folder):
        from brainweave.cli.console import run

        self.folder, self.run = folder, run
        self.path = folder / "c.toml"
        small_study().save(folder / "study")
        self.study, self.out = str(folder / "study"), str(folder / "m.safetensors")
        self.options = {
            **{
                "method": "paper-gdm",
                "n_components": 2,
                "energy": 0.7,
                "kernel": "linear",
            },
            **{"graph": "labels", "param": ["standardize=true"]},
        }

    def try_one(self, rng):
        from brainweave.cli.files import toml

        # never options that write elsewhere: strings here could name any place
        options = change_json(self.options, rng)
        options.pop("output", None)
        try:
            lines = [f"{k} = {toml(v)}" for k, v in options.items() if v is not None]
        except RecursionError:
            lines = []  # too deep to be written
        head = rng.choice(["", "[fit]", "[made]\na = 1\n[fit]", "[nothing]", "[[fit]]"])
        data = "\n".join([head, *lines]).encode("utf-8", "replace")
        if rng.random() < 0.3:
            data = change_bytes(data, rng)
        if rng.random() < 0.03:
            data = b"a = " + b"[" * 5000
        self.path.write_bytes(data)
        told = io.StringIO()
        with contextlib.redirect_stderr(told), contextlib.redirect_stdout(told):
            code = self.run(
                [
                    *("fit", self.study, "-o", self.out, "-q", "--n-jobs", "1"),
                    *("--config", str(self.path)),
                ]
            )
        text = told.getvalue()
        assert code in (0, 1, 2), f"exit code {code}"
        assert "This should not happen" not in text, text
        assert "Traceback" not in text, text
        if code:
            raise BrainweaveError


class Events:
    """Tables of events, and the samples planned from them."""

    text = "onset\tduration\ttrial_type\tstim_file\n" + "".join(
        f"{4 * i}\t3\t{'face' if i % 2 else 'house'}\ts{i}.png\n" for i in range(8)
    )

    def __init__(self, folder):
        self.path = folder / "events.tsv"

    def try_one(self, rng):
        from brainweave.study.formats.events import plan_samples, read_events

        self.path.write_bytes(change_table(self.text, rng))
        stimulus = rng.choice([None, "stim_file"])
        events = read_events(self.path, stimulus=stimulus)
        kind = rng.choice(["volumes", "blocks", "trials"])
        plan = plan_samples(events, 20, 2.0, samples=kind)
        made = plan.apply(np.ones((20, 2)))
        assert made.shape == (len(plan), 2)
        assert np.isfinite(made).all(), "samples that are no numbers"
        assert len(plan.labels) == len(plan.onsets) == len(plan)


class Bids:
    """BIDS trees: odd names, and sidecars, confounds and events that are wrong."""

    def __init__(self, folder):
        self.good, self.root = folder / "good", folder / "data"
        study = bw.simulate_study(n_subjects=2, n_voxels=20, n_runs=1, categories=2)
        study.to_bids(self.good, raw=False)
        kinds = (".json", ".tsv", ".nii.gz")
        self.files = sorted(
            p.relative_to(self.good)
            for p in self.good.rglob("*")
            if p.is_file() and p.name.endswith(kinds)
        )
        self.outside = folder / "outside.nii.gz"

    def try_one(self, rng):
        shutil.rmtree(self.root, ignore_errors=True)
        shutil.copytree(self.good, self.root)
        for _ in range(rng.choice([1, 1, 2])):
            self._change(self.root / rng.choice(self.files), rng)
        options = rng.choice(
            [
                *({}, {"confounds": "simple", "scrub": 0.5}),
                {"confounds": "scrubbing"},
                *({"confounds": ["trans_x"]}, {"samples": "blocks"}, {"label": None}),
            ]
        )
        study = bw.load_bids(self.root, **options)
        for subject in study:
            assert np.isfinite(subject.data()).all(), "samples that are no numbers"

    def _change(self, path, rng):
        if not path.is_file():
            return
        kind = rng.randrange(6)
        if kind == 0:  # an odd name
            odd = rng.choice(ODD_TEXTS).replace("/", "").replace("\0", "")[:40]
            part = rng.choice(path.name.split("_"))
            name = path.name.replace(part, odd + part if rng.random() < 0.5 else odd)
            if name and name not in (".", ".."):
                with contextlib.suppress(OSError, ValueError):  # no such name here
                    path.rename(path.with_name(name))
        elif kind == 1:
            path.unlink()
            if rng.random() < 0.5:
                path.mkdir()
            elif rng.random() < 0.5:
                path.symlink_to(rng.choice(["nowhere", str(path), "/dev/null"]))
        elif path.suffix == ".json" and kind < 5:
            with contextlib.suppress(RecursionError, ValueError):
                text = json.dumps(change_json(json.loads(path.read_text()), rng))
                path.write_text(text if rng.random() < 0.9 else "[" * 100_000)
        elif path.suffix == ".tsv" and kind < 5:
            text = path.read_bytes().decode("utf-8", "replace")
            path.write_bytes(change_table(text, rng))
        elif path.suffix == ".gz" and kind < 5:
            name = path.relative_to(self.root)
            raw = bytearray(gzip.decompress((self.good / name).read_bytes()))
            for _ in range(rng.choice([1, 1, 3])):
                raw[rng.randrange(352)] = rng.choice(
                    [0, 1, 127, 255, rng.randrange(256)]
                )
            path.write_bytes(gzip.compress(bytes(raw), 1))
        else:
            path.write_bytes(change_bytes(path.read_bytes(), rng))


class Confounds:
    """Tables of confounds and their sidecars, as fMRIPrep writes them."""

    def __init__(self, folder):
        from brainweave.study.formats.bids import open_dataset

        study = bw.simulate_study(n_subjects=1, n_voxels=20, n_runs=1, categories=2)
        study.to_bids(folder / "data", raw=False)
        self.dataset = open_dataset(folder / "data")
        (self.run,) = self.dataset.runs
        (self.table,) = self.dataset.images.rglob("*confounds_timeseries.tsv")
        self.sidecar = self.table.with_suffix(".json")
        about = {"a_comp_cor_00": {"Method": "aCompCor", "Mask": "combined"}}
        self.good = self.table.read_text(), about

    def try_one(self, rng):
        from brainweave.study.formats.bids import read_confounds
        from brainweave.study.formats.runs import Run, columns_to_remove
        from brainweave.study.spaces import RunHeader

        text, about = self.good
        self.table.write_text(text)
        self.sidecar.write_text(json.dumps(about))
        if rng.random() < 0.8:
            self.table.write_bytes(change_table(text, rng))
        else:
            with contextlib.suppress(RecursionError):
                self.sidecar.write_text(json.dumps(change_json(about, rng)))
        wanted = rng.choice(
            [
                *("simple", "scrubbing", ["trans_x", "rot_y"], None),
                *(("motion",), ("motion", "wm_csf"), {"strategy": ("motion",)}),
            ]
        )
        scrub = rng.choice([None, 0.5])
        columns, _, _ = read_confounds(self.dataset, self.run, wanted, scrub)
        if columns is not None:
            run = Run("a run", columns, header=RunHeader(len(columns)))
            assert np.isfinite(columns_to_remove(run, None)).all()


class Matlab:
    """MATLAB files, old and HDF5, as the child process reads them."""

    def __init__(self, folder):
        import h5py
        from scipy.io import savemat

        self.path = folder / "x.mat"
        rng = np.random.default_rng(0)
        cell = np.empty(2, object)
        cell[0], cell[1] = rng.normal(size=(3, 4)), rng.normal(size=(2, 4))
        self.good = []
        for packed in (False, False, False, True):
            for content in (
                {"data": rng.normal(size=(4, 3, 2))},
                {"data": cell, "label": np.arange(3)},
                {"s": {"a": 1, "b": "xy"}, "t": np.array(["ab", "cd"], object)},
            ):
                file = io.BytesIO()
                savemat(file, content, do_compression=packed)
                self.good.append(file.getvalue())
        with h5py.File(folder / "h.mat", "w") as file:
            file["data"] = rng.normal(size=(2, 3, 4))
            file["cells"] = np.array([file["data"].ref], h5py.ref_dtype)
        self.good += 3 * [(folder / "h.mat").read_bytes()]

    def try_one(self, rng):
        from brainweave._core.exceptions import StudyError
        from brainweave.study.formats import matlab

        self.path.write_bytes(change_bytes(rng.choice(self.good), rng))
        pid = os.fork()
        if pid == 0:
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
            resource.setrlimit(resource.RLIMIT_CPU, (5, 5))  # users have a timer
            try:
                matlab.read_variables(str(self.path))
            except Exception:
                os._exit(1)
            os._exit(0)
        _, status = os.waitpid(pid, 0)
        if status:  # an error, or a crash of the child
            raise StudyError("not a readable MATLAB file")


class Tags(html.parser.HTMLParser):
    """Counts what could act in a page."""

    def __init__(self):
        super().__init__()
        self.found = Counter()

    def handle_starttag(self, tag, attributes):
        if tag in (
            "script",
            "iframe",
            "object",
            "embed",
            "img",
            "link",
            "base",
            "form",
        ):
            self.found[tag] += 1
        for name, value in attributes:
            if name.startswith("on"):
                self.found[name] += 1
            if (value or "").strip().lower().startswith("javascript:"):
                self.found["javascript:"] += 1


class Labels:
    """Odd text as ids, labels and names: in files, in names of files, in HTML."""

    def __init__(self, folder):
        self.folder = folder
        self.base = small_study()

    def _text(self, rng):
        if rng.random() < 0.7:
            return rng.choice(ODD_TEXTS)[:2000]
        return "".join(
            chr(rng.choice([rng.randrange(1, 128), 0x2028, 0x1F600]))
            for _ in range(rng.randrange(12))
        )

    def try_one(self, rng):
        from brainweave.report import write_report

        for place in ("study", "bids"):
            shutil.rmtree(self.folder / place, ignore_errors=True)
        texts = {f"c{k}": self._text(rng) for k in range(3)}
        ids = [self._text(rng), self._text(rng)]
        study = bw.Study(
            [
                bw.Subject(
                    id,
                    s.data(),
                    labels=[texts[label] for label in s.labels],
                    runs=s.runs,
                    stimuli=[texts[label] for label in s.labels],
                )
                for id, s in zip(ids, self.base, strict=True)
            ],
            self._text(rng),
        )
        before = sorted(self.folder.iterdir())
        opened = study.save(self.folder / "study")
        assert opened.ids == study.ids, "ids were lost"
        assert opened.name == study.name
        for a, b in zip(opened, study, strict=True):
            assert list(a.labels) == list(b.labels), "labels were lost"
        after = {*before, self.folder / "study"}
        assert set(self.folder.iterdir()) == after, "a file outside of its folder"
        page = self.folder / "r.html"
        write_report(page, study=study, title=self._text(rng))
        tags = Tags()
        tags.feed(page.read_text("utf-8"))
        if not hasattr(self, "known"):
            write_report(page, study=self.base)
            plain = Tags()
            plain.feed(page.read_text("utf-8"))
            self.known = plain.found
        assert not tags.found - self.known, f"foreign HTML: {tags.found - self.known}"


PARSERS = {
    "model": Model,
    "study": StudyFolder,
    "store": Store,
    "config": Config,
    "events": Events,
    "confounds": Confounds,
    "bids": Bids,
    "matlab": Matlab,
    "labels": Labels,
}


# -- the work --------------------------------------------------------------------------


def try_inputs(parser, numbers, tell):
    """Try inputs one after another; tell of each begin and of what came of it."""

    def late(*_):
        raise TimeoutError(f"more than {PATIENCE} s")

    signal.signal(signal.SIGPROF, late)
    for number in numbers:
        tell(f"begin {number}")
        signal.setitimer(signal.ITIMER_PROF, PATIENCE)
        try:
            parser.try_one(random.Random(number))
            outcome = "read"
        except BrainweaveError:
            outcome = "refused"
        except BaseException as error:
            last = traceback.extract_tb(error.__traceback__)[-1]
            place = f"{Path(last.filename).name}:{last.lineno}"
            said = " ".join(str(error).split())[:300]
            outcome = f"WRONG {type(error).__name__} at {place}: {said}"
            if os.environ.get("BRAINWEAVE_DEBUG"):
                traceback.print_exc()
        signal.setitimer(signal.ITIMER_PROF, 0)
        tell(f"end {number} {outcome}")


def in_child(parser, numbers):
    """Try inputs in a child; return the outcome of each, and the seconds of CPU."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(reader)
        warnings.simplefilter("ignore")
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
        with contextlib.suppress(BaseException):
            try_inputs(
                parser, numbers, lambda line: os.write(writer, f"{line}\n".encode())
            )
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader, encoding="utf-8", errors="replace") as pipe:
        lines = pipe.read().splitlines()
    used = os.wait4(pid, 0)[2]
    ends = [line.split(" ", 2)[1:] for line in lines if line.startswith("end ")]
    outcomes = {int(number): what for number, what in ends}
    begun = [int(line.split()[1]) for line in lines if line.startswith("begin ")]
    if begun and begun[-1] not in outcomes:
        outcomes[begun[-1]] = "WRONG the process died"
    return outcomes, used.ru_utime + used.ru_stime


def fuzz(name, seconds, first=0, inputs=None):
    """Try a reader; return numbers of inputs, refusals, and wrong ones by kind."""
    warnings.simplefilter("ignore")
    counts, wrong, spent, number, told = Counter(), {}, 0.0, first, []
    signal.signal(signal.SIGTERM, lambda *_: told.append("stop"))  # after this batch
    with tempfile.TemporaryDirectory(prefix=f"fuzz-{name}-") as folder:
        parser = PARSERS[name](Path(folder))
        for warm in range(5):  # imports are made once, not in every child
            with contextlib.suppress(Exception):
                parser.try_one(random.Random(f"warm {warm}"))
        while (
            spent < seconds and not told and (inputs is None or number < first + inputs)
        ):
            end = number + BATCH if inputs is None else first + inputs
            outcomes, used = in_child(parser, range(number, min(end, number + BATCH)))
            spent += used
            for which, what in outcomes.items():
                counts[what.split(" ")[0]] += 1
                kind = what.partition(": ")[0]
                if what.startswith("WRONG") and kind not in wrong:
                    wrong[kind] = which
                    print(f"{name} input {which}: {what}", flush=True)
            number = max(outcomes, default=number) + 1
    print(
        f"{name}: {sum(counts.values())} inputs in {spent:.0f} s of CPU, "
        f"{counts['read']} read, {counts['refused']} refused, {counts['WRONG']} wrong",
        flush=True,
    )
    return counts["WRONG"]


def main():
    """Read the options and fuzz."""
    about = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    about.add_argument("--parser", choices=["all", *PARSERS], default="all")
    about.add_argument("--seconds", type=float, default=600, help="of CPU, per reader")
    about.add_argument("--first", type=int, default=0, help="number of the first input")
    about.add_argument("--inputs", type=int, help="stop after so many")
    given = about.parse_args()
    names = list(PARSERS) if given.parser == "all" else [given.parser]
    wrong = [fuzz(n, given.seconds, given.first, given.inputs) for n in names]
    sys.exit(1 if any(wrong) else 0)


if __name__ == "__main__":
    main()
