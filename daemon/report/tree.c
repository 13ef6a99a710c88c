/* SPDX-License-Identifier: MIT */
/*
 * tree.c - activations of threads become one tree.
 *
 * Owns the nodes, the names in them, and the threads' stacks. What it takes in may have
 * holes; whatever is missing, no time is counted twice and nothing is made up.
 */
#include <stdlib.h>
#include <string.h>

#include "daemon/report/names.h"
#include "daemon/report/tree.h"

enum {
	TABLE_FIRST = 256, /* places, a power of two */
	/* Stack pointers that are farther apart than this are of different stacks. */
	STACK_MOST = 8 << 20,
	/* Activations inside of one outermost one that are kept until it is over. */
	DONE_MOST = 1 << 17,
};

/* An activation: of a node, since `begun_ns`, at stack pointer `stack` (0: not told). */
struct frame {
	struct call_node *node;
	uint64_t begun_ns, stack;
};

/* An activation that is over, but not in the tree yet. */
struct done {
	struct call_node *node;
	uint64_t begun_ns, ns;
	bool left;
};

struct thread {
	uint32_t tid, pid;
	uint64_t last_ns; /* of its last event */
	struct frame *frames;
	size_t depth, room;
	size_t beyond; /* activations above the deepest that is kept */
	struct done *done;
	size_t done_count, done_room;
	uint64_t run; /* what the field of call_tree_run() says */
	bool guessed; /* something of the outermost activation is not certain */
};

struct call_tree {
	struct call_node root;
	struct names names;
	struct thread *threads; /* by tid, open addressing; tid 0: free */
	size_t thread_size, thread_used;
	const char *only, *only_module;	  /* NULL: any */
	const char *run;		  /* NULL: no field tells activations apart */
	uint64_t doubt_from, doubt_until; /* when events were lost, ns */
	uint64_t last_ns;		  /* of the last event of all */
	struct call_tree_facts facts;
	call_tree_each *each; /* NULL: nobody is told */
	void *each_arg;
	bool ended;
};

/* ---------------------------------------------------------------- nodes */

static struct call_node *node_child(struct call_tree *t, struct call_node *parent,
				    const char *function, const char *module)
{
	struct call_node **last = &parent->children;

	for (struct call_node *n = parent->children; n; last = &n->next, n = n->next)
		if (n->function == function && n->module == module)
			return n;
	*last = calloc(1, sizeof(**last));
	if (!*last)
		return NULL;
	**last = (struct call_node){.parent = parent, .function = function, .module = module};
	t->facts.nodes++;
	return *last;
}

struct call_node *call_tree_child(struct call_tree *t, struct call_node *parent,
				  const char *function, const char *module)
{
	const char *f = name_of(&t->names, function), *m = name_of(&t->names, module ? module : "");

	return f && m ? node_child(t, parent ? parent : &t->root, f, m) : NULL;
}

const struct call_node *call_node_next(const struct call_node *node, unsigned *depth)
{
	unsigned unused = 0, *d = depth ? depth : &unused;

	if (node->children) {
		++*d;
		return node->children;
	}
	while (node && !node->next) {
		node = node->parent;
		--*d;
	}
	return node ? node->next : NULL;
}

struct call_tree *call_tree_new(void)
{
	struct call_tree *t = calloc(1, sizeof(*t));

	if (t) {
		t->root.function = "";
		t->root.module = "";
	}
	return t;
}

/* Frees `n`, its siblings and all below them, up to the parent `end`. Returns how many. */
static size_t free_nodes(struct call_node *n, const struct call_node *end)
{
	size_t count = 0;

	while (n && n != end) {
		struct call_node *after;

		if (n->children) {
			/* its children first; then it comes by again without any */
			after = n->children;
			n->children = NULL;
			n = after;
			continue;
		}
		after = n->next ? n->next : n->parent;
		free(n);
		count++;
		n = after;
	}
	return count;
}

void call_tree_free(struct call_tree *t)
{
	if (t)
		free_nodes(t->root.children, &t->root);
	if (!t)
		return;
	for (size_t i = 0; i < t->thread_size; i++) {
		free(t->threads[i].frames);
		free(t->threads[i].done);
	}
	free(t->threads);
	names_release(&t->names);
	free(t);
}

int call_tree_only(struct call_tree *t, const char *function, const char *module)
{
	t->only = name_of(&t->names, function);
	t->only_module = module ? name_of(&t->names, module) : NULL;
	return t->only && (!module || t->only_module) ? 0 : DINST_NO_MEMORY;
}

