"""How long searchlights on the cortex take, and what memory they need.

``python benchmarks/searchlight.py`` aligns 20 simulated subjects with 300 samples on
fsLR-32k (59,412 vertices outside the medial wall; the mesh of templateflow where it is
installed, else two spheres of as many vertices and of the area of a hemisphere), with
neighbourhoods of 10 mm, 5 mm apart. ``--centers N`` fits N of them, evenly spaced, and
tells what all would take; ``--quick`` is a small case. Times are of the processor, with
one BLAS thread, and memory is the largest resident size of the process.

``--backend dask`` fits in processes of a local Dask cluster, ``--backend threading`` in
threads; by default pieces that take long are fitted in processes of joblib.
``--parcels N`` fits N parcels of equal size instead. ``--device cuda`` keeps samples on
a GPU, where neighbourhoods are cut and read, and ``--device cpu`` does the same on the
processor. These need torch and no nibabel: distances are straight, which is nearly the
same on spheres.

After ``make peers``, ``.venv-peers/bin/python benchmarks/searchlight.py --peers``
compares with hyperalignment and fmralign: 6 subjects x 100 samples x 5,124 vertices of
two spheres, with the same neighbourhoods of 25 mm or 108 parcels for all, each
method in a process of its own, on one core. Another 100 samples are mapped; the
agreement is their correlation with the mean of the other subjects, over the voxels of
the template or of the first subject.
"""

import argparse
import os
import resource
import subprocess
import sys
import time
import warnings
from contextlib import contextmanager, nullcontext

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import scipy.sparse

from brainweave import GDM, DetSRM, Hyperalignment, Parcelwise, Searchlight
from brainweave._core.exceptions import BrainweaveError
from brainweave.study.meshes import Mesh, named_mesh

METHODS = {
    "hyperalignment": lambda: Hyperalignment(),
    "srm": lambda: DetSRM(10, random_state=0, max_iter=20, tol=1e-3),
    "gdm": lambda: GDM(10, graph="time", place=None),
}
AREA = 90_000  # of a hemisphere in mm^2


def sphere(n):
    """Return a sphere of n vertices, evenly spread."""
    from scipy.spatial import ConvexHull

    k = np.arange(n) + 0.5
    z, turn = 1 - 2 * k / n, np.pi * (1 + np.sqrt(5)) * k
    at = np.c_[np.cos(turn) * np.sqrt(1 - z * z), np.sin(turn) * np.sqrt(1 - z * z), z]
    return Mesh(at * np.sqrt(AREA / (4 * np.pi)), ConvexHull(at).simplices)


def cortex(n):
    """Return the mesh of both hemispheres, what it is, and which vertices are in."""
    what, inside = f"two spheres of {n} vertices", np.ones(n, bool)
    meshes = {"left": None, "right": None}
    if n == 32492:
        inside[-2786:] = False  # as many as in the medial wall
        try:
            meshes = {s: named_mesh("fsLR-32k", s[0].upper()) for s in meshes}
            what = "fsLR-32k"
        except BrainweaveError:
            pass
    return {s: m or sphere(n) for s, m in meshes.items()}, what, inside


def simulate(n_subjects, n_samples, n_voxels):
    """Return subjects who share 20 time courses, each in patterns of its own."""
    rng = np.random.default_rng(0)
    story = rng.normal(size=(n_samples, 20)).astype(np.float32)
    people = []
    for _ in range(n_subjects):
        patterns = rng.normal(size=(20, n_voxels)).astype(np.float32)
        X = rng.standard_normal((n_samples, n_voxels), dtype=np.float32)
        people.append(X + story @ patterns / 4)
    return people


def as_study(arrays, inside):
    """Return a study on both hemispheres of a surface, and its space."""
    from brainweave import Study, Subject
    from brainweave.study.surface import SurfaceSpace

    space = SurfaceSpace({"CortexLeft": inside, "CortexRight": inside})
    people = [Subject(f"{i:02}", X, space=space) for i, X in enumerate(arrays)]
    return Study(people), space


def spent(processes=False):
    """Return the seconds of the processor and the memory that were taken here.

    With the seconds of joblib's processes, which are ended, if there are any.
    """
    seconds = time.process_time()
    if processes:
        from joblib.externals.loky import get_reusable_executor

        get_reusable_executor().shutdown(wait=True)
        children = resource.getrusage(resource.RUSAGE_CHILDREN)
        seconds += children.ru_utime + children.ru_stime
    return seconds, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


