/* Walks the verbs call by call, with the errors that the manual pages name. */
#include "walk.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>

static void objects(void)
{
	int n;
	struct ibv_device **list = ibv_get_device_list(&n);
	struct ibv_device_attr attr;
	struct ibv_port_attr port;
	union ibv_gid gid;
	struct ibv_context *c;
	struct ibv_pd *pd;
	struct ibv_mr *mr;
	struct ibv_cq *cq;
	struct ibv_qp *qp;
	struct ibv_qp_init_attr init = { .qp_type = IBV_QPT_RC, .cap = { 4, 4, 1, 1, 0 } };
	struct ibv_cq_init_attr_ex overrun = { .cqe = 4,
					       .comp_mask = IBV_CQ_INIT_ATTR_MASK_FLAGS,
					       .flags = IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN };
	struct ibv_qp_attr move = { .qp_state = IBV_QPS_INIT };
	char memory[100];

	CHECK(n == 1 && list[0] && !list[1]);
	CHECK(!strcmp(ibv_get_device_name(list[0]), "rnicd0") && ibv_get_device_guid(list[0]));
	CHECK(c = ibv_open_device(list[0]));
	ibv_free_device_list(list);
	CHECK(!ibv_query_device(c, &attr) && attr.max_qp > 0 && attr.phys_port_cnt == 1);
	CHECK(!ibv_query_port(c, 1, &port) && port.state == IBV_PORT_ACTIVE &&
	      port.link_layer == IBV_LINK_LAYER_ETHERNET);
	FAILS(ibv_query_port(c, 2, &port), EINVAL);
	CHECK(!ibv_query_gid(c, 1, 0, &gid));
	FAILS(ibv_query_gid(c, 1, 99, &gid), EINVAL);

	CHECK(pd = ibv_alloc_pd(c));
	CHECK(mr = ibv_reg_mr(pd, memory, sizeof memory, IBV_ACCESS_LOCAL_WRITE));
	CHECK(mr->addr == memory && mr->length == sizeof memory && mr->lkey && mr->pd == pd);
	FAILS(ibv_dealloc_pd(pd), EBUSY);
	FAILS(!ibv_reg_mr(pd, memory, sizeof memory, IBV_ACCESS_REMOTE_WRITE) - 1,
	      EINVAL); /* not without local write */
	FAILS(!ibv_reg_mr(pd, (void *)4096, 4096, IBV_ACCESS_LOCAL_WRITE) - 1, EFAULT);
	CHECK(!ibv_dereg_mr(mr));

	CHECK(attr.device_cap_flags & IBV_DEVICE_MEM_WINDOW_TYPE_2B &&
	      !(attr.device_cap_flags & IBV_DEVICE_MEM_WINDOW_TYPE_2A));
	CHECK(!ibv_create_cq_ex(c, &overrun) && errno == EOPNOTSUPP);
	CHECK(ibv_rate_to_mbps(IBV_RATE_10_GBPS) == 10000 &&
	      mbps_to_ibv_rate(10000) == IBV_RATE_10_GBPS && ibv_rate_to_mbps(99) == -1);
	CHECK(ibv_rate_to_mult(IBV_RATE_10_GBPS) == 4 && mult_to_ibv_rate(4) == IBV_RATE_10_GBPS &&
	      mult_to_ibv_rate(3) == IBV_RATE_MAX);
	FAILS(!ibv_create_cq(c, 0, NULL, NULL, 0) - 1, EINVAL);
	FAILS(!ibv_create_cq(c, 10, NULL, NULL, 1) - 1, EINVAL);
	CHECK((cq = ibv_create_cq(c, 10, &n, NULL, 0)) && cq->cqe >= 10 && cq->cq_context == &n);
	init.send_cq = init.recv_cq = cq;
	init.qp_type = IBV_QPT_UD;
	FAILS(!ibv_create_qp(pd, &init) - 1, EOPNOTSUPP);
	init.qp_type = IBV_QPT_RC;
	init.cap.max_send_wr = 1 << 20;
	FAILS(!ibv_create_qp(pd, &init) - 1, EINVAL);
	init.cap.max_send_wr = 4;
	CHECK((qp = ibv_create_qp(pd, &init)) && qp->qp_num && qp->state == IBV_QPS_RESET);
	FAILS(ibv_destroy_cq(cq), EBUSY);
	FAILS(ibv_dealloc_pd(pd), EBUSY);
	CHECK(!ibv_modify_qp(qp, &move, IBV_QP_STATE) && qp->state == IBV_QPS_INIT);
	move.qp_state = IBV_QPS_ERR;
	CHECK(!ibv_modify_qp(qp, &move, IBV_QP_STATE) && qp->state == IBV_QPS_ERR);
	move.qp_state = IBV_QPS_INIT;
	FAILS(ibv_modify_qp(qp, &move, IBV_QP_STATE), EINVAL);
	CHECK(!ibv_destroy_qp(qp));
	CHECK(!ibv_destroy_cq(cq));
	CHECK(!ibv_dealloc_pd(pd));
	CHECK(!ibv_create_ah(NULL, NULL) && errno == EOPNOTSUPP);
	CHECK(!ibv_close_device(c));
}

