#!/usr/bin/env bash
# Runs the benchmarks that docs/benchmarks.md quotes and prints its tables: medians of several runs, with the spread, and
# the machine they were run on. The machine should have nothing else to do.
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

# table PKG PATTERN METRIC: one row per benchmark, median and range of the value before METRIC.
table() {
    go test $tags "$1" -run '^$' -bench "$2" -benchtime "$time" -count "$count" -timeout 30m |
        awk -v metric="$3" '
        /^Benchmark/ { for (i = 3; i <= NF; i++) if ($i == metric) { sub(/^Benchmark/, "", $1); sub(/-[0-9]+$/, "", $1)
            if (!($1 in n)) order[++rows] = $1
            v[$1, ++n[$1]] = $(i-1) + 0 } }
        END { printf "| benchmark | %s | range |\n|---|---|---|\n", metric
            for (r = 1; r <= rows; r++) { b = order[r]; m = n[b]
                for (i = 1; i <= m; i++) a[i] = v[b, i]
                for (i = 2; i <= m; i++) { x = a[i]; for (j = i - 1; j > 0 && a[j] > x; j--) a[j+1] = a[j]; a[j+1] = x }
                printf "| %s | %.4g | %.4g to %.4g |\n", b, a[int((m+1)/2)], a[1], a[m] } }'
    echo
}

echo "### RDMA Write of 1 MiB messages, two cores back to back over pmd/wire; and from the kernel's TCP over a TAP"
echo
table ./bench 'Write|TAP' Gbit/s
echo "### MPA and DDP for one aligned FPDU in order, beyond its CRC and the copy of its payload"
echo
table ./bench 'FPDU' beyond-ns/op
echo "### Parts"
echo
table ./mpa 'Sender|Put|Input' ns/op
table ./ddp 'Place' ns/op
table ./tcp '.' ns/op
table ./mem 'Check|Alloc|SPSC|MPSC' ns/op
