/*
 * Calls about reliable connections by number, as RoCE: two queue pairs of one process, each call at
 * both ends.
 */
#include "party.h"

#include <time.h>

/* Send with Immediate is one message, which fills one buffer and carries 4 octets besides. */
static void send_with_immediate(struct party *a, struct party *b)
{
	struct ibv_send_wr wr = { .wr_id = 1, .opcode = IBV_WR_SEND_WITH_IMM,
				  .imm_data = htobe32(0x11223344) };
	struct ibv_wc wc;
	struct ibv_poll_cq_attr none = { .comp_mask = 0 };
	int error;

	strcpy(a->memory, "beside");
	/* before there is a buffer */
	CHECK(!ask(a, wr, 0, 7));
	usleep(2000);
	CHECK(!receive(b, 10, 100, 50));
	expect(a, 1, IBV_WC_SUCCESS, IBV_WC_SEND);
	wc = expect(b, 10, IBV_WC_SUCCESS, IBV_WC_RECV);
	CHECK(wc.byte_len == 7 && wc.wc_flags == IBV_WC_WITH_IMM && wc.imm_data == htobe32(0x11223344));
	CHECK(!strcmp(b->memory + 100, "beside"));

	/* without octets, without a range; inline; more than a segment */
	CHECK(!receive(b, 11, 0, 0) && !receive(b, 12, 100, 50) && !receive(b, 13, 200, 20000));
	wr.imm_data = 0;
	CHECK(!ask(a, wr, 0, 0));
	wr.imm_data = htobe32(0xffffffff);
	wr.send_flags = IBV_SEND_INLINE;
	CHECK(!ask(a, wr, 0, 7));
	memset(a->memory + 200, 'x', 20000);
	wr.send_flags = IBV_SEND_SOLICITED;
	CHECK(!ask(a, wr, 200, 20000));
	for (int i = 0; i < 3; i++)
		expect(a, 1, IBV_WC_SUCCESS, IBV_WC_SEND);
	wc = expect(b, 11, IBV_WC_SUCCESS, IBV_WC_RECV);
	CHECK(wc.byte_len == 0 && wc.wc_flags == IBV_WC_WITH_IMM && wc.imm_data == 0);
	wc = expect(b, 12, IBV_WC_SUCCESS, IBV_WC_RECV);
	CHECK(wc.byte_len == 7 && wc.imm_data == 0xffffffff && !strcmp(b->memory + 100, "beside"));
	wc = expect(b, 13, IBV_WC_SUCCESS, IBV_WC_RECV);
	CHECK(wc.byte_len == 20000 && !memcmp(a->memory + 200, b->memory + 200, 20000));

	/* by ibv_wr_*, and read by ibv_cq_ex; a plain Send after it has none */
	CHECK(!receive(b, 14, 100, 50) && !receive(b, 15, 100, 50));
	ibv_wr_start(a->ex);
	a->ex->wr_id = 2;
	a->ex->wr_flags = IBV_SEND_SIGNALED;
	ibv_wr_send_imm(a->ex, htobe32(0xcafe0001));
	ibv_wr_set_inline_data(a->ex, "wr_send", 8);
	ibv_wr_send(a->ex);
	ibv_wr_set_sge(a->ex, a->mr->lkey, (uintptr_t)a->memory, 3);
	CHECK(!ibv_wr_complete(a->ex));
	expect(a, 2, IBV_WC_SUCCESS, IBV_WC_SEND);
	expect(a, 2, IBV_WC_SUCCESS, IBV_WC_SEND);
	while ((error = ibv_start_poll(b->cq, &none)) == ENOENT)
		;
	CHECK(!error && b->cq->wr_id == 14 && b->cq->status == IBV_WC_SUCCESS);
	CHECK(ibv_wc_read_opcode(b->cq) == IBV_WC_RECV && ibv_wc_read_byte_len(b->cq) == 8 &&
	      ibv_wc_read_wc_flags(b->cq) == IBV_WC_WITH_IMM &&
	      ibv_wc_read_imm_data(b->cq) == htobe32(0xcafe0001));
	ibv_end_poll(b->cq);
	wc = expect(b, 15, IBV_WC_SUCCESS, IBV_WC_RECV);
	CHECK(wc.byte_len == 3 && wc.wc_flags == 0);

	/* Write with immediate data is told apart */
	CHECK(!receive(b, 16, 0, 0));
	wr = (struct ibv_send_wr){ .wr_id = 3, .opcode = IBV_WR_RDMA_WRITE_WITH_IMM,
				   .imm_data = htobe32(5) };
	wr.wr.rdma.remote_addr = (uintptr_t)b->memory;
	wr.wr.rdma.rkey = b->mr->rkey;
	CHECK(!ask(a, wr, 0, 7));
	expect(a, 3, IBV_WC_SUCCESS, IBV_WC_RDMA_WRITE);
	wc = expect(b, 16, IBV_WC_SUCCESS, IBV_WC_RECV_RDMA_WITH_IMM);
	CHECK(wc.byte_len == 7 && wc.imm_data == htobe32(5) && !strcmp(b->memory, "beside"));
}

