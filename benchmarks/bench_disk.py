"""A fit from disk beside a bare pass over the same files, and the order of the files.

    python benchmarks/bench_disk.py [--full | --large | --defaults SHAPE]

The bare pass reads every file and multiplies ``X @ X.T`` in blocks of voxels. Files are
put out of the page cache before each reading, so that both read from the disk. The full
benchmark writes 40 x 1000 x 50,000 in float32 (8 GB), and 1,000 subjects. With
``--defaults 200x1200x1000`` SRM and the default GDM are fitted to a film of this shape.
"""

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from brainweave import Study, Subject, SubjectBasis
from brainweave._core.workers import map_subjects

BLOCK = 2**26


def evict(paths: list[Path]) -> None:
    """Put files out of the page cache, as far as the system lets us."""
    for path in paths:
        with path.open("rb") as file:
            os.fsync(file.fileno())
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def bare(paths: list[Path]) -> None:
    """Read and multiply, blocks of voxels, subjects side by side as in a fit."""
    map_subjects(bare_product, paths)


def bare_product(path: Path) -> None:
    X = np.load(path, mmap_mode="r")
    n, v = X.shape
    step = BLOCK // (n * X.itemsize)
    total = np.zeros((n, n))
    for start in range(0, v, step):
        block = np.array(X[:, start : start + step])
        total += block @ block.T


def timed(function, paths: list[Path]) -> float:
    evict(paths)
    start = time.perf_counter()
    function()
    return time.perf_counter() - start


def bench_order(folder: Path, n: int, v: int) -> None:
    print(f"\none subject of {n} x {v} float32 ({n * v * 4 / 1e6:.0f} MB), cold")
    X = np.random.default_rng(0).standard_normal((n, v), np.float32)
    for order in ("C", "F"):
        path = folder / f"{order}.npy"
        np.save(path, np.asarray(X, order=order))

        def read(path: Path = path) -> None:
            SubjectBasis(np.load(path, mmap_mode="r"))

        cold = min(timed(read, [path]) for _ in range(2))
        read()
        start = time.perf_counter()
        read()
        warm = time.perf_counter() - start
        print(f"  {order} order: basis {cold:.2f} s cold, {warm:.2f} s cached")
        path.unlink()


FIT = """
import json, re, sys, time
import numpy as np
from brainweave import GDM, PaperGDM, SRM, Study
study = Study.open(sys.argv[1], verify=False)
graph, how = sys.argv[2], json.loads(sys.argv[3])
status = lambda: open("/proc/self/status").read()
start, before = time.perf_counter(), time.process_time()
# row numbers join the samples in time, labels of the study else
if how.pop("model", "") == "SRM":
    gdm = SRM(10, random_state=0)
else:
    how = {"n_components": 10, "graph": graph, **how}
    gdm = (PaperGDM if "energy" in how else GDM)(**how)
gdm.fit([s.samples for s in study], None if graph == "time" else study)
seconds, cpu = time.perf_counter() - start, time.process_time() - before
peak = int(re.search(r"VmHWM:\\s+(\\d+)", status()).group(1)) / 1024
print(f"{seconds:.2f} {cpu:.2f} {peak:.0f}")
"""


