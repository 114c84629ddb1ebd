#!/usr/bin/env bash
# Where the time of bulk Write goes, into build/profile: a CPU profile, perf stat where the machine
# counts, what escapes to the heap and which bounds are checked on the packet path. The budget,
# nanoseconds a stage, goes to budget.tsv in docs/results, whose figures become the columns
# "before".
#   profile.sh [flags of the test]
set -euo pipefail
cd "$(dirname "$0")/.."
GO=${GO:-go} out=$PWD/build/profile
path=(./internal/crc32c ./mem ./tcp ./pmd/wire ./mpa ./ddp ./rdmap ./stack ./rnic/internal/qp ./rnic/internal/transport)
mkdir -p "$out"
$GO test -c -pgo=bench/packetpath.pgo -o "$out/bench.test" ./bench
run=("$out/bench.test" -test.run '^TestYardsticks$' -yard quick -yard.only budget -yard.profile "$out/cpu.pprof" "$@")
if perf stat -e cycles true >/dev/null 2>&1 && ! perf stat -e cycles true 2>&1 | grep -q 'not supported'; then
    (cd bench && perf stat -d -o "$out/perf.txt" "${run[@]}")
    cat "$out/perf.txt"
else
    echo "profile: this machine does not count cycles: no perf stat" >&2
    (cd bench && "${run[@]}")
fi
$GO build -gcflags=-m "${path[@]}" 2>&1 | grep -E 'escapes to heap|moved to heap' | sort -u >"$out/escapes.txt" || true
$GO build -gcflags=-d=ssa/check_bce/debug=1 "${path[@]}" 2>&1 | grep -E 'Found Is(Slice)?InBounds' | sort -u >"$out/bounds.txt" || true
wc -l "$out/escapes.txt" "$out/bounds.txt"
