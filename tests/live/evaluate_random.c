/* SPDX-License-Identifier: MIT */
/*
 * evaluate_random.c - the shipped metrics with words exchanged at random, where
 * they still load, evaluated for foci put together at random: there is a plan or
 * a message, always, and every plan is whole. Fixed seeds; nothing is inserted.
 */
#include "tests/live/evaluate_scene.h"

enum { ROUNDS = 1000, ROUNDS_SHORT = 300, WORDS_MAX = 20000, TEXT_MAX = 256 << 10, SECONDS = 40 };
enum { LOADED = 20, PLANNED = 100, REFUSALS = 100 }; /* more than these */

static uint64_t seed;

static unsigned below(unsigned n)
{
	seed ^= seed << 13;
	seed ^= seed >> 7;
	seed ^= seed << 17;
	return (unsigned)(seed >> 33) % n;
}

/* ---------------------------------------------------------------- texts */

/* All shipped metrics as one row of words. */
struct words {
	char *text;
	const char *items[WORDS_MAX];
	size_t lengths[WORDS_MAX];
	size_t count;
};

static void read_file(const char *name, char *text, size_t *used)
{
	char path[512];
	FILE *f;

	snprintf(path, sizeof(path), "%s/%s.mdl", harness_path("metrics"), name);
	f = fopen(path, "re");
	assert_non_null(f);
	*used += fread(text + *used, 1, TEXT_MAX - *used - 1, f);
	text[*used] = 0;
	fclose(f);
}

/* Blanks and comments stay with the word before them. */
static size_t word_length(const char *p)
{
	size_t n = 1;

	if (*p == '"') {
		n += strcspn(p + 1, "\"") + 1;
	} else if (*p == '/' && p[1] == '/') {
		n = strcspn(p, "\n");
	} else if (strspn(p, "$_abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ")) {
		n = strspn(p, "$_abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789");
	}
	return n + strspn(p + n, " \t\n");
}

static void words_read(struct words *w)
{
	static const char *const files[] = {"code", "io", "memory", "sync", "syscalls", "time"};
	size_t used = 0;

	w->text = malloc(TEXT_MAX);
	assert_non_null(w->text);
	for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++)
		read_file(files[i], w->text, &used);
	for (const char *p = w->text; *p; p += w->lengths[w->count - 1]) {
		assert_true(w->count < WORDS_MAX);
		w->items[w->count] = p;
		w->lengths[w->count++] = word_length(p);
	}
}

/* Words that may stand in each other's place: a better chance that it still loads. */
static char class_of(const char *word)
{
	if (*word == '$' || *word == '"')
		return *word;
	return strspn(word, "_abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ") ? 'a' : '+';
}

static unsigned another(const struct words *w, unsigned at)
{
	for (unsigned tries = 0; tries < 30; tries++) {
		unsigned to = (at + below(80)) % (unsigned)w->count;

		if (class_of(w->items[to]) == class_of(w->items[at]))
			return to;
	}
	return below((unsigned)w->count);
}

/* The words with one or two of them exchanged or left out. */
static size_t mutate(const struct words *w, char *text)
{
	unsigned changes = 1 + !below(3), at[2], kind[2], from[2];
	size_t used = 0;

	for (unsigned c = 0; c < changes; c++) {
		at[c] = below((unsigned)w->count);
		kind[c] = below(8);
		from[c] = another(w, at[c]);
	}
	for (size_t i = 0; i < w->count; i++) {
		size_t word = i;

		for (unsigned c = 0; c < changes; c++) {
			if (at[c] == i)
				word = kind[c] ? from[c] : SIZE_MAX;
		}
		if (word == SIZE_MAX)
			continue;
		assert_true(used + w->lengths[word] < TEXT_MAX);
		memcpy(text + used, w->items[word], w->lengths[word]);
		used += w->lengths[word];
	}
	return used;
}

/* ----------------------------------------------------------------- plans */

