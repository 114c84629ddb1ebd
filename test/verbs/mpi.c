// What MPI programs do, with every octet and every number compared: messages in both directions and
// of any length, all-to-all, reductions, and one-sided operations with fences, locks and flushes.
// mpi [SEED [ROUNDS]]; rank 0 prints one line for each part, and "verified" at the end. The first
// octet that is wrong ends all ranks.
#include <mpi.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int rank, ranks, rounds;
static uint64_t seed;

static void fail(const char *format, ...)
{
	va_list args;
	va_start(args, format);
	fprintf(stderr, "rank %d, seed %llu: ", rank, (unsigned long long)seed);
	vfprintf(stderr, format, args);
	fputc('\n', stderr);
	va_end(args);
	MPI_Abort(MPI_COMM_WORLD, 1);
}

// draw is a number that all ranks draw alike: splitmix64.
static uint64_t draw(uint64_t *state)
{
	uint64_t z = *state += 0x9e3779b97f4a7c15;
	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
	z = (z ^ z >> 27) * 0x94d049bb133111eb;
	return z ^ z >> 31;
}

// A message is known by its key: from whom, to whom, which.
static uint64_t key(int from, int to, int which)
{
	return seed ^ (uint64_t)from << 40 ^ (uint64_t)to << 20 ^ (uint64_t)which << 50;
}

static void fill(unsigned char *b, size_t n, uint64_t state)
{
	for (; n >= 8; n -= 8, b += 8) {
		uint64_t v = draw(&state);
		memcpy(b, &v, 8);
	}
	uint64_t v = draw(&state);
	memcpy(b, &v, n);
}

static void compare(const char *what, const unsigned char *b, size_t n, uint64_t state)
{
	unsigned char *want = malloc(n + 1);
	fill(want, n, state);
	for (size_t i = 0; i < n; i++)
		if (b[i] != want[i])
			fail("%s: octet %zu of %zu is %02x, not %02x", what, i, n, b[i], want[i]);
	free(want);
}

static void done(const char *what)
{
	MPI_Barrier(MPI_COMM_WORLD);
	if (rank == 0) {
		printf("%s\n", what);
		fflush(stdout);
	}
}

// Lengths about which a library changes its way: short, in several packets, by Read or Write.
static const size_t lengths[] = {0, 1, 7, 64, 1000, 4096, 8191, 65536, 262147, 1 << 20, 4 << 20};
enum { LENGTHS = sizeof lengths / sizeof *lengths };

