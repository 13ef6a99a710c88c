/* SPDX-License-Identifier: MIT */
/*
 * image_compressed.c - names in .gnu_debugdata that cannot be had, or are not the file's: it is as without them.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka wants the four above */
#include <cmocka.h>

#include <dlfcn.h>

#include "tests/unit/image_bytes.h"

static bool is_killed;

/* The library's, in the child that decompresses. */
lzma_ret lzma_stream_decoder(lzma_stream *stream, uint64_t most, uint32_t flags)
{
	lzma_ret (*real)(lzma_stream *, uint64_t, uint32_t);

	if (is_killed)
		__builtin_trap();
	*(void **)&real = dlsym(RTLD_NEXT, "lzma_stream_decoder");
	return real(stream, most, flags);
}

static struct image *open_good(const struct bytes *b)
{
	struct dinst_error e = {0};
	struct image *img = open_bytes(b, "file", NULL, &e);

	if (!img)
		fail_msg("%s", e.text);
	return img;
}

/* A file whose names are those of `with`, compressed. */
static struct bytes with_names_of(const struct bytes *with)
{
	struct bytes bare = target_bytes("image-cxx"), packed = compress(with);

	hide_symbols(&bare);
	add_section(&bare, ".gnu_debugdata", packed.p, packed.size);
	free(packed.p);
	return bare;
}

/* fear F5: what decompresses is killed, for want of memory, say: the file is not damaged, and is done without these names */
static void test_killed(void **unused)
{
	struct bytes whole = target_bytes("image-cxx"), bare = with_names_of(&whole);
	struct image *img;
	uint32_t flags;

	(void)unused;
	is_killed = true;
	img = open_good(&bare);
	assert_false(image_name_flags(img, "mostly_warm.cold", &flags));
	image_close(img);
	is_killed = false;
	img = open_good(&bare);
	assert_true(image_name_flags(img, "mostly_warm.cold", &flags));
	image_close(img);
	free(bare.p);
	free(whole.p);
}

/* fear F5: of a file whose code lies elsewhere nothing stays: what says where functions are wrongly says so of variables */
static void test_of_other_code(void **unused)
{
	struct bytes other = target_bytes("image-cxx"), bare;
	struct image *img;

	(void)unused;
	move_code(&other);
	bare = with_names_of(&other);
	img = open_good(&bare);
	assert_null(img->mini.bytes);
	image_close(img);
	free(bare.p);
	free(other.p);
}

/* As strip leaves a static program: no name is in the file itself. */
static void wipe_names(struct bytes *b)
{
	const Elf64_Ehdr *h = (const Elf64_Ehdr *)b->p;

	for (unsigned i = 0; i < h->e_shnum; i++)
		if (sections(b)[i].sh_type == SHT_STRTAB && i != h->e_shstrndx)
			memset(b->p + sections(b)[i].sh_offset, 0, sections(b)[i].sh_size);
}

static struct image *open_wiped(const char *name, const struct bytes *with)
{
	struct bytes bare = target_bytes(name), packed = compress(with);
	struct image *img;

	hide_symbols(&bare);
	wipe_names(&bare);
	add_section(&bare, ".gnu_debugdata", packed.p, packed.size);
	img = open_good(&bare);
	free(packed.p);
	free(bare.p);
	return img;
}

/* fear H5: OCaml's stacks are small, too, where only compressed names tell that it is OCaml */
static void test_ocaml(void **unused)
{
	struct bytes whole = target_bytes("points-ocaml-5");
	struct image *img = open_wiped("points-ocaml-5", &whole);
	const struct image_function *functions;
	const size_t count = image_functions(img, &functions);
	size_t found = 0;
	bool runtime;

	(void)unused;
	for (size_t i = 0; i < count; i++)
		if (!strcmp(functions[i].name, "camlThree.looks_1")) {
			assert_true(image_grows_stack(img, functions[i].address, &runtime));
			found++;
		}
	assert_int_equal(found, 1);
	image_close(img);
	free(whole.p);
}

/* What makes exceptions of faults is known for it by `to` in place of `from`, and is not without. */
static void check_turns_faults(const char *from, const char *to, size_t size)
{
	struct bytes whole = target_bytes("image-cxx");
	struct image *img = open_wiped("image-cxx", &whole);
	uint8_t *at = whole.p;

	assert_false(image_turns_faults(img));
	image_close(img);
	while ((at = memmem(at, whole.size - (size_t)(at - whole.p), from, size)))
		memcpy(at, to, size);
	img = open_wiped("image-cxx", &whole);
	assert_true(image_turns_faults(img));
	image_close(img);
	free(whole.p);
}

/* fear E1: what makes exceptions of faults is known for it where only compressed names tell */
static void test_gnat(void **unused)
{
	static const char from[] = "\0mostly_warm", to[] = "\0__gnat_warm";

	(void)unused;
	check_turns_faults(from, to, sizeof(from) - 1);
}

/* fear E1: gccgo's runtime unwinds from faults: what it has compiled is known by names, and by its section where these are gone */
static void test_gccgo(void **unused)
{
	static const char from[] = "\0mostly_warm", to[] = "\0__go_s_warm";
	static const char section[] = "\0.init_array", exports[] = "\0.go_export\0";
	struct bytes whole = target_bytes("image-cxx");
	struct image *img;
	uint8_t *at;

	(void)unused;
	check_turns_faults(from, to, sizeof(from) - 1);
	at = memmem(whole.p, whole.size, section, sizeof(section) - 1);
	assert_non_null(at);
	memcpy(at, exports, sizeof(exports) - 1);
	img = open_good(&whole);
	assert_true(image_turns_faults(img));
	image_close(img);
	free(whole.p);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_killed), cmocka_unit_test(test_of_other_code),
		cmocka_unit_test(test_ocaml),  cmocka_unit_test(test_gnat),
		cmocka_unit_test(test_gccgo),
	};

	alarm(120);
	return cmocka_run_group_tests_name("image: compressed names", tests, NULL, NULL);
}
