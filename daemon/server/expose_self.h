/* SPDX-License-Identifier: MIT */
/*
 * expose_self.h - what dinst says of itself: sessions, stops, memory, what it costs.
 */
#ifndef DINST_DAEMON_EXPOSE_SELF_H
#define DINST_DAEMON_EXPOSE_SELF_H

#include "daemon/server/exposition.h"
#include "daemon/server/server.h"

void expose_daemon(struct exposition *x, struct server *s);
/* With the labels of the session. */
void expose_session(struct exposition *x, struct session *se, const struct label *labels,
		    unsigned count);
/* How much had to be left out; last. */
void expose_end(struct exposition *x);

#endif
