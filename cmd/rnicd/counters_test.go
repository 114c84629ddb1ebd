package main

import (
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rnicd/rnicd/stack"
	"github.com/rnicd/rnicd/stream"
)

// SIGUSR1 shows a daemon's counters while it serves, --counters at its end, under the names that
// docs/reference/limits.md uses.
func TestCounters(t *testing.T) {
	ns := newNamespace(t)
	server := ns.serving(t, "--counters", "--queues", "2")
	f := randomFile(t, 1<<20)
	ns.put(t, f, "--dialect", "rfc6581")
	refused := ns.rnicd(t, "put", f.path, serverHost+":9") // a segment for a closed port
	require.Equal(t, 1, refused.Wait(t))
	server.Signal(t, syscall.SIGUSR1)
	server.Expect(t, 1, "^counters    those that are not 0$")
	server.Expect(t, 1, "^ +Queue.RxFrames [1-9]")
	server.Expect(t, 1, "^ +Accepted 1$")
	server.Expect(t, 1, "^ +tcp/no_conn [1-9]")
	server.Expect(t, 1, "^ +Memory.Records [1-9]")
	server.Expect(t, 1, "^ +Neighbours.Created [1-9]")
	ns.put(t, f)
	ns.ends(t, server)
	require.Len(t, server.Lines("^counters "), 2, "%s", server)
	require.Len(t, server.Lines("^ +Accepted 2$"), 1, "%s", server)
	require.Empty(t, server.Lines("^ +[^ ]+ 0$"), "%s", server)
	require.Empty(t, server.Lines("^(failed|rnicd)"), "%s", server)

	stream := ns.rnicd(t, "stream", "sink", "--addr", "10.9.0.1/24", "--host-addr", kernelHost+"/24",
		"--counters", "--json")
	stream.Expect(t, 1, "^ready ")
	ns.ends(t, stream)
	require.Len(t, stream.Lines("^counters "), 1, "%s", stream)

	kernel := ns.rnicd(t, "serve", "--pmd", "kernel", "--region", "1MiB", "--counters")
	kernel.Expect(t, 1, "^ready ")
	ns.ends(t, kernel)
	require.Len(t, kernel.Lines("^counters "), 1, "%s", kernel)
}

// Every number that a Poller counts has a name, and docs name no counter that cannot be read.
func TestCounterNames(t *testing.T) {
	tal := &tally{count: map[string]uint64{}}
	tal.addPoller(&stack.Counters{RxFrames: 1}, stream.Counters{Spilled: 3})
	for _, name := range []string{"RxFrames", "Memory.RecordsShort", "Neighbours.Moved",
		"Queue.RxNoBuf", "BufsExhausted", "Conns",
		"stream.Counters.Spilled", "stack/conn max", "tcp/no_memory", "inet/reassembly_full"} {
		require.Contains(t, tal.count, name)
	}
	var out strings.Builder
	tal.print(&out)
	require.Equal(t, "counters    those that are not 0\n            RxFrames 1\n            "+
		"stream.Counters.Spilled 3\n", out.String())

	drop := regexp.MustCompile("`((?:inet|tcp|stack)/[a-z_ ]+)`")
	for _, doc := range []string{"limits.md", "attacks.md"} {
		text := readFile(t, "../../docs/reference/"+doc)
		found := drop.FindAllStringSubmatch(text, -1)
		require.NotEmpty(t, found)
		for _, m := range found {
			require.Contains(t, tal.count, string(m[1]), doc)
		}
	}
}
