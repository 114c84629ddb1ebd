/* rdma_cm_id: its life, and the calls that begin something. What comes of them is an event. */
#include "shim.h"

#include <fcntl.h>
#include <unistd.h>

static pthread_mutex_t device_lock = PTHREAD_MUTEX_INITIALIZER;
static struct ibv_context *device; /* of all ids */
static struct ibv_pd *device_pd;   /* an id's pd unless it is given another */

static int open_device(void)
{
	int error = 0;

	pthread_mutex_lock(&device_lock);
	if (!device || rv_foreign_device(device)) {
		struct ibv_context *c = rv_open();

		device = NULL;
		if (c) {
			device_pd = ibv_alloc_pd(c);
			if (device_pd)
				device = c;
			else
				ibv_close_device(c);
		}
		if (!device)
			error = errno;
	}
	pthread_mutex_unlock(&device_lock);
	return error;
}

void rv_lock_device(void)
{
	pthread_mutex_lock(&device_lock);
}

void rv_unlock_device(void)
{
	pthread_mutex_unlock(&device_lock);
}

/* The id has a local address, and so a device. */
void rv_attach(struct rv_id *i)
{
	if (i->id.verbs)
		return;
	i->id.verbs = device;
	i->id.port_num = 1;
	if (!i->id.pd)
		i->id.pd = device_pd;
}

bool rv_is_of_ids(const struct ibv_pd *pd)
{
	bool yes;

	pthread_mutex_lock(&device_lock);
	yes = pd == device_pd;
	pthread_mutex_unlock(&device_lock);
	return yes;
}

struct rdma_event_channel *rdma_create_event_channel(void)
{
	static struct rv_sockets kind = { .size = sizeof(struct rv_event_channel) };
	struct rv_event_channel *ch;
	int error = open_device();

	if (error) {
		errno = error;
		return NULL;
	}
	ch = rv_open_socket(&kind);
	if (!ch)
		return NULL;
	ch->channel.fd = ch->socket.fd;
	return &ch->channel;
}

void rdma_destroy_event_channel(struct rdma_event_channel *channel)
{
	struct rv_event_channel *ch = container(channel, struct rv_event_channel, channel);

	if (!rv_foreign(ch->socket.process))
		rv_call1(RV_CLOSE_CHANNEL, (uint64_t)ch->socket.engine_fd);
	rv_close_socket(&ch->socket);
}

/* Where descriptors of ids that wait begin, if the process may have so many. */
#define SYNC_FD_MIN 512

/*
 * The channel of an id whose calls wait. The select of librspreload 44 takes the first descriptor
 * for the program's that is the program's or this: it needs this to be the larger one.
 */
static struct rdma_event_channel *own_channel(void)
{
	struct rdma_event_channel *ch = rdma_create_event_channel();
	int high;

	if (ch && (high = fcntl(ch->fd, F_DUPFD_CLOEXEC, SYNC_FD_MIN)) >= 0) {
		rv_close(ch->fd);
		ch->fd = container(ch, struct rv_event_channel, channel)->socket.fd = high;
	}
	return ch;
}

/*
 * The rsockets of Debian's librdmacm call these functions, as any program does, but read two things
 * out of an object that they take for their own library's: at the pointer right after the
 * rdma_cm_id, how deep queues may be, which is this number wherever they look; and whether the id's
 * calls wait.
 */
#define LIMIT8 4096, 4096, 4096, 4096, 4096, 4096, 4096, 4096
static const uint32_t limits[64] = {
	LIMIT8, LIMIT8, LIMIT8, LIMIT8, LIMIT8, LIMIT8, LIMIT8, LIMIT8
};

struct rv_id *rv_new_id(struct rdma_event_channel *channel, void *context, enum rdma_port_space ps)
{
	struct rv_id *i = calloc(1, sizeof *i);

	if (!i)
		return NULL;
	i->cookie = rv_table_add(i);
	if (!i->cookie) {
		free(i);
		return NULL;
	}
	i->process = rv_process();
	i->limits = limits;
	i->id.channel = channel;
	i->id.context = context;
	i->id.ps = ps;
	i->id.qp_type = ps == RDMA_PS_UDP ? IBV_QPT_UD : IBV_QPT_RC;
	return i;
}

static int create_id(struct rdma_event_channel *channel, struct rdma_cm_id **id, void *context,
		     enum rdma_port_space ps)
{
	struct rv_args a;
	struct rv_id *i;
	bool sync = !channel;
	int error;

