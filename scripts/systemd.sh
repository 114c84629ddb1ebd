#!/usr/bin/env bash
# Runs the package rnicd, built before by make deb, under systemd as process 1 of a container of Debian 12, as an operator would:
# start, reload of good and broken files, journal, exposure, watchdog, drain, switch, upgrade, purge. As root, with podman and runc.
# debootstrap downloads the system, once, to build/distributions. Not in CI: as distributions.sh.
#   systemd.sh
set -euo pipefail
cd "$(dirname "$0")/.."
package=$(ls build/rnicd_*.deb)
root=$PWD/build/distributions/systemd log=$(mktemp)
if [ ! -e "$root.made" ]; then
    rm -rf "$root"
    mkdir -p "$root"
    debootstrap --variant=minbase --include=systemd,dbus,iproute2 bookworm "$root" >"$log" || { tail -5 "$log" >&2; exit 1; }
    mapfile -t depends < <(dpkg-deb -f "$package" Depends | sed 's/([^)]*)//g; s/,/\n/g; s/ //g')
    cp /etc/resolv.conf "$root/etc/"
    chroot "$root" apt-get -qq install -y --no-install-recommends "${depends[@]}" >"$log" 2>&1 || { tail -5 "$log" >&2; exit 1; }
    touch "$root.made"
fi
# The same as a later version.
later=$(mktemp -d)
c=$(podman --runtime runc run -d --privileged --systemd=always --network none --ulimit nofile=4096:4096 --ulimit nproc=4096:4096 \
    --tmpfs /run --tmpfs /tmp --rootfs "$root" /lib/systemd/systemd)
trap 'podman rm -f -t 1 "$c" >/dev/null 2>&1; rm -rf "$log" "$later"' EXIT
cp "$package" "$root/opt/rnicd.deb"
dpkg-deb -R "$package" "$later/tree"
sed -i 's/^Version: .*/&.later/' "$later/tree/DEBIAN/control"
dpkg-deb -Zgzip -z1 -b "$later/tree" "$root/opt/later.deb" >/dev/null

run() { podman exec "$c" "$@"; }
failed() { echo "systemd: $*" >&2; [ ! -s "$log" ] || cat "$log" >&2; exit 1; }
# works COMMAND..., refused COMMAND...: its exit status. says TEXT: what the last has printed.
works() { run "$@" >"$log" 2>&1 || failed "$*: fails"; }
refused() { ! run "$@" >"$log" 2>&1 || failed "$*: succeeds"; }
says() { grep -qE -- "$1" "$log" || failed "not said: $1"; }
# until_says TEXT COMMAND...: within a minute.
until_says() {
    local text=$1
    shift
    for _ in {1..120}; do
        run "$@" >"$log" 2>&1 || true
        if grep -qE -- "$text" "$log"; then return; fi
        sleep 0.5
    done
    failed "$*: never says: $text"
}
append() { run sh -c "printf '%b' '$1' >>/etc/rnicd/$2"; }
# files is all that is there, except for what systemd writes at any time.
files() {
    run find / -xdev \( -path /proc -o -path /sys -o -path /opt -o -path /tmp -o -path /var/log -o -path /var/lib/dpkg -o -path /var/lib/systemd \
        -o -name '*-' -o -path /var/cache \) -prune -o -print | sort
    run find /run -path /run/systemd -prune -o -path /run/log -prune -o -print | sort
}

until_says '^(running|degraded)$' systemctl is-system-running
before=$(files)
works dpkg -i /opt/rnicd.deb
works systemctl start rnicd
works systemctl status --no-pager rnicd
says 'Status: "1 service on 1 port"'
works journalctl -u rnicd -o verbose --no-pager
says '^ +RNICD_SERVICE=measure$'
for unit in rnicd rnicd-switch; do
    works systemd-analyze security --threshold=22 --no-pager $unit.service
done

append '[limits]\ndrain = "1s"\n[[service]]\nname = "scratch"\ntype = "region"\nsize = "4MiB"\n' rnicd.toml
works systemctl reload rnicd
until_says '^scratch +region' rnicd status
append 'sise = 1\nlisten = 99999\n' rnicd.toml
refused systemctl reload rnicd
works journalctl -u rnicd --no-pager -n 5
says 'service.sise: unknown key.*; .*service.listen: want a whole number'
works rnicd status
says '^scratch +region'
works sed -i '/sise/d; /99999/d' /etc/rnicd/rnicd.toml

# A process that stands still is started again.
works systemctl kill -s STOP rnicd
until_says '^NRestarts=1$' systemctl show -p NRestarts rnicd
until_says '^ActiveState=active$' systemctl show -p ActiveState rnicd

# A client that stays is reset at the drain's end, and the daemon ends in order.
run rnicd perf write bw --duration 60s 127.0.0.1 >"$later/client" 2>&1 & client=$!
until_says '^measure .* 1 of 64 ' rnicd status
works systemctl stop rnicd
if wait $client; then failed "a client outlives the daemon"; fi
works journalctl -u rnicd --no-pager
says 'msg=drained .*reset=1$'
works systemctl show -p Result rnicd
says '^Result=success$'

works systemctl start rnicd rnicd-switch
works rnicd status --switch
says '^one .*detached'
works rnicd cdi list
says '^rnicd.io/rnic=one '
append '[[program]]\nname = "three"\nid = 3\naddresses = ["10.9.0.3"]\n' switch.toml
works systemctl reload rnicd-switch
works rnicd cdi list
says '^rnicd.io/rnic=three '
works cp /etc/rnicd/switch.toml /opt/switch.good
append '[[program]]\nname = "three"\nid = 3\naddresses = ["10.9.0.300"]\n' switch.toml
refused systemctl reload rnicd-switch
works journalctl -u rnicd-switch --no-pager -n 5
says 'program.name: "three": .*; .*program.addresses: "10.9.0.300"'


# An upgrade restarts both, and keeps what was changed.
works cp /opt/switch.good /etc/rnicd/switch.toml
pids() { run systemctl show -p MainPID rnicd rnicd-switch; }
old=$(pids)
works dpkg -i /opt/later.deb
works systemctl is-active rnicd rnicd-switch
for pid in $(pids | grep .); do
    case $old in *"$pid"*) failed "$pid is from before the upgrade" ;; esac
done
works rnicd status
says '^scratch +region'

works systemctl enable rnicd rnicd-switch
works dpkg --purge rnicd
[ "$before" = "$(files)" ] || failed "the purge leaves: $(diff <(echo "$before") <(files))"
echo "systemd: works"
