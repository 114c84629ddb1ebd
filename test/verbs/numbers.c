/*
 * Queue pairs that are connected by number, as RoCE: two of one process, one with itself, two that
 * share a receive queue, late and early, once and again, without a peer that answers, and of many
 * processes.
 */
#include "walk.h"

#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/wait.h>
#include <time.h>

static struct ibv_context *context;
static struct ibv_pd *pd;
static int gid_index;
static union ibv_gid gid;

struct peer {
	struct ibv_cq *cq;
	struct ibv_srq *srq;
	struct ibv_qp *qp;
	char *memory;
	struct ibv_mr *mr;
};

/* One with its own receive queue, or with a shared one. */
static struct peer make_on(struct ibv_srq *srq)
{
	struct ibv_qp_init_attr attr = {
		.cap = { .max_send_wr = 16, .max_recv_wr = 16, .max_send_sge = 4, .max_recv_sge = 4,
			 .max_inline_data = 128 },
		.qp_type = IBV_QPT_RC,
	};
	struct peer p = { 0 };

	CHECK(p.cq = ibv_create_cq(context, 64, NULL, NULL, 0));
	attr.send_cq = attr.recv_cq = p.cq;
	attr.srq = p.srq = srq;
	CHECK(p.qp = ibv_create_qp(pd, &attr));
	CHECK(p.qp->qp_num > 1 && p.qp->qp_num < 1 << 24);
	CHECK(p.memory = aligned_alloc(4096, MEMORY));
	memset(p.memory, 0, MEMORY);
	CHECK(p.mr = ibv_reg_mr(pd, p.memory, MEMORY,
				IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ |
					IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC));
	return p;
}

static struct peer make(bool with_srq)
{
	struct ibv_srq_init_attr attr = { .attr = { .max_wr = 16, .max_sge = 2 } };
	struct ibv_srq *srq = NULL;

	if (with_srq)
		CHECK(srq = ibv_create_srq(pd, &attr));
	return make_on(srq);
}

static void destroy(struct peer *p)
{
	CHECK(!ibv_destroy_qp(p->qp));
	if (p->srq)
		CHECK(!ibv_destroy_srq(p->srq));
	CHECK(!ibv_destroy_cq(p->cq));
	CHECK(!ibv_dereg_mr(p->mr));
	free(p->memory);
}

#define INIT_MASK (IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS)
#define RTR_MASK                                                                              \
	(IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |       \
	 IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER)
#define RTS_MASK                                                                              \
	(IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN | \
	 IBV_QP_MAX_QP_RD_ATOMIC)

static int to_init(struct peer *p)
{
	struct ibv_qp_attr a = { .qp_state = IBV_QPS_INIT, .port_num = 1,
				 .qp_access_flags = IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE |
						    IBV_ACCESS_REMOTE_ATOMIC };

	return ibv_modify_qp(p->qp, &a, INIT_MASK);
}

static struct ibv_qp_attr rtr(uint32_t number)
{
	return (struct ibv_qp_attr){
		.qp_state = IBV_QPS_RTR,
		.path_mtu = IBV_MTU_2048,
		.dest_qp_num = number,
		.rq_psn = 0x123456,
		.max_dest_rd_atomic = 4,
		.min_rnr_timer = 12,
		.ah_attr = { .is_global = 1,
			     .port_num = 1,
			     .grh = { .dgid = gid, .sgid_index = (uint8_t)gid_index, .hop_limit = 64 } },
	};
}

static int to_rtr(struct peer *p, uint32_t number)
{
	struct ibv_qp_attr a = rtr(number);

	return ibv_modify_qp(p->qp, &a, RTR_MASK);
}

static struct ibv_qp_attr rts = { .qp_state = IBV_QPS_RTS, .timeout = 14, .retry_cnt = 7,
				  .rnr_retry = 7, .sq_psn = 0x654321, .max_rd_atomic = 4 };