static struct ibv_send_wr binding(struct party *p, struct ibv_mw *mw, uint32_t rkey, size_t at,
				  uint64_t length)
{
	struct ibv_send_wr wr = { .wr_id = 5, .opcode = IBV_WR_BIND_MW };

	wr.bind_mw.mw = mw;
	wr.bind_mw.rkey = rkey;
	wr.bind_mw.bind_info = (struct ibv_mw_bind_info){ p->mr, (uintptr_t)p->memory + at, length,
							  IBV_ACCESS_REMOTE_WRITE };
	return wr;
}

/*
 * A window of type 2 is bound in its turn, with the key that the program has chosen; it ends by
 * Local Invalidate or by the peer's Send with Invalidate, and then may be bound again.
 */
static void windows(struct party *a, struct party *b)
{
	struct ibv_mw *mw;
	struct ibv_send_wr wr, last, *bad;
	struct ibv_mw_bind_info info;
	struct ibv_sge sge = { (uintptr_t)a->memory, 8, a->mr->lkey };
	struct ibv_wc wc;
	uint32_t key;

	CHECK(mw = ibv_alloc_mw(pd, IBV_MW_TYPE_2));
	key = ibv_inc_rkey(mw->rkey);
	wr = binding(a, mw, key, 0, 0); /* of nothing */
	CHECK(ask(a, wr, 0, 0) == EINVAL);
	wr = binding(a, mw, key, 1000, 100);
	wr.bind_mw.bind_info.mr = NULL;
	CHECK(ask(a, wr, 0, 0) == EINVAL);

	/* bound and told of in one chain; used, and taken back */
	strcpy(b->memory, "through");
	for (int i = 0; i < 3; i++) {
		wr = binding(a, mw, key, 1000, 100);
		last = (struct ibv_send_wr){ .wr_id = 6, .opcode = IBV_WR_SEND, .sg_list = &sge, .num_sge = 1,
					     .send_flags = IBV_SEND_SIGNALED };
		wr.send_flags = IBV_SEND_SIGNALED | IBV_SEND_FENCE;
		wr.next = &last;
		CHECK(!receive(b, 20, 3000, 100));
		CHECK(!ibv_post_send(a->qp, &wr, &bad));
		expect(a, 5, IBV_WC_SUCCESS, IBV_WC_BIND_MW);
		expect(a, 6, IBV_WC_SUCCESS, IBV_WC_SEND);
		expect(b, 20, IBV_WC_SUCCESS, IBV_WC_RECV);
		CHECK(!ask(b, write_to(a, 7, key, 1092), 0, 8));
		expect(b, 7, IBV_WC_SUCCESS, IBV_WC_RDMA_WRITE);
		CHECK(!strcmp(a->memory + 1092, "through"));
		memset(a->memory + 1000, 0, 100);
		if (i < 2) {
			wr = (struct ibv_send_wr){ .wr_id = 8, .opcode = IBV_WR_LOCAL_INV,
						   .invalidate_rkey = key };
			CHECK(!ask(a, wr, 0, 0));
			expect(a, 8, IBV_WC_SUCCESS, IBV_WC_LOCAL_INV);
		}
		key = i < 2 ? ibv_inc_rkey(key) : key;
	}

	/* the peer gives the key back */
	CHECK(!receive(a, 21, 2000, 100));
	wr = (struct ibv_send_wr){ .wr_id = 9, .opcode = IBV_WR_SEND_WITH_INV, .invalidate_rkey = key };
	CHECK(!ask(b, wr, 0, 8));
	expect(b, 9, IBV_WC_SUCCESS, IBV_WC_SEND);
	wc = expect(a, 21, IBV_WC_SUCCESS, IBV_WC_RECV);
	CHECK(wc.wc_flags == IBV_WC_WITH_INV && wc.invalidated_rkey == key && wc.byte_len == 8);

	/* bound by ibv_wr_*, without a right, and reached in vain */
	key = ibv_inc_rkey(key);
	info = binding(a, mw, key, 1000, 100).bind_mw.bind_info;
	info.mw_access_flags = IBV_ACCESS_LOCAL_WRITE;
	ibv_wr_start(a->ex);
	a->ex->wr_id = 10;
	a->ex->wr_flags = IBV_SEND_SIGNALED;
	ibv_wr_bind_mw(a->ex, mw, key, &info);
	CHECK(!ibv_wr_complete(a->ex));
	expect(a, 10, IBV_WC_SUCCESS, IBV_WC_BIND_MW);
	CHECK(!ask(b, write_to(a, 11, key, 1000), 0, 8));
	expect(b, 11, IBV_WC_REM_ACCESS_ERR, 0);
	CHECK(!a->memory[1000]);
	CHECK(!ibv_dealloc_mw(mw));
}

