/* SPDX-License-Identifier: MIT */
/*
 * window.c - the rules of windows, in one place: whatever is patched has gone
 * through span_rules(), the page rule and windows_place(). A new way of finding
 * windows must come through here, too. Never decodes, and holds nothing.
 */
#include "mutator/window.h"

#include "mutator/settle.h"

#include <string.h>

#include "arch/thread.h"

enum { PAGE = 4096 };

static bool same_page(vaddr_t a, vaddr_t b)
{
	return a / PAGE == b / PAGE;
}

static bool runs_on(const struct arch_insn *insn)
{
	return insn->flow == ARCH_FLOW_NEXT || insn->flow == ARCH_FLOW_BRANCH;
}

bool joins_next(const struct windows *w, size_t at)
{
	const struct insn_list *insns = &w->flow->insns;
	const struct arch_insn *a = &insns->items[at];

	return at + 1 < insns->count && runs_on(a) &&
	       a->address + a->length == insns->items[at + 1].address &&
	       !(flow_marks(w->flow, a->address + a->length) & MARK_TARGET);
}

/* Unwinders and debuggers know the code that returns from a signal by its bytes. */
static bool is_sigreturn(const struct windows *w, vaddr_t v)
{
	size_t size = 0;
	const uint8_t *code = image_code(w->flow->img, v, &size);

	return code && arch_is_sigreturn(code, size);
}

/*
 * A runtime that turns a fault at a known address into an exception (a nil
 * pointer of Go's, a null access value of Ada's) does not know the address of the copy.
 */
static bool may_fault(const struct arch_insn *insn)
{
	struct arch_memory memory[ARCH_MEMORY_MAX];

	if (insn->flags & ARCH_INSN_DIVIDES)
		return true;
	if (!(insn->flags & ARCH_INSN_MEMORY) ||
	    insn->flags &
		    (ARCH_INSN_PC_RELATIVE | ARCH_INSN_STACK_OPERAND | ARCH_INSN_INDEXED_JUMP))
		return false;
	if (insn->flow == ARCH_FLOW_CALL_INDIRECT || insn->flow == ARCH_FLOW_JUMP_INDIRECT)
		/* Where it leads may be in memory; what a call stores is on the stack. */
		return arch_memory_operands(insn, memory) && memory[0].load;
	return insn->flow == ARCH_FLOW_NEXT;
}

/* One instruction of a window; `first` and `last` say where it stands in it. */
static enum refusal insn_rules(const struct windows *w, size_t at, bool first, bool last)
{
	const struct arch_insn *insn = &w->flow->insns.items[at];
	uint8_t head = flow_marks(w->flow, insn->address);

	if (!(head & MARK_REACHED))
		return REFUSAL_UNDECODED;
	if (insn->flags & (ARCH_INSN_NO_MOVE | ARCH_INSN_LANDING_PAD) ||
	    insn->flow == ARCH_FLOW_SYSCALL || insn->flow == ARCH_FLOW_STOP)
		return REFUSAL_UNMOVABLE;
	if (image_overflows(w->flow->img, insn->address) ||
	    (w->flow->turns_faults && may_fault(insn)))
		return REFUSAL_UNMOVABLE;
	if (is_sigreturn(w, insn->address))
		return REFUSAL_STUB;
	for (unsigned i = 0; i < insn->length; i++) {
		uint8_t marks = flow_marks(w->flow, insn->address + i);

		if (marks & MARK_RSEQ)
			return REFUSAL_RSEQ;
		if (marks & MARK_CONFLICT)
			return REFUSAL_UNDECODED;
		if (marks & MARK_TARGET && !(first && i == 0))
			return REFUSAL_BRANCH_TARGET;
	}
	if (last)
		return REFUSAL_NONE;
	/* Frames that are live hold the return address: it must not be inside. */
	if (arch_is_call(insn))
		return REFUSAL_BRANCH_TARGET;
	if (flow_marks(w->flow, insn->address + insn->length) & MARK_TARGET)
		return REFUSAL_BRANCH_TARGET;
	return joins_next(w, at) ? REFUSAL_NONE : REFUSAL_NO_ROOM;
}

static bool is_unclaimed(const struct windows *w, size_t first, unsigned count)
{
	const struct arch_insn *insns = w->flow->insns.items;
	const struct arch_insn *last = &insns[first + count - 1];

	return !w->claims || claims_are_free(w->claims, insns[first].address,
					     last->address + last->length, w->claims_below);
}

/*
 * The last one jumps back to the first, and there is no other way out: who is in the copy would go round in
 * it for ever, and nothing could be taken out.
 */
static bool is_closed(const struct windows *w, size_t first, unsigned count)
{
	const struct arch_insn *insns = &w->flow->insns.items[first];

	for (unsigned i = 0; i + 1 < count; i++)
		if (insns[i].flow == ARCH_FLOW_BRANCH && insns[i].target != insns->address)
			return false;
	return insns[count - 1].flow == ARCH_FLOW_JUMP && insns[count - 1].target == insns->address;
}

