#!/bin/bash
# SPDX-License-Identifier: MIT
#
# kernels.sh - live tests on other kernels than the machine's.
#
#   tests/kernels.sh [PROGRAM...]          (make kernels [KERNELS="..."])
#
# Makes a minimal Debian 12 with what the tests need, builds a clean copy of HEAD in it, and starts it
# in an emulated machine, once with each package of KERNELS (Debian 12's own kernel; SUITE:PACKAGE: out of
# another release of Debian, as bullseye:linux-image-5.10.0-32-cloud-amd64). There each PROGRAM
# of tests/unit or tests/live (live/dispatch; without any, those that ask most of the kernel) gets LIMIT
# seconds (300). Fails if one of them failed; what they said is in kernels-PACKAGE.log in the build folder.
#
# Two processors on one thread of the emulator, which does not give its name: it fetches instructions byte by
# byte, so that arenas would be private where it is known (arch_switches_are_whole()). It is
# some forty times slower than the machine, so that what counts on time may fail, and it knows not every prefix
# of instructions: the target "torture" does not run there. Needs root, the network, debootstrap,
# qemu-system-x86 and 6 GB below ${TMPDIR:-/tmp}.
set -eu
cd "$(dirname "$0")/.."
name=kernels
. tests/debian.sh

: "${KERNELS:=linux-image-cloud-amd64}" "${LIMIT:=300}" "${DINST_BUILD:=build}"
packages='initramfs-tools udev kmod g++ libcmocka-dev libzydis-dev git procps iproute2 gdb libc6-dbg strace python3'
programs=("$@")
[ $# -gt 0 ] || programs=(unit/inject_proc unit/inject_maps unit/inject_checks unit/inject_seccomp
	live/insert live/dispatch live/stop_first live/stop_refusals live/stop_signals live/ended_threads
	live/arena_rseq live/arena_create live/no_execmem live/stack_places live/death_family live/fork
	live/exec_start live/hidden live/life_states live/dlopen live/text_kinds live/unwind)

if ! command -v qemu-system-x86_64 >/dev/null || ! command -v mke2fs >/dev/null; then
	result SKIP "qemu-system-x86 or e2fsprogs is not installed"
	exit 0
fi

# What the machine runs as its first process, and how the tests are asked for.
write_init() {
	cat >"$root/first" <<-'EOF'
		#!/bin/bash
		export PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LANG=C.UTF-8 TERM=dumb DINST_BUILD=build DINST_SHORT=1
		mount -t proc proc /proc
		mountpoint -q /sys || mount -t sysfs sys /sys
		mkdir -p /dev/pts /dev/shm
		mount -t devpts pts /dev/pts
		mount -t tmpfs shm /dev/shm
		mount -o remount,rw /
		mount -t cgroup2 cgroup /sys/fs/cgroup
		mount -t tmpfs run /run
		ip link set lo up
		uname -a
		cd /dinst
		. /asked
		failed=0
		for program in $programs; do
			tests/run.sh -t "$limit" "build/tests/$program" || failed=$((failed + 1))
		done
		echo "all asked, $failed failed"
		sync
		echo o >/proc/sysrq-trigger
		sleep 60
	EOF
	chmod 755 "$root/first"
	echo "limit=$LIMIT programs='${programs[*]}'" >"$root/asked"
}

# Installs a package's kernel, and adds its version to versions[].
install_kernel() {
	local package=${1#*:} from=${1%%:*} version

	if [ "$from" != "$package" ]; then
		echo "deb $mirror $from main" >"$root/etc/apt/sources.list.d/$from.list"
		debian_in "apt-get update -q" || return
	fi
	# Either it has the kernel, or it depends on the one that has it.
	debian_in "apt-get install -y -q --no-install-recommends $package && {
		dpkg -L $package | sed -n 's,^/boot/vmlinuz-,,p'
		dpkg-query -W -f '\${Depends}' $package | sed -n 's/^linux-image-\([^ ,]*\).*/\1/p'; } | head -1 >/version"
	version=$(cat "$root/version")
	[ -n "$version" ] && [ -e "$root/boot/vmlinuz-$version" ] && versions+=("$version")
}

# $1 = version, $2 = where its output goes
run_kernel() {
	timeout -k 10 $((LIMIT * ${#programs[@]} + 600)) qemu-system-x86_64 -accel tcg,thread=single -cpu max,tcg-cpuid=off \
		-smp 2 -m 4G -nographic -no-reboot -kernel "$root/boot/vmlinuz-$1" \
		-initrd "$root/boot/initrd.img-$1" -append "console=ttyS0 root=/dev/vda rw init=/first panic=5 quiet" \
		-drive "file=$root.disk,if=virtio,format=raw" </dev/null >"$2" 2>&1 || true
}

debian_begin
trap 'debian_end; rm -f "$root.disk"' EXIT
if ! debian_in "./bootstrap && apt-get install -y -q --no-install-recommends $packages && make -j2 all tests"; then
	tail -40 "$log"
	result FAIL "cannot build ($log)"
	exit 1
fi
versions=()
for kernel in $KERNELS; do
	if ! install_kernel "$kernel"; then
		tail -5 "$log"
		result FAIL "cannot install $kernel ($log)"
		exit 1
	fi
done
write_init
debian_unmount
mkdir -p "$DINST_BUILD"
failed=0
for version in "${versions[@]}"; do
	rm -f "$root.disk"
	truncate -s 8G "$root.disk"
	mke2fs -q -t ext4 -d "$root" "$root.disk"
	said=$DINST_BUILD/kernels-$version.log
	run_kernel "$version" "$said"
	grep -E '^(unit|live)-.* passed .* failed ' "$said" | tr -d '\r' || true
	# Also where it did not come to its end.
	if grep -q '^all asked, 0 failed' "$said"; then
		result PASS "$version"
	else
		failed=$((failed + 1))
		result FAIL "$version ($said)"
	fi
done
rm -f "$log"
[ "$failed" -eq 0 ]
