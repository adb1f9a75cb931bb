"""Stories of users who were misled, or left with nothing; none may happen again.

Each test is one way to publish something false, or to fail on an ordinary study, told
as the user met it. The modules' own tests look closer.
"""

import numpy as np
import pytest

# -- the solver ------------------------------------------------------------------------


# -- labels, subjects and their order --------------------------------------------------


# -- voxels and files in memory --------------------------------------------------------


# -- evaluations and their store -------------------------------------------------------


# -- components and the report ---------------------------------------------------------


# -- the command line and the BIDS App -------------------------------------------------


# -- files from elsewhere --------------------------------------------------------------
