"""How the site is built: ``make docs``, or ``make docs-quick`` without the examples."""

import os
import re
import sys
from pathlib import Path

from brainweave import __version__

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE / "_ext"), str(HERE.parent)]
os.environ.setdefault("MPLBACKEND", "agg")

project = "brainweave"
author = "The brainweave developers"
copyright = author
version = release = __version__

extensions = [
    "myst_parser",
    "numpydoc",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx_copybutton",
    "sphinx_design",
    "sphinx_gallery.gen_gallery",
    "sphinxcontrib.bibtex",
    "command_reference",
    "front_picture",
    "mathml",
    "paper_tables",
    "public_names",
    "tables_from",
]
templates_path = ["_templates"]
exclude_patterns = [
    "_build",
    "_ext",
    "pictures",
    "tutorials/GALLERY_HEADER*",
    "Thumbs.db",
]
root_doc = "index"
highlight_language = "none"  # blocks that name no language are commands or output

# -- links: what cannot be resolved is an error (make docs passes -n -W) --------------
nitpicky = True
# no intersphinx: the build needs no network, so names of other libraries stay text
nitpick_ignore_regex = [
    (
        r"py:.*",
        r"(nilearn|sklearn|matplotlib|warnings|numpy|scipy|pandas|joblib)(\..*)?",
    )
]
# docstrings may name what lives within; these have no page of their own
nitpick_ignore = [
    ("py:func", "brainweave.study.subject.fingerprint"),
    ("py:func", "brainweave.basis.voxels.sample_signatures"),
    ("py:func", "epi_mask"),
    ("py:data", "reproduction.METHODS"),
]
suppress_warnings = ["config.cache"]  # the gallery's scraper is a function

# -- docstrings ------------------------------------------------------------------------
autosummary_generate = True
autodoc_typehints = "none"
autodoc_member_order = "bysource"
numpydoc_show_class_members = False  # the class template lists them once
numpydoc_xref_param_type = False

# -- Markdown --------------------------------------------------------------------------
myst_enable_extensions = ["amsmath", "colon_fence", "deflist", "dollarmath"]
myst_heading_anchors = 3
bibtex_bibfiles = ["references.bib"]
bibtex_reference_style = "author_year"

# -- tutorials -------------------------------------------------------------------------
sphinx_gallery_conf = {
    "examples_dirs": ["../examples"],
    "gallery_dirs": ["tutorials"],
    "filename_pattern": r"plot_\d\d_",
    "within_subsection_order": "FileNameSortKey",
    "image_scrapers": ("matplotlib",),
    "capture_repr": ("_repr_html_", "__repr__"),
    "ignore_repr_types": r"matplotlib|nilearn",
    "remove_config_comments": True,
    "download_all_examples": False,
    "show_memory": False,
    "show_signature": False,
    "write_computation_times": False,  # its page asks the network for scripts
    "plot_gallery": "DOCS_QUICK" not in os.environ,
    "abort_on_example_error": False,
    "only_warn_on_example_error": False,
    "backreferences_dir": None,
    "reset_modules": ("matplotlib",),
    "run_stale_examples": True,  # what they print depends on more than their text
}

# -- looks -----------------------------------------------------------------------------
SITE = "https://brainweave.github.io/brainweave"
html_theme = "pydata_sphinx_theme"
html_title = "brainweave"
html_static_path = ["_static"]
html_css_files = ["brainweave.css"]
html_show_sourcelink = False
html_theme_options = {
    "github_url": "https://github.com/brainweave/brainweave",
    "show_nav_level": 1,
    "navbar_persistent": ["search-button"],
    # the list of versions is one file, that of the development version
    "switcher": {
        "json_url": f"{SITE}/dev/_static/switcher.json",
        "version_match": "dev" if "dev" in release else release,
    },
    "check_switcher": False,  # the build needs no network
    "show_version_warning_banner": True,
    "navbar_end": ["version-switcher", "theme-switcher", "navbar-icon-links"],
    "navigation_with_keys": False,
    "header_links_before_dropdown": 6,
    "secondary_sidebar_items": {"**": ["page-toc"], "index": []},
    "footer_start": ["copyright"],
    "footer_end": [],
}
html_sidebars = {"index": [], "quickstart": [], "tutorials/index": []}
copybutton_prompt_text = r">>> |\.\.\. "
copybutton_prompt_is_regexp = True
html_math_renderer = "mathml"


def keep_numbers_together(app, docname, source):
    """Let no table break a line between a mean and its deviation."""
    source[0] = source[0].replace(" ± ", "\N{NO-BREAK SPACE}±\N{NO-BREAK SPACE}")


def end_examples_without_a_blank_line(app, docname, source):
    """Drop the line that tells doctest where expected output ends."""
    block = r"^(```python\n(?:(?!```).*\n)*?)\n```$"
    source[0] = re.sub(block, r"\1```", source[0], flags=re.MULTILINE)


def setup(app):
    """Register what is too small for an extension."""
    app.connect("source-read", keep_numbers_together)
    app.connect("source-read", end_examples_without_a_blank_line)
