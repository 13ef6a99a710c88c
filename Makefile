# SPDX-License-Identifier: MIT
#
# dinst: build, test, install. Everything is built out of tree into $(O).
#
#   make                    the three programs: dinst, dinstd, dinst-mutator, and libdinst
#   make tests              the test programs and their target programs too
#   make test               everything that CI runs (unit live real fuzz)
#   make fuzz               damaged files and messages, FUZZ_SECONDS (60) for each fuzzer
#   make hostile            the hardest tests, some 20 minutes; HOURS=n goes on with random seeds
#   make kills              a thousand deaths of mutators and daemons (KILLS=n), half an hour
#   make kernels            live tests on other kernels, emulated; KERNELS="PACKAGE..."
#   make deb                Debian packages, in $(O)/deb
#   make safety             the table of fears and tests in docs/safety.md
#   make bench              what looking costs, beside other tools; bench-parts: the pieces
#   make check              lint, cppcheck and clang-tidy; make valgrind
#   make demo coverage lint fmt install uninstall clean
#
#   O=DIR                   where to build (default build, build-SAN with SAN)
#   CC=clang                another compiler
#   ARCH=x86_64             the folder of arch/ to build
#   SAN=address,undefined   our own processes with sanitizers
#   ONLY="arch inject"      test programs are linked with these libraries only

ARCH ?= x86_64
SAN ?=
comma := ,
ifeq ($(SAN),)
O ?= build
else
O ?= build-$(subst $(comma),-,$(SAN))
endif

PREFIX ?= /usr/local
DESTDIR ?=
bindir ?= $(PREFIX)/bin
sbindir ?= $(PREFIX)/sbin
libexecdir ?= $(PREFIX)/libexec/dinst
datadir ?= $(PREFIX)/share/dinst
mandir ?= $(PREFIX)/share/man
libdir ?= $(PREFIX)/lib
includedir ?= $(PREFIX)/include
bashcompdir ?= $(PREFIX)/share/bash-completion/completions
zshcompdir ?= $(PREFIX)/share/zsh/site-functions
fishcompdir ?= $(PREFIX)/share/fish/vendor_completions.d

ifeq ($(origin CC),default)
CC := gcc
endif
ifeq ($(origin CXX),default)
CXX := g++
endif
PKG_CONFIG ?= pkg-config
INSTALL ?= install
OBJCOPY ?= objcopy

# The target programs of the tests are ordinary programs: never sanitized, and
# shaped by options that only gcc has.
TARGET_CC ?= gcc
TARGET_CXX ?= g++

# ------------------------------------------------------------------ flags

# What pkg-config says about a package, or what is given as second argument.
pkg_libs = $(or $(shell $(PKG_CONFIG) --libs $(1) 2>/dev/null),$(2))
pkg_cflags = $(shell $(PKG_CONFIG) --cflags $(1) 2>/dev/null)

CAPSTONE_LIBS := $(call pkg_libs,capstone,-lcapstone)
ELF_LIBS := $(call pkg_libs,libdw libelf,-ldw -lelf)
UNWIND_LIBS := $(call pkg_libs,libunwind-ptrace libunwind-generic,-lunwind-ptrace -lunwind-generic -lunwind)
JANSSON_LIBS := $(call pkg_libs,jansson,-ljansson)
UV_LIBS := $(call pkg_libs,libuv,-luv)
CURSES_LIBS := $(call pkg_libs,ncursesw,-lncursesw -ltinfo)
EDIT_LIBS := $(call pkg_libs,libedit,-ledit)
HTTP_LIBS := $(call pkg_libs,libmicrohttpd,-lmicrohttpd)
LZMA_LIBS := $(call pkg_libs,liblzma,-llzma)
ZLIB_LIBS := $(call pkg_libs,zlib,-lz)
CMOCKA_LIBS := $(call pkg_libs,cmocka,-lcmocka)
# A second judge of the decoder, for the tests and the benchmark that name it.
ZYDIS_LIBS := $(call pkg_libs,zydis,-lZydis -lZycore)
PKG_CFLAGS := $(call pkg_cflags,libdw libelf libunwind-ptrace jansson libuv libedit liblzma)

WARNINGS := -Wall -Wextra -Wmissing-prototypes -Wstrict-prototypes -Wvla -Werror
OPT ?= -O2 -g
COMMON_CFLAGS := -std=gnu11 $(OPT) -D_GNU_SOURCE -I. -fPIE $(WARNINGS) $(PKG_CFLAGS) \
	-DDINST_BINDIR='"$(bindir)"' -DDINST_LIBEXECDIR='"$(libexecdir)"' \
	-DDINST_DATADIR='"$(datadir)"'
