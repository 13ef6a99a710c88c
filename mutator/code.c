/* SPDX-License-Identifier: MIT */
/*
 * code.c - the straight code of a site: snippets and relocated instructions.
 *
 *	[switch]
 *	for each instruction of the window:
 *		snippets before it
 *		its relocated copy; a branch with something on its taken side
 *		goes to a stub
 *		snippets where it falls through
 *	jump behind the window
 *	stubs: snippets, jump to the branch's target
 *
 * Emitted into memory of ours: nothing here allocates in a target or writes to
 * one. Stubs are behind what leads to them, so emission is repeated until they
 * are where they were assumed to be, which they are the second time.
 */
#include <stdlib.h>
#include <string.h>

#include "mutator/body.h"

enum {
	PASSES = 5,
	MARKS_PER_INSN = 6,
	NOTES_PER_PIECE = 24, /* pushes and pops of a frame and what is in it */
	NOTES_PER_COPY = 2,   /* a register that the copy of an instruction keeps on the stack */
	NOTE_BYTES = 2, /* a push or pop is so long at least, or stands where others are not */
	FRAME_MAX = 96,
};

/* ------------------------------------------------------------- contents */

static unsigned piece_count(const struct code *c)
{
	return c->body ? c->body->count : 0;
}

static bool runs_whole_window(const struct site *site)
{
	return site->window.kind == ARCH_PATCH_JUMP || site->window.kind == ARCH_PATCH_SHORT_JUMP;
}

static bool has_piece(const struct code *c, unsigned insn, enum point_place place)
{
	for (unsigned i = 0; i < piece_count(c); i++)
		if (c->body->pieces[i].insn == insn && c->body->pieces[i].place == place)
			return true;
	return false;
}

/* A branch to the window's own beginning that must pass by the entry snippets. */
static bool bypasses_itself(const struct code *c, unsigned insn)
{
	return has_piece(c, insn, PLACE_BYPASS) &&
	       module_window_at(c->site->module, c->insns[insn].target) == c->site->key.start;
}

static bool any_bypasses_itself(const struct code *c)
{
	for (unsigned i = 0; i < c->insn_count; i++)
		if (bypasses_itself(c, i))
			return true;
	return false;
}

/* Room for the programs' code, and for what is noted of it: less than a mark for each byte. */
static void add_programs(const struct code *c, size_t *hot, size_t *cold, size_t *notes)
{
	for (unsigned n = 0; n < c->run_count; n++) {
		size_t own_hot = 0, own_cold = 0;

		arch_program_sizes(&c->runs[n].program, &own_hot, &own_cold);
		*hot += own_hot;
		*cold += own_cold;
		*notes += (own_hot + own_cold) / NOTE_BYTES;
	}
}

int code_init(struct code *c, const struct session *s, const struct site *site,
	      const struct body *body, struct dinst_error *e)
{
	const unsigned pieces = body ? body->count : 0;
	size_t hot, cold, notes = 64 + (size_t)pieces * NOTES_PER_PIECE;
	int status;

	memset(c, 0, sizeof(*c));
	c->session = s;
	c->site = site;
	c->body = body;
	c->insn_count = (unsigned)site_instructions(site, c->insns);
	if (c->insn_count != site->window.insn_count)
		return dinst_fail(e, DINST_REFUSED, "cannot decode the window at %#llx",
				  (unsigned long long)site->key.start);
	status = code_make_runs(c, e);
	if (status < 0) {
		code_release(c);
		return status;
	}
	if (!runs_whole_window(site) && arch_is_call(&c->insns[c->insn_count - 1]))
		c->pushed = arch_call_pushes;
	hot = 256 + (size_t)c->insn_count * 2 * ARCH_RELOCATED_MAX +
	      (size_t)pieces * (SNIPPET_HOT_MAX + FRAME_MAX + ARCH_RELOCATED_MAX);
	if (any_bypasses_itself(c) || pieces)
		hot += (size_t)WINDOW_INSNS_MAX * ARCH_RELOCATED_MAX;
	cold = 64 + (size_t)pieces * SNIPPET_COLD_MAX;
	add_programs(c, &hot, &cold, &notes);
	notes += ((size_t)c->insn_count + WINDOW_INSNS_MAX) * NOTES_PER_COPY;
	c->mark_room = 16 + ((size_t)c->insn_count + WINDOW_INSNS_MAX) * MARKS_PER_INSN +
		       (size_t)pieces * 4;
	c->hot = (struct arch_buf){.bytes = malloc(hot), .size = hot};
	c->cold = (struct arch_buf){.bytes = malloc(cold), .size = cold};
	c->hot_trace = (struct arch_trace){.marks = malloc(notes * sizeof(struct arch_mark)),
					   .room = notes};
	c->cold_trace = (struct arch_trace){.marks = malloc(notes * sizeof(struct arch_mark)),
					    .room = notes};
	c->marks = malloc(c->mark_room * sizeof(*c->marks));
	c->hot.trace = &c->hot_trace;
	c->cold.trace = &c->cold_trace;
	if (c->hot.bytes && c->cold.bytes && c->hot_trace.marks && c->cold_trace.marks && c->marks)
		return 0;
	code_release(c);
	return dinst_fail(e, DINST_NO_MEMORY, "out of memory for the code of a site");
}

