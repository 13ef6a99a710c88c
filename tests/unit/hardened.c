/* SPDX-License-Identifier: MIT */
/*
 * hardened.c - the three programs and the library as they were built have what makes
 * mistakes in them harder to use: an address of their own each time, no memory that can
 * be both written and executed, tables of the linker that are read-only, checked stacks
 * and checked copies, marks where indirect branches may lead.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <elf.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

struct program {
	uint8_t *bytes;
	size_t size;
	const Elf64_Ehdr *header;
	const Elf64_Phdr *segments;
};

static void open_program(struct program *p, const char *name)
{
	const char *build = getenv("DINST_BUILD");
	char path[4096];
	struct stat st;
	int fd;

	snprintf(path, sizeof(path), "%s/%s", build ? build : "build", name);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0) {
		print_message("skipped: there is no %s\n", path);
		skip();
	}
	assert_int_equal(fstat(fd, &st), 0);
	p->size = (size_t)st.st_size;
	p->bytes = mmap(NULL, p->size, PROT_READ, MAP_PRIVATE, fd, 0);
	assert_ptr_not_equal(p->bytes, MAP_FAILED);
	close(fd);
	p->header = (const Elf64_Ehdr *)p->bytes;
	p->segments = (const Elf64_Phdr *)(p->bytes + p->header->e_phoff);
}

static const Elf64_Phdr *segment(const struct program *p, uint32_t type)
{
	for (unsigned i = 0; i < p->header->e_phnum; i++)
		if (p->segments[i].p_type == type)
			return &p->segments[i];
	return NULL;
}

/* The value of a dynamic tag; false if there is none. */
static bool dynamic(const struct program *p, int64_t tag, uint64_t *value)
{
	const Elf64_Phdr *s = segment(p, PT_DYNAMIC);
	const Elf64_Dyn *d;

	assert_non_null(s);
	d = (const Elf64_Dyn *)(p->bytes + s->p_offset);
	for (; d->d_tag != DT_NULL; d++)
		if (d->d_tag == tag) {
			*value = d->d_un.d_val;
			return true;
		}
	return false;
}

/* True if a dynamic symbol is called so; `end` true: if one ends so. */
static bool imports(const struct program *p, const char *name, bool end)
{
	const Elf64_Shdr *sections = (const Elf64_Shdr *)(p->bytes + p->header->e_shoff);
	size_t length = strlen(name);

	for (unsigned i = 0; i < p->header->e_shnum; i++) {
		const Elf64_Sym *symbols = (const Elf64_Sym *)(p->bytes + sections[i].sh_offset);
		const char *names;

		if (sections[i].sh_type != SHT_DYNSYM)
			continue;
		names = (const char *)p->bytes + sections[sections[i].sh_link].sh_offset;
		for (size_t k = 0; k < sections[i].sh_size / sizeof(*symbols); k++) {
			const char *symbol = names + symbols[k].st_name;
			size_t its = strlen(symbol);

			if (end ? its > length && !strcmp(symbol + its - length, name)
				: !strcmp(symbol, name))
				return true;
		}
	}
	return false;
}

static const uint8_t *code_at(const struct program *p, uint64_t address)
{
	for (unsigned i = 0; i < p->header->e_phnum; i++) {
		const Elf64_Phdr *s = &p->segments[i];

		if (s->p_type == PT_LOAD && address >= s->p_vaddr &&
		    address - s->p_vaddr + 4 <= s->p_filesz)
			return p->bytes + s->p_offset + (address - s->p_vaddr);
	}
	fail_msg("no code at %#llx", (unsigned long long)address);
	return NULL;
}

/*
 * main() of a program, or all that a library exports, begins with endbr64: -fcf-protection. Returns how
 * many there are.
 */
static unsigned check_marks(const struct program *p, bool library)
{
	static const uint8_t endbr64[] = {0xf3, 0x0f, 0x1e, 0xfa};
	const Elf64_Shdr *sections = (const Elf64_Shdr *)(p->bytes + p->header->e_shoff);
	unsigned found = 0;

	for (unsigned i = 0; i < p->header->e_shnum; i++) {
		const Elf64_Sym *symbols = (const Elf64_Sym *)(p->bytes + sections[i].sh_offset);
		const char *names;

		if (sections[i].sh_type != (library ? SHT_DYNSYM : SHT_SYMTAB))
			continue;
		names = (const char *)p->bytes + sections[sections[i].sh_link].sh_offset;
		for (size_t k = 0; k < sections[i].sh_size / sizeof(*symbols); k++) {
			const Elf64_Sym *s = &symbols[k];

			if (!s->st_shndx || ELF64_ST_TYPE(s->st_info) != STT_FUNC ||
			    (!library && strcmp(names + s->st_name, "main")))
				continue;
			if (memcmp(code_at(p, s->st_value), endbr64, sizeof(endbr64)))
				fail_msg("%s is not marked", names + s->st_name);
			found++;
		}
	}
	return found;
}

static void check_segments(const struct program *p, bool library)
{
	const Elf64_Phdr *stack = segment(p, PT_GNU_STACK);

	assert_int_equal(p->header->e_type, ET_DYN);
	assert_int_equal(segment(p, PT_INTERP) == NULL, library);
	assert_non_null(segment(p, PT_GNU_RELRO));
	assert_non_null(stack);
	assert_false(stack->p_flags & PF_X);
	for (unsigned i = 0; i < p->header->e_phnum; i++) {
		const Elf64_Phdr *s = &p->segments[i];

		if (s->p_type != PT_LOAD)
			continue;
		assert_int_not_equal(s->p_flags & (PF_W | PF_X), PF_W | PF_X);
		/* headers and tables are no code */
		if (s->p_offset == 0)
			assert_false(s->p_flags & PF_X);
	}
}

static void check_linking(const struct program *p, bool library)
{
	uint64_t value = 0;

	assert_true(dynamic(p, DT_FLAGS_1, &value));
	assert_true(value & DF_1_NOW);
	assert_int_equal(!(value & DF_1_PIE), library);
	assert_false(dynamic(p, DT_TEXTREL, &value));
	/* libraries come from where the system has them */
	assert_false(dynamic(p, DT_RPATH, &value));
	assert_false(dynamic(p, DT_RUNPATH, &value));
}

/* fear L1: what an enemy might find in our programs is hard to use; all three are built so, and the library */
static void test_programs(void **unused)
{
	static const char *const names[] = {"dinst", "dinstd", "dinst-mutator", "libdinst.so"};

	(void)unused;
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		const bool library = strstr(names[i], ".so") != NULL;
		struct program p;

		open_program(&p, names[i]);
		if (imports(&p, "__asan_init", false) ||
		    imports(&p, "__ubsan_handle_type_mismatch_v1", false)) {
			print_message("skipped: built with sanitizers\n");
			skip();
		}
		check_segments(&p, library);
		check_linking(&p, library);
		if (p.header->e_machine == EM_X86_64)
			assert_true(check_marks(&p, library) >= 1);
		assert_true(imports(&p, "__stack_chk_fail", false));
		assert_true(imports(&p, "_chk", true));
		munmap(p.bytes, p.size);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_programs)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
