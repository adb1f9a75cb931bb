"""Weave many brains into one shared space.

Names are imported when first used, so that ``import brainweave`` stays light; the stub
``__init__.pyi`` is the one list of them.
"""

import logging

import lazy_loader

from brainweave._core import __version__

# what is logged is for those who ask: logging.basicConfig(level="INFO")
logging.getLogger(__name__).addHandler(logging.NullHandler())

__getattr__, _, _names = lazy_loader.attach_stub(__name__, __file__)
__all__ = ["__version__", *_names]


def __dir__() -> list[str]:
    return sorted(__all__)
