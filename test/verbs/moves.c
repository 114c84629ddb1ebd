/*
 * Moves of queue pairs as RoCE: which there are, and with which attributes; what is told back; the
 * state SQD, at both ends.
 */
#include "party.h"

/* Attributes by letter, in the order of enum ibv_qp_attr_mask from IBV_QP_CUR_STATE on. */
static const char letters[] = "cnfpPqVmtrRskawSDMCd";

/*
 * The table "QP State Transition Properties" of the specification: what a move needs, and after a
 * space what it may have. Where nothing stands there is no such move.
 */
static const char *const rc[7][7] = {
	[IBV_QPS_RESET] = { [IBV_QPS_RESET] = " ", [IBV_QPS_INIT] = "pPf " },
	[IBV_QPS_INIT] = { [IBV_QPS_RESET] = " ", [IBV_QPS_ERR] = " ", [IBV_QPS_INIT] = " pPf",
			   [IBV_QPS_RTR] = "VmdsDw afp" },
	[IBV_QPS_RTR] = { [IBV_QPS_RESET] = " ", [IBV_QPS_ERR] = " ",
			  [IBV_QPS_RTS] = "trRSk cafwM" },
	[IBV_QPS_RTS] = { [IBV_QPS_RESET] = " ", [IBV_QPS_ERR] = " ", [IBV_QPS_RTS] = " cafwM",
			  [IBV_QPS_SQD] = " n" },
	[IBV_QPS_SQD] = { [IBV_QPS_RESET] = " ", [IBV_QPS_ERR] = " ", [IBV_QPS_RTS] = " cafwM",
			  [IBV_QPS_SQD] = " PVtrRkDapfwM" },
	[IBV_QPS_ERR] = { [IBV_QPS_RESET] = " ", [IBV_QPS_ERR] = " " },
};

static const char *const ud[7][7] = {
	[IBV_QPS_RESET] = { [IBV_QPS_RESET] = " ", [IBV_QPS_INIT] = "pPq " },
	[IBV_QPS_INIT] = { [IBV_QPS_RESET] = " ", [IBV_QPS_ERR] = " ", [IBV_QPS_INIT] = " pPq",
			   [IBV_QPS_RTR] = " pq" },
	[IBV_QPS_RTR] = { [IBV_QPS_RESET] = " ", [IBV_QPS_ERR] = " ", [IBV_QPS_RTS] = "S cq" },
	[IBV_QPS_RTS] = { [IBV_QPS_RESET] = " ", [IBV_QPS_ERR] = " ", [IBV_QPS_RTS] = " cq",
			  [IBV_QPS_SQD] = " n" },
	[IBV_QPS_SQD] = { [IBV_QPS_RESET] = " ", [IBV_QPS_ERR] = " ", [IBV_QPS_RTS] = " cq",
			  [IBV_QPS_SQD] = " pq" },
	[IBV_QPS_ERR] = { [IBV_QPS_RESET] = " ", [IBV_QPS_ERR] = " " },
};

static int mask_of(const char *from, const char *to)
{
	int mask = 0;

	for (; from < to; from++)
		mask |= IBV_QP_CUR_STATE << (strchr(letters, *from) - letters);
	return mask;
}

static int needs(const char *cell)
{
	return mask_of(cell, strchr(cell, ' '));
}

static int may(const char *cell)
{
	return mask_of(strchr(cell, ' ') + 1, cell + strlen(cell));
}

/* What the device has of each attribute. */
static struct ibv_qp_attr values(const struct ibv_qp *qp, enum ibv_qp_state from,
				 enum ibv_qp_state to)
{
	return (struct ibv_qp_attr){
		.qp_state = to, .cur_qp_state = from, .port_num = 1, .path_mtu = IBV_MTU_2048,
		.dest_qp_num = qp->qp_num ^ 1, .rq_psn = 0x1123456, .sq_psn = 0x654321, .timeout = 14,
		.retry_cnt = 6, .rnr_retry = 5, .min_rnr_timer = 12, .max_rd_atomic = 4,
		.max_dest_rd_atomic = 3, .qkey = 0x11111111, .qp_access_flags = IBV_ACCESS_REMOTE_READ,
		.path_mig_state = IBV_MIG_MIGRATED,
		.ah_attr = { .is_global = 1, .port_num = 1, .sl = 3, .dlid = 0x12,
			     .grh = { .dgid = gid, .sgid_index = GID_INDEX, .hop_limit = 9,
				      .traffic_class = 7, .flow_label = 0x1234 } },
	};
}