static void check_placement(const struct mdl_placement *p)
{
	const struct image_function *functions;

	assert_non_null(p->function.module);
	assert_non_null(p->function.module->image);
	assert_true(p->function.index < image_functions(p->function.module->image, &functions));
	assert_non_null(p->code);
	assert_true(p->kind <= POINT_BLOCK);
	assert_true(!p->addresses == !p->address_count);
	for (size_t i = 1; i < p->address_count; i++)
		assert_true(p->addresses[i - 1] < p->addresses[i]);
	for (size_t i = 0; i < p->binding_count; i++)
		assert_non_null(p->bindings[i].name);
}

static void check_plan(const struct mdl_plan *p)
{
	assert_non_null(p->metric);
	assert_non_null(p->focus);
	assert_true(p->waits_for || p->placement_count);
	for (size_t i = 0; i < p->placement_count; i++)
		check_placement(&p->placements[i]);
	for (size_t i = 0; i < p->flag_count; i++) {
		assert_non_null(p->flags[i].key);
		assert_true(p->flags[i].placement_count || p->flags[i].inline_code);
		for (size_t k = 0; k < p->flags[i].placement_count; k++)
			check_placement(&p->flags[i].placements[k]);
		assert_true(!p->flags[i].many || p->many);
	}
	assert_true(!p->many == !p->many_of);
}

static const char *const foci[] = {
	"",
	"foo",
	"/Code/evaluated",
	"/Code/evaluated/foo",
	"/Code/evaluated/*",
	"/Code/*/pvm_*",
	"/Code/evaluated/bar/*",
	"/Process/worker-1",
	"/Process/*",
	"/Process/worker-*",
	"/SyncObject/Mutex/lock",
	"/SyncObject/Mutex/*",
	"/SyncObject/Mutex",
	"/File/0",
	"/File/*",
	"/File/Socket/*",
	"/Machine/*",
	"/Code/lib*",
	"/SyncObject",
	"//",
	"/Code/evaluated/foo/bar/baz",
	"/File//",
};

static void evaluate_all(struct scene *sc, size_t *planned, size_t *refusals)
{
	for (const struct mdl_metric *m = mdl_metrics(sc->l); m; m = m->next) {
		char focus[256];

		if (below(4))
			continue;
		snprintf(focus, sizeof(focus), "%s %s", foci[below(sizeof(foci) / sizeof(foci[0]))],
			 below(2) ? foci[below(sizeof(foci) / sizeof(foci[0]))] : "");
		if (try_each(sc, m->id, focus, !below(6)) < 0) {
			assert_true(sc->e.code < 0 && sc->e.text[0]);
			assert_null(sc->plans);
			++*refusals;
			continue;
		}
		for (size_t i = 0; i < sc->count; i++)
			check_plan(&sc->plans[i]);
		*planned += sc->count;
	}
}

static void test_random(void **state)
{
	struct harness *h = *state;
	char *text = malloc(TEXT_MAX);
	size_t loaded = 0, planned = 0, refusals = 0;
	uint64_t start = clock_ns();
	struct words *w = calloc(1, sizeof(*w));
	const unsigned rounds = getenv("DINST_SHORT") ? ROUNDS_SHORT : ROUNDS;
	struct scene sc;

	assert_non_null(text);
	assert_non_null(w);
	words_read(w);
	scene_begin(h, &sc, "evaluated", NULL);
	/* The time is for what is more than enough. */
	for (unsigned round = 1;
	     round <= rounds && (loaded <= LOADED || planned <= PLANNED || refusals <= REFUSALS ||
				 clock_ns() - start < SECONDS * UINT64_C(1000000000));
	     round++) {
		struct dinst_error e = {0};
		size_t size;

		seed = round * UINT64_C(0x9e3779b97f4a7c15);
		size = mutate(w, text);
		mdl_library_free(sc.l);
		assert_int_equal(mdl_library_create(&sc.l, &e), 0);
		if (mdl_load_text(sc.l, "random", text, size, &e) < 0)
			continue;
		loaded++;
		evaluate_all(&sc, &planned, &refusals);
		drop(&sc);
	}
	print_message("%zu libraries, %zu plans, %zu refusals\n", loaded, planned, refusals);
	assert_true(loaded > LOADED);
	assert_true(planned > PLANNED);
	assert_true(refusals > REFUSALS);
	scene_end(h, &sc);
	free(w->text);
	free(w);
	free(text);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		LIVE_CASE(test_random),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
