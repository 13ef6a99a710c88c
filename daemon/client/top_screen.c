/* SPDX-License-Identifier: MIT */
/*
 * top_screen.c - dinst top on a terminal: drawing and keys.
 *
 * Owns the terminal between screen_open() and screen_close(), and is the only file that knows
 * ncurses. Never asks the target: what a key wants of it is left in t->action.
 */
#include "daemon/client/top.h"

#include <curses.h>
#include <locale.h>
#include <stdlib.h>
#include <string.h>

enum { HEAD_LINES = 3, FOOT_LINES = 1, NAME_LEAST = 16, KEY_ESCAPE = 27, KEY_WAIT_MS = 100 };

enum { COLOUR_HOT = 1, COLOUR_WARM, COLOUR_TITLE };

static SCREEN *screen;
static bool colours, helping, asking;
static struct sigaction suspended;
static bool quiet_before;

/* ----------------------------------------------------------- opening, closing */

/* While a call is waited for after Ctrl-C. */
static void waits(struct question *q, const char *text)
{
	struct top *t = (struct top *)((char *)q - offsetof(struct top, q));

	top_say(t, "%s", text);
}

/* Some terminals only write one line after the other. */
static bool can_move(void)
{
	char name[] = "cup";
	const char *sequence = tigetstr(name);

	return sequence && sequence != (char *)-1;
}

bool screen_open(struct top *t)
{
	const struct sigaction ignore = {.sa_handler = SIG_IGN};
	const char *term = getenv("TERM"), *no_color = getenv("NO_COLOR");

	if (!term || !*term || !strcmp(term, "dumb") || !isatty(STDIN_FILENO))
		return false;
	setlocale(LC_CTYPE, "");
	/* a client that is suspended would leave in what it has in for a moment only */
	sigaction(SIGTSTP, &ignore, &suspended);
	screen = newterm(NULL, stdout, stdin);
	helping = asking = false;
	if (!screen || !can_move()) {
		if (screen)
			endwin();
		screen = NULL;
		sigaction(SIGTSTP, &suspended, NULL);
		return false;
	}
	set_escdelay(25);
	cbreak();
	noecho();
	nonl();
	keypad(stdscr, TRUE);
	curs_set(0);
	colours = has_colors() && !(no_color && *no_color);
	if (colours) {
		start_color();
		use_default_colors();
		init_pair(COLOUR_HOT, COLOR_RED, -1);
		init_pair(COLOUR_WARM, COLOR_YELLOW, -1);
		init_pair(COLOUR_TITLE, COLOR_CYAN, -1);
	}
	/* what would be written between the lines is shown in the last one */
	quiet_before = t->q.c->quiet;
	t->q.c->quiet = true;
	t->q.waits = waits;
	t->screen = true;
	screen_draw(t);
	return true;
}

void screen_close(struct top *t)
{
	if (!t->screen)
		return;
	t->screen = false;
	t->q.waits = NULL;
	endwin();
	delscreen(screen);
	screen = NULL;
	sigaction(SIGTSTP, &suspended, NULL);
	t->q.c->quiet = quiet_before;
}

/* -------------------------------------------------------------------- drawing */

struct field {
	const char *title;
	int width;
	int rank; /* those with the highest go first where there is no room */
	enum top_sort sort;
};

static const struct field fields[TOP_CELLS] = {
	{"CALLS/s", 8, 0, SORT_CALLS}, {"CPU", 7, 1, SORT_CPU}, {"WALL", 7, 3, SORT_WALL},
	{"P50", 9, 4, SORT_P50},       {"P99", 9, 2, SORT_P99},
};

static int attribute(int pair)
{
	return colours ? COLOR_PAIR(pair) : 0;
}

/* Which fields there is room for beside names; returns the room for names. */
static int fit(bool shown[TOP_CELLS])
{
	int room = COLS - NAME_LEAST;

	for (int rank = 0; rank < TOP_CELLS; rank++)
		for (int n = 0; n < TOP_CELLS; n++)
			if (fields[n].rank == rank) {
				shown[n] = room >= fields[n].width + 1;
				room -= fields[n].width + 1;
			}
	room = COLS;
	for (int n = 0; n < TOP_CELLS; n++)
		room -= shown[n] ? fields[n].width + 1 : 0;
	return room;
}

/* Text cut to `width` columns. */
static void put(int y, int x, int width, const char *text)
{
	if (width > 0 && x < COLS)
		mvaddnstr(y, x, text, width);
}

