#!/usr/bin/env bash
# Installs the Debian packages that are missing, and says which. Without root it says what to ask
# for and goes on. Then sees to a Go that go.mod can do with.
#   deps.sh run | test | interop
set -euo pipefail
cd "$(dirname "$0")/.."

run=(iproute2 gcc libc6-dev pkg-config libdpdk-dev libibverbs-dev librdmacm-dev make ca-certificates)
test=("${run[@]}" dpdk dpdk-dev tshark iperf3 iputils-ping tcpdump qemu-user-static rdmacm-utils
    ibverbs-utils infiniband-diags ucx-utils libucx-dev perftest qperf python3-pyverbs rdma-core libfabric-bin tgt
    libiscsi-bin valgrind systemd man-db strace dpkg-dev podman runc catatonit uidmap
    musl-tools openmpi-bin libopenmpi-dev qemu-system-x86)
interop=("${test[@]}" debootstrap binutils xz-utils)
case "${1:-run}" in
run) want=("${run[@]}") ;;
test) want=("${test[@]}") ;;
interop) want=("${interop[@]}") ;;
*) echo "usage: $0 run|test|interop" >&2; exit 2 ;;
esac

wanted_go=$(sed -n 's/^go \([0-9.]*\).*/\1/p' go.mod)
# go_suffices says whether there is a go command that builds this module: of the wanted version, or
# able to fetch it by itself, as it is from 1.21 on unless GOTOOLCHAIN forbids it. (An old one may
# not even be able to read go.mod.)
go_suffices() {
    local have
    have=$(go env GOVERSION 2>/dev/null) || return 1
    have=${have#go} have=${have%%[!0-9.]*}
    [ -n "$have" ] && [ "$(printf '%s\n' "$wanted_go" "$have" | sort -V | head -1)" = "$wanted_go" ]
}
need_go=
PATH=$PWD/build/go/bin:$PATH:/usr/local/go/bin
go_suffices || need_go=yes

installed=$(dpkg-query -W -f='${Package} ${db:Status-Status}\n' "${want[@]}" 2>/dev/null | sed -n 's/ installed$//p') || true
missing=()
for p in "${want[@]}"; do
    grep -qx "$p" <<<"$installed" || missing+=("$p")
done
# Debian's Go is too old for us, but it can fetch one that is not.
if [ -n "$need_go" ] && ! command -v go >/dev/null; then missing+=(golang-go); fi

if [ ${#missing[@]} -gt 0 ]; then
    if ! command -v apt-get >/dev/null; then
        echo "deps: not a Debian system: going on without Debian's packages ${missing[*]}" >&2
    elif [ "$(id -u)" != 0 ]; then
        echo "deps: not root: going on without ${missing[*]}; install them with: apt-get install ${missing[*]}" >&2
    else
        echo "deps: installing ${missing[*]}"
        export DEBIAN_FRONTEND=noninteractive
        log=$(mktemp)
        if ! { apt-get update && apt-get -o Acquire::Retries=5 install -y --no-install-recommends "${missing[@]}"; } >"$log" 2>&1; then
            tail -20 "$log" >&2
            echo "deps: apt-get failed; the whole log is in $log" >&2
            exit 1
        fi
        rm -f "$log"
    fi
fi

[ -n "$need_go" ] || exit 0
hash -r
if ! command -v go >/dev/null; then
    echo "deps: no Go found; install Go $wanted_go or later (go.dev/doc/install), or run once as root" >&2
    exit 1
fi
# A toolchain is a module like any other, except that a module has no executable files.
echo "deps: fetching Go $wanted_go with $(cd / && go version | cut -d' ' -f3)"
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
cd "$tmp" # outside of the module, which an old Go cannot read
module=golang.org/toolchain@v0.0.1-go$wanted_go.$(go env GOOS)-$(go env GOARCH)
if ! GOFLAGS='' go mod download -json "$module" >"$tmp/json" 2>"$tmp/err"; then
    cat "$tmp/err" "$tmp/json" >&2
    echo "deps: could not fetch $module through $(go env GOPROXY); install Go $wanted_go or later (go.dev/doc/install)" >&2
    exit 1
fi
dir=$(sed -n 's/^[[:space:]]*"Dir": "\(.*\)".*/\1/p' "$tmp/json")
cd "$OLDPWD"
mkdir -p build
rm -rf build/go build/go.new
cp -r "$dir" build/go.new
chmod -R u+w build/go.new
chmod +x build/go.new/bin/* build/go.new/pkg/tool/*/* 2>/dev/null || true
mv build/go.new build/go # whole or not at all