def fit(folder: Path, graph: str, **how: float | str) -> tuple[float, float, float]:
    """Fit in a process of its own: seconds, processor seconds, peak memory in MB."""
    command = [sys.executable, "-W", "ignore", "-c", FIT]
    given = [str(folder), graph, json.dumps(how)]
    done = subprocess.run([*command, *given], capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(done.stderr)
    seconds, cpu, peak = map(float, re.findall(r"[\d.]+", done.stdout))
    return seconds, cpu, peak


def make_study(folder: Path, m: int, n: int, v: int) -> Study:
    """Write subjects one by one: noise on a few shared components."""
    rng = np.random.default_rng(0)
    shared = rng.standard_normal((n, 8), np.float32)

    class Lazy:
        shape, dtype = (n, v), np.dtype(np.float32)

        def __init__(self, seed: int) -> None:
            self.seed = seed

        def read(self) -> np.ndarray:
            own = np.random.default_rng(self.seed)
            X = own.standard_normal((n, v), np.float32)
            return X + shared @ own.standard_normal((8, v), np.float32)

    labels = np.arange(n) % 8
    subjects = [Subject(f"{i:04}", Lazy(i), labels=labels) for i in range(m)]
    return Study(subjects).save(folder)


def bench_out_of_core(folder: Path, m: int, n: int, v: int) -> None:
    size = m * n * v * 4 / 1e9
    print(f"\n{m} subjects x {n} x {v} float32 from a study folder ({size:.1f} GB)")
    make_study(folder, m, n, v)
    paths = sorted(folder.glob("*.npy"))
    plans: list[tuple[str, dict[str, float]]] = [
        ("labels", {"shrinkage": 0.1}),
        ("labels", {}),
        ("time", {}),
        ("labels", {"energy": 0.82}),
        ("time", {"energy": 0.35}),
    ]
    passes, fits = [], []
    for _ in range(2):  # in turn: the machine's pace changes
        before = time.process_time()
        passes.append((timed(lambda: bare(paths), paths), time.process_time() - before))
        for graph, how in plans:
            evict(paths)
            fits.append(fit(folder, graph, **how))
    bare_s, bare_cpu = np.min(passes, axis=0)
    print(f"  bare pass: {bare_s:.1f} s, processor {bare_cpu:.1f} s; the better of two")
    for (graph, how), *both in zip(
        plans, fits[: len(plans)], fits[len(plans) :], strict=True
    ):
        seconds, cpu, peak = np.min(both, axis=0)
        named = " ".join(f"{k} {v}" for k, v in how.items()) or "shrinkage chosen"
        print(
            f"  {graph:>6}, {named:>16}: {seconds:.1f} s, {seconds / bare_s:.2f} x "
            f"(processor {cpu:.1f} s, {cpu / bare_cpu:.2f} x); peak {peak:.0f} MB"
        )


def bench_many(folder: Path, counts: list[int], n: int, v: int) -> None:
    print(f"\nmany subjects of {n} x {v} float32 from study folders")
    for m in counts:
        make_study(folder / str(m), m, n, v)
        for graph in ("labels", "time"):
            seconds, cpu, peak = fit(folder / str(m), graph, energy=0.35)
            print(
                f"  {m:5} subjects, {graph:>6}: {seconds:6.1f} s, processor "
                f"{cpu:6.1f} s, {1000 * cpu / m:5.1f} ms each; "
                f"peak memory {peak:.0f} MB",
                flush=True,
            )


def bench_defaults(folder: Path, m: int, n: int, v: int) -> None:
    print(f"\n{m} subjects x {n} x {v} float32 of a film, from a study folder")
    make_study(folder, m, n, v)
    for model in ("SRM", "GDM"):
        how = {"n_components": "auto"} if model == "GDM" else {}
        seconds, cpu, peak = fit(folder, "time", model=model, **how)
        print(
            f"  {'SRM(10)' if model == 'SRM' else 'GDM()':>8}: {seconds:6.1f} s, "
            f"processor {cpu:6.1f} s, {1000 * cpu / m:5.0f} ms each; "
            f"peak memory {peak:.0f} MB",
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--full", action="store_true", help="8 GB, 1,000 subjects")
    parser.add_argument("--large", action="store_true", help="of --full the 8 GB alone")
    parser.add_argument("--defaults", help="subjects x samples x voxels, 200x1200x1000")
    parser.add_argument("--folder", help="on which disk; default the temporary one")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.folder) as made:
        root = Path(made)
        if options.defaults:
            return bench_defaults(root / "film", *map(int, options.defaults.split("x")))
        if options.large:
            return bench_out_of_core(root / "large", 40, 1000, 50_000)
        bench_order(root, 1000, 50_000 if options.full else 20_000)
        shape = (40, 1000, 50_000) if options.full else (10, 500, 20_000)
        bench_out_of_core(root / "large", *shape)
        bench_many(root, [250, 500, 1000] if options.full else [50, 100], 300, 1000)


if __name__ == "__main__":
    main()
