"""Studies: samples of many subjects, from wherever people keep them.

What a study is stands in this folder; the rooms below it read and make studies:
``formats`` (files), ``simulation`` and ``public`` (datasets to download). Names are
imported when first used, so that images and tables cost nothing before; the stub
``__init__.pyi`` is the one list of them.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
