/* SPDX-License-Identifier: MIT */
/*
 * image_debug.c (test) - symbols that are not in the file itself: in a debug
 * file found by build id or by name and checksum, or compressed inside.
 *
 * The file is a test target whose symbol table is hidden; what is added to it
 * is put together here.
 */
#include <errno.h>
#include <fcntl.h>
#include <lzma.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>
#include <elf.h>

#include "inject/proc.h"
#include "mutator/image_private.h"
#include "mutator/types_reader.h"
#include "tests/live/mishaps.h"
#include "tests/unit/image_bytes.h"

/* Is the local function of image-cxx known by its name? */
static bool knows_names(const struct bytes *b, const char *name, const char *root)
{
	struct dinst_error e = {0};
	struct image *img = open_bytes(b, name, root, &e);
	uint32_t flags;
	bool yes;

	if (!img)
		fail_msg("%s", e.text);
	yes = image_name_flags(img, "mostly_warm.cold", &flags);
	if (yes)
		assert_true(flags & FUNCTION_COLD);
	image_close(img);
	return yes;
}

/* As strip -g leaves it: names are there, and no debug information. */
static void hide_types(struct bytes *b)
{
	Elf64_Ehdr *h = (Elf64_Ehdr *)b->p;
	const char *names = (const char *)b->p + sections(b)[h->e_shstrndx].sh_offset;

	for (unsigned i = 0; i < h->e_shnum; i++)
		if (strstr(names + sections(b)[i].sh_name, "debug_") ==
		    names + sections(b)[i].sh_name + 1)
			sections(b)[i].sh_type = SHT_NOBITS;
}

/* Is it known what a function of typed takes? */
static bool knows_types(const struct bytes *b, const char *root)
{
	struct dinst_error e = {0};
	struct image *img = open_bytes(b, "file", root, &e);
	struct type_function f;
	uint32_t *found;
	size_t count;

	if (!img)
		fail_msg("%s", e.text);
	assert_int_equal(image_match(img, "takes_small", &found, &count, &e), 0);
	assert_int_equal(count, 1);
	types_of_function(img, found[0], &f);
	free(found);
	image_close(img);
	return f.known;
}

/* ------------------------------------------------------------ a root of files */

static char root[64];

static int make_root(void **unused)
{
	(void)unused;
	snprintf(root, sizeof(root), "/tmp/dinst-debug-XXXXXX");
	return mkdtemp(root) ? 0 : -1;
}

static int remove_root(void **unused)
{
	char command[128];

	(void)unused;
	snprintf(command, sizeof(command), "rm -rf '%s'", root);
	return system(command);
}

static void make_directories(const char *path)
{
	char text[512];

	snprintf(text, sizeof(text), "%s", path);
	for (char *p = text + strlen(root) + 1; (p = strchr(p, '/')); p++) {
		*p = 0;
		mkdir(text, 0755);
		*p = '/';
	}
}

static void write_file(const char *path, const struct bytes *b)
{
	int fd;

	make_directories(path);
	fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
	assert_true(fd >= 0);
	assert_int_equal(write(fd, b->p, b->size), b->size);
	close(fd);
}

/* ROOT/usr/lib/debug/.build-id/ab/cdef.debug of the file. */
static void build_id_path(const struct bytes *b, char *path, size_t size)
{
	struct dinst_error e = {0};
	struct image *img = open_bytes(b, "file", NULL, &e);
	const uint8_t *id;
	size_t length, used;

	assert_non_null(img);
	id = image_build_id(img, &length);
	assert_non_null(id);
	used = snprintf(path, size, "%s/usr/lib/debug/.build-id/%02x/", root, id[0]);
	for (size_t i = 1; i < length; i++)
		used += snprintf(path + used, size - used, "%02x", id[i]);
	snprintf(path + used, size - used, ".debug");
	image_close(img);
}

/* The types are in a file of their own, the names are not (strip -g). */
static void test_types_only(void **unused)
{
	struct bytes whole = target_bytes("typed"), bare = target_bytes("typed");
	char path[512];

	(void)unused;
	hide_types(&bare);
	build_id_path(&bare, path, sizeof(path));
	assert_true(knows_types(&whole, root));
	assert_false(knows_types(&bare, root));
	write_file(path, &whole);
	assert_true(knows_types(&bare, root));
	assert_false(knows_types(&bare, NULL));
	unlink(path);
	free(whole.p);
	free(bare.p);
}

