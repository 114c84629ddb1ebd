/*
 * probe: one RDMA connection of librdmacm's, whose events, private data and messages are printed.
 *
 *   probe listen PORT accept|reject [PRIVATE [IRD ORD]]
 *   probe connect ADDR PORT [PRIVATE [IRD ORD [MESSAGE]]]
 *
 * PRIVATE and MESSAGE are in hex, "-" for none. A listener serves one connection: it sends back
 * every message, and shows in the end what was written into its region. A client sends MESSAGE, if
 * there is one, waits for an answer and disconnects.
 */
#include <arpa/inet.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <rdma/rdma_cma.h>
#include <rdma/rdma_verbs.h>

enum { BUFS = 16, BUF = 4096, REGION = 65536, SHOWN = 64, PATIENCE_MS = 30000 };

static struct rdma_event_channel *events;
static struct rdma_cm_id *id;
static struct ibv_mr *bufs_mr, *region_mr;
static char bufs[BUFS * 2][BUF]; /* to receive into, and after them to send from */
static char region[REGION];
static unsigned char private_data[512], message[BUF];
static int private_len, message_len, sent;

static void die(const char *what)
{
	perror(what);
	exit(1);
}

static int unhex(const char *text, unsigned char *to, int max)
{
	int n = 0;
	unsigned v;

	if (!strcmp(text, "-"))
		return 0;
	for (; n < max && sscanf(text + 2 * n, "%2x", &v) == 1; n++)
		to[n] = v;
	return n;
}

static void hex(const char *what, const void *p, int n)
{
	printf("%s ", what);
	for (int i = 0; i < n; i++)
		printf("%02x", ((const unsigned char *)p)[i]);
	printf("\n");
}

static struct rdma_cm_event *next_event(int wait_ms)
{
	struct pollfd fd = { events->fd, POLLIN, 0 };
	struct rdma_cm_event *e;

	if (poll(&fd, 1, wait_ms) <= 0)
		return NULL;
	if (rdma_get_cm_event(events, &e))
		die("rdma_get_cm_event");
	printf("event %s %d ird %d ord %d\n", rdma_event_str(e->event) + strlen("RDMA_CM_EVENT_"),
	       e->status, e->param.conn.responder_resources, e->param.conn.initiator_depth);
	hex("private", e->param.conn.private_data,
	    e->param.conn.private_data ? e->param.conn.private_data_len : 0);
	return e;
}

static struct rdma_cm_event *expect(enum rdma_cm_event_type type)
{
	struct rdma_cm_event *e = next_event(PATIENCE_MS);

	if (!e) {
		printf("timeout waiting for %s\n", rdma_event_str(type));
		exit(3);
	}
	if (e->event != type)
		exit(4);
	return e;
}

static void make_qp(void)
{
	struct ibv_qp_init_attr attr = {
		.cap = { .max_send_wr = BUFS, .max_recv_wr = BUFS, .max_send_sge = 1, .max_recv_sge = 1 },
		.qp_type = IBV_QPT_RC, .sq_sig_all = 1,
	};

	if (rdma_create_qp(id, NULL, &attr))
		die("rdma_create_qp");
	if (!(bufs_mr = rdma_reg_msgs(id, bufs, sizeof bufs)))
		die("register buffers");
	if (!(region_mr = rdma_reg_write(id, region, sizeof region)))
		die("register region");
	for (long i = 0; i < BUFS; i++)
		if (rdma_post_recv(id, (void *)i, bufs[i], BUF, bufs_mr))
			die("rdma_post_recv");
	printf("region %llx %x\n", (unsigned long long)(uintptr_t)region, region_mr->rkey);
}

static struct rdma_conn_param params(int argc, char **argv)
{
	struct rdma_conn_param p = { .responder_resources = 1, .initiator_depth = 1, .retry_count = 7 };

	if (argc > 0)
		private_len = unhex(argv[0], private_data, sizeof private_data);
	if (argc > 2) {
		p.responder_resources = atoi(argv[1]);
		p.initiator_depth = atoi(argv[2]);
	}
	if (argc > 3)
		message_len = unhex(argv[3], message, sizeof message);
	p.private_data = private_len ? private_data : NULL;
	p.private_data_len = private_len;
	return p;
}

