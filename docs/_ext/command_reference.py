"""``command-reference``: every command and option, asked of the program itself.

Typer may bring a click of its own, and both change: only names, texts and defaults are
asked for, which all of their versions have.
"""

import re
from typing import Any

from docutils import nodes
from docutils.parsers.rst import Directive
from docutils.statemachine import StringList


def all_commands() -> dict[str, Any]:
    """Return the commands of the program by name, in the order of its help."""
    import typer.main

    from brainweave.cli.app import app

    program: Any = typer.main.get_command(app)
    return dict(program.commands)


def command_lines(name: str, command: Any) -> list[str]:
    """Return the reStructuredText of one command."""
    title = f"brainweave {name}"
    shown = [p for p in command.params if not p.hidden and p.name != "help"]
    arguments = [p for p in shown if p.param_type_name == "argument"]
    usage = " ".join([title, "[OPTIONS]", *map(_placeholder, arguments)])
    lines = [title, "-" * len(title), ""]
    lines += [*_escaped(plain(command.help)).splitlines(), ""]
    lines += [".. code-block:: text", "", f"   {usage}", ""]
    for heading, members in _panels(shown).items():
        lines += [f".. rubric:: {heading}", ""]
        for parameter in members:
            lines += [_term(parameter), f"   {_text(parameter)}", ""]
    return lines


def plain(text: str | None) -> str:
    """Return a help text without the markup of rich, each paragraph on one line."""
    paragraphs = re.sub(r"\[/?[a-z]+\]", "", text or "").split("\n\n")
    return "\n\n".join(" ".join(p.split()) for p in paragraphs)


def _panels(parameters: list[Any]) -> dict[str, list[Any]]:
    panels: dict[str, list[Any]] = {}
    for parameter in parameters:
        usual = "Arguments" if parameter.param_type_name == "argument" else "Options"
        heading = getattr(parameter, "rich_help_panel", None) or usual
        panels.setdefault(heading, []).append(parameter)
    return panels


def _placeholder(parameter: Any) -> str:
    name = parameter.metavar or parameter.name.upper()
    return name if parameter.nargs == 1 else f"{name}..."


def _term(parameter: Any) -> str:
    if parameter.param_type_name == "argument":
        return f"``{_placeholder(parameter)}``"
    names = [*parameter.opts, *parameter.secondary_opts]
    term = ", ".join(f"``{name}``" for name in names)
    return term if parameter.is_flag else f"{term} ``{_placeholder(parameter)}``"


def _text(parameter: Any) -> str:
    text = _escaped(plain(getattr(parameter, "help", None)))
    value = parameter.default
    if value is not None and not callable(value) and not _is_flag(parameter):
        values = value if isinstance(value, (list, tuple)) else [value]
        shown = ", ".join(str(v) for v in values)
        text += f" *Default:* ``{shown}``." if shown else ""
    return text or "\\ "


def _is_flag(parameter: Any) -> bool:
    return bool(getattr(parameter, "is_flag", False))


def _escaped(text: str) -> str:
    return re.sub(r"([*`_|\\])", r"\\\1", text)


class CommandReference(Directive):
    """Describe all commands of brainweave."""

    def run(self) -> list[nodes.Node]:
        """Ask the program."""
        lines: list[str] = []
        for name, command in all_commands().items():
            lines += command_lines(name, command)
        node = nodes.section()
        node.document = self.state.document
        self.state.nested_parse(StringList(lines, "cli"), 0, node, match_titles=True)
        return node.children


def setup(app: Any) -> dict[str, bool]:
    """Register with Sphinx."""
    app.add_directive("command-reference", CommandReference)
    return {"parallel_read_safe": True}
