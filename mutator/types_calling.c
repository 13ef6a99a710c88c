/* SPDX-License-Identifier: MIT */
/*
 * types_calling.c - is a function called as the psABI says? Some compilers say that it
 * is not; others tell it only by where its parameters are at its first instruction.
 */
#include "arch/calling.h"
#include "mutator/types_private.h"

/* Values of DW_AT_calling_convention of LLVM's. */
enum { CC_SYSTEM_V = 0xc2, CC_PRESERVE_MOST = 0xc9, CC_PRESERVE_ALL = 0xca };

enum { LOCATIONS_MAX = 4, ENOUGH = 2 };

/* Parameters whose register is known, by whether it is the one of the psABI. */
struct registers {
	unsigned integers, floats; /* of the psABI's, used */
	bool right;
	unsigned wrong; /* evidence: ENOUGH of it */
};

/* Not by the psABI: regcall, clang's ms_abi, or a local function whose arguments were changed (DW_CC_nocall). */
static bool is_told(Dwarf_Die *function)
{
	Dwarf_Attribute attribute;
	Dwarf_Word convention;

	if (!dwarf_attr_integrate(function, DW_AT_calling_convention, &attribute) ||
	    dwarf_formudata(&attribute, &convention) != 0)
		return false;
	return convention != DW_CC_normal && convention != DW_CC_program &&
	       convention != CC_SYSTEM_V && convention != CC_PRESERVE_MOST &&
	       convention != CC_PRESERVE_ALL;
}

static bool is_expression(Dwarf_Attribute *attribute)
{
	switch (dwarf_whatform(attribute)) {
	case DW_FORM_exprloc:
	case DW_FORM_block:
	case DW_FORM_block1:
	case DW_FORM_block2:
	case DW_FORM_block4:
		return true;
	default:
		return false;
	}
}

/* A register in which an argument may be, if perhaps another one. */
static bool is_for_arguments(uint64_t number)
{
	for (unsigned n = 0; n < arch_calling.integer_arguments; n++)
		if (arch_calling.integer_numbers[n] == number)
			return true;
	return number - arch_calling.float_number < arch_calling.float_arguments;
}

/* Which register an expression is; false: none. */
static bool is_register(const Dwarf_Op *op, size_t size, uint64_t *number)
{
	if (size != 1)
		return false;
	*number = op->atom == DW_OP_regx ? op->number : op->atom - (uint64_t)DW_OP_reg0;
	return op->atom == DW_OP_regx || (op->atom >= DW_OP_reg0 && op->atom <= DW_OP_reg31);
}

/* Where the value is: at an address that an argument's register holds, or that is kept in the frame. */
static bool is_behind_address(const Dwarf_Op *ops, size_t size)
{
	const bool is_based = ops[0].atom >= DW_OP_breg0 && ops[0].atom <= DW_OP_breg31;

	if (size == 2)
		return (is_based || ops[0].atom == DW_OP_fbreg) && ops[1].atom == DW_OP_deref;
	return size == 1 && is_based && ops[0].number == 0 &&
	       is_for_arguments(ops[0].atom - (uint64_t)DW_OP_breg0);
}

bool types_is_by_address(Dwarf_Die *function, Dwarf_Die *parameter)
{
	Dwarf_Attribute attribute;
	Dwarf_Op *ops[LOCATIONS_MAX];
	size_t sizes[LOCATIONS_MAX];
	Dwarf_Addr pc;
	int count;

	/* Lists are not looked at: libdw takes their lengths for true (elfutils 0.188), and dies of a damaged one. */
	if (dwarf_entrypc(function, &pc) != 0 ||
	    !dwarf_attr(parameter, DW_AT_location, &attribute) || !is_expression(&attribute))
		return false;
	count = dwarf_getlocation_addr(&attribute, pc, ops, sizes, LOCATIONS_MAX);
	for (int i = 0; i < count && i < LOCATIONS_MAX; i++)
		if (is_behind_address(ops[i], sizes[i]))
			return true;
	return false;
}

/*
 * Several locations may begin at one address, where something is assigned without an instruction.
 * One for all of the function may be where the parameter is behind the prologue.
 */
static void look_at(struct registers *r, Dwarf_Die *parameter, Dwarf_Addr pc, unsigned expected)
{
	Dwarf_Attribute attribute;
	Dwarf_Op *ops[LOCATIONS_MAX];
	size_t sizes[LOCATIONS_MAX];
	uint64_t number;
	int count;

	if (!dwarf_attr(parameter, DW_AT_location, &attribute))
		return;
	count = dwarf_getlocation_addr(&attribute, pc, ops, sizes, LOCATIONS_MAX);
	for (int i = 0; i < count && i < LOCATIONS_MAX; i++) {
		if (!is_register(ops[i], sizes[i], &number))
			continue;
		if (number == expected) /* of a vector register it may be chance */
			r->right |= expected < arch_calling.float_number;
		else if (!is_expression(&attribute))
			r->wrong += ENOUGH;
		else if (is_for_arguments(number))
			r->wrong++;
	}
}

/* False: where those that follow have to be is not as easily told. */
static bool look_at_parameter(struct registers *r, struct image *img, Dwarf_Die *parameter,
			      Dwarf_Addr pc)
{
	struct type type;

	types_from_die(img, parameter, &type);
	if (type.kind == TYPE_FLOAT) {
		if (r->floats < arch_calling.float_arguments)
			look_at(r, parameter, pc, arch_calling.float_number + r->floats++);
		return true;
	}
	if ((type.kind != TYPE_INTEGER && type.kind != TYPE_POINTER) || !type.size || type.size > 8)
		return false;
	if (r->integers < arch_calling.integer_arguments)
		look_at(r, parameter, pc, arch_calling.integer_numbers[r->integers++]);
	return true;
}

/* gcc does not tell of ms_abi: all the registers that it tells are others. */
static bool is_seen(struct image *img, Dwarf_Die *function)
{
	struct registers r = {0};
	struct type result;
	Dwarf_Die child;
	Dwarf_Addr pc;

	types_from_die(img, function, &result);
	if (result.kind != TYPE_VOID && result.kind != TYPE_INTEGER &&
	    result.kind != TYPE_POINTER && result.kind != TYPE_FLOAT)
		return false;
	if (result.size > 8 || dwarf_entrypc(function, &pc) != 0 ||
	    dwarf_child(function, &child) != 0)
		return false;
	do {
		if (dwarf_tag(&child) == DW_TAG_formal_parameter &&
		    !look_at_parameter(&r, img, &child, pc))
			break;
	} while (types_sibling(&child));
	return r.wrong >= ENOUGH && !r.right;
}

bool types_has_own_convention(struct image *img, Dwarf_Die *function)
{
	return is_told(function) || is_seen(img, function);
}
