/* A program that is linked with neither library and loads both by name, as NCCL and UCX do. */
#include <arpa/inet.h>
#include <dlfcn.h>
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

int main(void)
{
	void *verbs = dlopen("libibverbs.so.1", RTLD_NOW), *cm = dlopen("librdmacm.so.1", RTLD_NOW);
	void **(*list)(int *), *(*open_device)(void *);
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

	if (n != 1 || !open_device(devices[0])) {
		printf("%d devices\n", n);
		return 1;
	}
	fd = rsocket(AF_INET, SOCK_STREAM, 0); /* librdmacm's, over our ids */
	if (fd < 0) {
		perror("rsocket");
		return 1;
	}
	rclose(fd);
	printf("all well\n");
	return 0;
}