static void messages(struct pair *p)
{
	struct end *c = &p->client, *s = &p->server;
	struct ibv_sge sge, list[4];
	struct ibv_send_wr wr;
	struct ibv_wc wc;

	/* Send: gathered here, scattered nowhere; inline; too long for what was asked */
	post_recv(s, 1, 0, 100);
	strcpy(c->memory, "one two ");
	wr = request(c, &sge, IBV_WR_SEND, 4);
	for (int i = 0; i < 4; i++)
		list[i] = (struct ibv_sge){ .addr = (uintptr_t)c->memory + 4 * (i % 2),
					    .length = 4,
					    .lkey = c->mr->lkey };
	wr.sg_list = list;
	wr.num_sge = 4;
	CHECK(!post(c, &wr));
	wc = await(c);
	CHECK(wc.status == IBV_WC_SUCCESS && wc.opcode == IBV_WC_SEND && wc.wr_id == 99);
	wc = await(s);
	CHECK(wc.status == IBV_WC_SUCCESS && wc.opcode == IBV_WC_RECV && wc.wr_id == 1 &&
	      wc.byte_len == 16 && wc.qp_num == s->id->qp->qp_num);
	CHECK(!memcmp(s->memory, "one two one two ", 16));
	wr.num_sge = 5;
	FAILS(post(c, &wr), EINVAL);
	post_recv(s, 2, 0, 100);
	wr = request(c, &sge, IBV_WR_SEND, 100);
	sge = (struct ibv_sge){ .addr = (uintptr_t) "inline, of memory that is not registered",
				.length = 40 };
	wr.send_flags |= IBV_SEND_INLINE;
	CHECK(!post(c, &wr));
	CHECK(await(c).status == IBV_WC_SUCCESS && await(s).byte_len == 40 &&
	      !memcmp(s->memory, "inline, of", 10));
	sge.length = 129;
	FAILS(post(c, &wr), EINVAL);
	for (enum ibv_wr_opcode op = IBV_WR_RDMA_WRITE; op <= IBV_WR_DRIVER1 + 1; op++) {
		wr = request(c, &sge, op, 8);
		if (op == IBV_WR_SEND_WITH_IMM || op == IBV_WR_BIND_MW || op > IBV_WR_SEND_WITH_INV)
			FAILS(post(c, &wr), EINVAL); /* at posting, not later */
	}

	/* Write, Write with immediate data, Read, atomics */
	strcpy(c->memory, "written");
	wr = request(c, &sge, IBV_WR_RDMA_WRITE, 8);
	wr.wr.rdma.remote_addr = (uintptr_t)s->memory + 1000;
	wr.wr.rdma.rkey = s->mr->rkey;
	CHECK(!post(c, &wr) && await(c).opcode == IBV_WC_RDMA_WRITE);
	post_recv(s, 3, 0, 100);
	wr.opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
	wr.imm_data = htonl(0x12345678);
	wr.wr.rdma.remote_addr += 1000;
	CHECK(!post(c, &wr));
	wc = await(c);
	CHECK(wc.status == IBV_WC_SUCCESS && wc.opcode == IBV_WC_RDMA_WRITE && wc.wr_id == 99);
	wc = await(s);
	CHECK(wc.opcode == IBV_WC_RECV_RDMA_WITH_IMM && wc.wc_flags == IBV_WC_WITH_IMM &&
	      wc.imm_data == htonl(0x12345678));
	CHECK(wc.wr_id == 3 && wc.byte_len == 8);
	CHECK(!strcmp(s->memory + 1000, "written") && !strcmp(s->memory + 2000, "written"));
	strcpy(s->memory + 3000, "to be read");
	wr = request(c, &sge, IBV_WR_RDMA_READ, 11);
	wr.wr.rdma.remote_addr = (uintptr_t)s->memory + 3000;
	wr.wr.rdma.rkey = s->mr->rkey;
	CHECK(!post(c, &wr));
	wc = await(c);
	CHECK(wc.status == IBV_WC_SUCCESS && wc.opcode == IBV_WC_RDMA_READ &&
	      !strcmp(c->memory, "to be read"));
	*(uint64_t *)(s->memory + 4096) = 40;
	wr = request(c, &sge, IBV_WR_ATOMIC_FETCH_AND_ADD, 8);
	wr.wr.atomic.remote_addr = (uintptr_t)s->memory + 4096;
	wr.wr.atomic.rkey = s->mr->rkey;
	wr.wr.atomic.compare_add = 2;
	CHECK(!post(c, &wr) && await(c).opcode == IBV_WC_FETCH_ADD);
	CHECK(*(uint64_t *)c->memory == 40 && *(uint64_t *)(s->memory + 4096) == 42);
	wr.opcode = IBV_WR_ATOMIC_CMP_AND_SWP;
	wr.wr.atomic.compare_add = 42;
	wr.wr.atomic.swap = 7;
	CHECK(!post(c, &wr) && await(c).opcode == IBV_WC_COMP_SWAP);
	CHECK(*(uint64_t *)c->memory == 42 && *(uint64_t *)(s->memory + 4096) == 7);
}

