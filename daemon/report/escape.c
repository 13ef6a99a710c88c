/* SPDX-License-Identifier: MIT */
/*
 * escape.c - names in files of other programs: UTF-8 checked, the special escaped.
 */
#include <string.h>

#include "daemon/report/escape.h"

enum { REPLACEMENT = 0xfffd };

uint32_t escape_next(const char **text)
{
	static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
	const unsigned char *s = (const unsigned char *)*text;
	unsigned length = 1;
	uint32_t c = s[0];

	if (!c)
		return 0;
	++*text;
	if (c < 0x80)
		return c;
	if (c >= 0xc2 && c < 0xe0)
		length = 2;
	else if (c >= 0xe0 && c < 0xf0)
		length = 3;
	else if (c >= 0xf0 && c < 0xf5)
		length = 4;
	else
		return REPLACEMENT;
	c &= 0x7fu >> length;
	for (unsigned i = 1; i < length; i++) {
		if ((s[i] & 0xc0) != 0x80)
			return REPLACEMENT;
		c = c << 6 | (s[i] & 0x3f);
	}
	if (c < least[length] || c > 0x10ffff || (c >= 0xd800 && c < 0xe000))
		return REPLACEMENT;
	*text += length - 1;
	return c;
}

void escape_put(FILE *out, uint32_t c)
{
	if (c < 0x80) {
		fputc((int)c, out);
	} else if (c < 0x800) {
		fprintf(out, "%c%c", (int)(0xc0 | c >> 6), (int)(0x80 | (c & 0x3f)));
	} else if (c < 0x10000) {
		fprintf(out, "%c%c%c", (int)(0xe0 | c >> 12), (int)(0x80 | (c >> 6 & 0x3f)),
			(int)(0x80 | (c & 0x3f)));
	} else {
		fprintf(out, "%c%c%c%c", (int)(0xf0 | c >> 18), (int)(0x80 | (c >> 12 & 0x3f)),
			(int)(0x80 | (c >> 6 & 0x3f)), (int)(0x80 | (c & 0x3f)));
	}
}

/* C0 without tab and newlines, and C1, which some readers take for commands. */
static int is_control(uint32_t c)
{
	return c < 0x20 || (c >= 0x7f && c < 0xa0);
}

void escape_json(FILE *out, const char *text)
{
	uint32_t c;

	while ((c = escape_next(&text)) != 0) {
		if (c == '"' || c == '\\')
			fprintf(out, "\\%c", (int)c);
		else if (is_control(c))
			fprintf(out, "\\u%04x", (unsigned)c);
		else
			escape_put(out, c);
	}
}

void escape_xml(FILE *out, const char *text)
{
	uint32_t c;

	while ((c = escape_next(&text)) != 0) {
		switch (c) {
		case '<':
			fputs("&lt;", out);
			break;
		case '>':
			fputs("&gt;", out);
			break;
		case '&':
			fputs("&amp;", out);
			break;
		case '"':
			fputs("&quot;", out);
			break;
		case '\'':
			fputs("&#39;", out);
			break;
		default:
			escape_put(out,
				   is_control(c) || c == 0xfffe || c == 0xffff ? REPLACEMENT : c);
		}
	}
}

void escape_line(FILE *out, const char *text, const char *also)
{
	uint32_t c;

	while ((c = escape_next(&text)) != 0) {
		/* 0x2028 and 0x2029 end lines for some readers, too */
		if (is_control(c) || c == 0x2028 || c == 0x2029 ||
		    (c < 0x80 && strchr(also, (int)c)))
			c = '?';
		escape_put(out, c);
	}
}
