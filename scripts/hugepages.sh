#!/usr/bin/env bash
# Makes sure that N 2 MiB hugepages are free, as root; never takes any away. One line when it cannot
# be done.
#   hugepages.sh N
set -u
cd "$(dirname "$0")/.."
pool=/sys/kernel/mm/hugepages/hugepages-2048kB
free=$(cat $pool/free_hugepages 2>/dev/null || echo 0)
[ "$free" -ge "$1" ] && exit 0
if [ "$(id -u)" != 0 ]; then
    echo "hugepages: $1 pages of 2 MiB wanted, $free free, and not root: going on with normal pages"
    exit 0
fi
total=$(cat $pool/nr_hugepages 2>/dev/null || echo 0)
hugepages/setup.sh $((total - free + $1)) >/dev/null 2>&1 && {
    echo "hugepages: $1 pages of 2 MiB made free; hugepages/setup.sh $total takes the pool back to what it was"
    exit 0
}
echo "hugepages: $1 pages of 2 MiB wanted, $(cat $pool/free_hugepages 2>/dev/null || echo 0) free after hugepages/setup.sh: going on with normal pages where they do not suffice"