/* A region whose rights change keeps the address that peers know it by. */
static void address_kept(struct pair *p)
{
	struct end *c = &p->client, *s = &p->server;
	struct ibv_mr *mr =
		ibv_reg_mr_iova(s->id->pd, s->memory + 8192, 100, 0x10000, IBV_ACCESS_LOCAL_WRITE);
	struct ibv_sge sge;
	struct ibv_send_wr wr = request(c, &sge, IBV_WR_RDMA_READ, 8);

	strcpy(s->memory + 8192, "by iova");
	CHECK(mr && !ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0, IBV_ACCESS_REMOTE_READ));
	wr.wr.rdma.remote_addr = 0x10000;
	wr.wr.rdma.rkey = mr->rkey;
	CHECK(!post(c, &wr) && await(c).status == IBV_WC_SUCCESS && !strcmp(c->memory, "by iova"));
	CHECK(!ibv_dereg_mr(mr));
}

/* A window of type 1 grants its range by a key of its own, until it is bound again, or freed; the
 * region stays meanwhile. */
static void windows(struct pair *p)
{
	struct end *c = &p->client, *s = &p->server;
	struct ibv_mr *mr = ibv_reg_mr(s->id->pd, s->memory + 8192, 4096,
				       IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND);
	struct ibv_mw_bind bind = { .wr_id = 77, .send_flags = IBV_SEND_SIGNALED };
	struct ibv_sge sge;
	struct ibv_send_wr wr = request(c, &sge, IBV_WR_RDMA_READ, 8);
	struct ibv_mw *mw;
	struct ibv_wc wc;
	uint32_t key;

	FAILS(!ibv_alloc_mw(s->id->pd, 3) - 1, EINVAL);
	CHECK(mr && (mw = ibv_alloc_mw(s->id->pd, IBV_MW_TYPE_1)));
	key = mw->rkey;
	bind.bind_info = (struct ibv_mw_bind_info){ .mr = mr,
						    .addr = (uintptr_t)mr->addr + 4000,
						    .length = 97,
						    .mw_access_flags = IBV_ACCESS_REMOTE_READ };
	FAILS(ibv_bind_mw(s->id->qp, mw, &bind), EINVAL); /* one octet too far */
	bind.bind_info.length = 96;
	bind.bind_info.mr = s->mr;
	FAILS(ibv_bind_mw(s->id->qp, mw, &bind), EINVAL); /* without IBV_ACCESS_MW_BIND */
	CHECK(mw->rkey == key);
	bind.bind_info.mr = mr;
	CHECK(!ibv_bind_mw(s->id->qp, mw, &bind) && mw->rkey != key);
	wc = await(s);
	CHECK(wc.status == IBV_WC_SUCCESS && wc.opcode == IBV_WC_BIND_MW && wc.wr_id == 77);
	FAILS(ibv_dereg_mr(mr), EBUSY);
	FAILS(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0, 0) + 1, EBUSY);
	strcpy(s->memory + 8192 + 4000, "through");
	wr.wr.rdma.remote_addr = bind.bind_info.addr;
	wr.wr.rdma.rkey = mw->rkey;
	CHECK(!post(c, &wr) && await(c).status == IBV_WC_SUCCESS && !strcmp(c->memory, "through"));
	key = mw->rkey;
	bind.bind_info.length = 0;
	bind.send_flags = 0;
	CHECK(!ibv_bind_mw(s->id->qp, mw, &bind) && !ibv_dereg_mr(mr) && !ibv_dealloc_mw(mw));
	wr.wr.rdma.rkey = key;
	CHECK(!post(c, &wr) &&
	      await(c).status == IBV_WC_REM_ACCESS_ERR); /* and that is the end of the connection */
}