	/* as iWARP there are reliable connections only */
	if (ps != RDMA_PS_TCP && !(ps == RDMA_PS_UDP && rv_roce()))
		return rv_fail(EOPNOTSUPP);
	if (sync && !(channel = own_channel()))
		return -1;
	if (rv_foreign(container(channel, struct rv_event_channel, channel)->socket.process))
		return rv_fail(EPERM);
	i = rv_new_id(channel, context, ps);
	a = (struct rv_args){ .arg = {
				      (uint64_t)container(channel, struct rv_event_channel, channel)
					      ->socket.engine_fd,
				      i ? i->cookie : 0, ps == RDMA_PS_UDP } };
	error = i ? rv_call(RV_CM_CREATE, &a) : ENOMEM;
	if (error) {
		if (i) {
			rv_table_remove(i->cookie);
			free(i);
		}
		if (sync)
			rdma_destroy_event_channel(channel);
		return rv_fail(error);
	}
	i->handle = a.arg[0];
	i->sync = sync;
	*id = &i->id;
	return 0;
}

int rdma_create_id(struct rdma_event_channel *channel, struct rdma_cm_id **id, void *context,
		   enum rdma_port_space ps)
{
	return create_id(channel, id, context, ps);
}

/* Waits until the events that were read are acknowledged; others about the id are never read. */
int rdma_destroy_id(struct rdma_cm_id *id)
{
	struct rv_id *i = to_id(id);

	if (rv_foreign(i->process))
		return rv_fail(EPERM);
	if (id->event) {
		rdma_ack_cm_event(id->event);
		id->event = NULL;
	}
	rv_call1(RV_CM_DESTROY, i->handle);
	rv_forget(&container(id->channel, struct rv_event_channel, channel)->socket, i->cookie);
	rv_table_remove(i->cookie);
	rv_wait_acked(&i->acks);
	rv_destroy_bare_qp(i);
	if (i->sync)
		rdma_destroy_event_channel(id->channel);
	free(i->qp_attr);
	free(i);
	return 0;
}

/* Octets of an address; 0: of a family that is unknown. */
static size_t address_size(const struct sockaddr *a)
{
	if (a && a->sa_family == AF_INET)
		return sizeof(struct sockaddr_in);
	if (a && a->sa_family == AF_INET6)
		return sizeof(struct sockaddr_in6);
	return 0;
}

static bool unspecified(const struct sockaddr *a)
{
	if (a->sa_family == AF_INET)
		return ((const struct sockaddr_in *)a)->sin_addr.s_addr == htonl(INADDR_ANY);
	return IN6_IS_ADDR_UNSPECIFIED(&((const struct sockaddr_in6 *)a)->sin6_addr);
}

static bool loopback(const struct sockaddr *a)
{
	const struct in6_addr *six = &((const struct sockaddr_in6 *)a)->sin6_addr;

	if (a->sa_family == AF_INET)
		return ntohl(((const struct sockaddr_in *)a)->sin_addr.s_addr) >> 24 == IN_LOOPBACKNET;
	return IN6_IS_ADDR_LOOPBACK(six) ||
	       (IN6_IS_ADDR_V4MAPPED(six) && six->s6_addr[12] == IN_LOOPBACKNET);
}

/*
 * On Linux loopback is no device's. libfabric binds a synchronous id to it to learn where a program
 * listens that has named no address, and takes another one if there is no device. For all others
 * loopback is our device's: they can use it, as rsockets' synchronous ids for datagrams do.
 */
int rdma_bind_addr(struct rdma_cm_id *id, struct sockaddr *addr)
{
	struct rv_id *i = to_id(id);
	size_t n = address_size(addr);
	struct rv_args a = {
		.arg = { i->handle, i->v6_only, i->reuse },
		.data = addr,
		.size = n,
		.ret = &id->route.addr.src_storage,
		.ret_size = sizeof id->route.addr.src_storage,
	};
	int error;

	if (rv_foreign(i->process))
		return rv_fail(EPERM);
	error = n ? rv_call(RV_CM_BIND, &a) : EAFNOSUPPORT;
	if (error)
		return rv_fail(error);
	i->bound = true;
	if (!unspecified(addr) && !(i->sync && id->ps != RDMA_PS_UDP && loopback(addr)))
		rv_attach(i);
	return 0;
}