int call_tree_run(struct call_tree *t, const char *text)
{
	t->run = name_of(&t->names, text);
	return t->run ? 0 : DINST_NO_MEMORY;
}

void call_tree_doubt(struct call_tree *t, uint64_t from_ns, uint64_t until_ns)
{
	/* what was lost before that still counts as long as events of that time come */
	if (!t->doubt_until || t->last_ns > t->doubt_until)
		t->doubt_from = from_ns;
	t->doubt_until = until_ns;
}

void call_tree_watch(struct call_tree *t, call_tree_each *each, void *arg)
{
	t->each = each;
	t->each_arg = arg;
}

const struct call_node *call_tree_root(const struct call_tree *t)
{
	return &t->root;
}

void call_tree_facts(const struct call_tree *t, struct call_tree_facts *facts)
{
	*facts = t->facts;
}

/* -------------------------------------------------------------- threads */

static struct thread *thread_place(struct thread *threads, size_t size, uint32_t tid)
{
	const uint32_t hash = tid * 0x9e3779b1u;
	size_t i = hash & (size - 1);

	while (threads[i].tid && threads[i].tid != tid)
		i = (i + 1) & (size - 1);
	return &threads[i];
}

static bool threads_grow(struct call_tree *t)
{
	size_t size = t->thread_size ? t->thread_size * 2 : TABLE_FIRST;
	struct thread *larger;

	if (t->thread_used * 2 < t->thread_size)
		return true;
	larger = calloc(size, sizeof(*larger));
	if (!larger)
		return false;
	for (size_t i = 0; i < t->thread_size; i++)
		if (t->threads[i].tid)
			*thread_place(larger, size, t->threads[i].tid) = t->threads[i];
	free(t->threads);
	t->threads = larger;
	t->thread_size = size;
	return true;
}

/* NULL without memory. */
static struct thread *thread_of(struct call_tree *t, uint32_t tid)
{
	struct thread *thread;

	if (!threads_grow(t))
		return NULL;
	thread = thread_place(t->threads, t->thread_size, tid);
	if (!thread->tid) {
		thread->tid = tid;
		t->thread_used++;
	}
	return thread;
}

/* What is over becomes part of the tree. */
static void commit(struct call_tree *t, struct thread *thread)
{
	for (size_t i = 0; i < thread->done_count; i++) {
		const struct done *d = &thread->done[i];
		const struct call_span span = {.node = d->node,
					       .tid = thread->tid,
					       .pid = thread->pid,
					       .begun_ns = d->begun_ns,
					       .ns = d->ns,
					       .left = d->left};

		d->node->count++;
		d->node->total_ns += d->ns;
		if (d->ns > d->node->most_ns)
			d->node->most_ns = d->ns;
		if (t->each)
			t->each(t->each_arg, &span);
	}
	thread->done_count = 0;
}

/* The outermost activation, since `begun`, is over. */
static void settle(struct call_tree *t, struct thread *thread, uint64_t begun, uint64_t now)
{
	if (thread->guessed && begun <= t->doubt_until && now >= t->doubt_from) {
		t->facts.doubtful++;
		thread->done_count = 0;
	}
	commit(t, thread);
	thread->guessed = false;
}

/* The uppermost activation is over, since `end`, as is known `now`. There is room for it, see push(). */
static void pop(struct call_tree *t, struct thread *thread, uint64_t end, uint64_t now, bool left)
{
	struct frame *frame = &thread->frames[--thread->depth];
	const uint64_t ns = end > frame->begun_ns ? end - frame->begun_ns : 0;

	thread->done[thread->done_count++] = (struct done){frame->node, frame->begun_ns, ns, left};
	if (!thread->depth)
		settle(t, thread, frame->begun_ns, now);
}

/*
 * Activations from `depth` on have ended in some other way than by their return. Where one around them goes on
 * that was by `now`, as its time says. Where none does, the thread may have been elsewhere for long: what is known
 * is that they ran until its last event.
 */
static void pop_left(struct call_tree *t, struct thread *thread, size_t depth, uint64_t now)
{
	const uint64_t end = depth ? now : thread->last_ns;

	for (; thread->depth > depth; t->facts.left++) {
		thread->guessed = true;
		pop(t, thread, end, now, true);
	}
}

static bool one_stack(uint64_t a, uint64_t b)
{
	return a && b && (a > b ? a - b : b - a) < STACK_MOST;
}

/*
 * An activation's frame lies below its caller's. So where the stack pointer is above a frame, that is
 * over; at an entry also the one that is just there: the new one has taken its place.
 */
