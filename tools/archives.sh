#!/usr/bin/env bash
# Packs what a release has besides the wheel, for machines like this one, each with its SHA-256 in a file:
#   tools/archives.sh DIRECTORY
# rowdex-VERSION-TARGET.tar.gz has the command. librowdex-VERSION-TARGET.tar.gz, on Linux only, has the C library: the
# header, the shared and the static library, and the pkg-config file. Like the wheel, both need glibc 2.28 or newer, and
# they have the licences and the list of packages that the wheel has.
#
# ROWDEX_WHEEL    the wheel. Default: the one in target/wheels.
# ROWDEX_COMMAND  the command. Built unless this is set.
# ROWDEX_PREFIX   where tools/install.sh has put the C library. Built unless this is set.
# ROWDEX_GZIP     how hard gzip tries, 1 to 9 (9).
set -euo pipefail
if [ $# -ne 1 ]; then sed -n '2,11s/^# \{0,1\}//p' "${BASH_SOURCE[0]}" >&2; exit 2; fi
mkdir -p "$1"
directory=$(cd "$1" && pwd)
cd "$(dirname "${BASH_SOURCE[0]}")/.."
wheel=${ROWDEX_WHEEL:-$(ls target/wheels/rowdex-*.whl)}
version=$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -1)
target=$(rustc -vV | sed -n 's/^host: //p')
built=${CARGO_TARGET_DIR:-target}
work=$(mktemp -d "$directory/packing.XXXXXX")
trap 'rm -rf "$work"' EXIT

# What is built here runs with the glibc that tools/wheel.sh links with, by the same linker.
if [ "$(uname)" = Linux ] && { [ -z "${ROWDEX_COMMAND:-}" ] || [ -z "${ROWDEX_PREFIX:-}" ]; }; then
  machine=$(uname -m)
  export ZIG_GLOBAL_CACHE_DIR=$PWD/target/zig-cache ROWDEX_LINKER=$PWD/target/wheel-tools/glibc-2.28-$machine/zigcc
  bash tools/python/wheel_tools.sh
  bash tools/python/zig_program.sh "$ROWDEX_LINKER" cc -- -g -target "$machine-linux-gnu.2.28"
fi

python3 -m zipfile -e "$wheel" "$work/wheel"
pack() { # NAME: the folder of that name in $work
  mkdir "$work/$1/licenses"
  cp "$work"/wheel/rowdex-*.dist-info/licenses/* "$work"/wheel/rowdex-*.dist-info/sboms/* "$work/$1/licenses"
  tar -C "$work" -cf - "$1" | gzip "-${ROWDEX_GZIP:-9}" >"$directory/$1.tar.gz"
  (cd "$directory" && shasum -a 256 "$1.tar.gz" >"$1.tar.gz.sha256")
}

name=rowdex-$version-$target
mkdir "$work/$name"
if [ -z "${ROWDEX_COMMAND:-}" ]; then
  cargo rustc --locked -p rowdex-cli --bin rowdex --profile dist --features full -- -C strip=symbols \
    ${ROWDEX_LINKER:+-C "linker=$ROWDEX_LINKER"}
  ROWDEX_COMMAND=$built/dist/rowdex
fi
install -m 755 "$ROWDEX_COMMAND" "$work/$name/rowdex"
pack "$name"

[ "$(uname)" = Linux ] || exit 0
name=lib$name
if [ -z "${ROWDEX_PREFIX:-}" ]; then
  ROWDEX_PREFIX=$built/installed
  bash tools/install.sh "$ROWDEX_PREFIX"
fi
mkdir "$work/$name"
cp -a "$ROWDEX_PREFIX/include" "$ROWDEX_PREFIX/lib" "$work/$name"
strip --strip-debug "$work/$name"/lib/librowdex.so.* "$work/$name/lib/librowdex.a"
pack "$name"
