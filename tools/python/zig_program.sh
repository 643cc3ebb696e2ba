#!/usr/bin/env bash
# Writes a program that calls zig as a compiler of C or its like, in the way that cargo-zigbuild translates it:
#   zig_program.sh PATH COMMAND [ARGUMENT...]
set -euo pipefail
bin=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)/target/wheel-tools/bin
mkdir -p "$(dirname "$1")"
printf '#!/bin/sh\nPATH=%s:$PATH exec %s/cargo-zigbuild zig %s "$@"\n' "$bin" "$bin" "${*:2}" >"$1"
chmod +x "$1"
