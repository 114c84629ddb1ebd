/*
 * A program that closes all descriptors, as one does that becomes a daemon. The engine's are not
 * its own: its connections go on, and it can make new ones.
 */
#include "walk.h"

#include <fcntl.h>
#include <sys/wait.h>

#define FIRST 3
#define NUMBERS 1024

static void sends(struct pair *p)
{
	struct ibv_sge sge;
	struct ibv_send_wr wr;

	post_recv(&p->server, 1, 0, 64);
	wr = request(&p->client, &sge, IBV_WR_SEND, 64);
	wr.send_flags = IBV_SEND_SIGNALED;
	CHECK(!post(&p->client, &wr));
	CHECK(await(&p->server).status == IBV_WC_SUCCESS);
	CHECK(await(&p->client).status == IBV_WC_SUCCESS);
}

static int left(void)
{
	int n = 0;

	for (int fd = FIRST; fd < NUMBERS; fd++)
		n += fcntl(fd, F_GETFD) >= 0;
	return n;
}

static void by_close(void)
{
	for (int fd = FIRST; fd < NUMBERS; fd++)
		if (close(fd))
			CHECK(errno == EBADF);
}

static void by_range(void)
{
	CHECK(!close_range(FIRST, ~0U, 0));
	errno = 0;
	CHECK(close_range(4, 3, 0) && errno == EINVAL);
	/* a range that has none of ours, and one that has but ours */
	CHECK(!close_range(NUMBERS, NUMBERS + 5, 0));
	for (int fd = FIRST; fd < NUMBERS; fd++)
		CHECK(!close_range(fd, fd, 0));
}

static void by_from(void)
{
	closefrom(FIRST);
}

static void in_child(void (*all)(void))
{
	pid_t child = fork();
	int status;

	CHECK(child >= 0);
	if (!child) {
		all();
		_exit(left() != 0);
	}
	CHECK(waitpid(child, &status, 0) == child && !status);
}

/* What a program has after it has swept is its own, and is not touched. */
static void own(struct pair *p)
{
	int files[64], held = left();
	char name[] = "/tmp/sweepXXXXXX", c;

	CHECK((files[0] = mkstemp(name)) >= 0 && !unlink(name));
	for (int i = 1; i < 64; i++)
		CHECK((files[i] = dup(files[0])) >= 0);
	for (int i = 0; i < 4; i++)
		sends(p);
	for (int i = 0; i < 64; i++)
		CHECK(!lseek(files[i], 0, SEEK_END) && !pread(files[i], &c, 1, 0) && !close(files[i]));
	CHECK(left() == held);
}

int main(void)
{
	static void (*const ways[])(void) = { by_close, by_range, by_from };

	for (int i = 0; i < 3; i++) {
		struct pair p, next;

		connect_pair(&p, 0);
		sends(&p);
		in_child(ways[i]);
		ways[i]();
		own(&p);
		connect_pair(&next, 0);
		sends(&next);
		sends(&p);
		close_pair(&next);
	}
	puts("all well");
	return 0;
}
