/* SPDX-License-Identifier: MIT */
/*
 * lookup.c - from names and globs to functions of one image.
 *
 * Owns the table of exact names. Readable forms are only made for names that
 * may match: whatever a readable name spells out, but for a few words of the
 * languages themselves, stands literally in the mangled name, too.
 */
#include "mutator/image_private.h"
#include "mutator/siphash.h"

#include <ctype.h>
#include <fnmatch.h>
#include <stdlib.h>

static bool is_glob(const char *pattern)
{
	return strpbrk(pattern, "*?[\\") != NULL;
}

static bool is_everything(const char *pattern)
{
	return pattern[0] && pattern[strspn(pattern, "*")] == 0;
}

/* A name without its symbol version: "memcpy@@GLIBC_2.14" is memcpy. */
size_t name_plain_length(const char *name)
{
	const char *at = strchr(name, '@');

	return at && at != name ? (size_t)(at - name) : strlen(name);
}

uint32_t name_key(const char *name, size_t length)
{
	uint64_t tail = 0;

	memcpy(&tail, name + (length < 8 ? 0 : length - 8), length < 8 ? length : 8);
	tail = (tail ^ length) * UINT64_C(0x9e3779b97f4a7c15);
	return (uint32_t)(tail >> 32);
}

static const char *name_of(const struct image *img, size_t index)
{
	if (index < img->function_count)
		return img->functions[index].name;
	return img->aliases[index - img->function_count].name;
}

static uint32_t function_of(const struct image *img, size_t index)
{
	if (index < img->function_count)
		return index;
	return img->aliases[index - img->function_count].function;
}

static int build_table(struct image *img, struct dinst_error *e)
{
	size_t names = img->function_count + img->alias_count, size = 64;
	struct name_table *t = &img->names;

	if (t->slots)
		return 0;
	while (size < names * 2)
		size *= 2;
	t->slots = calloc(size + names, sizeof(*t->slots));
	if (!t->slots)
		return dinst_fail(e, DINST_NO_MEMORY, "%s: no memory for names", img->name);
	t->size = size;
	t->next = t->slots + size;
	/* From the end, so that a row is in the order of its functions. */
	for (size_t i = names; i-- > 0;) {
		const char *name = name_of(img, i);
		size_t at = name_hash(name, name_plain_length(name)) & (size - 1);

		t->next[i] = t->slots[at];
		t->slots[at] = (uint32_t)i + 1;
	}
	return 0;
}

int lookup_exact(struct image *img, const char *name, size_t length,
		 void (*found)(void *arg, uint32_t function), void *arg, struct dinst_error *e)
{
	const struct name_table *t = &img->names;
	const char *version = length ? memchr(name + 1, '@', length - 1) : NULL;
	const size_t plain = version ? (size_t)(version - name) : length;
	uint32_t at;

	if (build_table(img, e))
		return DINST_NO_MEMORY;
	for (at = t->slots[name_hash(name, plain) & (t->size - 1)]; at; at = t->next[at - 1]) {
		uint32_t index = at - 1;
		const char *other = name_of(img, index);

		/* With its version it is that one, without any of them. */
		if ((version ? strlen(other) : name_plain_length(other)) == length &&
		    !memcmp(other, name, length))
			found(arg, function_of(img, index));
	}
	return 0;
}

/* ------------------------------------------------------ what may be matched */

/* Words of readable names that are encoded otherwise in mangled ones. */
static const char spelled_out[] =
	" std string basic_string char_traits allocator istream ostream iostream basic_istream"
	" basic_ostream basic_iostream int char short long unsigned signed bool float double void"
	" wchar_t char8_t char16_t char32_t __int128 __float128 half decimal32 decimal64 decimal128"
	" _Float16 _BitInt const volatile restrict operator new delete co_await anonymous namespace"
	" lambda unnamed type auto decltype typeinfo name vtable VTT construction thunk virtual"
	" non covariant guard variable reference temporary initialization function TLS init wrapper"
	" clone transaction safe true false complex imaginary nullptr nullptr_t noexcept throw"
	" sizeof alignof typeid static_cast dynamic_cast const_cast reinterpret_cast this parm"
	" template parameter object java Class requires friend enable_if vector pixel inline"
	" default arg structured binding initializer module global constructors destructors keyed"
	" for to in str u8 u16 u32 u64 u128 usize i8 i16 i32 i64 i128 isize f32 f64 impl dyn as fn"
	" extern unsafe mut closure shim vtable_shim invocation ";