static void leave_below(struct call_tree *t, struct thread *thread, uint64_t stack, bool entry,
			uint64_t now)
{
	size_t depth = thread->depth;

	while (depth && one_stack(thread->frames[depth - 1].stack, stack) &&
	       thread->frames[depth - 1].stack < stack + entry)
		depth--;
	if (depth == thread->depth)
		return;
	pop_left(t, thread, depth, now);
	thread->beyond = 0;
}

/* Room for all that is running, and for one more. */
static bool done_room(struct call_tree *t, struct thread *thread)
{
	struct done *more;
	size_t room;

	if (thread->done_count + thread->depth + 1 < thread->done_room)
		return true;
	/* what is very long is not kept back: it is what main() does */
	if (thread->done_count >= DONE_MOST)
		commit(t, thread);
	if (thread->done_count + thread->depth + 1 < thread->done_room)
		return true;
	room = thread->done_room ? thread->done_room * 2 : 64;
	more = reallocarray(thread->done, room, sizeof(*more));
	if (!more)
		return false;
	thread->done = more;
	thread->done_room = room;
	return true;
}

static int push(struct call_tree *t, struct thread *thread, const char *function,
		const char *module, const struct frame *frame)
{
	struct call_node *parent =
		thread->depth ? thread->frames[thread->depth - 1].node : &t->root;
	struct call_node *node;

	if (thread->depth == CALL_TREE_DEPTH) {
		thread->beyond++;
		t->facts.too_deep++;
		return 0;
	}
	if (thread->depth == thread->room) {
		size_t room = thread->room ? thread->room * 2 : 32;
		struct frame *more = reallocarray(thread->frames, room, sizeof(*more));

		if (!more)
			return DINST_NO_MEMORY;
		thread->frames = more;
		thread->room = room;
	}
	node = done_room(t, thread) ? node_child(t, parent, function, module) : NULL;
	if (!node)
		return DINST_NO_MEMORY;
	t->facts.events++;
	thread->frames[thread->depth] = *frame;
	thread->frames[thread->depth++].node = node;
	return 0;
}

/* Which activation a return belongs to: depth + 1, 0 for none. */
static size_t frame_of_return(const struct thread *thread, const char *function, const char *module,
			      uint64_t stack)
{
	for (size_t i = thread->depth; i > 0; i--) {
		const struct frame *f = &thread->frames[i - 1];

		/* frames above have not returned: its own entry was not seen */
		if (one_stack(f->stack, stack) && f->stack != stack)
			return 0;
		if (f->node->function == function && f->node->module == module)
			return i;
	}
	return 0;
}

static void leave(struct call_tree *t, struct thread *thread, const char *function,
		  const char *module, uint64_t stack, uint64_t now)
{
	size_t at;

	leave_below(t, thread, stack, false, now);
	/* a return from above the deepest that is kept, whose entry was counted only */
	if (thread->beyond && !(stack && thread->frames[thread->depth - 1].stack == stack)) {
		thread->beyond--;
		return;
	}
	at = frame_of_return(thread, function, module, stack);
	if (!at) {
		t->facts.unmatched++;
		thread->guessed = true;
		return;
	}
	thread->beyond = 0;
	pop_left(t, thread, at, now);
	pop(t, thread, now, now, false);
	t->facts.events++;
}

/* The value of the field of that text, 0 if there is none. */
static uint64_t field_of(const struct event *e, const char *text)
{
	uint64_t value = 0;

	for (size_t i = 0; i < e->kind->field_count; i++) {
		const struct event_field *f = &e->kind->fields[i];

		if (f->text && strcmp(f->text, text) == 0 && event_value(e, f, &value))
			return value;
	}
	return 0;
}

/*
 * What the thread was inside of is over. Where events were lost meanwhile its return may have been one of them: when
 * that was is not known. Else there was none.
 */
static void begin_run(struct call_tree *t, struct thread *thread, uint64_t run, uint64_t now)
{
	if (thread->run != run && thread->depth) {
		pop_left(t, thread, 0, now);
		thread->beyond = 0;
	}
	thread->run = run;
}

static int take_event(struct call_tree *t, struct thread *thread, const struct event *e,
		      const char *function, const char *module)
{
	const struct frame frame = {.begun_ns = e->ns, .stack = field_of(e, "$stack")};

	if (t->run)
		begin_run(t, thread, field_of(e, t->run), e->ns);
	if (e->kind->what == EVENT_RETURN) {
		leave(t, thread, function, module, frame.stack, e->ns);
		return 0;
	}
	leave_below(t, thread, frame.stack, true, e->ns);
	if (!thread->depth && t->only &&
	    (function != t->only || (t->only_module && module != t->only_module)))
		return 0;
	return push(t, thread, function, module, &frame);
}

