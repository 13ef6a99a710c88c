/* SPDX-License-Identifier: MIT */
/* build: -fno-inline */
/*
 * demo-server.c - a small threaded server for the demo: something to look into.
 *
 *   demo-server SOCKET [THREADS]
 *
 * Takes lines "ID VERB ARGUMENT" on a unix socket, lets worker threads compute,
 * and answers "ID RESULT". One thread reads, the workers answer. Ends on
 * SIGTERM or SIGINT. It knows nothing of dinst and is compiled like any
 * program; only inlining is off, so that its functions stay apart.
 */
#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

enum { CLIENTS_MAX = 60, LINE_SIZE = 256, BUFFER_SIZE = 8192, QUEUE_SIZE = 1024, SORT_MAX = 256 };

struct client {
	int fd; /* -1: free */
	unsigned pending;
	bool closed;
	size_t used;
	char buffer[BUFFER_SIZE];
};

struct job {
	struct client *client;
	char line[LINE_SIZE];
};

static struct client clients[CLIENTS_MAX];
static struct job queue[QUEUE_SIZE];
static size_t queue_head, queue_length;
static uint64_t answered;
static bool stopping;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t not_empty = PTHREAD_COND_INITIALIZER;
static pthread_cond_t not_full = PTHREAD_COND_INITIALIZER;
static volatile sig_atomic_t told_to_stop;

/* ------------------------------------------------------------------ work */

static bool is_prime(uint64_t n)
{
	if (n < 4)
		return n >= 2;
	if (n % 2 == 0)
		return false;
	for (uint64_t i = 3; i * i <= n; i += 2)
		if (n % i == 0)
			return false;
	return true;
}

static uint64_t next_prime(uint64_t n)
{
	while (!is_prime(n))
		n++;
	return n;
}

static uint64_t do_prime(const char *argument)
{
	return next_prime(strtoull(argument, NULL, 10));
}

/* Recursive on purpose: a function that calls itself a lot. */
static uint64_t fibonacci(unsigned n)
{
	return n < 2 ? n : fibonacci(n - 1) + fibonacci(n - 2);
}

static uint64_t do_fibonacci(const char *argument)
{
	return fibonacci((unsigned)strtoul(argument, NULL, 10) % 20);
}

static uint64_t step_random(uint64_t *state)
{
	*state = *state * 6364136223846793005u + 1442695040888963407u;
	return *state >> 33;
}

/* Called back by the library. */
static int compare_numbers(const void *a, const void *b)
{
	const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return (x > y) - (x < y);
}

static uint64_t weigh(const uint64_t *numbers, size_t count)
{
	uint64_t sum = 0;

	for (size_t i = 0; i < count; i++)
		sum += numbers[i] * (i + 1);
	return sum;
}

static uint64_t do_sort(const char *argument)
{
	uint64_t numbers[SORT_MAX], state = strtoull(argument, NULL, 10);
	size_t count = 16 + (size_t)(state % 48);

	for (size_t i = 0; i < count; i++)
		numbers[i] = step_random(&state) % 1000;
	qsort(numbers, count, sizeof(numbers[0]), compare_numbers);
	return weigh(numbers, count);
}

static uint32_t checksum_byte(uint32_t sum, unsigned char byte)
{
	sum ^= byte;
	for (int i = 0; i < 8; i++)
		sum = (sum >> 1) ^ (0xedb88320u & (0u - (sum & 1)));
	return sum;
}

static uint64_t do_checksum(const char *argument)
{
	uint32_t sum = 0xffffffffu;

	for (const char *c = argument; *c != '\0'; c++)
		sum = checksum_byte(sum, (unsigned char)*c);
	return sum ^ 0xffffffffu;
}

/* A switch that becomes a jump table. */
static uint64_t turn(uint64_t n)
{
	switch (n % 8) {
	case 0:
		return n / 2;
	case 1:
		return n * 3 + 1;
	case 2:
		return n / 2 + 5;
	case 3:
		return n ^ 0x55;
	case 4:
		return n / 4;
	case 5:
		return n + 9;
	case 6:
		return n - 3;
	default:
		return n / 7;
	}
}

static uint64_t do_turns(const char *argument)
{
	uint64_t n = strtoull(argument, NULL, 10);

	for (int i = 0; i < 100; i++)
		n = turn(n);
	return n;
}

