"""
GPU, clusters, and data larger than memory
==========================================

One stage touches voxels: the *basis* of each subject, its Gram matrix. It is
independent per subject and small afterwards. So there is one place to put on a GPU, to
spread over a cluster, or to stream from disk; the alignment itself takes moments on any
laptop.
"""

# %%
import tempfile
from pathlib import Path

import numpy as np

from brainweave import GDM, PaperGDM, Study, SubjectBasis
from brainweave import load_basis, save_basis, simulate_study

study = simulate_study(
    n_subjects=4, categories=5, n_voxels=(1500, 2000), random_state=13
)

# %%
# Larger than memory
# ------------------
# A saved study is memory-mapped when it is opened; columns are read in chunks. HDF5
# datasets and anything else that is 2-D and can be sliced by columns work the same.
folder = Path(tempfile.mkdtemp())
study.save(folder / "study")
mapped = Study.open(folder / "study")
print(type(mapped[0].samples).__name__)
gdm = GDM(4).fit(mapped)

# %%
# Read voxels once
# ----------------
# ``bases_`` can be given to any aligner in place of the data. Another K, energy, graph
# or method then reads no voxel. A lower energy is a cut of the same basis.
from time import perf_counter

start = perf_counter()
again = PaperGDM(3, energy=0.5).fit(gdm.bases_, [s.labels for s in study])
print(f"second fit from bases: {perf_counter() - start:.3f} s")

# %%
# One job per subject
# -------------------
# A basis can be saved. The file holds the samples of one subject, their inner products,
# eigenvectors and labels; voxels are read only when weights are wanted. The BIDS App
# does the same (``brainweave run BIDS OUT participant``, then ``group``).
for subject in study:  # each on any node of the cluster
    basis = SubjectBasis(subject.data(), energy=0.82, name=subject.id)
    save_basis(basis, folder / f"{subject.id}.safetensors", subject=subject)

bases = [load_basis(folder / f"{id}.safetensors") for id in study.ids]
group = GDM(4).fit(bases)
print(f"same result: {np.allclose(group.eigenvalues_, gdm.eigenvalues_, rtol=1e-5)}")

# %%
# What is read once, and what is kept of it:
import matplotlib.pyplot as plt

sizes = {
    "data": sum(s.data().nbytes for s in study),
    "bases": sum(f.stat().st_size for f in folder.glob("*.safetensors")),
}
figure, ax = plt.subplots(figsize=(6, 1.4), layout="constrained")
ax.barh(list(sizes), [size / 1e6 for size in sizes.values()])
ax.set(xlabel="megabytes, four subjects of 180 samples")
ax.invert_yaxis()
ax.spines[["top", "right"]].set_visible(False)

# %%
# A Slurm script for it:
#
# .. code-block:: bash
#
#     #!/bin/bash
#     #SBATCH --array=1-40 --cpus-per-task=4 --mem=8G
#     SUBJECT=$(sed -n "${SLURM_ARRAY_TASK_ID}p" subjects.txt)
#     brainweave run /data/fmriprep /data/aligned participant \
#         --participant-label "$SUBJECT" --n-jobs 4
#     # when all are done:
#     # brainweave run /data/fmriprep /data/aligned group
#
# Dask
# ----
# Subjects, folds, parcels and searchlights go through joblib, so that its backends
# apply; the commands have ``--dask SCHEDULER`` (:doc:`/scale`):
#
# .. code-block:: python
#
#     from dask.distributed import Client
#     from joblib import parallel_config
#
#     client = Client("scheduler:8786")
#     with parallel_config(backend="dask"):
#         Parcelwise(GDM(5), atlas).fit(study)
#
# GPU
# ---
# ``pip install ".[gpu]"`` in a clone of brainweave. Give torch tensors, and the work is
# done on their device; or say ``GDM(4, device="cuda")`` and give arrays of any kind,
# which are then sent there in pieces (:doc:`/scale`):
#
# .. code-block:: python
#
#     import torch
#
#     X = [torch.as_tensor(subject.data(), device="cuda") for subject in study]
#     gdm = GDM(4).fit(X, [s.labels for s in study])
#     gdm.transform(X)     # tensors on the same device