static int to_rts(struct peer *p)
{
	return ibv_modify_qp(p->qp, &rts, RTS_MASK);
}

static int to(struct peer *p, enum ibv_qp_state state)
{
	struct ibv_qp_attr a = { .qp_state = state };

	return ibv_modify_qp(p->qp, &a, IBV_QP_STATE);
}

static enum ibv_qp_state state_of(struct peer *p)
{
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr a;

	CHECK(!ibv_query_qp(p->qp, &a, IBV_QP_STATE, &init));
	return a.qp_state;
}

static int receive(struct peer *p, uint64_t id)
{
	struct ibv_sge s = { (uintptr_t)p->memory, 64, p->mr->lkey };
	struct ibv_recv_wr wr = { .wr_id = id, .sg_list = &s, .num_sge = 1 }, *bad;

	return p->srq ? ibv_post_srq_recv(p->srq, &wr, &bad) : ibv_post_recv(p->qp, &wr, &bad);
}

static int send_one(struct peer *p, uint64_t id, enum ibv_wr_opcode op, struct peer *to)
{
	struct ibv_sge s = { (uintptr_t)p->memory + 512,
			     op == IBV_WR_ATOMIC_FETCH_AND_ADD ? 8 : 16, p->mr->lkey };
	struct ibv_send_wr wr = { .wr_id = id, .sg_list = &s, .num_sge = 1, .opcode = op,
				  .send_flags = IBV_SEND_SIGNALED }, *bad;

	if (op == IBV_WR_ATOMIC_FETCH_AND_ADD) {
		wr.wr.atomic.remote_addr = (uintptr_t)to->memory + 1024;
		wr.wr.atomic.rkey = to->mr->rkey;
		wr.wr.atomic.compare_add = 3;
	} else {
		wr.imm_data = htobe32(0x11223344);
		wr.wr.rdma.remote_addr = to ? (uintptr_t)to->memory + 1024 : 0;
		wr.wr.rdma.rkey = to ? to->mr->rkey : 0;
	}
	return ibv_post_send(p->qp, &wr, &bad);
}

static struct ibv_wc next(struct peer *p)
{
	struct ibv_wc wc;
	int n;

	while (!(n = ibv_poll_cq(p->cq, 1, &wc)))
		;
	CHECK(n == 1);
	CHECK(wc.qp_num == p->qp->qp_num);
	return wc;
}

static void expect(struct peer *p, uint64_t id, enum ibv_wc_status status)
{
	struct ibv_wc wc = next(p);

	if (wc.wr_id != id || wc.status != status) {
		fprintf(stderr, "wr_id %d, %s; expected wr_id %d, %s\n", (int)wc.wr_id,
			ibv_wc_status_str(wc.status), (int)id, ibv_wc_status_str(status));
		exit(1);
	}
}

static void expect_none(struct peer *p)
{
	struct ibv_wc wc;

	CHECK(ibv_poll_cq(p->cq, 1, &wc) == 0);
}

static void expect_event(struct peer *p, enum ibv_event_type type)
{
	struct ibv_async_event e;

	CHECK(!ibv_get_async_event(context, &e));
	if (e.event_type != type || e.element.qp != p->qp) {
		fprintf(stderr, "event %s\n", ibv_event_type_str(e.event_type));
		exit(1);
	}
	ibv_ack_async_event(&e);
}

