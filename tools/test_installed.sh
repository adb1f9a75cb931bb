#!/bin/sh
# Build the wheel and the source archive, install each into an empty environment, and run the tests against what is
# installed, in a folder that has no src. The wheel gets all tests; the archive, whose files must be those of the
# wheel, gets a demo with nothing but what the package requires, and then the tests of $QUICK.
set -eu
python=$1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
PYTHONPATH=
export PYTHONPATH PIP_DISABLE_PIP_VERSION_CHECK=1 OMP_NUM_THREADS=1
QUICK="tests/test_package.py tests/test_report.py tests/persistence/test_models.py tests/cli/test_start.py"

"$python" -m build --outdir "$work/dist" >"$work/log" 2>&1 || { cat "$work/log"; exit 1; }
archive=$(echo "$work"/dist/*.tar.gz) wheel=$(echo "$work"/dist/*.whl)
tar -xf "$archive" -C "$work"
tests=$(echo "$work"/brainweave-*)
rm -r "$tests/src"

for kind in archive wheel; do
    venv=$work/$kind
    tools/make_venv.sh "$venv"
    case $kind in archive) file=$archive ;; *) file=$wheel ;; esac
    echo "Installing $(basename "$file") into an empty environment ..."
    "$venv/bin/pip" install --quiet "$file"
    "$venv/bin/pip" check
    if [ $kind = archive ]; then (cd "$work" && "$venv/bin/brainweave" demo demo --quiet); fi
    "$venv/bin/pip" install --quiet "${file}[dev]"
    (cd "$venv"/lib/python*/site-packages/brainweave && find . -type f ! -name '*.pyc' -exec sha256sum {} + | sort -k2) >"$work/$kind.files"
    run="$venv/bin/python -m pytest -p no:cacheprovider"
    # tests/test_project.py is of the repository: workflows, hooks, the container
    case $kind in
    archive) (cd "$tests" && $run $QUICK) ;;
    *) (cd "$tests" && $run -n 2 --dist loadfile --ignore tests/test_project.py tests README.md) ;;
    esac
    # and what its own documentation shows; conftest.py has the names that it uses
    (cd "$tests" && $run -q -o pythonpath= -p conftest --pyargs brainweave)
done
diff "$work/archive.files" "$work/wheel.files"
echo "Both archives install, hold the same $(wc -l <"$work/wheel.files") files, and pass."
