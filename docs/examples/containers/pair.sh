#!/bin/sh
# Runs two containers of IMAGE, which has rping (Debian's rdmacm-utils), in a pod without network.
# They ping each other over RDMA, without any capability, and verify what they get.
#   pair.sh IMAGE [FLAG...]    flags of podman run
set -eu
image=${1:?"usage: pair.sh IMAGE [FLAG...], flags of podman run"}
shift
pod=rnicd-pair-$$
podman pod create --name "$pod" --network none >/dev/null
trap 'podman pod rm --force --time 0 "$pod" >/dev/null' EXIT

# start [FLAG...] -- COMMAND
start() {
    podman run --pod "$pod" --device rnicd.io/rnic=sockets --cap-drop all --read-only \
        --env RNICD_VERBOSE=1 "$@"
}
start "$@" --detach --name "$pod-server" "$image" rping -s -a 127.0.0.1 -C 3 -V >/dev/null
until podman logs "$pod-server" 2>&1 | grep -q "listening at"; do
    [ "$(podman inspect --format '{{.State.Running}}' "$pod-server")" = true ] || {
        podman logs "$pod-server"
        exit 1
    }
    sleep 0.1
done
start "$@" --name "$pod-client" "$image" rping -c -a 127.0.0.1 -C 3 -v -V
[ "$(podman wait "$pod-server")" = 0 ]
