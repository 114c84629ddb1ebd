#!/usr/bin/env bash
# make interop once, for CI: every conversation with Linux siw, perftest's in some of their
# cells, drawn anew. A machine that cannot run it fails, in one line that says what is missing, unless
# INTEROP=skip says that this is known.
set -euo pipefail
cd "$(dirname "$0")/.."

cannot=
if [ "$(id -u)" != 0 ]; then
    cannot="not root: it makes a network namespace, a bridge and TAP devices"
elif [ ! -c /dev/net/tun ]; then
    cannot="no /dev/net/tun"
elif ! command -v apt-get >/dev/null; then
    cannot="no apt-get: the guest is made of Debian's packages"
fi
if [ "${INTEROP:-}" = skip ]; then
    echo "interop: SKIPPED, as INTEROP=skip says${cannot:+ ($cannot)}"
    exit 0
fi
if [ -n "$cannot" ]; then
    echo "interop: cannot run here: $cannot; INTEROP=skip goes on without it" >&2
    exit 1
fi
exec timeout 12m make interop ARGS="-tries 1 -quick $*"