/*
 * The longest piece of the pattern that every mangled name must contain whose
 * readable form matches; length 0 if there is none.
 */
static size_t literal_piece(const char *pattern, char *piece, size_t size)
{
	size_t best = 0;

	for (const char *p = pattern; *p;) {
		size_t n = 0;
		char word[64];

		if ((uint8_t)*p >= 0x80)
			return 0;
		/* A bracket expression stands for one character, an escape for the next. */
		if (*p == '[' || *p == '\\')
			break;
		while (isalnum((uint8_t)p[n]) || p[n] == '_')
			n++;
		if (n > best && n > 1 && n < sizeof(word) && n < size && !isdigit((uint8_t)*p)) {
			memcpy(word, p, n);
			word[n] = 0;
			if (!strstr(spelled_out, word)) {
				memcpy(piece, word, n + 1);
				best = n;
			}
		}
		p += n ? n : 1;
	}
	return best;
}

struct matcher {
	struct image *img;
	const char *pattern;
	bool glob;
	char piece[64];
	size_t piece_length;
};

static bool matches_text(const struct matcher *m, const char *text)
{
	return m->glob ? !fnmatch(m->pattern, text, 0) : !strcmp(m->pattern, text);
}

/* Where the name proper begins in "void ns::f<int>": templates show what they return. */
static size_t skip_return_type(const char *readable, size_t length)
{
	int depth = 0;
	size_t start = 0;

	for (size_t i = 0; i < length; i++) {
		char c = readable[i];

		if (!strncmp(readable + i, "operator", 8))
			break;
		if (c == '<' || c == '(' || c == '{' || c == '[')
			depth++;
		else if ((c == '>' || c == ')' || c == '}' || c == ']') && depth)
			depth--;
		else if (c == ' ' && !depth)
			start = i + 1;
	}
	return start;
}

/* The readable form whole, without parameters, and without what it returns. */
static bool matches_readable(const struct matcher *m, const char *name)
{
	char *readable;
	size_t length, start;
	bool yes;

	if (!name_is_mangled(name))
		return false;
	if (m->piece_length && !strstr(name, m->piece))
		return false;
	readable = demangle(name);
	if (!readable)
		return false;
	yes = matches_text(m, readable);
	if (!yes) {
		length = readable_base_length(readable);
		readable[length] = 0;
		start = skip_return_type(readable, length);
		yes = matches_text(m, readable) || (start && matches_text(m, readable + start));
	}
	free(readable);
	return yes;
}

static bool matches_name(const struct matcher *m, const char *name)
{
	size_t length = name_plain_length(name);
	char plain[512];

	if (!name[length])
		return matches_text(m, name);
	if (length >= sizeof(plain))
		return false;
	memcpy(plain, name, length);
	plain[length] = 0;
	return matches_text(m, plain) || matches_text(m, name);
}

/* ---------------------------------------------------------------- matching */

/* What globs and proposals leave out. */
static const uint32_t not_offered = FUNCTION_COLD | FUNCTION_STUB | FUNCTION_IFUNC;

static bool is_offered(const struct image *img, uint32_t function)
{
	return !(img->functions[function].flags & not_offered);
}

/* A set of functions, one byte each: matches come from several directions. */
struct match_set {
	const struct image *img;
	uint32_t left_out; /* flags of functions that stay out */
	uint8_t *in;
	size_t count;
};

static void match_add(void *arg, uint32_t function)
{
	struct match_set *set = arg;

	if (!set->in[function] && !(set->img->functions[function].flags & set->left_out)) {
		set->in[function] = 1;
		set->count++;
	}
}

static void match_all(struct image *img, struct match_set *set)
{
	for (size_t i = 0; i < img->function_count; i++)
		match_add(set, i);
}

