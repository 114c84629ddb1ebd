#!/usr/bin/env bash
# Writes writes.tsv, parts.tsv and fpdu.tsv as in docs/results: medians of several runs, and their
# range. The machine that they are of goes to the standard output. It should have nothing else to
# do.
#   benchmarks.sh [count] [benchtime] [directory]
set -euo pipefail
cd "$(dirname "$0")/.."
count=${1:-5} time=${2:-2s} out=${3:-build/benchmarks}
tags=$(pkg-config --exists libdpdk 2>/dev/null && echo "-tags dpdk" || true)
[ "$(id -u)" = 0 ] && scripts/hugepages.sh 256 >&2
mkdir -p "$out"

# bench PKG PATTERN METRIC [METRIC2]: a row per benchmark: median and range of the value before
# METRIC, median of METRIC2's.
bench() {
    go test -pgo=bench/packetpath.pgo $tags "$1" -run '^$' -bench "$2" -benchtime "$time" -count "$count" -timeout 30m |
        awk -v metric="$3" -v other="${4:-}" '
        /^Benchmark/ { sub(/^Benchmark/, "", $1); sub(/-[0-9]+$/, "", $1)
            for (i = 3; i <= NF; i++) if ($i == metric || $i == other) v[$i, $1, ++n[$i, $1]] = $(i-1) + 0
            if (n[metric, $1] == 1) order[++rows] = $1 }
        function sorted(which, b,   m, i, j, x) { m = n[which, b]
            for (i = 1; i <= m; i++) a[i] = v[which, b, i]
            for (i = 2; i <= m; i++) { x = a[i]; for (j = i - 1; j > 0 && a[j] > x; j--) a[j+1] = a[j]; a[j+1] = x }
            return m }
        END { for (r = 1; r <= rows; r++) { b = order[r]; m = sorted(metric, b)
                printf "%s\t%.4g\t%.4g to %.4g", b, a[int((m+1)/2)], a[1], a[m]
                if (other) { m = sorted(other, b); printf "\t%.4g", a[int((m+1)/2)] }
                printf "\n" } }'
}

{ printf 'benchmark\tGbit/s\trange\n'; bench ./bench '^BenchmarkWrite$' Gbit/s; } > "$out/writes.tsv"
{
    printf 'benchmark\tns/op\trange\n'
    bench ./mpa 'Put|Input' ns/op
    bench ./ddp 'Place' ns/op
    bench ./tcp '.' ns/op
    bench ./mem 'Check|Pool|SPSC|MPSC' ns/op
} > "$out/parts.tsv"
{ printf 'benchmark\tns beyond, median\trange\tfloor\n'; bench ./bench 'FPDU' beyond-ns/op floor-ns/op; } > "$out/fpdu.tsv"

echo "$(date -u +%F), commit $(git rev-parse --short HEAD): $(nproc) cores of $(sed -n 's/^model name.*: //p' /proc/cpuinfo | head -1)," \
    "$(awk '/MemTotal/{printf "%d GiB", $2/1048576}' /proc/meminfo), Linux $(uname -r), $(go version | cut -d' ' -f3);" \
    "medians of $count runs of $time in $out"
