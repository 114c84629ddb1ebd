#!/usr/bin/env bash
# Vets and tests this module against a checkout of github.com/yerden/go-dpdk, for hosts whose module proxy does not serve it:
#
#   GODPDK=/path/to/go-dpdk pmd/godpdk/check.sh [go test flags]
#
# Wants DPDK's headers (libdpdk-dev), and root for net_tap. Without the variable it says that it skipped, and succeeds.
set -euo pipefail
if [ -z "${GODPDK:-}" ]; then
    echo "godpdk: skipped: GODPDK names no checkout of github.com/yerden/go-dpdk"
    exit 0
fi
[ -f "$GODPDK/go.mod" ] || { echo "godpdk: GODPDK=$GODPDK: no checkout of github.com/yerden/go-dpdk there" >&2; exit 1; }
checkout=$(cd "$GODPDK" && pwd)
cd "$(dirname "$0")"
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
cp go.mod go.sum "$tmp/"
go mod edit -replace "github.com/yerden/go-dpdk=$checkout" -replace "github.com/rnicd/rnicd=$(cd ../.. && pwd)" "$tmp/go.mod"
out=$(gofmt -l .)
test -z "$out" || { echo "not gofmt-ed: $out" >&2; exit 1; }
go vet -modfile="$tmp/go.mod" ./...
go test -modfile="$tmp/go.mod" -count=1 -timeout 1m "$@" ./...
