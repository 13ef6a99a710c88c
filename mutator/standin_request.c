/* SPDX-License-Identifier: MIT */
/* standin_request.c - goes when the parts are there. */
#include "mutator/variable.h"
__attribute__((weak)) void arch_program_optimise(struct arch_program *p) { (void)p; }
__attribute__((weak)) void arch_program_sizes(const struct arch_program *p, size_t *hot, size_t *cold) { (void)p; *hot = *cold = 0; }
__attribute__((weak)) void arch_program_needs(const struct arch_program *p, const struct arch_environment *env, struct arch_frame *frame) { (void)p; (void)env; (void)frame; }
__attribute__((weak)) void arch_emit_program(const struct arch_program *p, const struct arch_environment *env, const struct arch_frame *frame, struct arch_buf *out, struct arch_buf *cold) { (void)p; (void)env; (void)frame; (void)cold; out->status = ARCH_REFUSED; }