/* A region may get other memory, another domain, other rights, and keys with them. */
static void reregister(void)
{
	int n;
	struct ibv_device **list = ibv_get_device_list(&n);
	struct ibv_context *c = ibv_open_device(list[0]);
	struct ibv_pd *pd = ibv_alloc_pd(c), *other = ibv_alloc_pd(c);
	static char one[100], two[200];
	struct ibv_mr *mr = ibv_reg_mr(pd, one, sizeof one, IBV_ACCESS_LOCAL_WRITE);
	uint32_t key = mr->lkey;

	ibv_free_device_list(list);
	FAILS(ibv_rereg_mr(mr, 1 << 10, NULL, NULL, 0, 0) + 1, EINVAL);
	FAILS(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_TRANSLATION, NULL, two, 0, 0) + 1, EINVAL);
	FAILS(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_TRANSLATION, NULL, two, 200,
			   IBV_ACCESS_LOCAL_WRITE) +
		      1,
	      EINVAL);
	FAILS(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0, IBV_ACCESS_REMOTE_WRITE) +
		      1,
	      EINVAL);
	FAILS(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_TRANSLATION, NULL, (void *)4096, 4096, 0) + 1, EFAULT);
	CHECK(mr->lkey == key && mr->addr == one && mr->pd == pd);
	CHECK(!ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_TRANSLATION | IBV_REREG_MR_CHANGE_PD, other,
			    two, sizeof two, 0));
	CHECK(mr->lkey != key && mr->addr == two && mr->length == sizeof two && mr->pd == other);
	CHECK(!ibv_dealloc_pd(pd));
	FAILS(ibv_dealloc_pd(other), EBUSY);
	CHECK(!ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0, IBV_ACCESS_REMOTE_READ));
	CHECK(!ibv_dereg_mr(mr) && !ibv_dealloc_pd(other) && !ibv_close_device(c));
}

/* As many requests as the queue has room for, and then ENOMEM; unsignaled ones give room back when
 * a later one was polled. */
