// What OpenSHMEM programs do, with every octet and every number compared by every PE: puts and gets
// of any length, strided and unfinished ones, flags after data, atomics, locks, collectives.
// shmem [SEED [ROUNDS]]; PE 0 prints one line for each part, and "verified" before shmem_finalize.
// The first octet that is wrong ends all PEs.
#include <shmem.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int pe, pes, rounds;
static uint64_t seed;

static void fail(const char *format, ...)
{
	va_list args;
	va_start(args, format);
	fprintf(stderr, "PE %d, seed %llu: ", pe, (unsigned long long)seed);
	vfprintf(stderr, format, args);
	fputc('\n', stderr);
	va_end(args);
	shmem_global_exit(1);
}

// draw is a number that all PEs draw alike: splitmix64.
static uint64_t draw(uint64_t *state)
{
	uint64_t z = *state += 0x9e3779b97f4a7c15;
	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
	z = (z ^ z >> 27) * 0x94d049bb133111eb;
	return z ^ z >> 31;
}

// Octets are known by their key: from whom, to whom, which.
static uint64_t key(int from, int to, int which)
{
	return seed ^ (uint64_t)from << 40 ^ (uint64_t)to << 20 ^ (uint64_t)which << 50;
}

static void fill(unsigned char *b, size_t n, uint64_t state)
{
	for (size_t i = 0; i < n; i += 8) {
		uint64_t v = draw(&state);
		memcpy(b + i, &v, n - i < 8 ? n - i : 8);
	}
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

static void expect(const char *what, long long got, long long want)
{
	if (got != want)
		fail("%s: %lld, not %lld", what, got, want);
}

static void done(const char *what)
{
	shmem_barrier_all();
	if (pe == 0) {
		printf("%s\n", what);
		fflush(stdout);
	}
}

// Open MPI's shmem_calloc clears memory after its barrier, when another PE may have put something.
static void *symmetric(size_t n)
{
	void *b = shmem_calloc(n, 1);
	if (!b)
		fail("no symmetric memory of %zu octets", n);
	shmem_barrier_all();
	return b;
}

// Lengths about which a library changes its way: short, in several packets, by Read or Write.
static const size_t lengths[] = {1, 7, 64, 1000, 4096, 8191, 65536, 262147, 1 << 20};
enum { LENGTHS = sizeof lengths / sizeof *lengths };

// Each PE has a piece of n octets from every PE, itself too. After a barrier all are there.
static void puts_and_gets(void)
{
	for (int i = 0; i < LENGTHS; i++) {
		size_t n = lengths[i];
		unsigned char *there = symmetric(n * pes);
		unsigned char *out = malloc(n * pes), *in = malloc(n * pes);
		for (int to = 0; to < pes; to++) {
			fill(out + n * to, n, key(pe, to, i));
			if (i % 2)
				shmem_putmem(there + n * pe, out + n * to, n, to);
			else
				shmem_putmem_nbi(there + n * pe, out + n * to, n, to);
		}
		shmem_barrier_all();
		for (int from = 0; from < pes; from++)
			compare("put", there + n * from, n, key(from, pe, i));
		for (int at = 0; at < pes; at++) // what the next PE has put there
			if (i % 2)
				shmem_getmem(in + n * at, there + n * ((pe + 1) % pes), n, at);
			else
				shmem_getmem_nbi(in + n * at, there + n * ((pe + 1) % pes), n, at);
		shmem_quiet();
		for (int at = 0; at < pes; at++)
			compare("get", in + n * at, n, key((pe + 1) % pes, at, i));
		shmem_barrier_all();
		shmem_free(there);
		free(out);
		free(in);
	}
	done("put and get");
}

// Single numbers and strided ones of both widths.
static void numbers(void)
{
	enum { N = 100 };
	int *narrow = symmetric(3 * N * sizeof *narrow), from[2 * N], got[N];
	long *wide = symmetric(pes * sizeof *wide);
	int next = (pe + 1) % pes, previous = (pe - 1 + pes) % pes;
	for (int to = 0; to < pes; to++)
		shmem_long_p(&wide[pe], 1000 * pe + to, to);
	for (int i = 0; i < 2 * N; i++)
		from[i] = 7 * i + pe;
	shmem_int_iput(narrow, from, 3, 2, N, next);
	shmem_barrier_all();
	for (int i = 0; i < pes; i++) {
		expect("p", wide[i], 1000 * i + pe);
		expect("g", shmem_long_g(&wide[pe], i), 1000 * pe + i);
	}
	for (int i = 0; i < 3 * N; i++)
		expect("iput", narrow[i], i % 3 ? 0 : 14 * (i / 3) + previous);
	shmem_int_iget(got, narrow, 1, 3, N, next);
	for (int i = 0; i < N; i++)
		expect("iget", got[i], 14 * i + pe);
	shmem_barrier_all();
	shmem_free(narrow);
	shmem_free(wide);
	done("p, g, iput, iget");
}

// A ring: data, a fence, a flag. Who sees the flag sees the data; so does who is sent on.
static void flags(void)
{
	enum { N = 5000 };
	unsigned char *there = symmetric(N), out[N];
	long *flag = symmetric(sizeof *flag), *taken = symmetric(sizeof *taken);
	int next = (pe + 1) % pes, previous = (pe - 1 + pes) % pes;
	for (int i = 1; i <= 50 * rounds; i++) {
		fill(out, N, key(pe, next, i));
		shmem_putmem(there, out, N, next);
		shmem_fence();
		shmem_long_p(flag, i, next);
		shmem_long_wait_until(flag, SHMEM_CMP_GE, i);
		compare("after a flag", there, N, key(previous, pe, i));
		shmem_long_p(taken, i, previous);
		shmem_long_wait_until(taken, SHMEM_CMP_GE, i);
	}
	shmem_barrier_all();
	shmem_free(there);
	shmem_free(flag);
	shmem_free(taken);
	done("put, fence, flag");
}

// All PEs count at all PEs; nothing is lost, and what they fetched is all different.
static void atomics(void)
{
	int total = 100 * rounds;
	long *count = symmetric(sizeof *count), *sum = symmetric(sizeof *sum);
	int *narrow = symmetric(sizeof *narrow);
	unsigned long *bits = symmetric(sizeof *bits), *swapped = symmetric(sizeof *swapped);
	long *seen = symmetric((size_t)total * pes * sizeof *seen);
	*swapped = 1ull << pe;
	shmem_barrier_all();
	uint64_t held = 0;
	for (int i = 0; i < total; i++) {
		int to = (pe + i) % pes;
		int64_t old = shmem_long_atomic_fetch_inc(count, 0);
		if (old < 0 || old >= (int64_t)total * pes)
			fail("fetched %lld", (long long)old);
		shmem_long_atomic_inc(&seen[old], 0);
		shmem_long_atomic_add(sum, i, to);
		shmem_int_atomic_add(narrow, 3, to);
		shmem_ulong_atomic_or(bits, 1ull << pe, to);
		held = shmem_ulong_atomic_swap(swapped, held, to);
	}
	shmem_barrier_all();
	int64_t sums = 0, narrows = 0;
	for (int i = 0; i < pes; i++) {
		sums += shmem_long_atomic_fetch(sum, i);
		narrows += shmem_int_atomic_fetch(narrow, i);
	}
	expect("add", sums, (int64_t)pes * total * (total - 1) / 2);
	expect("add of 32 bits", narrows, 3ll * total * pes);
	expect("or", (int64_t)*bits, (1ll << pes) - 1);
	for (int i = 0; pe == 0 && i < total * pes; i++)
		expect("times that a number was fetched", seen[i], 1);
	// Each bit that was swapped is in one place still: with a PE, or at one.
	shmem_ulong_p(bits, held, pe);
	shmem_barrier_all();
	uint64_t all = 0;
	for (int i = 0; i < pes; i++) {
		uint64_t have[2] = {shmem_ulong_g(bits, i), shmem_ulong_g(swapped, i)};
		for (int j = 0; j < 2; j++) {
			if (all & have[j])
				fail("swapped %llx twice", (unsigned long long)have[j]);
			all |= have[j];
		}
	}
	expect("swap", (int64_t)all, (1ll << pes) - 1);
	shmem_barrier_all();
	shmem_free(count);
	shmem_free(sum);
	shmem_free(narrow);
	shmem_free(bits);
	shmem_free(swapped);
	shmem_free(seen);
	done("atomics");
}

// Compare and swap, and OpenSHMEM's own locks, guard numbers that PEs read, change and write.
static void locks(void)
{
	int total = 20 * rounds;
	long *spin = symmetric(sizeof *spin), *guarded = symmetric(2 * sizeof *guarded);
	long *lock = symmetric(sizeof *lock);
	shmem_barrier_all();
	for (int i = 0; i < total; i++) {
		// As with MPI (mpi.c), calls with the PE itself answer no others: over TCP, too, PE 0 would
		// spin for ever.
		while (shmem_long_atomic_compare_swap(spin, 0, 1 + pe, 0) != 0)
			shmem_long_atomic_fetch(spin, (pe + 1) % pes);
		shmem_long_p(&guarded[0], shmem_long_g(&guarded[0], 0) + 1, 0);
		shmem_quiet();
		expect("unlock", shmem_long_atomic_compare_swap(spin, 1 + pe, 0, 0), 1 + pe);
		shmem_set_lock(lock);
		shmem_long_p(&guarded[1], shmem_long_g(&guarded[1], 0) + 1, 0);
		shmem_quiet();
		shmem_clear_lock(lock);
	}
	shmem_barrier_all();
	expect("guarded by compare_swap", shmem_long_g(&guarded[0], 0), (long long)total * pes);
	expect("guarded by a lock", shmem_long_g(&guarded[1], 0), (long long)total * pes);
	shmem_barrier_all();
	shmem_free(spin);
	shmem_free(guarded);
	shmem_free(lock);
	done("compare_swap, locks");
}

static long sync_[4][SHMEM_ALLTOALL_SYNC_SIZE + SHMEM_BCAST_SYNC_SIZE + SHMEM_COLLECT_SYNC_SIZE +
		SHMEM_REDUCE_SYNC_SIZE];

// Reductions, in turns with two work arrays, as the standard wants.
static void reductions(void)
{
	static long work64[2][4096 / 2 + SHMEM_REDUCE_MIN_WRKDATA_SIZE];
	const long base = (long)(seed & 0xffff);
	static int work32[4096 / 2 + SHMEM_REDUCE_MIN_WRKDATA_SIZE];
	static double workd[4096 / 2 + SHMEM_REDUCE_MIN_WRKDATA_SIZE];
	for (int n = 1; n <= 4096; n = n * 7 + 1) {
		long *in = symmetric(n * sizeof *in), *out = symmetric(n * sizeof *out);
		int *in32 = symmetric(n * sizeof *in32), *out32 = symmetric(n * sizeof *out32);
		double *ind = symmetric(n * sizeof *ind), *outd = symmetric(n * sizeof *outd);
		for (int i = 0; i < n; i++) {
			in[i] = (long)i * (pe + 1) + base;
			in32[i] = (pe * 31 + i) % 97;
			ind[i] = (double)(i % 5 + pe + 1);
		}
		shmem_barrier_all();
		shmem_long_sum_to_all(out, in, n, 0, 0, pes, work64[0], sync_[0]);
		shmem_int_max_to_all(out32, in32, n, 0, 0, pes, work32, sync_[1]);
		shmem_double_prod_to_all(outd, ind, n, 0, 0, pes, workd, sync_[2]);
		for (int i = 0; i < n; i++) {
			int max = 0;
			double prod = 1;
			for (int p = 0; p < pes; p++) {
				max = (p * 31 + i) % 97 > max ? (p * 31 + i) % 97 : max;
				prod *= i % 5 + p + 1;
			}
			expect("sum", out[i], (long)i * pes * (pes + 1) / 2 + base * pes);
			expect("max", out32[i], max);
			if (outd[i] != prod)
				fail("product: %g, not %g", outd[i], prod);
		}
		shmem_long_xor_to_all(out, in, n, 0, 0, pes, work64[1], sync_[3]);
		for (int i = 0; i < n; i++) {
			long want = 0;
			for (int p = 0; p < pes; p++)
				want ^= (long)i * (p + 1) + base;
			expect("xor", out[i], want);
		}
		shmem_barrier_all();
		shmem_free(in);
		shmem_free(out);
		shmem_free(in32);
		shmem_free(out32);
		shmem_free(ind);
		shmem_free(outd);
	}
	done("reductions");
}

static void collectives(void)
{
	for (int i = 0; i < LENGTHS - 2; i++) {
		size_t n = (lengths[i] + 7) / 8, bytes = n * 8, mine = n + (size_t)pe % 2;
		unsigned char *in = symmetric(bytes * pes + 8), *out = symmetric((bytes + 8) * pes);
		int root = i % pes;
		for (int to = 0; to < pes; to++)
			fill(in + bytes * to, bytes, key(pe, to, i));
		shmem_barrier_all();
		shmem_alltoall64(out, in, n, 0, 0, pes, sync_[0]);
		for (int from = 0; from < pes; from++)
			compare("all-to-all", out + bytes * from, bytes, key(from, pe, i));
		shmem_fcollect64(out, in, n, 0, 0, pes, sync_[1]);
		for (int from = 0; from < pes; from++)
			compare("fcollect", out + bytes * from, bytes, key(from, 0, i));
		shmem_broadcast64(out, in, n, root, 0, 0, pes, sync_[2]);
		if (pe != root) // whose own is not changed
			compare("broadcast", out, bytes, key(root, 0, i));
		shmem_barrier_all();
		if (mine > n)
			fill(in, bytes + 8, key(pe, 0, i));
		shmem_collect64(out, in, mine, 0, 0, pes, sync_[3]);
		size_t at = 0;
		for (int from = 0; from < pes; from++) {
			size_t all = bytes + (size_t)from % 2 * 8;
			compare("collect", out + at, all, key(from, 0, i));
			at += all;
		}
		shmem_barrier_all();
		shmem_free(in);
		shmem_free(out);
	}
	done("all-to-all, collect, broadcast");
}

int main(int argc, char **argv)
{
	shmem_init();
	pe = shmem_my_pe();
	pes = shmem_n_pes();
	seed = argc > 1 ? strtoull(argv[1], NULL, 0) : 1;
	rounds = argc > 2 ? atoi(argv[2]) : 1;
	for (size_t i = 0; i < sizeof sync_ / sizeof *sync_; i++)
		for (size_t j = 0; j < sizeof *sync_ / sizeof **sync_; j++)
			sync_[i][j] = SHMEM_SYNC_VALUE;
	if (pe == 0)
		printf("%d PEs, seed %llu\n", pes, (unsigned long long)seed);
	shmem_barrier_all();
	puts_and_gets();
	numbers();
	flags();
	atomics();
	locks();
	reductions();
	collectives();
	done("verified");
	shmem_finalize();
	return 0;
}
