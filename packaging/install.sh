#!/usr/bin/env bash
# Installs bin/rnicd, or PROGRAM, with its manual pages, unit and documents; or removes them.
# LIBRARIES is the folder of the libraries of rnicd run; without it they are left out. PORTABLE is
# an rnicd that is linked with nothing, for containers; without it they have the libraries only.
#   DESTDIR=... PREFIX=/usr/local SYSCONFDIR=/etc install.sh install | uninstall
# A configuration that exists is neither changed nor removed.
set -euo pipefail
cd "$(dirname "$0")/.."
umask 022 # what is installed is readable for all
program=${PROGRAM:-bin/rnicd} libraries=${LIBRARIES:-} portable=${PORTABLE:-} prefix=$PREFIX root=${DESTDIR}$PREFIX
bin=$root/bin man=$root/share/man doc=$root/share/doc/rnicd data=$root/share/rnicd lib=$root/lib/rnicd
bash=$root/share/bash-completion/completions fish=$root/share/fish/vendor_completions.d
unit=$root/lib/systemd/system sysusers=$root/lib/sysusers.d tmpfiles=$root/lib/tmpfiles.d
config=$DESTDIR$SYSCONFDIR/rnicd
zsh=$root/share/zsh/site-functions
[ "$prefix" != /usr ] || zsh=$root/share/zsh/vendor-completions # Debian's

# mode=MODE put FILE PLACE
put() { install -D -m "${mode:-644}" "$1" "$2"; }

case "${1:-}" in
install)
    tmp=$(mktemp -d)
    trap 'rm -rf "$tmp"' EXIT
    mode=755 put "$program" "$bin/rnicd"
    mode=755 put hugepages/setup.sh "$data/hugepages/setup.sh"

    rm -rf "$lib" "$data/cdi.json" # of another version
    if [ -n "$libraries" ]; then
        put "$libraries/librnicd_verbs.so" "$lib/librnicd_verbs.so"
        put "$libraries/librnicd_engine.so" "$lib/librnicd_engine.so"
        mkdir -p "$lib/standin"
        cp -P "$libraries"/standin/*.so* "$lib/standin/"
        [ -z "$portable" ] || mode=755 put "$portable" "$lib/rnicd"
        # What rnicd cdi write writes, for packages.
        "$program" cdi write --print --lib "$lib" | sed "s,\"$(realpath -s "$lib")\",\"$prefix/lib/rnicd\"," >"$tmp/cdi.json"
        put "$tmp/cdi.json" "$data/cdi.json"
    else
        echo "install: the libraries of rnicd run are left out: building them takes gcc, libibverbs-dev, librdmacm-dev" >&2
    fi

    mkdir "$tmp/man"
    SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || date +%s)} "$program" man "$tmp/man"
    gzip -9n "$tmp"/man/*
    for page in "$tmp"/man/*; do
        section=${page%.gz} section=${section##*.}
        put "$page" "$man/man$section/${page##*/}"
    done

    "$program" completion bash >"$tmp/bash"
    "$program" completion zsh >"$tmp/zsh"
    "$program" completion fish >"$tmp/fish"
    put "$tmp/bash" "$bash/rnicd"
    put "$tmp/zsh" "$zsh/_rnicd"
    put "$tmp/fish" "$fish/rnicd.fish"

    for service in rnicd.service rnicd-switch.service; do
        sed "s,/usr/bin/rnicd,$prefix/bin/rnicd,; s,/etc/rnicd,$SYSCONFDIR/rnicd,; s,docs/,$prefix/share/doc/rnicd/," \
            "packaging/systemd/$service" >"$tmp/$service"
        put "$tmp/$service" "$unit/$service"
    done
    sed "s,/etc/rnicd,$SYSCONFDIR/rnicd," packaging/systemd/rnicd.tmpfiles >"$tmp/tmpfiles"
    put packaging/systemd/rnicd.sysusers "$sysusers/rnicd.conf"
    put "$tmp/tmpfiles" "$tmpfiles/rnicd.conf"

    # All of docs/ without that folder's name, and the documents of the root that it links to. Links
    # into the source go to the repository.
    source=https://github.com/rnicd/rnicd/blob/main
    root_documents='ARCHITECTURE|CHANGELOG|SECURITY'
    mkdir "$tmp/docs" "$tmp/root"
    (cd docs && find . -type f ! -name '*.go' -exec cp --parents -t "$tmp/docs" {} +)
    cp ARCHITECTURE.md CHANGELOG.md SECURITY.md "$tmp/root"
    find "$tmp/docs" -name '*.md' -exec \
        sed -E -i "s,]\(\.\./\.\./($root_documents)\.md,](../\1.md,g; s,]\(\.\./\.\./,]($source/,g" {} +
    sed -E -i "s,]\(docs/,](,g; s,]\((README|CONTRIBUTING)\.md,]($source/\1.md,g" "$tmp"/root/*
    mv "$tmp"/root/* "$tmp/docs"
    find "$tmp/docs" -type d -exec chmod 755 {} + -o -type f -exec chmod 644 {} +
    mkdir -p "$doc"
    cp -R --remove-destination "$tmp/docs/." "$doc"
    for f in rnicd.toml switch.toml; do
        [ -e "$config/$f" ] || put "packaging/$f" "$config/$f"
    done
    ;;
uninstall)
    rm -f "$bin/rnicd" "$man"/man1/rnicd.1.gz "$man"/man1/rnicd-*.1.gz "$man/man5/rnicd.toml.5.gz" "$man/man5/rnicd-switch.toml.5.gz" "$bash/rnicd" "$zsh/_rnicd" \
        "$fish/rnicd.fish" "$unit/rnicd.service" "$unit/rnicd-switch.service" "$sysusers/rnicd.conf" "$tmpfiles/rnicd.conf"
    rm -rf "$doc" "$data" "$lib"
    ;;
*)
    echo "usage: $0 install|uninstall" >&2
    exit 2
    ;;
esac