/* What is known of typed-shared's function, which shares its types with the file at `path`. */
static void shared_types(const char *path, struct type_function *f)
{
	struct bytes b = target_bytes("typed-shared"), types = target_bytes("typed-shared-types");
	struct dinst_error e = {0};
	struct image *img = open_bytes(&types, "types", NULL, &e);
	uint8_t link[4096 + 64];
	const uint8_t *id;
	uint32_t *found;
	size_t size, used = strlen(path) + 1, count;

	assert_non_null(img);
	id = image_build_id(img, &size);
	assert_non_null(id);
	memcpy(link, path, used);
	memcpy(link + used, id, size);
	image_close(img);
	add_section(&b, ".gnu_debugaltlink", link, used + size);
	img = open_bytes(&b, "file", "/", &e);
	assert_non_null(img);
	assert_int_equal(image_match(img, "takes_shared", &found, &count, &e), 0);
	types_of_function(img, found[0], f);
	free(found);
	image_close(img);
	free(b.p);
	free(types.p);
}

/* Types that dwz has put into a file that several share; without it nothing is known of where anything is. */
static void test_shared_types(void **unused)
{
	const char *build = getenv("DINST_BUILD");
	struct type_function f;
	char path[4096], relative[512];

	(void)unused;
	snprintf(relative, sizeof(relative), "%s/tests/live/targets/typed-shared-types",
		 build ? build : "build");
	assert_non_null(realpath(relative, path));
	for (int by_child = 0; by_child < 2; by_child++) {
		types_reader_enable(by_child);
		shared_types(path, &f);
		assert_true(f.known);
		assert_int_equal(f.argument_count, 2);
		assert_int_equal(f.arguments[0].kind, TYPE_FLOAT);
		assert_int_equal(f.arguments[0].size, 8);
		assert_int_equal(f.arguments[1].kind, TYPE_INTEGER);
		assert_true(f.result.kind == TYPE_INTEGER && f.result.is_signed &&
			    f.result.size == 4);
		shared_types("/no/such/file", &f);
		assert_false(f.known);
		assert_int_equal(f.argument_count, 0);
	}
	types_reader_enable(false);
}

/* Opens the file while a call fails: it comes with its names, or not at all where we have too little of something. */
static void open_unlucky(const struct bytes *b, struct mishap *m)
{
	const int fd = memfd_create("image", MFD_CLOEXEC);
	struct dinst_error e = {0};
	struct image *img = NULL;
	uint32_t flags;
	int status;

	assert_int_equal(write(fd, b->p, b->size), b->size);
	mishap_begin();
	status = image_open(fd, "/file", root, &img, &e);
	mishap_end();
	close(fd);
	if (status ? status != DINST_NO_MEMORY || !proc_is_lack(-m->error)
		   : !image_name_flags(img, "mostly_warm.cold", &flags))
		fail_msg("%s %lu (%s): %d, %s", mishap_name(m->kind), m->at, strerror(m->error),
			 status, status ? e.text : "without the debug file");
	image_close(img);
}

/*
 * fear F5: no descriptor is left when the debug file is to be opened, or somebody renames directories meanwhile: that is not
 * taken for having none, as long as the session lasts
 */
static void test_unopened(void **unused)
{
	static const struct mishap kinds[] = {{.kind = MISHAP_OPEN, .error = EMFILE},
					      {.kind = MISHAP_CALL, .error = ENFILE},
					      {.kind = MISHAP_CALL, .error = EAGAIN},
					      {.kind = MISHAP_CALL, .error = EINTR, .count = 3}};
	struct bytes whole = target_bytes("image-cxx"), bare = target_bytes("image-cxx");
	char path[512];

	(void)unused;
	hide_symbols(&bare);
	build_id_path(&bare, path, sizeof(path));
	write_file(path, &whole);
	for (size_t i = 0; i < sizeof(kinds) / sizeof(*kinds); i++)
		for (struct mishap m = kinds[i]; next_mishap(&m);) {
			mishap_end();
			open_unlucky(&bare, &m);
		}
	unlink(path);
	free(whole.p);
	free(bare.p);
}

