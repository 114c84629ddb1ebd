//go:build dpdk

// The environment abstraction layer: started once, on a thread of its own.

#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <rte_eal.h>
#include <rte_errno.h>
#include <rte_log.h>

#include "shim.h"

struct init {
	int argc;
	char **argv;
	int err;
};

static void *
init_thread(void *arg)
{
	struct init *in = arg;

	if (rte_eal_init(in->argc, in->argv) < 0)
		in->err = rte_errno ? -rte_errno : -EINVAL;
	return NULL;
}

// keep_tail copies the end of s, without the final newline: the last messages say why.
static void
keep_tail(char *dst, size_t size, const char *s, size_t len)
{
	while (len > 0 && s[len - 1] == '\n')
		len--;
	if (len >= size) {
		s += len - (size - 1);
		len = size - 1;
	}
	memcpy(dst, s, len);
	dst[len] = 0;
}

// rnic_eal_init runs rte_eal_init on a fresh thread that ends afterwards. rte_eal_init pins the
// calling thread to the main lcore and marks it as such; a thread of the Go runtime must suffer
// neither. argv must stay allocated: the EAL keeps pointers into it. log receives the tail of what
// the EAL had to say.
int
rnic_eal_init(int argc, char **argv, char *log, size_t log_size)
{
	struct init in = { .argc = argc, .argv = argv };
	char *text = NULL;
	size_t len = 0;
	pthread_t t;
	FILE *f;
	int err;

	f = open_memstream(&text, &len);
	if (f != NULL)
		rte_openlog_stream(f);
	err = pthread_create(&t, NULL, init_thread, &in);
	if (err == 0) {
		pthread_join(t, NULL);
		err = in.err;
	} else {
		err = -err;
	}
	rte_openlog_stream(stderr);
	if (f != NULL) {
		fclose(f);
		keep_tail(log, log_size, text, len);
		free(text);
	}
	return err;
}

const char *
rnic_eal_runtime_dir(void)
{
	return rte_eal_get_runtime_dir();
}

int
rnic_eal_iova_is_pa(void)
{
	return rte_eal_iova_mode() == RTE_IOVA_PA;
}

int
rnic_eal_has_pci(void)
{
	return rte_eal_has_pci();
}

const char *
rnic_strerror(int err)
{
	return rte_strerror(err < 0 ? -err : err);
}