void code_release(struct code *c)
{
	free(c->hot.bytes);
	free(c->cold.bytes);
	free(c->hot_trace.marks);
	free(c->cold_trace.marks);
	free(c->marks);
	code_free_runs(c);
	memset(c, 0, sizeof(*c));
}

/* ------------------------------------------------------------- emission */

static void mark(struct code *c, enum site_line_kind kind, unsigned index, taddr_t home, bool exact)
{
	if (c->mark_count == c->mark_room) {
		c->hot.status = ARCH_NO_ROOM;
		return;
	}
	c->marks[c->mark_count++] = (struct code_mark){
		.kind = kind,
		.offset = (uint32_t)c->hot.used,
		.cold_offset = (uint32_t)c->cold.used,
		.index = (uint16_t)index,
		.exact = exact,
		.home = home,
	};
}

/* Where the piece, or the program that it is a part of, ends. */
static unsigned run_end(const struct code *c, unsigned piece)
{
	const struct code_run *run = code_run_at(c, piece);

	return run ? run->end : piece + 1;
}

static void need(const struct code *c, unsigned piece, struct arch_frame *frame)
{
	const struct code_run *run = code_run_at(c, piece);

	if (run)
		arch_program_needs(&run->program, &c->body->environment, frame);
	else
		snippet_needs(&c->body->environment, &c->body->pieces[piece].snippet, frame);
}

static void emit_run(struct code *c, unsigned piece, const struct arch_frame *frame)
{
	const struct code_run *run = code_run_at(c, piece);
	const struct arch_environment *environment = &c->body->environment;

	if (run) {
		const bool was_right = c->hot.status == ARCH_OK && c->cold.status == ARCH_OK;

		arch_emit_program(&run->program, environment, frame, &c->hot, &c->cold);
		c->bad_program |=
			was_right && (c->hot.status != ARCH_OK || c->cold.status != ARCH_OK);
	} else {
		snippet_emit(environment, &c->body->pieces[piece].snippet, frame, &c->hot,
			     &c->cold);
	}
}

/* What was noted since there were `from` marks. */
static void note_stack(struct code *c, const struct arch_trace *trace, size_t from)
{
	for (size_t i = from; i < trace->count && i < trace->room; i++)
		if (trace->marks[i].pushed > c->stack)
			c->stack = trace->marks[i].pushed;
}

static void relocate(struct code *c, const struct arch_insn *insn)
{
	const size_t from = c->hot_trace.count;

	arch_relocate(insn, &c->hot);
	note_stack(c, &c->hot_trace, from);
}

/* The pieces [first, end) at one place, in one frame. */
static void emit_frame(struct code *c, unsigned first, unsigned end, taddr_t home)
{
	/* Also at a function's entry: who falls or jumps into it may have put something there. */
	struct arch_frame frame = {.before = (uint8_t)c->pushed, .red_zone = true};
	const size_t hot = c->hot_trace.count, cold = c->cold_trace.count;

	for (unsigned i = first; i < end; i++)
		frame.live |= c->body->pieces[i].live;
	for (unsigned i = first; i < end; i = run_end(c, i))
		need(c, i, &frame);
	mark(c, SITE_LINE_SNIPPET, first, home, false);
	arch_frame_open(&c->hot, &frame);
	for (unsigned i = first; i < end; i = run_end(c, i)) {
		mark(c, SITE_LINE_SNIPPET, i, home, false);
		emit_run(c, i, &frame);
	}
	arch_frame_close(&c->hot, &frame);
	note_stack(c, &c->hot_trace, hot);
	note_stack(c, &c->cold_trace, cold);
}

