/* rdma_getaddrinfo: the system's getaddrinfo, for one address. */
#include "shim.h"

#include <netdb.h>

/* False: there is no memory. */
static bool copy_address(struct sockaddr **to, socklen_t *size, const struct sockaddr *from,
			 socklen_t n)
{
	*to = malloc(n);
	if (!*to)
		return false;
	memcpy(*to, from, n);
	*size = n;
	return true;
}

/* The addresses of r: the one that was found, and for the others what the hints say. */
static bool copy_addresses(struct rdma_addrinfo *r, const struct addrinfo *found,
			   const struct rdma_addrinfo *hints)
{
	struct sockaddr **src = &r->ai_src_addr, **dst = &r->ai_dst_addr;
	socklen_t *ns = &r->ai_src_len, *nd = &r->ai_dst_len;
	bool passive = hints->ai_flags & RAI_PASSIVE;

	if (found && !copy_address(passive ? src : dst, passive ? ns : nd, found->ai_addr,
				   found->ai_addrlen))
		return false;
	if (!*src && hints->ai_src_addr &&
	    !copy_address(src, ns, hints->ai_src_addr, hints->ai_src_len))
		return false;
	return *dst || !hints->ai_dst_addr ||
	       copy_address(dst, nd, hints->ai_dst_addr, hints->ai_dst_len);
}

static bool is_ud(const struct rdma_addrinfo *hints)
{
	return hints->ai_qp_type ? hints->ai_qp_type == IBV_QPT_UD :
				   hints->ai_port_space == RDMA_PS_UDP;
}

/* What getaddrinfo says, as errno has it for callers that print that. */
static int resolve(const char *node, const char *service, const struct rdma_addrinfo *hints,
		   struct addrinfo **res)
{
	struct addrinfo h = { .ai_socktype = is_ud(hints) ? SOCK_DGRAM : SOCK_STREAM };

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

int rdma_getaddrinfo(const char *node, const char *service, const struct rdma_addrinfo *hints,
		     struct rdma_addrinfo **res)
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
	r->ai_qp_type = hints->ai_qp_type ? hints->ai_qp_type : is_ud(hints) ? IBV_QPT_UD : IBV_QPT_RC;
	r->ai_port_space = hints->ai_port_space ? hints->ai_port_space :
			   is_ud(hints)		? RDMA_PS_UDP :
						  RDMA_PS_TCP;
	error = copy_addresses(r, found, hints) ? 0 : ENOMEM;
	if (found)
		freeaddrinfo(found);
	if (error) {
		rdma_freeaddrinfo(r);
		return rv_fail(error);
	}
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