static int move(struct ibv_qp *qp, enum ibv_qp_state from, enum ibv_qp_state to, int mask)
{
	struct ibv_qp_attr a = values(qp, from, to);

	return ibv_modify_qp(qp, &a, mask | IBV_QP_STATE);
}

/* By way of RESET to a state. */
static void bring(struct ibv_qp *qp, const char *const table[7][7], enum ibv_qp_state to)
{
	static const enum ibv_qp_state way[] = { IBV_QPS_RESET, IBV_QPS_INIT, IBV_QPS_RTR, IBV_QPS_RTS,
						 IBV_QPS_SQD };

	CHECK(!move(qp, 0, IBV_QPS_RESET, 0));
	for (int i = 0; to != IBV_QPS_RESET && way[i] != to && i < 4; i++) {
		if (to == IBV_QPS_ERR && way[i] == IBV_QPS_INIT) {
			CHECK(!move(qp, way[i], to, 0));
			return;
		}
		CHECK(!move(qp, way[i], way[i + 1], needs(table[way[i]][way[i + 1]])));
	}
}

static enum ibv_qp_state state_of(struct ibv_qp *qp)
{
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr a;

	CHECK(!ibv_query_qp(qp, &a, IBV_QP_STATE, &init));
	return a.qp_state;
}

/* Each move, with what it needs, with one attribute less or more. */
static void all_moves(struct ibv_qp *qp, const char *const table[7][7])
{
	static const enum ibv_qp_state states[] = { IBV_QPS_RESET, IBV_QPS_INIT, IBV_QPS_RTR,
						    IBV_QPS_RTS, IBV_QPS_SQD, IBV_QPS_ERR };

	for (int i = 0; i < 6; i++)
		for (enum ibv_qp_state to = IBV_QPS_RESET; to <= IBV_QPS_ERR; to++) {
			enum ibv_qp_state from = states[i];
			const char *cell = table[from][to];
			int base = cell ? needs(cell) : 0;

			bring(qp, table, from);
			for (int bit = IBV_QP_STATE; bit <= IBV_QP_DEST_QPN; bit *= 2) {
				bool fits = cell && (bit == IBV_QP_STATE || bit & may(cell));
				int error = move(qp, from, to, base ^ (bit == IBV_QP_STATE ? 0 : bit));

				if (bit == IBV_QP_ALT_PATH && fits) { /* none here */
					CHECK(error == EOPNOTSUPP);
					continue;
				}
				if (error != (fits ? 0 : EINVAL)) {
					fprintf(stderr, "state %d to %d, mask 0x%x ^ 0x%x: %d\n", from, to, base,
						bit, error);
					exit(1);
				}
				CHECK(state_of(qp) == (fits ? to : from));
				if (fits)
					bring(qp, table, from);
			}
		}
	CHECK(!move(qp, 0, IBV_QPS_RESET, 0));
}

/* Values that cannot be, or that no other device could keep. */
static void odd_values(struct ibv_qp *qp)
{
	struct ibv_qp_attr a;

#define REFUSED(state, field, value, flag, error)                                           \
	do {                                                                                \
		bring(qp, rc, state);                                                       \
		a = values(qp, state, state == IBV_QPS_SQD ? state : state + 1);            \
		a.field = value;                                                            \
		CHECK(ibv_modify_qp(qp, &a,                                                 \
				    IBV_QP_STATE | needs(rc[state][a.qp_state]) | (flag)) == error); \
	} while (0)
	REFUSED(IBV_QPS_RESET, port_num, 2, 0, EINVAL);
	REFUSED(IBV_QPS_RESET, pkey_index, 1, 0, EINVAL);
	REFUSED(IBV_QPS_RESET, qp_access_flags, 1 << 12, 0, EINVAL);
	REFUSED(IBV_QPS_INIT, path_mtu, 0, 0, EINVAL);
	REFUSED(IBV_QPS_INIT, path_mtu, 6, 0, EINVAL);
	REFUSED(IBV_QPS_INIT, dest_qp_num, 1 << 24, 0, EINVAL);
	REFUSED(IBV_QPS_INIT, min_rnr_timer, 32, 0, EINVAL);
	REFUSED(IBV_QPS_INIT, max_dest_rd_atomic, 129, 0, EINVAL);
	REFUSED(IBV_QPS_INIT, ah_attr.is_global, 0, 0, EINVAL);
	REFUSED(IBV_QPS_RTR, timeout, 32, 0, EINVAL);
	REFUSED(IBV_QPS_RTR, retry_cnt, 8, 0, EINVAL);
	REFUSED(IBV_QPS_RTR, rnr_retry, 8, 0, EINVAL);
	REFUSED(IBV_QPS_RTR, max_rd_atomic, 129, 0, EINVAL);
	REFUSED(IBV_QPS_RTR, path_mig_state, IBV_MIG_REARM, IBV_QP_PATH_MIG_STATE, EOPNOTSUPP);
	REFUSED(IBV_QPS_SQD, ah_attr.grh.dgid.raw[15], gid.raw[15] ^ 1, IBV_QP_AV, EOPNOTSUPP);
	REFUSED(IBV_QPS_SQD, max_dest_rd_atomic, 4, IBV_QP_MAX_DEST_RD_ATOMIC, EOPNOTSUPP);
#undef REFUSED
	CHECK(!move(qp, 0, IBV_QPS_RESET, 0));
}

