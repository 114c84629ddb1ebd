#!/usr/bin/env bash
# Runs every fuzz target of the repository for a while. What is interesting is made small in ten
# attempts: by default that takes a minute each time, in which nothing is fuzzed.
#   fuzz.sh 30s
set -euo pipefail
cd "$(dirname "$0")/.."
for pkg in $(go list ./...); do
    for target in $(go test -list '^Fuzz' "$pkg" | grep '^Fuzz' || true); do
        echo "== $pkg $target"
        go test -run "^\$" -fuzz "^$target\$" -fuzztime "${1:-30s}" -fuzzminimizetime 10x "$pkg"
    done
done
