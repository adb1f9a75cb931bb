"""Speed and memory of GDM, each as a ratio to a floor measured in the same run.

    python benchmarks/bench_gdm.py [--quick] [--long]

The floor is what no alignment by Gram matrices can avoid: for all subjects, a bare
``X @ X.T`` and LAPACK's ``eigh`` of the result, in the data's own dtype. NumPy calls
``syrk`` for ``X @ X.T``, so the floor does no superfluous work.
"""

import argparse
import subprocess
import sys
import tempfile
import time
import tracemalloc
import warnings
from collections.abc import Callable
from copy import copy
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import scipy.linalg

from brainweave import GDM, PaperGDM, SubjectBasis
from brainweave._core.arrays import CHUNK_BYTES
from brainweave._core.exceptions import UniquenessWarning
from brainweave._core.workers import blas_threads, map_subjects
from brainweave.aligners.gdm.eigenproblem import solve

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from algorithm1 import algorithm_1, naive_kernel_scheme

# subjects, samples, voxels, categories (0: a time graph), K, energy
SHAPES = [
    (6, 497, 2294, 8, 10, 0.82),
    (6, 497, 19174, 8, 10, 0.82),
    (14, 135, 19174, 2, 10, 0.82),
    (16, 242, 19174, 4, 10, 0.82),
    (10, 845, 9947, 4, 10, 0.82),
    (10, 734, 1000, 0, 20, 0.35),
]
LONG = [(4000, 1000), (4000, 3000), (4000, 20_000), (10_000, 1000), (10_000, 12_000)]
QUICK_SHAPES = [(4, 60, 300, 4, 6, 0.82), (4, 60, 300, 0, 6, 0.35)]


def make_data(
    rng: np.random.Generator, n_subjects: int, n: int, v: int, dtype: Any
) -> list[np.ndarray]:
    """Make samples with a decaying spectrum, as fMRI data have, on top of noise."""
    data = []
    for _ in range(n_subjects):
        mixing = rng.standard_normal((n, 40)) * np.linspace(1.5, 0.2, 40)
        X = mixing @ rng.standard_normal((40, v))
        X += rng.standard_normal((n, v))
        data.append(X.astype(dtype))
    return data


def floor(X: list[np.ndarray]) -> None:
    for x in X:
        np.linalg.eigh(x @ x.T)


