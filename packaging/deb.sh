#!/usr/bin/env bash
# Makes rnicd_VERSION_ARCH.deb in build, or OUT, of bin/rnicd or PROGRAM, by nfpm (packaging/nfpm, a
# module by itself): what make install installs, the libraries of LIBRARIES with it. With these and
# PORTABLE, an rnicd that is linked with nothing, makes rnicd-verbs, too: only what rnicd run needs.
# DEB_MAINTAINER is who makes the packages, as "Name <address>".
#   deb.sh
set -euo pipefail
cd "$(dirname "$0")/.."
GO=${GO:-go} out=${OUT:-build}
dir=$(realpath -m "$out")/deb
for tool in dpkg-shlibdeps dpkg-architecture; do
    command -v "$tool" >/dev/null || { echo "deb: no $tool: apt-get install dpkg-dev" >&2; exit 1; }
done
export SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || date +%s)}
export DEB_MAINTAINER=${DEB_MAINTAINER:-the rnicd authors <rnicd@rnicd.invalid>}
rm -rf "$dir"
mkdir -p "$dir/debian"

# A version begins with a digit. Without a tag it sorts before every release, and by time.
version=$(git describe --tags 2>/dev/null | sed 's/^v//; s/-/+/; s/-/./g') || true
version=${DEB_VERSION:-$version}
[[ $version = [0-9]* ]] || version=0.0.0+git$(date -u -d "@$SOURCE_DATE_EPOCH" +%Y%m%d.%H%M%S).$(git rev-parse --short HEAD 2>/dev/null || echo 0)

DESTDIR=$dir/root PREFIX=/usr SYSCONFDIR=/etc packaging/install.sh install
mapfile -t binaries < <(find "$dir"/root/usr/bin/rnicd "$dir"/root/usr/lib/rnicd -type f 2>/dev/null)
strip --strip-unneeded "${binaries[@]}"
printf 'rnicd (%s) unstable; urgency=medium\n\n  * CHANGELOG.md has what is new.\n\n -- %s  %s\n' "$version" "$DEB_MAINTAINER" \
    "$(LC_ALL=C date -u -d "@$SOURCE_DATE_EPOCH" -R)" | gzip -9n >"$dir/changelog.gz"

# The packages of the libraries that these are linked with. dpkg-shlibdeps wants to see a source
# package.
printf 'Source: rnicd\n\nPackage: rnicd\nArchitecture: any\n' >"$dir/debian/control"
depends=$(cd "$dir" && dpkg-shlibdeps -O "${binaries[@]/#/-e}" 2>/dev/null | sed -n 's/^shlibs:Depends=//p')

DEB_VERSION=$version DEB_ARCH=$(dpkg-architecture -qDEB_HOST_ARCH)
export DEB_VERSION DEB_ARCH DEB_DEPENDS=${depends:-libc6}
nfpm=$($GO -C packaging/nfpm tool -n nfpm) # made once, kept in Go's cache
rm -f "$out"/rnicd_*.deb "$out"/rnicd-verbs_*.deb
make() { # PACKAGE CONFIGURATION
    deb=$out/$1_${DEB_VERSION}_$DEB_ARCH.deb
    DEB_DIR=$dir "$nfpm" package --config "packaging/$2" --packager deb --target "$deb" >/dev/null
    echo "$deb"
}
make rnicd nfpm.yaml
[ -f "$dir/root/usr/lib/rnicd/rnicd" ] || exit 0

# Debian's tools see the C libraries only: the program needs nothing.
verbs=$dir/verbs/usr
mkdir -p "$verbs/bin" "$verbs/lib" "$verbs/share/man/man1" "$verbs/share/rnicd"
cp -a "$dir/root/usr/lib/rnicd" "$verbs/lib/"
ln -s ../lib/rnicd/rnicd "$verbs/bin/rnicd"
cp -a "$dir/root/usr/share/rnicd/cdi.json" "$verbs/share/rnicd/"
cp -a "$dir"/root/usr/share/man/man1/{rnicd,rnicd-run,rnicd-cdi*}.1.gz "$verbs/share/man/man1/"
depends=$(cd "$dir" && dpkg-shlibdeps -O -eroot/usr/lib/rnicd/librnicd_verbs.so -eroot/usr/lib/rnicd/librnicd_engine.so 2>/dev/null |
    sed -n 's/^shlibs:Depends=//p')
DEB_DEPENDS=${depends:-libc6} make rnicd-verbs nfpm-verbs.yaml
