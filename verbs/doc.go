// Package verbs is libibverbs and librdmacm over rnic, for unchanged C programs. It has no Go
// code of its own:
//
//	shim              the C library that the program is started with: librnicd_verbs.so
//	internal/engine   carries out the library's calls over rnic
//	cshared           the engine as a library that the shim loads: librnicd_engine.so
//	internal/ring     the memory that shim and engine share
//
// The tests here run Debian's programs and those of test/verbs between two processes.
// docs/guides/verbs.md lists programs that work, docs/reference/libibverbs.md calls that differ.
package verbs
