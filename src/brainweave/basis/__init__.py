"""One subject: voxels, kernels and the basis that aligners work in."""

from brainweave.basis.basis import SubjectBasis

__all__ = ["SubjectBasis"]
