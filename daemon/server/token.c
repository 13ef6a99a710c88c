/* SPDX-License-Identifier: MIT */
/*
 * token.c - reading and making the file of the token.
 *
 * Never takes a file that somebody else could have written or read.
 */
#include "daemon/server/token.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "daemon/common/paths.h"

static int make_file(const char *path, struct dinst_error *e)
{
	unsigned char bytes[32];
	char text[2 * sizeof(bytes) + 2];
	int fd, err = 0;

	if (getrandom(bytes, sizeof(bytes), 0) != (ssize_t)sizeof(bytes))
		return dinst_fail_errno(e, DINST_FAILED, errno, "no random numbers for a token");
	for (size_t i = 0; i < sizeof(bytes); i++)
		snprintf(text + 2 * i, 3, "%02x", bytes[i]);
	text[sizeof(text) - 2] = '\n';
	fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (fd < 0)
		return dinst_fail_errno(e, DINST_FAILED, errno, "cannot make the token's file %s",
					path);
	if (write(fd, text, sizeof(text) - 1) != (ssize_t)sizeof(text) - 1 || fsync(fd) != 0) {
		err = dinst_fail_errno(e, DINST_FAILED, errno, "cannot write the token to %s",
				       path);
		unlink(path);
	}
	close(fd);
	return err;
}

static int read_file(int fd, const char *path, char *token, struct dinst_error *e)
{
	struct stat st;
	ssize_t n;

	if (fstat(fd, &st) != 0 || !S_ISREG(st.st_mode) || st.st_uid != geteuid() ||
	    (st.st_mode & 077) || !file_is_own(fd))
		return dinst_fail(e, DINST_NOT_PERMITTED,
				  "the token's file %s must be a plain file of ours with mode 0600",
				  path);
	n = read(fd, token, TOKEN_MAX + 1);
	if (n < 0)
		return dinst_fail_errno(e, DINST_FAILED, errno, "cannot read the token in %s",
					path);
	if (n > TOKEN_MAX && token[TOKEN_MAX] != '\n')
		return dinst_fail(e, DINST_USAGE, "the token in %s is longer than %d characters",
				  path, TOKEN_MAX);
	token[n > TOKEN_MAX ? TOKEN_MAX : n] = '\0';
	token[strcspn(token, "\r\n")] = '\0';
	if (strlen(token) < TOKEN_MIN)
		return dinst_fail(e, DINST_USAGE, "the token in %s has less than %d characters",
				  path, TOKEN_MIN);
	for (const char *p = token; *p; p++)
		if (*p <= ' ' || *p > '~')
			return dinst_fail(e, DINST_USAGE,
					  "the token in %s is not of printable characters only",
					  path);
	return 0;
}

int token_load(const char *path, char *token, bool *made, struct dinst_error *e)
{
	int fd, err;

	*made = false;
	fd = open(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	if (fd < 0 && errno == ENOENT) {
		err = make_file(path, e);
		if (err)
			return err;
		*made = true;
		fd = open(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	}
	if (fd < 0)
		return dinst_fail_errno(e, DINST_FAILED, errno, "cannot open the token's file %s",
					path);
	err = read_file(fd, path, token, e);
	close(fd);
	return err;
}

bool token_equal(const char *token, const char *given)
{
	const size_t length = strlen(token);
	unsigned char differ = 0;

	if (!length || strlen(given) != length)
		return false;
	for (size_t i = 0; i < length; i++)
		differ |= (unsigned char)(token[i] ^ given[i]);
	return !differ;
}
