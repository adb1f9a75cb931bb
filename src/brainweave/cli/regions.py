"""Region by region: a method inside Parcelwise or Searchlight."""

import re
from pathlib import Path
from typing import Any

from brainweave.cli.errors import UsageError

SCHAEFER = tuple(range(100, 1001, 100))


def by_region(aligner: Any, parcels: str | None, radius: float | None) -> Any:
    """Return the aligner, or one that applies it to every region of the brain.

    Parameters
    ----------
    aligner : aligner
        What aligns a region; no alignment stays as it is.
    parcels : str or None
        An atlas image, or the name of one of Schaefer's.
    radius : float or None
        Of searchlights, in mm.
    """
    if parcels is None and radius is None:
        return aligner
    if parcels is not None and radius is not None:
        raise UsageError("--parcels and --searchlight are two ways: choose one.")
    if type(aligner).__name__ == "NoAlignment":
        return aligner
    import brainweave

    if radius is not None:
        if not radius > 0:
            raise UsageError(
                f"--searchlight must be a radius above 0 mm; got {radius:g}."
            )
        return brainweave.Searchlight(aligner, radius)
    return brainweave.Parcelwise(aligner, _atlas(str(parcels)))


def _atlas(parcels: str) -> Any:
    import nibabel as nib

    path = Path(parcels)
    named = re.fullmatch(r"schaefer-?(\d+)", parcels.lower())
    if named and not path.exists():
        path = _schaefer(int(named[1]))
    if not path.is_file():
        raise UsageError(
            "--parcels must be an atlas image, or schaefer-100; there is no "
            f"{parcels!r}."
        )
    try:
        return nib.load(path)
    except nib.filebasedimages.ImageFileError:
        raise UsageError(
            f"--parcels {parcels} is no image that nibabel can read."
        ) from None


def _schaefer(n: int) -> Path:
    """Find Schaefer's atlas where nilearn keeps it; nothing is downloaded."""
    from nilearn.datasets import get_data_dirs

    if n not in SCHAEFER:
        raise UsageError(
            f"Schaefer's atlas has {', '.join(map(str, SCHAEFER))} parcels; got {n}."
        )
    for folder in map(Path, get_data_dirs()):
        found = sorted(folder.glob(f"schaefer_2018/Schaefer2018_{n}Parcels_*.nii.gz"))
        if found:
            return found[0]
    raise UsageError(
        f"Schaefer's atlas with {n} parcels is not in nilearn's cache. Fetch it once, "
        f'with a network: python -c "from nilearn import datasets; '
        f'datasets.fetch_atlas_schaefer_2018(n_rois={n})", or name an image file.'
    )
