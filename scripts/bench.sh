#!/usr/bin/env bash
# The yardsticks of speed: ratios of one run, in slices that take turns (bench/yard). Prints a
# table; writes bench/results/DATE-COMMIT.json, and goals.svg in docs/results.
#   bench.sh full | quick [flags of the test, as -yard.only=write,veth]
# As root it measures beside the kernel, gVisor and DPDK as well. The machine should have nothing
# else to do.
set -euo pipefail
cd "$(dirname "$0")/.."
mode=${1:?full or quick}
shift
GO=${GO:-go} bin=$PWD/build/peers
mkdir -p "$bin"
pgo=-pgo=bench/packetpath.pgo # as what is installed
tags=$(pkg-config --exists libdpdk 2>/dev/null && echo "-tags dpdk" || true)
$GO build $pgo -buildvcs=false $tags -o "$bin/" ./bench/peers/ours ./bench/peers/kernel ./bench/peers/compare ./cmd/rnicd
# The libraries of verbs/ stand beside rnicd.
if verbs/shim/build.sh "$bin/librnicd_verbs.so" 2>/dev/null; then
    GO="$GO" verbs/cshared/build.sh "$bin/librnicd_engine.so" $pgo -trimpath
else
    echo "bench: no libraries of verbs/: apt-get install libibverbs-dev librdmacm-dev" >&2
fi
if [ "$(id -u)" = 0 ]; then
    scripts/hugepages.sh 512 >&2
    (cd bench/peers/gvisor && timeout 300 $GO build -buildvcs=false -o "$bin/gvisor" .) ||
        { rm -f "$bin/gvisor"; echo "bench: gVisor could not be fetched or built: the table is without it" >&2; }
fi
exec $GO test $pgo $tags ./bench -count=1 -timeout 90m -v -run '^TestYardsticks$' -yard="$mode" -yard.peers="$bin" -yard.rnicd="$bin/rnicd" "$@"