int rdma_resolve_addr(struct rdma_cm_id *id, struct sockaddr *src, struct sockaddr *dst,
		      int timeout_ms)
{
	struct rv_id *i = to_id(id);
	size_t ns, nd = address_size(dst);
	uint8_t both[2 * sizeof(struct sockaddr_in6)];
	struct rv_args a;
	bool bound = i->bound;
	int error;

	(void)timeout_ms; /* the answer is there at once */
	if (rv_foreign(i->process))
		return rv_fail(EPERM);
	ns = address_size(src); /* of a bound id it is not looked at */
	if (!nd)
		return rv_fail(EAFNOSUPPORT);
	if (ns)
		memcpy(both, src, ns);
	memcpy(both + ns, dst, nd);
	a = (struct rv_args){
		.arg = { i->handle, ns, i->reuse }, .data = both, .size = ns + nd,
	};
	memcpy(&id->route.addr.dst_storage, dst, nd);
	i->bound = true; /* before: another thread may have the event, and the id, by the call's end */
	error = rv_call(RV_CM_RESOLVE, &a);
	if (error)
		i->bound = bound;
	/* The local address and the device come with the event, which another thread may have by now. */
	return rv_event_of(i, error);
}

int rdma_resolve_route(struct rdma_cm_id *id, int timeout_ms)
{
	struct rv_id *i = to_id(id);

	(void)timeout_ms;
	return rv_event_of(i, rv_call1(RV_CM_ROUTE, i->handle));
}

int rdma_listen(struct rdma_cm_id *id, int backlog)
{
	struct rv_id *i = to_id(id);
	struct rv_args a = { .arg = { i->handle, backlog < 0 ? 0 : (uint64_t)backlog } };
	int error;

	if (rv_foreign(i->process))
		return rv_fail(EPERM);
	if (!i->bound) {
		struct sockaddr_in any = { .sin_family = AF_INET };

		if (rdma_bind_addr(id, (struct sockaddr *)&any))
			return -1;
	}
	error = rv_call(RV_CM_LISTEN, &a);
	if (!error)
		i->listening = true;
	return rv_fail(error);
}

/* 255 asks for the most; what else is more than that is refused, as by the kernel. */
static bool depth(uint8_t *asked)
{
	if (*asked == RDMA_MAX_RESP_RES)
		*asked = RV_READS_MAX;
	return *asked <= RV_READS_MAX;
}

/* The queue pair of a connection, which is in service as far as the program is concerned: what it
 * posts before the peer has answered waits. */
static int call_with_qp(struct rv_id *i, uint32_t op, struct rdma_conn_param *p, uint8_t responder,
			uint8_t initiator)
{
	struct rv_qp *q;
	struct rv_args a;
	enum ibv_qp_state before;
	int error;

	if (!depth(&responder) || !depth(&initiator) || !i->id.verbs)
		return EINVAL;
	q = rv_qp_of(i, p);
	if (!q)
		return errno;
	a = (struct rv_args){
		.arg = { i->handle, q->handle, responder, initiator,
			 (p && p->rnr_retry_count < 7 ? p->rnr_retry_count : 7) + 1u, &q->qp.qp_base == i->bare },
		.data = p ? p->private_data : NULL, .size = p && p->private_data ? p->private_data_len : 0,
	};
	before = q->qp.qp_base.state;
	q->qp.qp_base.state = IBV_QPS_RTS;
	q->in_cm = true;
	q->by_number = !i->id.qp;
	error = rv_call(op, &a);
	if (error) {
		q->qp.qp_base.state = before;
		q->in_cm = false;
		return error;
	}
	q->kept.retry_cnt = p ? p->retry_count : 7;
	q->kept.rnr_retry = p ? p->rnr_retry_count : 7;
	q->kept.timeout = i->ack_timeout;
	return 0;
}

/* Of RDMA_PS_UDP: to ask for a queue pair, or to say which it is. */
static int call_with_number(struct rv_id *i, uint32_t op, const struct rdma_conn_param *p)
{
	struct rv_args a = {
		.arg = { i->handle, i->id.qp ? i->id.qp->qp_num : p ? p->qp_num : 0, RV_CM_QKEY },
		.data = p ? p->private_data : NULL,
		.size = p && p->private_data ? p->private_data_len : 0,
	};

	return a.arg[1] >> 24 ? EINVAL : rv_call(op, &a);
}

int rdma_connect(struct rdma_cm_id *id, struct rdma_conn_param *p)
{
	struct rv_id *i = to_id(id);
	int error;

	if (rv_foreign(i->process))
		return rv_fail(EPERM);
	if (rv_is_ud_id(i))
		return rv_event_of(i, call_with_number(i, RV_CM_CONNECT, p));
	i->responds = !id->qp; /* the event may come before the call returns */
	error = call_with_qp(i, RV_CM_CONNECT, p, p ? p->responder_resources : RDMA_MAX_RESP_RES,
			     p ? p->initiator_depth : RDMA_MAX_INIT_DEPTH);
	i->connected = !error;
	return rv_event_of(i, error);
}