static void full(struct pair *p)
{
	struct end *c = &p->client, *s = &p->server;
	struct ibv_sge sge;
	struct ibv_send_wr wr = request(c, &sge, IBV_WR_RDMA_WRITE, 8);
	int posted = 0;

	wr.wr.rdma.remote_addr = (uintptr_t)s->memory;
	wr.wr.rdma.rkey = s->mr->rkey;
	wr.send_flags = 0;
	while (!post(c, &wr))
		CHECK(++posted <= 16);
	CHECK(posted == 16);
	FAILS(post(c, &wr), ENOMEM);
	/* nothing is signaled: as with adapters, the queue stays full */
	for (int i = 0; i < 16; i++) {
		struct ibv_sge r = { .addr = (uintptr_t)c->memory, .length = 8, .lkey = c->mr->lkey };
		struct ibv_recv_wr rw = { .wr_id = i, .sg_list = &r, .num_sge = 1 }, *bad;

		CHECK(!ibv_post_recv(c->id->qp, &rw, &bad));
		if (i == 15)
			FAILS(ibv_post_recv(c->id->qp, &rw, &bad), ENOMEM);
	}
}

static void events(struct pair *p)
{
	struct end *c = &p->client, *s = &p->server;
	struct ibv_sge sge;
	struct ibv_send_wr wr = request(c, &sge, IBV_WR_SEND, 8);
	struct ibv_cq *cq;
	void *context;

	post_recv(s, 1, 0, 100);
	CHECK(!told(s->channel));
	CHECK(!ibv_req_notify_cq(s->cq, 0));
	CHECK(!post(c, &wr) && await(c).status == IBV_WC_SUCCESS);
	CHECK(!ibv_get_cq_event(s->channel, &cq, &context) && cq == s->cq && context == s);
	ibv_ack_cq_events(cq, 1);
	CHECK(!ibv_req_notify_cq(s->cq, 1)); /* solicited only; and not for the one that is there */
	CHECK(!told(s->channel));
	CHECK(await(s).byte_len == 8);
	post_recv(s, 2, 0, 100);
	CHECK(!post(c, &wr) && await(c).status == IBV_WC_SUCCESS && await(s).wr_id == 2);
	CHECK(!told(s->channel));
	post_recv(s, 3, 0, 100);
	wr.send_flags |= IBV_SEND_SOLICITED;
	CHECK(!post(c, &wr) && await(c).status == IBV_WC_SUCCESS);
	CHECK(!ibv_get_cq_event(s->channel, &cq, &context));
	ibv_ack_cq_events(cq, 1);
	CHECK(await(s).wr_id == 3);

	/* of a Write a queue for receives is not told; it is there when a Read after it is answered */
	CHECK(!ibv_req_notify_cq(s->cq, 0));
	wr = request(c, &sge, IBV_WR_RDMA_WRITE, 8);
	wr.wr.rdma.remote_addr = (uintptr_t)s->memory;
	wr.wr.rdma.rkey = s->mr->rkey;
	CHECK(!post(c, &wr) && await(c).status == IBV_WC_SUCCESS);
	wr.opcode = IBV_WR_RDMA_READ;
	CHECK(!post(c, &wr) && await(c).status == IBV_WC_SUCCESS && !told(s->channel));
}

/* Access that the peer did not grant ends the connection; what is posted is flushed, and so is what
 * is posted afterwards. */
static void errors(void)
{
	struct pair p;
	struct ibv_sge sge;
	struct ibv_send_wr wr;
	struct ibv_qp_attr attr;
	struct ibv_qp_init_attr init;
	struct ibv_wc wc;

	connect_pair(&p, 0);
	post_recv(&p.client, 5, 0, 100);
	wr = request(&p.client, &sge, IBV_WR_RDMA_READ, 8);
	wr.wr.rdma.remote_addr = (uintptr_t)p.server.memory;
	wr.wr.rdma.rkey = p.server.mr->rkey ^ 0x5a5a;
	CHECK(!post(&p.client, &wr));
	wc = await(&p.client);
	CHECK(wc.status == IBV_WC_REM_ACCESS_ERR && wc.wr_id == 99);
	wc = await(&p.client);
	CHECK(wc.status == IBV_WC_WR_FLUSH_ERR && wc.wr_id == 5);
	events_are(&p, IBV_EVENT_QP_FATAL, IBV_EVENT_QP_ACCESS_ERR);
	CHECK(!post(&p.client, &wr) && await(&p.client).status == IBV_WC_WR_FLUSH_ERR);
	post_recv(&p.client, 6, 0, 100);
	CHECK(await(&p.client).wr_id == 6);
	CHECK(!ibv_query_qp(p.client.id->qp, &attr, IBV_QP_STATE, &init) && attr.qp_state == IBV_QPS_ERR);
	close_ended(&p);
}

