"""Write the Boutiques descriptor of the BIDS App from the options of the command.

``python tools/boutiques.py`` writes ``recipe/boutiques.json``. The tests compare the
file with the options, validate it, and run command lines that Boutiques makes from it.
"""

import json
import re
from pathlib import Path
from typing import Any, get_type_hints

from typer.main import get_command

from brainweave.cli.app import app
from brainweave.cli.bids_app import run

ROOT = Path(__file__).parents[1]
TARGET = ROOT / "recipe/boutiques.json"
CODE = "https://github.com/brainweave/brainweave"


def describe(param: Any, hint: Any) -> dict[str, Any]:
    """Return the input of a descriptor for an option or argument."""
    types = {str(hint)} if isinstance(hint, type) else {str(t) for t in hint.__args__}
    kind = "String"
    if types & {"<class 'bool'>"}:
        kind = "Flag"
    elif types & {"<class 'int'>", "<class 'float'>"}:
        kind = "Number"
    elif types & {"<class 'pathlib.Path'>"} and param.name != "output_dir":
        kind = "File"
    found = {
        "id": param.name,
        "name": param.name.replace("_", " "),
        "description": re.sub(r"\[/?\w+\]", "", param.help),
        "type": kind,
        "value-key": f"[{param.name.upper()}]",
        "optional": not param.required,
    }
    if param.param_type_name == "option":
        # a flag that is on by default is given to turn it off
        on = param.default is True
        flag = param.secondary_opts[0] if on else param.opts[0]
        found["command-line-flag"] = flag
        if on:
            name = flag.removeprefix("--")
            found["id"] = name.replace("-", "_")
            found |= {"name": name.replace("-", " "), "value-key": f"[{name.upper()}]"}
            found["description"] = f"Turn off: {found['description']}"
        if param.multiple:  # the option is repeated before each value
            found |= {"list": True, "list-separator": f" {flag} "}
    if param.name == "analysis_level":
        found["value-choices"] = ["participant", "group"]
    return found


def descriptor() -> dict[str, Any]:
    """Return the whole descriptor."""
    command = get_command(app).commands["run"]
    hints = get_type_hints(run)
    params = [p for p in command.params if p.name in hints]
    inputs = [describe(p, hints[p.name]) for p in params]
    recipe = (ROOT / "recipe/meta.yaml").read_text("utf-8")
    return {
        "name": "brainweave",
        "description": "Functional alignment of fMRI data into one shared space. "
        + run.__doc__.split("\n\n")[1].replace("\n    ", " ").strip(),
        "author": "The developers of brainweave",
        "url": CODE,
        "tool-version": re.search(r'version = "([^"]+)"', recipe)[1],
        "schema-version": "0.5",
        "command-line": " ".join(["brainweave run", *(i["value-key"] for i in inputs)]),
        "inputs": inputs,
        "output-files": [
            {
                "id": "derivative",
                "name": "derivative",
                "description": "BIDS derivative with bases, model, features and report",
                "path-template": "[OUTPUT_DIR]",
            }
        ],
        "error-codes": [
            {"code": 1, "description": "A subject failed; the others are done."},
            {"code": 2, "description": "Wrong usage."},
        ],
        "tags": {"domain": ["neuroinformatics", "fMRI"], "bids": ["app"]},
    }


def main() -> None:
    """Write the file."""
    TARGET.write_text(json.dumps(descriptor(), indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
