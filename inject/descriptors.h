/* SPDX-License-Identifier: MIT */
/*
 * descriptors.h - room for open files, made while nobody waits for it.
 */
#ifndef DINST_INJECT_DESCRIPTORS_H
#define DINST_INJECT_DESCRIPTORS_H

/*
 * To be called before this process has a second thread. When the table of descriptors of a process
 * with threads grows, the kernel lets whoever opens a file wait for a grace period of RCU
 * (expand_fdtable(), fs/file.c): milliseconds as a rule, but seconds and minutes were seen on a machine
 * with far more work than CPUs, in which a daemon answers nobody and a target would stand still. It
 * never shrinks, so it is made as large as it will ever be at once.
 */
void descriptors_make_room(void);

#endif
