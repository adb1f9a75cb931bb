"""Speed and memory of the SRM family beside BrainIAK's, in the same run.

    python benchmarks/bench_methods.py [--quick] [--robust] [--memory] [--threads N]

Needs BrainIAK (``make bench`` runs it in the environment of ``make peers``). Fit plus
transform of the same data, K = 10, 10 iterations, same threads; rounds alternate and
the best of each counts. With one thread, processor time is counted in place of wall
time, so that ratios hold also on a machine that others use. A second fit, with another
K and another seed, starts from the bases of the first. Targets: SRM and DetSRM 2 x in
float64 and 5 x in float32, a second fit 50 x, RobustSRM 3 x, none with more memory.
The floor is a bare ``X @ X.T`` of every subject: a first fit cannot be faster.
"""

import argparse
import logging
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

import brainweave as bw
from brainweave import _workers

SHAPES = [(6, 497, 19174), (10, 845, 9947)]
QUICK_SHAPES = [(4, 80, 600)]
K, ITERATIONS = 10, 10
THREADS: int | None = None  # of either side; None: one per core


def make_data(m: int, n: int, v: int, dtype: Any) -> list[np.ndarray]:
    """Make samples of a shared response on top of noise, standardised."""
    rng = np.random.default_rng(0)
    shared = rng.standard_normal((n, 15)) * np.linspace(1.5, 0.3, 15)
    data = []
    for _ in range(m):
        X = shared @ rng.standard_normal((15, v))
        X += 3 * rng.standard_normal((n, v))
        data.append(((X - X.mean(axis=0)) / X.std(axis=0)).astype(dtype))
    return data


def ours(name: str, k: int = K, seed: int = 0) -> Any:
    kind = getattr(bw, name)
    # ours aligns all subjects to the start, too: one round of maps that theirs lacks
    rounds = ITERATIONS - 1
    return kind(k, max_iter=rounds, tol=0, random_state=seed, n_jobs=THREADS)


def run_ours(name: str, X: list[np.ndarray]) -> Any:
    return ours(name).fit(X).transform(X)


def run_theirs(name: str, X: list[np.ndarray]) -> Any:
    from brainiak.funcalign import rsrm, srm

    kinds = {"SRM": srm.SRM, "DetSRM": srm.DetSRM, "RobustSRM": rsrm.RSRM}
    model = kinds[name](n_iter=ITERATIONS, features=K)
    model.fit(X)
    return model.transform(X)


def as_theirs(X: list[np.ndarray]) -> list[np.ndarray]:
    """They take voxels x samples."""
    return [np.ascontiguousarray(x.T) for x in X]


def side_by_side(functions: list[Callable[[], Any]], repeats: int) -> list[float]:
    """Time functions in turn, several rounds, and keep the best of each."""
    clock = time.process_time if THREADS == 1 else time.perf_counter
    best = [np.inf] * len(functions)
    for _ in range(repeats):
        for i, function in enumerate(functions):
            with threadpool_limits(THREADS):
                start = clock()
                function()
                best[i] = min(best[i], clock() - start)
    return best


def bench_speed(shapes: list[tuple[int, int, int]], repeats: int) -> None:
    kind = "processor seconds, one thread" if THREADS == 1 else "seconds"
    print(f"fit + transform, K = {K}, {ITERATIONS} iterations; {kind}")
    print(
        f"{'shape':>15} {'dtype':>8} {'method':>8} {'BrainIAK':>9} {'ours':>7} "
        f"{'ratio':>6} {'floor':>7} {'second fit':>11} {'ratio':>6}"
    )
    for m, n, v in shapes:
        for dtype in (np.float64, np.float32):
            X = make_data(m, n, v, dtype)
            XT = as_theirs(X)
            for name in ("SRM", "DetSRM"):
                bases = ours(name).fit(X).bases_

                def again(name: str = name, bases: Any = bases) -> None:
                    ours(name, K + 2, 1).fit(bases)

                def mine(name: str = name, X: Any = X) -> None:
                    run_ours(name, X)

                def other(name: str = name, XT: Any = XT) -> None:
                    run_theirs(name, XT)

                def floor(X: Any = X) -> None:
                    _workers.map_subjects(lambda x: x @ x.T, X, n_jobs=THREADS)

                theirs_s, ours_s, floor_s, again_s = side_by_side(
                    [other, mine, floor, again], repeats
                )
                print(
                    f"{f'{m}x{n}x{v}':>15} {np.dtype(dtype).name:>8} {name:>8} "
                    f"{theirs_s:9.3f} {ours_s:7.3f} {theirs_s / ours_s:6.1f} "
                    f"{floor_s:7.3f} "
                    f"{again_s:11.4f} {theirs_s / again_s:6.0f}",
                    flush=True,
                )


