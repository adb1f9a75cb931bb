"""
The whole brain, place by place
===============================

One map of a whole brain mixes distant regions. ``Parcelwise`` fits any aligner to every
parcel of an atlas, ``Searchlight`` to overlapping neighbourhoods, and
``information_map`` asks at each place: is there information that people share, and does
alignment help? We do all of it on a cortical surface, fsaverage5.
"""

# %%
# Eleven people watch a film. Nine tenths of the cortex have nothing to do with it. One
# region of the left temporal lobe follows it, in everyone, but each person has a
# topography of her own there.
import numpy as np

from brainweave import GDM, Hyperalignment, Parcelwise, Searchlight, Study, Subject
from brainweave import alignment_check, information_map
from brainweave.study import SurfaceSpace
from brainweave.study.meshes import named_mesh

rng = np.random.default_rng(0)
space = SurfaceSpace({"CortexLeft": 10242, "CortexRight": 10242})
cortex = named_mesh("fsaverage5", "L").coordinates
region = np.flatnonzero(np.linalg.norm(cortex - [-55, -45, 0], axis=1) < 18)
film = rng.normal(size=(80, 4))
people = []
for i in range(11):
    X = rng.normal(size=(80, space.n_voxels)).astype(np.float32)
    X[:, region] += film @ rng.normal(size=(4, region.size)) / 3
    ids = [f"film:{t}" for t in range(80)]
    people.append(Subject(f"{i + 1:02}", X, stimuli=ids, space=space))
study = Study(people, "a film on fsaverage5")
study

# %%
# Parcels
# -------
# Parcels may come from an atlas: a NIfTI file, a ``dlabel`` file, GIfTI labels or
# FreeSurfer annotations of both hemispheres, what nilearn's fetchers and its
# ``Parcellations`` give, or a name such as ``"schaefer-400"``. Here we cut each
# hemisphere into 42 patches, those nearest to the vertices of a coarse icosahedron.
from scipy.spatial import cKDTree

sphere = named_mesh("fsaverage5", "L", "sphere").coordinates
patch = 1 + cKDTree(sphere[:42]).query(sphere)[1]
parcels = np.concatenate([patch, 42 + patch])

# %%
# At each parcel, half of the film aligns and the other half is scored: segments of a
# person who was left out are matched with those of the others. ``leave_out=4`` fits
# three models in place of eleven.
aligner = GDM(4, graph="time", place=None, shrinkage=0.5)
found = information_map(Parcelwise(aligner, parcels), study, leave_out=4)
print(found)
found.to_frame().sort_values("p").head(4).round(3)

# %%
# p-values flip the signs of people's scores, and are corrected for the number of
# parcels, by the false discovery rate (``p_fdr``) and by the maximum statistic
# (``p_max``). With n people no p is below :math:`2^{-n}`: with 84 places ten people
# would be too few. Without alignment the same voxels match hardly more than by chance:
truly = sorted({int(parcels[v]) for v in region})
table = found.to_frame().set_index("place")
places = table.index[table["p_fdr"] < 0.05].tolist()
print("patches found:", places, "- patches of the region:", truly)
print(f"gain by alignment in the first: {table['difference'][places[0]]:.2f}")

# %%
# On the brain, with one colour scale: what was found, and the same without alignment.
# ``found.save("maps")`` writes images and a table; ``brainweave map`` does it all for
# a study folder, and adds a report.
limit = float(np.nanmax(found.voxel_values("excess")))
found.plot("excess", limit=limit)

# %%
found.plot("baseline_excess", limit=limit)

# %%
# Searchlights
# ------------
# Neighbourhoods are vertices within a distance *along* the mesh. ``spacing`` takes
# centres that are so far apart: half the radius is as good as all vertices, and many
# times as fast. The maps of overlapping neighbourhoods are averaged into one map per
# person, into the vertices of a reference person.
light = Searchlight(Hyperalignment(), radius=16, spacing=16, keep_local=False)
first, second = study.split_halves()
model = light.fit(first)
print(model.n_searchlights_, "neighbourhoods;", model.maps_[1])

# %%
# After alignment the responses of two people agree in the region, vertex by vertex, in
# the half of the film that did not align.
a, b = model.transform(second)[:2]
x, y = second[0].data(), second[1].data()


def agreement(u, v):
    """Correlate each vertex of two people over time."""
    u, v = ((w - w.mean(0)) / w.std(0) for w in (u, v))
    return (u * v).mean(axis=0)


before, after = agreement(x, y), agreement(a, b)
print(f"in the region: {before[region].mean():.2f} before, {after[region].mean():.2f}")

# %%
# Where did alignment work?
# -------------------------
# :func:`~brainweave.alignment_check` tests each piece on aligning samples that were
# held out, and corrects for the number of pieces. ``piece_image`` puts any column of
# its table on the brain.
whole = Parcelwise(aligner, parcels).fit(study)
check = alignment_check(whole, study)
print(check)
from brainweave.plotting import plot_brain

image = whole.piece_image(check.pieces["agreement"])
plot_brain(image, space, title="agreement on held-out samples")
