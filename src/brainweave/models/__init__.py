"""Files of models and bases: one ``.safetensors`` file each, no pickle anywhere."""

from brainweave.models.aligners import register_aligner
from brainweave.models.files import (
    Description,
    describe,
    load,
    load_basis,
    save,
    save_basis,
)

__all__ = [
    "Description",
    "describe",
    "load",
    "load_basis",
    "register_aligner",
    "save",
    "save_basis",
]