/* Every operation, from a to b. */
static void converse(struct peer *a, struct peer *b)
{
	struct ibv_wc wc;

	CHECK(!receive(b, 1) && !receive(b, 2));
	CHECK(b->srq || !receive(b, 3)); /* one that stays */
	strcpy(a->memory + 512, "by number");
	CHECK(!send_one(a, 10, IBV_WR_SEND, b));
	CHECK(!send_one(a, 11, IBV_WR_RDMA_WRITE, b));
	CHECK(!send_one(a, 12, IBV_WR_RDMA_WRITE_WITH_IMM, b));
	if (a != b) {
		for (uint64_t id = 10; id <= 12; id++)
			expect(a, id, IBV_WC_SUCCESS);
		expect(b, 1, IBV_WC_SUCCESS);
		wc = next(b);
	} else {
		for (int i = 0; i < 5; i++) { /* in the order in which they happen */
			wc = next(a);
			CHECK(wc.status == IBV_WC_SUCCESS);
			if (wc.wr_id == 2)
				CHECK(wc.opcode == IBV_WC_RECV_RDMA_WITH_IMM && wc.imm_data == htobe32(0x11223344));
		}
		wc.wr_id = 2, wc.opcode = IBV_WC_RECV_RDMA_WITH_IMM, wc.imm_data = htobe32(0x11223344);
	}
	CHECK(wc.wr_id == 2 && wc.opcode == IBV_WC_RECV_RDMA_WITH_IMM &&
	      wc.imm_data == htobe32(0x11223344));
	CHECK(!strcmp(b->memory, "by number") && !strcmp(b->memory + 1024, "by number"));
	CHECK(!send_one(a, 13, IBV_WR_ATOMIC_FETCH_AND_ADD, b));
	expect(a, 13, IBV_WC_SUCCESS);
	CHECK(!memcmp(a->memory + 512, "by numbe", 8));
	CHECK(!send_one(a, 14, IBV_WR_RDMA_READ, b));
	expect(a, 14, IBV_WC_SUCCESS);
	CHECK(a->memory[512] == 'b' + 3 && !strcmp(a->memory + 513, "y number"));
}

static void connect_both(struct peer *a, struct peer *b)
{
	CHECK(!to_init(a) && !to_init(b));
	CHECK(!to_rtr(a, b->qp->qp_num) && !to_rtr(b, a->qp->qp_num));
	CHECK(!to_rts(a) && !to_rts(b));
}

/* Moves that may not be, and what is told back. */
static void moves(void)
{
	struct peer p = make(false);
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr a, back;

	CHECK(state_of(&p) == IBV_QPS_RESET);
	CHECK(receive(&p, 1) == EINVAL && send_one(&p, 1, IBV_WR_SEND, NULL) == EINVAL);
	CHECK(to_rtr(&p, 5) == EINVAL && to_rts(&p) == EINVAL && to(&p, IBV_QPS_INIT) == EINVAL);
	CHECK(!to_init(&p) && !to_init(&p) && state_of(&p) == IBV_QPS_INIT);
	CHECK(!receive(&p, 1) && send_one(&p, 1, IBV_WR_SEND, NULL) == EINVAL);
	for (int bit = 1; bit < 1 << 21; bit *= 2) /* each is needed, and no other is known */
		if (RTR_MASK & bit && bit != IBV_QP_STATE) {
			a = rtr(p.qp->qp_num);
			CHECK(ibv_modify_qp(p.qp, &a, RTR_MASK & ~bit) == EINVAL);
		}
	a = rtr(p.qp->qp_num);
	CHECK(ibv_modify_qp(p.qp, &a, RTR_MASK | IBV_QP_QKEY) == EINVAL);
	a.ah_attr.is_global = 0;
	CHECK(ibv_modify_qp(p.qp, &a, RTR_MASK) == EINVAL);
	a = rtr(p.qp->qp_num);
	a.ah_attr.grh.sgid_index = 63;
	CHECK(ibv_modify_qp(p.qp, &a, RTR_MASK) == EINVAL);
	a = rtr(p.qp->qp_num);
	memset(&a.ah_attr.grh.dgid, 0, sizeof gid);
	CHECK(ibv_modify_qp(p.qp, &a, RTR_MASK) == EINVAL);
	a = rtr(1 << 24);
	CHECK(ibv_modify_qp(p.qp, &a, RTR_MASK) == EINVAL);
	CHECK(state_of(&p) == IBV_QPS_INIT);
	CHECK(!to_rtr(&p, p.qp->qp_num) && state_of(&p) == IBV_QPS_RTR);
	CHECK(send_one(&p, 1, IBV_WR_SEND, NULL) == EINVAL && to_rtr(&p, 5) == EINVAL);
	a = rts;
	CHECK(ibv_modify_qp(p.qp, &a, RTS_MASK & ~IBV_QP_TIMEOUT) == EINVAL);
	a.cur_qp_state = IBV_QPS_RTS;
	CHECK(ibv_modify_qp(p.qp, &a, RTS_MASK | IBV_QP_CUR_STATE) == EINVAL);
	a.cur_qp_state = IBV_QPS_RTR;
	CHECK(!ibv_modify_qp(p.qp, &a, RTS_MASK | IBV_QP_CUR_STATE));
	CHECK(!ibv_query_qp(p.qp, &back, IBV_QP_STATE, &init));
	CHECK(back.qp_state == IBV_QPS_RTS && back.path_mtu == IBV_MTU_2048 &&
	      back.dest_qp_num == p.qp->qp_num && back.rq_psn == 0x123456 && back.sq_psn == 0x654321 &&
	      back.max_dest_rd_atomic == 4 && back.max_rd_atomic == 4 && back.min_rnr_timer == 12 &&
	      back.timeout == 14 && back.retry_cnt == 7 && back.rnr_retry == 7 && back.port_num == 1 &&
	      back.ah_attr.is_global && !memcmp(&back.ah_attr.grh.dgid, &gid, sizeof gid));
	destroy(&p);
}

