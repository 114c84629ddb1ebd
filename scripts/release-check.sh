#!/usr/bin/env bash
# What must pass before a release, as root, some hours: the checks of CI, except verbs and godpdk,
# with nothing skipped (race: with skips), and what is too long for CI. Each step runs, whatever
# became of those before it; what it printed is in build/release-check. Fails if one of them did.
#   release-check.sh [SEEDS [FIRST [FUZZTIME]]]
set -uo pipefail
cd "$(dirname "$0")/.."
seeds=${1:-100000} first=${2:-} fuzztime=${3:-2m}
first=${first:-$(date +%s)} # new seeds in each run
logs=build/release-check
mkdir -p "$logs"
trap 'exit 130' INT TERM
failed=()

# step NAME LIMIT COMMAND...
step() {
    local name=$1 limit=$2 began=$SECONDS
    shift 2
    printf '%-12s' "$name"
    if timeout "$limit" "$@" >"$logs/$name.log" 2>&1 </dev/null; then
        echo "ok      $((SECONDS - began)) s"
    else
        echo "FAILED  $((SECONDS - began)) s, $logs/$name.log"
        failed+=("$name")
    fi
}

echo "release-check: $(git describe --tags --always --dirty 2>/dev/null || echo unknown), $seeds seeds from $first"
export RNICD_NO_SKIP=1
step lint 15m make lint
step test 40m make test-all
step kubernetes 20m make kubernetes
step arm64 10m make test-arm64
step race 3h env RNICD_NO_SKIP=0 make race # DPDK is not built in there
step links 1h make links
step sim 3h make sim SEEDS="$seeds" FIRST="$first"
step fuzz 6h make fuzz FUZZTIME="$fuzztime"
step debian 30m sh -c "scripts/deps.sh interop && make deb && scripts/distributions.sh && scripts/systemd.sh"
step soak 45m make soak
step interop 90m make interop
step interop-tcp 90m make interop-tcp
if [ ${#failed[@]} -gt 0 ]; then
    echo "release-check: failed: ${failed[*]}" >&2
    exit 1
fi
echo "release-check: all ok"
