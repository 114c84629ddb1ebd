/*
 * What a peer may do, by the access flags of a queue pair and of a region; ibv_advise_mr;
 * IBV_SEND_FENCE; the events COMM_EST and QP_LAST_WQE_REACHED. As RoCE, each at both ends.
 */
#include "party.h"

#include <sys/mman.h>

static struct ibv_send_wr reach(struct party *to, enum ibv_wr_opcode op, uint32_t rkey)
{
	struct ibv_send_wr wr = { .wr_id = 1, .opcode = op };

	if (op == IBV_WR_ATOMIC_FETCH_AND_ADD || op == IBV_WR_ATOMIC_CMP_AND_SWP) {
		wr.wr.atomic.remote_addr = (uintptr_t)to->memory + 512;
		wr.wr.atomic.rkey = rkey;
		wr.wr.atomic.compare_add = 1;
	} else {
		wr.wr.rdma.remote_addr = (uintptr_t)to->memory + 512;
		wr.wr.rdma.rkey = rkey;
	}
	return wr;
}

static const struct {
	enum ibv_wr_opcode op;
	int needs;
} ops[] = {
	{ IBV_WR_RDMA_WRITE, IBV_ACCESS_REMOTE_WRITE },
	{ IBV_WR_RDMA_WRITE_WITH_IMM, IBV_ACCESS_REMOTE_WRITE },
	{ IBV_WR_RDMA_READ, IBV_ACCESS_REMOTE_READ },
	{ IBV_WR_ATOMIC_FETCH_AND_ADD, IBV_ACCESS_REMOTE_ATOMIC },
	{ IBV_WR_ATOMIC_CMP_AND_SWP, IBV_ACCESS_REMOTE_ATOMIC },
};

#define REMOTE (IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC)

static int permit(struct party *p, int access)
{
	struct ibv_qp_attr a = { .qp_access_flags = (unsigned int)access };

	return ibv_modify_qp(p->qp, &a, IBV_QP_ACCESS_FLAGS);
}

/*
 * a asks b for what it is refused: its request fails, and b hears why; if it asks meanwhile what a
 * does not answer, request 4, that is flushed.
 */
static void refused(struct party *a, struct party *b, struct ibv_send_wr wr, bool asks)
{
	CHECK(!ask(a, wr, 0, 8));
	CHECK(!ask(a, write_to(b, 2, b->mr->rkey, 0), 0, 8)); /* and what follows is flushed */
	expect(a, 1, IBV_WC_REM_ACCESS_ERR, 0);
	expect(a, 2, IBV_WC_WR_FLUSH_ERR, 0);
	expect_event(b->qp, IBV_EVENT_QP_ACCESS_ERR);
	if (wr.opcode == IBV_WR_RDMA_WRITE_WITH_IMM && !b->srq)
		expect(b, 9, IBV_WC_WR_FLUSH_ERR, 0);
	if (b->srq)
		expect_event(b->qp, IBV_EVENT_QP_LAST_WQE_REACHED);
	for (int i = 0; i < 16; i++)
		CHECK(b->memory[512 + i] == 'k');
	if (asks)
		expect(b, 4, IBV_WC_WR_FLUSH_ERR, 0);
	join_again(a, b);
}

static void done(struct party *a, struct party *b, struct ibv_send_wr wr)
{
	CHECK(!ask(a, wr, 0, 8));
	CHECK(next(a).status == IBV_WC_SUCCESS);
	if (wr.opcode == IBV_WR_RDMA_WRITE_WITH_IMM)
		expect(b, 9, IBV_WC_SUCCESS, IBV_WC_RECV_RDMA_WITH_IMM);
	memset(b->memory + 512, 'k', 16);
}