/* A window that is bound cannot be bound; nor beyond its region, nor with another one's key. */
static void bindings_that_fail(struct party *a, struct party *b)
{
	struct ibv_mw *mw, *other;
	uint32_t key;

	for (int how = 0; how < 4; how++) {
		struct ibv_send_wr wr;

		CHECK(mw = ibv_alloc_mw(pd, IBV_MW_TYPE_2));
		CHECK(other = ibv_alloc_mw(pd, IBV_MW_TYPE_2));
		key = ibv_inc_rkey(mw->rkey);
		wr = binding(a, mw, key, how == 1 ? MEMORY - 99 : 1000, 100);
		if (how == 0) {
			CHECK(!ask(a, wr, 0, 0));
			expect(a, 5, IBV_WC_SUCCESS, IBV_WC_BIND_MW);
		}
		if (how == 2)
			wr.bind_mw.rkey = other->rkey;
		if (how == 3)
			wr.bind_mw.bind_info.addr = (uintptr_t)a->memory - 1;
		CHECK(!ask(a, wr, 0, 0));
		expect(a, 5, IBV_WC_MW_BIND_ERR, 0);
		CHECK(!ibv_dealloc_mw(mw) && !ibv_dealloc_mw(other));
		join_again(a, b);
	}
}

/* A window ends with its queue pair: by RESET, ERR, the peer's end, and when that is destroyed. */
static void windows_that_end(struct party *a, struct party *b)
{
	static const enum ibv_qp_state ends[] = { IBV_QPS_RESET, IBV_QPS_ERR };
	struct ibv_mw *mw;
	struct party c = make(false);
	struct ibv_send_wr wr;
	uint32_t key;

	CHECK(mw = ibv_alloc_mw(pd, IBV_MW_TYPE_2));
	key = mw->rkey;
	for (int how = 0; how < 4; how++) {
		struct party *ending = how == 3 ? &c : a;

		join_again(ending, b);
		key = ibv_inc_rkey(key);
		CHECK(!ask(ending, binding(ending, mw, key, 1000, 100), 0, 0));
		expect(ending, 5, IBV_WC_SUCCESS, IBV_WC_BIND_MW);
		CHECK(!ask(b, write_to(ending, 6, key, 1000), 0, 8));
		expect(b, 6, IBV_WC_SUCCESS, IBV_WC_RDMA_WRITE);
		if (how < 2) {
			CHECK(!ibv_modify_qp(a->qp, &(struct ibv_qp_attr){ .qp_state = ends[how] }, IBV_QP_STATE));
		} else if (how == 2) { /* which a hears of when it sends */
			CHECK(!ibv_modify_qp(b->qp, &(struct ibv_qp_attr){ .qp_state = ends[0] }, IBV_QP_STATE));
			CHECK(!ask(a, write_to(b, 7, b->mr->rkey, 0), 0, 8));
			expect(a, 7, IBV_WC_RETRY_EXC_ERR, 0);
		} else {
			destroy(&c);
		}
	}
	join_again(a, b); /* through another queue pair's, and again */
	key = ibv_inc_rkey(key);
	CHECK(!ask(a, binding(a, mw, key, 1000, 100), 0, 0));
	expect(a, 5, IBV_WC_SUCCESS, IBV_WC_BIND_MW);
	wr = write_to(a, 8, key, 1000);
	CHECK(!ask(b, wr, 0, 8));
	expect(b, 8, IBV_WC_SUCCESS, IBV_WC_RDMA_WRITE);
	CHECK(!ibv_dealloc_mw(mw));
	join_again(a, b);
}