int call_tree_event(struct call_tree *t, const struct event *e)
{
	const enum event_what what = e->kind->what;
	const char *function, *module;
	struct thread *thread;
	int status;

	if (t->ended || !e->tid || (what != EVENT_ENTRY && what != EVENT_RETURN))
		return 0;
	function = name_of(&t->names, e->kind->function);
	module = name_of(&t->names, e->kind->module ? e->kind->module : "");
	thread = thread_of(t, e->tid);
	if (!function || !module || !thread)
		return DINST_NO_MEMORY;
	t->last_ns = e->ns;
	thread->pid = e->pid;
	status = take_event(t, thread, e, function, module);
	thread->last_ns = e->ns;
	return status;
}

void call_tree_lost(struct call_tree *t)
{
	for (size_t i = 0; i < t->thread_size; i++) {
		pop_left(t, &t->threads[i], 0, t->threads[i].last_ns);
		t->threads[i].beyond = 0;
	}
}

void call_tree_gone(struct call_tree *t, call_tree_is_there *is_there)
{
	for (size_t i = 0; i < t->thread_size; i++) {
		struct thread *thread = &t->threads[i];

		if (!thread->depth || is_there(thread->pid, thread->tid))
			continue;
		pop_left(t, thread, 0, thread->last_ns);
		thread->beyond = 0;
	}
}

/* ------------------------------------------------------------- the end */

static int by_time(const void *a, const void *b)
{
	const struct call_node *x = *(struct call_node *const *)a;
	const struct call_node *y = *(struct call_node *const *)b;
	int order;

	if (x->total_ns != y->total_ns)
		return x->total_ns < y->total_ns ? 1 : -1;
	if (x->count != y->count)
		return x->count < y->count ? 1 : -1;
	order = strcmp(x->function, y->function);
	return order ? order : strcmp(x->module, y->module);
}

/* Without memory the children stay in the order in which they were met. */
static void sort_children(struct call_node *node)
{
	struct call_node **all, **last = &node->children;
	size_t count = 0, i = 0;

	for (struct call_node *n = node->children; n; n = n->next)
		count++;
	all = count > 1 ? calloc(count, sizeof(struct call_node *)) : NULL;
	if (!all)
		return;
	for (struct call_node *n = node->children; n; n = n->next)
		all[i++] = n;
	qsort(all, count, sizeof(struct call_node *), by_time);
	for (i = 0; i < count; i++) {
		*last = all[i];
		last = &all[i]->next;
	}
	*last = NULL;
	free(all);
}

/* What was never counted, of activations that were left out; below it nothing was, either. */
static void prune(struct call_tree *t, struct call_node *node)
{
	struct call_node **last = &node->children, *n;

	while ((n = *last) != NULL) {
		if (n->count) {
			last = &n->next;
			continue;
		}
		*last = n->next;
		t->facts.nodes -= free_nodes(n->children, n) + 1;
		free(n);
	}
}

static void finish_node(struct call_tree *t, struct call_node *node)
{
	uint64_t below = 0;

	prune(t, node);
	sort_children(node);
	for (struct call_node *n = node->children; n; n = n->next)
		below += n->total_ns;
	/* clocks of processors may differ by a few ns: never less than nothing */
	node->self_ns = node->total_ns > below ? node->total_ns - below : 0;
}

void call_tree_end(struct call_tree *t, uint64_t now_ns)
{
	if (t->ended)
		return;
	t->ended = true;
	for (size_t i = 0; i < t->thread_size; i++) {
		struct thread *thread = &t->threads[i];
		const uint64_t now = now_ns > thread->last_ns ? now_ns : thread->last_ns;

		/* its return may be among what was lost */
		if (thread->depth && thread->frames[0].begun_ns <= t->doubt_until) {
			thread->depth = thread->done_count = 0;
			t->facts.doubtful++;
		}
		for (size_t k = 0; k < thread->depth; k++)
			thread->frames[k].node->open++;
		while (thread->depth)
			pop(t, thread, now, now, true);
	}
	t->root.count = t->root.total_ns = t->root.open = 0;
	for (const struct call_node *n = t->root.children; n; n = n->next) {
		t->root.count += n->count;
		t->root.total_ns += n->total_ns;
		t->root.open += n->open;
	}
	for (struct call_node *n = &t->root; n; n = (struct call_node *)call_node_next(n, NULL))
		finish_node(t, n);
	t->root.self_ns = 0;
}
