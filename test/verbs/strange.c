/*
 * A queue pair that is moved to RTR towards a GID and a number of which this program knows nothing,
 * as argv has them, with the codes of timeout and retry_cnt: what becomes of two requests and a
 * receive buffer, after how many milliseconds, and which events there are.
 */
#include "walk.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <time.h>

static struct ibv_context *context;

static long now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

static union ibv_gid gid_of(const char *text)
{
	union ibv_gid g = { .raw = { [10] = 0xff, 0xff } };

	if (inet_pton(AF_INET, text, g.raw + 12) != 1)
		CHECK(inet_pton(AF_INET6, text, g.raw) == 1);
	return g;
}

static struct ibv_qp *queue_pair(struct ibv_pd *pd, struct ibv_cq *cq)
{
	struct ibv_qp_init_attr attr = {
		.cap = { .max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1 },
		.qp_type = IBV_QPT_RC, .send_cq = cq, .recv_cq = cq,
	};
	struct ibv_qp *qp = ibv_create_qp(pd, &attr);

	if (!qp) {
		printf("no queue pair: %s\n", strerror(errno));
		exit(2);
	}
	return qp;
}

static void begin(struct ibv_qp *qp, char **argv)
{
	struct ibv_qp_attr a = { .qp_state = IBV_QPS_INIT, .port_num = 1 };
	int error;

	CHECK(!ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
					     IBV_QP_ACCESS_FLAGS));
	a = (struct ibv_qp_attr){
		.qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_1024, .min_rnr_timer = 12,
		.dest_qp_num = (uint32_t)strtoul(argv[2], NULL, 0),
		.ah_attr = { .is_global = 1, .port_num = 1, .grh = { .dgid = gid_of(argv[1]) } },
	};
	CHECK(!ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
					     IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC |
					     IBV_QP_MIN_RNR_TIMER));
	a = (struct ibv_qp_attr){ .qp_state = IBV_QPS_RTS, .timeout = (uint8_t)atoi(argv[3]),
				  .retry_cnt = (uint8_t)atoi(argv[4]), .rnr_retry = 7 };
	error = ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
					      IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
					      IBV_QP_MAX_QP_RD_ATOMIC);
	if (error) { /* it has failed already */
		struct ibv_qp_init_attr init;

		CHECK(error == EINVAL && !ibv_query_qp(qp, &a, IBV_QP_STATE, &init));
		CHECK(a.qp_state == IBV_QPS_ERR);
	}
}

int main(int argc, char **argv)
{
	static char memory[64];
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_async_event e;
	struct ibv_sge s;
	struct ibv_send_wr send = { .sg_list = &s, .num_sge = 1, .opcode = IBV_WR_SEND,
				    .send_flags = IBV_SEND_SIGNALED }, *bad_send;
	struct ibv_recv_wr recv = { .wr_id = 9, .sg_list = &s, .num_sge = 1 }, *bad_recv;
	struct ibv_mr *mr;
	struct ibv_pd *pd;
	struct ibv_cq *cq;
	struct ibv_qp *qp;
	struct ibv_wc wc;
	long start;

	CHECK(argc == 5 && list && (context = ibv_open_device(list[0])));
	CHECK((pd = ibv_alloc_pd(context)) && (cq = ibv_create_cq(context, 8, NULL, NULL, 0)));
	CHECK(mr = ibv_reg_mr(pd, memory, sizeof memory, IBV_ACCESS_LOCAL_WRITE));
	s = (struct ibv_sge){ (uintptr_t)memory, 16, mr->lkey };
	qp = queue_pair(pd, cq);
	start = now_ms();
	begin(qp, argv);
	CHECK(!ibv_post_recv(qp, &recv, &bad_recv));
	for (send.wr_id = 0; send.wr_id < 2; send.wr_id++)
		CHECK(!ibv_post_send(qp, &send, &bad_send));
	for (int n = 0; n < 3; n++) {
		int got;

		while (!(got = ibv_poll_cq(cq, 1, &wc)))
			;
		CHECK(got == 1);
		printf("wr_id %d: %s\n", (int)wc.wr_id, ibv_wc_status_str(wc.status));
		if (!wc.wr_id)
			printf("after %ld ms\n", now_ms() - start);
	}
	CHECK(!fcntl(context->async_fd, F_SETFL, O_NONBLOCK));
	while (!ibv_get_async_event(context, &e)) {
		CHECK(e.element.qp == qp);
		printf("event: %s\n", ibv_event_type_str(e.event_type));
		ibv_ack_async_event(&e);
	}
	CHECK(!ibv_destroy_qp(qp) && !ibv_destroy_cq(cq) && !ibv_dereg_mr(mr) && !ibv_dealloc_pd(pd));
	CHECK(!ibv_close_device(context));
	printf("all well\n");
	return 0;
}
