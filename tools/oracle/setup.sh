#!/bin/sh
# Makes the Python environment that the oracle tests compare rowdex with: setup.sh [FOLDER], target/oracle-venv unless
# given. Prints the path of its python. Does nothing if the environment has the pinned packages already.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
venv=${1:-$here/../../target/oracle-venv}
pins=$here/requirements.txt
done=$venv/installed.txt

if ! cmp -s "$pins" "$done" || ! "$venv/bin/python" -c 'import pyarrow.parquet' 2>/dev/null; then
    rm -rf "$venv"
    python3 -m venv "$venv" >&2
    "$venv/bin/python" -m pip install --quiet --disable-pip-version-check --only-binary :all: -r "$pins" >&2
    # Last, so that an installation that was cut off is done again.
    cp "$pins" "$done"
fi
echo "$venv/bin/python"