/* A right that the queue pair lacks, changed while it is in RTS; and one that the region lacks. */
static void rights(struct party *a, struct party *b)
{
	static const int local[] = { 0, IBV_ACCESS_RELAXED_ORDERING, IBV_ACCESS_ON_DEMAND,
				     IBV_ACCESS_HUGETLB };
	struct ibv_mr *mr;

	join_again(a, b);
	memset(b->memory + 512, 'k', 16);
	for (size_t i = 0; i < sizeof ops / sizeof *ops; i++) {
		struct ibv_send_wr wr = reach(b, ops[i].op, b->mr->rkey);
		bool immediate = wr.opcode == IBV_WR_RDMA_WRITE_WITH_IMM;

		CHECK(!permit(b, REMOTE & ~ops[i].needs));
		if (immediate)
			CHECK(!receive(b, 9, 0, 0));
		refused(a, b, wr, false);
		CHECK(!permit(b, ops[i].needs));
		if (immediate && !b->srq)
			CHECK(!receive(b, 9, 0, 0));
		done(a, b, wr);

		CHECK(mr = ibv_reg_mr(pd, b->memory, MEMORY,
				      IBV_ACCESS_LOCAL_WRITE | (ops[i].needs == IBV_ACCESS_REMOTE_READ ?
									IBV_ACCESS_REMOTE_WRITE :
									IBV_ACCESS_REMOTE_READ)));
		if (immediate)
			CHECK(!receive(b, 9, 0, 0));
		refused(a, b, reach(b, ops[i].op, mr->rkey), false);
		CHECK(!ibv_dereg_mr(mr));
		if (immediate && b->srq) { /* the buffer is there still */
			CHECK(!ask(a, reach(b, ops[i].op, b->mr->rkey), 0, 8));
			expect(a, 1, IBV_WC_SUCCESS, IBV_WC_RDMA_WRITE);
			expect(b, 9, IBV_WC_SUCCESS, IBV_WC_RECV_RDMA_WITH_IMM);
			memset(b->memory + 512, 'k', 16);
		}
		CHECK(mr = ibv_reg_mr(pd, b->memory, MEMORY,
				      IBV_ACCESS_LOCAL_WRITE | ops[i].needs | local[i % 4]));
		if (immediate)
			CHECK(!receive(b, 9, 0, 0));
		done(a, b, reach(b, ops[i].op, mr->rkey));
		CHECK(!ibv_dereg_mr(mr));
	}
}

/* b is told of what it refuses while a request of its own waits, which is flushed then. */
static void refused_meanwhile(struct party *a, struct party *b)
{
	join_again(a, b);
	memset(b->memory + 512, 'k', 16);
	CHECK(!ask(b, write_to(a, 3, a->mr->rkey, 0), 0, 8));
	CHECK(!ask(b, (struct ibv_send_wr){ .wr_id = 4, .opcode = IBV_WR_SEND }, 0, 8));
	expect(b, 3, IBV_WC_SUCCESS, IBV_WC_RDMA_WRITE); /* and a has no buffer for the other */
	refused(a, b, reach(b, IBV_WR_RDMA_WRITE, b->mr->rkey ^ 0x10000), true);
}

/* Rights that no region can have, and flags that ask for nothing here. */
static void flags(struct party *p)
{
	void *page = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct ibv_mr *mr;

	CHECK(page != MAP_FAILED);
	CHECK(!ibv_reg_mr(pd, p->memory, 8, IBV_ACCESS_REMOTE_WRITE) && errno == EINVAL);
	CHECK(!ibv_reg_mr(pd, p->memory, 8, IBV_ACCESS_REMOTE_ATOMIC) && errno == EINVAL);
	CHECK(!ibv_reg_mr(pd, p->memory, 8, 1 << 12) && errno == EINVAL);
	CHECK(!ibv_reg_mr(pd, page, 8, IBV_ACCESS_LOCAL_WRITE) && errno == EFAULT);
	CHECK(mr = ibv_reg_mr(pd, page, 8,
			      IBV_ACCESS_REMOTE_READ | IBV_ACCESS_RELAXED_ORDERING |
				      IBV_ACCESS_ON_DEMAND | IBV_ACCESS_HUGETLB | IBV_ACCESS_MW_BIND));
	CHECK(!ibv_dereg_mr(mr) && !munmap(page, 4096));
	CHECK(permit(p, 1 << 12) == EINVAL);
}

