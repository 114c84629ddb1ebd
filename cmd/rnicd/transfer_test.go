package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rnicd/rnicd/internal/netlab"
	"github.com/rnicd/rnicd/internal/skip"
)

// Files of every awkward size land whole, and both sides say the same hash.
func TestPutFiles(t *testing.T) {
	ns := newNamespace(t)
	server := ns.serving(t, "--region", "64MiB")
	for _, n := range []int{64 << 20, 0, 1, 1459, 4097, 1<<20 + 1} {
		f := randomFile(t, n)
		client := ns.put(t, f)
		require.Len(t, client.Lines("^sent +"+f.path+" to "+serverAddr+"$"), 1, "%s", client)
		require.Len(t, client.Lines(`^segments +\d+ sent, \d+ retransmitted; \d+ FPDUs$`), 1,
			"%s", client)
		require.Len(t, client.Lines(`^goodput +\S+ [kMG]?bit/s \(\S+ \S+ in \S+ s\)$`), 1, "%s", client)
		require.Len(t, client.Lines(
			`^hashing +(\S+ s before that,|meanwhile, and) \S+ s in place at the server after it$`), 1, "%s",
			client)
		require.Len(t, client.Lines(
			`^placed +\S+ [KMG]?i?B directly, .* through reassembly, .* ahead of a gap$`), 1, "%s", client)
		server.Expect(t, 1, "^received +"+regexp.QuoteMeta(octets(uint64(n)))+" from "+kernelHost)
		server.Expect(t, 1, "^sha256 +"+f.sum+"$")
	}
	require.Empty(t, server.Lines("^(failed|refused)"), "%s", server)
	ns.stop(t, server)
}

// A bad network costs time, never octets. What stands after a gap is placed before the gap is
// filled.
func TestPutThroughFaults(t *testing.T) {
	ns := newNamespace(t)
	server := ns.serving(t, "--region", "16MiB", "--fault",
		"drop=1%,reorder=1%,dup=0.5%,corrupt=0.1%,seed=7")
	f := randomFile(t, 8<<20)
	client := ns.put(t, f)
	server.Expect(t, 1, "^sha256 +"+f.sum+"$")
	placed := client.Lines("^placed ")
	require.Len(t, placed, 1)
	require.Regexp(t, ` [1-9][0-9.]* ([KM]i)?B of it ahead of a gap$`, placed[0], "%s", client)
	require.Regexp(t, `^segments +\d+ sent, [1-9]\d* retransmitted`, client.Lines("^segments")[0],
		"%s", client)
	ns.stop(t, server)
}

// Without markers a segment after a gap cannot be told apart into frames: nothing is placed ahead.
// To go without CRC is the administrator's wish at both ends, which are told what that means.
//
// req: 5044-4.4-2, D01-5.2-5, D01-1.2-8
func TestPutWithoutMarkersAndCRC(t *testing.T) {
	ns := newNamespace(t)
	server := ns.serving(t, "--no-markers", "--no-crc", "--fault", "drop=1%,seed=3")
	client := ns.put(t, randomFile(t, 4<<20), "--no-crc", "--quiet")
	require.Regexp(t, ` 0 B of it ahead of a gap$`, client.Lines("^placed ")[0], "%s", client)
	for _, p := range []*process{server, client} {
		require.Len(t, p.Lines("^warning +--no-crc: .* integrity check of their own$"), 1, "%s", p)
		p.Expect(t, 1, "^start-up +rfc5044, no CRC, no markers$") // the server's may come a little later
	}
	ns.stop(t, server)
}

