/* SPDX-License-Identifier: MIT */
/*
 * references_sleds.c - places that a program overwrites itself while it runs: the sleds of XRay
 * (clang -fxray-instrument), listed in the section xray_instr_map. Its runtime writes there
 * without a look at what is there, at any time, while threads run through it
 * (compiler-rt, lib/xray/xray_x86_64.cpp); of a jump of ours it would leave a part.
 */
#include "mutator/references_sleds.h"

enum {
	ENTRY = 32, /* bytes of struct XRaySledEntry (lib/xray/xray_interface_internal.h) */
	KIND_AT = 16,
	VERSION_AT = 18,
	VERSION_RELATIVE = 2, /* from here on addresses are from where they stand */
	KIND_EVENT = 4,	      /* from here on sleds of events, which are longer */
	SLED = 11,
	SLED_OF_EVENT = 24,
};

const struct elf_section *sleds_map(const struct image *img)
{
	return elf_section_named(&img->file, "xray_instr_map");
}

size_t sleds_most(const struct elf_section *map)
{
	return map ? map->size / ENTRY : 0;
}

size_t sleds_find(const struct image *img, const struct elf_section *map, struct image_range *out)
{
	const size_t most = sleds_most(map);
	size_t count = 0;

	for (size_t i = 0; i < most; i++) {
		const uint8_t *entry = map->bytes + i * ENTRY;
		vaddr_t sled = elf_u64(entry);

		if (entry[VERSION_AT] >= VERSION_RELATIVE)
			sled += map->address + i * ENTRY;
		if (!range_at(img->text, img->text_count, sled))
			continue;
		out[count++] = (struct image_range){
			sled, sled + (entry[KIND_AT] >= KIND_EVENT ? SLED_OF_EVENT : SLED)};
	}
	return count;
}
