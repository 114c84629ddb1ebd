// Package verbs is libibverbs and librdmacm over rnic, for C programs as they are. It has no Go code
// of its own:
//
//	shim      the C library that a program is started with: librnicd_verbs.so
//	engine    what carries out its calls, over rnic
//	cshared   the engine as a library that the shim loads: librnicd_engine.so
//	ring      what shim and engine share
//
// The tests here run Debian's programs, and test/verbs's, between two processes. docs/guides/verbs.md
// says what works.
package verbs
