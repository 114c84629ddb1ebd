// Command cshared is the engine of package verbs as a shared library, librnicd_engine.so, which
// librnicd_verbs.so loads at the program's first call that needs it:
//
//	go build -buildmode=c-shared -o librnicd_engine.so ./verbs/cshared
//
// The program's threads never run Go: rnicd_engine_attach (attach.c) tells where the shared area
// is, and the engine serves it from threads of its own.
package main

// void *rnicd_engine_area(void);
import "C"

import "github.com/rnicd/rnicd/verbs/engine"

func init() {
	go func() { engine.Serve(C.rnicd_engine_area()) }()
}

func main() {}
