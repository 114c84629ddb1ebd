#!/bin/sh
# Builds the C library: build.sh OUT [FLAG...]. CC and CFLAGS are used where they are set.
set -e
out=$1
shift
here=$(dirname "$0")
exec ${CC:-gcc} -std=gnu11 ${CFLAGS:--O2 -g} -fPIC -Wall -Wextra -Werror -shared \
	-Wl,-soname,librnicd_verbs.so -Wl,--version-script="$here/shim.map" -Wl,-z,defs "$@" \
	-o "$out" "$here"/*.c -ldl
