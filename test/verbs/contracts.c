/* What the manual pages promise beyond the plain way, call by call. */
#include "walk.h"

#include <arpa/inet.h>

/* A Write with immediate data uses up a receive and leaves its ranges alone: too short, none, of the SRQ or not. */
static void immediate(void)
{
	for (int how = 0; how <= WITH_SRQ; how += WITH_SRQ) {
		struct pair p;
		struct end *c = &p.client, *s = &p.server;
		struct ibv_sge sge;
		struct ibv_recv_wr none = { .wr_id = 2 }, *bad;
		struct ibv_send_wr wr;
		struct ibv_wc wc;

		connect_pair(&p, how);
		memset(s->memory, '.', 100);
		strcpy(c->memory, "written");
		post_recv(s, 0, 0, 3);
		post_recv(s, 1, 0, 100);
		CHECK(how ? !ibv_post_srq_recv(s->srq, &none, &bad) : !ibv_post_recv(s->id->qp, &none, &bad));
		for (uint32_t i = 0; i < 3; i++) {
			wr = request(c, &sge, IBV_WR_RDMA_WRITE_WITH_IMM, 8 * (i % 2));
			wr.imm_data = htonl(i);
			wr.wr.rdma.remote_addr = (uintptr_t)s->memory + 1000;
			wr.wr.rdma.rkey = s->mr->rkey;
			CHECK(!post(c, &wr) && await(c).status == IBV_WC_SUCCESS);
			wc = await(s);
			CHECK(wc.status == IBV_WC_SUCCESS && wc.opcode == IBV_WC_RECV_RDMA_WITH_IMM && wc.wr_id == i);
			CHECK(wc.imm_data == htonl(i) && wc.byte_len == 8 * (i % 2));
		}
		for (int i = 0; i < 100; i++)
			CHECK(s->memory[i] == '.');
		CHECK(!strcmp(s->memory + 1000, "written"));
		close_pair(&p);
	}
}

int main(void)
{
	immediate();
	puts("all well");
	return 0;
}
