/* SPDX-License-Identifier: MIT */
/*
 * pairing_programs.c - per-thread state in programs: there is none on this
 * processor yet, so all of it is refused when it is emitted, and nothing else
 * happens. Entries and exits are paired by the snippets of pairing.c.
 */
#include "arch/aarch64/a64.h"
#include "arch/pairing.h"

const uint32_t arch_rseq_signature = 0xd428bc00;

/* Metrics with per-thread state are refused on this processor: there is nothing to undo. */
const uint8_t arch_undo_record = 0;
const arch_regset arch_undo_live = SET_ALL;

void arch_emit_undo_return(struct arch_buf *out)
{
	a64_fail(out, ARCH_REFUSED);
}

void arch_emit_record_op(const struct arch_pairing *spec, const struct arch_state_code *code,
			 struct arch_buf *out, struct arch_buf *cold)
{
	(void)spec;
	(void)code;
	(void)cold;
	a64_fail(out, ARCH_REFUSED);
}

void arch_emit_enter_op(const struct arch_pairing *spec, const struct arch_state_code *code,
			struct arch_buf *out, struct arch_buf *cold)
{
	arch_emit_record_op(spec, code, out, cold);
}

void arch_emit_leave_op(const struct arch_pairing *spec, const struct arch_state_code *code,
			struct arch_buf *out, struct arch_buf *cold)
{
	arch_emit_record_op(spec, code, out, cold);
}

void arch_emit_left_op(const struct arch_pairing *spec, const struct arch_state_code *code,
		       struct arch_buf *out, struct arch_buf *cold)
{
	arch_emit_record_op(spec, code, out, cold);
}