/* RTR of one end after the other, either way, and lives one after the other. */
static void lives(void)
{
	struct peer p[2] = { make(false), make(true) };

	for (int first = 0; first < 4; first++) {
		struct peer *a = &p[first % 2], *b = &p[!(first % 2)];

		CHECK(!to_init(a) && !to_init(b));
		CHECK(!to_rtr(a, b->qp->qp_num) && !to_rts(a));
		if (first < 2)
			usleep(100000);
		CHECK(!to_rtr(b, a->qp->qp_num) && !to_rts(b));
		converse(a, b);
		converse(b, a);
		CHECK(!to(a, IBV_QPS_RESET) && state_of(a) == IBV_QPS_RESET);
		CHECK(!to(b, IBV_QPS_RESET));
		expect_none(a);
		expect_none(b);
	}
	destroy(&p[0]);
	destroy(&p[1]);
}

static void itself(void)
{
	struct peer p = make(false);

	CHECK(!to_init(&p) && !to_rtr(&p, p.qp->qp_num) && !to_rts(&p));
	converse(&p, &p);
	destroy(&p);
}

/* Reads from b into three ranges of a; the second's key is key. */
static void read_ranges(struct peer *a, struct peer *b, uint64_t id, unsigned int flags,
			uint32_t key)
{
	struct ibv_sge s[3] = { { (uintptr_t)a->memory + 2048, 1000, a->mr->lkey },
				{ (uintptr_t)a->memory + 100, 1, key },
				{ (uintptr_t)a->memory + 512, 23, a->mr->lkey } };
	struct ibv_send_wr wr = { .wr_id = id, .sg_list = s, .num_sge = 3,
				  .opcode = IBV_WR_RDMA_READ, .send_flags = flags,
				  .wr.rdma = { (uintptr_t)b->memory + 1024, b->mr->rkey } }, *bad;

	CHECK(!ibv_post_send(a->qp, &wr, &bad));
}