/* What runs at one place; only those of entries, only the others, or all. */
enum which { ALL, ENTRIES, OTHERS };

static void emit_place(struct code *c, unsigned insn, enum point_place place, enum which which,
		       taddr_t home)
{
	unsigned first = 0, end;

	while (first < piece_count(c) &&
	       (c->body->pieces[first].insn != insn || c->body->pieces[first].place != place ||
		(which == OTHERS && c->body->pieces[first].kind == POINT_ENTRY)))
		first++;
	for (end = first; end < piece_count(c) && c->body->pieces[end].insn == insn &&
			  c->body->pieces[end].place == place &&
			  (which != ENTRIES || c->body->pieces[end].kind == POINT_ENTRY);
	     end++)
		;
	while (first < end) {
		unsigned next = first + 1;

		/* What reads the instruction's own registers shares its frame with nobody. */
		if (c->body->pieces[first].snippet.kind != SNIPPET_ADDRESS)
			while (next < end && c->body->pieces[next].snippet.kind != SNIPPET_ADDRESS)
				next++;
		emit_frame(c, first, next, home);
		first = next;
	}
}

/* The offset that is assumed for something that comes later, once it is known. */
static void settle(struct code *c, uint32_t *assumed)
{
	if (*assumed != c->hot.used)
		c->moved = true;
	*assumed = (uint32_t)c->hot.used;
}

/* What a window has in the target, at its addresses there: 0 if that cannot be decoded. */
static size_t instructions_of(const struct code *c, const struct window *w, struct arch_insn *insns)
{
	const struct module *m = c->site->module;
	const struct site *there = site_find(c->session, w->start + m->bias);
	struct arch_insn in_file[WINDOW_INSNS_MAX];
	size_t count;

	/* Another module may have come to where that was which some process still has. */
	if (there && there->module == m)
		return site_instructions(there, insns);
	count = window_instructions(m->image, w, in_file);
	for (size_t i = 0; i < count; i++)
		if (arch_decode(in_file[i].bytes, in_file[i].length, in_file[i].address + m->bias,
				&insns[i]) != ARCH_OK)
			return 0;
	return count;
}

/*
 * An instruction of the window at `start`, whose copy begins at `begin`: where it leads back to the
 * window's beginning it goes round what is inserted there, too.
 */
static void copy_around(struct code *c, const struct arch_insn *moved, taddr_t start, taddr_t begin)
{
	const bool branches = moved->flow == ARCH_FLOW_BRANCH;

	if ((!branches && moved->flow != ARCH_FLOW_JUMP) ||
	    module_window_at(c->site->module, moved->target) != start)
		relocate(c, moved);
	else if (branches)
		arch_relocate_branch(moved, begin, &c->hot);
	else
		arch_emit_jump(&c->hot, begin);
}

/* Leaves for where the branch goes: as it is, or past what is inserted there. */
static void emit_around(struct code *c, unsigned insn)
{
	const struct arch_insn *branch = &c->insns[insn];
	const struct site *site = c->site;
	struct arch_insn insns[WINDOW_INSNS_MAX];
	const struct window *w = NULL;
	const struct function_plan *plan;
	const taddr_t start = module_window_at(c->site->module, branch->target),
		      begin = c->hot.pc + c->hot.used;
	size_t count;

	if (start == site->key.start) {
		mark(c, SITE_LINE_BACK, insn, branch->target, true);
		arch_emit_jump(&c->hot, c->hot.pc + c->behind_entry);
		return;
	}
	plan = session_known_plan(c->session, site->module, site->function);
	for (size_t i = 0; plan && i < plan->window_count && !w; i++)
		if (plan->windows[i].start + site->module->bias == start)
			w = &plan->windows[i];
	if (!w) {
		/* It goes where nothing is inserted. */
		mark(c, SITE_LINE_BACK, insn, branch->target, true);
		arch_emit_jump(&c->hot, branch->target);
		return;
	}
	count = instructions_of(c, w, insns);
	if (!count)
		c->hot.status = ARCH_UNKNOWN;
	/* The jump itself: whoever stands at it is led here. */
	mark(c, SITE_LINE_BACK, insn, branch->target, true);
	for (size_t i = 0; i < count; i++) {
		const struct arch_insn *moved = &insns[i];

		mark(c, SITE_LINE_AROUND, (unsigned)i, moved->address, true);
		copy_around(c, moved, start, begin);
		if (i + 1 < count || !arch_falls_through(moved))
			continue;
		mark(c, SITE_LINE_BACK, insn, moved->address + moved->length, true);
		arch_emit_jump(&c->hot, moved->address + moved->length);
	}
}

