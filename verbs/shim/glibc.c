/*
 * Who loads the library with the loader of musl, as LD_PRELOAD in a container with Alpine does, is
 * told what is wrong. That loader does not find indirect functions (STT_GNU_IFUNC): it ends the
 * program and names this one among what it misses. glibc's finds it; nobody calls it.
 */

static void nothing(void)
{
}

/* The loader calls it before anything else of the library. */
__attribute__((used)) static void (*resolve(void))(void)
{
	return nothing;
}

extern void librnicd_needs_glibc_2_34_or_later_this_is_musl(void);

__attribute__((ifunc("resolve"))) void librnicd_needs_glibc_2_34_or_later_this_is_musl(void);

/* That it is looked for. */
__attribute__((used)) static void (*const looked_for)(void) =
	librnicd_needs_glibc_2_34_or_later_this_is_musl;
