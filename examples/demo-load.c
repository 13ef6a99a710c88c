/* SPDX-License-Identifier: MIT */
/*
 * demo-load.c - asks demo-server without a break and checks every answer.
 *
 *   demo-load SOCKET CONNECTIONS          until SIGTERM; a line every 100 ms:
 *                                         "MILLISECONDS ANSWERS WRONG"
 *   demo-load SOCKET stats                how many requests the server answered
 *
 * What is right is computed here by other means than in the server, so a wrong
 * answer cannot hide in shared code. Exits with 1 if an answer was wrong.
 */
#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

enum { CONNECTIONS_MAX = 32, BATCH = 16, KINDS = 7 };

static const char *socket_path;
static atomic_uint_fast64_t answers, wrong;
static atomic_bool stop;

static uint64_t now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

static int connect_server(void)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	snprintf(address.sun_path, sizeof(address.sun_path), "%s", socket_path);
	if (fd < 0 || connect(fd, (struct sockaddr *)&address, sizeof(address)) != 0) {
		perror(socket_path);
		exit(2);
	}
	return fd;
}

/* -------------------------------------------------------- what is right */

static uint64_t right_prime(uint64_t n)
{
	for (;; n++) {
		uint64_t divisors = 0;

		for (uint64_t i = 1; i * i <= n; i++)
			if (n % i == 0)
				divisors += i * i == n ? 1 : 2;
		if (divisors == 2)
			return n;
	}
}

static uint64_t right_fibonacci(unsigned n)
{
	uint64_t a = 0, b = 1;

	while (n-- > 0) {
		const uint64_t sum = a + b;

		a = b;
		b = sum;
	}
	return a;
}

/* Counting instead of sorting: the numbers are below 1000. */
static uint64_t right_sort(uint64_t state)
{
	unsigned seen[1000] = {0};
	uint64_t sum = 0, place = 1;
	size_t count = 16 + (size_t)(state % 48);

	for (size_t i = 0; i < count; i++) {
		state = state * 6364136223846793005u + 1442695040888963407u;
		seen[(state >> 33) % 1000]++;
	}
	for (size_t value = 0; value < 1000; value++)
		while (seen[value]-- > 0)
			sum += value * place++;
	return sum;
}

static uint64_t right_checksum(const char *text)
{
	static _Thread_local uint32_t table[256];
	uint32_t sum = 0xffffffffu;

	if (table[1] == 0)
		for (uint32_t i = 0; i < 256; i++) {
			uint32_t c = i;

			for (int k = 0; k < 8; k++)
				c = c & 1 ? 0xedb88320u ^ (c >> 1) : c >> 1;
			table[i] = c;
		}
	for (; *text != '\0'; text++)
		sum = table[(sum ^ (unsigned char)*text) & 0xff] ^ (sum >> 8);
	return ~sum;
}

static uint64_t right_turns(uint64_t n)
{
	for (int i = 0; i < 100; i++) {
		const uint64_t results[8] = {n / 2, n * 3 + 1, n / 2 + 5, n ^ 0x55,
					     n / 4, n + 9,     n - 3,	  n / 7};

		n = results[n % 8];
	}
	return n;
}

/* Writes a request of some kind with its right answer. */
static int make_request(uint64_t random, uint64_t id, char *text, size_t size, uint64_t *right)
{
	const uint64_t a = random % 977, b = (random >> 10) % 977, c = (random >> 20) % 977;
	const uint64_t root = 100 + random % 3000;
	char word[32];

	switch ((random >> 40) % KINDS) {
	case 0:
		*right = right_prime(a + b);
		return snprintf(text, size, "%" PRIu64 " prime %" PRIu64 "\n", id, a + b);
	case 1:
		*right = right_fibonacci((unsigned)(a % 14));
		return snprintf(text, size, "%" PRIu64 " fib %" PRIu64 "\n", id, a % 14);
	case 2:
		*right = right_sort(a);
		return snprintf(text, size, "%" PRIu64 " sort %" PRIu64 "\n", id, a);
	case 3:
		snprintf(word, sizeof(word), "w%" PRIx64, random);
		*right = right_checksum(word);
		return snprintf(text, size, "%" PRIu64 " crc %s\n", id, word);
	case 4:
		*right = right_turns(a * b);
		return snprintf(text, size, "%" PRIu64 " turns %" PRIu64 "\n", id, a * b);
	case 5:
		*right = a + b * (c + a) - c;
		return snprintf(text, size,
				"%" PRIu64 " eval %" PRIu64 "+%" PRIu64 "*(%" PRIu64 "+%" PRIu64
				")-%" PRIu64 "\n",
				id, a, b, c, a, c);
	default:
		/* A little above (root + 0.5) squared: far from where rounding could matter. */
		*right = root * 1000 + 500;
		return snprintf(text, size, "%" PRIu64 " root %" PRIu64 ".3\n", id,
				root * root + root);
	}
}