COMMON_LDFLAGS := -pie -pthread -Wl,--as-needed
# An option, if this compiler has it.
can = $(if $(shell echo 'int main(void) { return 0; }' | $(CC) -Werror $(1) -x c -c -o /dev/null - 2>&1),,$(1))
# For builds that are looked at: gcc sees truncations and uninitialized values there that are none.
LOOKED_AT = -O1 -g $(call can,-Wno-format-truncation) $(call can,-Wno-maybe-uninitialized)
ifeq ($(SAN),)
# Hardening (tests/unit/hardened.c looks for it in what was built). Branch protection
# is named differently on every processor, and clang 14 cannot fill variables with zeros.
COMMON_CFLAGS += -U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=3 -fstack-protector-strong \
	-fstack-clash-protection
HARDENING := $(call can,-ftrivial-auto-var-init=zero) $(or $(call can,-fcf-protection=full),$(call can,-mbranch-protection=standard))
COMMON_CFLAGS += $(HARDENING)
COMMON_LDFLAGS += -Wl,-z,relro,-z,now,-z,noexecstack,-z,separate-code
else
# The sanitizers make gcc see truncations and uninitialized values that are none.
# Fences order what we share with the target, which is not under them.
SAN_WARNINGS := $(call can,-Wno-format-truncation) $(call can,-Wno-maybe-uninitialized) $(call can,-Wno-tsan)
# Variables that nobody sets are zeros in what we ship. Here they are rubbish, so that
# nothing comes to depend on it (-fsanitize=memory wants them as they are).
HARDENING := $(if $(findstring memory,$(SAN)),,$(call can,-ftrivial-auto-var-init=pattern))
COMMON_CFLAGS += $(SAN_WARNINGS) $(HARDENING) -fsanitize=$(SAN) -fno-omit-frame-pointer -fno-sanitize-recover=all
COMMON_LDFLAGS += -fsanitize=$(SAN)
endif
# <state.h> is the architecture's (arch/ARCH/state.h).
STATE := $(ARCH)
ALL_CFLAGS = $(COMMON_CFLAGS) -Iarch/$(STATE) $(CFLAGS)
ALL_LDFLAGS = $(COMMON_LDFLAGS) $(LDFLAGS)

# ---------------------------------------------------------------- sources

objects = $(patsubst %.c,$(O)/%.o,$(1))

