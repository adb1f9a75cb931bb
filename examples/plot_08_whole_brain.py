"""
Whole-brain alignment by parcels and searchlights
=================================================

A single map of the whole brain mixes distant regions. ``Parcelwise`` fits any aligner
to every parcel of an atlas, ``Searchlight`` to overlapping neighbourhoods, and
``information_map`` tests at each place whether subjects share information and whether
alignment helps. This example uses a cortical surface, fsaverage5.
"""

# %%
# We simulate eleven subjects who watch a film. One region of the left temporal lobe
# responds to it in all subjects, with a different topography in each subject. The rest
# of the cortex contains noise.
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
# Parcels can be an atlas: a NIfTI file, a ``dlabel`` file, GIfTI labels or
# FreeSurfer annotations of both hemispheres, an atlas fetched by nilearn, its fitted
# ``Parcellations``, or a name such as ``"schaefer-400"``. Here we divide each
# hemisphere into 42 patches around the vertices of a coarse icosahedron.
from scipy.spatial import cKDTree

sphere = named_mesh("fsaverage5", "L", "sphere").coordinates
patch = 1 + cKDTree(sphere[:42]).query(sphere)[1]
parcels = np.concatenate([patch, 42 + patch])

# %%
# In each parcel, we align on one half of the film and score the other half: segments of
# left-out subjects are matched with those of the others. ``leave_out=4`` fits
# three models instead of eleven.
aligner = GDM(4, graph="time", place=None, shrinkage=0.5)
found = information_map(Parcelwise(aligner, parcels), study, leave_out=4)
print(found)
found.to_frame().sort_values("p").head(4).round(3)

# %%
# p-values are computed by flipping the signs of the subjects' scores, and corrected for
# the number of parcels by the false discovery rate (``p_fdr``) and by the maximum
# statistic (``p_max``). With n subjects no p-value is below :math:`2^{-n}`, so ten
# subjects are too few for 84 places. Without alignment, matching is close to chance:
truly = sorted({int(parcels[v]) for v in region})
table = found.to_frame().set_index("place")
places = table.index[table["p_fdr"] < 0.05].tolist()
print("patches found:", places, "- patches of the region:", truly)
print(f"gain by alignment in the first: {table['difference'][places[0]]:.2f}")

# %%
# Plot the significant parcels, and the scores without alignment on the same colour
# scale. ``found.save("maps")`` writes images and a table. ``brainweave map`` runs these
# steps for a study folder and adds a report.
limit = float(np.nanmax(found.voxel_values("excess")))
found.plot("excess", limit=limit)

# %%
found.plot("baseline_excess", limit=limit)

# %%
# Searchlights
# ------------
# Neighbourhoods contain the vertices within a distance *along* the mesh. ``spacing`` is
# the distance between centres: half the radius works as well as all vertices and is
# many times faster. The maps of overlapping neighbourhoods are averaged into one map
# per subject, into the vertices of a reference subject.
light = Searchlight(Hyperalignment(), radius=16, spacing=16, keep_local=False)
first, second = study.split_halves()
model = light.fit(first)
print(model.n_searchlights_, "neighbourhoods;", model.maps_[1])

# %%
# After alignment, the responses of two subjects agree vertex by vertex in the region,
# in the held-out half of the film.
a, b = model.transform(second)[:2]
x, y = second[0].data(), second[1].data()


def agreement(u, v):
    """Correlate each vertex of two subjects over time."""
    u, v = ((w - w.mean(0)) / w.std(0) for w in (u, v))
    return (u * v).mean(axis=0)


before, after = agreement(x, y), agreement(a, b)
print(f"in the region: {before[region].mean():.2f} before, {after[region].mean():.2f}")

# %%
# Test the alignment of each piece
# --------------------------------
# :func:`~brainweave.alignment_check` tests each piece on held-out aligning samples and
# corrects for the number of pieces. ``piece_image`` shows any column of its table on
# the brain.
whole = Parcelwise(aligner, parcels).fit(study)
check = alignment_check(whole, study)
print(check)
from brainweave.plotting import plot_brain

image = whole.piece_image(check.pieces["agreement"])
plot_brain(image, space, title="agreement on held-out samples")
