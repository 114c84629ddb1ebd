#!/usr/bin/env bash
# Prints the figures of docs/results/writes.tsv and parts.tsv: medians of several runs, with the spread, and the machine they
# were run on. It should have nothing else to do.
#   benchmarks.sh [count] [benchtime] > table
set -euo pipefail
cd "$(dirname "$0")/.."
count=${1:-5} time=${2:-2s}
tags=$(pkg-config --exists libdpdk 2>/dev/null && echo "-tags dpdk" || true)
[ "$(id -u)" = 0 ] && scripts/hugepages.sh 256 >&2

echo "$(date -u +%F), commit $(git rev-parse --short HEAD): $(nproc) cores of $(sed -n 's/^model name.*: //p' /proc/cpuinfo | head -1)," \
    "$(awk '/MemTotal/{printf "%d GiB", $2/1048576}' /proc/meminfo), Linux $(uname -r), $(go version | cut -d' ' -f3);" \
    "median of $count runs of $time, range behind it."
echo

# table PKG PATTERN METRIC [METRIC2]: one row per benchmark, median and range of the value before METRIC, median of METRIC2's.
table() {
    go test $tags "$1" -run '^$' -bench "$2" -benchtime "$time" -count "$count" -timeout 30m |
        awk -v metric="$3" -v other="${4:-}" '
        /^Benchmark/ { sub(/^Benchmark/, "", $1); sub(/-[0-9]+$/, "", $1)
            for (i = 3; i <= NF; i++) if ($i == metric || $i == other) v[$i, $1, ++n[$i, $1]] = $(i-1) + 0
            if (n[metric, $1] == 1) order[++rows] = $1 }
        function sorted(which, b,   m, i, j, x) { m = n[which, b]
            for (i = 1; i <= m; i++) a[i] = v[which, b, i]
            for (i = 2; i <= m; i++) { x = a[i]; for (j = i - 1; j > 0 && a[j] > x; j--) a[j+1] = a[j]; a[j+1] = x }
            return m }
        END { printf "| benchmark | %s | range |%s\n|---|---|---|%s\n", metric, other ? " " other " |" : "", other ? "---|" : ""
            for (r = 1; r <= rows; r++) { b = order[r]; m = sorted(metric, b)
                printf "| %s | %.4g | %.4g to %.4g |", b, a[int((m+1)/2)], a[1], a[m]
                if (other) { m = sorted(other, b); printf " %.4g |", a[int((m+1)/2)] }
                printf "\n" } }'
    echo
}

echo "## RDMA Write of 1 MiB messages, two cores back to back over pmd/wire; and from the kernel's TCP over a TAP"
echo
table ./bench 'Write|TAP' Gbit/s
echo "## Parts"
echo
table ./mpa 'Put|Input' ns/op
table ./ddp 'Place' ns/op
table ./tcp '.' ns/op
table ./mem 'Check|Pool|SPSC|MPSC' ns/op
echo "## MPA and DDP for one FPDU, beyond its CRC and the copy of its payload"
echo
table ./bench 'FPDU' beyond-ns/op floor-ns/op