arch_src := $(wildcard arch/common/*.c arch/$(ARCH)/*.c)
# The other architecture's library, for its unit tests (tests/unit/aarch64_*.c).
aarch64_src := $(wildcard arch/common/*.c arch/aarch64/*.c)
inject_src := $(wildcard inject/*.c)
mutator_src := $(filter-out mutator/main.c,$(wildcard mutator/*.c))
# The language: by hand, and made by bison and flex.
mdl_src := $(wildcard mutator/mdl/*.c) mutator/mdl/parser.c mutator/mdl/lexer.c
mdl_made := $(addprefix $(O)/mutator/mdl/,parser.c parser.h lexer.c)
common_src := $(wildcard daemon/common/*.c)
server_src := $(wildcard daemon/server/*.c)
# Events, call trees and the files that are made of them: the client's, and nothing of a session.
report_src := $(wildcard daemon/report/*.c)
client_src := $(wildcard daemon/client/*.c) $(report_src)
# What the tests may use of the daemon and the client: all but their main().
face_src := $(filter-out %/main.c,$(server_src) $(client_src))

libnames := arch inject mdl mutator common face
archives := $(libnames:%=$(O)/lib%.a)
libnames += aarch64
mutator_libs := $(O)/libmutator.a $(O)/libmdl.a $(O)/libinject.a $(O)/libarch.a $(O)/libcommon.a
MUTATOR_LIBS := $(CAPSTONE_LIBS) $(ELF_LIBS) $(UNWIND_LIBS) $(JANSSON_LIBS) $(LZMA_LIBS) -liberty -ldl

programs :=
ifneq ($(client_src),)
programs += $(O)/dinst
endif
ifneq ($(server_src),)
programs += $(O)/dinstd
endif
ifneq ($(wildcard mutator/main.c),)
programs += $(O)/dinst-mutator
endif

# libdinst: the client's end of the socket, with a face of its own (lib/dinst.h).
library_src := $(wildcard lib/*.c) daemon/client/connect.c daemon/client/start.c \
	daemon/common/lines.c daemon/common/paths.c daemon/common/rpc.c $(wildcard daemon/report/event*.c) \
	inject/error.c inject/proc.c inject/proc_lists.c inject/proc_open.c
library_soname := libdinst.so.0
library_real := $(library_soname).1.0
library := $(O)/libdinst.a $(O)/$(library_real) $(O)/$(library_soname) $(O)/libdinst.so

unit_src := $(wildcard tests/unit/*.c)
live_src := $(filter-out tests/live/harness%.c,$(wildcard tests/live/*.c))
harness_src := $(wildcard tests/live/harness*.c)
fuzz_src := $(wildcard tests/fuzz/*.c)
bench_src := $(wildcard tests/bench/*.c)
# Tools for tests and by hand; nothing runs them by themselves.
tool_src := $(wildcard tests/tools/*.c)
unit_bin := $(unit_src:%.c=$(O)/%)
aarch64_bin := $(filter $(O)/tests/unit/aarch64_%,$(unit_bin))
live_bin := $(live_src:%.c=$(O)/%)
fuzz_bin := $(fuzz_src:%.c=$(O)/%)
bench_bin := $(bench_src:%.c=$(O)/%)
tool_bin := $(tool_src:%.c=$(O)/%)

# Target programs; libNAME.c becomes the shared object libNAME.so.
target_dir := tests/live/targets
target_shared := $(patsubst %.c,$(O)/%.so,$(wildcard $(target_dir)/lib*.c))
target_bin := $(target_shared) \
	$(patsubst %.c,$(O)/%,$(filter-out $(target_dir)/lib%,$(wildcard $(target_dir)/*.c))) \
	$(patsubst %.cc,$(O)/%,$(wildcard $(target_dir)/*.cc)) \
	$(patsubst %.S,$(O)/%,$(wildcard $(target_dir)/*.S)) \
	$(O)/$(target_dir)/torture $(O)/$(target_dir)/torture-fixed

example_bin := $(patsubst %.c,$(O)/%,$(wildcard examples/*.c examples/lib/*.c))

man_pages := $(wildcard docs/*.[1-8] docs/man/*.[1-8])
data_files := $(wildcard data/metrics/*.mdl)
real_scripts := $(filter-out %/lib.sh,$(wildcard tests/real/*.sh))
hostile_scripts := $(filter-out %/lib.sh %/run.sh,$(wildcard tests/hostile/*.sh))
install_scripts := tests/architectures.sh tests/install.sh tests/completion.sh tests/help.sh tests/deb.sh

# ------------------------------------------------------------------ build

# One short line per step; V=1 shows the commands.
ifeq ($(V),)
Q := @
say = @printf '  %-5s %s\n' $(1) '$(patsubst $(O)/%,%,$@)'
else
Q :=
say =
endif

.DEFAULT_GOAL := all
.DELETE_ON_ERROR:
.SECONDARY:
.PHONY: kernels kills check cppcheck valgrind memcheck races racing all tests unit live real fuzz fuzz-tests fuzz-engine hostile safety tidy test bench bench-parts coverage bare lint fmt install uninstall deb demo clean examples FORCE

all: $(programs) $(library)

# A program in $(O) finds the library of metrics beside itself.
$(programs): | $(O)/metrics

$(O)/metrics:
	@mkdir -p $(@D)
	@ln -sfn $(CURDIR)/data/metrics $@

tests: all examples $(unit_bin) $(live_bin) $(fuzz_bin) $(tool_bin) $(target_bin)

examples: $(example_bin)

# Objects are built again when the flags change.
$(O)/.flags: FORCE
	@mkdir -p $(@D)
	@echo '$(CC) $(ALL_CFLAGS) $(ALL_LDFLAGS)' | cmp -s - $@ || \
		echo '$(CC) $(ALL_CFLAGS) $(ALL_LDFLAGS)' > $@

$(O)/%.o: %.c $(O)/.flags
	@mkdir -p $(@D)
	$(call say,CC)
	$(Q)$(CC) $(ALL_CFLAGS) $(CPPFLAGS) -MMD -MP -c -o $@ $<

$(O)/arch/aarch64/%.o $(O)/tests/unit/aarch64_%.o: STATE := aarch64

# The page is taken in by the assembler (.incbin), which tells nobody what it has read.
$(O)/daemon/server/page_files.o: $(wildcard data/page/*)

# The parser and the lexer are made in $(O). What flex writes compares signed with
# unsigned and keeps functions that nobody calls; bison counts what it never reads.
$(O)/mutator/mdl/parser.c: mutator/mdl/parser.y
	@mkdir -p $(@D)
	$(call say,BISON)
	$(Q)bison -Werror -o $@ --defines=$(@:.c=.h) $<

$(O)/mutator/mdl/parser.h: $(O)/mutator/mdl/parser.c ;

$(O)/mutator/mdl/lexer.c: mutator/mdl/lexer.l
	@mkdir -p $(@D)
	$(call say,FLEX)
	$(Q)flex -o $@ $<

$(call objects,$(mdl_src)): CPPFLAGS += -I$(O)
$(call objects,$(mdl_src)): | $(mdl_made)

made_warnings := -Wno-sign-compare -Wno-unused-function -Wno-unused-but-set-variable \
	-Wno-missing-prototypes
$(O)/mutator/mdl/parser.o $(O)/mutator/mdl/lexer.o: %.o: %.c $(O)/.flags
	$(call say,CC)
	$(Q)$(CC) $(ALL_CFLAGS) $(made_warnings) $(CPPFLAGS) -MMD -MP -c -o $@ $<

# The archives are made anew, so that a source that went away leaves nothing.
define archive_rule
$(O)/lib$(1).a: $(call objects,$($(1)_src))
	@mkdir -p $$(@D)
	@rm -f $$@
	$$(call say,AR)
	$(Q)ar rcsD $$@ $$^
endef
$(foreach name,$(libnames),$(eval $(call archive_rule,$(name))))

$(O)/dinst-mutator: $(O)/mutator/main.o $(mutator_libs)
	$(call say,LINK)
	$(Q)$(CC) $(ALL_CFLAGS) $(ALL_LDFLAGS) -o $@ $< -Wl,--start-group $(mutator_libs) -Wl,--end-group \
		$(MUTATOR_LIBS)

# The two ends of the socket need errors and checks of inject/, nothing above it.
face_libs := $(O)/libcommon.a $(O)/libmdl.a $(O)/libinject.a $(O)/libarch.a
link_face = $(CC) $(ALL_CFLAGS) $(ALL_LDFLAGS) -o $@ $(filter %.o,$^) \
	-Wl,--start-group $(face_libs) -Wl,--end-group

$(O)/dinstd: $(call objects,$(server_src)) $(face_libs)
	$(call say,LINK)
	$(Q)$(link_face) $(UV_LIBS) $(HTTP_LIBS) $(JANSSON_LIBS) -lm $(MUTATOR_LIBS)

$(O)/dinst: $(call objects,$(client_src)) $(face_libs)
	$(call say,LINK)
	$(Q)$(link_face) $(JANSSON_LIBS) $(EDIT_LIBS) $(CURSES_LIBS) $(ZLIB_LIBS) $(MUTATOR_LIBS)

# ---------------------------------------------------------------- library

pic_objects := $(library_src:%.c=$(O)/pic/%.o)

$(O)/pic/%.o: %.c $(O)/.flags
	@mkdir -p $(@D)
	$(call say,CC)
	$(Q)$(CC) $(filter-out -fPIE,$(ALL_CFLAGS)) -fPIC -fvisibility=hidden $(CPPFLAGS) -MMD -MP -c -o $@ $<

$(O)/$(library_real): $(pic_objects) lib/dinst.map
	$(call say,LINK)
	$(Q)$(CC) $(filter-out -fPIE,$(ALL_CFLAGS)) $(filter-out -pie,$(ALL_LDFLAGS)) -shared \
		-Wl,-soname,$(library_soname) -Wl,--version-script,lib/dinst.map \
		-o $@ $(pic_objects) $(JANSSON_LIBS)

$(O)/$(library_soname) $(O)/libdinst.so: $(O)/$(library_real)
	@ln -sf $(library_real) $@

# One object that shows what is public and nothing else, so that no name of ours meets one
# of the program's.
$(O)/libdinst.a: $(pic_objects)
	$(call say,AR)
	$(Q)$(LD) -r -o $(O)/pic/libdinst.o $(pic_objects)
	$(Q)$(OBJCOPY) --localize-hidden $(O)/pic/libdinst.o
	@rm -f $@
	$(Q)ar rcsD $@ $(O)/pic/libdinst.o

# ------------------------------------------------------------------ tests

test_libs := $(if $(ONLY),$(ONLY:%=$(O)/lib%.a),$(archives))
TEST_LIBS := $(CMOCKA_LIBS) $(MUTATOR_LIBS) $(UV_LIBS) $(HTTP_LIBS) -lm $(EDIT_LIBS) $(CURSES_LIBS) $(ZLIB_LIBS)
$(O)/tests/unit/arch_zydis $(O)/tests/unit/arch_space $(O)/tests/bench/decode: TEST_LIBS += $(ZYDIS_LIBS)
link_test = $(CC) $(ALL_CFLAGS) $(ALL_LDFLAGS) -o $@ $(filter %.o,$^) \
	-Wl,--start-group $(test_libs) -Wl,--end-group $(TEST_LIBS)

$(fuzz_bin): TEST_LIBS += $(FUZZ_LDFLAGS)
$(filter-out $(aarch64_bin),$(unit_bin)) $(fuzz_bin) $(bench_bin) $(tool_bin): $(O)/%: $(O)/%.o $(test_libs) | $(O)/metrics
	$(call say,LINK)
	$(Q)$(link_test)

$(aarch64_bin): $(O)/%: $(O)/%.o $(O)/libaarch64.a
	$(call say,LINK)
	$(Q)$(CC) $(ALL_CFLAGS) $(ALL_LDFLAGS) -o $@ $^ $(CMOCKA_LIBS) $(CAPSTONE_LIBS)

$(live_bin): $(O)/%: $(O)/%.o $(call objects,$(harness_src)) $(test_libs)
	$(call say,LINK)
	$(Q)$(link_test)

# What it makes targets do goes through the test.
$(O)/tests/live/no_execmem: TEST_LIBS := -Wl,--wrap=remote_run $(TEST_LIBS)

$(O)/tests/live/remote_ahead: TEST_LIBS := -Wl,--wrap=arch_forgets_calls -Wl,--wrap=arch_ahead -Wl,--wrap=arch_is_native $(TEST_LIBS)
$(O)/tests/live/stop_io_uring: TEST_LIBS := -Wl,--wrap=proc_is_worker $(TEST_LIBS)
$(O)/tests/live/stop_outside: TEST_LIBS := -Wl,--wrap=proc_call_read -Wl,--wrap=getsockopt -Wl,--wrap=proc_word $(TEST_LIBS)
$(O)/tests/live/stop_sleep: TEST_LIBS := -Wl,--wrap=stop_seize $(TEST_LIBS)
$(O)/tests/live/dispatch: TEST_LIBS := -Wl,--wrap=ptrace $(TEST_LIBS)
$(O)/tests/live/memory_ways: TEST_LIBS := -Wl,--wrap=pwrite $(TEST_LIBS)
$(O)/tests/live/patch_apply: TEST_LIBS := -Wl,--wrap=fstat $(TEST_LIBS)
$(O)/tests/unit/inject_processor: TEST_LIBS := -Wl,--wrap=arch_keeps_flags -Wl,--wrap=arch_try_flags $(TEST_LIBS)
$(O)/tests/live/private: TEST_LIBS := -Wl,--wrap=arch_switches_are_whole -Wl,--wrap=target_stop -Wl,--wrap=stop_write $(TEST_LIBS)
$(O)/tests/live/dlopen $(O)/tests/live/unsearched: TEST_LIBS := -Wl,--wrap=maps_open_pagemap $(TEST_LIBS)
$(O)/tests/live/each: TEST_LIBS := -Wl,--wrap=body_write $(TEST_LIBS)
$(O)/tests/live/values_settled: TEST_LIBS := -Wl,--wrap=heap_read_counter -Wl,--wrap=heap_read_counters $(TEST_LIBS)

$(O)/tests/live/ending $(O)/tests/live/hazards $(O)/tests/live/patch_breakpoints: TEST_LIBS := -Wl,--wrap=stop_write $(TEST_LIBS)

# What the daemon answers, and how long that takes.
top_answers := question_going question_call question_load question_remove top_pause
$(O)/tests/unit/top_views $(O)/tests/unit/top_busy: TEST_LIBS := $(top_answers:%=-Wl,--wrap=%) $(TEST_LIBS)

# The processor's clock, which goes back there.
$(O)/tests/unit/stream_read: TEST_LIBS := -Wl,--wrap=arch_clock_ticks $(TEST_LIBS)
# What the kernel and the processor say of it.
$(O)/tests/unit/ticks: TEST_LIBS := -Wl,--wrap=fopen -Wl,--wrap=arch_clock_is_steady $(TEST_LIBS)

memory := malloc calloc realloc reallocarray strdup
$(O)/tests/unit/points_memory: TEST_LIBS := $(memory:%=-Wl,--wrap=%) $(TEST_LIBS)

mishaps := $(memory) open openat __openat_2 opendir fopen read __read_chk pread write renameat ftruncate \
	fallocate mmap pthread_create fork timer_create pipe2 \
	process_vm_readv pwrite poll waitid flock syscall readdir readlink readlinkat getdelim fgets ptrace
$(filter $(O)/tests/live/mishaps% $(O)/tests/live/unread%,$(live_bin)) $(O)/tests/unit/image_debug: TEST_LIBS := $(mishaps:%=-Wl,--wrap=%) $(TEST_LIBS)

# The library as its users link it.
$(O)/tests/live/library $(O)/tests/live/library_daemons: $(O)/libdinst.a
$(O)/tests/live/library $(O)/tests/live/library_daemons: TEST_LIBS := $(O)/libdinst.a $(TEST_LIBS)

$(live_bin): | $(target_bin) $(if $(ONLY),,$(programs))

# A target program's own flags are in a comment in its first lines.
own_flags = $(shell sed -n '1,4s,^/\* build: \(.*\) \*/.*,\1,p' $<)
TARGET_FLAGS := -O2 -g -pthread -D_GNU_SOURCE -Wall
# One may include another one.
target_deps = -MMD -MP -MF $@.d -MT $@

$(O)/$(target_dir)/lib%.so: $(target_dir)/lib%.c
	@mkdir -p $(@D)
	$(call say,CC)
	$(Q)$(TARGET_CC) $(TARGET_FLAGS) $(target_deps) -shared -fPIC -o $@ $< $(own_flags)

$(O)/$(target_dir)/%: $(target_dir)/%.c $(target_shared)
	@mkdir -p $(@D)
	$(call say,CC)
	$(Q)$(TARGET_CC) $(TARGET_FLAGS) $(target_deps) -o $@ $< $(own_flags)

$(O)/$(target_dir)/%: $(target_dir)/%.cc $(target_shared)
	@mkdir -p $(@D)
	$(call say,CXX)
	$(Q)$(TARGET_CXX) $(TARGET_FLAGS) $(target_deps) -o $@ $< $(own_flags)

$(O)/$(target_dir)/%: $(target_dir)/%.S $(target_shared)
	@mkdir -p $(@D)
	$(call say,CC)
	$(Q)$(TARGET_CC) $(TARGET_FLAGS) $(target_deps) -o $@ $< $(own_flags)

# The tortured target is one program of many files, in a form that runs
# anywhere and one that runs where it was linked.
asm_dir := tests/live/asm
asm_objects = $(patsubst $(asm_dir)/%,$(O)/$(asm_dir)/$(1)/%.o,\
	$(foreach suffix,c S cc,$(sort $(wildcard $(asm_dir)/*.$(suffix)))))
asm_flags_pie := -fPIE
asm_flags_fixed := -fno-pie -DFIXED
asm_compiler = $(if $(filter %.cc,$<),$(TARGET_CXX),$(TARGET_CC))

define asm_rule
$(O)/$(asm_dir)/$(1)/%.o: $(asm_dir)/% $(wildcard $(asm_dir)/*.h $(asm_dir)/*.inc)
	@mkdir -p $$(@D)
	$$(call say,CC)
	$$(Q)$$(asm_compiler) $(TARGET_FLAGS) -Wextra -I. $(asm_flags_$(1)) -c -o $$@ $$<
endef
$(foreach form,pie fixed,$(eval $(call asm_rule,$(form))))

$(O)/$(target_dir)/torture: $(call asm_objects,pie)
	@mkdir -p $(@D)
	$(call say,LINK)
	$(Q)$(TARGET_CXX) -pthread -pie -Wl,-z,now -o $@ $^

$(O)/$(target_dir)/torture-fixed: $(call asm_objects,fixed)
	@mkdir -p $(@D)
	$(call say,LINK)
	$(Q)$(TARGET_CXX) -pthread -no-pie -Wl,-z,now -o $@ $^

# Those of the library are built as a user would, from the header and the archive alone.
$(O)/examples/lib/%: examples/lib/%.c lib/dinst.h $(O)/libdinst.a
	@mkdir -p $(@D)
	$(call say,CC)
	$(Q)$(TARGET_CC) -std=gnu11 -O2 -g $(WARNINGS) -Ilib $(if $(SAN),-fsanitize=$(SAN)) -o $@ $< $(O)/libdinst.a $(LDFLAGS) $(JANSSON_LIBS)

$(O)/examples/%: examples/%.c
	@mkdir -p $(@D)
	$(call say,CC)
	$(Q)$(TARGET_CC) -std=gnu11 -O2 -g -pthread -D_GNU_SOURCE $(WARNINGS) -o $@ $< $(own_flags)

export DINST_BUILD := $(O)
run := CC='$(CC)' tests/run.sh $(if $(SAN)$(SLOW),-t 1200)

unit: $(unit_bin) $(target_bin)
	$(run) -p $(unit_bin)

live: all examples $(live_bin)
	$(run) $(live_bin)

real: all examples $(tool_bin)
	$(run) -t 1800 $(real_scripts)

# Each for FUZZ_SECONDS with clang's engine; without clang, as tests (tests/fuzz/engine.sh).
fuzz: all $(fuzz_bin) $(target_bin)
	tests/fuzz/engine.sh $(notdir $(fuzz_bin))

fuzz-tests: all $(fuzz_bin) $(target_bin)
	$(run) -p $(fuzz_bin)

# The fuzzers for the engine; built by tests/fuzz/engine.sh, with clang and sanitizers.
fuzz-engine: $(fuzz_bin)

hostile: tests
	tests/hostile/run.sh $(hostile_scripts)

kills: tests
	KILLS=$${KILLS:-1000} tests/run.sh -t 7200 tests/hostile/kills.sh

safety:
	tests/fears.sh --write

test: tests
	DINST_SHORT=1 $(run) -t 1800 -p $(unit_bin) $(fuzz_bin) -s $(live_bin) \
		$(filter-out %/longer.sh,$(hostile_scripts)) $(real_scripts) $(install_scripts)

# One table, against what else is installed; what it is made of in docs/performance.md. Then how
# long a program stands still: distributions, beside those of stops that do nothing.
bench: all $(O)/tests/bench/stops
	tests/bench/table.py
	$(O)/tests/bench/stops

# The pieces: decoding, kinds of points, primitives, stops, attaching to large programs.
bench-parts: all examples $(bench_bin)
	tests/bench/run.sh

bare:
	tests/bare.sh

# KERNELS: Debian's packages of kernels, each of which is booted in an emulator; takes an hour.
kernels:
	tests/kernels.sh

# Which lines the tests reach: a table with the lines of each file that none reached, the least
# covered first, and the figure. Tests that fail are told, and the table is made all the same.
COVERED := 85
coverage: need-gcovr
	@! test -d $(O)-coverage || find $(O)-coverage -name '*.gcda' -delete
	@failed=0; \
	$(MAKE) O=$(O)-coverage OPT='$(LOOKED_AT)' SLOW=1 LDFLAGS=--coverage \
		CFLAGS='--coverage -fprofile-update=atomic -DDINST_SLOW' -k unit live fuzz-tests || failed=1; \
	gcovr --root . --object-directory $(O)-coverage --sort-percentage --print-summary \
		--filter 'arch/' --filter inject/ --filter mutator/ --filter daemon/ --filter lib/ \
		--exclude arch/aarch64 --fail-under-line $(COVERED) || failed=1; \
	exit $$failed

demo: all examples
	examples/demo.sh

# ------------------------------------------------------------ keeping house

# Tools that only developers need, each in the package of its name; ./bootstrap deps has them all.
developer_tools := clang-format clang-tidy cppcheck gcovr valgrind
.PHONY: $(developer_tools:%=need-%)
$(developer_tools:%=need-%): need-%:
	@command -v $* >/dev/null || { \
		echo "make: $* is not installed; on Debian: apt-get install $* (or ./bootstrap deps, which installs all tools)" >&2; \
		exit 1; }

style_src = $(shell git ls-files -co --exclude-standard '*.c' '*.h')

lint:
	CC='$(CC)' tests/lint.sh

# What is looked at without running it: lint is in CI, the others take their minutes.
check: need-cppcheck need-clang-tidy lint cppcheck tidy

# What clang-tidy says of our sources; .clang-tidy has its questions. A quarter of an hour of
# one processor at first; a file is asked about again when it or a header of it has changed.
tidy_src := $(arch_src) $(inject_src) mutator/main.c $(mutator_src) $(wildcard mutator/mdl/*.c) \
	$(common_src) $(server_src) $(client_src) $(wildcard lib/*.c)
tidy_flags = $(filter-out -D_FORTIFY_SOURCE=%,$(filter -std=% -D% -I%,$(ALL_CFLAGS))) -I$(O)

tidy: need-clang-tidy $(tidy_src:%.c=$(O)/%.tidy)

$(O)/%.tidy: %.c $(O)/%.o .clang-tidy | need-clang-tidy
	$(call say,TIDY)
	$(Q)clang-tidy --quiet $< -- $(tidy_flags) 2>/dev/null
	@touch $@

# The same for cppcheck (20 s of one processor); .cppcheck has what it is not to say, and why.
cppcheck: need-cppcheck
	cppcheck -q -j$$(nproc) --std=c11 --enable=warning,performance,portability --error-exitcode=1 \
		--suppressions-list=.cppcheck --include=tests/tools/cppcheck.h --max-configs=2 \
		-I. -Iarch/$(ARCH) -D__x86_64__ -D_GNU_SOURCE \
		arch/common arch/$(ARCH) inject mutator daemon lib

# The unit tests that run no generated code. valgrind 3.19 knows no openat2() (image_debug), no
# process by its descriptor (inject_journal), and no page that a signal handler puts where one
# was missing (image_cut). It makes system calls of its own, which a filter sees (types_reader,
# types_describe), its stack has no name (inject_maps), and its clocks are late (variable_values).
# With DINST_MEMCHECK tests leave out what measures memory, or has a thread write while another reads.
valgrind_not := $(addprefix %/,image_debug inject_journal image_cut types_reader types_describe inject_maps variable_values)
valgrind_bin := $(filter-out $(valgrind_not),$(filter $(addprefix $(O)/tests/unit/,daemon_% \
	evaluate_% image_% inject_% mdl_% points_plan report_% search search_% stream_% types_% variable_%),$(unit_bin)))

# In a build of its own: what we ship fills variables with zeros, and valgrind would not see that
# nobody has set them.
valgrind: need-valgrind
	$(MAKE) O=$(O)-valgrind OPT='$(LOOKED_AT)' HARDENING= memcheck

memcheck: $(valgrind_bin) $(target_bin)
	@failed=0; for test in $(valgrind_bin); do \
		printf '  %-5s %s\n' MEM $${test##*/}; \
		DINST_MEMCHECK=1 valgrind -q --error-exitcode=99 --leak-check=full --show-leak-kinds=definite \
			--errors-for-leak-kinds=definite --child-silent-after-fork=yes \
			$$test >$(O)/valgrind-$${test##*/}.log 2>&1 || \
			{ cat $(O)/valgrind-$${test##*/}.log; failed=1; }; \
	done; exit $$failed

# Races of dinstd, which looks names up in threads, and of the mutator, which serves in one and measures
# its clock in others, under the thread sanitizer: the tests that have them at work.
race_bin := $(filter $(addprefix $(O)/tests/live/,daemon_% mdl_clock),$(live_bin))

races:
	TSAN_OPTIONS='suppressions=$(CURDIR)/.tsan' $(MAKE) O=$(O)-races SAN=thread racing

racing: all examples $(race_bin) $(target_bin) $(tool_bin)
	$(run) $(race_bin)

fmt: need-clang-format
	clang-format -i $(style_src)

version = $(shell sed -n 's/^.define DINST_VERSION "\(.*\)"/\1/p' daemon/common/paths.h)

install: all
	$(INSTALL) -d $(DESTDIR)$(bindir) $(DESTDIR)$(sbindir) $(DESTDIR)$(libexecdir) $(DESTDIR)$(datadir)/metrics
	$(INSTALL) -m 755 $(O)/dinst $(DESTDIR)$(bindir)/dinst
	$(INSTALL) -m 755 $(O)/dinstd $(DESTDIR)$(sbindir)/dinstd
	$(INSTALL) -m 755 $(O)/dinst-mutator $(DESTDIR)$(libexecdir)/dinst-mutator
	@set -e; for page in $(man_pages); do \
		dir=$(DESTDIR)$(mandir)/man$${page##*.}; \
		$(INSTALL) -d $$dir; $(INSTALL) -m 644 $$page $$dir/; \
	done
	@set -e; for file in $(data_files); do $(INSTALL) -m 644 $$file $(DESTDIR)$(datadir)/metrics/; done
	$(INSTALL) -d $(DESTDIR)$(libdir)/pkgconfig $(DESTDIR)$(includedir)
	$(INSTALL) -m 644 lib/dinst.h $(DESTDIR)$(includedir)/dinst.h
	$(INSTALL) -m 644 $(O)/libdinst.a $(O)/$(library_real) $(DESTDIR)$(libdir)/
	ln -sf $(library_real) $(DESTDIR)$(libdir)/$(library_soname)
	ln -sf $(library_soname) $(DESTDIR)$(libdir)/libdinst.so
	sed -e 's,@prefix@,$(PREFIX),; s,@libdir@,$(libdir),; s,@includedir@,$(includedir),; s,@version@,$(version),' \
		lib/dinst.pc.in > $(DESTDIR)$(libdir)/pkgconfig/dinst.pc
	chmod 644 $(DESTDIR)$(libdir)/pkgconfig/dinst.pc
	$(INSTALL) -d $(DESTDIR)$(bashcompdir) $(DESTDIR)$(zshcompdir) $(DESTDIR)$(fishcompdir)
	$(INSTALL) -m 644 completions/dinst.bash $(DESTDIR)$(bashcompdir)/dinst
	$(INSTALL) -m 644 completions/_dinst $(DESTDIR)$(zshcompdir)/_dinst
	$(INSTALL) -m 644 completions/dinst.fish $(DESTDIR)$(fishcompdir)/dinst.fish

# Packages for Debian in $(O)/deb; built with the prefix that they are for.
deb:
	$(MAKE) O=$(O)/deb/build PREFIX=/usr all
	packaging/deb.sh $(O)/deb/build $(O)/deb

uninstall:
	rm -f $(DESTDIR)$(bashcompdir)/dinst $(DESTDIR)$(zshcompdir)/_dinst $(DESTDIR)$(fishcompdir)/dinst.fish
	rm -f $(DESTDIR)$(includedir)/dinst.h $(DESTDIR)$(libdir)/pkgconfig/dinst.pc
	rm -f $(addprefix $(DESTDIR)$(libdir)/,libdinst.a $(library_real) $(library_soname) libdinst.so)
	rm -f $(DESTDIR)$(bindir)/dinst $(DESTDIR)$(sbindir)/dinstd $(DESTDIR)$(libexecdir)/dinst-mutator
	rm -f $(foreach page,$(man_pages),$(DESTDIR)$(mandir)/man$(subst .,,$(suffix $(page)))/$(notdir $(page)))
	rm -f $(foreach file,$(data_files),$(DESTDIR)$(datadir)/metrics/$(notdir $(file)))
	-rmdir $(DESTDIR)$(libexecdir) $(DESTDIR)$(datadir)/metrics $(DESTDIR)$(datadir) 2>/dev/null

clean:
	rm -rf $(O)

-include $(shell test -d $(O) && find $(O) -type f -name '*.d' 2>/dev/null)
