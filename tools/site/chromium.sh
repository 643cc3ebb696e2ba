#!/bin/sh
# Finds Chromium, or installs Debian's package, for which one must be root. Prints what to run.
set -eu
if ! command -v chromium >/dev/null && [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    # Another program may be installing.
    apt="apt-get -qq -y -o DPkg::Lock::Timeout=300 -o Acquire::Retries=3"
    install="$apt install --no-install-recommends chromium fonts-dejavu-core"
    { $install || { $apt update && $install; }; } >&2
fi
command -v chromium