static void post(const void *data, int n)
{
	char *buf = bufs[BUFS + sent++ % BUFS];

	memcpy(buf, data, n);
	if (rdma_post_send(id, NULL, buf, n, bufs_mr, 0))
		die("rdma_post_send");
}

/* serve handles messages until the connection ends; a client disconnects after the answer. */
static int serve(int echo)
{
	struct ibv_wc wc;
	struct rdma_cm_event *e;

	for (int idle = 0; idle < PATIENCE_MS; idle++) {
		while (ibv_poll_cq(id->recv_cq, 1, &wc) > 0) {
			long i = wc.wr_id;

			idle = 0;
			if (wc.status != IBV_WC_SUCCESS) {
				printf("receive %s\n", ibv_wc_status_str(wc.status));
				continue;
			}
			hex("received", bufs[i], wc.byte_len);
			if (echo)
				post(bufs[i], wc.byte_len);
			else if (rdma_disconnect(id))
				die("rdma_disconnect");
			if (rdma_post_recv(id, (void *)i, bufs[i], BUF, bufs_mr))
				die("rdma_post_recv");
		}
		while (ibv_poll_cq(id->send_cq, 1, &wc) > 0)
			if (wc.status != IBV_WC_SUCCESS)
				printf("send %s\n", ibv_wc_status_str(wc.status));
		if ((e = next_event(1)) && e->event == RDMA_CM_EVENT_DISCONNECTED) {
			hex("region holds", region, SHOWN);
			return 0;
		}
	}
	printf("timeout\n");
	return 3;
}

static int do_listen(int argc, char **argv)
{
	struct sockaddr_in at = { .sin_family = AF_INET, .sin_port = htons(atoi(argv[2])) };
	struct rdma_conn_param p = params(argc - 4, argv + 4);
	struct rdma_cm_id *listener;
	struct rdma_cm_event *e;

	if (rdma_create_id(events, &listener, NULL, RDMA_PS_TCP) ||
	    rdma_bind_addr(listener, (struct sockaddr *)&at) ||
	    rdma_listen(listener, 16)) /* siw notices no more at a time */
		die("listen");
	e = expect(RDMA_CM_EVENT_CONNECT_REQUEST);
	id = e->id;
	if (argc <= 5) {
		p.responder_resources = e->param.conn.responder_resources;
		p.initiator_depth = e->param.conn.initiator_depth;
	}
	if (!strcmp(argv[3], "reject")) {
		if (rdma_reject(id, p.private_data, p.private_data_len))
			die("rdma_reject");
		rdma_ack_cm_event(e);
		return 0;
	}
	make_qp();
	if (rdma_accept(id, &p))
		die("rdma_accept");
	rdma_ack_cm_event(e);
	expect(RDMA_CM_EVENT_ESTABLISHED);
	return serve(1);
}

static int do_connect(int argc, char **argv)
{
	struct sockaddr_in to = { .sin_family = AF_INET, .sin_port = htons(atoi(argv[3])) };
	struct rdma_conn_param p = params(argc - 4, argv + 4);

	inet_pton(AF_INET, argv[2], &to.sin_addr);
	if (rdma_create_id(events, &id, NULL, RDMA_PS_TCP) ||
	    rdma_resolve_addr(id, NULL, (struct sockaddr *)&to, 2000))
		die("resolve address");
	expect(RDMA_CM_EVENT_ADDR_RESOLVED);
	if (rdma_resolve_route(id, 2000))
		die("resolve route");
	expect(RDMA_CM_EVENT_ROUTE_RESOLVED);
	make_qp();
	if (rdma_connect(id, &p))
		die("rdma_connect");
	expect(RDMA_CM_EVENT_ESTABLISHED);
	if (message_len)
		post(message, message_len);
	return serve(0);
}

int main(int argc, char **argv)
{
	setvbuf(stdout, NULL, _IOLBF, 0);
	if (!(events = rdma_create_event_channel()))
		die("rdma_create_event_channel");
	if (argc > 3 && !strcmp(argv[1], "listen"))
		return do_listen(argc, argv);
	if (argc > 3 && !strcmp(argv[1], "connect"))
		return do_connect(argc, argv);
	fprintf(stderr, "usage: see the source\n");
	return 2;
}
