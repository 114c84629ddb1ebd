#!/usr/bin/env bash
# Makes the image rnicd by podman or buildah, from packaging/Containerfile and what git has of this
# tree.
#   BASE=debian:12 CAPABILITIES= ARGS="--network host" container.sh [further arguments of the builder]
set -euo pipefail
cd "$(dirname "$0")/.."
if command -v podman >/dev/null; then
    builder=podman
elif command -v buildah >/dev/null; then
    builder=buildah
else
    echo "container: neither podman nor buildah: apt-get install podman" >&2
    exit 1
fi
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
git clone -q --no-local . "$tmp/src" # without what was built here
"$builder" build --file packaging/Containerfile --build-arg "BASE=${BASE:-debian:12}" --build-arg "CAPABILITIES=${CAPABILITIES:-}" \
    --tag rnicd ${ARGS:-} "$@" "$tmp/src" # ARGS: several, separated by spaces
