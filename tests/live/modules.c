/* SPDX-License-Identifier: MIT */
/*
 * modules.c - what is mapped in a running program, as modules: the right file
 * at the right place even when it was renamed, deleted or replaced, and the
 * functions in it by all the ways that people name them.
 */
#include "tests/live/harness.h"

#include <fcntl.h>
#include <linux/capability.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "mutator/module.h"

struct view {
	struct target *target;
	struct module_list *list;
};

static struct view look(struct harness *h)
{
	struct dinst_error e = {0};
	struct view v = {0};

	if (target_open(h->pid, &v.target, &e) || module_list_read(v.target, &v.list, &e))
		fail_msg("%s", e.text);
	return v;
}

static void look_away(struct view *v)
{
	module_list_free(v->list);
	target_close(v->target);
}

static size_t find(struct view *v, const char *pattern, struct function_ref *first)
{
	struct function_ref *found;
	struct dinst_error e = {0};
	size_t count;

	if (pattern[0] == '/' ? find_resource(v->list, pattern, &found, &count, &e)
			      : find_functions(v->list, pattern, &found, &count, &e))
		fail_msg("%s: %s", pattern, e.text);
	assert_true(count > 0);
	if (first)
		*first = found[0];
	free(found);
	return count;
}

static const struct image_function *function(const struct function_ref *r)
{
	const struct image_function *functions;

	assert_true(r->index < image_functions(r->module->image, &functions));
	return &functions[r->index];
}

/* Asks for something that is not there; the message is in *e. */
static int refuse(struct view *v, const char *pattern, struct dinst_error *e)
{
	struct function_ref *found;
	size_t count;
	int r;

	*e = (struct dinst_error){0};
	r = pattern[0] == '/' ? find_resource(v->list, pattern, &found, &count, e)
			      : find_functions(v->list, pattern, &found, &count, e);
	if (!r)
		fail_msg("%s was found", pattern);
	assert_int_equal(r, e->code);
	return r;
}

static void expect_word(const struct dinst_error *e, const char *word)
{
	if (!strstr(e->text, word))
		fail_msg("'%s' does not say '%s'", e->text, word);
}

/* The code in memory is the code of the file, at the place we think it is. */
static void check_code(struct view *v, const char *name)
{
	struct dinst_error e = {0};
	struct function_ref r;
	uint8_t memory[16];
	const uint8_t *code;
	size_t size;

	find(v, name, &r);
	code = image_code(r.module->image, function(&r)->address, &size);
	assert_non_null(code);
	if (size > sizeof(memory))
		size = sizeof(memory);
	assert_int_equal(target_read(v->target, function(&r)->address + r.module->bias, memory,
				     size, &e),
			 0);
	assert_memory_equal(memory, code, size);
}

static void test_modules(void **state)
{
	struct harness *h = *state;
	struct module *m, *libc, *vdso;
	struct dinst_error e = {0};
	bool changed = true;
	struct view v;

	harness_start(h, "image-cxx", NULL);
	v = look(h);
	m = module_named(v.list, "image-cxx");
	assert_non_null(m);
	assert_true(m->main && m->image && !m->gone);
	assert_string_equal(m->path + strlen(m->path) - 10, "/image-cxx");
	assert_ptr_equal(module_named(v.list, m->path), m);
	assert_true(m->lo == image_lowest(m->image) + m->bias);
	assert_ptr_equal(module_at(v.list, m->lo), m);
	assert_ptr_equal(module_at(v.list, m->hi - 1), m);
	assert_ptr_not_equal(module_at(v.list, m->hi), m);
	assert_null(module_at(v.list, 0x10));
	libc = module_named(v.list, "libc.so.6");
	assert_true(libc && libc->image && !libc->main);
	vdso = module_named(v.list, "[vdso]");
	assert_true(vdso && !vdso->image && strstr(vdso->problem, "not patched"));
	assert_null(module_named(v.list, "image-cx"));
	assert_int_equal(module_list_update(v.list, v.target, &changed, &e), 0);
	assert_false(changed);
	check_code(&v, "mostly_warm");
	check_code(&v, "libc.so.6:malloc");
	look_away(&v);
	harness_verify(h);
	harness_end(h, 0);
}