/* What was said is told back. */
static void told_back(struct party *p)
{
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr a;

	bring(p->qp, rc, IBV_QPS_RTS);
	CHECK(!ibv_query_qp(p->qp, &a, ~0, &init));
	CHECK(a.qp_state == IBV_QPS_RTS && a.cur_qp_state == IBV_QPS_RTS && !a.sq_draining);
	CHECK(a.rq_psn == 0x123456 && a.sq_psn == 0x654321 && a.path_mtu == IBV_MTU_2048);
	CHECK(a.timeout == 14 && a.retry_cnt == 6 && a.rnr_retry == 5 && a.min_rnr_timer == 12);
	CHECK(a.max_rd_atomic == 4 && a.max_dest_rd_atomic == 3 && a.port_num == 1 && !a.pkey_index);
	CHECK(a.qp_access_flags == IBV_ACCESS_REMOTE_READ && a.path_mig_state == IBV_MIG_MIGRATED);
	CHECK(a.dest_qp_num == (p->qp->qp_num ^ 1));
	CHECK(a.ah_attr.dlid == 0x12 && a.ah_attr.sl == 3 && a.ah_attr.is_global &&
	      a.ah_attr.grh.hop_limit == 9 && a.ah_attr.grh.traffic_class == 7 &&
	      a.ah_attr.grh.flow_label == 0x1234 && !memcmp(&a.ah_attr.grh.dgid, &gid, sizeof gid));
	CHECK(a.cap.max_send_wr == 16 && a.cap.max_recv_wr == 16 && a.cap.max_send_sge == 4 &&
	      a.cap.max_inline_data == 128 && !memcmp(&a.cap, &init.cap, sizeof a.cap));
	CHECK(init.qp_type == IBV_QPT_RC && init.send_cq == p->qp->send_cq &&
	      init.recv_cq == p->qp->recv_cq);
	CHECK(!move(p->qp, IBV_QPS_RTS, IBV_QPS_RTS, IBV_QP_MIN_RNR_TIMER | IBV_QP_ACCESS_FLAGS));
	CHECK(!move(p->qp, 0, IBV_QPS_RESET, 0));
}

static bool draining(struct party *p)
{
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr a;

	CHECK(!ibv_query_qp(p->qp, &a, IBV_QP_STATE, &init) && a.qp_state == IBV_QPS_SQD);
	return a.sq_draining;
}

static void pause_it(struct party *p, bool notify)
{
	struct ibv_qp_attr a = { .qp_state = IBV_QPS_SQD, .en_sqd_async_notify = notify };

	CHECK(!ibv_modify_qp(p->qp, &a, IBV_QP_STATE | IBV_QP_EN_SQD_ASYNC_NOTIFY));
}

static void go_on(struct party *p)
{
	struct ibv_qp_attr a = { .qp_state = IBV_QPS_RTS, .cur_qp_state = IBV_QPS_SQD };

	CHECK(!ibv_modify_qp(p->qp, &a, IBV_QP_STATE | IBV_QP_CUR_STATE));
}

static struct ibv_send_wr a_send(uint64_t id)
{
	return (struct ibv_send_wr){ .wr_id = id, .opcode = IBV_WR_SEND };
}

/* Until there is a connection. */
static void join_now(struct party *a, struct party *b)
{
	join_again(a, b);
	CHECK(!ask(a, write_to(b, 77, b->mr->rkey, 100), 0, 8));
	expect(a, 77, IBV_WC_SUCCESS, IBV_WC_RDMA_WRITE);
}

/*
 * A Write, so many Sends for which there is no buffer, and a Write, in one chain. When the first is
 * there all have been begun, because what is posted together is cut into one segment.
 */