static bool resident(const char *page)
{
	unsigned char in = 0;

	CHECK(!mincore((void *)(uintptr_t)page, 4096, &in));
	return in & 1;
}

/* Regions are paged on demand, and pages are fetched where that is asked for. */
static void advice(void)
{
	char *memory = mmap(NULL, 16 * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1,
			    0);
	struct ibv_device_attr_ex device;
	struct ibv_mr *mr, *readable;
	struct ibv_sge list[2];

	CHECK(memory != MAP_FAILED && !ibv_query_device_ex(context, NULL, &device));
	CHECK(device.odp_caps.general_caps == IBV_ODP_SUPPORT);
	CHECK(device.odp_caps.per_transport_caps.rc_odp_caps == 0x3f);
	CHECK(mr = ibv_reg_mr_iova(pd, memory, 16 * 4096, 0x10000,
				   IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_ON_DEMAND));
	CHECK(readable = ibv_reg_mr(pd, memory, 16 * 4096, IBV_ACCESS_ON_DEMAND));
	CHECK(!madvise(memory, 16 * 4096, MADV_DONTNEED)); /* looked at when they were registered */
	CHECK(!resident(memory + 4096) && !resident(memory + 5 * 4096));
	list[0] = (struct ibv_sge){ 0x10000 + 4096 + 7, 8, mr->lkey };
	list[1] = (struct ibv_sge){ 0x10000 + 5 * 4096, 4097, mr->lkey };
#define ADVISE(advice, flags, n) ibv_advise_mr(pd, IBV_ADVISE_MR_ADVICE_##advice, flags, list, n)
	CHECK(!ADVISE(PREFETCH_NO_FAULT, IBV_ADVISE_MR_FLAG_FLUSH, 2));
	CHECK(!resident(memory + 4096));
	CHECK(!ADVISE(PREFETCH_WRITE, IBV_ADVISE_MR_FLAG_FLUSH, 2));
	CHECK(resident(memory + 4096) && resident(memory + 5 * 4096) && resident(memory + 6 * 4096));
	CHECK(!resident(memory + 2 * 4096) && !resident(memory + 7 * 4096));
	list[0].lkey = readable->lkey;
	CHECK(ADVISE(PREFETCH, 0, 1) == EFAULT); /* not its address */
	list[0].addr = (uintptr_t)memory + 8 * 4096;
	CHECK(!ADVISE(PREFETCH, 0, 1));
	CHECK(ADVISE(PREFETCH_WRITE, 0, 1) == EFAULT); /* not its right */
	list[0].length = 8 * 4096 + 1;
	CHECK(ADVISE(PREFETCH, 0, 1) == EFAULT); /* beyond it */
	CHECK(ADVISE(PREFETCH, 2, 1) == EINVAL && ADVISE(PREFETCH, 0, 0) == EINVAL);
	CHECK(ibv_advise_mr(pd, 77, 0, list, 1) == EOPNOTSUPP);
#undef ADVISE
	CHECK(!ibv_dereg_mr(mr) && !ibv_dereg_mr(readable) && !munmap(memory, 16 * 4096));
}

/* A Send with a fence after a Read carries what the Read has brought. */
static void fences(struct party *a, struct party *b)
{
	join_again(a, b);
	for (int i = 1; i <= 100; i++) {
		struct ibv_send_wr wr = reach(b, IBV_WR_RDMA_READ, b->mr->rkey);

		memset(a->memory, 0, 8192);
		memset(b->memory, i, 8192);
		wr.wr.rdma.remote_addr = (uintptr_t)b->memory;
		CHECK(!receive(b, 3, 16384, 8192));
		CHECK(!ask(a, wr, 0, 8192));
		wr = (struct ibv_send_wr){ .wr_id = 2, .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_FENCE };
		CHECK(!ask(a, wr, 0, 8192));
		expect(a, 1, IBV_WC_SUCCESS, IBV_WC_RDMA_READ);
		expect(a, 2, IBV_WC_SUCCESS, IBV_WC_SEND);
		expect(b, 3, IBV_WC_SUCCESS, IBV_WC_RECV);
		CHECK(!memcmp(b->memory, b->memory + 16384, 8192));
	}
}

