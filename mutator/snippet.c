/* SPDX-License-Identifier: MIT */
/*
 * snippet.c - the code of one snippet: what it needs and what it does.
 *
 * The only place that knows what the kinds of snippets are made of. What
 * surrounds them (saved registers, order, relocated instructions) is body.c's.
 */
#include "mutator/access.h"
#include "mutator/core.h"
#include "mutator/threads.h"

void snippet_look_around(const struct session *s, const struct place *p,
			 struct snippet_context *context)
{
	const struct arena *a = p->arena;

	*context = (struct snippet_context){
		.counter =
			{
				.mode = s->rseq_usable && a->low_data ? ARCH_COUNT_PER_CPU
								      : ARCH_COUNT_LOCKED,
				.cpu_shift = a->cpu_shift,
				.cpus = a->cpus,
				.rseq_offset = s->rseq_offset,
				.rseq_signature = s->rseq_signature,
				.cpu_table = heap_cpu_table(p->heap),
			},
	};
	threads_pairing(s, p, &context->pairing);
}

static struct arch_counter counter_of(const struct snippet_context *context,
				      const struct snippet *snippet)
{
	struct arch_counter spec = context->counter;

	spec.counter_address = snippet->counter;
	return spec;
}

/* A pairing's counter is in *count, which the result points to. */
static struct arch_pairing pairing_of(const struct snippet_context *context,
				      const struct snippet *snippet, struct arch_counter *count)
{
	struct arch_pairing spec = context->pairing;

	*count = counter_of(context, snippet);
	spec.function = (uint32_t)snippet->argument;
	spec.count = snippet->counter ? count : NULL;
	return spec;
}

void snippet_needs(const struct snippet_context *context, const struct snippet *snippet,
		   struct arch_frame *frame)
{
	if (snippet->kind == SNIPPET_COUNT) {
		const struct arch_counter spec = counter_of(context, snippet);

		arch_count_needs(&spec, frame);
	}
	if (snippet->kind == SNIPPET_ADDRESS)
		arch_record_needs(frame);
	if (snippet->kind == SNIPPET_ENTER || snippet->kind == SNIPPET_LEAVE) {
		struct arch_counter count;
		const struct arch_pairing spec = pairing_of(context, snippet, &count);

		arch_pairing_needs(&spec, frame);
	}
}

void snippet_emit(const struct snippet_context *context, const struct snippet *snippet,
		  const struct arch_frame *frame, struct arch_buf *out, struct arch_buf *cold)
{
	if (snippet->kind == SNIPPET_COUNT) {
		const struct arch_counter spec = counter_of(context, snippet);

		arch_emit_count(&spec, frame, out, cold);
	}
	if (snippet->kind == SNIPPET_ADDRESS) {
		struct arch_memory access;
		size_t pushed;

		access_unpack(snippet->argument, &access, &pushed);
		arch_emit_record_address(&access, snippet->counter, pushed, frame, out);
	}
	if (snippet->kind == SNIPPET_ENTER || snippet->kind == SNIPPET_LEAVE) {
		struct arch_counter count;
		const struct arch_pairing spec = pairing_of(context, snippet, &count);

		if (snippet->kind == SNIPPET_ENTER)
			arch_emit_enter(&spec, frame, out, cold);
		else
			arch_emit_leave(&spec, frame, out, cold);
	}
}
