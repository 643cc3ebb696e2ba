#!/bin/sh
# Builds the S3 server that the tests of object stores run against: setup.sh [FOLDER], target/stores unless given.
# Prints the path of the server. Does nothing if it is there already. ROWDEX_STORES_PROFILE=release optimises it, for
# measuring.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
folder=${1:-$here/../../target/stores}
version=0.14.1

if ! "$folder/bin/s3s-fs" --version 2>/dev/null | grep -q "$version"; then
    # Not optimised otherwise: the tests move little, and it builds in half the time.
    case ${ROWDEX_STORES_PROFILE:-debug} in release) debug= ;; *) debug=--debug ;; esac
    cargo install --quiet --locked $debug --root "$folder" s3s-fs --version "$version" --features binary >&2
fi
echo "$folder/bin/s3s-fs"
