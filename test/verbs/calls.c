/*
 * Calls about reliable connections by number, as RoCE: two queue pairs of one process, each call at
 * both ends.
 */
#include "walk.h"

#include <endian.h>
#include <time.h>

static struct ibv_context *context;
static struct ibv_pd *pd;
enum { GID_INDEX = 0 };
static union ibv_gid gid;

/* One end. All of memory is the peer's to use. */
struct party {
	struct ibv_cq_ex *cq;
	struct ibv_srq *srq;
	struct ibv_qp *qp;
	struct ibv_qp_ex *ex;
	char *memory;
	struct ibv_mr *mr;
};

#define ALL_ACCESS                                                                             \
	(IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE |           \
	 IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_MW_BIND)
#define SEND_OPS                                                                                \
	(IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM | IBV_QP_EX_WITH_SEND | \
	 IBV_QP_EX_WITH_SEND_WITH_IMM | IBV_QP_EX_WITH_RDMA_READ |                              \
	 IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP | IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD |              \
	 IBV_QP_EX_WITH_LOCAL_INV | IBV_QP_EX_WITH_SEND_WITH_INV | IBV_QP_EX_WITH_BIND_MW)

static struct party make(bool with_srq)
{
	struct ibv_cq_init_attr_ex cq = { .cqe = 64, .wc_flags = IBV_WC_STANDARD_FLAGS };
	struct ibv_srq_init_attr srq = { .attr = { .max_wr = 16, .max_sge = 4 } };
	struct ibv_qp_init_attr_ex attr = {
		.cap = { .max_send_wr = 16, .max_recv_wr = 16, .max_send_sge = 4, .max_recv_sge = 4,
			 .max_inline_data = 128 },
		.qp_type = IBV_QPT_RC,
		.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
		.pd = pd,
		.send_ops_flags = SEND_OPS,
	};
	struct party p = { 0 };

	CHECK(p.cq = ibv_create_cq_ex(context, &cq));
	if (with_srq)
		CHECK(p.srq = ibv_create_srq(pd, &srq));
	attr.send_cq = attr.recv_cq = ibv_cq_ex_to_cq(p.cq);
	attr.srq = p.srq;
	CHECK(p.qp = ibv_create_qp_ex(context, &attr));
	CHECK(p.ex = ibv_qp_to_qp_ex(p.qp));
	CHECK(p.memory = aligned_alloc(4096, MEMORY));
	memset(p.memory, 0, MEMORY);
	CHECK(p.mr = ibv_reg_mr(pd, p.memory, MEMORY, ALL_ACCESS));
	return p;
}

static void destroy(struct party *p)
{
	CHECK(!ibv_destroy_qp(p->qp));
	if (p->srq)
		CHECK(!ibv_destroy_srq(p->srq));
	CHECK(!ibv_destroy_cq(ibv_cq_ex_to_cq(p->cq)));
	CHECK(!ibv_dereg_mr(p->mr));
	free(p->memory);
}

static void begin_way(struct party *p, uint32_t number)
{
	struct ibv_qp_attr a = { .qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = ALL_ACCESS };

	CHECK(!ibv_modify_qp(p->qp, &a,
			     IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS));
	a = (struct ibv_qp_attr){
		.qp_state = IBV_QPS_RTR,
		.path_mtu = IBV_MTU_1024,
		.dest_qp_num = number,
		.max_dest_rd_atomic = 4,
		.min_rnr_timer = 1,
		.ah_attr = { .is_global = 1,
			     .port_num = 1,
			     .grh = { .dgid = gid, .sgid_index = GID_INDEX, .hop_limit = 64 } },
	};
	CHECK(!ibv_modify_qp(p->qp, &a,
			     IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
				     IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC |
				     IBV_QP_MIN_RNR_TIMER));
}

static void ready(struct party *p)
{
	struct ibv_qp_attr a = { .qp_state = IBV_QPS_RTS, .timeout = 14, .retry_cnt = 7, .rnr_retry = 7,
				 .max_rd_atomic = 4 };

	CHECK(!ibv_modify_qp(p->qp, &a,
			     IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
				     IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC));
}