/* When a completion was published: between the request and its poll, by the clock that is told. */
static void times(struct party *a, struct party *b)
{
	struct ibv_cq_init_attr_ex cq = { .cqe = 16,
					  .wc_flags = IBV_WC_STANDARD_FLAGS |
						      IBV_WC_EX_WITH_COMPLETION_TIMESTAMP |
						      IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK };
	struct ibv_values_ex before = { .comp_mask = IBV_VALUES_MASK_RAW_CLOCK }, after = before;
	struct ibv_poll_cq_attr none = { .comp_mask = 0 };
	struct ibv_qp_init_attr_ex attr = { .qp_type = IBV_QPT_RC, .comp_mask = IBV_QP_INIT_ATTR_PD,
					    .pd = pd, .cap = { .max_send_wr = 8, .max_recv_wr = 8,
							       .max_send_sge = 1, .max_recv_sge = 1 } };
	struct ibv_device_attr_ex device;
	struct party c = *a;
	struct timespec t0, t1;
	uint64_t raw = 0;
	int64_t wall;
	int error;

	CHECK(!ibv_query_device_ex(context, NULL, &device));
	CHECK(device.hca_core_clock == 1000000 && device.completion_timestamp_mask == UINT64_MAX);
	CHECK(c.cq = ibv_create_cq_ex(context, &cq));
	attr.send_cq = attr.recv_cq = ibv_cq_ex_to_cq(c.cq);
	CHECK(c.qp = ibv_create_qp_ex(context, &attr));
	join_again(&c, b);
	for (int i = 0; i < 8; i++) { /* of requests and receives, before and after a resize */
		if (i == 4)
			CHECK(!ibv_resize_cq(ibv_cq_ex_to_cq(c.cq), 100));
		clock_gettime(CLOCK_REALTIME, &t0);
		CHECK(!ibv_query_rt_values_ex(context, &before));
		if (i % 2) {
			CHECK(!receive(&c, 1, 0, 64));
			CHECK(!ask(b, (struct ibv_send_wr){ .wr_id = 2, .opcode = IBV_WR_SEND }, 0, 8));
			expect(b, 2, IBV_WC_SUCCESS, IBV_WC_SEND);
		} else {
			CHECK(!ask(&c, write_to(b, 1, b->mr->rkey, 0), 0, 8));
		}
		while ((error = ibv_start_poll(c.cq, &none)) == ENOENT)
			;
		CHECK(!error && c.cq->wr_id == 1 && c.cq->status == IBV_WC_SUCCESS);
		clock_gettime(CLOCK_REALTIME, &t1);
		CHECK(!ibv_query_rt_values_ex(context, &after));
		CHECK(ibv_wc_read_completion_ts(c.cq) > raw);
		raw = ibv_wc_read_completion_ts(c.cq);
		wall = (int64_t)ibv_wc_read_completion_wallclock_ns(c.cq);
		ibv_end_poll(c.cq);
		CHECK((int64_t)raw >= before.raw_clock.tv_nsec - 100000 &&
		      (int64_t)raw <= after.raw_clock.tv_nsec + 100000);
		CHECK(wall >= t0.tv_sec * 1000000000 + t0.tv_nsec - 100000 &&
		      wall <= t1.tv_sec * 1000000000 + t1.tv_nsec + 100000);
	}
	cq.wc_flags = IBV_WC_EX_WITH_FLOW_TAG;
	CHECK(!ibv_create_cq_ex(context, &cq) && errno == EOPNOTSUPP);
	CHECK(!ibv_destroy_qp(c.qp) && !ibv_destroy_cq(ibv_cq_ex_to_cq(c.cq)));
}

int main(void)
{
	begin();
	for (int with_srq = 0; with_srq < 2; with_srq++) {
		struct party a = make(false), b = make(with_srq);

		join(&a, &b);
		send_with_immediate(&a, &b);
		join_again(&a, &b);
		send_with_immediate(&b, &a);
		join_again(&a, &b);
		bindings_that_fail(&a, &b);
		times(&a, &b);
		windows_that_end(&a, &b);
		windows(&a, &b);
		destroy(&a);
		destroy(&b);
	}
	puts("all well");
	return 0;
}