/* Expressions: sum = product {+|- product}; product = atom {* atom}; atom = number | ( sum ). */
static int64_t parse_sum(const char **text);

static int64_t parse_atom(const char **text)
{
	int64_t value = 0;

	if (**text == '(') {
		(*text)++;
		value = parse_sum(text);
		if (**text == ')')
			(*text)++;
		return value;
	}
	while (isdigit((unsigned char)**text))
		value = value * 10 + (*(*text)++ - '0');
	return value;
}

static int64_t parse_product(const char **text)
{
	int64_t value = parse_atom(text);

	while (**text == '*') {
		(*text)++;
		value *= parse_atom(text);
	}
	return value;
}

static int64_t parse_sum(const char **text)
{
	int64_t value = parse_product(text);

	while (**text == '+' || **text == '-') {
		const char sign = *(*text)++;
		const int64_t right = parse_product(text);

		value = sign == '+' ? value + right : value - right;
	}
	return value;
}

static uint64_t do_evaluate(const char *argument)
{
	return (uint64_t)parse_sum(&argument);
}

/* Floating point, so that vector registers are alive across calls. */
static double halve_interval(double low, double high, double square)
{
	for (int i = 0; i < 60; i++) {
		const double middle = (low + high) / 2;

		if (middle * middle > square)
			high = middle;
		else
			low = middle;
	}
	return low;
}

static uint64_t do_root(const char *argument)
{
	return (uint64_t)(halve_interval(0, 1e7, strtod(argument, NULL)) * 1000);
}

static uint64_t do_stats(const char *argument)
{
	uint64_t value;

	(void)argument;
	pthread_mutex_lock(&lock);
	value = answered;
	pthread_mutex_unlock(&lock);
	return value;
}

static const struct verb {
	const char *name;
	uint64_t (*work)(const char *argument);
} verbs[] = {
	{"prime", do_prime}, {"fib", do_fibonacci}, {"sort", do_sort}, {"crc", do_checksum},
	{"turns", do_turns}, {"eval", do_evaluate}, {"root", do_root}, {"stats", do_stats},
};

static const struct verb *find_verb(const char *name)
{
	for (size_t i = 0; i < sizeof(verbs) / sizeof(verbs[0]); i++)
		if (strcmp(verbs[i].name, name) == 0)
			return &verbs[i];
	return NULL;
}

/* ----------------------------------------------------------------- queue */

static void queue_push(struct client *client, const char *line)
{
	struct job *job;

	pthread_mutex_lock(&lock);
	while (queue_length == QUEUE_SIZE && !stopping)
		pthread_cond_wait(&not_full, &lock);
	job = &queue[(queue_head + queue_length++) % QUEUE_SIZE];
	job->client = client;
	snprintf(job->line, sizeof(job->line), "%s", line);
	client->pending++;
	pthread_cond_signal(&not_empty);
	pthread_mutex_unlock(&lock);
}

static bool queue_pop(struct job *job)
{
	pthread_mutex_lock(&lock);
	while (queue_length == 0 && !stopping)
		pthread_cond_wait(&not_empty, &lock);
	if (queue_length == 0) {
		pthread_mutex_unlock(&lock);
		return false;
	}
	*job = queue[queue_head];
	queue_head = (queue_head + 1) % QUEUE_SIZE;
	queue_length--;
	pthread_cond_signal(&not_full);
	pthread_mutex_unlock(&lock);
	return true;
}

static void client_release(struct client *client)
{
	if (client->closed && client->pending == 0) {
		close(client->fd);
		client->fd = -1;
	}
}

static void send_answer(struct client *client, const char *text, size_t size)
{
	pthread_mutex_lock(&lock);
	if (!client->closed && send(client->fd, text, size, MSG_NOSIGNAL) != (ssize_t)size)
		client->closed = true;
	answered++;
	client->pending--;
	client_release(client);
	pthread_mutex_unlock(&lock);
}

static void answer_request(struct job *job)
{
	char id[32], name[16], argument[LINE_SIZE] = "", text[128];
	const struct verb *verb;
	int size;

	if (sscanf(job->line, "%31s %15s %255s", id, name, argument) < 2 ||
	    (verb = find_verb(name)) == NULL)
		size = snprintf(text, sizeof(text), "0 error\n");
	else
		size = snprintf(text, sizeof(text), "%s %" PRIu64 "\n", id, verb->work(argument));
	send_answer(job->client, text, (size_t)size);
}