@contextmanager
def working_by(backend, n_jobs):
    """Work by a backend of joblib; yield what its processes and this one took."""
    from joblib import parallel_config

    from brainweave._core.workers import dask_client

    if backend == "dask":
        with dask_client(f"local:{n_jobs}") as c, parallel_config("dask", client=c):
            yield lambda: [spent(), *c.run(spent).values()]
    else:
        with parallel_config(backend) if backend else nullcontext():
            yield lambda: [spent(processes=True)]


# -- beside other packages -------------------------------------------------------------


def hyperalignment(X, Z, light, steps, radius):
    """Align by the functions of the package hyperalignment, along the same mesh."""
    from hyperalignment.searchlight import searchlight_procrustes, searchlight_template
    from scipy.sparse.csgraph import dijkstra

    near = light.neighborhoods_
    each = zip(light.center_voxels_, near, strict=True)
    dists = [dijkstra(steps, indices=c, limit=1.1 * radius)[own] for c, own in each]
    template = searchlight_template(np.stack(X), near, dists, radius)
    maps = [searchlight_procrustes(x, template, near, dists, radius) for x in X]
    return [z @ m for z, m in zip(Z, maps, strict=True)]


def fmralign(X, Z, parcels):
    """Align by Procrustes in every parcel, with a template, by the package fmralign."""
    from fmralign import GroupAlignment
    from fmralign.methods import Procrustes

    def named(arrays):
        return {f"sub-{i}": a for i, a in enumerate(arrays)}

    model = GroupAlignment(Procrustes(), labels=parcels).fit(named(X), y="template")
    return list(model.transform(named(Z)).values())


def agreement(features):
    """Correlate each subject with the mean of the others; mean over features."""
    total, found = sum(features), []
    for own in features:
        u, v = ((w - w.mean(0)) / (w.std(0) + 1e-9) for w in (own, total - own))
        found.append((u * v).mean(axis=0))
    return float(np.mean(found))


LIGHTS = {
    "brainweave, Searchlight(Hyperalignment())": METHODS["hyperalignment"],
    "brainweave, Searchlight(DetSRM(10))": METHODS["srm"],
    'brainweave, Searchlight(GDM(graph="time"))': lambda: GDM(graph="time"),
}
PARCELS = {
    "brainweave, Parcelwise(Hyperalignment())": METHODS["hyperalignment"],
    'brainweave, Parcelwise(GDM(graph="time"))': lambda: GDM(graph="time"),
}
ROWS = (*LIGHTS, "hyperalignment, searchlight Procrustes", *PARCELS)
ROWS = (*ROWS, "fmralign, Procrustes by parcels")


def measure(row):
    """Print the time, memory and agreement of one method."""
    from scipy.spatial import cKDTree

    from brainweave.study.meshes import distance_graph

    n, radius, how = 2562, 25.0, {"n_jobs": 1, "keep_local": False}
    mesh = sphere(n)
    whole = np.stack(simulate(6, 200, 2 * n)).astype(float)
    whole -= whole.mean(axis=1, keepdims=True)
    X, Z = list(whole[:, :100]), list(whole[:, 100:])
    at = np.concatenate([mesh.coordinates, mesh.coordinates + np.array([1000, 0, 0])])
    own = distance_graph(mesh)
    steps = scipy.sparse.block_diag([own, own], format="csr")
    patch = cKDTree(sphere(54).coordinates).query(mesh.coordinates)[1]
    parcels = np.concatenate([patch, 54 + patch]) + 1
    study, space = as_study(X, np.ones(n, bool))
    # a cheap aligner, for the neighbourhoods that all use
    meshes = {"left": mesh, "right": mesh}
    plan = Searchlight(METHODS["srm"](), radius, spacing=radius / 2, mesh=meshes)
    pieces = plan._find_pieces([len(at)] * 6, [space] * 6)
    plan.neighborhoods_ = pieces.columns[0]
    start = time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if row in LIGHTS:
            model = Searchlight(
                LIGHTS[row](), radius, mesh=meshes, centers=plan.center_voxels_, **how
            ).fit(study)
            features = model.transform(Z)
        elif row in PARCELS:
            model = Parcelwise(PARCELS[row](), parcels, n_jobs=1).fit(study)
            first = model.maps_[0]  # in whose voxels features are compared
            features = [first.inverse_transform(f) for f in model.transform(Z)]
        elif row.startswith("hyperalignment"):
            features = hyperalignment(X, Z, plan, steps, radius)
        else:
            features = fmralign(X, Z, parcels)
    seconds, peak = time.process_time() - start, 1024 * spent()[1]
    size = f"{len(plan.neighborhoods_)} neighbourhoods"
    where = size if "earchlight" in row else "108 parcels"
    print(
        f"| {row} | {where} | {seconds:.0f} | {peak:.0f} | {agreement(features):.2f} |"
    )


