/*
 * Connections by librdmacm as RoCE, between two ends of ours: a message waits for its buffer, and
 * what has completed is in the peer's memory.
 */
#include "walk.h"

static void late_buffer(struct end *from, struct end *to)
{
	struct ibv_sge sge;
	struct ibv_send_wr wr = request(from, &sge, IBV_WR_SEND, 100);
	struct ibv_wc wc;

	CHECK(!post(from, &wr));
	usleep(20000);
	CHECK(!ibv_poll_cq(from->cq, 1, &wc));
	post_recv(to, 7, 4096, 100);
	wc = await(from);
	CHECK(wc.wr_id == 99 && wc.status == IBV_WC_SUCCESS && wc.opcode == IBV_WC_SEND);
	wc = await(to);
	CHECK(wc.wr_id == 7 && wc.status == IBV_WC_SUCCESS && wc.byte_len == 100);
}

/* It is one message, which fills one buffer and carries 4 octets besides. */
static void with_immediate(struct end *from, struct end *to)
{
	struct ibv_sge sge;
	struct ibv_send_wr wr = request(from, &sge, IBV_WR_SEND_WITH_IMM, 100);
	struct ibv_wc wc;

	wr.imm_data = htobe32(0x11223344);
	post_recv(to, 8, 4096, 100);
	CHECK(!post(from, &wr));
	wc = await(from);
	CHECK(wc.wr_id == 99 && wc.status == IBV_WC_SUCCESS && wc.opcode == IBV_WC_SEND);
	wc = await(to);
	CHECK(wc.wr_id == 8 && wc.status == IBV_WC_SUCCESS && wc.byte_len == 100 &&
	      wc.wc_flags & IBV_WC_WITH_IMM && wc.imm_data == htobe32(0x11223344));
}

/* What an end says of how often is about the peer's messages. */
static void never_ready(void)
{
	struct ibv_sge sge;
	struct ibv_send_wr wr;
	struct ibv_wc wc;
	struct pair p;

	connect_pair(&p, TWICE);
	late_buffer(&p.client, &p.server);
	wr = request(&p.server, &sge, IBV_WR_SEND, 100);
	CHECK(!post(&p.server, &wr));
	wc = await(&p.server);
	CHECK(wc.wr_id == 99 && wc.status == IBV_WC_RNR_RETRY_EXC_ERR);
	close_ended(&p);
}

static void placed(struct end *from, struct end *to)
{
	struct ibv_sge sge;
	struct ibv_wc wc;

	for (int i = 1; i <= 50; i++) {
		struct ibv_send_wr wr = towards(from, to, &sge, IBV_WR_RDMA_WRITE);
		volatile char *last = (char *)(uintptr_t)wr.wr.rdma.remote_addr + sge.length - 1;

		((char *)(uintptr_t)sge.addr)[sge.length - 1] = (char)i;
		CHECK(!post(from, &wr));
		wc = await(from);
		CHECK(wc.status == IBV_WC_SUCCESS && *last == (char)i);
	}
}

int main(void)
{
	struct pair p;

	for (int how = 0; how <= WITH_SRQ; how++) {
		connect_pair(&p, how);
		late_buffer(&p.client, &p.server);
		late_buffer(&p.server, &p.client);
		with_immediate(&p.client, &p.server);
		with_immediate(&p.server, &p.client);
		placed(&p.client, &p.server);
		placed(&p.server, &p.client);
		close_pair(&p);
	}
	never_ready();
	puts("all well");
	return 0;
}