/* Loopback is the device's for an id with a channel, and nobody's, as on Linux, for a synchronous
 * one, by which libfabric looks for an address. */
static void loopback(struct rdma_event_channel *ch)
{
	struct sockaddr_in here = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	struct rdma_cm_id *id;

	CHECK(!rdma_create_id(ch, &id, NULL, RDMA_PS_TCP));
	CHECK(!rdma_bind_addr(id, (struct sockaddr *)&here) && id->verbs && !rdma_destroy_id(id));
	CHECK(!rdma_create_id(NULL, &id, NULL, RDMA_PS_TCP));
	CHECK(!rdma_bind_addr(id, (struct sockaddr *)&here) && !id->verbs && !rdma_destroy_id(id));
}

static void refused(void)
{
	struct sockaddr_in nobody = { .sin_family = AF_INET,
				      .sin_addr.s_addr = htonl(INADDR_LOOPBACK),
				      .sin_port = htons(9) };
	struct sockaddr_in foreign = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(0xc0000201) };
	struct rdma_event_channel *ch = rdma_create_event_channel();
	struct rdma_conn_param param = { 0 };
	struct rdma_cm_id *id;
	struct ibv_qp_init_attr attr = { .cap = { 1, 1, 1, 1, 0 }, .qp_type = IBV_QPT_RC };

	FAILS(rdma_create_id(ch, &id, NULL, RDMA_PS_UDP), EOPNOTSUPP);
	CHECK(!rdma_create_id(ch, &id, NULL, RDMA_PS_TCP));
	FAILS(rdma_bind_addr(id, (struct sockaddr *)&foreign), EADDRNOTAVAIL);
	loopback(ch);
	FAILS(rdma_connect(id, &param), EINVAL);
	CHECK(!rdma_resolve_addr(id, NULL, (struct sockaddr *)&nobody, 1000));
	CHECK(!id->verbs); /* whoever takes the event, in whatever thread, has the device from then on */
	rdma_ack_cm_event(event_of(ch, RDMA_CM_EVENT_ADDR_RESOLVED));
	CHECK(id->verbs && id->pd && id->port_num == 1 &&
	      id->route.addr.src_sin.sin_addr.s_addr == htonl(INADDR_LOOPBACK));
	CHECK(!rdma_create_qp(id, NULL, &attr));
	CHECK(!rdma_connect(id, &param));
	rdma_ack_cm_event(event_of(ch, RDMA_CM_EVENT_REJECTED));
	rdma_destroy_qp(id);
	CHECK(!rdma_destroy_id(id));
	fcntl(ch->fd, F_SETFL, O_NONBLOCK);
	FAILS(rdma_get_cm_event(ch, (struct rdma_cm_event *[]){ NULL }), EAGAIN);
	rdma_destroy_event_channel(ch);
}

/* An id may have one completion queue and one channel for both directions, as rsockets make it; and
 * the channel of one that waits is not among the low descriptors. */
static void one_queue(void)
{
	struct sockaddr_in nobody = { .sin_family = AF_INET,
				      .sin_addr.s_addr = htonl(INADDR_LOOPBACK),
				      .sin_port = htons(9) };
	struct ibv_qp_init_attr attr = { .cap = { 1, 1, 1, 1, 0 }, .qp_type = IBV_QPT_RC };
	struct rdma_cm_id *id;

	CHECK(!rdma_create_id(NULL, &id, NULL, RDMA_PS_TCP) && id->channel->fd >= 512);
	CHECK(!rdma_resolve_addr(id, NULL, (struct sockaddr *)&nobody, 1000));
	CHECK(id->send_cq_channel = id->recv_cq_channel = ibv_create_comp_channel(id->verbs));
	CHECK(id->send_cq = id->recv_cq = ibv_create_cq(id->verbs, 2, id, id->recv_cq_channel, 0));
	attr.send_cq = attr.recv_cq = id->recv_cq;
	CHECK(!rdma_create_qp(id, NULL, &attr));
	rdma_destroy_qp(id);
	CHECK(!id->send_cq && !id->recv_cq_channel);
	CHECK(!rdma_destroy_id(id));
}

