/* SPDX-License-Identifier: MIT */
/*
 * report_export.c - the files that are made of a call tree, read back by the programs they are
 * for: callgrind_annotate, go's pprof, Chromium, and a JSON and an XML parser. Names in it are the
 * worst that a symbol table may hold. What is not installed is skipped, by name.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <unistd.h>

#include <cmocka.h>
#include <jansson.h>

#include "daemon/report/callgrind.h"
#include "daemon/report/chrome.h"
#include "daemon/report/escape.h"
#include "daemon/report/flame.h"
#include "daemon/report/flat.h"
#include "daemon/report/folded.h"
#include "daemon/report/pprof.h"
#include "tests/unit/report_calls.h"

static const char template_name[] =
	"std::map<std::string, std::vector<int>, std::less<> >::operator[](std::string&&)";
static const char nasty_name[] = "a;b\"c\\d<e>&'f\ng\x01h\x7f"
				 "i]]>j\xff\xfek\xed\xa0\x80l (1) \xe2\x98\x83";

static char directory[] = "/tmp/dinst-export-XXXXXX";

/* main 1: 100 of its own; compute 10 x (20 + 5 x 4 in leaf); two that are named as badly as can be. */
static struct call_tree *sample_tree(call_tree_each *each, void *arg)
{
	struct call_tree *t;
	struct calls c;

	calls_begin(&c, true);
	t = c.tree;
	call_tree_watch(t, each, arg);
	enter(&c, "main", 0);
	for (int i = 0; i < 10; i++) {
		enter(&c, "compute", 10);
		for (int k = 0; k < 5; k++) {
			enter(&c, "leaf", 4);
			leave(&c, "leaf", 4);
		}
		leave(&c, "compute", 0);
	}
	enter(&c, template_name, 0);
	leave(&c, template_name, 1000);
	enter(&c, nasty_name, 0);
	enter(&c, "leaf", 7);
	leave(&c, "leaf", 500);
	leave(&c, nasty_name, 0);
	leave(&c, "main", 0);
	return t;
}

static FILE *create(const char *name, char *path, size_t size)
{
	FILE *out;

	snprintf(path, size, "%s/%s", directory, name);
	out = fopen(path, "w");
	assert_non_null(out);
	return out;
}

static void finish(FILE *out)
{
	assert_false(ferror(out));
	assert_int_equal(fclose(out), 0);
}

/* All that a command prints, malloc'ed; it must succeed. */
static char *output_of(const char *format, const char *path)
{
	char command[1024], *text = NULL, part[4096];
	size_t size = 0, n;
	FILE *in, *out = open_memstream(&text, &size);

	snprintf(command, sizeof(command), format, path);
	in = popen(command, "r");
	assert_non_null(in);
	while ((n = fread(part, 1, sizeof(part), in)) > 0)
		fwrite(part, 1, n, out);
	fclose(out);
	if (pclose(in) != 0) {
		print_error("%s:\n%s\n", command, text);
		fail();
	}
	return text;
}

static bool is_there(const char *program)
{
	char command[200];

	snprintf(command, sizeof(command), "command -v %s >/dev/null 2>&1", program);
	if (system(command) == 0)
		return true;
	print_message("skipped: there is no %s\n", program);
	return false;
}

static void contains(const char *text, const char *part)
{
	if (!strstr(text, part)) {
		print_error("'%s' is not in:\n%s\n", part, text);
		fail();
	}
}

static char *file_text(const char *path)
{
	return output_of("cat '%s'", path);
}

static void folded_lines(void **state)
{
	struct call_tree *t = sample_tree(NULL, NULL);
	char path[200], *text;
	FILE *out = create("folded", path, sizeof(path));

	(void)state;
	call_tree_end(t, 0);
	folded_write(out, t);
	finish(out);
	text = file_text(path);
	contains(text, "main 100\n");
	contains(text, "main;compute 200\n");
	contains(text, "main;compute;leaf 200\n");
	contains(
		text,
		"main;std::map<std::string, std::vector<int>, std::less<> >::operator[](std::string&&) "
		"1000\n");
	contains(text, "main;a?b\"c\\d<e>&'f?g?h?i]]>j\xef\xbf\xbd\xef\xbf\xbdk");
	contains(text, ";leaf 500\n");
	free(text);
	call_tree_free(t);
}

