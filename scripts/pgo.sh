#!/usr/bin/env bash
# Writes bench/packetpath.pgo: where the packet path spends its time, for the compiler, which
# inlines by it (docs/adr/0025-profile.md). A CPU profile of bulk Writes, of 64-octet Sends and of a
# ping-pong, both ends on one core. Compiled without a profile, so that what was inlined before
# counts as what it is.
#   pgo.sh
set -euo pipefail
cd "$(dirname "$0")/.."
GO=${GO:-go} out=$PWD/bench/packetpath.pgo
dir=$(mktemp -d /tmp/rnicd-pgo.XXXXXX) # the profile names the program that it is of
trap 'rm -rf "$dir"' EXIT
$GO test -c -pgo=off -trimpath -o "$dir/bench.test" ./bench
cd bench
for run in 'WriteOneCore 10000x' 'Send64/one-core 3000000x' 'Latency8/.*/one-core 2000000x'; do
    read -r pattern times <<<"$run"
    "$dir/bench.test" -test.run '^$' -test.bench "$pattern" -test.benchtime "$times" -test.cpu 1 -test.cpuprofile "$dir/${#pattern}.pprof" |
        tee "$dir/ran"
    if ! grep -q '^Benchmark' "$dir/ran"; then
        echo "pgo.sh: no benchmark is called $pattern" >&2
        exit 1
    fi
done
$GO tool pprof -proto -output "$out" "$dir"/*.pprof