static void match_each(const struct matcher *m, struct match_set *set)
{
	size_t names = m->img->function_count + m->img->alias_count;

	for (size_t i = 0; i < names; i++) {
		uint32_t function = function_of(m->img, i);
		const char *name = name_of(m->img, i);

		if (set->in[function] || !is_offered(m->img, function))
			continue;
		if ((m->glob && matches_name(m, name)) || matches_readable(m, name))
			match_add(set, function);
	}
}

static bool is_readable_name(const struct matcher *m)
{
	const size_t names = m->img->function_count + m->img->alias_count;
	bool yes = false;

	for (size_t i = 0; i < names && !yes; i++) {
		const char *name = name_of(m->img, i);
		char *readable;

		if (!name_is_mangled(name) || (m->piece_length && !strstr(name, m->piece)))
			continue;
		readable = demangle(name);
		yes = readable && !strcmp(readable, m->pattern);
		free(readable);
	}
	return yes;
}

/*
 * The whole name of a function is no glob: f(char *) is not every f that takes a char first, (*Mutex).Lock
 * not that of RWMutex, and <impl [T]>::len and Sum[int] have no set of characters in them.
 */
bool image_is_name(struct image *img, const char *pattern)
{
	struct matcher m = {.img = img, .pattern = pattern};
	uint32_t flags;

	if (is_everything(pattern))
		return false;
	if (!is_glob(pattern) || image_name_flags(img, pattern, &flags))
		return true;
	m.piece_length = literal_piece(pattern, m.piece, sizeof(m.piece));
	return strpbrk(pattern, "(<") && is_readable_name(&m);
}

int image_match(struct image *img, const char *pattern, uint32_t **out, size_t *count,
		struct dinst_error *e)
{
	return image_match_as(img, pattern, !image_is_name(img, pattern), out, count, e);
}

int image_match_as(struct image *img, const char *pattern, bool glob, uint32_t **out, size_t *count,
		   struct dinst_error *e)
{
	struct matcher m = {.img = img, .pattern = pattern, .glob = glob};
	struct match_set set = {.img = img, .left_out = not_offered};
	uint32_t *list = NULL;
	size_t n = 0;
	int r = 0;

	m.piece_length = literal_piece(pattern, m.piece, sizeof(m.piece));
	set.in = calloc(img->function_count + 1, 1);
	if (!set.in)
		return dinst_fail(e, DINST_NO_MEMORY, "%s: no memory to match names", img->name);
	if (is_everything(pattern)) {
		match_all(img, &set);
	} else {
		/* Who asks for a resolver by its name is told so by the refusal of its points. */
		set.left_out &= ~(uint32_t)(m.glob ? 0 : FUNCTION_IFUNC);
		if (!m.glob)
			r = lookup_exact(img, pattern, strlen(pattern), match_add, &set, e);
		/* A mangled name in full is meant literally. */
		if (!r && (m.glob || !name_is_mangled(pattern)))
			match_each(&m, &set);
	}
	if (!r) {
		list = malloc((set.count + 1) * sizeof(*list));
		if (!list)
			r = dinst_fail(e, DINST_NO_MEMORY, "%s: no memory to match names",
				       img->name);
	}
	if (!r) {
		for (size_t i = 0; i < img->function_count; i++)
			if (set.in[i])
				list[n++] = i;
		*out = list;
		*count = n;
	}
	free(set.in);
	return r;
}

struct name_flags {
	const struct image *img;
	uint32_t flags;
	bool found;
};

static void collect_flags(void *arg, uint32_t function)
{
	struct name_flags *f = arg;

	f->flags |= f->img->functions[function].flags;
	f->found = true;
}

bool image_name_flags(struct image *img, const char *name, uint32_t *flags)
{
	struct name_flags f = {.img = img};

	if (lookup_exact(img, name, strlen(name), collect_flags, &f, NULL) || !f.found)
		return false;
	*flags = f.flags;
	return true;
}

/* ----------------------------------------------------------- nearest names */

enum { NEAREST_MAX = 8, WORD_MAX = 96 };

