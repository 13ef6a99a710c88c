/* SPDX-License-Identifier: MIT */
/*
 * why_results.c - vectors as they are read, as elements of a test: who, how much. Asks nobody
 * but /proc for names.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/client/why.h"

/* "MODULE:FUNCTION+0x12" in two parts. */
static void split_name(const char *name, struct search_element *e)
{
	const char *colon = strchr(name, ':');
	const char *plus = colon ? strstr(colon, "+0x") : NULL;

	if (!colon)
		return;
	snprintf(e->module, sizeof(e->module), "%.*s", (int)(colon - name), name);
	snprintf(e->name, sizeof(e->name), "%.*s",
		 plus ? (int)(plus - colon - 1) : (int)strlen(colon + 1), colon + 1);
}

static struct search_element *element_named(struct search_test *t, const char *module,
					    const char *name)
{
	for (size_t i = 0; i < t->element_count; i++)
		if (!strcmp(t->elements[i].name, name) && !strcmp(t->elements[i].module, module))
			return &t->elements[i];
	return NULL;
}

static int by_value(const void *a, const void *b)
{
	const struct search_element *x = a, *y = b;

	return x->value < y->value ? 1 : x->value > y->value ? -1 : 0;
}

static void name_element(struct why *w, struct search_test *t, struct search_element *e,
			 const char *name)
{
	switch (t->what) {
	case MEASURE_WAITERS:
	case MEASURE_HOLDERS:
	case MEASURE_BLOCKS:
		split_name(name, e);
		break;
	case MEASURE_LOCKS:
		why_place(w->q.pid, strtoull(e->key, NULL, 0), e->name, sizeof(e->name));
		break;
	case MEASURE_CPU_THREADS:
		snprintf(e->name, sizeof(e->name), "%s", name);
		break;
	default:
		why_descriptor(w->q.pid, e->key, e->name, sizeof(e->name), &e->is_file);
		break;
	}
}

static void key_text(json_t *key, char *text, size_t size)
{
	if (json_is_string(key))
		snprintf(text, size, "%s", json_string_value(key));
	else
		snprintf(text, size, "%lld", (long long)json_integer_value(key));
}

/* For `most` elements; false, and there are none, where there is no memory. */
static bool make_room(struct search_test *t, size_t most)
{
	search_test_release(t);
	t->elements = calloc(most + 1, sizeof(*t->elements));
	return t->elements;
}

void why_take_elements(struct why *w, struct search_test *t, json_t *list, double scale)
{
	json_t *element;
	size_t index;

	if (!make_room(t, json_array_size(list)))
		return;
	json_array_foreach(list, index, element)
	{
		const char *name = json_string_value(json_object_get(element, "name"));
		struct search_element *e = &t->elements[t->element_count], *same;

		if (json_is_null(json_object_get(element, "key")))
			continue;
		key_text(json_object_get(element, "key"), e->key, sizeof(e->key));
		e->value = json_number_value(json_object_get(element, "value")) * scale;
		name_element(w, t, e, name ? name : "");
		same = e->module[0] ? element_named(t, e->module, e->name) : NULL;
		if (same) {
			same->value += e->value;
			*e = (struct search_element){.value = 0};
		} else {
			t->element_count++;
		}
	}
	if (t->element_count > 1)
		qsort(t->elements, t->element_count, sizeof(*t->elements), by_value);
}

void why_take_blocks(struct search_test *t, json_t *rows)
{
	json_t *blocks = json_object_get(json_array_get(rows, 0), "elements"), *element, *maker;
	json_t *made = json_object_get(json_array_get(rows, 1), "elements");
	json_t *bytes = json_object_get(json_array_get(rows, 2), "elements");
	size_t index, k;

	if (!make_room(t, json_array_size(made)))
		return;
	json_array_foreach(made, index, maker)
	{
		const char *key = json_string_value(json_object_get(maker, "key"));
		const char *name = json_string_value(json_object_get(maker, "name"));
		const double count = json_number_value(json_object_get(maker, "value"));
		struct search_element e = {.made = count}, *to;

		if (!key || !name)
			continue;
		split_name(name, &e);
		to = element_named(t, e.module, e.name);
		if (!to) {
			to = &t->elements[t->element_count++];
			*to = e;
		} else {
			to->made += count;
		}
		json_array_foreach(bytes, k,
				   element) if (json_equal(json_object_get(element, "key"),
							   json_object_get(maker, "key")))
			to->bytes += json_number_value(json_object_get(element, "value"));
		json_array_foreach(blocks, k, element) to->value +=
			(uint64_t)json_integer_value(json_object_get(element, "value")) ==
			strtoull(key, NULL, 0);
	}
	for (size_t i = 0; i < t->element_count; i++)
		if (t->elements[i].made > 0)
			t->elements[i].bytes /= t->elements[i].made;
	if (t->element_count > 1)
		qsort(t->elements, t->element_count, sizeof(*t->elements), by_value);
}
