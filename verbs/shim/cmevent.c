/* Events of the connection manager. */
#include "shim.h"

int rv_take_request(struct rv_id *listener, uint64_t handle, struct rv_id **made);

/* An event with what it points to. */
struct event {
	struct rdma_cm_event event; /* first */
	uint8_t private_data[RV_PRIVATE_MAX];
};

enum { PATH_EXACTLY = 2 }; /* of a selector */

static void set_addresses(struct rv_id *i, const struct rv_cm_event *e)
{
	memcpy(&i->id.route.addr.src_storage, e->local, sizeof e->local);
	memcpy(&i->id.route.addr.dst_storage, e->peer, sizeof e->peer);
}

/* As RoCE there is a path, which rsockets and others look at: from GID to GID. */
static void set_path(struct rv_id *i)
{
	struct ibv_sa_path_rec *p = &i->path;
	struct rdma_ib_addr *a = &i->id.route.addr.addr.ibaddr;
	struct ibv_port_attr port;

	if (!rv_roce() || !i->id.verbs)
		return;
	rv_gid_of(&a->sgid, (const struct sockaddr *)&i->id.route.addr.src_storage);
	rv_gid_of(&a->dgid, (const struct sockaddr *)&i->id.route.addr.dst_storage);
	a->pkey = rv_pkey();
	*p = (struct ibv_sa_path_rec){ .dgid = a->dgid, .sgid = a->sgid, .hop_limit = 64,
				       .reversible = 1, .numb_path = 1, .pkey = rv_pkey(),
				       .mtu_selector = PATH_EXACTLY, .rate_selector = PATH_EXACTLY,
				       .packet_life_time_selector = PATH_EXACTLY };
	if (!rv_query_port(i->id.verbs, 1, &port, sizeof port))
		p->mtu = (uint8_t)port.active_mtu;
	p->rate = IBV_RATE_MAX;
	i->id.route.path_rec = p;
	i->id.route.num_paths = 1;
}

void rv_ah_to(struct ibv_ah_attr *attr, const struct rv_id *i, const struct sockaddr *peer)
{
	union ibv_gid own;
	int index;

	*attr = (struct ibv_ah_attr){ .is_global = 1, .port_num = 1, .grh = { .hop_limit = 64 } };
	rv_gid_of(&attr->grh.dgid, peer);
	rv_gid_of(&own, (const struct sockaddr *)&i->id.route.addr.src_storage);
	index = rv_gid_index(&own);
	attr->grh.sgid_index = index < 0 ? 0 : (uint8_t)index;
}

/* What an event of RDMA_PS_UDP says of the queue pair that datagrams go to. */
static void fill_ud(struct rdma_ud_param *p, const struct rv_cm_event *e, const struct rv_id *i)
{
	p->qp_num = e->number;
	p->qkey = e->q_key;
	rv_ah_to(&p->ah_attr, i, (const struct sockaddr *)e->peer);
}

static const void *fill_private(struct event *out, const struct rv_cm_event *e, uint8_t *size)
{
	if (!e->private_size || e->private_size > RV_PRIVATE_MAX)
		return NULL;
	memcpy(out->private_data, e->private, e->private_size);
	*size = e->private_size > 255 ? 255 : (uint8_t)e->private_size;
	return out->private_data;
}

/*
 * Makes the program's event of the engine's, about an id that stays. 0, or an errno: there is none.
 * EINVAL: of a request, whose listener is gone.
 */
static int fill(struct event *out, const struct rv_cm_event *e, struct rv_id *about)
{
	struct rv_id *i = about;
	struct rdma_conn_param *p = &out->event.param.conn;
	int error;

	out->event.event = e->type;
	out->event.status = e->status;
	if (e->type == RDMA_CM_EVENT_ESTABLISHED && about->responds) {
		out->event.event = RDMA_CM_EVENT_CONNECT_RESPONSE;
		about->answered = true;
	}
	if (e->type == RDMA_CM_EVENT_CONNECT_REQUEST) {
		error = rv_take_request(about, e->request, &i);
		if (error)
			return error;
		out->event.listen_id = &about->id;
		i->responder_resources = e->responder_resources;
		i->initiator_depth = e->initiator_depth;
	}
	if (e->type == RDMA_CM_EVENT_CONNECT_REQUEST || e->type == RDMA_CM_EVENT_ESTABLISHED ||
	    e->type == RDMA_CM_EVENT_ADDR_RESOLVED)
		set_addresses(i, e);
	if (e->type == RDMA_CM_EVENT_ADDR_RESOLVED)
		rv_attach(i);
	if (e->type == RDMA_CM_EVENT_CONNECT_REQUEST || e->type == RDMA_CM_EVENT_ROUTE_RESOLVED)
		set_path(i);
	out->event.id = &i->id;
	if (rv_is_ud_id(i)) {
		struct rdma_ud_param *u = &out->event.param.ud;

		u->private_data = fill_private(out, e, &u->private_data_len);
		if (e->type == RDMA_CM_EVENT_ESTABLISHED || e->type == RDMA_CM_EVENT_MULTICAST_JOIN)
			fill_ud(u, e, i);
		if (e->type == RDMA_CM_EVENT_MULTICAST_JOIN)
			u->private_data = (const void *)(uintptr_t)e->request;
		return 0;
	}
	p->responder_resources = e->responder_resources;
	p->initiator_depth = e->initiator_depth;
	p->private_data = fill_private(out, e, &p->private_data_len);
	return 0;
}

static struct rv_acks *acks_of(void *id, const void *event)
{
	(void)event;
	return &((struct rv_id *)id)->acks;
}

/*
 * The next event. ENOMEM, EMFILE, ENFILE of a request: there is no id for it, and it was rejected.
 * The program is told, as its listener is the reason.
 */
int rdma_get_cm_event(struct rdma_event_channel *channel, struct rdma_cm_event **event)
{
	struct rv_socket *s;
	struct rv_cm_event e;
	struct rv_id *about;
	struct event *out;
	int error;

	if (!channel || !event)
		return rv_fail(EINVAL);
	s = &container(channel, struct rv_event_channel, channel)->socket;
	out = calloc(1, sizeof *out);
	if (!out)
		return rv_fail(ENOMEM);
	do {
		pthread_cleanup_push(free, out); /* a thread that is cancelled while it waits */
		about = rv_receive(s, &e, sizeof e, acks_of);
		pthread_cleanup_pop(0);
		error = about ? fill(out, &e, about) : errno;
		if (about && error)
			rv_acked(&about->acks, 1);
	} while (about && error == EINVAL);
	if (error) {
		free(out);
		return rv_fail(error);
	}
	*event = &out->event;
	return 0;
}

int rdma_ack_cm_event(struct rdma_cm_event *event)
{
	if (!event)
		return rv_fail(EINVAL);
	rv_acked(&to_id(event->listen_id ? event->listen_id : event->id)->acks, 1);
	free(container(event, struct event, event));
	return 0;
}

/* A synchronous id waits for the event that ends its call, and keeps it. */
int rv_event_of(struct rv_id *i, int error)
{
	struct rdma_cm_id *id = &i->id;

	if (error)
		return rv_fail(error);
	if (!i->sync)
		return 0;
	if (id->event) {
		rdma_ack_cm_event(id->event);
		id->event = NULL;
	}
	if (rdma_get_cm_event(id->channel, &id->event))
		return -1;
	if (id->event->event == RDMA_CM_EVENT_REJECTED)
		return rv_fail(ECONNREFUSED);
	return rv_fail(id->event->status < 0 ? -id->event->status : id->event->status);
}