/* The last buffer that it has taken from a shared queue has completed: told once, in each life. */
static void last_buffer(struct party *a, struct party *b)
{
	struct ibv_qp_attr error = { .qp_state = IBV_QPS_ERR };

	for (int i = 0; i < 3; i++) {
		join_again(a, b);
		CHECK(!receive(b, 4, 0, 64) && !receive(b, 5, 0, 64));
		CHECK(!ask(a, (struct ibv_send_wr){ .wr_id = 6, .opcode = IBV_WR_SEND }, 0, 8));
		expect(a, 6, IBV_WC_SUCCESS, IBV_WC_SEND);
		if (i < 2)
			expect(b, 4, IBV_WC_SUCCESS, IBV_WC_RECV);
		CHECK(!ibv_modify_qp(b->qp, &error, IBV_QP_STATE));
		expect_event(b->qp, IBV_EVENT_QP_LAST_WQE_REACHED);
		if (i == 2) /* not polled before */
			expect(b, 4, IBV_WC_SUCCESS, IBV_WC_RECV);
		CHECK(!ibv_modify_qp(b->qp, &error, IBV_QP_STATE));
		expect_none(b); /* the other buffer is the queue's */
		join_again(a, b);
		CHECK(!ask(a, (struct ibv_send_wr){ .wr_id = 6, .opcode = IBV_WR_SEND }, 0, 8));
		expect(a, 6, IBV_WC_SUCCESS, IBV_WC_SEND);
		expect(b, 5, IBV_WC_SUCCESS, IBV_WC_RECV);
	}
}

/* What comes before RTS is told of once, whichever it is. */
static void established(struct party *a, struct party *b)
{
	struct ibv_qp_attr reset = { .qp_state = IBV_QPS_RESET };

	for (int i = 0; i < 3; i++) {
		CHECK(!ibv_modify_qp(a->qp, &reset, IBV_QP_STATE));
		CHECK(!ibv_modify_qp(b->qp, &reset, IBV_QP_STATE));
		begin_way(b, a->qp->qp_num);
		begin_way(a, b->qp->qp_num);
		ready(a);
		CHECK(!receive(b, 7, 0, 64));
		if (i)
			CHECK(!ask(a, write_to(b, 8, b->mr->rkey, 0), 0, 8));
		if (i < 2)
			CHECK(!ask(a, (struct ibv_send_wr){ .wr_id = 8, .opcode = IBV_WR_SEND }, 0, 8));
		expect_event(b->qp, IBV_EVENT_COMM_EST);
		expect(a, 8, IBV_WC_SUCCESS, i ? IBV_WC_RDMA_WRITE : IBV_WC_SEND);
		if (i == 1)
			expect(a, 8, IBV_WC_SUCCESS, IBV_WC_SEND);
		ready(b);
		if (i == 2) {
			CHECK(!ask(a, (struct ibv_send_wr){ .wr_id = 8, .opcode = IBV_WR_SEND }, 0, 8));
			expect(a, 8, IBV_WC_SUCCESS, IBV_WC_SEND);
		}
		expect(b, 7, IBV_WC_SUCCESS, IBV_WC_RECV);
	}
}

int main(void)
{
	begin();
	for (int with_srq = 0; with_srq < 2; with_srq++) {
		struct party a = make(false), b = make(with_srq);

		join(&a, &b);
		flags(&a);
		advice();
		established(&a, &b);
		rights(&a, &b);
		refused_meanwhile(&a, &b);
		fences(&a, &b);
		if (with_srq) {
			last_buffer(&a, &b);
		} else {
			established(&b, &a);
			rights(&b, &a);
			refused_meanwhile(&b, &a);
			fences(&b, &a);
		}
		destroy(&a);
		destroy(&b);
	}
	puts("all well");
	return 0;
}
