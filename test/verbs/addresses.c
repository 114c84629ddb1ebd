/*
 * Addresses and ports of ids (rdma_bind_addr(3), rdma_resolve_addr(3), rdma_create_ep(3)).
 *
 *	addresses listen ADDRESS PORT
 *	addresses check OURS OTHER PEER PORT	OTHER: ours of the other family
 */
#include "walk.h"

#include <arpa/inet.h>
#include <netdb.h>

union address {
	struct sockaddr sa;
	struct sockaddr_in in;
	struct sockaddr_in6 in6;
};

/* What a server says of a connection: the addresses as it is told of them. */
struct seen {
	union address local, peer;
};

static union address address_of(const char *text, uint16_t port)
{
	struct addrinfo hints = { .ai_flags = AI_NUMERICHOST, .ai_socktype = SOCK_STREAM }, *found;
	union address a = { 0 };

	CHECK(!getaddrinfo(text, NULL, &hints, &found));
	memcpy(&a, found->ai_addr, found->ai_addrlen);
	freeaddrinfo(found);
	a.in.sin_port = htons(port); /* where IPv6 has its too */
	return a;
}

static union address with_port(union address a, __be16 port)
{
	a.in.sin_port = port;
	return a;
}

static union address any_of(int family, __be16 port)
{
	union address a = { .in = { .sin_family = family, .sin_port = port } };

	return a;
}

static bool link_local(const union address *a)
{
	return a->sa.sa_family == AF_INET6 && IN6_IS_ADDR_LINKLOCAL(&a->in6.sin6_addr);
}

static uint32_t zone_of(const struct sockaddr *a)
{
	return ((const struct sockaddr_in6 *)a)->sin6_scope_id;
}

/* Octet by octet, zones as well. */
static bool same(const struct sockaddr *a, const union address *b)
{
	return !memcmp(a, b, b->sa.sa_family == AF_INET ? sizeof b->in : sizeof b->in6);
}

static bool same_host(const union address *a, const union address *b)
{
	union address x = with_port(*a, 0), y = with_port(*b, 0);

	x.in6.sin6_scope_id = y.in6.sin6_scope_id = 0;
	return same(&x.sa, &y);
}

static struct rdma_cm_id *new_id(struct rdma_event_channel *ch)
{
	struct rdma_cm_id *id;

	CHECK(!rdma_create_id(ch, &id, NULL, RDMA_PS_TCP));
	return id;
}

static struct rdma_cm_id *bound(struct rdma_event_channel *ch, union address a)
{
	struct rdma_cm_id *id = new_id(ch);

	CHECK(!rdma_bind_addr(id, &a.sa));
	return id;
}

/* A port that nobody has. */
static __be16 unused(struct rdma_event_channel *ch, union address ours)
{
	struct rdma_cm_id *id = bound(ch, with_port(ours, 0));
	__be16 port = rdma_get_src_port(id);

	CHECK(!rdma_destroy_id(id));
	return port;
}

static void refuses(struct rdma_event_channel *ch, union address a, int error)
{
	struct rdma_cm_id *id = new_id(ch);

	FAILS(rdma_bind_addr(id, &a.sa), error);
	CHECK(!rdma_destroy_id(id));
}

static void set(struct rdma_cm_id *id, int option, int value)
{
	CHECK(!rdma_set_option(id, RDMA_OPTION_ID, option, &value, sizeof value));
}

/* A port is an id's from bind on, and free when the id is destroyed; addresses of one port are
 * apart. */
