#!/usr/bin/env bash
# One TCP stream between the kernel and a stack on a TAP device, both ways: ours, gVisor's netstack,
# and the kernel with itself for context, in turn on this machine. Prints a table of medians and
# ratios.
#   bench-peers.sh [flags of bench/peers/compare]        e.g. -rounds 3 -for 2s -mtu 1500 -ways in -peers ours,gvisor
# Needs root. gVisor comes over the Go module proxy, at the version that bench/peers/gvisor/go.mod
# pins; without it the rest is measured.
set -euo pipefail
cd "$(dirname "$0")/.."
if [ "$(id -u)" != 0 ]; then
    echo "bench-peers: needs root: it makes network namespaces and TAP devices" >&2
    exit 1
fi
GO=${GO:-go} bin=$PWD/build/peers
mkdir -p "$bin"
$GO build -pgo=bench/packetpath.pgo -buildvcs=false -o "$bin/" ./bench/peers/ours ./bench/peers/kernel ./bench/peers/compare
rm -f "$bin/gvisor"
peers=ours,ours-stream,gvisor,gvisor-fdbased,kernel
if ! (cd bench/peers/gvisor && timeout 600 $GO build -buildvcs=false -o "$bin/gvisor" .); then
    echo "bench-peers: gVisor could not be fetched or built (GOPROXY=$($GO env GOPROXY)): the table is without it" >&2
    peers=ours,ours-stream,kernel
fi
scripts/hugepages.sh 192 >&2 # packet buffers of 64 KiB for what the kernel leaves uncut
exec "$bin/compare" -bin "$bin" -peers "$peers" "$@"
