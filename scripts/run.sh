#!/usr/bin/env bash
# A file lands in registered memory: `rnicd serve` on a device in a network namespace of its own,
# `rnicd put` on the kernel's side of that device.
#   run.sh tap|dpdk FILE|"" [serve flags...]
# Leaves nothing behind: no namespace, no TAP, no process, also after Ctrl-C. The exit status is
# that of the transfer.
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

# A trap only takes a note, and the script waits in small steps and looks at it: handlers that do
# things run into what the shell was doing, between a process's start and the line after it above
# all.
ended=''
trap 'ended=130' INT
trap 'ended=143' TERM
trap 'ended=129' HUP
trap 'ended=141' PIPE # as in: make run | head -1
exec {never}<> <(:)
pause() { # without a process
    read -rt 0.05 -u "$never" || true
    [ -z "$ended" ] || exit "$ended"
}
running() { kill -0 "$1" 2>/dev/null; }

# stop ends a process of ours: in order, and after five seconds in any case.
stop() {
    kill -TERM "$1" 2>/dev/null || return
    for ((i = 0; i < 100; i++)); do
        running "$1" || return
        read -rt 0.05 -u "$never"
    done
    kill -KILL "$1" 2>/dev/null
}
cleanup() {
    set +e # every step is worth taking
    trap '' INT TERM HUP PIPE
    for pid in $(jobs -p); do stop "$pid"; done
    ip netns del "$ns" 2>/dev/null
    [ -z "$tmp" ] || rm -rf "$tmp"
}
trap cleanup EXIT

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

# The region: 256 MiB, or as much as the file needs. With the packet buffers on hugepages if there
# are any to be had.
mib=$((($(stat -c %s -- "$file") + (1 << 20) - 1) >> 20))
mib=$((mib > 256 ? mib : 256))
more=32
[ "$pmd" = tap ] || more=96 # DPDK has memory of its own
scripts/hugepages.sh $((mib / 2 + more))

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
printf -v words ' %q' "${args[@]}"
echo "server      rnicd$words"
log=''
until [[ $log == *$'\nready '* ]]; do
    if ! running "$serve"; then
        pause
        cat "$tmp/serve.log" >&2
        exit 1
    fi
    pause
    IFS= read -rd '' log <"$tmp/serve.log" || true
done
cat "$tmp/serve.log"
if [ "$pmd" = dpdk ]; then
    ip -n "$ns" addr add "$theirs/24" dev "$dev"
    ip -n "$ns" link set "$dev" up
fi

echo "client      rnicd put ${file##*/} $ours:$port   (MPA over the kernel's TCP)"
ip netns exec "$ns" bin/rnicd put --wait 5s --timeout 1h -- "$file" "$ours:$port" &
put=$!
while running "$put"; do pause; done
status=0 served=0
wait "$put" || status=$?
pause # and hear of a Ctrl-C that the client has heard of
# --once ends the server when the transfer is over; a client that failed before one began must not
# leave us waiting.
[ "$status" = 0 ] || kill -TERM "$serve" 2>/dev/null || true
while running "$serve"; do pause; done
wait "$serve" || served=$?
echo "server"
sed '1,/^ready/d' "$tmp/serve.log"
exit $((status ? status : served))
