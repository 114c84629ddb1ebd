/*
 * The C library's own functions, for files that stand in front of them: EACH(x) lists those of the
 * file. Handlers of signals call some, so they are looked up early; a constructor that came before
 * ours looks them up itself.
 */
#include <dlfcn.h>

#define NUMBER(name) N_##name,
#define NAME(name) #name,
enum { EACH(NUMBER) FUNCTIONS };
static const char *const names[] = { EACH(NAME) };
static void *libc[FUNCTIONS];

RV_EARLY static void *next(int function)
{
	if (!load_relaxed(&libc[function]))
		__atomic_store_n(&libc[function], dlsym(RTLD_NEXT, names[function]), __ATOMIC_RELAXED);
	return libc[function];
}

__attribute__((constructor)) static void look_up(void)
{
	for (int i = 0; i < FUNCTIONS; i++)
		next(i);
}

#define NEXT(name) ((__typeof__(&name))next(N_##name))
