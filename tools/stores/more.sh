#!/bin/sh
# Finds a server that the tests of object stores run against, or installs it: more.sh nginx|azurite [FOLDER],
# target/stores unless given. nginx is a Debian package, for which one must be root; Azurite comes from npm, for which
# there must be node. Prints what to run.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
mkdir -p "${2:-$here/../../target/stores}"
folder=$(cd "${2:-$here/../../target/stores}" && pwd)
azurite=3.35.0

case ${1:-} in
nginx)
    PATH=$PATH:/usr/sbin:/sbin
    if ! command -v nginx >/dev/null && [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
        # Without the service: it is started by the tests, on ports of their own.
        # Another program may be installing.
        apt="apt-get -qq -y -o DPkg::Lock::Timeout=300 -o Acquire::Retries=3"
        install="$apt install --no-install-recommends nginx-light"
        { $install || { $apt update && $install; }; } >&2
    fi
    command -v nginx
    ;;
azurite)
    main=$folder/node_modules/azurite/dist/src/blob/main.js
    if ! grep -q "\"version\": \"$azurite\"" "$folder/node_modules/azurite/package.json" 2>/dev/null; then
        npm install --silent --no-audit --no-fund --no-save --prefix "$folder" "azurite@$azurite" >&2
    fi
    ls "$main"
    ;;
*)
    sed -n '2,3s/^# //p' "$0" >&2
    exit 2
    ;;
esac