/* A Read into several ranges completes once, when all are there, or with the first error. */
static void ranges(void)
{
	struct peer a = make(false), b = make(false);
	struct ibv_device_attr device;
	struct ibv_wc wc;

	CHECK(!ibv_query_device(context, &device) && device.max_sge_rd == device.max_sge);
	connect_both(&a, &b);
	for (int i = 0; i < 1024; i++)
		b.memory[1024 + i] = (char)(i % 251);
	for (int round = 0; round < 100; round++) {
		memset(a.memory, 0, MEMORY);
		read_ranges(&a, &b, 1, round % 2 ? IBV_SEND_SIGNALED : 0, a.mr->lkey);
		CHECK(!send_one(&a, 2, IBV_WR_RDMA_WRITE, &a));
		if (round % 2) {
			wc = next(&a);
			CHECK(wc.wr_id == 1 && wc.status == IBV_WC_SUCCESS &&
			      wc.opcode == IBV_WC_RDMA_READ && wc.byte_len == 1024);
		}
		expect(&a, 2, IBV_WC_SUCCESS);
		CHECK(!memcmp(a.memory + 2048, b.memory + 1024, 1000));
		CHECK(a.memory[100] == b.memory[2024] && !a.memory[101]);
		CHECK(!memcmp(a.memory + 512, b.memory + 2025, 23) && !a.memory[535]);
	}
	for (int i = 0; i < 2; i++) { /* whether it asks for a completion or not */
		read_ranges(&a, &b, 3, i ? IBV_SEND_SIGNALED : 0, a.mr->lkey ^ 0x10000);
		CHECK(!send_one(&a, 4, IBV_WR_RDMA_WRITE, &a));
		expect(&a, 3, IBV_WC_LOC_PROT_ERR);
		expect(&a, 4, IBV_WC_WR_FLUSH_ERR);
		CHECK(!to(&a, IBV_QPS_RESET) && !to(&b, IBV_QPS_RESET));
		expect_none(&a);
		connect_both(&a, &b);
	}
	destroy(&a);
	destroy(&b);
}

static double seconds(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec + 1e-9 * now.tv_nsec;
}

/* The peer's end flushes no receive; the next request fails in time, and all that follows. */
static void peer_ends(bool with_srq)
{
	struct peer a = make(with_srq), b = make(false);
	double before;

	connect_both(&a, &b);
	converse(&b, &a);
	destroy(&b);
	usleep(100000);
	expect_none(&a);
	CHECK(state_of(&a) == IBV_QPS_RTS);
	CHECK(!receive(&a, 7));
	before = seconds();
	CHECK(!send_one(&a, 20, IBV_WR_SEND, NULL));
	expect(&a, 20, IBV_WC_RETRY_EXC_ERR);
	CHECK(seconds() - before > 1);
	if (with_srq) {
		expect_event(&a, IBV_EVENT_QP_LAST_WQE_REACHED);
	} else {
		expect(&a, 3, IBV_WC_WR_FLUSH_ERR);
		expect(&a, 7, IBV_WC_WR_FLUSH_ERR);
	}
	CHECK(state_of(&a) == IBV_QPS_ERR);
	CHECK(!send_one(&a, 21, IBV_WR_SEND, NULL));
	expect(&a, 21, IBV_WC_WR_FLUSH_ERR);
	if (!with_srq) {
		CHECK(!receive(&a, 8));
		expect(&a, 8, IBV_WC_WR_FLUSH_ERR);
	}
	CHECK(!to(&a, IBV_QPS_RESET));
	expect_none(&a);
	destroy(&a);
}

/*
 * What the peer has left unanswered, and what is posted then, waits as if it were repeated, and is
 * no error where this end leaves meanwhile: ERR flushes it at once, RESET forgets it.
 */