// Between every two ranks, there and back.
static void pingpong(void)
{
	unsigned char *b = malloc(lengths[LENGTHS - 1]);
	for (int i = 0; i < LENGTHS; i++) {
		size_t n = lengths[i];
		for (int step = 1; step < ranks; step++) {
			int to = (rank + step) % ranks, from = (rank - step + ranks) % ranks;
			unsigned char *out = malloc(n + 1);
			fill(out, n, key(rank, to, i));
			MPI_Sendrecv(out, n, MPI_BYTE, to, i, b, n, MPI_BYTE, from, i, MPI_COMM_WORLD,
				MPI_STATUS_IGNORE);
			compare("ping", b, n, key(from, rank, i));
			MPI_Sendrecv_replace(b, n, MPI_BYTE, from, i, to, i, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
			compare("pong", b, n, key(rank, to, i));
			free(out);
		}
	}
	free(b);
	done("ping-pong");
}

// Many at a time, with tags in another order than they are received, from any source.
static void flood(void)
{
	enum { MANY = 50 };
	uint64_t state = seed;
	MPI_Request *requests = malloc(2 * MANY * ranks * sizeof *requests);
	unsigned char **in = malloc(MANY * ranks * sizeof *in), **out = malloc(MANY * ranks * sizeof *in);
	size_t *n = malloc(MANY * sizeof *n);
	for (int i = 0; i < MANY; i++)
		n[i] = draw(&state) % (i % 10 ? 3000 : 200000);
	int at = 0;
	for (int i = 0; i < MANY; i++)
		for (int peer = 0; peer < ranks; peer++) {
			unsigned char *b = out[i * ranks + peer] = malloc(n[i] + 1);
			fill(b, n[i], key(rank, peer, i));
			MPI_Isend(b, n[i], MPI_BYTE, peer, i, MPI_COMM_WORLD, &requests[at++]);
		}
	for (int i = MANY - 1; i >= 0; i--)
		for (int peer = 0; peer < ranks; peer++) {
			unsigned char *b = in[i * ranks + peer] = malloc(n[i] + 1);
			MPI_Irecv(b, n[i], MPI_BYTE, peer, i, MPI_COMM_WORLD, &requests[at++]);
		}
	MPI_Waitall(at, requests, MPI_STATUSES_IGNORE);
	for (int i = 0; i < MANY; i++)
		for (int peer = 0; peer < ranks; peer++) {
			compare("flood", in[i * ranks + peer], n[i], key(peer, rank, i));
			free(in[i * ranks + peer]);
			free(out[i * ranks + peer]);
		}
	free(in);
	free(out);
	free(n);
	free(requests);
	done("flood");
}

static void collective(void)
{
	for (int i = 0; i < LENGTHS - 2; i++) {
		size_t n = lengths[i];
		unsigned char *in = malloc(n * ranks + 1), *out = malloc(n * ranks + 1);
		for (int peer = 0; peer < ranks; peer++)
			fill(out + n * peer, n, key(rank, peer, i));
		MPI_Alltoall(out, n, MPI_BYTE, in, n, MPI_BYTE, MPI_COMM_WORLD);
		for (int peer = 0; peer < ranks; peer++)
			compare("all-to-all", in + n * peer, n, key(peer, rank, i));
		MPI_Allgather(out, n, MPI_BYTE, in, n, MPI_BYTE, MPI_COMM_WORLD);
		for (int peer = 0; peer < ranks; peer++)
			compare("all-gather", in + n * peer, n, key(peer, 0, i));
		int root = i % ranks;
		MPI_Bcast(out, n, MPI_BYTE, root, MPI_COMM_WORLD);
		compare("broadcast", out, n, key(root, 0, i));
		free(in);
		free(out);
	}
	done("all-to-all");
	for (int n = 1; n <= 300000; n = n * 7 + 1) {
		int64_t *in = malloc(n * sizeof *in), *out = malloc(n * sizeof *out);
		for (int i = 0; i < n; i++)
			in[i] = (int64_t)i * (rank + 1) + (int64_t)(seed & 0xffff);
		MPI_Allreduce(in, out, n, MPI_INT64_T, MPI_SUM, MPI_COMM_WORLD);
		for (int i = 0; i < n; i++) {
			int64_t want = (int64_t)i * ranks * (ranks + 1) / 2 + (int64_t)(seed & 0xffff) * ranks;
			if (out[i] != want)
				fail("allreduce of %d: number %d is %lld, not %lld", n, i, (long long)out[i],
					(long long)want);
		}
		free(in);
		free(out);
	}
	done("allreduce");
}

// Put and Get between fences. Each rank has a piece of n octets for every other in its window.
static void fences(void)
{
	for (int i = 1; i < LENGTHS - 2; i++) {
		size_t n = lengths[i];
		unsigned char *window, *out = malloc(n * ranks), *in = malloc(n * ranks);
		MPI_Win win;
		MPI_Win_allocate(n * ranks, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &window, &win);
		memset(window, 0, n * ranks);
		MPI_Win_fence(0, win);
		for (int peer = 0; peer < ranks; peer++) {
			fill(out + n * peer, n, key(rank, peer, i));
			MPI_Put(out + n * peer, n, MPI_BYTE, peer, n * rank, n, MPI_BYTE, win);
		}
		MPI_Win_fence(0, win);
		for (int peer = 0; peer < ranks; peer++)
			compare("put, fence", window + n * peer, n, key(peer, rank, i));
		MPI_Win_fence(0, win);
		for (int peer = 0; peer < ranks; peer++) // what my neighbour put there
			MPI_Get(in + n * peer, n, MPI_BYTE, peer, n * ((rank + 1) % ranks), n, MPI_BYTE, win);
		MPI_Win_fence(0, win);
		for (int peer = 0; peer < ranks; peer++)
			compare("get, fence", in + n * peer, n, key((rank + 1) % ranks, peer, i));
		MPI_Win_free(&win);
		free(in);
		free(out);
	}
	done("put and get, fence");
}

// Put and flush, then a message to the target that it may look: a flush means that it is there.
static void flushes(void)
{
	enum { MANY = 20, N = 5000 };
	unsigned char *window = malloc(N * ranks), out[N], in[N];
	MPI_Win win;
	MPI_Win_create(window, N * ranks, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &win);
	MPI_Win_lock_all(0, win);
	for (int i = 0; i < MANY * rounds; i++) {
		int to = (rank + 1 + i) % ranks, from = ((rank - 1 - i) % ranks + ranks) % ranks;
		fill(out, N, key(rank, to, i));
		MPI_Put(out, N, MPI_BYTE, to, N * rank, N, MPI_BYTE, win);
		MPI_Win_flush(to, win);
		MPI_Sendrecv(&i, 1, MPI_INT, to, 5, &(int){0}, 1, MPI_INT, from, 5, MPI_COMM_WORLD,
			MPI_STATUS_IGNORE);
		MPI_Win_sync(win);
		compare("put, flush", window + N * from, N, key(from, rank, i));
		MPI_Get(in, N, MPI_BYTE, to, N * rank, N, MPI_BYTE, win);
		MPI_Win_flush(to, win);
		compare("get, flush", in, N, key(rank, to, i));
		MPI_Barrier(MPI_COMM_WORLD);
	}
	MPI_Win_unlock_all(win);
	MPI_Win_free(&win);
	free(window);
	done("put and get, flush");
}

// Atomics: all ranks count in all windows; nothing may be lost, and fetched numbers are all
// different.
static void atomics(void)
{
	enum { MANY = 100, CELLS = 4 };
	int64_t *window;
	MPI_Win win;
	MPI_Win_allocate(CELLS * 8, 8, MPI_INFO_NULL, MPI_COMM_WORLD, &window, &win);
	memset(window, 0, CELLS * 8);
	MPI_Barrier(MPI_COMM_WORLD);
	int total = MANY * rounds;
	char *mine = calloc(total * ranks, 1), *all = malloc(total * ranks);
	const int64_t one = 1;
	for (int i = 0; i < total; i++) {
		int64_t old = -1, zero = 0, was;
		MPI_Win_lock(MPI_LOCK_SHARED, 0, 0, win);
		MPI_Fetch_and_op(&one, &old, MPI_INT64_T, 0, 0, MPI_SUM, win);
		MPI_Win_unlock(0, win);
		if (old < 0 || old >= total * ranks || mine[old]++)
			fail("fetched %lld", (long long)old);
		int to = (rank + i) % ranks;
		MPI_Win_lock(MPI_LOCK_SHARED, to, 0, win);
		MPI_Accumulate(&one, 1, MPI_INT64_T, to, 1, 1, MPI_INT64_T, MPI_SUM, win);
		MPI_Win_unlock(to, win);
		MPI_Win_lock(MPI_LOCK_SHARED, to, 0, win);
		do { // a spin lock in cell 2 guards cell 3
			MPI_Compare_and_swap(&one, &zero, &was, MPI_INT64_T, to, 2, win);
			MPI_Win_flush(to, win);
			// UCX answers other ranks' atomics only in calls that wait, which those with the rank itself
			// do not: over TCP, too, it would spin for ever.
			MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &(int){0}, MPI_STATUS_IGNORE);
		} while (was != 0);
		int64_t n;
		MPI_Get(&n, 1, MPI_INT64_T, to, 3, 1, MPI_INT64_T, win);
		MPI_Win_flush(to, win);
		n++;
		MPI_Put(&n, 1, MPI_INT64_T, to, 3, 1, MPI_INT64_T, win);
		MPI_Win_flush(to, win);
		MPI_Fetch_and_op(&zero, &was, MPI_INT64_T, to, 2, MPI_REPLACE, win);
		MPI_Win_unlock(to, win);
		if (was != 1)
			fail("the lock was %lld", (long long)was);
	}
	MPI_Reduce(mine, all, total * ranks, MPI_CHAR, MPI_SUM, 0, MPI_COMM_WORLD);
	for (int i = 0; rank == 0 && i < total * ranks; i++)
		if (all[i] != 1)
			fail("%d was fetched %d times", i, all[i]);
	MPI_Barrier(MPI_COMM_WORLD);
	MPI_Win_lock(MPI_LOCK_EXCLUSIVE, rank, 0, win);
	int64_t sums[3] = {window[1], window[3], window[2]}, got[3];
	if (rank == 0 && window[0] != total * ranks)
		fail("counted %lld of %d", (long long)window[0], total * ranks);
	MPI_Win_unlock(rank, win);
	MPI_Reduce(sums, got, 3, MPI_INT64_T, MPI_SUM, 0, MPI_COMM_WORLD);
	if (rank == 0 && (got[0] != total * ranks || got[1] != total * ranks || got[2]))
		fail("accumulated %lld, guarded %lld, locks %lld of %d", (long long)got[0], (long long)got[1],
			(long long)got[2], total * ranks);
	MPI_Win_free(&win);
	free(mine);
	free(all);
	done("accumulate, fetch_and_op, compare_and_swap");
}

