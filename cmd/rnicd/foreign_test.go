package main

import (
	"context"
	"errors"
	"net/netip"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rnicd/rnicd/rnic"
)

// A server's words never move the client's cursor: each client shows them escaped.
func TestForeignText(t *testing.T) {
	const evil = "RNCX\x1b]0;owned\x07\x1b[2J\u202e\x9b and \"more\""
	ns := newNamespace(t)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	served := make(chan error, 1)
	var addr string
	listening := make(chan struct{})
	go ns.Do(func() {
		dev, err := rnic.Open(rnic.Config{})
		if err == nil {
			var l *rnic.Listener
			if l, err = dev.Listen(ctx, "127.0.0.1:0", rnic.ListenOptions{}); err == nil {
				addr = l.Addr().String()
				close(listening)
				err = l.Serve(ctx, func(ctx context.Context, r *rnic.ConnRequest) {
					_ = r.Reject(ctx, []byte(evil))
				})
				l.Close()
			}
		}
		served <- errors.Join(err, dev.Close(context.Background()))
	})
	<-listening
	f := randomFile(t, 10).path
	for _, args := range [][]string{
		{"put", f, addr}, {"get", addr, filepath.Join(t.TempDir(), "got")}, {"perf", addr},
		{"rping", addr}, {"rstream", addr},
	} {
		p := ns.rnicd(t, args...)
		require.NotZero(t, p.Wait(t), "%v: %s", args, p)
		for _, r := range []string{"\x1b", "\x07", "\u202e", "\x9b"} {
			require.NotContains(t, p.String(), r, "%v: %q", args, p)
		}
		if args[0] == "put" {
			require.Contains(t, p.String(),
				`the server refused: \x1b]0;owned\x07\x1b[2J\u202e\x9b and "more"`)
		}
	}
	stop()
	require.NoError(t, <-served)

	var b strings.Builder
	remote := netip.MustParseAddrPort("192.0.2.1:5")
	o := newOutput(&b)
	o.refused(remote, "\x1b[2J")
	o.failed(remote, errors.New("one\ntwo\x1b"))
	require.Equal(t, "refused     192.0.2.1:5: \\x1b[2J\nfailed      192.0.2.1:5: one; two\\x1b\n",
		b.String())
}