static void join(struct party *a, struct party *b)
{
	begin_way(a, b->qp->qp_num);
	begin_way(b, a->qp->qp_num);
	ready(a);
	ready(b);
}

/* Both at once to RESET, and to RTS again. */
static void join_again(struct party *a, struct party *b)
{
	struct ibv_qp_attr reset = { .qp_state = IBV_QPS_RESET };

	CHECK(!ibv_modify_qp(a->qp, &reset, IBV_QP_STATE));
	CHECK(!ibv_modify_qp(b->qp, &reset, IBV_QP_STATE));
	join(a, b);
}

static int receive(struct party *p, uint64_t id, size_t at, uint32_t length)
{
	struct ibv_sge s = { (uintptr_t)p->memory + at, length, p->mr->lkey };
	struct ibv_recv_wr wr = { .wr_id = id, .sg_list = &s, .num_sge = length ? 1 : 0 }, *bad;

	return p->srq ? ibv_post_srq_recv(p->srq, &wr, &bad) : ibv_post_recv(p->qp, &wr, &bad);
}

static int ask(struct party *p, struct ibv_send_wr wr, size_t at, uint32_t length)
{
	struct ibv_sge s = { (uintptr_t)p->memory + at, length, p->mr->lkey };
	struct ibv_send_wr *bad;

	if (length) {
		wr.sg_list = &s;
		wr.num_sge = 1;
	}
	wr.send_flags |= IBV_SEND_SIGNALED;
	return ibv_post_send(p->qp, &wr, &bad);
}

static struct ibv_wc next(struct party *p)
{
	struct ibv_wc wc;
	int n;

	while (!(n = ibv_poll_cq(ibv_cq_ex_to_cq(p->cq), 1, &wc)))
		;
	CHECK(n == 1);
	return wc;
}

/* The next completion of p, which is in the old poll and in the new alike. */
static struct ibv_wc expect(struct party *p, uint64_t id, enum ibv_wc_status status,
			    enum ibv_wc_opcode opcode)
{
	struct ibv_wc wc = next(p);

	if (wc.wr_id != id || wc.status != status || (!status && wc.opcode != opcode) ||
	    wc.qp_num != p->qp->qp_num) {
		fprintf(stderr, "wr_id %d, opcode %d, %s; expected wr_id %d, opcode %d, %s\n",
			(int)wc.wr_id, wc.opcode, ibv_wc_status_str(wc.status), (int)id, opcode,
			ibv_wc_status_str(status));
		abort();
	}
	return wc;
}

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

static struct ibv_send_wr write_to(struct party *to, uint64_t id, uint32_t rkey, size_t at)
{
	struct ibv_send_wr wr = { .wr_id = id, .opcode = IBV_WR_RDMA_WRITE };

	wr.wr.rdma.remote_addr = (uintptr_t)to->memory + at;
	wr.wr.rdma.rkey = rkey;
	return wr;
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

/* iWARP has no Send with Immediate, and librdmacm connects as iWARP does. */
static void by_librdmacm(void)
{
	struct pair p;
	struct ibv_sge sge;
	struct ibv_send_wr wr;

	connect_pair(&p, 0);
	wr = request(&p.client, &sge, IBV_WR_SEND_WITH_IMM, 7);
	CHECK(post(&p.client, &wr) == EINVAL);
	close_pair(&p);
}

static void begin(void)
{
	struct ibv_device **list;

	CHECK(list = ibv_get_device_list(NULL));
	CHECK(context = ibv_open_device(list[0]));
	CHECK(pd = ibv_alloc_pd(context));
	CHECK(!ibv_query_gid(context, 1, GID_INDEX, &gid));
}

int main(int argc, char **argv)
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
		windows(&a, &b);
		destroy(&a);
		destroy(&b);
	}
	if (argc > 1 && !strcmp(argv[1], "cm"))
		by_librdmacm();
	puts("all well");
	return 0;
}
