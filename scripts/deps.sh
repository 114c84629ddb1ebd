#!/usr/bin/env bash
# Installs the Debian packages that are missing, and says which. Without root it says what to ask for and goes on.
#   deps.sh run | test
set -euo pipefail
cd "$(dirname "$0")/.."

run=(iproute2 gcc libc6-dev pkg-config libdpdk-dev make)
test=("${run[@]}" dpdk tshark iperf3 iputils-ping tcpdump)
case "${1:-run}" in
run) want=("${run[@]}") ;;
test) want=("${test[@]}") ;;
*) echo "usage: $0 run|test" >&2; exit 2 ;;
esac

missing=()
for p in "${want[@]}"; do
    dpkg-query -W -f='${Status}' "$p" 2>/dev/null | grep -q '^install ok installed$' || missing+=("$p")
done

go_version() { go env GOVERSION 2>/dev/null | sed -n 's/^go1\.\([0-9]*\).*/\1/p'; }
v=$(go_version || true)
need_go=
# From 1.21 on, the go command fetches the version that go.mod names by itself.
if [ -z "$v" ] || [ "$v" -lt 21 ]; then need_go=yes; fi
[ -n "$need_go" ] && [ ! -x build/go/bin/go ] && ! command -v go >/dev/null && missing+=(golang-go)

if [ ${#missing[@]} -gt 0 ]; then
    if [ "$(id -u)" != 0 ]; then
        echo "deps: not root: going on without ${missing[*]}; install them with: apt-get install ${missing[*]}" >&2
    else
        echo "deps: installing ${missing[*]}"
        export DEBIAN_FRONTEND=noninteractive
        log=$(mktemp)
        if ! { apt-get update && apt-get install -y --no-install-recommends "${missing[@]}"; } >"$log" 2>&1; then
            tail -20 "$log" >&2
            echo "deps: apt-get failed; the whole log is in $log" >&2
            exit 1
        fi
        rm -f "$log"
    fi
fi

[ -n "$need_go" ] || exit 0
[ -x build/go/bin/go ] && exit 0
if ! command -v go >/dev/null; then
    echo "deps: no Go found; install Go 1.21 or later (golang.org/doc/install), or run once as root" >&2
    exit 1
fi
# Debian 12 has Go 1.19, which cannot fetch a newer toolchain by itself; but the toolchain is a module like any other.
tool=$(sed -n 's/^go \([0-9.]*\).*/\1/p' go.mod)
echo "deps: fetching Go $tool"
tmp=$(mktemp -d)
dir=$(cd "$tmp" && go mod download -json "golang.org/toolchain@v0.0.1-go$tool.$(go env GOOS)-$(go env GOARCH)" | sed -n 's/.*"Dir": "\(.*\)".*/\1/p')
mkdir -p build
rm -rf build/go
cp -r "$dir" build/go
chmod -R u+w build/go
chmod +x build/go/bin/* build/go/pkg/tool/*/* 2>/dev/null || true
rm -rf "$tmp"
