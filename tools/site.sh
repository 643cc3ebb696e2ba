#!/usr/bin/env bash
# Builds the site of docs/ below target/site/html, and fails at every link, anchor or name that leads nowhere. Then
# looks at all pages in Chromium, where that is installed or can be: errors in the console, the search, dark and light,
# and whether a phone must scroll sideways; and so at a page of `rowdex info --html`. One page says what the command
# says of itself: that of ROWDEX_COMMAND, or else cargo builds one.
#
#   tools/site.sh           builds and looks
#   tools/site.sh build     builds
#   tools/site.sh serve     serves docs/ on this machine, and builds again when a page changes
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

venv=target/site/venv
if ! cmp -s tools/site/requirements.txt "$venv/requirements.txt"; then
  [ -x "$venv/bin/python" ] || python3 -m venv "$venv"
  "$venv/bin/python" -m pip install --quiet --disable-pip-version-check --only-binary :all: --no-deps \
    -r tools/site/requirements.txt
  cp tools/site/requirements.txt "$venv/requirements.txt"
fi

case ${1:-} in
  "" | build | serve) ;;
  *) sed -n '7,9p' "${BASH_SOURCE[0]}" >&2; exit 2 ;;
esac

rowdex=${ROWDEX_COMMAND:-}
if [ ! -x "$rowdex" ]; then
  cargo build --locked --quiet --workspace --all-features --bin rowdex
  rowdex=${CARGO_TARGET_DIR:-target}/debug/rowdex
fi
ROWDEX_COMMAND=$(realpath "$rowdex")
export ROWDEX_COMMAND NO_MKDOCS_2_WARNING=1

[ "${1:-}" != serve ] || exec "$venv/bin/python" -m mkdocs serve --quiet -f tools/site/mkdocs.yml

if [ ! -f "${CARGO_TARGET_DIR:-target}/doc/rowdex/index.html" ]; then
  cargo doc --locked --quiet --workspace --no-deps --all-features
fi
# Not --quiet, with which mkdocs drops its warnings, and --strict finds none.
"$venv/bin/python" -m mkdocs build --strict -f tools/site/mkdocs.yml
[ "${1:-}" != build ] || exit 0

if ! sh tools/site/chromium.sh >target/site/chromium; then
  printf '\n!! Chromium is not there: the pages of the site are built, and LOOKED AT BY NOBODY\n' >&2
  exit 0
fi
# What the command writes to be looked at, of data with an odd thing or two.
rm -rf target/site/report && mkdir -p target/site/report
"$ROWDEX_COMMAND" demo --keep target/site/report/demo >/dev/null
demo=target/site/report/demo
"$ROWDEX_COMMAND" build $demo/data -o $demo/train.rdx --update --lengths embedding >/dev/null
"$ROWDEX_COMMAND" info $demo/train.rdx --html target/site/report/report.html
timeout 1200 "$venv/bin/python" tools/site/look.py target/site/html "$(cat target/site/chromium)" \
  target/site/report/report.html
