package main

import (
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"
)

// A command that measures has a processor for each Poller, and no more than there were; the
// kernel's sockets have no Poller, and the environment has precedence.
func TestOneThread(t *testing.T) {
	before := runtime.GOMAXPROCS(4)
	defer runtime.GOMAXPROCS(before)
	for _, tc := range []struct {
		o    nicOptions
		env  string
		want int
	}{
		{nicOptions{pmd: "tap"}, "", 1},
		{nicOptions{pmd: "memif", queues: 3}, "", 3},
		{nicOptions{pmd: "dpdk", queues: 8}, "", 4},
		{nicOptions{pmd: "kernel"}, "", 4},
		{nicOptions{pmd: "tap"}, "4", 4},
	} {
		t.Setenv("GOMAXPROCS", tc.env)
		runtime.GOMAXPROCS(4)
		tc.o.oneThread()
		require.Equal(t, tc.want, runtime.GOMAXPROCS(0), "%+v", tc)
	}
}
