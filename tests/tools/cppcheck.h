/* SPDX-License-Identifier: MIT */
/*
 * cppcheck.h - what "make cppcheck" is told of macros in headers that it does not
 * read. Included by nothing else.
 */
#ifndef DINST_TESTS_TOOLS_CPPCHECK_H
#define DINST_TESTS_TOOLS_CPPCHECK_H

#define json_array_foreach(array, index, value)                                            \
	for ((index) = 0;                                                                  \
	     (index) < json_array_size(array) && ((value) = json_array_get(array, index)); \
	     (index)++)

#define json_object_foreach(object, key, value)                      \
	for ((key) = json_object_iter_key(json_object_iter(object)); \
	     (key) && ((value) = json_object_get(object, key)); (key) = json_object_iter_key(0))

#define json_object_foreach_safe(object, next, key, value) json_object_foreach(object, key, value)

#endif
