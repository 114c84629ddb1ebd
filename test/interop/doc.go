// Package interop has no code: its tests are conversations with Linux's software iWARP driver, in a
// virtual machine. They need root and minutes, so that plain "go test ./..." leaves them out; "make
// interop" runs them all. docs/results/interop-siw.md has what was seen.
package interop