/* On the way to where the branch leads: snippets, then there. */
static void emit_taken(struct code *c, unsigned insn)
{
	const struct arch_insn *branch = &c->insns[insn];

	emit_place(c, insn, PLACE_TAKEN, ALL, branch->target);
	if (has_piece(c, insn, PLACE_BYPASS)) {
		emit_around(c, insn);
		return;
	}
	mark(c, SITE_LINE_BACK, insn, branch->target, true);
	arch_emit_jump(&c->hot, branch->target);
}

static bool has_taken_side(const struct code *c, unsigned insn)
{
	return has_piece(c, insn, PLACE_TAKEN) || has_piece(c, insn, PLACE_BYPASS);
}

/* The copy of an instruction of a window that a jump leads away from. */
static void emit_copy(struct code *c, unsigned insn)
{
	const struct arch_insn *i = &c->insns[insn];

	if (has_taken_side(c, insn) && i->flow == ARCH_FLOW_JUMP) {
		emit_taken(c, insn);
		return;
	}
	mark(c, SITE_LINE_COPY, insn, i->address, true);
	if (has_taken_side(c, insn))
		arch_relocate_branch(i, c->hot.pc + c->stubs[insn], &c->hot);
	else
		relocate(c, i);
	if (arch_falls_through(i))
		emit_place(c, insn, PLACE_FALLS, ALL, i->address + i->length);
}

/* What an instruction did that is patched in itself, and that has been done half: a call has
 * pushed, a condition was true. */
static void emit_rest(struct code *c, unsigned insn)
{
	const struct arch_insn *i = &c->insns[insn];

	if (!arch_is_call(i)) {
		emit_taken(c, insn);
		return;
	}
	mark(c, SITE_LINE_COPY, insn, i->address, true);
	arch_emit_call_tail(i, &c->hot);
}

/* A site that keeps its call goes back to it: nothing of the call itself is to be emitted. */
static bool goes_back_to(const struct code *c, unsigned insn)
{
	return c->site->keeps_call && insn + 1 == c->insn_count;
}

bool code_can_keep_call(const struct site *site)
{
	struct arch_insn insns[WINDOW_INSNS_MAX];
	size_t count = site_instructions(site, insns);
	const size_t overwritten =
		site->window.kind == ARCH_PATCH_SHORT_JUMP ? arch_short_jump_size : arch_jump_size;

	return count > 1 && runs_whole_window(site) && arch_is_call(&insns[count - 1]) &&
	       insns[count - 1].address >= site->key.start + overwritten;
}

bool code_can_share_call(const struct site *site)
{
	struct arch_insn insns[WINDOW_INSNS_MAX];
	const size_t count = site_instructions(site, insns), at = arch_jump_size - 1;
	const struct arch_insn *call = &insns[count ? count - 1 : 0];
	uint8_t bytes[WINDOW_BYTES_MAX];
	size_t size = 0, first, patched;

	if (!arch_shared_jump_most || count < 2 || site->window.kind != ARCH_PATCH_JUMP ||
	    call->flow != ARCH_FLOW_CALL || call->address != site->key.start + at)
		return false;
	for (size_t i = 0; i < count && size + insns[i].length <= sizeof(bytes); i++) {
		memcpy(bytes + size, insns[i].bytes, insns[i].length);
		size += insns[i].length;
	}
	/* Not all calls begin alike: what would be written tells. */
	return arch_patch(ARCH_PATCH_JUMP, NULL, site->key.start,
			  call->address - arch_shared_jump_least, bytes, size, &first,
			  &patched) == ARCH_OK &&
	       first + patched <= at;
}