static void test_patterns(void **state)
{
	struct harness *h = *state;
	struct function_ref r, other;
	char text[128];
	struct view v;

	harness_start(h, "image-cxx", NULL);
	v = look(h);
	assert_int_equal(find(&v, "mostly_warm", &r), 1);
	/* The same one by all its names. */
	static const char *const same[] = {
		"image-cxx:mostly_warm",       "image-cxx:mostly_w*",	    "image-c*:mostly_warm",
		"/Code/image-cxx/mostly_warm", "/Code/image-*/mostly_?arm", "/Code/*/mostly_warm",
	};
	for (size_t i = 0; i < sizeof(same) / sizeof(*same); i++) {
		assert_int_equal(find(&v, same[i], &other), 1);
		assert_true(other.index == r.index && other.module == r.module);
	}
	snprintf(text, sizeof(text), "image-cxx+0x%llx",
		 (unsigned long long)(function(&r)->address - image_lowest(r.module->image) + 3));
	find(&v, text, &other);
	assert_true(other.index == r.index && other.module == r.module);
	snprintf(text, sizeof(text), "0x%llx",
		 (unsigned long long)(function(&r)->address + r.module->bias));
	find(&v, text, &other);
	assert_true(other.index == r.index && other.module == r.module);
	/* Colons of C++ are not the colon of a module. */
	assert_int_equal(find(&v, "shapes::Circle::area", &r), 1);
	assert_int_equal(find(&v, "image-cxx:shapes::Circle::area() const", &other), 1);
	assert_int_equal(other.index, r.index);
	assert_int_equal(find(&v, "/Code/image-cxx/shapes::Circle::*", NULL), 5);
	assert_int_equal(find(&v, "image-cxx:[[:lower:]]oubled", NULL), 1);
	/* All of it, with and without a slash at the end. */
	assert_int_equal(find(&v, "/Code", NULL), find(&v, "/Code/*/*", NULL));
	assert_int_equal(find(&v, "/Code/image-cxx", NULL), find(&v, "/Code/image-cxx/*", NULL));
	assert_int_equal(find(&v, "/Code/image-cxx/", NULL), find(&v, "image-cxx:*", NULL));
	look_away(&v);
	harness_end(h, 0);
}

static void test_no_match(void **state)
{
	struct harness *h = *state;
	struct dinst_error e;
	struct view v;

	harness_start(h, "image-cxx", NULL);
	v = look(h);
	assert_int_equal(refuse(&v, "mosty_warm", &e), DINST_NO_FUNCTION);
	expect_word(&e, "mostly_warm");
	assert_int_equal(refuse(&v, "image-cxx:malloc_", &e), DINST_NO_FUNCTION);
	expect_word(&e, "image-cxx");
	assert_int_equal(refuse(&v, "libx.so:main", &e), DINST_NO_MODULE);
	expect_word(&e, "image-cxx");
	expect_word(&e, "libc.so.6");
	assert_int_equal(refuse(&v, "/Code/libx.so/main", &e), DINST_NO_MODULE);
	assert_int_equal(refuse(&v, "libx.so+0x10", &e), DINST_NO_MODULE);
	assert_int_equal(refuse(&v, "image-cxx+0xfffffff", &e), DINST_NO_FUNCTION);
	assert_int_equal(refuse(&v, "image-cxx+0x1", &e), DINST_NO_FUNCTION);
	assert_int_equal(refuse(&v, "0x10", &e), DINST_NO_FUNCTION);
	assert_int_equal(refuse(&v, "[vdso]:*", &e), DINST_NO_FUNCTION);
	expect_word(&e, "not patched");
	assert_int_equal(refuse(&v, "image-cxx:_init", &e), DINST_NO_FUNCTION);
	expect_word(&e, "not patched");
	assert_int_equal(refuse(&v, "mostly_warm.cold", &e), DINST_NO_FUNCTION);
	expect_word(&e, "part of a function");
	assert_int_equal(refuse(&v, "", &e), DINST_USAGE);
	assert_int_equal(refuse(&v, "/Process/1", &e), DINST_USAGE);
	assert_int_equal(refuse(&v,
				"/Code/"
				"/main",
				&e),
			 DINST_USAGE);
	look_away(&v);
	harness_end(h, 0);
}

