/*
 * Queue pairs by number, and one for datagrams, that threads move, post to and poll in no order at
 * all, without a word to each other; others that are destroyed while they connect; and children of
 * fork in between. Nothing is promised of what completes, but all calls return, and what is made
 * afterwards works. Arguments: seed, and how much each thread does.
 */
#include "walk.h"

#include <pthread.h>
#include <sys/wait.h>

enum { SHARED = 4, THREADS = 6, MEMORY_EACH = 4096 };

static struct ibv_context *context;
static struct ibv_pd *pd;
static struct ibv_cq *cq;
static struct ibv_qp *shared[SHARED];
static struct ibv_mr *mr;
static struct ibv_ah *ah;
static union ibv_gid gid;
static char memory[MEMORY_EACH];
static int rounds;

static struct ibv_qp *make(enum ibv_qp_type type, struct ibv_cq *to)
{
	struct ibv_qp_init_attr attr = {
		.send_cq = to, .recv_cq = to, .qp_type = type,
		.cap = { .max_send_wr = 8, .max_recv_wr = 8, .max_send_sge = 1, .max_recv_sge = 1 },
	};
	struct ibv_qp *qp = ibv_create_qp(pd, &attr);

	CHECK(qp);
	return qp;
}

static int move(struct ibv_qp *qp, enum ibv_qp_state to, uint32_t number)
{
	struct ibv_qp_attr a = {
		.qp_state = to, .port_num = 1, .path_mtu = IBV_MTU_1024, .dest_qp_num = number,
		.qp_access_flags = IBV_ACCESS_REMOTE_WRITE, .max_dest_rd_atomic = 1, .max_rd_atomic = 1,
		.min_rnr_timer = 1, .timeout = 14, .retry_cnt = 7, .rnr_retry = 2, .qkey = 1,
		.ah_attr = { .is_global = 1, .port_num = 1, .grh = { .dgid = gid } },
	};
	bool ud = qp->qp_type == IBV_QPT_UD;
	int mask = IBV_QP_STATE;

	if (to == IBV_QPS_INIT)
		mask |= IBV_QP_PKEY_INDEX | IBV_QP_PORT | (ud ? IBV_QP_QKEY : IBV_QP_ACCESS_FLAGS);
	else if (to == IBV_QPS_RTR && !ud)
		mask |= IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
			IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
	else if (to == IBV_QPS_RTS)
		mask |= IBV_QP_SQ_PSN | (ud ? 0 : IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
						   IBV_QP_MAX_QP_RD_ATOMIC);
	return ibv_modify_qp(qp, &a, mask);
}

static int receive(struct ibv_qp *qp, uint64_t id)
{
	struct ibv_sge s = { (uintptr_t)memory, sizeof memory, mr->lkey };
	struct ibv_recv_wr wr = { .wr_id = id, .sg_list = &s, .num_sge = 1 }, *bad;

	return ibv_post_recv(qp, &wr, &bad);
}

static int transmit(struct ibv_qp *qp, uint64_t id, struct ibv_qp *to)
{
	struct ibv_sge s = { (uintptr_t)memory, 64, mr->lkey };
	struct ibv_send_wr wr = { .wr_id = id, .sg_list = &s, .num_sge = 1, .opcode = IBV_WR_SEND,
				  .send_flags = IBV_SEND_SIGNALED }, *bad;

	if (qp->qp_type == IBV_QPT_UD) {
		wr.wr.ud.ah = ah;
		wr.wr.ud.remote_qpn = to->qp_num;
		wr.wr.ud.remote_qkey = 1;
	}
	return ibv_post_send(qp, &wr, &bad);
}

/* A queue pair that is destroyed while it connects, or is about to. */
static void passing(uint32_t chance)
{
	struct ibv_cq *own = ibv_create_cq(context, 16, NULL, NULL, 0);
	struct ibv_qp *qp;

	CHECK(own);
	qp = make(IBV_QPT_RC, own);
	CHECK(!move(qp, IBV_QPS_INIT, 0) && !receive(qp, 1));
	CHECK(!move(qp, IBV_QPS_RTR, chance & 1 ? shared[0]->qp_num : chance & 2 ? qp->qp_num : 77));
	if (chance & 4)
		CHECK(!move(qp, IBV_QPS_RTS, 0) && !transmit(qp, 2, qp));
	if (chance & 8)
		CHECK(!move(qp, IBV_QPS_RESET, 0));
	CHECK(!ibv_destroy_qp(qp) && !ibv_destroy_cq(own));
}