// A client asks in any dialect that the server serves, and is told when it is not served.
func TestPutDialects(t *testing.T) {
	ns := newNamespace(t)
	server := ns.serving(t)
	f := randomFile(t, 200_000)
	for i, d := range []string{"rddp-01", "rfc5044", "rtr", "rfc6581"} {
		client := ns.put(t, f, "--dialect", d, "--quiet")
		server.Expect(t, i+1, "^sha256 +"+f.sum+"$")
		markers := "from the client" // not needed towards a kernel socket
		if d == "rddp-01" {          // whose peer may want them whatever we say
			markers = "both ways"
		}
		for _, p := range []*process{client, server} {
			require.Len(t, p.Lines("^start-up +"+d+", CRC32C, markers "+markers+"$"), 1, "%s", p)
		}
	}
	ns.stop(t, server)

	ns = newNamespace(t)
	server = ns.serving(t, "--dialect", "rfc5044,rddp-01")
	ns.put(t, f, "--dialect", "rddp-01", "--quiet")
	p := ns.exits(t, 1, "put", "--dialect", "rfc6581", f.path, serverAddr)
	const why = "asked in rfc6581 (MPA revision 2), the peer answered with revision 1: it does not " +
		"serve that dialect; --dialect asks in another"
	require.Equal(t, "rnicd: rnic: connect to "+serverAddr+": rnic: "+why, errorLines(p)[0])
	server.Expect(t, 1, `peer asks in rfc6581 \(MPA revision 2\), served here: rddp-01,rfc5044$`)
	ns.stop(t, server)

	for _, c := range []struct{ dialect, why string }{ // a client that names none asks in rfc5044
		{"rddp-01", ", with MPA revision 0: it does not serve rfc5044, or its ULP said no"},
		{"rtr", ": its ULP said no, or it does not serve rfc5044"},
	} {
		server = ns.rnicd(t, "serve", "--pmd", "kernel", "--region", "1MiB", "--dialect", c.dialect)
		server.Expect(t, 1, "^ready ")
		p = ns.exits(t, 1, "put", f.path, "127.0.0.1")
		require.Equal(t, "rnicd: rnic: connect to 127.0.0.1:7174: rnic: connection rejected by the "+
			"peer (0 octets of private data)"+c.why+
			"; --dialect asks in another", errorLines(p)[0])
		server.Expect(t, 1, `peer asks in rfc5044 \(MPA revision 1\), served here: `+c.dialect+"$")
		ns.ends(t, server)
	}
	p = ns.exits(t, 1, "serve", "--dialect", "culley-02")
	require.Equal(t, `rnicd: --dialect "culley-02": want rddp-01, rfc5044, rtr or rfc6581`,
		errorLines(p)[0])
}

// --once ends with the first transfer's result; TestServersEndOnce has its success.
func TestServeOnce(t *testing.T) {
	t.Run("failure", func(t *testing.T) {
		ns := newNamespace(t)
		server := ns.serving(t, "--once")
		ns.Do(func() {
			c := dialRaw(t)
			c.start(100_000)
			c.close()
		})
		require.Equal(t, 1, server.Wait(t), "%s", server)
		require.Len(t, server.Lines("^failed "), 1, "%s", server)
		require.Len(t, server.Lines("^rnicd: "), 1, "%s", server)
	})
	t.Run("interrupted", func(t *testing.T) {
		ns := newNamespace(t)
		server := ns.serving(t, "--once")
		server.Signal(t, os.Interrupt)
		require.Equal(t, 130, server.Wait(t), "%s", server)
		require.Len(t, server.Lines("^rnicd: interrupted$"), 1, "%s", server)
		require.False(t, ns.Has(t, "rnic0"))
	})
}

// A server that starts late is waited for, with --wait only.
func TestPutWaits(t *testing.T) {
	ns := newNamespace(t)
	f := randomFile(t, 1000)
	client := ns.rnicd(t, "put", "--wait", "60s", f.path, "127.0.0.1")
	server := ns.rnicd(t, "serve", "--pmd", "kernel", "--region", "16MiB")
	server.Expect(t, 1, "^sha256 +"+f.sum+"$")
	require.Equal(t, 0, client.Wait(t), "%s", client)
}

