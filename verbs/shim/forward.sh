#!/bin/sh
# Lists what the distribution's libibverbs and librdmacm export and this library does not: rsockets,
# and what drivers and librdmacm call. A program that finds this library under their names must find
# those, too. forward.sh CC MAP FORWARDS NEWMAP writes FORWARDS, which forward.c includes, and NEWMAP,
# which is MAP with those symbols. A function of the public interface has to be in MAP itself
# (verbs/api_test.go, TestSymbols).
set -e
cc=$1 map=$2 forwards=$3 newmap=$4
for library in libibverbs librdmacm; do
	nm -D --defined-only "$($cc -print-file-name=$library.so)" |
		sed -n "s/^[0-9a-f]* \([TB]\) \([a-z_0-9]*\)@@\(.*\)/$library \1 \2 \3/p"
done | awk -v map="$map" -v forwards="$forwards" -v newmap="$newmap" '
	BEGIN {
		while ((getline line < map) > 0) {
			lines[++count] = line
			if (line ~ /^[ \t]+[a-z_0-9]+;$/) {
				gsub(/[ \t;]/, "", line)
				ours[line] = 1
			}
		}
	}
	$3 in ours || $4 !~ /PRIVATE/ && $3 !~ /^(r[a-z]*$|repoll_|ibv_copy_)/ { next }
	{
		names[$4] = names[$4] "\t\t" $3 ";\n"
		kind = $2 == "B" ? "VARIABLE" : $3 ~ /^verbs_register_driver/ ? "NOTHING" : "FORWARD"
		print kind "(" $3 ", \"" $1 ".so.1\")" > forwards
	}
	END {
		for (i = 1; i <= count; i++) {
			print lines[i] > newmap
			if (lines[i] ~ /^[A-Z]/)
				node = substr(lines[i], 1, index(lines[i], " ") - 1)
			if (lines[i] ~ /global:/) {
				printf "%s", names[node] > newmap
				delete names[node]
			}
		}
		for (node in names)
			printf "%s {\n\tglobal:\n%s};\n", node, names[node] > newmap
	}'
