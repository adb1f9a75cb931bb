#!/bin/sh
# Make the virtual environment $1 with a Python that is new enough, whatever the machine offers.
set -eu
venv=$1
newer='import sys; sys.exit(sys.version_info < (3, 11))'

python=
for candidate in ${PYTHON:-} python3 python3.14 python3.13 python3.12 python3.11 python; do
    if command -v "$candidate" >/dev/null 2>&1 && "$candidate" -c "$newer" 2>/dev/null; then
        python=$candidate
        break
    fi
done
if [ -z "$python" ]; then
    echo "brainweave needs Python 3.11 or newer; none was found. Install one, or name it: make PYTHON=/path/to/python3" >&2
    exit 1
fi

"$python" -m venv "$venv" 2>/dev/null && exit 0

# Debian's python3 comes without ensurepip: bring it where we may, else use virtualenv.
rm -rf "$venv"
if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; then
    (apt-get update -qq && apt-get install -y -qq python3-venv) >/dev/null 2>&1 || true
    "$python" -m venv "$venv" 2>/dev/null && exit 0
    rm -rf "$venv"
fi
"$python" -m pip install --quiet --user virtualenv >/dev/null 2>&1 || true
"$python" -m virtualenv --quiet "$venv" 2>/dev/null && exit 0
echo "Could not create a virtual environment with $python. Install the package python3-venv (Debian, Ubuntu) and try again." >&2
exit 1
