package main

import (
	"testing"
)

// A client whose address has as many connections as --peer-max allows hears that this may be it,
// over either transport, and the server says so in words of the flag.
func TestPeerMaxIsToldOf(t *testing.T) {
	if testing.Short() { // make test-all
		return
	}
	for name, tc := range map[string]struct{ server, from, to, client, heard, told string }{
		"kernel": {
			"serve --pmd kernel --addr 127.0.0.1 --region 1MiB --peer-max 1", "127.0.0.1",
			"127.0.0.1:7174", "",
			`rnic: connect to 127\.0\.0\.1:7174: .*; what listens there may be no server of RDMA over TCP, or is full \(--peer-max\)$`,
			`^failed +127\.0\.0\.1:[0-9]+: its address has as many connections as --peer-max \(1\) allows$`,
		},
		"tap": {
			"serve --host-addr 10.9.0.254/24 --region 1MiB --peer-max 1", kernelHost, serverAddr,
			" --timeout 2s",
			`gave up after --timeout 2s: rnic: connect to 10\.9\.0\.1:7174: .*; nothing answers there: no host, a filter, or a server of our TCP that is full \(--peer-max\)$`,
			`^full +[0-9]+ segments that open a connection were not answered: their address has as many as --peer-max allows$`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			ns := newNamespace(t)
			server := ns.listening(t, tc.server)
			file := randomFile(t, 1000)
			var held *raw
			ns.Do(func() {
				held = dialRawFrom(t, tc.from, tc.to)
				held.start(1000)
			})
			ns.fails(t, "put --quiet "+file.path+" "+tc.to+tc.client, tc.heard)
			server.Expect(t, 1, tc.told)
			held.close()
			ns.ends(t, server)
		})
	}
}
