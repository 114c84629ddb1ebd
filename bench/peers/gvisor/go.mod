module github.com/rnicd/rnicd/bench/peers/gvisor

go 1.26.3

require (
	github.com/rnicd/rnicd v0.0.0
	golang.org/x/sys v0.49.0
	gvisor.dev/gvisor v0.0.0-20260905035102-160fafc42237
)

replace github.com/rnicd/rnicd => ../../..

require (
	github.com/google/btree v1.1.2 // indirect
	golang.org/x/exp v0.0.0-20250711185948-6ae5c78190dc // indirect
	golang.org/x/time v0.15.0 // indirect
)
