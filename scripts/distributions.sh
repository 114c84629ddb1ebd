#!/usr/bin/env bash
# Installs the package rnicd-verbs, built before by make deb, in fresh systems, as root: in Debian 12, where rping has to work,
# and in Debian 11, whose glibc is too old: dpkg, rnicd run and the loader have to refuse it, each in a line that says so.
# debootstrap downloads both, once, to build/distributions. Not in CI: mirrors drop what is old.
#   distributions.sh
set -euo pipefail
cd "$(dirname "$0")/.."
package=$(ls build/rnicd-verbs_*.deb)
roots=$PWD/build/distributions
mkdir -p "$roots"

# inside SUITE COMMAND... runs it there, in namespaces of its own.
inside() {
    local root=$roots/$1
    shift
    unshare -m -n sh -ec 'mount -t proc proc "$0/proc"; mount --bind /dev "$0/dev"; ip link set lo up; exec chroot "$0" "$@"' "$root" "$@"
}
# says TEXT FILE fails unless the file has the text.
says() {
    grep -qF "$1" "$2" || { echo "distributions: not said: $1" >&2; cat "$2" >&2; exit 1; }
}
log=$(mktemp)
trap 'rm -f "$log"' EXIT
for suite in bookworm bullseye; do
    if [ ! -e "$roots/$suite.made" ]; then
        rm -rf "${roots:?}/$suite"
        debootstrap --variant=minbase --include=rdmacm-utils "$suite" "$roots/$suite" >"$log" || { tail -5 "$log" >&2; exit 1; }
        touch "$roots/$suite.made"
    fi
    cp "$package" "$roots/$suite/tmp/rnicd-verbs.deb"
done

inside bookworm dpkg -i /tmp/rnicd-verbs.deb >"$log" 2>&1 || { cat "$log" >&2; exit 1; }
inside bookworm sh -ec '
    export RNICD_VERBOSE=1
    rnicd run -- rping -s -a 127.0.0.1 -C 2 -V 2>/tmp/server & server=$!
    until grep -q "listening at" /tmp/server; do kill -0 $server; sleep 0.1; done
    rnicd run -- rping -c -a 127.0.0.1 -C 2 -v -V
    wait $server' >"$log" 2>&1 || { cat "$log" >&2; exit 1; }
says "ping data: rdma-ping-1: BCDEF" "$log"
inside bookworm dpkg --purge rnicd-verbs >"$log" 2>&1
[ ! -e "$roots/bookworm/etc/cdi" ] || { echo "distributions: the purge leaves /etc/cdi" >&2; exit 1; }
echo "bookworm: works"

if inside bullseye dpkg -i /tmp/rnicd-verbs.deb >"$log" 2>&1; then echo "distributions: dpkg installs it" >&2; exit 1; fi
says "rnicd-verbs depends on libc6 (>= 2.34); however:" "$log"
if inside bullseye rnicd run -- rping -c -a 127.0.0.1 >"$log" 2>&1; then echo "distributions: rnicd run starts it" >&2; exit 1; fi
says "rnicd: /usr/bin/rping is loaded by an older glibc (/lib64/ld-linux-x86-64.so.2): the libraries of rnicd run need glibc 2.34 or later" "$log"
if inside bullseye env LD_PRELOAD=/usr/lib/rnicd/librnicd_verbs.so rping >"$log" 2>&1; then echo "distributions: it is loaded" >&2; exit 1; fi
says "version \`GLIBC_2.34' not found (required by /usr/lib/rnicd/librnicd_verbs.so)" "$log"
inside bullseye dpkg --purge rnicd-verbs >"$log" 2>&1
echo "bullseye: refused, as it has to be"