static void *worker_main(void *arg)
{
	struct job job;

	(void)arg;
	while (queue_pop(&job))
		answer_request(&job);
	return NULL;
}

/* --------------------------------------------------------------- network */

static void accept_client(int listener)
{
	int fd = accept(listener, NULL, NULL);

	if (fd < 0)
		return;
	pthread_mutex_lock(&lock);
	for (size_t i = 0; i < CLIENTS_MAX; i++) {
		if (clients[i].fd >= 0)
			continue;
		clients[i].closed = false;
		clients[i].pending = 0;
		clients[i].used = 0;
		clients[i].fd = fd;
		fd = -1;
		break;
	}
	pthread_mutex_unlock(&lock);
	if (fd >= 0)
		close(fd);
}

static void take_lines(struct client *client)
{
	char *start = client->buffer, *end;

	client->buffer[client->used] = '\0';
	while ((end = strchr(start, '\n')) != NULL) {
		*end = '\0';
		queue_push(client, start);
		start = end + 1;
	}
	client->used -= (size_t)(start - client->buffer);
	memmove(client->buffer, start, client->used);
}

static void read_client(struct client *client)
{
	ssize_t got = read(client->fd, client->buffer + client->used,
			   sizeof(client->buffer) - 1 - client->used);

	if (got > 0) {
		client->used += (size_t)got;
		take_lines(client);
		return;
	}
	if (got < 0 && errno == EINTR)
		return;
	pthread_mutex_lock(&lock);
	client->closed = true;
	client_release(client);
	pthread_mutex_unlock(&lock);
}

static size_t fill_poll(struct pollfd *p, struct client **owners, int listener)
{
	size_t count = 0;

	p[count++] = (struct pollfd){.fd = listener, .events = POLLIN};
	pthread_mutex_lock(&lock);
	for (size_t i = 0; i < CLIENTS_MAX; i++) {
		if (clients[i].fd < 0 || clients[i].closed)
			continue;
		owners[count] = &clients[i];
		p[count++] = (struct pollfd){.fd = clients[i].fd, .events = POLLIN};
	}
	pthread_mutex_unlock(&lock);
	return count;
}

static void serve(int listener)
{
	struct pollfd p[CLIENTS_MAX + 1];
	struct client *owners[CLIENTS_MAX + 1];

	while (!told_to_stop) {
		size_t count = fill_poll(p, owners, listener);

		if (poll(p, count, 200) <= 0)
			continue;
		for (size_t i = 1; i < count; i++)
			if (p[i].revents != 0)
				read_client(owners[i]);
		if (p[0].revents != 0)
			accept_client(listener);
	}
}

static int listen_on(const char *path)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	snprintf(address.sun_path, sizeof(address.sun_path), "%s", path);
	unlink(path);
	if (fd < 0 || bind(fd, (struct sockaddr *)&address, sizeof(address)) != 0 ||
	    listen(fd, 16) != 0) {
		perror(path);
		exit(1);
	}
	return fd;
}

static void on_signal(int sig)
{
	(void)sig;
	told_to_stop = 1;
}

int main(int argc, char **argv)
{
	struct sigaction action = {.sa_handler = on_signal};
	size_t count = argc > 2 ? (size_t)atoi(argv[2]) : 4;
	pthread_t *threads = calloc(count, sizeof(*threads));
	int listener;

	if (argc < 2 || count == 0 || threads == NULL) {
		fprintf(stderr, "usage: %s SOCKET [THREADS]\n", argv[0]);
		return 2;
	}
	for (size_t i = 0; i < CLIENTS_MAX; i++)
		clients[i].fd = -1;
	sigaction(SIGTERM, &action, NULL);
	sigaction(SIGINT, &action, NULL);
	listener = listen_on(argv[1]);
	for (size_t i = 0; i < count; i++)
		pthread_create(&threads[i], NULL, worker_main, NULL);
	printf("ready\n");
	fflush(stdout);
	serve(listener);
	pthread_mutex_lock(&lock);
	stopping = true;
	pthread_cond_broadcast(&not_empty);
	pthread_mutex_unlock(&lock);
	for (size_t i = 0; i < count; i++)
		pthread_join(threads[i], NULL);
	printf("answered %" PRIu64 "\n", answered);
	close(listener);
	unlink(argv[1]);
	free(threads);
	return 0;
}