def standardised_floor(X: list[np.ndarray]) -> None:
    """Do the same with voxels of unit variance: the least that NumPy does it in."""
    for x in X:
        n, v = x.shape
        gram, average = np.zeros((n, n)), np.full((1, n), 1 / n, x.dtype)
        width = max(256, CHUNK_BYTES // (8 * n))
        for start in range(0, v, width):
            part = x[:, start : start + width]
            mean = average @ part
            variance = np.einsum("ij,ij->j", part, part) / n - mean[0] ** 2
            z = part * (1 / np.sqrt(variance))
            gram += z @ z.T
        means = gram.mean(axis=0)
        gram -= means
        gram -= means[:, None] - means.mean()
        np.linalg.eigh(gram)


def side_by_side(functions: list[Callable[[], Any]], repeats: int) -> list[float]:
    """Time functions in turn, several rounds, and keep the best of each."""
    best = [np.inf] * len(functions)
    for _ in range(repeats):
        for i, function in enumerate(functions):
            start = time.perf_counter()
            function()
            best[i] = min(best[i], time.perf_counter() - start)
    return best


def dropped(
    rng: np.random.Generator, X: list[np.ndarray], y: list[np.ndarray]
) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Take 20 % of each subject's samples away."""
    rows = [np.sort(rng.permutation(len(x))[: int(0.8 * len(x))]) for x in X]
    return (
        [x[r] for x, r in zip(X, rows, strict=True)],
        [part[r] for part, r in zip(y, rows, strict=True)],
    )


def bench_shapes(shapes: list[tuple[Any, ...]], repeats: int) -> None:
    print("\nfit against the floor (goal: 1.15), and against one that standardises")
    header = f"{'shape':>15} {'samples':>9} {'dtype':>8} {'floor s':>8} {'fit s':>8}"
    print(f"{header} {'ratio':>6} {'stand.':>6}   of it: pass, eigh, solve s (route)")
    rng = np.random.default_rng(0)
    for m, n, v, categories, k, energy in shapes:
        for dtype in (np.float64, np.float32):
            X = make_data(rng, m, n, v, dtype)
            y = [np.arange(n) % categories if categories else np.arange(n)] * m
            for kind, (data, known) in {
                "balanced": (X, y),
                "20 % less": dropped(rng, X, y),
            }.items():
                graph = "labels" if categories else "time"
                gdm = PaperGDM(k, energy=energy, graph=graph)

                def fit(gdm: GDM = gdm, data: Any = data, known: Any = known) -> None:
                    gdm.fit(data, known)

                floors = [partial(f, data) for f in (floor, standardised_floor)]
                bare_s, least_s, fit_s = side_by_side([*floors, fit], repeats)
                print(
                    f"{f'{m}x{n}x{v}':>15} {kind:>9} {np.dtype(dtype).name:>8} "
                    f"{bare_s:8.3f} {fit_s:8.3f} {fit_s / bare_s:6.2f} "
                    f"{fit_s / least_s:6.2f}   "
                    f"{profile(gdm, data)}",
                    flush=True,
                )


def processor_seconds(functions: list[Callable[[], Any]], repeats: int) -> list[float]:
    """Time functions in turn by their processor time, on one thread; best of each."""
    best = [np.inf] * len(functions)
    with blas_threads(1):
        for _ in range(repeats):
            for i, function in enumerate(functions):
                start = time.process_time()
                function()
                best[i] = min(best[i], time.process_time() - start)
    return best


def bench_shrinkage(shapes: list[tuple[Any, ...]], repeats: int) -> None:
    """Fit with a chosen and with a given strength, beside the bare Gram products."""
    print("\nshrinkage fit / bare float64 Gram products (goal: 1.15), one thread")
    header = f"{'shape':>15} {'products s':>11} {'auto':>6}"
    print(f"{header} {'rho given':>10} {'added MB':>9}")
    rng = np.random.default_rng(0)
    for m, n, v, categories, k, _ in shapes:
        X = make_data(rng, m, n, v, np.float64)
        y = [np.arange(n) % categories if categories else np.arange(n)] * m
        graph = "labels" if categories else "time"
        k = min(k, categories - 1 if categories else n)

        def products(X: Any = X) -> None:
            for x in X:
                x @ x.T

        fits = [
            partial(GDM(k, shrinkage=rho, graph=graph, n_jobs=1).fit, X, y)
            for rho in ("auto", 0.1)
        ]
        bare, auto, given = processor_seconds([products, *fits], repeats)
        tracemalloc.start()
        fits[0]()
        added = tracemalloc.get_traced_memory()[1] / 2**20
        tracemalloc.stop()
        print(
            f"{f'{m}x{n}x{v}':>15} {bare:11.3f} {auto / bare:6.2f} "
            f"{given / bare:10.2f} {added:9.0f}",
            flush=True,
        )


def profile(gdm: GDM, data: list[np.ndarray]) -> str:
    """Time the stages of a fit: the pass over voxels, eigenbases, the group problem."""
    (read,) = side_by_side([lambda: map_subjects(SubjectBasis, data)], 2)
    grams = [b.gram for b in gdm.bases_]
    (eigh,) = side_by_side([lambda: map_subjects(np.linalg.eigh, grams)], 2)
    vectors = [b.vectors for b in gdm.bases_]
    (group,) = side_by_side([lambda: solve(vectors, gdm.graph_, gdm.n_components)], 2)
    return f"{read:.3f}, {eigh:.3f}, {group:.3f} ({gdm.solver_})"


def bench_film(m: int, n: int, v: int, k: int, energy: float) -> None:
    print(f"\na film, {m}x{n}x{v}, energy {energy:g} (target: fit <= 1.5 x its bases)")
    X = make_data(np.random.default_rng(0), m, n, v, np.float32)

    def basis(x: np.ndarray) -> Any:
        made = SubjectBasis(x, energy=energy)
        return made.vectors

    gdm = PaperGDM(k, energy=energy, graph="time")
    bases_s, fit_s = side_by_side(
        [lambda: map_subjects(basis, X), lambda: gdm.fit(X)], 1
    )
    vectors = [b.vectors for b in gdm.bases_]
    apart = 0.0
    for route in ("closed", "iterative", "dense"):
        found = solve(vectors, gdm.graph_, k, route=route)
        difference = np.abs(found.eigenvalues[:k] - gdm.eigenvalues_).max()
        apart = max(apart, float(difference / found.scale))
    print(
        f"bases {bases_s:.3f} s, fit {fit_s:.3f} s: {fit_s / bases_s:.2f} x "
        f"({gdm.solver_}); routes differ by {apart:.0e}"
    )


def bench_literal(shape: tuple[Any, ...]) -> None:
    m, n, v, categories, k, energy = shape
    print(f"\nthe literal Algorithm 1 at {m}x{n}x{v} (target: 20 x slower than fit)")
    rng = np.random.default_rng(0)
    X = make_data(rng, m, n, v, np.float64)
    y = [np.arange(n) % categories] * m
    flat = np.concatenate(y)
    G = np.where(flat[:, None] == flat[None, :], 1.0, -1.0)
    kernels = [("linear", None)] * m

    def literal() -> None:
        algorithm_1([x.T for x in X], k, [energy] * m, G, kernels)

    (fit_s,) = side_by_side([lambda: PaperGDM(k, energy=energy).fit(X, y)], 3)
    (literal_s,) = side_by_side([literal], 1)
    print(f"fit {fit_s:.3f} s, literal {literal_s:.3f} s: {literal_s / fit_s:.0f} x")


def bench_naive(sizes: list[int], subjects: list[int]) -> None:
    print("\nthe naive kernel scheme, O(T^3) in all samples, beside GDM (full energy)")
    print(f"{'subjects':>9} {'samples':>8} {'naive s':>9} {'GDM s':>8} {'ratio':>7}")
    rng = np.random.default_rng(0)
    grid = [(4, n) for n in sizes] + [(m, sizes[0]) for m in subjects]
    for m, n in grid:
        X = make_data(rng, m, n, 500, np.float64)
        y = [np.arange(n) % 4] * m
        flat = np.concatenate(y)
        G = np.where(flat[:, None] == flat[None, :], 1.0, -1.0)
        L = np.diag(G.sum(axis=1)) - G
        gdm = PaperGDM(3, energy=1.0)
        (gdm_s,) = side_by_side([lambda g=gdm, X=X, y=y: g.fit(X, y)], 2)
        grams = [b.gram for b in gdm.bases_]
        naive = partial(naive_kernel_scheme, grams, L, 3)
        (naive_s,) = side_by_side([naive], 1)
        print(f"{m:9} {n:8} {naive_s:9.3f} {gdm_s:8.3f} {naive_s / gdm_s:7.1f}")


def bench_subjects(counts: list[int], n: int, v: int) -> None:
    print(f"\ncost against the number of subjects ({n} samples x {v} voxels, labels)")
    print(f"{'subjects':>9} {'fit s':>8} {'ms per subject':>15}")
    rng = np.random.default_rng(0)
    X = make_data(rng, max(counts), n, v, np.float32)
    y = [rng.permutation(np.arange(n) % 8) for _ in X]
    for m in counts:
        (fit_s,) = side_by_side([lambda m=m: GDM(10).fit(X[:m], y[:m])], 3)
        print(f"{m:9} {fit_s:8.3f} {1000 * fit_s / m:15.1f}", flush=True)


MEMORY = """
import re, sys
import numpy as np
from brainweave import GDM, SubjectBasis
from brainweave._core.workers import map_subjects
from brainweave.aligners.gdm.eigenproblem import solve
m, n = int(sys.argv[2]), int(sys.argv[3])
y = [np.random.default_rng(i).permutation(np.arange(n) % 4) for i in range(m)]
small = [np.random.default_rng(0).standard_normal((8, 50)) for _ in range(2)]
GDM(2).fit(small, [np.arange(8) % 4] * 2)  # imports and threads come before the count
X = [np.load(f"{sys.argv[1]}/{i}.npy", mmap_mode="r") for i in range(m)]
status = lambda: open("/proc/self/status").read()
peak = lambda: int(re.search(r"VmHWM:\\s+(\\d+)", status()).group(1)) / 1024
before = peak()
GDM(10).fit(X, y)
print(f"{peak() - before:.0f}")
"""


def bench_memory(m: int, n: int, v: int) -> None:
    size = m * n * v * 4 / 2**20
    print(
        f"\npeak memory of a fit from memory maps, {m}x{n}x{v} float32, {size:.0f} MB"
    )
    with tempfile.TemporaryDirectory() as folder:
        rng = np.random.default_rng(0)
        for i in range(m):
            np.save(f"{folder}/{i}.npy", make_data(rng, 1, n, v, np.float32)[0])
        command = [sys.executable, "-W", "ignore", "-c", MEMORY, folder, str(m), str(n)]
        added = subprocess.run(command, capture_output=True, text=True, check=True)
    print(f"adds {added.stdout.strip()} MB (target: under 300 MB)")


def bench_long(shapes: list[tuple[int, int]], largest_eigh: int) -> None:
    """Time what a long recording needs after its voxels are read, one thread."""
    print("\nlong recordings, one subject, float32; processor seconds, one thread")
    names = ("read", "all vectors", "energy 0.35", "kept", "Cholesky")
    print(f"{'samples x voxels':>16}", *(f"{name:>12}" for name in names))
    rng = np.random.default_rng(0)
    for n, v in shapes:
        X = make_data(rng, 1, n, v, np.float32)[0]
        found: dict[str, Any] = dict.fromkeys(names, "")
        with blas_threads(1):
            start = time.process_time()
            whole = SubjectBasis(X)
            found["read"] = time.process_time() - start
            small = whole._narrow if whole.uses_covariance else whole.gram
            if min(n, v) <= largest_eigh:
                for name, energy in (("all vectors", 1.0), ("energy 0.35", 0.35)):
                    basis = copy(whole)
                    basis.energy = energy
                    start = time.process_time()
                    found["kept"] = basis.vectors.shape[1]
                    found[name] = time.process_time() - start
            start = time.process_time()
            A = small.T @ small if whole.uses_covariance else small.copy()
            A[np.diag_indices(len(A))] += A.trace() / n
            scipy.linalg.cholesky(A, overwrite_a=True, check_finite=False)
            found["Cholesky"] = time.process_time() - start
        cells = (f"{x:.2f}" if isinstance(x, float) else str(x) for x in found.values())
        print(f"{f'{n} x {v}':>16}", *(f"{cell:>12}" for cell in cells), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="small shapes, seconds")
    parser.add_argument("--long", action="store_true", help="long recordings alone")
    parser.add_argument("--shapes", action="store_true", help="the paper's fits only")
    options = parser.parse_args()
    if options.long:
        bench_long(LONG, 10_000)
        return
    quick = options.quick
    warnings.simplefilter("ignore", UniquenessWarning)
    shapes = QUICK_SHAPES if quick else SHAPES
    bench_shapes(shapes, repeats=2 if quick else 4)
    bench_shrinkage(shapes, repeats=2)
    if options.shapes:
        return
    bench_film(*((4, 450, 600, 6, 0.6) if quick else (20, 2000, 3000, 20, 0.6)))
    bench_literal(shapes[0])
    bench_naive([40, 80] if quick else [100, 200, 400], [8] if quick else [8, 16])
    bench_subjects([2, 4] if quick else [10, 20, 40, 80], 60 if quick else 240, 5000)
    bench_long([(150, 60), (150, 300)] if quick else LONG, 4000)
    bench_memory(*((3, 60, 2000) if quick else (16, 485, 19174)))


if __name__ == "__main__":
    main()
