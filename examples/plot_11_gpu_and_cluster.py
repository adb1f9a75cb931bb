"""
GPU, clusters, and data larger than memory
==========================================

Only one stage reads voxels: the *basis* of each subject with its Gram matrix. Bases are
independent of each other and small. This stage can run on a GPU, on a cluster, or
stream from disk; the alignment itself takes little time on a laptop.
"""

# %%
import tempfile
from pathlib import Path

import numpy as np

from brainweave import GDM, PaperGDM, Study, SubjectBasis, load, save, simulate_study

study = simulate_study(
    n_subjects=4, categories=5, n_voxels=(1500, 2000), random_state=13
)

# %%
# Data larger than memory
# -----------------------
# ``Study.open`` memory-maps a saved study and reads columns in chunks. HDF5 datasets
# and any other 2-D arrays that can be sliced by columns work the same way.
folder = Path(tempfile.mkdtemp())
study.save(folder / "study")
mapped = Study.open(folder / "study")
print(type(mapped[0].samples).__name__)
gdm = GDM(4).fit(mapped)

# %%
# Read voxels once
# ----------------
# Pass ``bases_`` to any aligner instead of the data to fit another K, energy, graph or
# method without reading voxels. A lower energy is a cut of the same basis.
from time import perf_counter

start = perf_counter()
again = PaperGDM(3, energy=0.5).fit(gdm.bases_, [s.labels for s in study])
print(f"second fit from bases: {perf_counter() - start:.3f} s")

# %%
# One job per subject
# -------------------
# Bases can be saved to files. A file contains the samples of one subject, their inner
# products, eigenvectors and labels. The BIDS App works this way (``brainweave run BIDS
# OUT participant``, then ``group``).
for subject in study:  # each on any node of the cluster
    basis = SubjectBasis(subject.data(), energy=0.82, name=subject.id)
    save(basis, folder / f"{subject.id}.safetensors", subject=subject)

bases = [load(folder / f"{id}.safetensors") for id in study.ids]
group = GDM(4).fit(bases)
print(f"same result: {np.allclose(group.eigenvalues_, gdm.eigenvalues_, rtol=1e-5)}")

# %%
# Compare the size of the data with that of the bases:
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
# A Slurm script:
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
# Subjects, folds, parcels and searchlights are parallelised with joblib and support its
# backends; the commands have ``--dask SCHEDULER`` (:doc:`/scale`):
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
# Run ``pip install "brainweave[gpu]"``. Torch tensors are processed on their device.
# With ``GDM(4, device="cuda")``, arrays of any kind are sent to the device in chunks
# (:doc:`/scale`):
#
# .. code-block:: python
#
#     import torch
#
#     X = [torch.as_tensor(subject.data(), device="cuda") for subject in study]
#     gdm = GDM(4).fit(X, [s.labels for s in study])
#     gdm.transform(X)     # tensors on the same device
