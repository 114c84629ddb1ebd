#!/usr/bin/env bash
# A file lands in registered memory: `rnicd serve` on a device in a network namespace of its own, `rnicd put` on the
# kernel's side of that device.
#   run.sh tap|dpdk FILE|"" [serve flags...]
# Leaves nothing behind: no namespace, no TAP, no process, also after Ctrl-C.
set -euo pipefail
cd "$(dirname "$0")/.."
pmd=${1:-tap} file=${2:-} # the rest goes to serve
shift $(($# > 2 ? 2 : $#))

case "$pmd" in tap | dpdk) ;; *) echo "run: PMD=$pmd: want tap or dpdk" >&2; exit 2 ;; esac
if [ -n "$file" ] && [ ! -r "$file" ]; then
    echo "run: FILE=$file: no such file, or not readable" >&2
    exit 1
fi

if [ "$(id -u)" != 0 ]; then
    echo "run: not root: the same transfer between two pollers of one process, over a cable in memory"
    exec bin/rnicd demo ${file:+"$file"} "$@"
fi

ns=rnicd$$ dev=rnic0 ours=10.9.0.1 theirs=10.9.0.254 port=7174
tmp=$(mktemp -d)
serve='' done=
cleanup() {
    [ -n "$done" ] && return
    done=yes
    trap '' INT TERM
    if [ -n "$serve" ] && kill -0 "$serve" 2>/dev/null; then
        kill -TERM "$serve" 2>/dev/null || true
        for _ in $(seq 50); do kill -0 "$serve" 2>/dev/null || break; read -rt 0.1 <> <(:) || true; done
        kill -KILL "$serve" 2>/dev/null || true
    fi
    ip netns del "$ns" 2>/dev/null || true
    rm -rf "$tmp"
}
trap cleanup EXIT
trap 'cleanup; exit 130' INT TERM

# Hugepages: a region of 256 MiB and packet buffers. Not having them costs speed, nothing else.
scripts/hugepages.sh 160

if [ -z "$file" ]; then
    file=$tmp/64MiB
    head -c $((64 << 20)) /dev/urandom >"$file"
fi

ip netns add "$ns"
ip -n "$ns" link set lo up
args=(serve --pmd "$pmd" --dev "$dev" --addr "$ours/24" --port "$port" --once)
[ "$pmd" = tap ] && args+=(--host-addr "$theirs/24")
ip netns exec "$ns" bin/rnicd "${args[@]}" "$@" >"$tmp/serve.log" 2>&1 &
serve=$!
echo "server      rnicd ${args[*]} $*"
while ! grep -q '^ready' "$tmp/serve.log"; do
    if ! kill -0 "$serve" 2>/dev/null; then
        cat "$tmp/serve.log" >&2
        exit 1
    fi
    read -rt 0.05 <> <(:) || true
done
cat "$tmp/serve.log"
if [ "$pmd" = dpdk ]; then
    ip -n "$ns" addr add "$theirs/24" dev "$dev"
    ip -n "$ns" link set "$dev" up
fi

echo "client      rnicd put ${file##*/} $ours:$port   (MPA over the kernel's TCP)"
status=0
ip netns exec "$ns" bin/rnicd put --wait 5s --timeout 10m "$file" "$ours:$port" || status=$?
# --once ends the server when the transfer is over; a client that failed before one began must not leave us waiting.
[ "$status" = 0 ] || kill -TERM "$serve" 2>/dev/null || true
wait "$serve" || status=$?
serve=
echo "server"
sed -n '/^ready/,$p' "$tmp/serve.log" | tail -n +2
exit "$status"
