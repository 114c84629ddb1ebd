// Package interop tests against siw, Linux's software iWARP driver, in a virtual machine. The tests
// need root and take minutes, so "go test ./..." leaves them out; "make interop" runs them.
// docs/results/interop-siw.md has the results.
package interop