/* Without parameters, or with the most that can be asked for, depths are those of the request. */
int rdma_accept(struct rdma_cm_id *id, struct rdma_conn_param *p)
{
	struct rv_id *i = to_id(id);
	uint8_t responder = p ? p->responder_resources : RDMA_MAX_RESP_RES;
	uint8_t initiator = p ? p->initiator_depth : RDMA_MAX_INIT_DEPTH;
	int error;

	if (rv_foreign(i->process))
		return rv_fail(EPERM);
	if (rv_is_ud_id(i)) /* no event says more */
		return rv_fail(call_with_number(i, RV_CM_ACCEPT, p));
	if (responder == RDMA_MAX_RESP_RES)
		responder = i->responder_resources;
	if (initiator == RDMA_MAX_INIT_DEPTH)
		initiator = i->initiator_depth;
	error = call_with_qp(i, RV_CM_ACCEPT, p, responder, initiator);
	i->connected = !error;
	return rv_event_of(i, error);
}

int rdma_reject(struct rdma_cm_id *id, const void *private_data, uint8_t size)
{
	struct rv_args a = { .arg = { to_id(id)->handle },
			     .data = private_data,
			     .size = private_data ? size : 0 };
	int error = rv_call(RV_CM_REJECT, &a);

	if (!error && id->event) { /* what rdma_get_request left there */
		rdma_ack_cm_event(id->event);
		id->event = NULL;
	}
	return rv_fail(error);
}

int rdma_reject_ece(struct rdma_cm_id *id, const void *private_data, uint8_t size)
{
	return rdma_reject(id, private_data, size);
}

int rdma_disconnect(struct rdma_cm_id *id)
{
	struct rv_id *i = to_id(id);

	return rv_event_of(i, rv_call1(RV_CM_DISCONNECT, i->handle));
}

/* After RDMA_CM_EVENT_CONNECT_RESPONSE. The connection manager of iWARP needs no third message; the
 * peer of a bare connection is told by the first FPDU. */
int rdma_establish(struct rdma_cm_id *id)
{
	struct rv_id *i = to_id(id);
	struct ibv_send_wr wr = { .opcode = IBV_WR_RDMA_WRITE }, *bad;

	if (rv_foreign(i->process))
		return rv_fail(EPERM);
	if (id->qp || i->established || (i->bare && !i->answered))
		return rv_fail(EINVAL);
	if (!i->bare)
		return 0;
	i->established = true;
	return rv_fail(ibv_post_send(i->bare, &wr, &bad));
}

int rdma_notify(struct rdma_cm_id *id, enum ibv_event_type event)
{
	(void)event;
	return rv_fail(rv_foreign(to_id(id)->process) ? EPERM : 0);
}

/*
 * Events about the id come by the new channel, those too that were not read yet. Waits until those
 * that were read are acknowledged. No other thread may use the id meanwhile.
 */
int rdma_migrate_id(struct rdma_cm_id *id, struct rdma_event_channel *channel)
{
	struct rv_id *i = to_id(id);
	struct rdma_event_channel *old = id->channel;
	struct rv_socket *from = &container(old, struct rv_event_channel, channel)->socket;
	struct rv_socket *to;
	bool sync = !channel;
	struct rv_args a;
	int error;

	if (rv_foreign(i->process))
		return rv_fail(EPERM);
	if (sync && !(channel = own_channel()))
		return -1;
	to = &container(channel, struct rv_event_channel, channel)->socket;
	if (rv_foreign(to->process))
		return rv_fail(EPERM);
	a = (struct rv_args){ .arg = { i->handle, (uint64_t)to->engine_fd, (uint64_t)from->fd } };
	pthread_mutex_lock(&from->reading);
	error = rv_call(RV_CM_MIGRATE, &a);
	pthread_mutex_unlock(&from->reading);
	if (error) {
		if (sync)
			rdma_destroy_event_channel(channel);
		return rv_fail(error);
	}
	if (id->event) {
		rdma_ack_cm_event(id->event);
		id->event = NULL;
	}
	rv_wait_acked(&i->acks);
	if (i->sync)
		rdma_destroy_event_channel(old);
	i->sync = sync;
	id->channel = channel;
	return 0;
}

/* It can be taken back from an id that is not bound, and given to one that does not listen. */
static int set_reuse(struct rv_id *i, int reuse)
{
	struct rv_args a = { .arg = { i->handle, i->v6_only, 1 } };
	int error = 0;

	if (i->listening || (!reuse && i->bound))
		return rv_fail(EINVAL);
	if (reuse && i->bound)
		error = rv_call(RV_CM_BIND, &a);
	if (!error)
		i->reuse = reuse;
	return rv_fail(error);
}

