#!/bin/sh
# Reserve hugepages for rnicd, mount hugetlbfs, show what there is.
#
#   setup.sh N [--size 2M|1G] [--node NODE] [--mount]   make the pool N pages large (0 gives all back)
#   setup.sh --mount [--size 2M|1G]                     mount hugetlbfs only
#   setup.sh --show                                     show pools, mounts and memory
#
# N is the size of the pool, pages in use included. Reserve soon after boot: later memory is in pieces
# and the kernel may give fewer pages than asked for, which is an error here (status 3; what was given
# stays reserved). Status 1: refused or failed, nothing changed. Status 2: wrong arguments.
# SYSROOT names another root for /sys and /proc (tests).
set -u

sys=${SYSROOT:-}/sys
proc=${SYSROOT:-}/proc
me=hugepages/setup.sh

fail() { status=$1; shift; echo "$me: $*" >&2; exit "$status"; }
usage() { sed -n '2,12s/^# \{0,1\}//p' "$0"; }
is_number() { case $1 in '' | *[!0-9]* | ????????????*) return 1 ;; esac; }
value() { cat "$1" 2>/dev/null || echo 0; }
number() { n=$(value "$1"); is_number "$n" || n=0; echo "$n"; }
available_kib() { awk '$1 == "MemAvailable:" { print $2 }' "$proc/meminfo"; }
need_root() { [ "$(id -u)" = 0 ] || fail 1 "$1 needs root, this is uid $(id -u); run sudo $me $args"; }

show_pool() { # directory, where
	kib=${1##*/hugepages-}; kib=${kib%kB}
	promised=''
	[ -e "$1/resv_hugepages" ] && promised=", $(number "$1/resv_hugepages") of them promised"
	echo "$(page_name "$kib") pages, $2: $(number "$1/nr_hugepages") total, $(number "$1/free_hugepages") free$promised"
}

page_name() {
	if [ "$1" -ge 1048576 ]; then echo "$(($1 / 1048576)) GiB"
	elif [ "$1" -ge 1024 ]; then echo "$(($1 / 1024)) MiB"
	else echo "$1 KiB"; fi
}

show() {
	found=0
	for dir in "$sys"/kernel/mm/hugepages/hugepages-*kB; do
		[ -d "$dir" ] || continue
		found=1
		show_pool "$dir" system
		for node in "$sys"/devices/system/node/node[0-9]*; do
			[ -d "$node/hugepages/${dir##*/}" ] && show_pool "$node/hugepages/${dir##*/}" "node ${node##*/node}"
		done
	done
	[ $found = 1 ] || echo "the kernel has no hugepages (CONFIG_HUGETLBFS)"
	awk '$3 == "hugetlbfs" { print "hugetlbfs on " $2 " (" $4 ")"; n++ }
		END { if (!n) print "hugetlbfs is not mounted" }' "$proc/mounts"
	echo "memory: $(($(available_kib) / 1024)) MiB available"
}

# reserve sets the pool and believes only what it reads back: the kernel takes any number without an
# error and gives what it can.
reserve() {
	name=$(page_name "$kib")
	where=''
	pool=$sys/kernel/mm/hugepages/hugepages-${kib}kB
	if [ -n "$node" ]; then
		where=" on node $node"
		[ -d "$sys/devices/system/node/node$node" ] ||
			fail 1 "node $node does not exist; online: $(value "$sys/devices/system/node/online")"
		pool=$sys/devices/system/node/node$node/hugepages/hugepages-${kib}kB
	fi
	[ -d "$pool" ] || fail 1 "the kernel has no pages of $name$where (1 GiB needs the CPU flag pdpe1gb); see $me --show"
	need_root "reserving hugepages"
	had=$(number "$pool/nr_hugepages")
	more=$((count - had))
	room=$(available_kib)
	if [ $more -gt 0 ] && [ $((more * kib)) -gt $((room - room / 16)) ]; then
		fail 1 "$more more pages of $name are $((more * kib / 1024)) MiB, $((room / 1024)) MiB are available; ask for fewer"
	fi
	set_pool
	if [ "$got" -lt "$count" ]; then # ask once more after joining free memory
		echo 1 2>/dev/null >"$proc/sys/vm/compact_memory"
		set_pool
	fi
	if [ "$got" -lt "$count" ]; then
		fail 3 "$count pages of $name wanted$where, the kernel gave $got ($had before);" \
			"free memory is in pieces: reserve right after boot, with hugepagesz=$size hugepages=$count on the kernel's command line"
	fi
	if [ "$got" -gt "$count" ]; then
		fail 3 "$count pages of $name wanted$where, $got remain: they are in use; stop their users and run again"
	fi
	echo "$got pages of $name$where, $(number "$pool/free_hugepages") free ($had before)"
}

set_pool() {
	{ echo "$count" >"$pool/nr_hugepages"; } 2>/dev/null || fail 1 "cannot write $pool/nr_hugepages; is /sys read-only (container)?"
	got=$(number "$pool/nr_hugepages")
}

mount_fs() {
	dir=/dev/hugepages
	[ "$size" = 1G ] && dir=/dev/hugepages-1G
	if awk -v dir="$dir" '$2 == dir && $3 == "hugetlbfs" { found = 1 } END { exit !found }' "$proc/mounts"; then
		echo "hugetlbfs is mounted on $dir already"
		return
	fi
	need_root "mounting hugetlbfs"
	mkdir -p "$dir" || fail 1 "cannot make $dir"
	mount -t hugetlbfs -o "pagesize=$size,mode=0770" hugetlbfs "$dir" ||
		fail 1 "cannot mount hugetlbfs (pages of $size) on $dir; see dmesg"
	echo "hugetlbfs with pages of $size mounted on $dir"
}

args=$*
count='' size=2M node='' mount=0 show=0
while [ $# -gt 0 ]; do
	case $1 in
	--size | --node)
		[ $# -ge 2 ] || fail 2 "$1 needs a value"
		if [ "$1" = --size ]; then size=$2; else node=$2; fi
		shift ;;
	--mount) mount=1 ;;
	--show) show=1 ;;
	-h | --help) usage; exit 0 ;;
	*)
		is_number "$1" || fail 2 "$1 is neither an option nor a number of pages; see $me --help"
		[ -z "$count" ] || fail 2 "two numbers of pages: $count and $1"
		count=$1 ;;
	esac
	shift
done
case $size in
2M) kib=2048 ;;
1G) kib=1048576 ;;
*) fail 2 "--size $size: must be 2M or 1G" ;;
esac
[ -z "$node" ] || is_number "$node" || fail 2 "--node $node: must be a number"
if [ -z "$count" ] && [ $mount = 0 ] && [ $show = 0 ]; then usage >&2; exit 2; fi

[ -z "$count" ] || reserve
[ $mount = 0 ] || mount_fs
[ $show = 0 ] || show