static void flat_functions(void **state)
{
	struct call_tree *t = sample_tree(NULL, NULL);
	struct flat f;

	(void)state;
	call_tree_end(t, 0);
	assert_int_equal(flat_make(&f, t), 0);
	assert_int_equal(f.count, 5);
	assert_int_equal(f.module_count, 1);
	for (size_t i = 0; i < f.count; i++) {
		if (strcmp(f.functions[i].function, "leaf") == 0) {
			assert_int_equal(f.functions[i].count, 51);
			assert_int_equal(f.functions[i].self_ns, 700);
			assert_int_equal(f.functions[i].total_ns, 700);
		}
		if (strcmp(f.functions[i].function, "main") == 0)
			assert_int_equal(f.functions[i].total_ns, 2007);
	}
	flat_release(&f);
	call_tree_free(t);
}

/* ------------------------------------------------------------- callgrind */

static void callgrind_annotates(void **state)
{
	struct call_tree *t = sample_tree(NULL, NULL);
	char path[200], *text;
	FILE *out = create("callgrind.out.1", path, sizeof(path));

	(void)state;
	call_tree_end(t, 0);
	assert_int_equal(callgrind_write(out, t, "graph main\nof x"), 0);
	finish(out);
	call_tree_free(t);
	if (!is_there("callgrind_annotate"))
		skip();
	text = output_of("LC_ALL=C.UTF-8 callgrind_annotate --threshold=100 '%s' 2>&1", path);
	contains(text, "Events recorded:  ns Calls");
	contains(text, "2,007 (100.0%)");
	contains(text, "1,000 (49.83%)");
	contains(
		text,
		":std::map<std::string, std::vector<int>, std::less<> >::operator[](std::string&&) [prog]");
	contains(text, "700 (34.88%)");
	contains(text, "???:leaf [prog]");
	assert_null(strstr(text, "WARNING"));
	free(text);
	text = output_of(
		"LC_ALL=C.UTF-8 callgrind_annotate --inclusive=yes --tree=both --threshold=100 '%s' 2>&1",
		path);
	contains(text, "2,007 (100.0%)");
	contains(text, "???:leaf (50x) [prog]");
	contains(text, "???:leaf (1x) [prog]");
	contains(text, "???:compute (10x) [prog]");
	free(text);
}

/* ----------------------------------------------------------------- pprof */

static void pprof_reads(void **state)
{
	struct call_tree *t = sample_tree(NULL, NULL);
	char path[200], *text;
	FILE *out = create("profile.pb.gz", path, sizeof(path));

	(void)state;
	call_tree_end(t, 0);
	assert_int_equal(pprof_write(out, t, 1700000000000000000u, 5000000000u), 0);
	finish(out);
	call_tree_free(t);
	free(output_of("gzip -t '%s'", path));
	if (!is_there("go"))
		skip();
	text = output_of(
		"HOME=/tmp go tool pprof -unit=ns -nodecount=100 -nodefraction=0 -edgefraction=0 -top '%s' 2>&1",
		path);
	contains(text, "Type: time");
	contains(text, "Duration: 5s");
	contains(text, "2007ns");
	contains(text, "700ns 34.88%");
	contains(text, "std::map");
	free(text);
	text = output_of(
		"HOME=/tmp go tool pprof -sample_index=calls -nodecount=100 -nodefraction=0 -edgefraction=0 -top '%s' 2>&1",
		path);
	contains(text, "Type: calls");
	contains(text, "        51 ");
	free(text);
	text = output_of("HOME=/tmp go tool pprof -raw '%s' 2>&1", path);
	contains(text, "calls/count time/nanoseconds");
	free(text);
}

/* ---------------------------------------------------------------- chrome */

static void spans(void *arg, const struct call_span *span)
{
	chrome_span(arg, span);
}

static void chrome_is_json(void **state)
{
	char path[200], *text;
	FILE *out = create("trace.json", path, sizeof(path));
	struct chrome c;
	struct call_tree *t;
	json_t *root, *events, *event;
	json_error_t error;
	size_t index, nasty = 0, complete = 0, names = 0;
	double compute = 0;

	(void)state;
	chrome_begin(&c, out, 1000);
	t = sample_tree(spans, &c);
	chrome_thread(&c, 77, 1, "io \"thread\"\n");
	chrome_process(&c, 77, "prog");
	chrome_end(&c);
	finish(out);
	assert_int_equal(c.spans, 1 + 10 + 50 + 3);
	call_tree_free(t);
	text = file_text(path);
	root = json_loads(text, 0, &error);
	if (!root)
		fail_msg("line %d: %s", error.line, error.text);
	events = json_object_get(root, "traceEvents");
	json_array_foreach(events, index, event)
	{
		const char *name = json_string_value(json_object_get(event, "name"));
		const char *phase = json_string_value(json_object_get(event, "ph"));

		assert_int_equal(json_integer_value(json_object_get(event, "pid")), 77);
		if (strcmp(phase, "M") == 0) {
			names++;
			continue;
		}
		assert_string_equal(phase, "X");
		complete++;
		nasty += strncmp(name, "a;b\"c\\d<e>&'f\ng\x01h\x7f", 18) == 0;
		if (strcmp(name, "compute") == 0)
			compute += json_number_value(json_object_get(event, "dur"));
		if (strcmp(name, "main") == 0) {
			assert_true(json_number_value(json_object_get(event, "ts")) == 0);
			assert_true(json_number_value(json_object_get(event, "dur")) == 2.007);
		}
	}
	assert_int_equal(complete, 64);
	assert_int_equal(nasty, 1);
	assert_int_equal(names, 2);
	assert_true(compute > 0.399 && compute < 0.401);
	json_decref(root);
	free(text);
}

