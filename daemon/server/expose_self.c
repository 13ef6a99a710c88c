/* SPDX-License-Identifier: MIT */
/*
 * expose_self.c - what dinst says of itself.
 *
 * Owns the names of what is no metric of a session. Reads /proc of our own processes only.
 */
#include "daemon/server/expose_self.h"

#include <dirent.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "daemon/server/expose.h"
#include "daemon/server/http.h"
#include "daemon/server/otlp.h"
#include "daemon/server/sampler.h"
#include "daemon/server/snapshot.h"
#include "inject/proc.h"

/* --------------------------------------------------------------- processes */

bool expose_process(pid_t pid, double *cpu_seconds, int64_t *resident_bytes)
{
	struct proc_stat stat;

	if (proc_stat_read(pid, &stat))
		return false;
	*cpu_seconds = (double)(stat.user_ticks + stat.system_ticks) / (double)sysconf(_SC_CLK_TCK);
	*resident_bytes = (int64_t)stat.resident_pages * sysconf(_SC_PAGESIZE);
	return true;
}

static int64_t count_descriptors(void)
{
	DIR *d = opendir("/proc/self/fd");
	int64_t n = 0;

	if (!d)
		return 0;
	while (readdir(d))
		n++;
	closedir(d);
	return n - 3; /* ".", ".." and this one */
}

/* ----------------------------------------------------------------- helpers */

struct own {
	const char *name;
	enum family_type type;
	enum family_unit unit;
	const char *help;
};

static struct sample *add(struct exposition *x, const struct own *o, const struct label *labels,
			  unsigned count, struct amount amount, const char *session)
{
	struct family *f = exposition_family(x, o->name, o->type, o->unit, o->help);
	struct sample *s = exposition_sample(x, f, labels, count, 0);

	if (s) {
		s->amount = amount;
		s->session = session ? exposition_string(x, session) : NULL;
	}
	return s;
}

static void add_daemon(struct exposition *x, const char *name, enum family_type type,
		       enum family_unit unit, const char *help, struct amount amount)
{
	add(x, &(struct own){name, type, unit, help}, NULL, 0, amount, NULL);
}

/* -------------------------------------------------------------- the daemon */

static void add_own_process(struct exposition *x)
{
	double cpu = 0;
	int64_t resident = 0;

	if (!expose_process(getpid(), &cpu, &resident))
		return;
	add_daemon(x, "process_cpu_seconds_total", FAMILY_COUNTER, FAMILY_SECONDS,
		   "CPU time of dinstd.", amount_real(cpu));
	add_daemon(x, "process_resident_memory_bytes", FAMILY_GAUGE, FAMILY_BYTES,
		   "Resident memory of dinstd.", amount_whole(resident));
	add_daemon(x, "process_open_fds", FAMILY_GAUGE, FAMILY_PLAIN,
		   "Open file descriptors of dinstd.", amount_whole(count_descriptors()));
}

void expose_daemon(struct exposition *x, struct server *s)
{
	const struct own build = {"dinst_build_info", FAMILY_GAUGE, FAMILY_PLAIN,
				  "The version of dinst; always 1."};
	const struct label version = {"version", DINST_VERSION};
	const struct own left_out = {"dinst_left_out_samples", FAMILY_GAUGE, FAMILY_PLAIN,
				     "Samples for which there was no place in this answer."};
	struct http_stats http = {0};
	struct otlp_stats otlp = {0};

	/* at the end there may be no place for it */
	x->told_left_out = add(x, &left_out, NULL, 0, amount_whole(0), NULL);
	add(x, &build, &version, 1, amount_whole(1), NULL);
	add_own_process(x);
	add_daemon(x, "dinst_sessions", FAMILY_GAUGE, FAMILY_PLAIN,
		   "Programs that dinst is attached to.", amount_whole(session_count(s)));
	http_stats(s, &http);
	add_daemon(x, "dinst_http_requests_total", FAMILY_COUNTER, FAMILY_PLAIN,
		   "HTTP requests that were answered.", amount_whole((int64_t)http.requests));
	add_daemon(x, "dinst_http_refused_total", FAMILY_COUNTER, FAMILY_PLAIN,
		   "HTTP requests and connections that were refused.",
		   amount_whole((int64_t)http.refused));
	if (!otlp_stats(s, &otlp))
		return;
	add_daemon(x, "dinst_otlp_exports_total", FAMILY_COUNTER, FAMILY_PLAIN,
		   "Exports that the OTLP receiver accepted.", amount_whole((int64_t)otlp.sent));
	add_daemon(x, "dinst_otlp_failures_total", FAMILY_COUNTER, FAMILY_PLAIN,
		   "Attempts to export by OTLP that failed.", amount_whole((int64_t)otlp.failed));
	add_daemon(x, "dinst_otlp_dropped_total", FAMILY_COUNTER, FAMILY_PLAIN,
		   "Exports by OTLP that were given up.", amount_whole((int64_t)otlp.dropped));
	add_daemon(x, "dinst_otlp_queue_length", FAMILY_GAUGE, FAMILY_PLAIN,
		   "Exports by OTLP that wait.", amount_whole((int64_t)otlp.queued));
}

