#!/usr/bin/env bash
# Tests the Python package under the frameworks that it plugs into: installs all of them, as tools/python/frameworks.txt
# pins them, installs the wheel, and runs python/tests/frameworks. A framework that is missing is a failure.
# tools/wheel.sh and tools/python/install.sh say which variables there are. Arguments go to pytest:
#   tools/frameworks.sh frameworks/test_ray.py
#   tools/frameworks.sh --lock      chooses the versions anew: pins the newest ones that fit together.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

python=${ROWDEX_VENV:-target/python-venv}/bin/python
export ROWDEX_FRAMEWORKS=required ROWDEX_TORCH=required
if [ "${1:-}" = --lock ]; then
  ROWDEX_FRAMEWORKS=no bash tools/python/setup.sh
  exec "$python" tools/python/lock_frameworks.py "${@:2}"
fi

bash tools/python/setup.sh
ROWDEX_WHEEL=$(bash tools/python/install.sh)
export ROWDEX_WHEEL

case $python in /*) ;; *) python=$PWD/$python ;; esac
# From another directory, so that what is imported is what was installed.
cd python/tests
[ $# -gt 0 ] || set -- frameworks
exec "$python" -m pytest -c ../pyproject.toml --rootdir .. --import-mode=append -p no:cacheprovider "$@"
