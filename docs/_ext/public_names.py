"""References to a public name lead to its page, wherever the docstring stands.

``Study`` is documented as ``brainweave.Study``; a docstring in another module may call
it ``Study`` or name the module that it lives in.
"""

from typing import Any

import brainweave


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
    app.connect("missing-reference", find_public_name)
    return {"parallel_read_safe": True}
