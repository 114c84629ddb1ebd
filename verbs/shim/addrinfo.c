/* rdma_getaddrinfo: the system's getaddrinfo, for one address. */
#include "shim.h"

#include <netdb.h>

static struct sockaddr *copy_address(const struct sockaddr *from, socklen_t n)
{
	struct sockaddr *a = malloc(n);

	if (a)
		memcpy(a, from, n);
	return a;
}

/* What getaddrinfo says, as errno has it for callers that print that. */
static int resolve(const char *node, const char *service, const struct rdma_addrinfo *hints, struct addrinfo **res)
{
	struct addrinfo h = { .ai_socktype = SOCK_STREAM };

	if (hints->ai_flags & RAI_PASSIVE)
		h.ai_flags |= AI_PASSIVE;
	if (hints->ai_flags & RAI_NUMERICHOST)
		h.ai_flags |= AI_NUMERICHOST;
	if (hints->ai_flags & RAI_FAMILY || hints->ai_family)
		h.ai_family = hints->ai_family;
	else if (!node)
		h.ai_family = AF_INET6; /* any address of both families */
	return getaddrinfo(node, service, &h, res);
}

int rdma_getaddrinfo(const char *node, const char *service, const struct rdma_addrinfo *hints, struct rdma_addrinfo **res)
{
	static const struct rdma_addrinfo none;
	struct rdma_addrinfo *r;
	struct addrinfo *found = NULL;
	int error;

	if (!hints)
		hints = &none;
	if (!node && !service && !hints->ai_dst_addr && !hints->ai_src_addr)
		return rv_fail(EINVAL);
	if (node || service) {
		error = resolve(node, service, hints, &found);
		if (error)
			return error == EAI_SYSTEM ? -1 : error;
	}
	r = calloc(1, sizeof *r);
	if (!r) {
		if (found)
			freeaddrinfo(found);
		return rv_fail(ENOMEM);
	}
	r->ai_flags = hints->ai_flags;
	r->ai_family = found ? found->ai_family : hints->ai_family;
	r->ai_qp_type = hints->ai_qp_type ? hints->ai_qp_type : IBV_QPT_RC;
	r->ai_port_space = hints->ai_port_space ? hints->ai_port_space : RDMA_PS_TCP;
	if (found && hints->ai_flags & RAI_PASSIVE) {
		r->ai_src_addr = copy_address(found->ai_addr, found->ai_addrlen);
		r->ai_src_len = found->ai_addrlen;
	} else if (found) {
		r->ai_dst_addr = copy_address(found->ai_addr, found->ai_addrlen);
		r->ai_dst_len = found->ai_addrlen;
	}
	if (!r->ai_src_addr && hints->ai_src_addr) {
		r->ai_src_addr = copy_address(hints->ai_src_addr, hints->ai_src_len);
		r->ai_src_len = hints->ai_src_len;
	}
	if (!r->ai_dst_addr && hints->ai_dst_addr) {
		r->ai_dst_addr = copy_address(hints->ai_dst_addr, hints->ai_dst_len);
		r->ai_dst_len = hints->ai_dst_len;
	}
	if (found)
		freeaddrinfo(found);
	*res = r;
	return 0;
}

void rdma_freeaddrinfo(struct rdma_addrinfo *res)
{
	while (res) {
		struct rdma_addrinfo *next = res->ai_next;

		free(res->ai_src_addr);
		free(res->ai_dst_addr);
		free(res);
		res = next;
	}
}