static void binding(struct rdma_event_channel *ch, union address ours, union address other)
{
	struct rdma_cm_id *id = bound(ch, ours), *ids[200], *six;
	union address foreign = address_of(ours.sa.sa_family == AF_INET ? "192.0.2.1" : "2001:db8::1", 0);
	__be16 port = rdma_get_src_port(id);

	CHECK(port && same(rdma_get_local_addr(id), &(union address){ .in6 = with_port(ours, port).in6 }));
	FAILS(rdma_bind_addr(id, &ours.sa), EINVAL);
	refuses(ch, with_port(ours, port), EADDRINUSE);
	refuses(ch, any_of(ours.sa.sa_family, port), EADDRINUSE);
	refuses(ch, foreign, EADDRNOTAVAIL);
	refuses(ch, with_port(foreign, port), EADDRNOTAVAIL);
	CHECK(!rdma_destroy_id(bound(ch, with_port(other, port)))); /* the other family's is free */
	CHECK(!rdma_listen(id, 1));
	CHECK(rdma_get_src_port(id) == port);
	refuses(ch, with_port(ours, port), EADDRINUSE);
	CHECK(!rdma_destroy_id(id));

	id = bound(ch, any_of(AF_INET, port));
	refuses(ch, any_of(AF_INET6, port), EADDRINUSE); /* which is IPv4's as well */
	six = new_id(ch);
	set(six, RDMA_OPTION_ID_AFONLY, 1);
	CHECK(!rdma_bind_addr(six, &(union address){ .in6 = any_of(AF_INET6, port).in6 }.sa));
	CHECK(!rdma_listen(id, 1) && !rdma_listen(six, 1));
	refuses(ch, with_port(ours, port), EADDRINUSE);
	refuses(ch, with_port(other, port), EADDRINUSE);
	CHECK(!rdma_destroy_id(id) && !rdma_destroy_id(six));

	id = bound(ch, any_of(AF_INET6, port)); /* told so late, it leaves IPv4 alone, and takes it back */
	set(id, RDMA_OPTION_ID_AFONLY, 1);
	six = bound(ch, any_of(AF_INET, port));
	FAILS(rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_AFONLY, &(int){ 0 }, sizeof(int)),
	      EADDRINUSE);
	refuses(ch, any_of(AF_INET6, port), EADDRINUSE);
	CHECK(!rdma_destroy_id(six));
	set(id, RDMA_OPTION_ID_AFONLY, 0);
	refuses(ch, any_of(AF_INET, port), EADDRINUSE);
	CHECK(!rdma_destroy_id(id));

	for (int i = 0; i < 200; i++) {
		ids[i] = bound(ch, ours);
		for (int j = 0; j < i; j++)
			CHECK(rdma_get_src_port(ids[i]) != rdma_get_src_port(ids[j]));
	}
	for (int i = 0; i < 200; i++)
		CHECK(!rdma_destroy_id(ids[i]));
}

/* Ids that all say so have one address and port; none listens as long as another has it. */
static void sharing(struct rdma_event_channel *ch, union address ours)
{
	struct rdma_cm_id *one = new_id(ch), *two = new_id(ch), *late;
	int yes = 1, no = 0;

	FAILS(rdma_set_option(one, RDMA_OPTION_ID, RDMA_OPTION_ID_REUSEADDR, &yes, 1), EINVAL);
	set(one, RDMA_OPTION_ID_REUSEADDR, 1);
	CHECK(!rdma_bind_addr(one, &ours.sa));
	ours.in.sin_port = rdma_get_src_port(one);
	FAILS(rdma_set_option(one, RDMA_OPTION_ID, RDMA_OPTION_ID_REUSEADDR, &no, sizeof no), EINVAL);
	refuses(ch, ours, EADDRINUSE);
	set(two, RDMA_OPTION_ID_REUSEADDR, 1);
	CHECK(!rdma_bind_addr(two, &ours.sa));
	FAILS(rdma_listen(one, 1), EADDRINUSE);
	CHECK(!rdma_destroy_id(two) && !rdma_listen(one, 1));
	FAILS(rdma_set_option(one, RDMA_OPTION_ID, RDMA_OPTION_ID_REUSEADDR, &yes, sizeof yes), EINVAL);
	two = new_id(ch);
	set(two, RDMA_OPTION_ID_REUSEADDR, 1);
	FAILS(rdma_bind_addr(two, &ours.sa), EADDRINUSE);
	CHECK(!rdma_destroy_id(one));
	one = bound(ch, ours);
	FAILS(rdma_bind_addr(two, &ours.sa), EADDRINUSE);
	set(one, RDMA_OPTION_ID_REUSEADDR, 1); /* late */
	CHECK(!rdma_bind_addr(two, &ours.sa) && !rdma_destroy_id(two) && !rdma_destroy_id(one));
	late = bound(ch, ours);
	CHECK(!rdma_destroy_id(late));
}

static void make_qp(struct rdma_cm_id *id)
{
	struct ibv_qp_init_attr attr = { .cap = { 4, 4, 1, 1, 0 }, .qp_type = IBV_QPT_RC };

	CHECK(!rdma_create_qp(id, NULL, &attr));
}

