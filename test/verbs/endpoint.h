/* What programs that know CHECK connect by: an end at port 7000, of HOST or to listen at. */
static struct rdma_cm_id *endpoint(const char *host, int flags)
{
	struct rdma_addrinfo hints = { .ai_flags = flags, .ai_port_space = RDMA_PS_TCP }, *at;
	struct ibv_qp_init_attr attr = { .cap = { 4, 4, 1, 1, 0 }, .sq_sig_all = 1 };
	struct rdma_cm_id *id;

	CHECK(!rdma_getaddrinfo(host, "7000", &hints, &at));
	CHECK(!rdma_create_ep(&id, at, NULL, &attr));
	rdma_freeaddrinfo(at);
	return id;
}