/* ------------------------------------------------------------------ load */

struct batch {
	uint64_t first; /* id of the first request */
	uint64_t right[BATCH];
	bool got[BATCH];
};

/* Workers answer in any order: the id says to which request an answer belongs. */
static bool check_answer(struct batch *batch, const char *line)
{
	uint64_t id, value;

	if (sscanf(line, "%" SCNu64 " %" SCNu64, &id, &value) != 2 || id < batch->first ||
	    id >= batch->first + BATCH || batch->got[id - batch->first])
		return false;
	batch->got[id - batch->first] = true;
	return value == batch->right[id - batch->first];
}

static bool run_batch(FILE *in, int fd, struct batch *batch, uint64_t *random)
{
	char text[BATCH * 96], line[128];
	size_t used = 0;

	for (size_t i = 0; i < BATCH; i++) {
		*random = *random * 2862933555777941757u + 3037000493u;
		batch->got[i] = false;
		used += (size_t)make_request(*random >> 3, batch->first + i, text + used,
					     sizeof(text) - used, &batch->right[i]);
	}
	if (send(fd, text, used, MSG_NOSIGNAL) != (ssize_t)used)
		return false;
	for (size_t i = 0; i < BATCH; i++) {
		if (fgets(line, sizeof(line), in) == NULL)
			return false;
		if (!check_answer(batch, line)) {
			if (wrong++ < 5)
				fprintf(stderr, "wrong answer: %s", line);
		}
		answers++;
	}
	batch->first += BATCH;
	return true;
}

static void *connection_main(void *arg)
{
	uint64_t random = (uint64_t)(uintptr_t)arg * 0x9e3779b97f4a7c15u;
	struct batch batch = {.first = 1};
	int fd = connect_server();
	FILE *in = fdopen(dup(fd), "r");

	while (!stop) {
		if (!run_batch(in, fd, &batch, &random)) {
			fprintf(stderr, "the server went away\n");
			wrong++;
			break;
		}
	}
	fclose(in);
	close(fd);
	return NULL;
}

static void on_signal(int sig)
{
	(void)sig;
	stop = true;
}

static int ask_stats(void)
{
	char line[128] = "";
	int fd = connect_server();
	FILE *in = fdopen(dup(fd), "r");

	if (send(fd, "1 stats\n", 8, MSG_NOSIGNAL) == 8 && fgets(line, sizeof(line), in) != NULL)
		fputs(strchr(line, ' ') != NULL ? strchr(line, ' ') + 1 : line, stdout);
	fclose(in);
	close(fd);
	return line[0] != '\0' ? 0 : 1;
}

int main(int argc, char **argv)
{
	pthread_t threads[CONNECTIONS_MAX];
	uint64_t start = now_ms();
	size_t count;

	if (argc != 3) {
		fprintf(stderr, "usage: %s SOCKET CONNECTIONS|stats\n", argv[0]);
		return 2;
	}
	socket_path = argv[1];
	if (strcmp(argv[2], "stats") == 0)
		return ask_stats();
	count = (size_t)atoi(argv[2]);
	if (count < 1 || count > CONNECTIONS_MAX)
		return 2;
	signal(SIGTERM, on_signal);
	signal(SIGINT, on_signal);
	for (size_t i = 0; i < count; i++)
		pthread_create(&threads[i], NULL, connection_main, (void *)(uintptr_t)(i + 1));
	while (!stop) {
		usleep(100000);
		printf("%" PRIu64 " %" PRIuFAST64 " %" PRIuFAST64 "\n", now_ms() - start, answers,
		       wrong);
		fflush(stdout);
	}
	for (size_t i = 0; i < count; i++)
		pthread_join(threads[i], NULL);
	printf("%" PRIu64 " %" PRIuFAST64 " %" PRIuFAST64 "\n", now_ms() - start, answers, wrong);
	return wrong != 0 ? 1 : 0;
}