/* A child of fork has no part in them. */
static void child(void)
{
	int status;
	pid_t pid = fork();

	if (!pid)
		_exit(!move(shared[0], IBV_QPS_ERR, 0) || !receive(shared[1], 1) ||
		      !transmit(shared[1], 1, shared[0]));
	CHECK(pid > 0 && waitpid(pid, &status, 0) == pid && !status);
}

static void *worker(void *seed)
{
	static const enum ibv_qp_state states[] = { IBV_QPS_RESET, IBV_QPS_INIT, IBV_QPS_RTR, IBV_QPS_RTS,
						    IBV_QPS_ERR, IBV_QPS_INIT, IBV_QPS_RTR, IBV_QPS_RTS };
	unsigned int r = (unsigned int)(uintptr_t)seed;
	struct ibv_wc wc[4];

	for (int i = 0; i < rounds; i++) {
		int which = rand_r(&r) % SHARED;
		struct ibv_qp *qp = shared[which], *other = shared[which ^ 1];

		switch (rand_r(&r) % 16) {
		case 0:
			passing((uint32_t)rand_r(&r));
			break;
		case 1:
			if (i % 8 == 0)
				child();
			break;
		case 2: case 3: case 4: case 5:
			receive(qp, (uint64_t)i);
			break;
		case 6: case 7: case 8: case 9:
			transmit(qp, (uint64_t)i, shared[SHARED - 1]);
			break;
		case 10: case 11:
			CHECK(ibv_poll_cq(cq, 4, wc) >= 0);
			break;
		default:
			move(qp, states[rand_r(&r) % 8], other->qp_num);
		}
	}
	return NULL;
}

/* Two queue pairs as they are meant to be used. */
static void converse(void)
{
	struct ibv_qp *a = make(IBV_QPT_RC, cq), *b = make(IBV_QPT_RC, cq);
	struct ibv_wc wc;

	CHECK(!move(a, IBV_QPS_INIT, 0) && !move(b, IBV_QPS_INIT, 0) && !receive(b, 1));
	CHECK(!move(a, IBV_QPS_RTR, b->qp_num) && !move(b, IBV_QPS_RTR, a->qp_num));
	CHECK(!move(a, IBV_QPS_RTS, 0) && !transmit(a, 2, b));
	for (int n = 0; n < 2;) {
		if (ibv_poll_cq(cq, 1, &wc) == 0)
			continue;
		CHECK(wc.status == IBV_WC_SUCCESS);
		n++;
	}
	CHECK(!ibv_destroy_qp(a) && !ibv_destroy_qp(b));
}

int main(int argc, char **argv)
{
	unsigned int seed = argc > 1 ? (unsigned int)atoi(argv[1]) : 1;
	struct ibv_ah_attr to = { .is_global = 1, .port_num = 1 };
	struct ibv_device **list;
	pthread_t threads[THREADS];

	rounds = argc > 2 ? atoi(argv[2]) : 2000;
	CHECK(list = ibv_get_device_list(NULL));
	CHECK(context = ibv_open_device(list[0]));
	CHECK(pd = ibv_alloc_pd(context));
	CHECK(!ibv_query_gid(context, 1, 0, &gid));
	to.grh.dgid = gid;
	CHECK(ah = ibv_create_ah(pd, &to));
	CHECK(mr = ibv_reg_mr(pd, memory, sizeof memory, IBV_ACCESS_LOCAL_WRITE));
	CHECK(cq = ibv_create_cq(context, 256, NULL, NULL, 0));
	for (int i = 0; i < SHARED; i++)
		shared[i] = make(i == SHARED - 1 ? IBV_QPT_UD : IBV_QPT_RC, cq);
	for (int i = 0; i < THREADS; i++)
		CHECK(!pthread_create(&threads[i], NULL, worker, (void *)(uintptr_t)(seed + (unsigned)i)));
	for (int i = 0; i < THREADS; i++)
		CHECK(!pthread_join(threads[i], NULL));
	for (int i = 0; i < SHARED; i++)
		CHECK(!ibv_destroy_qp(shared[i]));
	converse();
	puts("all well");
	return 0;
}