static void begin_requests(struct party *a, struct party *b, int sends)
{
	struct ibv_sge sge = { (uintptr_t)a->memory, 8, a->mr->lkey };
	struct ibv_send_wr chain[16], *bad;

	a->memory[0] = ++b->memory[300];
	for (int i = 0; i < sends + 2; i++) {
		chain[i] = i && i <= sends ? a_send((uint64_t)i) :
					     write_to(b, (uint64_t)i, b->mr->rkey, i ? 400 : 100);
		chain[i].sg_list = &sge;
		chain[i].num_sge = 1;
		chain[i].send_flags = IBV_SEND_SIGNALED;
		chain[i].next = i <= sends ? &chain[i + 1] : NULL;
	}
	CHECK(!ibv_post_send(a->qp, chain, &bad));
	while (__atomic_load_n(&b->memory[100], __ATOMIC_ACQUIRE) != a->memory[0])
		ibv_poll_cq(ibv_cq_ex_to_cq(b->cq), 0, NULL);
	expect(a, 0, IBV_WC_SUCCESS, IBV_WC_RDMA_WRITE);
}

/*
 * What was begun completes, and then an event says so; what is posted meanwhile waits for RTS; what
 * the peer asks for is carried out.
 */
static void drains(struct party *a, struct party *b)
{
	join_now(a, b);
	for (int i = 0; i < 3; i++) { /* nothing is under way */
		pause_it(a, true);
		expect_event(a->qp, IBV_EVENT_SQ_DRAINED);
		CHECK(!draining(a));
		go_on(a);
	}
	begin_requests(a, b, 1);
	pause_it(a, true);
	for (uint64_t id = 3; id < 17; id++)
		CHECK(!ask(a, a_send(id), 0, 8));
	CHECK(ask(a, a_send(17), 0, 8) == ENOMEM);
	CHECK(draining(a));
	CHECK(!receive(a, 30, 200, 50) && !ask(b, a_send(31), 0, 8)); /* the peer's go on */
	expect(b, 31, IBV_WC_SUCCESS, IBV_WC_SEND);
	expect(a, 30, IBV_WC_SUCCESS, IBV_WC_RECV);
	CHECK(draining(a) && !receive(b, 32, 200, 50) && !receive(b, 33, 200, 50));
	expect(a, 1, IBV_WC_SUCCESS, IBV_WC_SEND);
	expect(b, 32, IBV_WC_SUCCESS, IBV_WC_RECV);
	expect(a, 2, IBV_WC_SUCCESS, IBV_WC_RDMA_WRITE);
	expect_event(a->qp, IBV_EVENT_SQ_DRAINED);
	CHECK(!draining(a));
	CHECK(!ask(b, write_to(a, 34, a->mr->rkey, 100), 0, 8)); /* a's Sends would be there by then */
	expect(b, 34, IBV_WC_SUCCESS, IBV_WC_RDMA_WRITE);
	expect_none(a);
	expect_none(b);
	CHECK(!move(a->qp, IBV_QPS_SQD, IBV_QPS_SQD, IBV_QP_TIMEOUT | IBV_QP_AV));
	go_on(a);
	expect(a, 3, IBV_WC_SUCCESS, IBV_WC_SEND);
	expect(b, 33, IBV_WC_SUCCESS, IBV_WC_RECV);
	for (uint64_t id = 4; id < 17; id++) {
		CHECK(!receive(b, 40 + id, 200, 50));
		expect(a, id, IBV_WC_SUCCESS, IBV_WC_SEND);
		expect(b, 40 + id, IBV_WC_SUCCESS, IBV_WC_RECV);
	}
}

/* A queue that is full of requests under way drains as well, though nobody wants to hear of it. */
static void full(struct party *a, struct party *b)
{
	join_now(a, b);
	begin_requests(a, b, 14);
	pause_it(a, false);
	for (uint64_t id = 1; id < 15; id++)
		CHECK(!receive(b, id, 200, 50));
	for (uint64_t id = 1; id < 15; id++)
		expect(a, id, IBV_WC_SUCCESS, IBV_WC_SEND);
	expect(a, 15, IBV_WC_SUCCESS, IBV_WC_RDMA_WRITE);
	while (draining(a))
		;
	go_on(a);
	CHECK(!ask(a, write_to(b, 99, b->mr->rkey, 100), 0, 8));
	expect(a, 99, IBV_WC_SUCCESS, IBV_WC_RDMA_WRITE);
	for (uint64_t id = 1; id < 15; id++)
		expect(b, id, IBV_WC_SUCCESS, IBV_WC_RECV);
}

