/*
 * UCX's own way to connect: a server that listens by ucp_listener_create, and clients that know its
 * address and port. Tagged messages of drawn lengths, there and back, compared.
 *
 *     ucp ADDRESS PORT CLIENTS            serves so many, one after the other
 *     ucp ADDRESS PORT CLIENTS SEED       is one of them
 */
#include <arpa/inet.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <ucp/api/ucp.h>

enum { MESSAGES = 50, LONGEST = 200000 };

static ucp_worker_h worker;

#define OK(call)                                                                              \
	do {                                                                                  \
		ucs_status_t status_ = (call);                                                \
		if (status_ != UCS_OK) {                                                      \
			fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__, #call,         \
				ucs_status_string(status_));                                  \
			exit(1);                                                              \
		}                                                                             \
	} while (0)

static void finish(ucs_status_ptr_t request)
{
	ucs_status_t status;

	if (!UCS_PTR_IS_PTR(request)) {
		OK(UCS_PTR_STATUS(request));
		return;
	}
	while ((status = ucp_request_check_status(request)) == UCS_INPROGRESS)
		ucp_worker_progress(worker);
	ucp_request_free(request);
	OK(status);
}

static void open_worker(void)
{
	ucp_params_t params = { .field_mask = UCP_PARAM_FIELD_FEATURES, .features = UCP_FEATURE_TAG };
	ucp_worker_params_t of_worker = { .field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE,
					  .thread_mode = UCS_THREAD_MODE_SINGLE };
	ucp_context_h context;

	OK(ucp_init(&params, NULL, &context));
	OK(ucp_worker_create(context, &of_worker, &worker));
}

static void send_message(ucp_ep_h ep, uint64_t tag, const void *b, size_t n)
{
	ucp_request_param_t none = { 0 };

	finish(ucp_tag_send_nbx(ep, b, n, tag, &none));
}

static size_t receive_message(uint64_t tag, void *b)
{
	ucp_tag_recv_info_t info;
	ucp_request_param_t into = { .op_attr_mask = UCP_OP_ATTR_FIELD_RECV_INFO,
				     .recv_info.tag_info = &info };
	ucs_status_ptr_t request = ucp_tag_recv_nbx(worker, b, LONGEST, tag, UINT64_MAX, &into);
	ucp_tag_recv_info_t *got = &info;

	if (UCS_PTR_IS_PTR(request)) {
		ucs_status_t status;

		while ((status = ucp_tag_recv_request_test(request, &info)) == UCS_INPROGRESS)
			ucp_worker_progress(worker);
		ucp_request_free(request);
		OK(status);
	} else {
		OK(UCS_PTR_STATUS(request));
	}
	return got->length;
}

static void close_ep(ucp_ep_h ep, unsigned mode)
{
	ucp_request_param_t how = { .op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS, .flags = mode };
	ucs_status_ptr_t request = ucp_ep_close_nbx(ep, &how);

	while (UCS_PTR_IS_PTR(request) &&
	       ucp_request_check_status(request) == UCS_INPROGRESS)
		ucp_worker_progress(worker);
	if (UCS_PTR_IS_PTR(request))
		ucp_request_free(request);
}

static int has_ended;

static void ended(void *arg, ucp_ep_h ep, ucs_status_t status)
{
	(void)arg, (void)ep, (void)status;
	has_ended = 1;
}

static ucp_conn_request_h asked;

static void is_asked(ucp_conn_request_h request, void *arg)
{
	(void)arg;
	asked = request;
}

static void serve(struct sockaddr_in at, int clients)
{
	ucp_listener_params_t params = {
		.field_mask = UCP_LISTENER_PARAM_FIELD_SOCK_ADDR | UCP_LISTENER_PARAM_FIELD_CONN_HANDLER,
		.sockaddr = { (struct sockaddr *)&at, sizeof at },
		.conn_handler = { is_asked, NULL },
	};
	ucp_listener_h listener;
	static char b[LONGEST];

	OK(ucp_listener_create(worker, &params, &listener));
	puts("listening");
	fflush(stdout);
	for (int i = 0; i < clients; i++) {
		ucp_ep_params_t of = {
			.field_mask = UCP_EP_PARAM_FIELD_CONN_REQUEST | UCP_EP_PARAM_FIELD_ERR_HANDLER |
				      UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE,
			.err_mode = UCP_ERR_HANDLING_MODE_PEER,
			.err_handler = { ended, NULL },
		};
		ucp_ep_h ep;

		while (!asked)
			ucp_worker_progress(worker);
		of.conn_request = asked;
		asked = NULL;
		has_ended = 0;
		OK(ucp_ep_create(worker, &of, &ep));
		for (int m = 0; m < MESSAGES; m++)
			send_message(ep, 2, b, receive_message(1, b));
		while (!has_ended) /* the client closes first */
			ucp_worker_progress(worker);
		close_ep(ep, UCP_EP_CLOSE_FLAG_FORCE);
	}
	ucp_listener_destroy(listener);
}

static void ask(struct sockaddr_in at, unsigned seed)
{
	ucp_ep_params_t of = {
		.field_mask = UCP_EP_PARAM_FIELD_FLAGS | UCP_EP_PARAM_FIELD_SOCK_ADDR |
			      UCP_EP_PARAM_FIELD_ERR_HANDLER | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE,
		.flags = UCP_EP_PARAMS_FLAGS_CLIENT_SERVER,
		.sockaddr = { (struct sockaddr *)&at, sizeof at },
		.err_mode = UCP_ERR_HANDLING_MODE_PEER,
		.err_handler = { ended, NULL },
	};
	static char sent[LONGEST], came[LONGEST];
	ucp_ep_h ep;

	OK(ucp_ep_create(worker, &of, &ep));
	for (int m = 0; m < MESSAGES; m++) {
		size_t n = 1 + (size_t)rand_r(&seed) % (m % 2 ? LONGEST : 2000);

		for (size_t i = 0; i < n; i++)
			sent[i] = (char)rand_r(&seed);
		send_message(ep, 1, sent, n);
		if (receive_message(2, came) != n || memcmp(sent, came, n)) {
			fprintf(stderr, "message %d of %zu octets came back otherwise\n", m, n);
			exit(1);
		}
	}
	close_ep(ep, 0);
}

int main(int argc, char **argv)
{
	struct sockaddr_in at = { .sin_family = AF_INET };

	if (argc < 4 || inet_pton(AF_INET, argv[1], &at.sin_addr) != 1)
		return 2;
	at.sin_port = htons((uint16_t)atoi(argv[2]));
	open_worker();
	if (argc > 4)
		ask(at, (unsigned)strtoul(argv[4], NULL, 0));
	else
		serve(at, atoi(argv[3]));
	ucp_worker_destroy(worker);
	puts("all well");
	return 0;
}
