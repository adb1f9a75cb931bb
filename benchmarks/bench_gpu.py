"""GDM on a GPU, beside the floor: a float64 Gram matrix and its eigenvectors.

    python benchmarks/bench_gpu.py [--quick] [--device cuda]

- agreement with the processor on a small study, labels and time, float64;
- one subject of 3655 x 170,494 in float32 from the processor's memory, by voxels and
  by samples, pinned or not; and 176 such subjects (a few pinned ones, taken in turn);
- 20 subjects of 1000 x 60,000 that lie on the device, beside the floor;
- the same from the processor's memory: SRM, then transform, here and there.

Needs torch, numpy, scipy, scikit-learn, joblib, threadpoolctl and lazy-loader, nothing
else; ``--quick --device cpu`` runs everything small, on the processor.
"""

import argparse
import sys
import time
import warnings
from collections.abc import Callable
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

NEEDED = ("torch", "numpy", "scipy", "sklearn", "joblib", "threadpoolctl")
MISSING = [name for name in (*NEEDED, "lazy_loader") if find_spec(name) is None]
if MISSING:
    sys.exit(f"bench_gpu.py needs {', '.join(MISSING)}: not installed here.")

sys.path.insert(0, str(Path(__file__).parents[1] / "src"))
import numpy as np
import torch

from brainweave import GDM, SRM, PaperGDM, SubjectBasis

N_PINNED = 4
E = (None, 0.35)  # shrinkage, and a cut at an energy


def gdm_of(energy: float | None, k: int, **how: Any) -> Any:
    """Make the model with a ridge, or the paper's at an energy."""
    return GDM(k, **how) if energy is None else PaperGDM(k, energy=energy, **how)


def named(energy: float | None) -> str:
    """Say which of the two."""
    return "shrinkage" if energy is None else f"energy {energy}"


def timed(function: Callable[[], Any], device: str) -> float:
    """Time a call, until the device is done too."""
    if device.startswith("cuda"):
        torch.cuda.synchronize()
    start = time.perf_counter()
    function()
    if device.startswith("cuda"):
        torch.cuda.synchronize()
    return time.perf_counter() - start


