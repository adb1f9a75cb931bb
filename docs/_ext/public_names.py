"""Public names: their docstrings are checked, and references lead to their pages.

``Study`` is documented as ``brainweave.Study``; a docstring in another module may call
it ``Study`` or name the module that it lives in.
"""

import dataclasses
import inspect
from typing import Any

from numpydoc.validate import validate
from sphinx.util import logging

import brainweave

# What numpydoc asks for and this project does not: extended summaries, examples and See
# Also everywhere; that "as in Study" repeats types; one line per grouped parameter.
NOT_ASKED = {"ES01", "EX01", "SA01", "PR03", "PR04", "PR07", "RT03"}
# A method may say what it returns in its first line, as one without parameters does.
NOT_ASKED_OF_METHODS = {*NOT_ASKED, "RT01", "RT02"}
# Its methods are what aligners are made of, a line each.
WITHOUT_METHODS = {"SubjectBasis"}


def check_docstrings(app: Any) -> None:
    """Warn of every public name whose docstring is not whole; warnings are errors."""
    for name in brainweave.__all__:
        if name == "__version__":
            continue
        thing = getattr(brainweave, name)
        # the fields of a dataclass are documented as its attributes
        fields = {"PR01"} if dataclasses.is_dataclass(thing) else set()
        _check(f"brainweave.{name}", NOT_ASKED | fields)
        if isinstance(thing, type) and name not in WITHOUT_METHODS:
            for method, function in inspect.getmembers(thing, inspect.isroutine):
                module = getattr(function, "__module__", None) or ""
                if module.startswith("brainweave") and not method.startswith("_"):
                    # "as GDM does", "see load_nifti": the parameters are told there
                    told = {"PR01"} if ":`" in (function.__doc__ or "") else set()
                    _check(f"brainweave.{name}.{method}", NOT_ASKED_OF_METHODS | told)


def _check(name: str, excused: set[str]) -> None:
    for code, message in validate(name)["errors"]:
        # numpydoc takes a parameter that is called cls for that of a classmethod
        if code not in excused and "{'cls'}" not in message:
            logging.getLogger(__name__).warning("%s: %s (%s)", name, message, code)


def find_public_name(app: Any, env: Any, node: Any, content: Any) -> Any:
    """Resolve what Sphinx could not, if its last part is a public name."""
    if node.get("refdomain") != "py":
        return None
    name = node["reftarget"].lstrip("~").rpartition(".")[2]
    if name not in brainweave.__all__:
        return None
    domain = env.get_domain("py")
    return domain.resolve_xref(
        env, node["refdoc"], app.builder, "obj", f"brainweave.{name}", node, content
    )


def setup(app: Any) -> dict[str, bool]:
    """Register with Sphinx."""
    app.connect("builder-inited", check_docstrings)
    app.connect("missing-reference", find_public_name)
    return {"parallel_read_safe": True}
