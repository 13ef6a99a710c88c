# shellcheck shell=bash
# SPDX-License-Identifier: MIT
#
# debian.sh - a minimal Debian 12 in a folder, to be entered with chroot; sourced.
#
#   name=NAME             of the script, beforehand
#   debian_begin          ends the script where it cannot be had; $root, $log and $mirror from then on
#   debian_in COMMAND     runs it in there by a shell, its output in $log
#   debian_unmount        before the folder is made into something else
#   result WORD TEXT      one line of how it went: PASS, FAIL or SKIP
#
# Needs root, debootstrap and the network. Everything is unmounted and removed at the end.

suite=bookworm
started=$(date +%s)

result() {
	echo "$1 $name $(($(date +%s) - started)) s $2"
}

debian_unmount() {
	for dir in dev/pts dev/shm dev proc sys; do
		umount "$root/$dir" 2>/dev/null || umount -l "$root/$dir" 2>/dev/null || true
	done
}

debian_end() {
	# Nothing that was started in there may outlive it; only what has this root is ended.
	for link in /proc/[0-9]*/root; do
		if [ "$(readlink "$link")" = "$root" ]; then
			pid=${link#/proc/}
			kill -9 "${pid%/root}" 2>/dev/null || true
		fi
	done
	debian_unmount
	# Never remove through something that is still mounted.
	if grep -q " $root/" /proc/mounts; then
		echo "$name: $root is still in use, left" >&2
	else
		rm -rf --one-file-system "$root"
	fi
}

debian_begin() {
	if [ "$(id -u)" -ne 0 ]; then
		result SKIP "needs root"
		exit 0
	fi
	if ! command -v debootstrap >/dev/null; then
		result SKIP "debootstrap is not installed"
		exit 0
	fi
	# The first mirror of a main component that apt is configured with.
	mirror=$(apt-get indextargets --format '$(SITE) $(COMPONENT) $(RELEASE)' 2>/dev/null |
		awk -v suite=$suite '$2 == "main" && $3 == suite { print $1; exit }')
	[ -n "$mirror" ] || mirror=$(sed -n "s,^deb \(\[[^]]*\] \)\?\(http[^ ]*\) $suite .*,\2,p" \
		/etc/apt/sources.list /etc/apt/sources.list.d/*.list 2>/dev/null | head -1)
	[ -n "$mirror" ] || mirror=http://deb.debian.org/debian
	root=$(mktemp -d "${TMPDIR:-/tmp}/dinst-$name-XXXXXX")
	# It becomes "/": everybody in there must get through.
	chmod 755 "$root"
	trap debian_end EXIT
	trap 'exit 130' INT TERM HUP
	log=$root.log
	if ! debootstrap --variant=minbase $suite "$root" "$mirror" >"$log" 2>&1; then
		tail -20 "$log"
		result FAIL "debootstrap from $mirror ($log)"
		exit 1
	fi
	# What apt needs to get through from here; the mirror itself is debootstrap's.
	cp /etc/resolv.conf "$root/etc/resolv.conf" 2>/dev/null || true
	apt-config dump 2>/dev/null | grep -iE '^Acquire::https?::Proxy' >"$root/etc/apt/apt.conf.d/90proxy" || true
	mount -t proc proc "$root/proc"
	mount -t sysfs sys "$root/sys" 2>/dev/null || true
	mount --bind /dev "$root/dev"
	mkdir -p "$root/dev/pts" "$root/dev/shm"
	mount --bind /dev/pts "$root/dev/pts" 2>/dev/null || true
	mkdir "$root/dinst"
	git archive HEAD | tar -x -C "$root/dinst"
}

debian_in() {
	chroot "$root" env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root DEBIAN_FRONTEND=noninteractive \
		${http_proxy+http_proxy="$http_proxy"} ${https_proxy+https_proxy="$https_proxy"} \
		sh -c "cd /dinst && $1" </dev/null >>"$log" 2>&1
}