def make(seed: int, n: int, v: int, *, by_voxels: bool, pin: bool) -> Any:
    """Make a subject in float32: a film's components on noise."""
    where = "cuda" if torch.cuda.is_available() else "cpu"  # quick to draw there
    random = torch.Generator(where).manual_seed(0)
    film = torch.randn((n, 20), generator=random, device=where)
    random.manual_seed(seed + 1)
    X = torch.empty((v, n) if by_voxels else (n, v), pin_memory=pin)
    step = max(1, 2**24 // n)
    for i in range(0, v, step):
        size = min(step, v - i)
        block = torch.randn((n, size), generator=random, device=where) + 100
        block += film @ torch.randn((20, size), generator=random, device=where)
        if by_voxels:
            X[i : i + size] = block.T
        else:
            X[:, i : i + size] = block
    return X.T if by_voxels else X


def agreement(device: str) -> None:
    print("agreement with the processor, float64")
    rng = np.random.default_rng(0)
    n, y = 120, [rng.permutation(np.arange(120) % 6) for _ in range(5)]
    shared = rng.standard_normal((n, 8))
    X = [
        shared @ rng.standard_normal((8, v)) + rng.standard_normal((n, v)) + 50
        for v in (3000, 2500, 4000, 3500, 900)
    ]
    cases = [(g, known, e) for g, known in (("labels", y), ("time", None)) for e in E]
    for graph, known, energy in cases:
        ours = gdm_of(energy, 5, graph=graph, device=device).fit(X, known)
        theirs = gdm_of(energy, 5, graph=graph).fit(X, known)
        values = np.abs(ours.eigenvalues_ - theirs.eigenvalues_).max()
        values /= np.abs(theirs.eigenvalues_).max()
        pairs = zip(ours.transform(X), theirs.transform(X), strict=True)
        apart = max(np.abs(np.abs(a) - np.abs(b)).max() for a, b in pairs)
        verdict = "ok" if max(values, apart) < 1e-8 else "TOO FAR"
        print(
            f"  {graph:>6}, {named(energy):>11}: eigenvalues differ by {values:.0e}, "
            f"features (unit variance) by {apart:.0e}: {verdict} (goal 1e-8)",
            flush=True,
        )


def one_subject(device: str, n: int, v: int) -> None:
    print(f"\none subject of {n} x {v} float32, the pass over voxels, then eigh")
    for by_voxels in (True, False):
        for pin in (True, False) if device.startswith("cuda") else (False,):
            X = make(0, n, v, by_voxels=by_voxels, pin=pin)
            SubjectBasis(X, device=device)  # buffers are taken once
            bases: list[SubjectBasis] = []

            def read(X: Any = X, bases: list[Any] = bases) -> None:
                bases.append(SubjectBasis(X, device=device))

            seconds = timed(read, device)
            spectrum = timed(lambda b=bases: b[0].values, device)
            order = "by voxels" if by_voxels else "by samples"
            print(
                f"  {order:>10}, {'pinned' if pin else 'not pinned':>10}: "
                f"pass {seconds:.3f} s, eigh and copies back {spectrum:.3f} s",
                flush=True,
            )


def many_subjects(device: str, m: int, n: int, v: int, n_jobs: int) -> None:
    print(f"\n{m} subjects of {n} x {v} float32, {N_PINNED} pinned ones taken in turn")
    pin = device.startswith("cuda")
    few = [make(i, n, v, by_voxels=True, pin=pin) for i in range(N_PINNED)]
    X = [few[i % N_PINNED] for i in range(m)]
    labels = [np.arange(n) % 8] * m

    def grams() -> None:
        # the stage that touches voxels, as a fit does it
        from brainweave._core.workers import map_subjects

        map_subjects(
            lambda x: SubjectBasis(x, device=device).n_samples, X, n_jobs=n_jobs
        )

    print(f"  Gram matrices alone: {timed(grams, device):.1f} s", flush=True)
    for energy, goal in zip(E, (30, 50), strict=True):
        for graph, known in (("labels", labels), ("time", None)):
            gdm = gdm_of(energy, 10, graph=graph, device=device, n_jobs=n_jobs)
            seconds = timed(lambda g=gdm, k=known: g.fit(X, k), device)
            print(
                f"  fit, {named(energy):>11}, {graph:>6}: {seconds:.1f} s "
                f"({gdm.solver_}; goal {goal} s)",
                flush=True,
            )
            del gdm


def on_device(device: str, m: int, n: int, v: int, n_jobs: int) -> None:
    print(f"\n{m} subjects of {n} x {v} float32 on the device (goal: 1.5 x the floor)")
    X = [make(i, n, v, by_voxels=False, pin=False).to(device) for i in range(m)]
    labels = [np.arange(n) % 8] * m

    def floor() -> None:
        for x in X:
            double = x.double()
            torch.linalg.eigh(double @ double.T)

    floor()
    bare = min(timed(floor, device) for _ in range(3))
    for energy in E:
        for graph, known in (("labels", labels), ("time", None)):
            gdm = gdm_of(energy, 10, graph=graph, device=device, n_jobs=n_jobs)
            gdm.fit(X, known)
            fit = partial(gdm.fit, X, known)
            seconds = min(timed(fit, device) for _ in range(3))
            print(
                f"  {named(energy):>11}, {graph:>6}: floor {bare:.3f} s, "
                f"fit {seconds:.3f} s, {seconds / bare:.2f} x",
                flush=True,
            )


def shared_response(device: str, m: int, n: int, v: int) -> None:
    print(f"\n{m} subjects of {n} x {v} float32 in the processor's memory, SRM, K = 10")
    X = [make(i, n, v, by_voxels=False, pin=False).numpy() for i in range(m)]
    models, seconds = [], {}
    for where in (None, device):
        srm = SRM(10, random_state=0, device=where)
        if where is not None:
            srm.fit(X[:2])  # buffers are taken once
        fit = timed(partial(srm.fit, X), device)
        weights = timed(lambda s=srm: [mapped.weights for mapped in s.maps_], device)
        again = timed(partial(srm.transform, X), device)
        seconds[where] = fit, weights, again
        models.append(srm)
    names = ("fit", "weights of the voxels", "transform")
    for name, here, there in zip(names, *seconds.values(), strict=True):
        print(f"  {name}: processor {here:.2f} s, device {there:.2f} s")
    ours, theirs = (model.shared_response_ for model in models)
    apart = np.abs(ours - theirs).max() / np.abs(theirs).max()
    print(f"  shared responses differ by {apart:.0e} of the largest", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="small shapes, seconds")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--subjects", type=int, default=176)
    parser.add_argument("--jobs", type=int, default=4, help="subjects at a time")
    parser.add_argument("--only", choices=("agreement", "one", "device", "many", "srm"))
    options = parser.parse_args()
    device = options.device
    if device.startswith("cuda") and not torch.cuda.is_available():
        sys.exit("torch finds no GPU here. --device cpu --quick tries the script.")
    warnings.simplefilter("ignore", UserWarning)  # of the made-up data
    where = "the processor"
    if device.startswith("cuda"):
        where = torch.cuda.get_device_name(device)
    print(f"{where}; torch {torch.__version__}, numpy {np.__version__}")
    n, v = (60, 3000) if options.quick else (3655, 170_494)
    shape = (3, 60, 3000) if options.quick else (20, 1000, 60_000)
    many = 6 if options.quick else options.subjects
    parts = {
        "agreement": partial(agreement, device),
        "one": partial(one_subject, device, n, v),
        "device": partial(on_device, device, *shape, options.jobs),
        "many": partial(many_subjects, device, many, n, v, options.jobs),
        "srm": partial(shared_response, device, *shape),
    }
    for name, part in parts.items():
        if options.only in (None, name):
            part()
    if device.startswith("cuda"):
        peak = torch.cuda.max_memory_allocated() / 2**30
        print(f"\npeak memory on the device: {peak:.1f} GiB")


if __name__ == "__main__":
    main()