/* The rules for any run of instructions that move away; *length on success. */
static enum refusal span_rules(const struct windows *w, size_t first, unsigned count,
			       unsigned *length)
{
	const struct insn_list *insns = &w->flow->insns;
	unsigned bytes = 0;

	if (count == 0 || count > WINDOW_INSNS_MAX || first + count > insns->count)
		return REFUSAL_NO_ROOM;
	if (count > 1 && w->flow->unresolved)
		return REFUSAL_UNRESOLVED;
	if (count > 1 && w->flow->single_only)
		return REFUSAL_NO_ROOM;
	if (!is_unclaimed(w, first, count))
		return REFUSAL_TAKEN;
	for (unsigned i = 0; i < count; i++) {
		enum refusal r = insn_rules(w, first + i, i == 0, i + 1 == count);

		if (r != REFUSAL_NONE)
			return r;
		bytes += insns->items[first + i].length;
	}
	if (bytes > WINDOW_BYTES_MAX)
		return REFUSAL_NO_ROOM;
	if (is_closed(w, first, count))
		return REFUSAL_UNMOVABLE;
	*length = bytes;
	return REFUSAL_NONE;
}

/* Bytes that a retargeted branch really changes: found by trying it. */
static bool displacement(const struct arch_insn *insn, size_t *first, size_t *count)
{
	/* Every byte of the displacement differs when this much is added. */
	static const int64_t steps[] = {0x01010101, -0x01010101};

	for (unsigned i = 0; i < 2; i++) {
		uint8_t bytes[ARCH_INSN_MAX];

		memcpy(bytes, insn->bytes, sizeof(bytes));
		if (arch_patch(ARCH_PATCH_RETARGET, insn, insn->address,
			       insn->target + (taddr_t)steps[i], bytes, insn->length, first,
			       count) == ARCH_OK)
			return true;
	}
	return false;
}

enum refusal draft_in_place(const struct windows *w, size_t at, enum arch_patch_kind kind,
			    struct draft *out)
{
	const struct arch_insn *insn = &w->flow->insns.items[at];
	size_t first = 0, count = insn->length;
	unsigned length;
	enum refusal r = span_rules(w, at, 1, &length);

	if (r != REFUSAL_NONE)
		return r;
	if (!arch_patchable(insn, kind))
		return REFUSAL_NO_ROOM;
	if (kind == ARCH_PATCH_RETARGET && !displacement(insn, &first, &count))
		return REFUSAL_NO_ROOM;
	if (!same_page(insn->address + first, insn->address + first + count - 1))
		return REFUSAL_PAGE;
	*out = (struct draft){
		.first = at,
		.count = 1,
		.length = length,
		.kind = kind,
		.host = -1,
		.merged_into = -1,
	};
	return REFUSAL_NONE;
}

/* Completes a draft that is shorter than its patch with dead bytes behind it. */
static enum refusal pad(const struct windows *w, struct draft *d, size_t patch)
{
	const struct arch_insn *last = &w->flow->insns.items[d->first + d->count - 1];
	vaddr_t end = last->address + last->length;

	if (d->length >= patch)
		return REFUSAL_NONE;
	/* A return address right behind a call would lie inside the patch. */
	if (runs_on(last) || arch_is_call(last))
		return REFUSAL_NO_ROOM;
	for (d->padding = 0; d->length + d->padding < patch; d->padding++)
		if (!is_dead(w, end + d->padding))
			return REFUSAL_NO_ROOM;
	return REFUSAL_NONE;
}

/* A write over live bytes of two pages is not atomic against our own death. */
static enum refusal page_rule(const struct windows *w, const struct draft *d, size_t patch)
{
	vaddr_t start = w->flow->insns.items[d->first].address;
	size_t live = d->length < patch ? d->length : patch;

	return same_page(start, start + live - 1) ? REFUSAL_NONE : REFUSAL_PAGE;
}

enum refusal draft_jump(const struct windows *w, size_t first, unsigned count, bool may_pad,
			struct draft *out)
{
	struct draft d = {.first = first,
			  .count = count,
			  .kind = ARCH_PATCH_JUMP,
			  .host = -1,
			  .merged_into = -1};
	enum refusal r = span_rules(w, first, count, &d.length);

	if (r != REFUSAL_NONE)
		return r;
	if (d.length < arch_jump_size)
		r = may_pad ? pad(w, &d, arch_jump_size) : REFUSAL_NO_ROOM;
	if (r == REFUSAL_NONE)
		r = page_rule(w, &d, arch_jump_size);
	if (r == REFUSAL_NONE)
		*out = d;
	return r;
}

enum refusal draft_short_only(const struct windows *w, size_t first, unsigned count,
			      struct draft *out)
{
	struct draft d = {.first = first,
			  .count = count,
			  .kind = ARCH_PATCH_SHORT_JUMP,
			  .host = -1,
			  .merged_into = -1};
	enum refusal r = span_rules(w, first, count, &d.length);

	/* Go looks up the pc at any signal, and finds it in padding of a function. */
	if (r == REFUSAL_NONE && w->flow->single_only)
		r = REFUSAL_NO_ROOM;
	if (r == REFUSAL_NONE)
		r = pad(w, &d, arch_short_jump_size);
	if (r == REFUSAL_NONE)
		r = page_rule(w, &d, arch_short_jump_size);
	if (r == REFUSAL_NONE)
		*out = d;
	return r;
}

enum refusal draft_short(const struct windows *w, size_t first, unsigned count, struct draft *out)
{
	struct draft d;
	enum refusal r = draft_short_only(w, first, count, &d);

	if (r != REFUSAL_NONE)
		return r;
	d.hole = find_hole(w, w->flow->insns.items[first].address + arch_short_jump_size);
	if (!d.hole)
		return REFUSAL_NO_ROOM;
	*out = d;
	return REFUSAL_NONE;
}
