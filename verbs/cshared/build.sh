#!/bin/sh
# Builds the engine's library: build.sh OUT [FLAG of go build...]. GO and VERSION are used where
# they are set.
#
# Go ends a goroutine's turn by SIGURG, also on a thread of the program's, whose handler that would
# reach, and whose system call it would end. asyncpreemptoff leaves it to function calls.
set -e
out=$1
shift
here=$(dirname "$0")
case $here in /* | .*) ;; *) here=./$here ;; esac
${GO:-go} build "$@" -buildvcs=false -buildmode=c-shared -ldflags \
	"-X main.version=${VERSION:-unknown} -X runtime.godebugDefault=asyncpreemptoff=1" \
	-o "$out" "$here"
rm -f "${out%.so}.h"
