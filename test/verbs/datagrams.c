/*
 * Queue pairs for datagrams, of one process: with a shared receive queue, and what becomes of its
 * buffers when they leave.
 */
#include "walk.h"

#include <sched.h>

static struct ibv_context *context;
static struct ibv_pd *pd;
static struct ibv_cq *cq;
static struct ibv_srq *srq;
static struct ibv_mr *mr;
static struct ibv_ah *self;
static char *memory;

#define KEY 0x12345678
#define BUFFER 128 /* octets, with the GRH */
#define BUFFERS 8

static struct ibv_qp *make(struct ibv_srq *shared)
{
	struct ibv_qp_init_attr init = { .qp_type = IBV_QPT_UD, .send_cq = cq, .recv_cq = cq,
					 .srq = shared,
					 .cap = { 16, 16, 2, 2, 64 } };
	struct ibv_qp_attr a = { .qp_state = IBV_QPS_INIT, .port_num = 1, .qkey = KEY };
	struct ibv_qp *qp;

	CHECK(qp = ibv_create_qp(pd, &init));
	CHECK(!ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY));
	a.qp_state = IBV_QPS_RTR;
	CHECK(!ibv_modify_qp(qp, &a, IBV_QP_STATE));
	a.qp_state = IBV_QPS_RTS;
	CHECK(!ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_SQ_PSN));
	return qp;
}

static void move(struct ibv_qp *qp, enum ibv_qp_state state)
{
	struct ibv_qp_attr a = { .qp_state = state };

	CHECK(!ibv_modify_qp(qp, &a, IBV_QP_STATE));
}

/* A buffer in two ranges, the second of which begins with the message. */
static int give(uint64_t id)
{
	struct ibv_sge s[2] = { { (uintptr_t)memory + id * BUFFER, 40, mr->lkey },
				{ (uintptr_t)memory + id * BUFFER + 40, BUFFER - 40, mr->lkey } };
	struct ibv_recv_wr wr = { .wr_id = id, .sg_list = s, .num_sge = 2 }, *bad;

	return ibv_post_srq_recv(srq, &wr, &bad);
}

static struct ibv_wc poll_one(void)
{
	struct ibv_wc wc;

	while (!ibv_poll_cq(cq, 1, &wc))
		sched_yield();
	return wc;
}

/* Sends n octets of value, which have left when it returns. */
static void send_to(struct ibv_qp *from, struct ibv_qp *to, char value, uint32_t n)
{
	struct ibv_sge s = { (uintptr_t)memory + BUFFERS * BUFFER, n, mr->lkey };
	struct ibv_send_wr wr = { .wr_id = 99, .sg_list = &s, .num_sge = 1, .opcode = IBV_WR_SEND,
				  .send_flags = IBV_SEND_SIGNALED,
				  .wr.ud = { self, to->qp_num, KEY } }, *bad;
	struct ibv_wc wc;

	memset(memory + BUFFERS * BUFFER, value, n);
	CHECK(!ibv_post_send(from, &wr, &bad));
	wc = poll_one();
	CHECK(wc.wr_id == 99 && wc.status == IBV_WC_SUCCESS && wc.opcode == IBV_WC_SEND);
}

/* One that is dropped: and it is, as one that was sent after it has come. */
static void lose(struct ibv_qp *from, struct ibv_qp *to, uint32_t n)
{
	struct ibv_sge s = { (uintptr_t)memory + (BUFFERS + 2) * BUFFER, BUFFER, mr->lkey };
	struct ibv_recv_wr wr = { .wr_id = 98, .sg_list = &s, .num_sge = 1 }, *bad;
	struct ibv_wc wc;

	send_to(from, to, 'x', n);
	CHECK(!ibv_post_recv(from, &wr, &bad));
	send_to(from, from, 'y', 8);
	wc = poll_one();
	CHECK(wc.wr_id == 98 && wc.status == IBV_WC_SUCCESS);
}

static void received(struct ibv_qp *at, char value, uint64_t id, enum ibv_wc_status status)
{
	struct ibv_wc wc = poll_one();

	CHECK(wc.status == status && wc.qp_num == at->qp_num && wc.wr_id == id);
	if (status == IBV_WC_SUCCESS)
		CHECK(wc.opcode == IBV_WC_RECV && wc.byte_len == 40 + 8 && wc.wc_flags & IBV_WC_GRH &&
		      memory[id * BUFFER + 40] == value && memory[id * BUFFER + 47] == value);
}