/* fear L1, L3: what lies where the debug file of a target is looked for: the right one, and everything else */
static void test_by_build_id(void **unused)
{
	struct bytes whole = target_bytes("image-cxx"), bare = target_bytes("image-cxx");
	const int opens = inotify_init1(IN_NONBLOCK | IN_CLOEXEC);
	struct inotify_event event;
	char path[512], elsewhere[512];

	(void)unused;
	hide_symbols(&bare);
	build_id_path(&bare, path, sizeof(path));
	assert_false(knows_names(&bare, "file", root));
	assert_false(knows_names(&bare, "file", NULL));
	write_file(path, &whole);
	assert_true(knows_names(&bare, "file", root));
	assert_false(knows_names(&bare, "file", NULL));
	/* A link is followed inside the root, not out of it. */
	snprintf(elsewhere, sizeof(elsewhere), "%s/elsewhere", root);
	assert_int_equal(rename(path, elsewhere), 0);
	assert_int_equal(symlink(elsewhere, path), 0);
	assert_false(knows_names(&bare, "file", root));
	assert_int_equal(unlink(path), 0);
	assert_int_equal(symlink("/elsewhere", path), 0);
	assert_true(knows_names(&bare, "file", root));
	/* A file that does not belong to it, and one that is cut, are passed over. */
	assert_int_equal(unlink(path), 0);
	whole.size -= 100;
	write_file(path, &whole);
	assert_false(knows_names(&bare, "file", root));
	free(whole.p);
	whole = target_bytes("image-asm");
	write_file(path, &whole);
	assert_false(knows_names(&bare, "file", root));
	/* Nor is one believed whose code lies elsewhere, as before prelink. */
	free(whole.p);
	whole = target_bytes("image-cxx");
	move_code(&whole);
	write_file(path, &whole);
	assert_false(knows_names(&bare, "file", root));
	/* Nor is a file of holes read, which is as long as it seems. */
	free(whole.p);
	whole = target_bytes("image-cxx");
	write_file(path, &whole);
	assert_int_equal(truncate(path, (off_t)400 << 30), 0);
	assert_false(knows_names(&bare, "file", root));
	/* A pipe in its place must not stop us, and what may be a device is not even opened. */
	assert_int_equal(unlink(path), 0);
	assert_int_equal(mkfifo(path, 0644), 0);
	assert_true(inotify_add_watch(opens, path, IN_OPEN) >= 0);
	assert_false(knows_names(&bare, "file", root));
	assert_int_equal(read(opens, &event, sizeof(event)), -1);
	assert_int_equal(errno, EAGAIN);
	close(opens);
	free(whole.p);
	free(bare.p);
}

static void test_by_link(void **unused)
{
	static const char *const places[] = {"%s/usr/bin/the.debug", "%s/usr/bin/.debug/the.debug",
					     "%s/usr/lib/debug/usr/bin/the.debug"};
	struct bytes whole = target_bytes("image-cxx"), bare = target_bytes("image-cxx");
	uint8_t link[16] = "the.debug"; /* 9 and a zero, up to 12, then the checksum */
	uint32_t crc = lzma_crc32(whole.p, whole.size, 0);
	char path[512];

	(void)unused;
	hide_symbols(&bare);
	memcpy(link + 12, &crc, 4);
	add_section(&bare, ".gnu_debuglink", link, sizeof(link));
	assert_false(knows_names(&bare, "/usr/bin/prog", root));
	for (size_t i = 0; i < 3; i++) {
		snprintf(path, sizeof(path), places[i], root);
		write_file(path, &whole);
		assert_true(knows_names(&bare, "/usr/bin/prog", root));
		assert_int_equal(unlink(path), 0);
	}
	whole.p[whole.size - 1] ^= 1;
	write_file(path, &whole);
	assert_false(knows_names(&bare, "/usr/bin/prog", root));
	free(whole.p);
	free(bare.p);
}

/* ------------------------------------------------------------- compressed */

/* fear F5: symbols in .gnu_debugdata */
static void test_compressed(void **unused)
{
	struct bytes whole = target_bytes("image-cxx"), bare = target_bytes("image-cxx");
	struct bytes packed = compress(&whole);

	(void)unused;
	hide_symbols(&bare);
	add_section(&bare, ".gnu_debugdata", packed.p, packed.size);
	assert_true(knows_names(&bare, "file", NULL));
	free(packed.p);
	free(bare.p);
	/* Of a file whose code lies elsewhere. */
	bare = target_bytes("image-cxx");
	hide_symbols(&bare);
	move_code(&whole);
	packed = compress(&whole);
	add_section(&bare, ".gnu_debugdata", packed.p, packed.size);
	assert_false(knows_names(&bare, "file", NULL));
	free(whole.p);
	free(bare.p);
	free(packed.p);
}

static void expect_bad(const struct bytes *b)
{
	struct dinst_error e = {0};
	struct image *img = open_bytes(b, "file", NULL, &e);

	assert_null(img);
	assert_int_equal(e.code, DINST_BAD_FILE);
}

static void test_damaged_compressed(void **unused)
{
	struct bytes whole = target_bytes("image-cxx"), bare = target_bytes("image-cxx");
	struct bytes packed = compress(&whole), zeros = {calloc(1, 72 << 20), 72 << 20};

	(void)unused;
	hide_symbols(&bare);
	packed.p[packed.size / 2] ^= 0x10;
	add_section(&bare, ".gnu_debugdata", packed.p, packed.size);
	expect_bad(&bare);
	free(bare.p);
	free(packed.p);
	/* Little that would become a lot is not let. */
	bare = target_bytes("image-cxx");
	hide_symbols(&bare);
	packed = (struct bytes){malloc(1 << 20), 0};
	assert_int_equal(lzma_easy_buffer_encode(0, LZMA_CHECK_CRC64, NULL, zeros.p, zeros.size,
						 packed.p, &packed.size, 1 << 20),
			 LZMA_OK);
	add_section(&bare, ".gnu_debugdata", packed.p, packed.size);
	expect_bad(&bare);
	free(zeros.p);
	free(whole.p);
	free(bare.p);
	free(packed.p);
}

