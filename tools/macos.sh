#!/usr/bin/env bash
# Checks that all packages compile for macOS with arm64, and lints them for it, on Linux: rustup brings the target's
# standard library, zig the headers of its C library. Nothing is linked, and nothing is run.
#   tools/macos.sh
# rowdex-share, whose readers need Linux, is left out there.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
target=aarch64-apple-darwin
if [ ! -d "$(rustc --print sysroot)/lib/rustlib/$target" ]; then
  rustup target add "$target"
fi
bash tools/python/wheel_tools.sh
export ZIG_GLOBAL_CACHE_DIR=$PWD/target/zig-cache
export CC_aarch64_apple_darwin=$PWD/target/wheel-tools/macos/cc AR_aarch64_apple_darwin=$PWD/target/wheel-tools/macos/ar
bash tools/python/zig_program.sh "$CC_aarch64_apple_darwin" cc -- -target aarch64-macos
bash tools/python/zig_program.sh "$AR_aarch64_apple_darwin" ar --
cargo clippy --locked --all-features --target "$target" --workspace --exclude rowdex-share -- -D warnings