bool code_moves_call(const struct site *site)
{
	struct arch_insn insns[WINDOW_INSNS_MAX];
	size_t count = site_instructions(site, insns);

	return runs_whole_window(site) && !site->keeps_call && count &&
	       arch_is_call(&insns[count - 1]);
}

static void emit_all(struct code *c)
{
	const bool whole = runs_whole_window(c->site);
	const bool splits = any_bypasses_itself(c);

	if (c->body && c->body->is_head) {
		mark(c, SITE_LINE_SWITCH, 0, c->site->key.start, false);
		arch_emit_switch(&c->hot);
	}
	for (unsigned i = 0; i < c->insn_count; i++) {
		const struct arch_insn *insn = &c->insns[i];

		if (i == 0 && splits) {
			emit_place(c, 0, PLACE_BEFORE, ENTRIES, insn->address);
			settle(c, &c->behind_entry);
			emit_place(c, 0, PLACE_BEFORE, OTHERS, insn->address);
		} else {
			emit_place(c, i, PLACE_BEFORE, ALL, insn->address);
		}
		if (goes_back_to(c, i)) {
			mark(c, SITE_LINE_BACK, i, insn->address, true);
			arch_emit_jump(&c->hot, insn->address);
			break;
		}
		if (whole || i + 1 < c->insn_count)
			emit_copy(c, i);
		else
			emit_rest(c, i);
		if (whole && i + 1 == c->insn_count && arch_falls_through(insn)) {
			mark(c, SITE_LINE_BACK, i, insn->address + insn->length, true);
			arch_emit_jump(&c->hot, insn->address + insn->length);
		}
	}
	for (unsigned i = 0; whole && i < c->insn_count; i++)
		if (has_taken_side(c, i) && c->insns[i].flow != ARCH_FLOW_JUMP) {
			settle(c, &c->stubs[i]);
			emit_taken(c, i);
		}
}

static int check_stack(struct code *c, struct dinst_error *e)
{
	const struct module *m = c->site->module;
	size_t left;

	if (!c->stack)
		return 0;
	left = code_stack_left(m->image, c->site->key.start - m->bias);
	c->small_stack = c->stack > left;
	return c->small_stack
		       ? dinst_fail(
				 e, DINST_REFUSED,
				 "what is inserted at %#llx takes %zu bytes of stack, of which a "
				 "function of %s may have %zu there",
				 (unsigned long long)c->site->key.start, c->stack,
				 image_is_go(m->image) ? "Go" : "OCaml", left)
		       : 0;
}

int code_emit(struct code *c, taddr_t hot, taddr_t cold, struct dinst_error *e)
{
	unsigned passes = 0;

	do {
		c->hot.pc = hot;
		c->cold.pc = cold;
		c->hot.used = c->cold.used = 0;
		c->hot.status = c->cold.status = ARCH_OK;
		c->hot_trace.count = c->cold_trace.count = 0;
		c->mark_count = 0;
		c->stack = 0;
		c->moved = c->bad_program = false;
		emit_all(c);
	} while (c->moved && ++passes < PASSES);
	if (c->hot.status == ARCH_OK)
		c->hot.status = c->cold.status;
	if (c->moved || c->hot_trace.count > c->hot_trace.room ||
	    c->cold_trace.count > c->cold_trace.room)
		return dinst_fail(e, DINST_FAILED, "the code for the window at %#llx has no end",
				  (unsigned long long)c->site->key.start);
	if (c->bad_program)
		return dinst_fail(e, DINST_FAILED,
				  "no code can be made of what is inserted at %#llx (%d)",
				  (unsigned long long)c->site->key.start, c->hot.status);
	if (c->hot.status != ARCH_OK)
		return dinst_fail(e, DINST_REFUSED, "cannot relocate the window at %#llx: %s (%d)",
				  (unsigned long long)c->site->key.start,
				  c->hot.status == ARCH_OUT_OF_RANGE
					  ? "a displacement does not reach"
					  : "an instruction must not move",
				  c->hot.status);
	return check_stack(c, e);
}
