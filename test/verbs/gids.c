/*
 * Prints what ibv_get_async_event tells of the port, with the port's state and the GIDs, as verbs
 * and the files of the device have them then.
 */
#include "walk.h"

#include <arpa/inet.h>

static void line_of(const char *path, char *text, int size)
{
	FILE *f = fopen(path, "r");

	CHECK(f && fgets(text, size, f) && !fclose(f));
	text[strcspn(text, "\n")] = 0;
}

static void show(struct ibv_context *c, const char *what)
{
	struct ibv_port_attr port;
	char state[64], path[128], gid[64], as_file[64];
	static const union ibv_gid none;
	union ibv_gid g;

	CHECK(!ibv_query_port(c, 1, &port));
	line_of("/sys/class/infiniband/rnicd0/ports/1/state", state, sizeof state);
	printf("%s, %s, %s:", what, ibv_port_state_str(port.state), state);
	for (int i = 0; i < port.gid_tbl_len; i++) {
		CHECK(!ibv_query_gid(c, 1, i, &g));
		if (!memcmp(&g, &none, sizeof g))
			continue;
		snprintf(path, sizeof path, "/sys/class/infiniband/rnicd0/ports/1/gids/%d", i);
		line_of(path, as_file, sizeof as_file);
		CHECK(inet_pton(AF_INET6, as_file, gid) == 1 && !memcmp(gid, &g, sizeof g));
		printf(" %d=%s", i, inet_ntop(AF_INET6, &g, gid, sizeof gid));
	}
	printf(".\n");
	fflush(stdout);
}

int main(void)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_context *c = list ? ibv_open_device(list[0]) : NULL;
	struct ibv_async_event e;

	CHECK(c);
	show(c, "at first");
	while (!ibv_get_async_event(c, &e)) {
		CHECK(e.element.port_num == 1);
		ibv_ack_async_event(&e);
		show(c, ibv_event_type_str(e.event_type));
	}
	return 1;
}