def compare():
    """Print the table, each method in a process of its own."""
    print("| package, method | pieces | seconds | memory (MB) | agreement |")
    print("|---|---|---|---|---|", flush=True)
    for row in ROWS:
        subprocess.run([sys.executable, __file__, "--row", row], check=False)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--centers", type=int, default=0)
    parser.add_argument("--n-jobs", type=int, default=2)
    parser.add_argument("--method", choices=METHODS, default="hyperalignment")
    parser.add_argument("--peers", action="store_true")
    parser.add_argument("--row", choices=ROWS)
    parser.add_argument("--backend", choices=["dask", "threading"])
    parser.add_argument("--parcels", type=int)
    parser.add_argument("--device")
    options = parser.parse_args()
    if options.peers or options.row:
        return measure(options.row) if options.row else compare()
    quick = options.quick
    n, n_subjects, n_samples = (642, 5, 60) if quick else (32492, 20, 300)
    radius = 30 if quick else 10
    meshes, what, inside = cortex(n)
    people = simulate(n_subjects, n_samples, 2 * inside.sum())
    if options.device:
        at = [m.coordinates[inside] + 1000 * i for i, m in enumerate(meshes.values())]
        where, spaces = {"coordinates": np.concatenate(at)}, [None] * n_subjects
        if options.device != "cpu":
            import torch

            people = [torch.as_tensor(X, device=options.device) for X in people]
        what += f" on {options.device}"
    else:
        where, (people, space) = {"mesh": meshes}, as_study(people, inside)
        spaces = [space] * n_subjects
    n_voxels, local = 2 * inside.sum(), METHODS[options.method]()
    how = {**where, "n_jobs": options.n_jobs, "keep_local": False}
    start = time.process_time()
    if options.parcels:
        labels = 1 + np.arange(n_voxels) * options.parcels // n_voxels
        model = Parcelwise(local, labels, n_jobs=options.n_jobs)
        n_all = n_fitted = options.parcels
        size, kind = n_voxels / n_all, "parcels"
    else:
        plan = Searchlight(local, radius, spacing=radius / 2, **how)
        pieces = plan._find_pieces([n_voxels] * n_subjects, spaces)
        n_all, chosen = len(pieces.names), np.asarray(plan.center_voxels_)
        if options.centers:
            chosen = chosen[np.linspace(0, n_all - 1, options.centers).astype(int)]
        n_fitted, kind = len(chosen), "neighborhoods"
        size = np.mean([own.size for own in pieces.columns[0]])
        model = Searchlight(local, radius, centers=chosen, **how)
    print(
        f"{what}: {n_subjects} subjects x {n_samples} samples x {n_voxels} vertices; "
        f"{n_all} {kind} of {size:.0f} vertices, found in "
        f"{time.process_time() - start:.0f} s"
    )
    with (
        working_by(options.backend, options.n_jobs) as used,
        warnings.catch_warnings(),
    ):
        warnings.simplefilter("ignore")
        before, begin = used(), time.perf_counter()
        model.fit(people)
        passed, after = time.perf_counter() - begin, used()
    seconds = sum(a[0] - b[0] for a, b in zip(after, before, strict=True))
    each, n_bytes = seconds / n_fitted, n_subjects * n_samples * 4 * n_voxels
    print(
        f"{options.method}: {n_fitted} fitted in {passed:.0f} s, {seconds:.0f} s of "
        f"the processor, {1000 * each:.0f} ms each; all {n_all} take "
        f"{each * n_all / 60:.0f} min of one core; memory "
        f"{' + '.join(f'{peak:.1f}' for _, peak in after)} GiB, of which the samples "
        f"{n_bytes / 2**30:.1f} GiB"
    )


if __name__ == "__main__":
    main()