static void event(enum ibv_event_type type)
{
	struct ibv_async_event e;

	CHECK(!ibv_get_async_event(context, &e) && e.event_type == type);
	ibv_ack_async_event(&e);
}

static void shares(void)
{
	struct ibv_srq_init_attr init = { .attr = { .max_wr = BUFFERS, .max_sge = 2 } };
	struct ibv_srq_attr limit = { .srq_limit = 2 };
	struct ibv_qp *from, *a, *b;

	CHECK(srq = ibv_create_srq(pd, &init));
	from = make(NULL);
	a = make(srq);
	b = make(srq);
	FAILS(ibv_destroy_srq(srq), EBUSY);

	/* In turn, whoever needs one. */
	for (int i = 0; i < 4; i++)
		CHECK(!give(i));
	send_to(from, a, 'a', 8);
	received(a, 'a', 0, IBV_WC_SUCCESS);
	CHECK(!ibv_modify_srq(srq, &limit, IBV_SRQ_LIMIT));
	send_to(from, b, 'b', 8);
	received(b, 'b', 1, IBV_WC_SUCCESS);
	send_to(from, a, 'c', 8);
	received(a, 'c', 2, IBV_WC_SUCCESS);
	event(IBV_EVENT_SRQ_LIMIT_REACHED);
	send_to(a, b, 'd', 8);
	received(b, 'd', 3, IBV_WC_SUCCESS);

	/* None: dropped. Too long for the next one: dropped, and the buffer stays that queue pair's. */
	lose(from, a, 8);
	CHECK(!give(4));
	lose(from, a, BUFFER);
	CHECK(!give(5));
	send_to(from, b, 'g', 8);
	received(b, 'g', 5, IBV_WC_SUCCESS);
	send_to(from, a, 'h', 8);
	received(a, 'h', 4, IBV_WC_SUCCESS);

	/* What one holds is flushed when it fails, and is free again when it is reset or destroyed. */
	CHECK(!give(6));
	lose(from, a, BUFFER);
	move(a, IBV_QPS_ERR);
	received(a, 0, 6, IBV_WC_WR_FLUSH_ERR);
	event(IBV_EVENT_QP_LAST_WQE_REACHED);
	CHECK(!ibv_destroy_qp(a));
	for (int round = 0; round < 2; round++) {
		CHECK(!give(7));
		lose(from, b, BUFFER);
		move(b, IBV_QPS_RESET);
		for (int i = 0; i < BUFFERS; i++)
			CHECK(!give(i));
		FAILS(give(0), ENOMEM);
		CHECK(!ibv_destroy_qp(b));
		b = make(srq);
		for (int i = 0; i < BUFFERS; i++) {
			send_to(from, b, 'k', 8);
			received(b, 'k', i, IBV_WC_SUCCESS);
		}
	}
	CHECK(!ibv_destroy_qp(b) && !ibv_destroy_qp(from) && !ibv_destroy_srq(srq));
}

int main(void)
{
	int n = setenv("RNICD_DEVICE", "roce", 1);
	struct ibv_device **list = ibv_get_device_list(&n);
	struct ibv_ah_attr attr = { .port_num = 1, .is_global = 1, .grh = { .hop_limit = 64 } };

	CHECK(n == 1 && (context = ibv_open_device(list[0])) && (pd = ibv_alloc_pd(context)) &&
	      (cq = ibv_create_cq(context, 64, NULL, NULL, 0)));
	CHECK(memory = aligned_alloc(4096, MEMORY));
	CHECK(mr = ibv_reg_mr(pd, memory, MEMORY, IBV_ACCESS_LOCAL_WRITE));
	CHECK(!ibv_query_gid(context, 1, 0, &attr.grh.dgid));
	CHECK(self = ibv_create_ah(pd, &attr));
	shares();
	CHECK(!ibv_destroy_ah(self) && !ibv_dereg_mr(mr) && !ibv_destroy_cq(cq) && !ibv_dealloc_pd(pd) &&
	      !ibv_close_device(context));
	ibv_free_device_list(list);
	puts("all well");
	return 0;
}