/* ----------------------------------------------------------------- flame */

static const char title[] = "graph of main <in> \"prog\" & more\x02";

static void write_flame(char *path, size_t size)
{
	struct call_tree *t = sample_tree(NULL, NULL);
	FILE *out = create("flame.svg", path, size);

	call_tree_end(t, 0);
	assert_int_equal(flame_write(out, t, &(struct flame_options){title, "64 calls"}), 0);
	finish(out);
	call_tree_free(t);
}

static void flame_is_xml(void **state)
{
	char path[200], *text;

	(void)state;
	write_flame(path, sizeof(path));
	if (!is_there("python3"))
		skip();
	text = output_of(
		"python3 -c \"\n"
		"import sys, xml.dom.minidom\n"
		"d = xml.dom.minidom.parse(sys.argv[1])\n"
		"print(len([g for g in d.getElementsByTagName('g') if g.getAttribute('class') == 'f']))\n"
		"for a in d.getElementsByTagName('*'):\n"
		"    for k in ('href', 'src', 'xlink:href'):\n"
		"        assert not a.hasAttribute(k)\n"
		"\" '%s' 2>&1",
		path);
	assert_string_equal(text, "6\n");
	free(text);
}

/* What is clicked, searched and reset is asked of the drawing afterwards, from a page around it. */
static const char page[] =
	"<!DOCTYPE html><meta charset='utf-8'><body style='margin:0'><div id='here'></div><pre id='said'></pre><script>\n"
	"var said = [];\n"
	"window.onerror = function (m) { said.push('went' + ' wrong: ' + m); };\n"
	"var svg = new DOMParser().parseFromString(decodeURIComponent(escape(atob('%s'))), 'image/svg+xml').documentElement;\n"
	"document.getElementById('here').appendChild(document.importNode(svg, true));\n"
	"var code = document.querySelector('svg script').textContent, s = document.createElement('script');\n"
	"s.textContent = code; document.body.appendChild(s);\n"
	"function box(name) { return Array.from(document.querySelectorAll('g.f')).find(function (g) { return g.dataset.f.indexOf(name) >= 0; }); }\n"
	"function wide(name) { return box(name).style.display === 'none' ? 'hidden' : Math.round(parseFloat(box(name).querySelector('rect').getAttribute('width'))); }\n"
	"function click(e) { e.dispatchEvent(new MouseEvent('click', {bubbles: true})); }\n"
	"said.push('at first ' + wide('main') + ' ' + wide('compute') + ' ' + wide('std::map'));\n"
	"click(box('compute').querySelector('rect'));\n"
	"said.push('clicked ' + wide('main') + ' ' + wide('compute') + ' ' + wide('std::map') + ' ' + box('main').classList.contains('above'));\n"
	"click(document.querySelector('#reset'));\n"
	"said.push('reset ' + wide('main') + ' ' + wide('compute') + ' ' + wide('std::map'));\n"
	"var field = document.querySelector('#find'); field.value = 'LEAF'; field.dispatchEvent(new Event('input'));\n"
	"said.push('found ' + document.querySelectorAll('g.f.hit').length + ' ' + document.querySelector('#found').textContent);\n"
	"box('compute').dispatchEvent(new MouseEvent('mousemove', {bubbles: true, clientX: 50, clientY: 150}));\n"
	"said.push('tip ' + Array.from(document.querySelectorAll('#tip text')).map(function (t) { return t.textContent; }).join(' | '));\n"
	"document.dispatchEvent(new KeyboardEvent('keydown', {key: 'Escape'}));\n"
	"said.push('escape ' + document.querySelectorAll('g.f.hit').length + ' tip ' + document.querySelectorAll('#tip text').length);\n"
	"document.getElementById('said').textContent = said.join('\\n');\n"
	"</script>\n";

