"""Formulas as MathML, made at build time: no LaTeX and no network is needed."""

import re
from typing import Any

from docutils import nodes
from docutils.utils.math import latex2mathml
from sphinx.util import logging


def to_mathml(tex: str, *, block: bool) -> str:
    """Return a formula as a MathML element."""
    # docutils' converter lacks \dots, and takes \frac12 for 12 over what follows
    tex = tex.replace(r"\dots", r"\ldots")
    tex = re.sub(r"\\([td]?frac)\s*(\w)\s*(\w)", r"\\\1{\2}{\3}", tex)
    return str(latex2mathml.tex2mathml(tex, as_block=block))


def visit_math(translator: Any, node: Any) -> None:
    """Write a formula within a line."""
    translator.body.append(_converted(node, block=False))
    raise nodes.SkipNode


def visit_math_block(translator: Any, node: Any) -> None:
    """Write a formula of its own."""
    translator.body.append(f'<div class="math">{_converted(node, block=True)}</div>')
    raise nodes.SkipNode


def _converted(node: Any, *, block: bool) -> str:
    try:
        return to_mathml(node.astext(), block=block)
    except Exception as error:  # whatever the converter does not know
        logging.getLogger(__name__).warning(
            "%s: %s", node.astext(), error, location=node
        )
        return ""


def setup(app: Any) -> dict[str, bool]:
    """Register with Sphinx."""
    app.add_html_math_renderer("mathml", (visit_math, None), (visit_math_block, None))
    return {"parallel_read_safe": True}