void expose_end(struct exposition *x)
{
	if (x->told_left_out)
		x->told_left_out->amount = amount_whole((int64_t)x->left_out);
}

/* ----------------------------------------------------------------- sessions */

static const struct status_value {
	const char *key;
	struct own own;
	bool us;
} status_values[] = {
	{"points",
	 {"dinst_session_points", FAMILY_GAUGE, FAMILY_PLAIN,
	  "Places in the program that are instrumented."},
	 false},
	{"active",
	 {"dinst_session_instances", FAMILY_GAUGE, FAMILY_PLAIN,
	  "Metrics that are inserted, each with its focus."},
	 false},
	{"queued",
	 {"dinst_session_queued", FAMILY_GAUGE, FAMILY_PLAIN,
	  "Pieces of code that wait to be given back."},
	 false},
	{"heap_bytes",
	 {"dinst_session_code_bytes", FAMILY_GAUGE, FAMILY_BYTES,
	  "Memory for inserted code in the program, in whole pages."},
	 false},
	{"heap_memory",
	 {"dinst_session_memory_bytes", FAMILY_GAUGE, FAMILY_BYTES,
	  "All memory of dinst that exists in the program, code and values."},
	 false},
	{"text_memory",
	 {"dinst_session_patched_bytes", FAMILY_GAUGE, FAMILY_BYTES,
	  "Pages of the program's text that differ from its file."},
	 false},
	{"stops",
	 {"dinst_session_stops_total", FAMILY_COUNTER, FAMILY_PLAIN,
	  "How often dinst has stopped the program."},
	 false},
	{"stops_us",
	 {"dinst_session_stop_seconds_total", FAMILY_COUNTER, FAMILY_SECONDS,
	  "How long dinst has stopped the program, all stops together."},
	 true},
	{"longest_stop_us",
	 {"dinst_session_longest_stop_seconds", FAMILY_GAUGE, FAMILY_SECONDS,
	  "The longest time for which dinst has stopped the program."},
	 true},
};

static void add_status(struct exposition *x, struct session *se, const struct label *labels,
		       unsigned count)
{
	for (size_t i = 0; i < sizeof(status_values) / sizeof(status_values[0]); i++) {
		const struct status_value *v = &status_values[i];
		const json_t *value = json_object_get(se->status, v->key);
		const json_int_t n = json_integer_value(value);

		if (json_is_integer(value))
			add(x, &v->own, labels, count,
			    v->us ? amount_ns((int64_t)n * 1000) : amount_whole((int64_t)n),
			    se->name);
	}
}

static void add_mutator(struct exposition *x, struct session *se, const struct label *labels,
			unsigned count)
{
	static const struct own cpu = {"dinst_session_mutator_cpu_seconds_total", FAMILY_COUNTER,
				       FAMILY_SECONDS,
				       "CPU time of the session's mutator process."},
				memory = {"dinst_session_mutator_memory_bytes", FAMILY_GAUGE,
					  FAMILY_BYTES,
					  "Resident memory of the session's mutator process."};
	double seconds = 0;
	int64_t bytes = 0;

	if (!se->mutator || !expose_process(mutator_pid(se->mutator), &seconds, &bytes))
		return;
	add(x, &cpu, labels, count, amount_real(seconds), se->name);
	add(x, &memory, labels, count, amount_whole(bytes), se->name);
}

/* What it takes to look: the mutator's answers, and the code in the program as far as it is counted. */
static void add_cost(struct exposition *x, struct session *se, const struct label *labels,
		     unsigned count)
{
	static const struct own
		asked = {"dinst_session_read_seconds_total", FAMILY_COUNTER, FAMILY_SECONDS,
			 "Time from asking the mutator for values to its answers."},
		age = {"dinst_session_age_seconds", FAMILY_GAUGE, FAMILY_SECONDS,
		       "How old the values of the session are."},
		cost = {"dinst_session_cost_ratio", FAMILY_GAUGE, FAMILY_PLAIN,
			"CPUs that the inserted code is predicted to take, where its runs are "
			"counted."};
	const struct snapshot *sn = se->snapshot;

	add(x, &asked, labels, count,
	    amount_ns((int64_t)((sn ? sn->total_ns : 0) + sampler_asked_ns(se))), se->name);
	if (!sn || !sn->taken_ns)
		return;
	add(x, &age, labels, count, amount_real((double)(uv_hrtime() - sn->taken_ns) / 1e9),
	    se->name);
	if (sn->cost_known)
		add(x, &cost, labels, count, amount_real(sn->cost_ns / 1e9), se->name);
}

void expose_session(struct exposition *x, struct session *se, const struct label *labels,
		    unsigned count)
{
	static const struct own up = {
		"dinst_session_up", FAMILY_GAUGE, FAMILY_PLAIN,
		"1: the program runs and dinst is attached; 0: it has ended, or dinst has lost it."};

	add(x, &up, labels, count, amount_whole(se->state == SESSION_LIVE && !se->over), se->name);
	add_status(x, se, labels, count);
	add_mutator(x, se, labels, count);
	add_cost(x, se, labels, count);
}
