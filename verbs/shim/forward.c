/*
 * What this library has not of its own, forwarded to the distribution's libraries, which are loaded
 * at the first such call: rsockets, which come back here for what they do, and what drivers call.
 * With the preload alone the program has loaded those libraries itself.
 */
#include "shim.h"

#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <sys/stat.h>

#define NOTHING(name, library) \
	void name(void);       \
	void name(void)        \
	{                      \
	} /* a driver registers: it will find no device */
#define VARIABLE(name, library) extern bool name; bool name;

/* Up to eight words, which is how every one of them is called. */
#define FORWARD(name, library)                                                     \
	long name(long, long, long, long, long, long, long, long);                 \
	long name(long a, long b, long c, long d, long e, long f, long g, long h)  \
	{                                                                          \
		static long (*to)(long, long, long, long, long, long, long, long); \
		void *found = __atomic_load_n((void **)&to, __ATOMIC_ACQUIRE);     \
                                                                                   \
		if (!found) {                                                      \
			found = find(library, #name);                              \
			if (!found)                                                \
				return rv_fail(ENOSYS);                            \
			store_release((void **)&to, found);                        \
		}                                                                  \
		return to(a, b, c, d, e, f, g, h);                                 \
	}

/* The distribution's library, in the first of the loader's folders where that name is not ours. */
static void *open_library(const char *self, const char *library)
{
	void *ours = dlopen(self, RTLD_LAZY | RTLD_NOLOAD | RTLD_GLOBAL); /* rsockets call us */
	struct stat mine, other;
	Dl_serinfo size, *places;
	char path[PATH_MAX];
	void *handle = NULL;

	if (!ours || stat(self, &mine) || dlinfo(ours, RTLD_DI_SERINFOSIZE, &size))
		return NULL;
	places = malloc(size.dls_size);
	if (!places)
		return NULL;
	*places = size;
	if (!dlinfo(ours, RTLD_DI_SERINFOSIZE, places) && !dlinfo(ours, RTLD_DI_SERINFO, places)) {
		for (unsigned i = 0; !handle && i < places->dls_cnt; i++) {
			snprintf(path, sizeof path, "%s/%s", places->dls_serpath[i].dls_name, library);
			if (!stat(path, &other) && (other.st_ino != mine.st_ino || other.st_dev != mine.st_dev))
				handle = dlopen(path, RTLD_LAZY | RTLD_LOCAL);
		}
	}
	free(places);
	return handle;
}

/* No thread is cancelled in between, as it would be in the middle of a constructor. */
static void *find(const char *library, const char *name)
{
	void *symbol = dlsym(RTLD_NEXT, name), *handle;
	Dl_info self;
	int before;

	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before);
	if (!symbol && dladdr(&rv_area, &self) && self.dli_fname) {
		handle = open_library(self.dli_fname, library);
		if (handle)
			symbol = dlsym(handle, name);
	}
	if (!symbol)
		fprintf(stderr, "rnicd: %s: the distribution's %s has it, and was not found\n", name, library);
	pthread_setcancelstate(before, &before);
	return symbol;
}

#include "forwards.h"