/* Connects an id whose address is resolved, and has the server say what it sees. */
static void connect_from(struct rdma_event_channel *ch, struct rdma_cm_id *id, union address peer)
{
	struct rdma_conn_param param = { .responder_resources = 1, .initiator_depth = 1 };
	struct rdma_cm_event *e;
	union address local;
	struct seen seen;

	rdma_ack_cm_event(event_of(ch, RDMA_CM_EVENT_ADDR_RESOLVED));
	memcpy(&local, rdma_get_local_addr(id), sizeof local);
	CHECK(rdma_get_src_port(id) && same(rdma_get_peer_addr(id), &peer));
	CHECK(!link_local(&local) || local.in6.sin6_scope_id == peer.in6.sin6_scope_id);
	CHECK(!rdma_resolve_route(id, 1000));
	rdma_ack_cm_event(event_of(ch, RDMA_CM_EVENT_ROUTE_RESOLVED));
	make_qp(id);
	CHECK(!rdma_connect(id, &param));
	e = event_of(ch, RDMA_CM_EVENT_ESTABLISHED);
	CHECK(e->param.conn.private_data_len >= sizeof seen);
	memcpy(&seen, e->param.conn.private_data, sizeof seen);
	rdma_ack_cm_event(e);
	CHECK(same(rdma_get_local_addr(id), &local) && same(rdma_get_peer_addr(id), &peer));
	CHECK(same_host(&seen.peer, &local) && seen.peer.in.sin_port == local.in.sin_port);
	CHECK(same_host(&seen.local, &peer) && seen.local.in.sin_port == peer.in.sin_port);
	CHECK(!rdma_disconnect(id));
	rdma_ack_cm_event(event_of(ch, RDMA_CM_EVENT_DISCONNECTED));
	rdma_destroy_qp(id);
	CHECK(!rdma_destroy_id(id));
}

/* An id connects from where it was bound, or from the source that it is given. */
static void connecting(struct rdma_event_channel *ch, union address ours, union address other,
		       union address peer)
{
	union address foreign = address_of(ours.sa.sa_family == AF_INET ? "192.0.2.1" : "2001:db8::1", 0);
	struct rdma_cm_id *id = bound(ch, ours), *twin;

	ours.in.sin_port = rdma_get_src_port(id);
	FAILS(rdma_resolve_addr(new_id(ch), &foreign.sa, &peer.sa, 1000), EADDRNOTAVAIL);
	FAILS(rdma_resolve_addr(new_id(ch), &other.sa, &peer.sa, 1000), EINVAL);
	FAILS(rdma_resolve_addr(bound(ch, other), NULL, &peer.sa, 1000), EINVAL);
	FAILS(rdma_resolve_addr(new_id(ch), &ours.sa, &peer.sa, 1000), EADDRINUSE);
	CHECK(!rdma_resolve_addr(id, &foreign.sa, &peer.sa, 1000)); /* it is bound */
	FAILS(rdma_resolve_addr(id, NULL, &peer.sa, 1000), EINVAL);
	FAILS(rdma_listen(id, 1), EINVAL);
	connect_from(ch, id, peer);

	for (int i = 0; i < 3;
	     i++) { /* from the same port to the same peer, though TCP remembers the last */
		twin = bound(ch, ours);
		CHECK(!rdma_resolve_addr(twin, NULL, &peer.sa, 1000));
		connect_from(ch, twin, peer);
	}

	id = new_id(ch);
	ours.in.sin_port = unused(ch, ours);
	CHECK(!rdma_resolve_addr(id, &ours.sa, &peer.sa, 1000));
	connect_from(ch, id, peer);

	id = bound(ch, any_of(ours.sa.sa_family, unused(ch, ours)));
	CHECK(!rdma_resolve_addr(id, NULL, &peer.sa, 1000));
	connect_from(ch, id, peer);

	id = new_id(ch);
	ours.in.sin_port = 0;
	CHECK(!rdma_resolve_addr(id, &ours.sa, &peer.sa, 1000));
	connect_from(ch, id, peer);

	id = new_id(ch);
	CHECK(!rdma_resolve_addr(id, NULL, &peer.sa, 1000));
	connect_from(ch, id, peer);
}