static void both_end(void)
{
	for (int i = 0; i < 8; i++) {
		struct peer a = make(false), b = make(false), c;

		if (i & 1) { /* whichever of them has connected */
			c = a;
			a = b;
			b = c;
		}
		connect_both(&a, &b);
		CHECK(!receive(&a, 3));
		CHECK(!send_one(&a, 1, IBV_WR_RDMA_WRITE, &b) && !send_one(&a, 2, IBV_WR_SEND, NULL));
		expect(&a, 1, IBV_WC_SUCCESS); /* and b has no buffer for the other */
		if (i & 2)
			CHECK(!to(&b, IBV_QPS_ERR));
		destroy(&b);
		usleep(100000);
		CHECK(!send_one(&a, 4, IBV_WR_SEND, NULL));
		expect_none(&a);
		CHECK(state_of(&a) == IBV_QPS_RTS);
		if (i & 4) {
			CHECK(!to(&a, IBV_QPS_ERR));
			expect(&a, 2, IBV_WC_WR_FLUSH_ERR);
			expect(&a, 4, IBV_WC_WR_FLUSH_ERR);
			expect(&a, 3, IBV_WC_WR_FLUSH_ERR);
		}
		if (i < 6) {
			CHECK(!to(&a, IBV_QPS_RESET));
			expect_none(&a);
			c = make(false);
			connect_both(&a, &c);
			converse(&a, &c);
			destroy(&c);
		}
		destroy(&a);
	}
}

/* Time in which the process is stopped is not the peer's: that may have been stopped, too. */
static void stopped(void)
{
	struct peer a = make(false), b = make(false);
	pid_t self = getpid(), waker;

	CHECK(!to_init(&a) && !to_init(&b) && !receive(&b, 1));
	CHECK(!to_rtr(&a, b.qp->qp_num) && !to_rts(&a));
	CHECK(!send_one(&a, 80, IBV_WR_SEND, NULL));
	waker = fork();
	if (!waker) {
		kill(self, SIGSTOP);
		sleep(3);
		kill(self, SIGCONT);
		_exit(0);
	}
	CHECK(waitpid(waker, NULL, 0) == waker);
	CHECK(!to_rtr(&b, a.qp->qp_num) && !to_rts(&b));
	expect(&a, 80, IBV_WC_SUCCESS);
	expect(&b, 1, IBV_WC_SUCCESS);
	destroy(&a);
	destroy(&b);
}

/* Whichever of a and b has the next completion, which is of receive buffer id. */
static struct peer *received(struct peer *a, struct peer *b, uint64_t id)
{
	struct ibv_wc wc;
	struct peer *p = a;
	int n;

	while (!(n = ibv_poll_cq(p->cq, 1, &wc)))
		p = p == a ? b : a;
	CHECK(n == 1 && wc.qp_num == p->qp->qp_num);
	CHECK(wc.wr_id == id && wc.status == IBV_WC_SUCCESS && wc.opcode == IBV_WC_RECV);
	return p;
}

/* Two queue pairs of one shared queue: buffers that are there, that are not, that come late. */
static void shared(void)
{
	struct peer a = make(true), b = make_on(a.srq), c = make(false), d = make(false), *first;

	connect_both(&a, &c);
	connect_both(&b, &d);
	CHECK(!receive(&a, 1));
	CHECK(!send_one(&d, 40, IBV_WR_SEND, NULL));
	expect(&d, 40, IBV_WC_SUCCESS);
	expect(&b, 1, IBV_WC_SUCCESS);

	CHECK(!send_one(&c, 41, IBV_WR_SEND, NULL));
	CHECK(!send_one(&d, 42, IBV_WR_SEND, NULL) && !send_one(&d, 43, IBV_WR_RDMA_WRITE, &b));
	CHECK(!send_one(&a, 44, IBV_WR_RDMA_READ, &c) && !send_one(&b, 45, IBV_WR_RDMA_READ, &d));
	expect(&a, 44, IBV_WC_SUCCESS); /* by then what c has sent is there */
	expect(&b, 45, IBV_WC_SUCCESS);
	expect_none(&c);
	expect_none(&d);
	CHECK(!receive(&a, 2));
	first = received(&a, &b, 2);
	expect_none(first == &a ? &b : &a);
	CHECK(!receive(&a, 3));
	expect(first == &a ? &b : &a, 3, IBV_WC_SUCCESS);
	expect(&c, 41, IBV_WC_SUCCESS);
	expect(&d, 42, IBV_WC_SUCCESS);
	expect(&d, 43, IBV_WC_SUCCESS);

	CHECK(!to(&c, IBV_QPS_RESET) && !to(&a, IBV_QPS_RESET)); /* and none for ever */
	rts.rnr_retry = 1;
	connect_both(&a, &c);
	rts.rnr_retry = 7;
	CHECK(!send_one(&c, 46, IBV_WR_SEND, NULL) && !send_one(&c, 47, IBV_WR_SEND, NULL));
	expect(&c, 46, IBV_WC_RNR_RETRY_EXC_ERR);
	expect(&c, 47, IBV_WC_WR_FLUSH_ERR);
	CHECK(!receive(&b, 4)); /* the other goes on */
	CHECK(!send_one(&d, 48, IBV_WR_SEND, NULL));
	expect(&d, 48, IBV_WC_SUCCESS);
	expect(&b, 4, IBV_WC_SUCCESS);
	destroy(&c);
	destroy(&d);
	b.srq = NULL; /* a's */
	destroy(&b);
	destroy(&a);
}

