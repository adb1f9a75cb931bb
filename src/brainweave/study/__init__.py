"""Studies: samples of many subjects, read from files, downloaded or simulated.

Names are imported when first used; the stub ``__init__.pyi`` lists them.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