/* The same by rdma_getaddrinfo and rdma_create_ep. */
static void endpoints(union address ours, union address peer, const char *node, const char *service)
{
	struct rdma_addrinfo hints = { .ai_port_space = RDMA_PS_TCP, .ai_flags = RAI_NUMERICHOST }, *found;
	struct ibv_qp_init_attr attr = { .cap = { 4, 4, 1, 1, 0 }, .qp_type = IBV_QPT_RC };
	struct rdma_cm_id *id, *twin;

	hints.ai_src_addr = &ours.sa;
	hints.ai_src_len = sizeof ours;
	CHECK(!rdma_getaddrinfo(node, service, &hints, &found));
	CHECK(same(found->ai_dst_addr, &peer) && same(found->ai_src_addr, &ours));
	CHECK(!rdma_create_ep(&id, found, NULL, &attr));
	FAILS(rdma_create_ep(&twin, found, NULL, &attr), EADDRINUSE);
	CHECK(same(rdma_get_local_addr(id), &ours));
	CHECK(!rdma_connect(id, NULL));
	CHECK(same(rdma_get_local_addr(id), &ours) && same(rdma_get_peer_addr(id), &peer));
	CHECK(!rdma_disconnect(id));
	rdma_destroy_ep(id);
	rdma_freeaddrinfo(found);

	hints = (struct rdma_addrinfo){ .ai_flags = RAI_PASSIVE,
					.ai_src_addr = &ours.sa,
					.ai_src_len = sizeof ours };
	CHECK(!rdma_getaddrinfo(NULL, NULL, &hints, &found));
	CHECK(!rdma_create_ep(&id, found, NULL, &attr));
	FAILS(rdma_create_ep(&twin, found, NULL, &attr), EADDRINUSE);
	CHECK(!rdma_listen(id, 0));
	rdma_destroy_ep(id);
	rdma_freeaddrinfo(found);
}

/* Accepts all, and finds its way back to each. */
static void serve(struct rdma_event_channel *ch, union address at)
{
	struct rdma_cm_id *listener = bound(ch, at), *back;
	struct rdma_conn_param param = { .responder_resources = 1, .initiator_depth = 1 };
	struct rdma_event_channel *other = rdma_create_event_channel();
	struct rdma_cm_event *e;
	struct seen seen;

	CHECK(!rdma_listen(listener, 16));
	puts("listening");
	fflush(stdout);
	while (!rdma_get_cm_event(ch, &e)) {
		struct rdma_cm_id *id = e->id;
		enum rdma_cm_event_type type = e->event;

		rdma_ack_cm_event(e);
		if (type == RDMA_CM_EVENT_CONNECT_REQUEST) {
			memcpy(&seen.local, rdma_get_local_addr(id), sizeof seen.local);
			memcpy(&seen.peer, rdma_get_peer_addr(id), sizeof seen.peer);
			CHECK(!link_local(&seen.local) || seen.local.in6.sin6_scope_id);
			CHECK(!link_local(&seen.peer) || seen.peer.in6.sin6_scope_id);
			back = new_id(other);
			CHECK(!rdma_resolve_addr(back, NULL, &seen.peer.sa, 1000));
			rdma_ack_cm_event(event_of(other, RDMA_CM_EVENT_ADDR_RESOLVED));
			CHECK(!link_local(&seen.peer) ||
			      zone_of(rdma_get_local_addr(back)) == seen.peer.in6.sin6_scope_id);
			CHECK(!rdma_destroy_id(back));
			make_qp(id);
			param.private_data = &seen;
			param.private_data_len = sizeof seen;
			CHECK(!rdma_accept(id, &param));
		} else if (type == RDMA_CM_EVENT_DISCONNECTED) {
			rdma_destroy_qp(id);
			CHECK(!rdma_destroy_id(id));
		} else {
			CHECK(type == RDMA_CM_EVENT_ESTABLISHED);
		}
	}
}

int main(int argc, char **argv)
{
	struct rdma_event_channel *ch = rdma_create_event_channel();

	CHECK(ch);
	if (argc == 4 && !strcmp(argv[1], "listen")) {
		serve(ch, address_of(argv[2], (uint16_t)atoi(argv[3])));
	} else if (argc == 6 && !strcmp(argv[1], "check")) {
		union address ours = address_of(argv[2], 0), other = address_of(argv[3], 0);
		union address peer = address_of(argv[4], (uint16_t)atoi(argv[5]));

		binding(ch, ours, other);
		sharing(ch, ours);
		connecting(ch, ours, other, peer);
		ours.in.sin_port = unused(ch, ours);
		endpoints(ours, peer, argv[4], argv[5]);
		puts("all well");
	} else {
		return 2;
	}
	return 0;
}
