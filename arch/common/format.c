/* SPDX-License-Identifier: MIT */
/*
 * format.c - assembler text for people, by capstone. Besides the
 * architectures' describe.c the only file that knows capstone; its handle belongs to a thread and is opened when first needed.
 */
#include <capstone/capstone.h>
#include <pthread.h>
#include <stdio.h>

#include "arch/common/common.h"

static pthread_key_t handle_key;
static pthread_once_t handle_once = PTHREAD_ONCE_INIT;
static bool handle_usable;

static void close_handle(void *value)
{
	csh handle = (csh)(uintptr_t)value;

	cs_close(&handle);
}

static void make_key(void)
{
	handle_usable = pthread_key_create(&handle_key, close_handle) == 0;
}

/* 0 if there is none: then the text is the bytes. */
static csh thread_handle(void)
{
	csh handle;

	if (pthread_once(&handle_once, make_key) != 0 || !handle_usable)
		return 0;
	handle = (csh)(uintptr_t)pthread_getspecific(handle_key);
	if (handle)
		return handle;
	if (cs_open((cs_arch)arch_disassembler.arch, (cs_mode)arch_disassembler.mode, &handle) !=
	    CS_ERR_OK)
		return 0;
	if ((arch_disassembler.syntax &&
	     cs_option(handle, CS_OPT_SYNTAX, (size_t)arch_disassembler.syntax) != CS_ERR_OK) ||
	    pthread_setspecific(handle_key, (void *)(uintptr_t)handle) != 0) {
		cs_close(&handle);
		return 0;
	}
	return handle;
}

static void format_bytes(const struct arch_insn *insn, char *text, size_t size)
{
	size_t used = 0;
	int n = snprintf(text, size, ".byte");

	for (unsigned i = 0; n > 0 && i < insn->length; i++) {
		used += n;
		if (used >= size)
			return;
		n = snprintf(text + used, size - used, "%s0x%02x", i ? "," : " ", insn->bytes[i]);
	}
}

void arch_format(const struct arch_insn *insn, char *text, size_t size)
{
	csh handle = thread_handle();
	cs_insn *decoded = NULL;
	size_t count = 0;

	if (size == 0)
		return;
	if (handle)
		count = cs_disasm(handle, insn->bytes, insn->length, insn->address, 1, &decoded);
	if (count == 1 && decoded->size == insn->length)
		snprintf(text, size, "%s%s%s", decoded->mnemonic, decoded->op_str[0] ? " " : "",
			 decoded->op_str);
	else
		format_bytes(insn, text, size);
	if (count)
		cs_free(decoded, count);
}