def bench_robust(shapes: list[tuple[int, int, int]]) -> None:
    print(f"\nRobustSRM, fit + transform, K = {K}, {ITERATIONS} iterations; seconds")
    for m, n, v in shapes:
        for dtype in (np.float64, np.float32):
            X = make_data(m, n, v, dtype)
            XT = as_theirs(X)

            def mine(X: Any = X) -> None:
                run_ours("RobustSRM", X)

            def other(XT: Any = XT) -> None:
                run_theirs("RobustSRM", XT)

            theirs_s, ours_s = side_by_side([other, mine], 1)
            print(
                f"{f'{m}x{n}x{v}':>15} {np.dtype(dtype).name:>8} BrainIAK "
                f"{theirs_s:.2f} ours {ours_s:.2f} ratio {theirs_s / ours_s:.1f}",
                flush=True,
            )


def bench_memory(shapes: list[tuple[int, int, int]], names: list[str]) -> None:
    """Give the peak memory above that of the data, each in a process of its own."""
    print("\npeak memory above data and imports, MB (float64)")
    for shape in shapes:
        for name in names:
            peaks = [_peak(who, name, shape) for who in ("theirs", "ours")]
            print(
                f"{'x'.join(map(str, shape)):>15} {name:>10} BrainIAK {peaks[0]:7.0f} "
                f"ours {peaks[1]:7.0f}",
                flush=True,
            )


def _peak(who: str, name: str, shape: tuple[int, int, int]) -> float:
    command = [sys.executable, __file__, "--one", who, name, *map(str, shape)]
    out = subprocess.run(command, check=True, capture_output=True, text=True)
    return float(out.stdout.split()[-1])


def measure_one(who: str, name: str, shape: tuple[int, int, int]) -> None:
    run = run_ours if who == "ours" else run_theirs
    small = make_data(3, 30, 60, np.float64)
    run(name, small if who == "ours" else as_theirs(small))  # imports
    X = make_data(*shape, np.float64)
    if who == "theirs":
        for i, x in enumerate(X):
            X[i] = np.ascontiguousarray(x.T)
    with open("/proc/self/clear_refs", "w") as peak:  # forget the peak so far
        peak.write("5")
    before = _status("VmRSS")
    run(name, X)
    after = max(_status("VmHWM"), before)
    print((after - before) / 1024)


def _status(field: str) -> int:
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith(field))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="small shapes")
    parser.add_argument("--robust", action="store_true", help="RobustSRM too (minutes)")
    parser.add_argument("--memory", action="store_true", help="peak memory too (Linux)")
    parser.add_argument("--threads", type=int, help="of either side")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--one", nargs=5, help=argparse.SUPPRESS)
    options = parser.parse_args()
    global THREADS
    THREADS = options.threads
    warnings.simplefilter("ignore")
    logging.disable()
    if options.one:
        who, name, *shape = options.one
        m, n, v = map(int, shape)
        measure_one(who, name, (m, n, v))
        return
    shapes = QUICK_SHAPES if options.quick else SHAPES
    bench_speed(shapes, options.repeats)
    if options.robust:
        bench_robust(shapes)
    if options.memory:
        names = ["SRM", "DetSRM"] + (["RobustSRM"] if options.robust else [])
        bench_memory(shapes, names)


if __name__ == "__main__":
    main()