/* Nobody answers: at a number that nobody has, or at one that is connected to another. */
static void unanswered(void)
{
	struct peer a = make(false), b = make(false), c = make(false);
	double before;

	connect_both(&b, &c);
	for (int i = 0; i < 2; i++) {
		CHECK(!to_init(&a) && !to_rtr(&a, i ? b.qp->qp_num : c.qp->qp_num ^ 0x800));
		rts.timeout = 8;
		CHECK(!to_rts(&a));
		rts.timeout = 14;
		CHECK(!receive(&a, 1));
		before = seconds();
		CHECK(!send_one(&a, 30, IBV_WR_SEND, NULL) && !send_one(&a, 31, IBV_WR_SEND, NULL));
		expect(&a, 30, IBV_WC_RETRY_EXC_ERR);
		CHECK(seconds() - before > 1);
		expect(&a, 31, IBV_WC_WR_FLUSH_ERR);
		expect(&a, 1, IBV_WC_WR_FLUSH_ERR);
		CHECK(!to(&a, IBV_QPS_RESET));
	}
	converse(&b, &c);
	destroy(&a);
	destroy(&b);
	destroy(&c);
}

/* What the program does to its own end: ERR flushes all, from any state; the peer hears nothing. */
static void errors(void)
{
	struct peer a = make(false), b = make(false);

	connect_both(&a, &b);
	converse(&a, &b);
	CHECK(!receive(&a, 40) && !to(&a, IBV_QPS_ERR) && state_of(&a) == IBV_QPS_ERR);
	expect(&a, 40, IBV_WC_WR_FLUSH_ERR);
	CHECK(!to(&a, IBV_QPS_ERR) && !receive(&a, 41));
	expect(&a, 41, IBV_WC_WR_FLUSH_ERR);
	CHECK(to_init(&a) == EINVAL);
	CHECK(!to(&a, IBV_QPS_RESET) && !to_init(&a) && !receive(&a, 42) && !to(&a, IBV_QPS_ERR));
	expect(&a, 42, IBV_WC_WR_FLUSH_ERR);
	expect_none(&b);
	destroy(&a);
	destroy(&b);
}

struct posting {
	struct peer *from, *to;
};

static void *posts(void *of)
{
	struct posting *p = of;

	while (send_one(p->from, 70, IBV_WR_RDMA_WRITE, p->to) != EINVAL)
		;
	return NULL;
}

/* What a thread posts until RESET refuses it is not sent in the next life. */
static void resets(void)
{
	struct peer a = make(false), b = make(false);
	struct posting p = { &a, &b };
	pthread_t thread;

	for (int i = 0; i < 20; i++) {
		connect_both(&a, &b);
		CHECK(!pthread_create(&thread, NULL, posts, &p));
		expect(&a, 70, IBV_WC_SUCCESS);
		CHECK(!to(&a, IBV_QPS_RESET) && !pthread_join(thread, NULL) && !to(&b, IBV_QPS_RESET));
		connect_both(&a, &b);
		CHECK(!send_one(&a, 71, IBV_WR_RDMA_WRITE, &b));
		expect(&a, 71, IBV_WC_SUCCESS);
		CHECK(!to(&a, IBV_QPS_RESET) && !to(&b, IBV_QPS_RESET));
	}
	destroy(&a);
	destroy(&b);
}