static void tell(struct harness *h, const char *what)
{
	harness_send(h, what);
	assert_string_equal(harness_line(h, HARNESS_ANSWER_MS), "done");
}

/* --------------------------------------------------- files that change */

static void copy_file(const char *from, const char *to)
{
	char buffer[65536];
	int in = open(from, O_RDONLY | O_CLOEXEC);
	int out = open(to, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0755);
	ssize_t n;

	assert_true(in >= 0 && out >= 0);
	while ((n = read(in, buffer, sizeof(buffer))) > 0)
		assert_int_equal(write(out, buffer, n), n);
	close(in);
	close(out);
}

/* A program in a directory of its own, started; the directory's name is in `directory`. */
static void start_copy(struct harness *h, char *directory, char *path, size_t size)
{
	const char *argv[] = {path, NULL};

	strncpy(directory, "/tmp/dinst-modules-XXXXXX", 32);
	assert_non_null(mkdtemp(directory));
	snprintf(path, size, "%s/a name", directory);
	copy_file(harness_path("tests/live/targets/image-cxx"), path);
	harness_start_argv(h, argv, true);
}

/* fear F6: the program's file is deleted: read by what is mapped */
static void test_deleted_file(void **state)
{
	struct harness *h = *state;
	char directory[32], path[64];
	struct module *m;
	struct view v;

	start_copy(h, directory, path, sizeof(path));
	assert_int_equal(unlink(path), 0);
	v = look(h);
	m = module_named(v.list, "a name");
	assert_non_null(m);
	assert_string_equal(m->path, path);
	if (!m->image)
		fail_msg("%s", m->problem);
	assert_true(m->main);
	check_code(&v, "mostly_warm");
	look_away(&v);
	harness_end(h, 0);
	rmdir(directory);
}

/* Another program under the same name: it must not be taken for the one that runs. */
/* fear F6: another file lies at the path: what is mapped counts, not what lies there */
static void test_replaced_file(void **state)
{
	struct harness *h = *state;
	char directory[32], path[64], other[64];
	struct module *m;
	struct view v;

	start_copy(h, directory, path, sizeof(path));
	snprintf(other, sizeof(other), "%s/other", directory);
	copy_file(harness_path("tests/live/targets/plain"), other);
	assert_int_equal(rename(other, path), 0);
	v = look(h);
	m = module_named(v.list, "a name");
	assert_non_null(m);
	if (m->image)
		check_code(&v, "mostly_warm");
	else
		assert_non_null(strstr(m->problem, "replaced"));
	look_away(&v);
	harness_end(h, 0);
	unlink(path);
	rmdir(directory);
}

/* Gives up what opens /proc/PID/map_files, keeps what attaching takes. */
static bool drop_capabilities(void)
{
	struct __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
	struct __user_cap_data_struct data[2] = {0};

	data[0].permitted = data[0].effective = 1u << CAP_SYS_PTRACE | 1u << CAP_DAC_READ_SEARCH;
	return !syscall(SYS_capset, &header, data);
}

/* In a child without the privilege: 0 as expected, else which step was not. */
static int look_unprivileged(pid_t pid)
{
	struct dinst_error e = {0};
	struct module_list *list;
	struct target *target;
	struct module *m;

	if (!drop_capabilities())
		return 99;
	if (target_open(pid, &target, &e) || module_list_read(target, &list, &e))
		return 1;
	m = module_named(list, "plugin");
	if (!m || m->image || !strstr(m->problem, "replaced"))
		return 2;
	m = module_named(list, "libc.so.6");
	if (!m || !m->image || m->problem[0])
		return 3;
	/* The program itself can always be had. */
	m = module_named(list, "image-loads");
	if (!m || !m->image || !m->main)
		return 4;
	module_list_free(list);
	target_close(target);
	return 0;
}

