#!/bin/sh
# Check what is published: pyproject.toml, both archives, workflows, citation, changelog and paper.
# make package-check puts the tools on the path.
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

validate-pyproject pyproject.toml
repo-review --show err .
zizmor --offline --quiet --no-progress .github
cffconvert --validate
python tools/check_metadata.py
# the paper builds, and every reference in it is known; the journal's own tool makes the PDF
pandoc=$(python -c "import pypandoc; print(pypandoc.get_pandoc_path())")
(cd paper && "$pandoc" paper.md --citeproc --standalone --mathml --fail-if-warnings -o "$work/paper.html")
towncrier build --draft --version 0.0.0 >"$work/changelog.md" 2>&1 || { cat "$work/changelog.md"; exit 1; }

python -m build --outdir "$work/dist" >"$work/log" 2>&1 || { cat "$work/log"; exit 1; }
twine check --strict "$work"/dist/*
if [ -e .git ]; then # the archive itself has no list of tracked files to compare with
    check-manifest
fi
