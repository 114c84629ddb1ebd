package main

import (
	"net"
	"regexp"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rnicd/rnicd/stack"
)

// Connections of one address that say nothing, more than there are places, over either transport: a
// new client, of another address and of theirs, is served at once, and not when the time of the
// others is over, 10 s later.
func TestSilentConnections(t *testing.T) {
	t.Parallel()
	const soon = 3 * time.Second // a loaded machine's; without their giving way it is 10 s and more
	for name, tc := range map[string]struct {
		server, host, silent, other string
		count                       int
	}{
		"kernel": {"serve --pmd kernel --region 16MiB --peer-max 0", "127.0.0.1", "127.0.0.2",
			"127.0.0.3", 1200},
		"peers": {"serve --pmd kernel --region 16MiB", "127.0.0.1", "127.0.0.2", "127.0.0.3", 400},
		"tap": {"serve --host-addr 10.9.0.254/24 --region 16MiB", serverHost, kernelHost,
			"10.9.0.253", 400},
		"table": {"serve --host-addr 10.9.0.254/24 --region 16MiB --peer-max 0", serverHost, kernelHost,
			"10.9.0.253", 400},
	} {
		t.Run(name, func(t *testing.T) {
			ns := newNamespace(t)
			server := ns.listening(t, tc.server)
			if tc.host == serverHost {
				ns.Run(t, "ip", "addr", "add", tc.other+"/24", "dev", "rnic0")
			}
			ns.Do(func() {
				for range tc.count {
					c := dialRawFrom(t, tc.silent, tc.host+":7174")
					defer c.close()
				}
				for _, from := range []string{tc.other, tc.silent} {
					begin := time.Now()
					c := dialRawFrom(t, from, tc.host+":7174")
					c.start(1000)
					require.Less(t, time.Since(begin), soon, "from %s", from)
					c.close()
				}
			})
			require.NotEmpty(t, server.Lines("^failed .*: "+regexp.QuoteMeta(stack.ErrGaveWay.Error())+"$"))
			ns.ends(t, server)
		})
	}
}

func dialRawFrom(t testing.TB, from, to string) *raw {
	t.Helper()
	d := net.Dialer{Timeout: patience, LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
	conn := must(d.Dial("tcp4", to))(t)
	require.NoError(t, conn.SetDeadline(time.Now().Add(patience)))
	return &raw{t: t, conn: conn.(*net.TCPConn)}
}
