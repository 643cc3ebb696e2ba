#!/usr/bin/env bash
# Runs a wheel for aarch64 on another machine, under qemu and an arm64 Python, and compares with what rowdex makes of
# the same files here: the index, rows by a condition, every value of two epochs, packs. Its command runs the demo.
#   tools/wheel_emulated.sh WHEEL
# qemu and Python come from the archive of Debian, and are unpacked below target/: nothing is installed.
#
# ROWDEX_VENV  the environment that has rowdex for this machine (tools/python/install.sh). Default: target/python-venv.
set -euo pipefail
if [ $# -ne 1 ]; then sed -n '2,7s/^# \{0,1\}//p' "${BASH_SOURCE[0]}" >&2; exit 2; fi
wheel=$(realpath "$1")
cd "$(dirname "${BASH_SOURCE[0]}")/.."
here=$(realpath "${ROWDEX_VENV:-target/python-venv}")/bin/python
"$here" -c 'import rowdex, pyarrow' || { echo "$here has no rowdex: run tools/python/install.sh" >&2; exit 1; }
bash tools/python/wheel_tools.sh
bash tools/python/emulation.sh

made=$PWD/target/emulation
qemu=$made/machine/qemu-aarch64 root=$made/machine/root
version=$("$qemu" -L "$root" "$root/usr/bin/python3" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
tags=(--platform "manylinux_2_28_aarch64" --platform "manylinux_2_27_aarch64" --platform "manylinux2014_aarch64")
install=(target/wheel-tools/bin/python -m pip install --quiet --disable-pip-version-check --python-version "$version"
  --only-binary ":all:" "${tags[@]}" --upgrade --no-deps)
packages=$made/python$version
for package in numpy pyarrow; do
  pinned=$(grep "^$package==" tools/python/requirements.txt)
  [ -d "$packages/$package-${pinned#*==}.dist-info" ] || "${install[@]}" --target "$packages" "$pinned"
done
rm -rf "$made/rowdex" "$made/compared"
# pip refuses a wheel that is not for this platform.
"${install[@]}" --no-index --target "$made/rowdex" "$wheel"
mkdir "$made/compared"

emulated() { "$qemu" -L "$root" -E PYTHONPATH="$made/rowdex:$packages" "$@"; }
test "$(emulated "$root/usr/bin/python3" -m rowdex --version)" = "$("$(dirname "$here")/rowdex" --version)"
emulated "$root/usr/bin/python3" -m rowdex demo --keep "$made/compared/demo"
"$here" -m tools.python.epoch_bytes --write "$made/compared/files"
"$here" -m tools.python.epoch_bytes "$made/compared/files" | tee "$made/compared/here"
emulated "$root/usr/bin/python3" -m tools.python.epoch_bytes "$made/compared/files" >"$made/compared/emulated"
diff "$made/compared/here" "$made/compared/emulated"
echo "$(basename "$wheel"): the same $(wc -l <"$made/compared/here") digests as on $(uname -m)"