static void draw_titles(const struct top *t, const struct view *v)
{
	static const char *const orders[SORTS] = {"cpu", "calls", "wall", "p50", "p99", "name"};
	char text[TOP_NAME + 200], cost[120];

	cost_text(t, cost, sizeof(cost));
	attron(A_BOLD | (unsigned)attribute(COLOUR_TITLE));
	snprintf(text, sizeof(text), "%s (pid %d)", t->q.c->session, (int)t->q.pid);
	put(0, 0, COLS, text);
	attroff(A_BOLD | (unsigned)attribute(COLOUR_TITLE));
	snprintf(text, sizeof(text), "  %s%s", cost, t->paused ? "  PAUSED" : "");
	addnstr(text, COLS - getcurx(stdscr) - 1);
	switch (v->kind) {
	case VIEW_FUNCTIONS:
		snprintf(text, sizeof(text), "%zu functions of %s were called", v->line_count,
			 t->module);
		break;
	case VIEW_CALLEES:
		snprintf(text, sizeof(text), "called by %.400s: %zu functions", v->name,
			 v->line_count);
		break;
	case VIEW_CALLERS:
		snprintf(text, sizeof(text), "callers of %.400s", v->name);
		break;
	case VIEW_THREADS:
		snprintf(text, sizeof(text), "threads in %.400s", v->name);
		break;
	}
	put(1, 0, COLS, text);
	snprintf(text, sizeof(text), ", by %s%s%s%.80s", orders[t->sort],
		 t->descending ? "" : " upwards", t->filter[0] ? ", with " : "", t->filter);
	addnstr(text, COLS - getcurx(stdscr) - 1);
}

static void draw_heads(const struct top *t, const struct view *v, const bool shown[TOP_CELLS],
		       int name_width)
{
	int x = 0;

	attron(A_REVERSE);
	mvhline(2, 0, ' ', COLS);
	for (int n = 0; n < TOP_CELLS; n++) {
		const bool sorted = fields[n].sort == t->sort;

		if (!shown[n])
			continue;
		if (sorted)
			attron(A_BOLD | A_UNDERLINE);
		mvprintw(2, x + fields[n].width - (int)strlen(fields[n].title), "%s",
			 fields[n].title);
		if (sorted)
			attroff(A_BOLD | A_UNDERLINE);
		x += fields[n].width + 1;
	}
	put(2, x, name_width,
	    v->kind == VIEW_THREADS   ? "THREAD"
	    : v->kind == VIEW_CALLERS ? "CALLED FROM"
				      : "FUNCTION");
	attroff(A_REVERSE);
}

static int heat(const struct line *l)
{
	return l->cpu >= 25e7 ? attribute(COLOUR_HOT) : l->cpu >= 5e7 ? attribute(COLOUR_WARM) : 0;
}

static void draw_line(const struct line *l, int y, bool cursor, const bool shown[TOP_CELLS],
		      int name_width)
{
	const unsigned look = (cursor ? A_REVERSE : 0) | (unsigned)heat(l);
	char cells[TOP_CELLS][TOP_CELL];
	int x = 0;

	line_cells(l, cells);
	attron(look);
	if (cursor)
		mvhline(y, 0, ' ', COLS);
	for (int n = 0; n < TOP_CELLS; n++) {
		if (!shown[n])
			continue;
		mvprintw(y, x, "%*.*s", fields[n].width, fields[n].width, cells[n]);
		x += fields[n].width + 1;
	}
	put(y, x, name_width, l->name);
	attroff(look);
}

static void draw_foot(const struct top *t, const struct view *v)
{
	const char *keys = v->of ? "q quit  s sort  / filter  enter callees  c callers  "
				   "backspace back  ? help"
				 : "q quit  s sort  / filter  enter callees  c callers  t threads  "
				   "spc pause ? help";

	move(LINES - 1, 0);
	clrtoeol();
	if (asking) {
		mvprintw(LINES - 1, 0, "only names with: %.60s", t->filter);
		return;
	}
	attron(t->message[0] ? A_BOLD : A_DIM);
	put(LINES - 1, 0, COLS - 1, t->message[0] ? t->message : keys);
	attroff(t->message[0] ? A_BOLD : A_DIM);
}

static void draw_help(void)
{
	static const char *const text[] = {
		"CALLS/s  calls in a second; ~ from samples, where all would cost too much",
		"CPU      processor time of the function itself, percent of one CPU",
		"         (of calls that wait or are long by the processor's clock)",
		"WALL     time in it and in all that it calls, summed over threads",
		"P50 P99  how long half, and 99 of 100 calls take at most",
		"-        not known yet: times are taken of what is on the screen, a few",
		"         functions at a time where all at once would cost too much",
		"",
		"up down pgup pgdn home end   move           enter  what it calls",
		"s or < >   sort by another column           c      who calls it",
		"r          the other way round              t      its threads",
		"/          only names with ...              backspace  back",
		"space      pause: nothing is counted        z      look at all functions anew",
		"q          quit: everything is taken out    ?      this text",
	};

	for (size_t n = 0; n < sizeof(text) / sizeof(text[0]); n++)
		put(HEAD_LINES + (int)n, 1, COLS - 2, text[n]);
}

