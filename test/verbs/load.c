/* A program that is linked with neither library and loads both by name, as NCCL and UCX do. */
#include <arpa/inet.h>
#include <dlfcn.h>
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>

static void *loaded(void *from, const char *name, const char *version)
{
	void *f = dlvsym(from, name, version);

	if (!f) {
		printf("%s\n", dlerror());
		exit(1);
	}
	return f;
}

/* What Debian 12's libraries do not have. */
static void newer(void *verbs, void *cm, void *context)
{
	struct {
		size_t length;
		int access;
		uint64_t comp_mask, iova;
		void *addr;
		void *unused[8];
	} wanted = { sizeof wanted, 0, 2, 0, &wanted, { 0 } };
	void *(*alloc_pd)(void *) = loaded(verbs, "ibv_alloc_pd", "IBVERBS_1.1");
	void *(*reg_mr_ex)(void *, void *) = loaded(verbs, "ibv_reg_mr_ex", "IBVERBS_1.15");
	int (*dereg_mr)(void *) = loaded(verbs, "ibv_dereg_mr", "IBVERBS_1.1");
	int (*speed_of)(void *, uint32_t, uint64_t *) =
		loaded(verbs, "ibv_query_port_speed", "IBVERBS_1.16");
	void *(*alloc_dmah)(void *, void *) = loaded(verbs, "ibv_alloc_dmah", "IBVERBS_1.15");
	int (*write_event)(void *, int, int, uint64_t) =
		loaded(cm, "rdma_write_cm_event", "RDMACM_1.4");
	void *pd = alloc_pd(context), *mr = reg_mr_ex(pd, &wanted);
	uint64_t speed = 0;

	if (!mr || dereg_mr(mr)) {
		perror("ibv_reg_mr_ex");
		exit(1);
	}
	wanted.comp_mask = 4; /* by a descriptor */
	if (reg_mr_ex(pd, &wanted) || errno != EOPNOTSUPP || speed_of(context, 1, &speed) || !speed ||
	    speed_of(context, 2, &speed) != EINVAL) {
		perror("not refused");
		exit(1);
	}
	errno = 0;
	if (alloc_dmah(context, NULL) || errno != EOPNOTSUPP || write_event(NULL, 0, 0, 0) != -1) {
		perror("not refused");
		exit(1);
	}
}

int main(void)
{
	void *verbs = dlopen("libibverbs.so.1", RTLD_NOW), *cm = dlopen("librdmacm.so.1", RTLD_NOW);
	void **(*list)(int *), *(*open_device)(void *);
	void *context;
	int (*rsocket)(int, int, int), (*rclose)(int), n = -1, fd;

	if (!verbs || !cm) {
		printf("%s\n", dlerror());
		return 1;
	}
	list = loaded(verbs, "ibv_get_device_list", "IBVERBS_1.1");
	open_device = loaded(verbs, "ibv_open_device", "IBVERBS_1.1");
	rsocket = loaded(cm, "rsocket", "RDMACM_1.0");
	rclose = loaded(cm, "rclose", "RDMACM_1.0");
	loaded(verbs, "verbs_init_cq", "IBVERBS_PRIVATE_34");
	void **devices = list(&n);

	if (n != 1 || !(context = open_device(devices[0]))) {
		printf("%d devices\n", n);
		return 1;
	}
	newer(verbs, cm, context);
	fd = rsocket(AF_INET, SOCK_STREAM, 0); /* librdmacm's, over our ids */
	if (fd < 0) {
		perror("rsocket");
		return 1;
	}
	rclose(fd);
	printf("all well\n");
	return 0;
}