// The demo needs no root. Its file may be larger than the usual region.
func TestDemo(t *testing.T) {
	f := randomFile(t, 3<<20)
	p := netlab.Start(t, exec.Command(programPath(t), "demo", "--region", "4MiB", f.path))
	require.Equal(t, 0, p.Wait(t), "%s", p)
	require.Len(t, p.Lines("^sha256 +"+f.sum+"$"), 2, "%s", p)
	require.Len(t, p.Lines(`^hashing +\S+ s before that, \S+ s in place at the server after it$`), 1,
		"%s", p)
	require.Len(t, p.Lines(`^hashing +\S+ s in place, after that$`), 1, "%s", p)

	p = netlab.Start(t, exec.Command(programPath(t), "demo", "--region", "4MiB", "--fault",
		"drop=1%,reorder=1%,dup=0.5%,seed=7", f.path))
	require.Equal(t, 0, p.Wait(t), "%s", p)
	require.Regexp(t, ` [1-9][0-9.]* ([KM]i)?B of it ahead of a gap$`, p.Lines("^placed ")[0], "%s", p)

	p = netlab.Start(t, exec.Command(programPath(t), "demo", "--zero-copy", "--region", "4MiB",
		"--fault", "drop=1%,corrupt=1%,seed=7", f.path))
	require.Equal(t, 0, p.Wait(t), "%s", p)
	require.Len(t, p.Lines("^sha256 +"+f.sum+"$"), 2, "%s", p)

	p = netlab.Start(t, exec.Command(programPath(t), "demo", "--region", "1MiB", f.path))
	require.Equal(t, 1, p.Wait(t), "%s", p)
	require.Equal(t, "rnicd: xfer: the server refused: 3145728 octets offered, the region holds "+
		"1048576; start the server with a larger --region",
		p.Lines("^rnicd: ")[0])

	p = netlab.Start(t, exec.Command(programPath(t), "demo", "--no-crc", zeros(t, 257<<20)))
	require.Equal(t, 0, p.Wait(t), "%s", p)
	require.Contains(t, p.String(), "received    257.0 MiB")
}

// withEALMemory tries again when what is left of the hugepages was too little for the EAL: other
// tests use them too.
func withEALMemory(t *testing.T, try func() *process) {
	t.Helper()
	const outOfMemory = "the EAL's own memory ran out"
	var p *process
	for range 5 {
		if p = try(); len(p.Lines(outOfMemory)) == 0 {
			return
		}
		p.Wait(t)
	}
	skip.Hugepages(t, 256, fmt.Errorf("%s", p)) // as many as make test reserves
}

// Two queues, two poll-mode cores, one address: whichever a client's frames come to, it is served.
func TestPutsOverTwoQueues(t *testing.T) {
	ns := newNamespace(t)
	putSix(t, ns, ns.serving(t, "--queues", "2"))
}

// All queues of a DPDK port, a poll-mode core each: connections that clients open, and that our
// side opens, over the kernel's TAP and over shared memory; on each the other end is a device of
// ours that is not DPDK's.
func TestPutsThroughDPDKQueues(t *testing.T) {
	if programPath(t); !program.dpdk {
		p := newNamespace(t).exits(t, 1, "serve", "--pmd", "dpdk")
		require.Len(t, errorLines(p), 1, "%s", p)
		skip.Missing(t, "the program is built without DPDK's driver: no libdpdk, or under the "+
			"race detector")
	}
	t.Run("net_tap", func(t *testing.T) {
		ns := newNamespace(t)
		var server *process
		withEALMemory(t, func() *process {
			server = ns.rnicd(t, "serve", "--pmd", "dpdk", "--region", "16MiB", "--queues", "2",
				"--counters")
			server.Await(t, 1, "^ready ")
			return server
		})
		ns.Run(t, "ip", "addr", "add", kernelHost+"/24", "dev", "rnic0")
		ns.Run(t, "ip", "link", "set", "rnic0", "up")
		putSix(t, ns, server)
	})
	t.Run("net_memif", func(t *testing.T) {
		ns := newNamespace(t)
		socket := filepath.Join(t.TempDir(), "memif.sock")
		server := ns.rnicd(t, "serve", "--pmd", "memif", "--role", "server", "--socket", socket,
			"--region", "16MiB", "--queues", "2", "--no-dad")
		server.Await(t, 1, "^ready ")
		for i := range 4 {
			f := randomFile(t, 3<<20+i)
			withEALMemory(t, func() *process {
				client := ns.rnicd(t, "put", "--pmd", "dpdk", "--dev",
					"net_memif0,role=client,id=0,socket-abstract=no,socket="+socket,
					"--cores", "0-1", "--addr", "10.9.0.2/24", "--no-dad", "--timeout", "60s", f.path, serverAddr)
				client.Wait(t)
				return client
			})
			server.Expect(t, 1, "^sha256 +"+f.sum+"$")
		}
		ns.stop(t, server)
	})
}