/* Before there is a connection, after it has ended, and to ERR and RESET. */
static void drains_without_peer(struct party *a, struct party *b)
{
	struct ibv_qp_attr reset = { .qp_state = IBV_QPS_RESET }, error = { .qp_state = IBV_QPS_ERR };

	CHECK(!ibv_modify_qp(a->qp, &reset, IBV_QP_STATE));
	CHECK(!ibv_modify_qp(b->qp, &reset, IBV_QP_STATE));
	begin_way(a, b->qp->qp_num);
	ready(a);
	pause_it(a, true);
	expect_event(a->qp, IBV_EVENT_SQ_DRAINED);
	CHECK(!ask(a, a_send(1), 0, 8));
	begin_way(b, a->qp->qp_num);
	ready(b);
	CHECK(!receive(a, 2, 200, 50) && !receive(b, 3, 200, 50) && !ask(b, a_send(4), 0, 8));
	expect(b, 4, IBV_WC_SUCCESS, IBV_WC_SEND);
	expect(a, 2, IBV_WC_SUCCESS, IBV_WC_RECV);
	expect_none(a);
	expect_none(b);
	go_on(a);
	expect(a, 1, IBV_WC_SUCCESS, IBV_WC_SEND);
	expect(b, 3, IBV_WC_SUCCESS, IBV_WC_RECV);

	pause_it(a, true);
	expect_event(a->qp, IBV_EVENT_SQ_DRAINED);
	CHECK(!ask(a, a_send(5), 0, 8) && !receive(a, 6, 200, 50));
	CHECK(!ibv_modify_qp(b->qp, &reset, IBV_QP_STATE)); /* which a does not hear of */
	usleep(100000);
	expect_none(a);
	CHECK(state_of(a->qp) == IBV_QPS_SQD);
	go_on(a);
	expect(a, 5, IBV_WC_RETRY_EXC_ERR, 0);
	expect(a, 6, IBV_WC_WR_FLUSH_ERR, 0);

	join_now(a, b);
	begin_requests(a, b, 1);
	CHECK(!ibv_modify_qp(b->qp, &reset, IBV_QP_STATE)); /* and nothing of a's completes */
	usleep(100000);
	pause_it(a, true);
	CHECK(draining(a));
	expect(a, 1, IBV_WC_RETRY_EXC_ERR, 0);
	expect(a, 2, IBV_WC_WR_FLUSH_ERR, 0);
	CHECK(state_of(a->qp) == IBV_QPS_ERR);

	for (int i = 0; i < 2; i++) {
		join_again(a, b);
		pause_it(a, true);
		expect_event(a->qp, IBV_EVENT_SQ_DRAINED);
		CHECK(!ask(a, a_send(7), 0, 8));
		CHECK(!ibv_modify_qp(a->qp, i ? &error : &reset, IBV_QP_STATE));
		if (i)
			expect(a, 7, IBV_WC_WR_FLUSH_ERR, 0);
		expect_none(a);
		join_again(a, b);
		CHECK(!ask(a, write_to(b, 8, b->mr->rkey, 100), 0, 8));
		expect(a, 8, IBV_WC_SUCCESS, IBV_WC_RDMA_WRITE);
	}
}

static void datagrams(void)
{
	struct ibv_qp_init_attr attr = {
		.cap = { .max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1 },
		.qp_type = IBV_QPT_UD,
	};
	struct ibv_qp_attr sqd = { .qp_state = IBV_QPS_SQD, .en_sqd_async_notify = 1 };
	struct ibv_qp *qp;

	CHECK(attr.send_cq = attr.recv_cq = ibv_create_cq(context, 16, NULL, NULL, 0));
	CHECK(qp = ibv_create_qp(pd, &attr));
	all_moves(qp, ud);
	bring(qp, ud, IBV_QPS_RTS);
	CHECK(!ibv_modify_qp(qp, &sqd, IBV_QP_STATE | IBV_QP_EN_SQD_ASYNC_NOTIFY));
	expect_event(qp, IBV_EVENT_SQ_DRAINED);
	CHECK(!ibv_destroy_qp(qp) && !ibv_destroy_cq(attr.send_cq));
}

int main(void)
{
	struct party a, b;

	begin();
	a = make(false);
	all_moves(a.qp, rc);
	odd_values(a.qp);
	told_back(&a);
	datagrams();
	for (int with_srq = 0; with_srq < 2; with_srq++) {
		b = make(with_srq);
		drains(&a, &b);
		full(&a, &b);
		if (!with_srq)
			drains(&b, &a);
		drains_without_peer(&a, &b);
		destroy(&b);
	}
	destroy(&a);
	puts("all well");
	return 0;
}