/* fear F6: the same without privileges: told, and nothing of the other file is believed */
static void test_replaced_file_unprivileged(void **state)
{
	struct harness *h = *state;
	char directory[32] = "/tmp/dinst-modules-XXXXXX", path[64], other[64];
	int status = 0;
	pid_t child;

	assert_non_null(mkdtemp(directory));
	snprintf(path, sizeof(path), "%s/plugin", directory);
	snprintf(other, sizeof(other), "%s/other", directory);
	copy_file(harness_path("tests/live/targets/libimage-plugin.so"), path);
	copy_file(harness_path("tests/live/targets/plain"), other);
	harness_start(h, "image-loads", path, NULL);
	tell(h, "load\n");
	assert_int_equal(rename(other, path), 0);
	child = fork();
	assert_true(child >= 0);
	if (!child)
		_exit(look_unprivileged(h->pid));
	assert_int_equal(waitpid(child, &status, 0), child);
	harness_end(h, 0);
	unlink(path);
	rmdir(directory);
	if (WIFEXITED(status) && WEXITSTATUS(status) == 99) {
		print_message("skipped: capabilities cannot be dropped here\n");
		skip();
	}
	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), 0);
}

static int look_unprivileged_at_odd_name(pid_t pid)
{
	struct dinst_error e = {0};
	struct module_list *list;
	struct target *target;
	struct module *m;

	if (!drop_capabilities())
		return 99;
	if (target_open(pid, &target, &e) || module_list_read(target, &list, &e))
		return 1;
	m = module_named(list, "plugin");
	if (!m || !m->image || m->problem[0])
		return 2;
	module_list_free(list);
	target_close(target);
	return 0;
}

/* fear F6: a file is called "... (deleted)", as a deleted one looks, and another one without that: it is read, by whom no kernel's link helps, too */
static void test_named_deleted(void **state)
{
	struct harness *h = *state;
	char directory[32] = "/tmp/dinst-modules-XXXXXX", path[64], other[64];
	int status = 0;
	pid_t child;

	assert_non_null(mkdtemp(directory));
	snprintf(path, sizeof(path), "%s/plugin (deleted)", directory);
	snprintf(other, sizeof(other), "%s/plugin", directory);
	copy_file(harness_path("tests/live/targets/libimage-plugin.so"), path);
	copy_file(harness_path("tests/live/targets/plain"), other);
	harness_start(h, "image-loads", path, NULL);
	tell(h, "load\n");
	child = fork();
	assert_true(child >= 0);
	if (!child)
		_exit(look_unprivileged_at_odd_name(h->pid));
	assert_int_equal(waitpid(child, &status, 0), child);
	harness_end(h, 0);
	unlink(path);
	unlink(other);
	rmdir(directory);
	if (WIFEXITED(status) && WEXITSTATUS(status) == 99) {
		print_message("skipped: capabilities cannot be dropped here\n");
		skip();
	}
	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), 0);
}

/* A link gives a program its name, as Debian's redis-server has it. */
static void test_linked_name(void **state)
{
	struct harness *h = *state;
	char directory[32] = "/tmp/dinst-modules-XXXXXX", file[64], link[64];
	const char *argv[] = {link, NULL};
	struct module *m;
	struct view v;

	assert_non_null(mkdtemp(directory));
	snprintf(file, sizeof(file), "%s/the-check-tool", directory);
	snprintf(link, sizeof(link), "%s/the-server-program", directory);
	copy_file(harness_path("tests/live/targets/image-cxx"), file);
	assert_int_equal(symlink("the-check-tool", link), 0);
	harness_start_argv(h, argv, true);
	v = look(h);
	m = module_named(v.list, "the-server-program");
	assert_true(m && m->main && m->image);
	assert_string_equal(m->name, "the-server-program");
	assert_string_equal(m->path, file);
	assert_ptr_equal(module_named(v.list, "the-check-tool"), m);
	assert_int_equal(find(&v, "/Code/the-server-program/mostly_warm", NULL), 1);
	look_away(&v);
	harness_end(h, 0);
	unlink(link);
	unlink(file);
	rmdir(directory);
}

