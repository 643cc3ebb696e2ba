#!/bin/sh
# Finds Chromium, or installs Debian's package, for which one must be root. Prints what to run.
set -eu
if ! command -v chromium >/dev/null && [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    install="apt-get install -qq -y --no-install-recommends chromium fonts-dejavu-core"
    { $install || { apt-get update -qq && $install; }; } >&2
fi
command -v chromium
