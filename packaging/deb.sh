#!/bin/bash
# SPDX-License-Identifier: MIT
#
# deb.sh - make deb: three Debian packages from what make install installs.
#
#   packaging/deb.sh BUILD OUT
#
#   dinst          the programs, metrics, manual pages, completions, the unit
#   libdinst0      the shared library
#   libdinst-dev   its header, the static library, pkg-config, examples
#
# BUILD is a build directory of PREFIX=/usr. Needs dpkg-dev, and neither root nor debhelper.
set -eu
cd "$(dirname "$0")/.."

build=$1
out=$2
version=$(sed -n '1s/.*(\(.*\)).*/\1/p' packaging/changelog)
architecture=$(dpkg --print-architecture)
multiarch=$(dpkg-architecture -qDEB_HOST_MULTIARCH)
work=$(mktemp -d "${TMPDIR:-/tmp}/dinst-deb-XXXXXX")
trap 'rm -rf "$work"' EXIT
umask 022
export SOURCE_DATE_EPOCH
SOURCE_DATE_EPOCH=$(date -d "$(sed -n 's/^ -- .*>  //p' packaging/changelog)" +%s)

make -s O="$build" PREFIX=/usr libdir="/usr/lib/$multiarch" zshcompdir=/usr/share/zsh/vendor-completions \
	DESTDIR="$work/all" install

# move PACKAGE PATH...: what belongs to a package.
move() {
	local package=$1 path

	shift
	for path in "$@"; do
		mkdir -p "$work/$package/$(dirname "$path")"
		mv "$work/all/$path" "$work/$package/$path"
	done
}

lib=usr/lib/$multiarch
soname=$(basename "$work/all/$lib"/libdinst.so.?)
move libdinst0 "$lib/$soname" "$lib/$(readlink "$work/all/$lib/$soname")"
move libdinst-dev "$lib/libdinst.so" "$lib/libdinst.a" "$lib/pkgconfig" usr/include
rmdir "$work/all/$lib" "$work/all/usr/lib" 2>/dev/null || true
mkdir -p "$work/dinst"
cp -a "$work/all/." "$work/dinst/"
if [ -f examples/fleet/dinstd.service ]; then
	install -Dm644 examples/fleet/dinstd.service "$work/dinst/usr/lib/systemd/system/dinstd.service"
	sed -i 's,/usr/local/,/usr/,g' "$work/dinst/usr/lib/systemd/system/dinstd.service"
fi
for example in examples/lib/*.c examples/python/*.py; do
	install -Dm644 "$example" "$work/libdinst-dev/usr/share/doc/libdinst-dev/examples/$(basename "$example")"
done
for guide in mdl protocol; do
	install -Dm644 "docs/$guide.md" "$work/dinst/usr/share/doc/dinst/$guide.md"
done

strip --strip-unneeded -R .comment -R .note "$work/dinst/usr/bin/dinst" "$work/dinst/usr/sbin/dinstd" \
	"$work/dinst/usr/libexec/dinst/dinst-mutator" "$work/libdinst0/$lib"/libdinst.so.*.*
strip --strip-debug --enable-deterministic-archives "$work/libdinst-dev/$lib/libdinst.a"
find "$work/dinst/usr/share/man" -type f -exec gzip -9n {} +

# The libraries that the programs need, as dpkg-shlibdeps finds them.
mkdir -p "$work/debian"
{
	echo "Source: dinst"
	echo
	echo "Package: dinst"
	echo "Architecture: any"
} >"$work/debian/control"
# depends_of FILE...
depends_of() {
	(cd "$work" && dpkg-shlibdeps -O "$@" 2>/dev/null) | sed 's/^shlibs:Depends=//'
}
programs=$(depends_of dinst/usr/bin/dinst dinst/usr/sbin/dinstd dinst/usr/libexec/dinst/dinst-mutator)
library=$(depends_of "libdinst0/$lib/$soname")

# Whoever builds a package answers for it, as with other tools of Debian; nobody has said who that is
# where the address is one that no mail can be sent to.
written=$(sed -n 's/^ -- \(.*>\)  .*/\1/p;T;q' packaging/changelog)
address=${written##*<}
maintainer="${DEBFULLNAME:-${written% <*}} <${DEBEMAIL:-${address%>}}>"

# control PACKAGE SECTION DEPENDS SUMMARY, the description's lines on standard input.
control() {
	local package=$1

	mkdir -p "$work/$package/DEBIAN" "$work/$package/usr/share/doc/$package"
	gzip -9nc packaging/changelog >"$work/$package/usr/share/doc/$package/changelog.gz"
	cp packaging/copyright "$work/$package/usr/share/doc/$package/copyright"
	{
		echo "Package: $package"
		echo "Source: dinst"
		echo "Version: $version"
		echo "Architecture: $architecture"
		case $package in
		libdinst*) echo "Multi-Arch: same" ;;
		esac
		echo "Maintainer: $maintainer"
		echo "Installed-Size: $(du -k -s --apparent-size "$work/$package/usr" | cut -f1)"
		echo "Depends: $3"
		[ "$package" = dinst ] && echo "Suggests: graphviz, libdinst-dev"
		echo "Section: $2"
		echo "Priority: optional"
		echo "Description: $4"
		sed 's/^$/./; s/^/ /'
	} >"$work/$package/DEBIAN/control"
	(cd "$work/$package" && find usr -type f -print0 | LC_ALL=C sort -z | xargs -0 md5sum) >"$work/$package/DEBIAN/md5sums"
}

control dinst devel "$programs" "profiler that looks into programs that are already running" <<'END'
dinst attaches to a running process, instruments its functions in place, and
answers questions about it: which functions take the time, how long calls
take, with which arguments they are made, what they call, why it is slow. The
process is not restarted, needs no debug information, and gets all its code
back at the end.

A counter at the entry of a function costs about a nanosecond a call.
END
control libdinst0 libs "$library" "library for programs that ask questions of running programs" <<'END'
The client's half of the protocol of dinstd, which instruments running
programs: sessions, metrics, values and events, for programs in C.

This package contains the shared library.
END
control libdinst-dev libdevel "libdinst0 (= $version), libjansson-dev" \
	"library for programs that ask questions of running programs (development)" <<'END'
The client's half of the protocol of dinstd, which instruments running
programs: sessions, metrics, values and events, for programs in C.

This package contains the header, the static library and examples.
END
echo "activate-noawait ldconfig" >"$work/libdinst0/DEBIAN/triggers"
echo "libdinst 0 libdinst0 (>= $version)" >"$work/libdinst0/DEBIAN/shlibs"

mkdir -p "$out"
for package in dinst libdinst0 libdinst-dev; do
	find "$work/$package" -newermt "@$SOURCE_DATE_EPOCH" -print0 | xargs -0r touch -hd "@$SOURCE_DATE_EPOCH"
	dpkg-deb --root-owner-group -Zxz -b "$work/$package" "$out/${package}_${version}_$architecture.deb" >/dev/null
	echo "$out/${package}_${version}_$architecture.deb"
done
