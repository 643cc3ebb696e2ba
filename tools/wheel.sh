#!/usr/bin/env bash
# Makes the wheel of the Python package, which installs without Rust and without a network on every Linux with glibc
# 2.28 (2018) or newer, and checks it:
#   tools/wheel.sh [DIRECTORY [MACHINE]]
# The wheel goes to DIRECTORY (target/wheels), and its path to standard output. MACHINE is x86_64 or aarch64, by default
# what this machine is. For another one it is compiled here, too, and tools/wheel_emulated.sh runs it here.
#
# ROWDEX_GLIBC          the oldest glibc to run with (2.28), or `native`: link with the C library of this machine, and
#                       name whatever platform auditwheel grants.
# ROWDEX_CARGO_PROFILE  how it is built (dist).
# ROWDEX_CARGO_ARGS     more arguments for cargo (--locked).
set -euo pipefail
if [ "$(uname)" != Linux ]; then echo "tools/wheel.sh makes wheels for Linux; use: pip install ./python" >&2; exit 1; fi
machine=${2:-$(uname -m)}
if [ $# -gt 2 ] || [[ "${1:-}" == -* ]] || [[ ! "$machine" =~ ^(x86_64|aarch64)$ ]]; then
  sed -n '2,11s/^# \{0,1\}//p' "${BASH_SOURCE[0]}" >&2
  exit 2
fi
mkdir -p "${1:-$(dirname "${BASH_SOURCE[0]}")/../target/wheels}"
directory=$(cd "${1:-$(dirname "${BASH_SOURCE[0]}")/../target/wheels}" && pwd)
cd "$(dirname "${BASH_SOURCE[0]}")/.."

tools=$PWD/target/wheel-tools
python=$tools/bin/python
bash tools/python/wheel_tools.sh >&2

glibc=${ROWDEX_GLIBC:-2.28}
platform=auto
if [ "$glibc" != native ]; then
  if [[ ! "$glibc" =~ ^2\.[0-9]+$ ]]; then
    echo "ROWDEX_GLIBC=$glibc: use a version such as 2.28, or native" >&2
    exit 2
  fi
  platform=manylinux_${glibc/./_}_$machine
  # To rustc it is gcc: zig's compiler, which links with the symbols of that version of glibc.
  export ZIG_GLOBAL_CACHE_DIR=$PWD/target/zig-cache ROWDEX_LINKER=$tools/glibc-$glibc-$machine/zigcc
  bash tools/python/zig_program.sh "$ROWDEX_LINKER" cc -- -g -target "$machine-linux-gnu.$glibc"
fi

if [ "$machine" != "$(uname -m)" ]; then
  if [ "$glibc" = native ]; then
    echo "ROWDEX_GLIBC=native: this machine has no C library of $machine" >&2
    exit 2
  fi
  export CARGO_BUILD_TARGET=$machine-unknown-linux-gnu
  if [ ! -d "$(rustc --print sysroot)/lib/rustlib/$CARGO_BUILD_TARGET" ]; then
    rustup target add "$CARGO_BUILD_TARGET" >&2
  fi
  # C of the dependencies is compiled by zig, too, and a dependency may link a library of its own.
  of=${CARGO_BUILD_TARGET//-/_} ar=$tools/glibc-$glibc-$machine/ar
  export "CC_$of=$ROWDEX_LINKER" "AR_$of=$ar" "CARGO_TARGET_${of^^}_LINKER=$ROWDEX_LINKER"
  bash tools/python/zig_program.sh "$ar" ar --
fi

made=$PWD/target/wheel-made
rm -rf "$made"
(cd python && ROWDEX_CARGO_ARGS=${ROWDEX_CARGO_ARGS:---locked} "$python" -m hatchling build -t wheel -d "$made" >&2)

# Fails where a symbol is newer than the platform, or a library is needed that not every Linux has. auditwheel takes
# platforms of other machines from the wheel alone, and finds out which one it is.
asked=$platform
if [ "$machine" != "$(uname -m)" ]; then asked=auto; fi
PATH=$tools/bin:$PATH "$python" -m auditwheel repair --plat "$asked" --only-plat --wheel-dir "$made/repaired" \
  "$made"/rowdex-*.whl >&2
wheel=$(basename "$made"/repaired/rowdex-*.whl)
if [ "$platform" != auto ] && [[ "$wheel" != *"-$platform.whl" ]]; then
  echo "$wheel is of another platform than $platform" >&2
  exit 1
fi
mv "$made/repaired/$wheel" "$directory/$wheel"
rm -rf "$made"
"$python" tools/python/check_wheel.py "$directory/$wheel" >&2
printf '%s\n' "$directory/$wheel"
