/* SPDX-License-Identifier: MIT */
/*
 * snippet.c - the code of one snippet: what it needs and what it does.
 *
 * The only place that knows what the kinds of snippets are made of. What
 * surrounds them (saved registers, order, relocated instructions) is body.c's.
 */
#include <stdlib.h>
#include <string.h>

#include "mutator/access.h"
#include "mutator/core.h"
#include "mutator/stream.h"
#include "mutator/threads.h"
#include "mutator/variable.h"
#include "mutator/wall_clock.h"

void snippet_look_around(const struct session *s, const struct place *p,
			 struct arch_environment *environment)
{
	const struct arena *a = p->arena;

	*environment = (struct arch_environment){
		.counter =
			{
				.mode = s->rseq_usable && a->low_data ? ARCH_COUNT_PER_CPU
								      : ARCH_COUNT_LOCKED,
				.cpu_shift = a->cpu_shift,
				.cpus = a->cpus,
				/* what was seen of a thread that had none yet says nothing */
				.rseq_offset = s->rseq_usable ? s->rseq_offset : 0,
				.rseq_signature = s->rseq_signature,
				.clears = rseq_is_inherited(),
				.cpu_table = heap_cpu_table(p->heap),
			},
	};
	threads_environment(s, p, environment);
	stream_environment(s, environment);
	if (s->wall_clock)
		environment->wall_clock = &s->wall_clock->program;
	if (environment->thread_clock_by_rseq && ticks_calibrate(NULL) < 0)
		environment->thread_clock_by_rseq = false;
	if (environment->thread_clock_by_rseq)
		ticks_factor(&environment->ticks_multiplier, &environment->ticks_shift);
}

static struct arch_counter counter_of(const struct arch_environment *environment,
				      const struct snippet *snippet)
{
	struct arch_counter spec = environment->counter;

	spec.counter_address = snippet->counter;
	return spec;
}

/* A pairing's counter is in *count, which the result points to. */
static struct arch_pairing pairing_of(const struct arch_environment *environment,
				      const struct snippet *snippet, struct arch_counter *count)
{
	struct arch_pairing spec = environment->pairing;

	*count = counter_of(environment, snippet);
	spec.function = (uint32_t)snippet->argument;
	spec.count = snippet->counter ? count : NULL;
	return spec;
}

void snippet_needs(const struct arch_environment *environment, const struct snippet *snippet,
		   struct arch_frame *frame)
{
	if (snippet->kind == SNIPPET_COUNT) {
		const struct arch_counter spec = counter_of(environment, snippet);

		arch_count_needs(&spec, frame);
	}
	if (snippet->kind == SNIPPET_ADDRESS)
		arch_record_needs(frame);
	if (snippet->kind == SNIPPET_ENTER || snippet->kind == SNIPPET_LEAVE) {
		struct arch_counter count;
		const struct arch_pairing spec = pairing_of(environment, snippet, &count);

		arch_pairing_needs(&spec, frame);
	}
}

void snippet_emit(const struct arch_environment *environment, const struct snippet *snippet,
		  const struct arch_frame *frame, struct arch_buf *out, struct arch_buf *cold)
{
	if (snippet->kind == SNIPPET_COUNT) {
		const struct arch_counter spec = counter_of(environment, snippet);

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
		const struct arch_pairing spec = pairing_of(environment, snippet, &count);

		if (snippet->kind == SNIPPET_ENTER)
			arch_emit_enter(&spec, frame, out, cold);
		else
			arch_emit_leave(&spec, frame, out, cold);
	}
}

/* -------------------------------------------------------------- references */

struct snippet_code *snippet_code_new(struct session *s, struct arch_program *program,
				      struct variable *const *variables, size_t count)
{
	struct snippet_code *code = calloc(1, sizeof(*code));

	if (code)
		code->variables = calloc(count + 1, sizeof(*code->variables));
	if (!code || !code->variables) {
		free(code);
		return NULL;
	}
	code->session = s;
	code->references = 1;
	code->program = *program;
	memset(program, 0, sizeof(*program));
	for (size_t n = 0; n < count; n++)
		code->variables[code->variable_count++] = variable_ref(variables[n]);
	return code;
}

struct snippet_code *snippet_code_ref(struct snippet_code *code)
{
	if (code)
		code->references++;
	return code;
}

void snippet_code_unref(struct snippet_code *code)
{
	if (!code || --code->references)
		return;
	for (size_t n = 0; n < code->variable_count; n++)
		variable_unref(code->session, code->variables[n]);
	free(code->variables);
	free(code->program.ops);
	free(code);
}

void snippet_hold(const struct snippet *snippet, struct place *p)
{
	if (snippet->counter)
		heap_ref_counter(p->heap, snippet->counter);
	snippet_code_ref(snippet->code);
}

void snippet_release(const struct snippet *snippet, struct place *p)
{
	if (snippet->counter)
		heap_unref_counter(p->heap, snippet->counter);
	snippet_code_unref(snippet->code);
}