// putSix puts files over connections of their own, from the kernel's TCP.
func putSix(t *testing.T, ns *namespace, server *process) {
	t.Helper()
	for i := range 6 {
		f := randomFile(t, 3<<20+i)
		ns.put(t, f)
		server.Expect(t, 1, "^sha256 +"+f.sum+"$")
	}
	require.Empty(t, server.Lines("^(failed|refused)"), "%s", server)
	ns.stop(t, server)
}

// --once ends with a client that was refused, which hears why, and has that as the status. What
// never asks for an RDMA connection ends nothing, nor does a client that asks in a dialect that
// is not served: it may come again in another.
func TestServersEndOnce(t *testing.T) {
	for server, tc := range map[string]struct{ client, refused, heard, then string }{
		"serve --region 1MiB": {
			"put --quiet " + randomFile(t, 2<<20).path + " AT",
			"was refused: 2097152 octets offered, the region holds 1048576",
			"the server refused: 2097152 octets", "put --quiet " + randomFile(t, 1000).path + " AT",
		},
		"perf server --size-max 4096": {"perf write bw AT", "was refused: .*4096", "the server refused: ",
			"perf write bw AT -n 10 -s 1024"},
	} {
		t.Run(server, func(t *testing.T) {
			ns := newNamespace(t)
			start := func() (p *process, at string) {
				p = ns.listening(t, server+" --pmd kernel --addr 127.0.0.1 --once")
				return p, strings.TrimSuffix(strings.Fields(p.Lines("^ready ")[0])[1], ",")
			}
			p, at := start()
			ns.Do(func() {
				for _, words := range []string{"GET / HTTP/1.1\r\n\r\n",
					string(startupFrame(keyRequest, flagC, 77, nil)), ""} {
					c := dialRawFrom(t, "127.0.0.1", at)
					c.send([]byte(words))
					_ = c.conn.CloseWrite() // the server may have been first
					c.drained()
					c.close()
				}
			})
			refused := ns.exits(t, 1, strings.Fields(strings.Replace(tc.client, "AT", at, 1))...)
			require.Len(t, refused.Lines("^rnicd: .*"+tc.heard), 1, "%s", refused)
			require.Equal(t, 1, p.Wait(t), "%s", p)
			require.Len(t, p.Lines("^rnicd: .*"+tc.refused), 1, "%s", p)

			p, at = start()
			ns.succeeds(t, strings.Replace(tc.then, "AT", at, 1))
			require.Equal(t, 0, p.Wait(t), "%s", p)
		})
	}
}

// A client that is told to try again later, for another one that is being served, does not end
// --once, nor that one.
func TestBusyDoesNotEndOnce(t *testing.T) {
	ns := newNamespace(t)
	server := ns.listening(t, "perf server --pmd kernel --addr 127.0.0.1 --clients 1 --once")
	first := ns.rnicd(t, strings.Fields("perf write bw 127.0.0.1 -D 1h")...)
	first.Expect(t, 1, "^write bandwidth with ")
	ns.fails(t, "perf write bw 127.0.0.1",
		".*another client is being served, and one at a time; try again later")
	server.Expect(t, 1, "^refused .*try again later$")
	first.Signal(t, os.Interrupt)
	require.Equal(t, 130, first.Wait(t), "%s", first)
	require.Equal(t, 1, server.Wait(t), "%s", server)
	require.Empty(t, server.Lines("^rnicd: .*refused"), "%s", server)
}