/* In RTR the first message is told of. */
static void established(void)
{
	struct peer a = make(false), b = make(false);

	CHECK(!to_init(&a) && !to_init(&b) && !receive(&b, 1));
	CHECK(!to_rtr(&b, a.qp->qp_num) && !to_rtr(&a, b.qp->qp_num) && !to_rts(&a));
	CHECK(!send_one(&a, 50, IBV_WR_SEND, &b));
	expect(&a, 50, IBV_WC_SUCCESS);
	expect_event(&b, IBV_EVENT_COMM_EST);
	expect(&b, 1, IBV_WC_SUCCESS);
	CHECK(!to_rts(&b));
	destroy(&a);
	destroy(&b);
}

static void begin(void)
{
	struct ibv_device **list;

	CHECK(list = ibv_get_device_list(NULL));
	CHECK(context = ibv_open_device(list[0]));
	CHECK(pd = ibv_alloc_pd(context));
	CHECK(!ibv_query_gid(context, 1, gid_index, &gid));
}

/* Processes at once, each of which talks to the one before and the one after. */
static void processes(int n)
{
	int *ring = calloc((size_t)n * 2, sizeof *ring), status;

	for (int i = 0; i < n; i++)
		CHECK(!pipe(ring + 2 * i));
	for (int i = 0; i < n; i++) {
		uint32_t numbers[2], mine;
		struct peer before, after;
		if (fork())
			continue;
		begin();
		before = make(false);
		after = make(false);
		/* around the ring, twice: first the number of what is before, then that of what is after */
		mine = before.qp->qp_num;
		CHECK(write(ring[2 * ((i + n - 1) % n) + 1], &mine, 4) == 4);
		CHECK(read(ring[2 * i], &numbers[1], 4) == 4); /* of the next one's before */
		mine = after.qp->qp_num;
		for (int hop = 0; hop < n - 1; hop++) {
			CHECK(write(ring[2 * ((i + n - 1) % n) + 1], &mine, 4) == 4);
			CHECK(read(ring[2 * i], &mine, 4) == 4);
		}
		numbers[0] = mine;
		CHECK(!to_init(&before) && !to_init(&after) && !receive(&before, 1));
		CHECK(!to_rtr(&before, numbers[0]) && !to_rtr(&after, numbers[1]));
		CHECK(!to_rts(&before) && !to_rts(&after));
		CHECK(!send_one(&after, 60, IBV_WR_SEND, NULL));
		expect(&after, 60, IBV_WC_SUCCESS);
		expect(&before, 1, IBV_WC_SUCCESS);
		/* nobody ends before its neighbour has heard */
		CHECK(write(ring[2 * ((i + n - 1) % n) + 1], &mine, 4) == 4);
		CHECK(read(ring[2 * i], &mine, 4) == 4);
		exit(0);
	}
	for (int i = 0; i < n; i++)
		CHECK(wait(&status) > 0 && WIFEXITED(status) && !WEXITSTATUS(status));
	free(ring);
}

int main(int argc, char **argv)
{
	gid_index = argc > 1 ? atoi(argv[1]) : 0;
	if (argc < 3)
		processes(8);
	begin();
	moves();
	lives();
	itself();
	ranges();
	established();
	errors();
	resets();
	peer_ends(false);
	peer_ends(true);
	both_end();
	shared();
	stopped();
	unanswered();
	if (argc < 3)
		processes(2); /* beside their parent's engine */
	puts("all well");
	return 0;
}
