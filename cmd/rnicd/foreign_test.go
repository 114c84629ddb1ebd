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

// rejecting listens at addr of the namespace until the test is over, and rejects all, with text.
// It returns where it listens.
func (ns *namespace) rejecting(t *testing.T, addr, text string) string {
	t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	served := make(chan error, 1)
	listening := make(chan string, 1)
	go ns.Do(func() {
		dev, err := rnic.Open(rnic.Config{})
		if err == nil {
			var l *rnic.Listener
			if l, err = dev.Listen(ctx, addr, rnic.ListenOptions{}); err == nil {
				listening <- l.Addr().String()
				err = l.Serve(ctx, func(ctx context.Context, r *rnic.ConnRequest) {
					_ = r.Reject(ctx, []byte(text))
				})
				l.Close()
			}
		}
		served <- errors.Join(err, dev.Close(context.Background()))
	})
	select {
	case addr = <-listening:
	case err := <-served:
		stop()
		require.NoError(t, err)
	}
	t.Cleanup(func() {
		stop()
		require.NoError(t, <-served)
	})
	return addr
}

// A server's words never move the client's cursor: each client shows them escaped.
func TestForeignText(t *testing.T) {
	const evil = "RNCX\x1b]0;owned\x07\x1b[2J\u202e\x9b and \"more\""
	ns := newNamespace(t)
	addr := ns.rejecting(t, "127.0.0.1:0", evil)
	f := randomFile(t, 10).path
	for _, args := range [][]string{
		{"put", f, addr}, {"get", addr, filepath.Join(t.TempDir(), "got")}, {"perf", addr},
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

	var b strings.Builder
	remote := netip.MustParseAddrPort("192.0.2.1:5")
	o := newOutput(&b)
	o.refused(remote, "\x1b[2J")
	o.failed(remote, errors.New("one\ntwo\x1b"))
	require.Equal(t, "refused     192.0.2.1:5: \\x1b[2J\nfailed      192.0.2.1:5: one; two\\x1b\n",
		b.String())
}