/* Of an id that is not bound, or not more than that. */
static int set_v6_only(struct rv_id *i, int only)
{
	struct rv_args a = { .arg = { i->handle, only != 0, i->reuse } };
	int error = i->listening ? EINVAL : i->bound ? rv_call(RV_CM_BIND, &a) : 0;

	if (!error)
		i->v6_only = only;
	return rv_fail(error);
}

int rdma_set_option(struct rdma_cm_id *id, int level, int name, void *value, size_t size)
{
	struct rv_id *i = to_id(id);

	if (rv_foreign(i->process))
		return rv_fail(EPERM);
	if (level != RDMA_OPTION_ID)
		return rv_fail(ENOSYS);
	switch (name) {
	case RDMA_OPTION_ID_AFONLY:
		return size == sizeof(int) ? set_v6_only(i, *(const int *)value) : rv_fail(EINVAL);
	case RDMA_OPTION_ID_TOS: /* there is nothing to be set for it here, and nothing to be lost */
		return size == sizeof(uint8_t) ? 0 : rv_fail(EINVAL);
	case RDMA_OPTION_ID_REUSEADDR:
		return size == sizeof(int) ? set_reuse(i, *(const int *)value) : rv_fail(EINVAL);
	case RDMA_OPTION_ID_ACK_TIMEOUT: /* ibv_query_qp tells it; TCP has timers of its own */
		if (size != sizeof(uint8_t))
			return rv_fail(EINVAL);
		i->ack_timeout = *(const uint8_t *)value;
		return 0;
	}
	return rv_fail(ENOSYS);
}

static __be16 port_of(const struct sockaddr_storage *a)
{
	if (a->ss_family == AF_INET)
		return ((const struct sockaddr_in *)a)->sin_port;
	if (a->ss_family == AF_INET6)
		return ((const struct sockaddr_in6 *)a)->sin6_port;
	return 0;
}

__be16 rdma_get_src_port(struct rdma_cm_id *id)
{
	return port_of(&id->route.addr.src_storage);
}

__be16 rdma_get_dst_port(struct rdma_cm_id *id)
{
	return port_of(&id->route.addr.dst_storage);
}

struct ibv_context **rdma_get_devices(int *n)
{
	struct ibv_context **list = NULL;
	int error = open_device();

	if (!error && !(list = calloc(2, sizeof *list)))
		error = ENOMEM;
	if (error) {
		if (n)
			*n = 0;
		errno = error;
		return NULL;
	}
	list[0] = device;
	if (n)
		*n = 1;
	return list;
}

void rdma_free_devices(struct ibv_context **list)
{
	free(list);
}

static struct rv_args adoption(uint64_t handle, struct rdma_event_channel *channel, uint64_t cookie)
{
	struct rv_event_channel *ch = container(channel, struct rv_event_channel, channel);

	return (struct rv_args){ .arg = { handle, (uint64_t)ch->socket.engine_fd, cookie } };
}

/*
 * For want of memory or descriptors, as error says: the client is told, and the request's place in
 * the backlog is free again. EINVAL: the listener is gone, and its requests with it.
 */
static int refuse_request(struct rv_id *listener, uint64_t handle, int error)
{
	struct rv_args a = adoption(handle, listener->id.channel, 0);
	int gone = rv_call(RV_ADOPT, &a);

	if (gone)
		return gone;
	rv_call1(RV_CM_DESTROY, handle);
	return error;
}

/* The id of a request is its listener's kind, and has a device. */
int rv_take_request(struct rv_id *listener, uint64_t handle, struct rv_id **made)
{
	struct rdma_event_channel *channel = listener->sync ? own_channel() : listener->id.channel;
	int error = channel ? ENOMEM : errno;
	struct rv_id *i = channel ? rv_new_id(channel, listener->id.context, listener->id.ps) : NULL;
	struct rv_args a;

	if (i) {
		a = adoption(handle, channel, i->cookie);
		error = rv_call(RV_ADOPT, &a);
	} else {
		error = refuse_request(listener, handle, error);
	}
	if (error) {
		if (i) {
			rv_table_remove(i->cookie);
			free(i);
		}
		if (channel && listener->sync)
			rdma_destroy_event_channel(channel);
		return error;
	}
	i->handle = handle;
	i->sync = listener->sync;
	rv_attach(i);
	*made = i;
	return 0;
}