static void flame_answers_in_chromium(void **state)
{
	char path[200], other[200], *encoded, *text;
	FILE *out;

	(void)state;
	write_flame(path, sizeof(path));
	if (!is_there("chromium") || !is_there("base64"))
		skip();
	encoded = output_of("base64 -w0 '%s'", path);
	out = create("page.html", other, sizeof(other));
	fprintf(out, page, encoded);
	finish(out);
	free(encoded);
	text = output_of(
		"HOME=/tmp timeout 100 chromium --headless --no-sandbox --disable-gpu --disable-dev-shm-usage "
		"--window-size=1200,700 --virtual-time-budget=2000 --dump-dom 'file://%s' 2>/dev/null",
		other);
	contains(text, "at first 99 20 49\n");
	contains(text, "clicked 99 99 hidden true\n");
	contains(text, "reset 99 20 49\n");
	contains(text, "found 2 34.88 % of the time in 2 places, 51 calls\n");
	contains(
		text,
		"tip compute | in prog | 10 calls, 40 ns each, longest 40 ns | total 400 ns  19.93 % of all | self  200 ns  50.00 % of it");
	contains(text, "escape 0 tip 0");
	assert_null(strstr(text, "went wrong"));
	free(text);
}

/* ---------------------------------------------------------------- limits */

static void no_calls_at_all(void **state)
{
	struct call_tree *t = call_tree_new();
	char path[200];
	FILE *out = create("empty", path, sizeof(path));

	(void)state;
	call_tree_end(t, 5);
	folded_write(out, t);
	assert_int_equal(callgrind_write(out, t, "nothing"), 0);
	assert_int_equal(pprof_write(out, t, 0, 0), 0);
	assert_int_equal(flame_write(out, t, &(struct flame_options){"nothing", NULL}), 0);
	finish(out);
	call_tree_free(t);
}

/* More boxes than a browser likes: the widest are kept, and the drawing says how many are not. */
static void very_many_boxes(void **state)
{
	struct call_tree *t;
	char path[200], name[40], *text;
	FILE *out = create("many.svg", path, sizeof(path));
	struct calls c;

	(void)state;
	calls_begin(&c, true);
	t = c.tree;
	enter(&c, "f", 0);
	for (int i = 0; i < 300; i++) {
		snprintf(name, sizeof(name), "outer%d", i);
		enter(&c, name, 1);
		for (int k = 0; k < 100; k++) {
			char inner[40];

			snprintf(inner, sizeof(inner), "inner%d", k);
			enter(&c, inner, 1);
			leave(&c, inner, (unsigned)(1 + k));
		}
		leave(&c, name, 1);
	}
	leave(&c, "f", 1);
	call_tree_end(t, 0);
	assert_int_equal(flame_write(out, t, &(struct flame_options){"many", NULL}), 0);
	finish(out);
	call_tree_free(t);
	text = output_of("grep -c '<g class=\"f\"' '%s'", path);
	assert_true(atoi(text) > FLAME_BOXES / 2 && atoi(text) <= FLAME_BOXES);
	free(text);
	text = output_of("grep -o '([0-9]* of the narrowest boxes are left out)' '%s'", path);
	assert_true(atoi(text + 1) >= 30301 - FLAME_BOXES);
	free(text);
}

static void escape_takes_anything(void **state)
{
	(void)state;
	srandom(7);
	for (int round = 0; round < 5000; round++) {
		char text[40], *json = NULL, whole[400];
		size_t size = 0, length = (size_t)random() % 20;
		FILE *out = open_memstream(&json, &size);
		json_t *value;

		for (size_t i = 0; i < length; i++)
			text[i] = (char)(1 + random() % 255);
		text[length] = '\0';
		escape_json(out, text);
		fclose(out);
		snprintf(whole, sizeof(whole), "\"%s\"", json);
		value = json_loads(whole, JSON_DECODE_ANY, NULL);
		assert_non_null(value);
		json_decref(value);
		free(json);
	}
}

static int make_directory(void **state)
{
	(void)state;
	return mkdtemp(directory) ? 0 : -1;
}

static int remove_directory(void **state)
{
	char command[100];

	(void)state;
	snprintf(command, sizeof(command), "rm -r %s", directory);
	return system(command);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(folded_lines),
		cmocka_unit_test(flat_functions),
		cmocka_unit_test(callgrind_annotates),
		cmocka_unit_test(pprof_reads),
		cmocka_unit_test(chrome_is_json),
		cmocka_unit_test(flame_is_xml),
		cmocka_unit_test(flame_answers_in_chromium),
		cmocka_unit_test(no_calls_at_all),
		cmocka_unit_test(very_many_boxes),
		cmocka_unit_test(escape_takes_anything),
	};

	return cmocka_run_group_tests(tests, make_directory, remove_directory);
}