/* Edit distance without regard to case, more than `limit` if it is more (Wagner, Fischer). */
static unsigned distance(const char *a, size_t m, const char *b, size_t n, unsigned limit)
{
	unsigned row[WORD_MAX + 1];

	if (m > WORD_MAX || n > WORD_MAX || (m > n ? m - n : n - m) > limit)
		return limit + 1;
	for (size_t j = 0; j <= n; j++)
		row[j] = j;
	for (size_t i = 1; i <= m; i++) {
		unsigned diagonal = row[0], least = i;
		int c = tolower((uint8_t)a[i - 1]);

		row[0] = i;
		for (size_t j = 1; j <= n; j++) {
			unsigned v = diagonal + (c != tolower((uint8_t)b[j - 1]));

			diagonal = row[j];
			if (row[j] + 1 < v)
				v = row[j] + 1;
			if (row[j - 1] + 1 < v)
				v = row[j - 1] + 1;
			row[j] = v;
			if (v < least)
				least = v;
		}
		if (least > limit)
			return limit + 1;
	}
	return row[n];
}

struct nearest {
	const char *word;
	size_t length;
	unsigned limit;
	size_t count, max;
	struct {
		unsigned score;
		const char *name;
	} best[NEAREST_MAX];
};

/* The last component of a::b::c, where no bracket is open. */
static size_t last_component(const char *readable, size_t length)
{
	size_t start = 0;
	int depth = 0;

	for (size_t i = 0; i + 1 < length; i++) {
		if (strchr("<({[", readable[i]))
			depth++;
		else if (strchr(">)}]", readable[i]) && depth)
			depth--;
		else if (readable[i] == ':' && readable[i + 1] == ':' && !depth)
			start = i + 2;
	}
	return start;
}

static unsigned score(const struct nearest *n, const char *text, size_t length)
{
	unsigned d = distance(n->word, n->length, text, length, n->limit);

	/* Names that contain the word come last, the shortest first. */
	if (d > n->limit && n->length >= 3 && length > n->length &&
	    memmem(text, length, n->word, n->length))
		d = n->limit + 1 + (length - n->length);
	else if (d > n->limit)
		d = UINT32_MAX;
	return d;
}

static unsigned score_name(const struct nearest *n, const char *name)
{
	unsigned best = score(n, name, name_plain_length(name)), other;
	char *readable;
	size_t length, start;

	if (!name_is_mangled(name))
		return best;
	readable = demangle(name);
	if (!readable)
		return best;
	length = readable_base_length(readable);
	other = score(n, readable, length);
	best = other < best ? other : best;
	start = last_component(readable, length);
	if (start) {
		other = score(n, readable + start, length - start);
		/* The whole name is the better answer of two that are equally far. */
		best = other < best ? other : best;
	}
	free(readable);
	return best;
}

static void keep(struct nearest *n, unsigned points, const char *name)
{
	size_t at = n->count;

	while (at && n->best[at - 1].score > points)
		at--;
	if (at >= n->max)
		return;
	if (n->count < n->max)
		n->count++;
	for (size_t i = n->count - 1; i > at; i--)
		n->best[i] = n->best[i - 1];
	n->best[at].score = points;
	n->best[at].name = name;
}

size_t image_nearest(struct image *img, const char *name, const char **out, size_t max)
{
	char word[WORD_MAX + 1];
	struct nearest n = {.word = word, .max = max < NEAREST_MAX ? max : NEAREST_MAX};
	size_t names = img->function_count + img->alias_count;

	for (const char *p = name; *p && n.length < WORD_MAX; p++)
		if (!strchr("*?[]\\", *p))
			word[n.length++] = *p;
	word[n.length] = 0;
	/* Two letters that changed places are two steps. */
	n.limit = (n.length + 2) / 3;
	for (size_t i = 0; i < names && n.length; i++) {
		uint32_t function = function_of(img, i);
		unsigned points;

		if (!is_offered(img, function) ||
		    (img->functions[function].flags & FUNCTION_NO_SYMBOL))
			continue;
		points = score_name(&n, name_of(img, i));
		if (points != UINT32_MAX)
			keep(&n, points, name_of(img, i));
	}
	for (size_t i = 0; i < n.count; i++)
		out[i] = image_readable_name(img, n.best[i].name);
	return n.count;
}