void screen_draw(struct top *t)
{
	struct view *v = t->views[t->depth - 1];
	bool shown[TOP_CELLS];
	const int name_width = fit(shown);

	t->rows = LINES > HEAD_LINES + FOOT_LINES ? (size_t)(LINES - HEAD_LINES - FOOT_LINES) : 1;
	erase();
	draw_titles(t, v);
	draw_heads(t, v, shown, name_width);
	if (helping)
		draw_help();
	else
		for (size_t n = 0; n < t->rows && v->first + n < v->line_count; n++)
			draw_line(&v->lines[v->first + n], HEAD_LINES + (int)n,
				  v->first + n == v->cursor, shown, name_width);
	if (!helping && !v->line_count && v->rounds > 1)
		put(HEAD_LINES + 1, 2, COLS - 3,
		    t->filter[0] ? "nothing with such a name was called"
		    : v->of	 ? "nothing was seen so far; backspace goes back"
				 : "nothing was called so far; -m MODULE looks at another module");
	draw_foot(t, v);
	refresh();
}

/* ----------------------------------------------------------------------- keys */

static void move_cursor(struct top *t, long by)
{
	struct view *v = t->views[t->depth - 1];
	long to = (long)v->cursor + by;

	if (!v->line_count)
		return;
	to = to < 0 ? 0 : to >= (long)v->line_count ? (long)v->line_count - 1 : to;
	v->cursor = (size_t)to;
	if (v->cursor < v->first)
		v->first = v->cursor;
	if (v->cursor >= v->first + t->rows)
		v->first = v->cursor - t->rows + 1;
	snprintf(v->cursor_name, sizeof(v->cursor_name), "%s", v->lines[v->cursor].name);
	/* at the top it stays at the top, whatever comes there */
	if (!v->cursor)
		v->cursor_name[0] = '\0';
}

/* In the line where the filter is asked for. */
static void filter_key(struct top *t, int key)
{
	size_t length = strlen(t->filter);

	if (key == KEY_ENTER || key == '\r' || key == '\n') {
		asking = false;
	} else if (key == KEY_ESCAPE) {
		asking = false;
		t->filter[0] = '\0';
	} else if (key == KEY_BACKSPACE || key == 127 || key == '\b') {
		if (length)
			t->filter[length - 1] = '\0';
	} else if (key >= ' ' && key < 127 && length + 1 < sizeof(t->filter)) {
		t->filter[length] = (char)key;
		t->filter[length + 1] = '\0';
	}
	lines_make(t, t->views[t->depth - 1]);
}

static void sort_by(struct top *t, int step)
{
	t->sort = (enum top_sort)(((int)t->sort + step + SORTS) % SORTS);
	lines_make(t, t->views[t->depth - 1]);
}

static bool action_key(struct top *t, int key)
{
	switch (key) {
	case '\r':
	case '\n':
	case KEY_ENTER:
	case KEY_RIGHT:
		t->action = ACTION_CALLEES;
		return true;
	case 'c':
		t->action = ACTION_CALLERS;
		return true;
	case 't':
		t->action = ACTION_THREADS;
		return true;
	case KEY_BACKSPACE:
	case 127:
	case '\b':
	case KEY_LEFT:
	case KEY_ESCAPE:
		t->action = ACTION_BACK;
		return true;
	case 'z':
		t->action = ACTION_SURVEY;
		return true;
	default:
		return false;
	}
}

static void look_key(struct top *t, int key)
{
	switch (key) {
	case KEY_UP:
	case 'k':
		move_cursor(t, -1);
		break;
	case KEY_DOWN:
	case 'j':
		move_cursor(t, 1);
		break;
	case KEY_PPAGE:
		move_cursor(t, -(long)t->rows);
		break;
	case KEY_NPAGE:
		move_cursor(t, (long)t->rows);
		break;
	case KEY_HOME:
		move_cursor(t, -1000000);
		break;
	case KEY_END:
		move_cursor(t, 1000000);
		break;
	case 's':
	case '>':
		sort_by(t, 1);
		break;
	case '<':
		sort_by(t, -1);
		break;
	case 'r':
		t->descending = !t->descending;
		lines_make(t, t->views[t->depth - 1]);
		break;
	case '/':
		asking = true;
		break;
	case ' ':
	case 'p':
		t->paused = !t->paused;
		break;
	case '?':
	case 'h':
		helping = true;
		break;
	case 'q':
		t->quit = true;
		break;
	default:
		break;
	}
}

static void obey(struct top *t, int key)
{
	t->message[0] = '\0';
	if (key == KEY_RESIZE)
		return; /* drawn anew as it is now */
	if (asking)
		filter_key(t, key);
	else if (helping)
		helping = false;
	else if (!action_key(t, key))
		look_key(t, key);
	screen_draw(t);
}

void screen_keys(struct top *t, uint64_t until_ns)
{
	uint64_t now;

	/* a key that is there already is obeyed even where there is no time */
	do {
		int key;

		now = top_now();
		timeout(until_ns > now + KEY_WAIT_MS * 1000000ull ? KEY_WAIT_MS
			: until_ns > now ? (int)((until_ns - now + 999999) / 1000000)
					 : 0);
		key = getch();
		if (key != ERR) {
			const bool paused = t->paused;

			obey(t, key);
			screen_draw(t);
			if (paused != t->paused)
				return;
		}
		now = top_now();
	} while (now < until_ns && !t->quit && t->action == ACTION_NONE && question_going(&t->q));
}