/* A listener of all IPv6 addresses leaves IPv4 to another, if it is told to. */
static void two_families(void)
{
	struct sockaddr_in any = { .sin_family = AF_INET };
	struct sockaddr_in6 any6 = { .sin6_family = AF_INET6 };
	struct rdma_event_channel *ch = rdma_create_event_channel();
	struct rdma_cm_id *four, *both, *six;
	int only = 1;

	CHECK(!rdma_create_id(ch, &four, NULL, RDMA_PS_TCP) &&
	      !rdma_create_id(ch, &both, NULL, RDMA_PS_TCP));
	CHECK(!rdma_create_id(ch, &six, NULL, RDMA_PS_TCP));
	CHECK(!rdma_bind_addr(four, (struct sockaddr *)&any) && !rdma_listen(four, 1));
	any6.sin6_port = rdma_get_src_port(four);
	FAILS(rdma_bind_addr(both, (struct sockaddr *)&any6), EADDRINUSE);
	FAILS(rdma_set_option(six, RDMA_OPTION_ID, RDMA_OPTION_ID_AFONLY, &only, 1), EINVAL);
	CHECK(!rdma_set_option(six, RDMA_OPTION_ID, RDMA_OPTION_ID_AFONLY, &only, sizeof only));
	CHECK(!rdma_bind_addr(six, (struct sockaddr *)&any6) && !rdma_listen(six, 1));
	FAILS(rdma_set_option(six, RDMA_OPTION_ID, RDMA_OPTION_ID_AFONLY, &only, sizeof only), EINVAL);
	CHECK(!rdma_destroy_id(four) && !rdma_destroy_id(both) && !rdma_destroy_id(six));
	rdma_destroy_event_channel(ch);
}

/* A child of fork has no engine: its calls fail, and the parent does not notice. */
static void forked(void)
{
	struct pair p;
	int status;
	pid_t child;

	connect_pair(&p, 0);
	child = fork();
	if (child == 0) {
		FAILS(!ibv_alloc_pd(p.client.id->verbs) - 1, EPERM);
		_exit(0);
	}
	CHECK(waitpid(child, &status, 0) == child && status == 0);
	messages(&p);
	close_pair(&p);
}

static volatile sig_atomic_t alarms, strange;
static pid_t ours;

static void on_alarm(int sig)
{
	(void)sig;
	alarms++;
	if (syscall(SYS_gettid) != ours)
		strange++;
}

int main(void)
{
	struct sigaction act = { .sa_handler = on_alarm, .sa_flags = SA_RESTART };
	struct itimerval often = { { 0, 1000 }, { 0, 1000 } };
	struct pair p;

	/* a handler of ours runs on no thread of the engine, which is loaded in here */
	ours = getpid();
	sigaction(SIGALRM, &act, NULL);
	setitimer(ITIMER_REAL, &often, NULL);
	objects();
	for (int i = 0; i < 3; i++) {
		connect_pair(&p, i == 1 ? WITH_SRQ : 0);
		messages(&p);
		address_kept(&p);
		events(&p);
		close_pair(&p);
	}
	connect_pair(&p, 0);
	full(&p);
	close_pair(&p);
	connect_pair(&p, 0);
	windows(&p);
	rdma_ack_cm_event(event_of(p.events, RDMA_CM_EVENT_DISCONNECTED));
	rdma_ack_cm_event(event_of(p.events, RDMA_CM_EVENT_DISCONNECTED));
	close_end(&p.client);
	close_end(&p.server);
	CHECK(!rdma_destroy_id(p.listener));
	rdma_destroy_event_channel(p.events);
	credit();
	startup();
	places();
	grow();
	grow_under_way();
	late();
	unread();
	requests();
	depths();
	reregister();
	errors();
	refused();
	one_queue();
	two_families();
	forked();
	CHECK(!strange);
	printf("all well\n");
	return 0;
}