/* fear L1: files that become large when they are decompressed do not take the machine's memory, however many they are */
static void test_many_compressed(void **unused)
{
	enum { FILES = 16, SIZE = 60 << 20 };
	struct bytes whole = target_bytes("image-cxx"), bare = target_bytes("image-cxx");
	struct bytes large = {calloc(1, SIZE), SIZE}, packed = {malloc(1 << 20), 0};
	struct dinst_error e = {0};
	struct image *images[FILES];
	size_t held = 0, known = 0;
	uint32_t flags;

	(void)unused;
	memcpy(large.p, whole.p, whole.size);
	assert_int_equal(lzma_easy_buffer_encode(0, LZMA_CHECK_NONE, NULL, large.p, large.size,
						 packed.p, &packed.size, 1 << 20),
			 LZMA_OK);
	free(large.p);
	hide_symbols(&bare);
	add_section(&bare, ".gnu_debugdata", packed.p, packed.size);
	for (size_t i = 0; i < FILES; i++) {
		images[i] = open_bytes(&bare, "file", NULL, &e);
		/* Its names are done without, it is not. */
		if (!images[i])
			fail_msg("%s", e.text);
		held += images[i]->mini.size;
		known += image_name_flags(images[i], "mostly_warm.cold", &flags);
		assert_true(held <= (size_t)256 << 20);
	}
	assert_true(known > 1 && known < FILES);
	for (size_t i = 0; i < FILES; i++)
		image_close(images[i]);
	/* What was given back can be had again. */
	assert_true(knows_names(&bare, "file", NULL));
	free(whole.p);
	free(bare.p);
	free(packed.p);
}

/* Without a section table the dynamic segment tells the names, .eh_frame_hdr the frames. */
static void test_no_sections(void **unused)
{
	struct bytes b = target_bytes("image-cxx");
	Elf64_Ehdr *h = (Elf64_Ehdr *)b.p;
	struct dinst_error e = {0};
	const struct image_function *functions;
	struct image *img;
	uint32_t flags;
	size_t n, cold = 0;

	(void)unused;
	h->e_shoff = h->e_shnum = h->e_shstrndx = 0;
	img = open_bytes(&b, "file", NULL, &e);
	if (!img)
		fail_msg("%s", e.text);
	n = image_functions(img, &functions);
	for (size_t i = 0; i < n; i++)
		cold += !!(functions[i].flags & FUNCTION_COLD);
	assert_true(n > 15 && cold >= 2);
	assert_false(image_name_flags(img, "mostly_warm", &flags));
	assert_int_equal(image_references(img, &e), 0);
	image_close(img);
	free(b.p);
}

/* Nor does it tell that it is Go's: a note does, with a name whose padding counts. */
static void test_go_note(void **unused)
{
	static const uint8_t build_id[] = {4, 0, 0, 0, 20, 0, 0, 0, 3, 0, 0, 0, 'G', 'N', 'U', 0};
	static const uint8_t go[] = {4, 0, 0, 0, 20, 0, 0, 0, 4, 0, 0, 0, 'G', 'o', 0, 0};
	struct bytes b = target_bytes("image-cxx");
	Elf64_Ehdr *h = (Elf64_Ehdr *)b.p;
	struct dinst_error e = {0};
	struct image *img;
	uint8_t *note;

	(void)unused;
	h->e_shoff = h->e_shnum = h->e_shstrndx = 0;
	img = open_bytes(&b, "file", NULL, &e);
	assert_true(img && !img->go);
	image_close(img);
	note = memmem(b.p, b.size, build_id, sizeof(build_id));
	assert_non_null(note);
	memcpy(note, go, sizeof(go));
	img = open_bytes(&b, "file", NULL, &e);
	assert_true(img && img->go);
	image_close(img);
	free(b.p);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_by_build_id, make_root, remove_root),
		cmocka_unit_test_setup_teardown(test_by_link, make_root, remove_root),
		cmocka_unit_test_setup_teardown(test_types_only, make_root, remove_root),
		cmocka_unit_test_setup_teardown(test_unopened, make_root, remove_root),
		cmocka_unit_test(test_shared_types),
		cmocka_unit_test(test_compressed),
		cmocka_unit_test(test_damaged_compressed),
		cmocka_unit_test(test_many_compressed),
		cmocka_unit_test(test_no_sections),
		cmocka_unit_test(test_go_note),
	};

	mishaps_open();
	alarm(120);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
