#!/usr/bin/env bash
# A file lands in registered memory: `rnicd serve` on a device in a network namespace of its own, `rnicd put` on the
# kernel's side of that device.
#   run.sh tap|dpdk FILE|"" [serve flags...]
# Leaves nothing behind: no namespace, no TAP, no process, also after Ctrl-C. The exit status is that of the transfer.
set -euo pipefail
pmd=${1:-tap} file=${2:-} # the rest goes to serve
shift $(($# > 2 ? 2 : $#))

case "$pmd" in tap | dpdk) ;; *) echo "run: PMD=$pmd: want tap or dpdk" >&2; exit 2 ;; esac
if [ -n "$file" ]; then
    if [ ! -f "$file" ] || [ ! -r "$file" ]; then
        echo "run: FILE=$file: no such file, or not readable" >&2
        exit 1
    fi
    file=$(realpath -- "$file")
fi
cd "$(dirname "$0")/.."

# demo does the same job without any rights.
demo() {
    [ "$pmd" = tap ] || echo "run: PMD=$pmd is left aside: it needs root"
    exec bin/rnicd demo "$@" ${file:+-- "$file"}
}
if [ "$(id -u)" != 0 ]; then
    echo "run: not root: the same transfer between two pollers of one process, over a cable in memory"
    demo "$@"
fi

ns=rnicd-run-$$ dev=rnic0 ours=10.9.0.1 theirs=10.9.0.254 port=7174
tmp=''

# stop ends a process of ours: in order, and after five seconds in any case.
stop() {
    kill -TERM "$1" 2>/dev/null || return 0
    for _ in $(seq 100); do
        kill -0 "$1" 2>/dev/null || return 0
        sleep 0.05
    done
    kill -KILL "$1" 2>/dev/null || true
}
cleanup() {
    trap '' INT TERM HUP
    trap - EXIT
    # Asked of the shell: a signal may come before $! is looked at.
    for pid in $(jobs -p); do stop "$pid"; done
    ip netns del "$ns" 2>/dev/null || true
    [ -z "$tmp" ] || rm -rf "$tmp"
}
trap cleanup EXIT
trap 'cleanup; exit 130' INT
trap 'cleanup; exit 143' TERM
trap 'cleanup; exit 129' HUP

if ! why=$(ip netns add "$ns" 2>&1); then
    echo "run: no network namespace ($why): the same transfer between two pollers of one process, over a cable in memory"
    demo "$@"
fi
ip -n "$ns" link set lo up
tmp=$(mktemp -d)
if [ -z "$file" ]; then
    file=$tmp/64MiB
    head -c $((64 << 20)) /dev/urandom >"$file"
fi

# The region: 256 MiB, or as much as the file needs. With the packet buffers on hugepages if there are any to be had.
mib=$((($(stat -c %s -- "$file") + (1 << 20) - 1) >> 20))
mib=$((mib > 256 ? mib : 256))
scripts/hugepages.sh $((mib / 2 + 32))

# A core of our own to pin to: the last one that we may use.
core=$(sed -n 's/^Cpus_allowed_list:.*[^0-9]\([0-9]*\)$/\1/p' /proc/self/status)
args=(serve --pmd "$pmd" --dev "$dev" --core "$core" --addr "$ours/24" --port "$port" --region "${mib}MiB" --once)
case "$pmd" in
tap) args+=(--host-addr "$theirs/24") ;;
# net_tap calls what the kernel lacks for its flow rules an error, and goes on without.
dpdk) args+=(--eal "--log-level=4 --log-level=pmd.net.tap:2") ;;
esac
args+=("$@")
: >"$tmp/serve.log"
ip netns exec "$ns" bin/rnicd "${args[@]}" >"$tmp/serve.log" 2>&1 &
serve=$!
echo "server      rnicd$(printf ' %q' "${args[@]}")"
until grep -q '^ready' "$tmp/serve.log"; do
    if ! kill -0 "$serve" 2>/dev/null; then
        cat "$tmp/serve.log" >&2
        exit 1
    fi
    sleep 0.05
done
cat "$tmp/serve.log"
if [ "$pmd" = dpdk ]; then
    ip -n "$ns" addr add "$theirs/24" dev "$dev"
    ip -n "$ns" link set "$dev" up
fi

echo "client      rnicd put ${file##*/} $ours:$port   (MPA over the kernel's TCP)"
# In the background: bash hears of signals while it waits, not while a command runs in front.
status=0
ip netns exec "$ns" bin/rnicd put --wait 5s --timeout 1h -- "$file" "$ours:$port" &
put=$!
wait "$put" || status=$?
# --once ends the server when the transfer is over; a client that failed before one began must not leave us waiting.
[ "$status" = 0 ] || kill -TERM "$serve" 2>/dev/null || true
served=0
wait "$serve" || served=$?
echo "server"
sed '1,/^ready/d' "$tmp/serve.log"
exit $((status ? status : served))
