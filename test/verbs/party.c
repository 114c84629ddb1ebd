/* Reliable connections by number: see party.h. */
#include "party.h"

struct ibv_context *context;
struct ibv_pd *pd;
union ibv_gid gid;

void begin(void)
{
	struct ibv_device **list;

	CHECK(list = ibv_get_device_list(NULL));
	CHECK(context = ibv_open_device(list[0]));
	CHECK(pd = ibv_alloc_pd(context));
	CHECK(!ibv_query_gid(context, 1, GID_INDEX, &gid));
}

#define SEND_OPS                                                                                \
	(IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM | IBV_QP_EX_WITH_SEND | \
	 IBV_QP_EX_WITH_SEND_WITH_IMM | IBV_QP_EX_WITH_RDMA_READ |                              \
	 IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP | IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD |              \
	 IBV_QP_EX_WITH_LOCAL_INV | IBV_QP_EX_WITH_SEND_WITH_INV | IBV_QP_EX_WITH_BIND_MW)

struct party make(bool with_srq)
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

void destroy(struct party *p)
{
	CHECK(!ibv_destroy_qp(p->qp));
	if (p->srq)
		CHECK(!ibv_destroy_srq(p->srq));
	CHECK(!ibv_destroy_cq(ibv_cq_ex_to_cq(p->cq)));
	CHECK(!ibv_dereg_mr(p->mr));
	free(p->memory);
}

void begin_way(struct party *p, uint32_t number)
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

void ready(struct party *p)
{
	struct ibv_qp_attr a = { .qp_state = IBV_QPS_RTS, .timeout = 14, .retry_cnt = 7, .rnr_retry = 7,
				 .max_rd_atomic = 4 };

	CHECK(!ibv_modify_qp(p->qp, &a,
			     IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
				     IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC));
}

void join(struct party *a, struct party *b)
{
	begin_way(a, b->qp->qp_num);
	begin_way(b, a->qp->qp_num);
	ready(a);
	ready(b);
}

/* Both at once to RESET, and to RTS again. */
void join_again(struct party *a, struct party *b)
{
	struct ibv_qp_attr reset = { .qp_state = IBV_QPS_RESET };

	CHECK(!ibv_modify_qp(a->qp, &reset, IBV_QP_STATE));
	CHECK(!ibv_modify_qp(b->qp, &reset, IBV_QP_STATE));
	join(a, b);
}

int receive(struct party *p, uint64_t id, size_t at, uint32_t length)
{
	struct ibv_sge s = { (uintptr_t)p->memory + at, length, p->mr->lkey };
	struct ibv_recv_wr wr = { .wr_id = id, .sg_list = &s, .num_sge = length ? 1 : 0 }, *bad;

	return p->srq ? ibv_post_srq_recv(p->srq, &wr, &bad) : ibv_post_recv(p->qp, &wr, &bad);
}

int ask(struct party *p, struct ibv_send_wr wr, size_t at, uint32_t length)
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

struct ibv_wc next(struct party *p)
{
	struct ibv_wc wc;
	int n;

	while (!(n = ibv_poll_cq(ibv_cq_ex_to_cq(p->cq), 1, &wc)))
		;
	CHECK(n == 1);
	return wc;
}

/* The next completion of p, which is in the old poll and in the new alike. */
struct ibv_wc expect(struct party *p, uint64_t id, enum ibv_wc_status status,
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

struct ibv_send_wr write_to(struct party *to, uint64_t id, uint32_t rkey, size_t at)
{
	struct ibv_send_wr wr = { .wr_id = id, .opcode = IBV_WR_RDMA_WRITE };

	wr.wr.rdma.remote_addr = (uintptr_t)to->memory + at;
	wr.wr.rdma.rkey = rkey;
	return wr;
}

void expect_none(struct party *p)
{
	struct ibv_wc wc;

	CHECK(ibv_poll_cq(ibv_cq_ex_to_cq(p->cq), 1, &wc) == 0);
}

void expect_event(struct ibv_qp *qp, enum ibv_event_type type)
{
	struct ibv_async_event e;

	CHECK(!ibv_get_async_event(context, &e));
	if (e.event_type != type || e.element.qp != qp) {
		fprintf(stderr, "event %s\n", ibv_event_type_str(e.event_type));
		abort();
	}
	ibv_ack_async_event(&e);
}