/* A container: the file has a path in the target's mount namespace only. */
/* fear I1: a file that is only in the target's own mount namespace */
static void test_other_mount_namespace(void **state)
{
	struct harness *h = *state;
	char script[4096 + 256];
	const char *argv[] = {"unshare", "-m", "sh", "-c", script, NULL};
	struct module *m;
	struct view v;

	if (system("unshare -m mount -t tmpfs none /mnt 2>/dev/null")) {
		print_message("skipped: no mount namespace to be had here\n");
		skip();
	}
	snprintf(script, sizeof(script),
		 "mount -t tmpfs none /mnt && cp '%s' /mnt/inside && exec /mnt/inside",
		 harness_path("tests/live/targets/image-cxx"));
	harness_start_argv(h, argv, true);
	assert_int_not_equal(access("/mnt/inside", F_OK), 0);
	v = look(h);
	m = module_named(v.list, "inside");
	assert_non_null(m);
	if (!m->image)
		fail_msg("%s", m->problem);
	assert_true(m->main);
	assert_string_equal(m->path, "/mnt/inside");
	check_code(&v, "inside:mostly_warm");
	look_away(&v);
	harness_end(h, 0);
}

/* --------------------------------------------------------- loaded, dropped */

static void update(struct view *v, bool expected)
{
	struct dinst_error e = {0};
	bool changed = !expected;

	assert_int_equal(module_list_update(v->list, v->target, &changed, &e), 0);
	assert_int_equal(changed, expected);
}

static void test_loaded_and_dropped(void **state)
{
	static const char name[] = "libimage-plugin.so";
	struct harness *h = *state;
	char path[4096];
	struct module *first, *second = NULL;
	struct function_ref r;
	struct view v;
	size_t count;

	snprintf(path, sizeof(path), "%s", harness_path("tests/live/targets/libimage-plugin.so"));
	harness_start(h, "image-loads", path, NULL);
	v = look(h);
	assert_null(module_named(v.list, name));
	count = module_count(v.list);
	tell(h, "load\n");
	update(&v, true);
	first = module_named(v.list, name);
	assert_true(first && first->image && !first->main);
	assert_true(module_count(v.list) > count);
	assert_int_equal(find(&v, "plugin_work", &r), 1);
	check_code(&v, "plugin_work");
	/* Loaded twice it is two modules of one image. */
	tell(h, "again\n");
	update(&v, true);
	for (size_t i = 0; i < module_count(v.list); i++) {
		struct module *m = module_get(v.list, i);

		if (m != first && !strcmp(m->name, name))
			second = m;
	}
	assert_true(second && second->image == first->image && second->bias != first->bias);
	assert_int_equal(find(&v, "plugin_work", NULL), 2);
	/* Gone: the module stays in the list, but is no longer found. */
	count = module_count(v.list);
	tell(h, "drop\n");
	update(&v, true);
	assert_true(first->gone && second->gone);
	assert_int_equal(module_count(v.list), count);
	assert_null(module_named(v.list, name));
	assert_null(module_at(v.list, first->lo + 1));
	/* And back again, as a new one. */
	tell(h, "load\n");
	update(&v, true);
	second = module_named(v.list, name);
	assert_true(second && second != first && second->image == first->image);
	update(&v, false);
	look_away(&v);
	harness_end(h, 0);
}

int main(void)
{
#define CASE(f) cmocka_unit_test_setup_teardown(f, harness_setup, harness_teardown)
	const struct CMUnitTest tests[] = {
		CASE(test_modules),
		CASE(test_patterns),
		CASE(test_no_match),
		CASE(test_deleted_file),
		CASE(test_replaced_file),
		CASE(test_replaced_file_unprivileged),
		CASE(test_named_deleted),
		CASE(test_linked_name),
		CASE(test_other_mount_namespace),
		CASE(test_loaded_and_dropped),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