// Accumulates of many numbers between post, start, complete and wait.
static void epochs(void)
{
	enum { N = 3000 };
	double *window, in[N], out[N];
	MPI_Win win;
	MPI_Group world, to, from;
	int next = (rank + 1) % ranks, previous = (rank - 1 + ranks) % ranks;
	MPI_Comm_group(MPI_COMM_WORLD, &world);
	MPI_Group_incl(world, 1, &next, &to);
	MPI_Group_incl(world, 1, &previous, &from);
	MPI_Win_allocate(sizeof in, sizeof *in, MPI_INFO_NULL, MPI_COMM_WORLD, &window, &win);
	for (int i = 0; i < N; i++)
		window[i] = i, out[i] = rank;
	MPI_Barrier(MPI_COMM_WORLD);
	for (int round = 1; round <= 3 * rounds; round++) {
		MPI_Win_post(from, 0, win);
		MPI_Win_start(to, 0, win);
		MPI_Accumulate(out, N, MPI_DOUBLE, next, 0, N, MPI_DOUBLE, MPI_SUM, win);
		MPI_Win_complete(win);
		MPI_Win_wait(win);
		for (int i = 0; i < N; i++)
			if (window[i] != i + round * previous)
				fail("round %d: accumulated %g at %d", round, window[i], i);
	}
	MPI_Win_free(&win);
	MPI_Group_free(&to);
	MPI_Group_free(&from);
	MPI_Group_free(&world);
	done("accumulate, post, start, complete, wait");
}

int main(int argc, char **argv)
{
	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &ranks);
	seed = argc > 1 ? strtoull(argv[1], NULL, 0) : 1;
	rounds = argc > 2 ? atoi(argv[2]) : 1;
	if (rank == 0)
		printf("%d ranks, seed %llu\n", ranks, (unsigned long long)seed);
	pingpong();
	flood();
	collective();
	fences();
	flushes();
	atomics();
	epochs();
	MPI_Finalize();
	if (rank == 0)
		printf("verified\n");
	return 0;
}
