#!/bin/sh
# Builds the C library, and beside it standin/, where it has the names of those that it stands for:
# build.sh OUT [FLAG...]. CC and CFLAGS are used where they are set.
set -e
out=$1
shift
here=$(dirname "$0")
cc=${CC:-gcc}
made=$(mktemp -d)
trap 'rm -rf "$made"' EXIT
"$here/forward.sh" "$cc" "$here/shim.map" "$made/forwards.h" "$made/forwards.map"
# What unmapped.c defines has the C library's version. That comes first, or the loader would not
# bind programs to it that ask for none.
nm -D "$($cc -print-file-name=libc.so.6)" |
	sed -n 's/.* \(mmap\|mmap64\|mremap\|munmap\)@@\(.*\)/#define VERSION_\1 "\2"/p' \
		>"$made/versions.h"
{
	sed -n 's/.*"\(.*\)"/\1 {};/p' "$made/versions.h" | sort -u
	cat "$made/forwards.map"
} >"$made/shim.map"
flags="-std=gnu11 ${CFLAGS:--O2 -g} -fPIC -Wall -Wextra -Werror"
# Where CFLAGS name a sanitizer, it calls the C library before it is ready: what stands in front of
# that is built without.
early="signals files directories paths glibc"
for name in $early; do
	$cc $flags -fno-sanitize=all -c -o "$made/$name.o" "$here/$name.c"
	set -- "$@" "$made/$name.o"
done
for file in "$here"/*.c; do
	case " $early " in *" $(basename "$file" .c) "*) ;; *) set -- "$@" "$file" ;; esac
done
$cc $flags -shared -I"$made" \
	-Wl,-soname,librnicd_verbs.so -Wl,--version-script="$made/shim.map" -Wl,-z,defs \
	-o "$out" "$@" -ldl
standin=$(dirname "$out")/standin
mkdir -p "$standin"
for name in libibverbs.so libibverbs.so.1 librdmacm.so librdmacm.so.1; do
	ln -sfn "../$(basename "$out")" "$standin/$name"
done
