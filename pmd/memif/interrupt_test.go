package memif

import (
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// readable waits for a queue's descriptor, or with wait 0 only looks.
func readable(t *testing.T, q *Queue, wait int) bool {
	t.Helper()
	fd, ok := q.Interrupt()
	require.True(t, ok)
	n := must(unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, wait))(t)
	return n == 1
}

// A queue that is armed is woken by a frame, at either end and with each way to move it; one that
// is not is left alone. What was said before the link came counts in the session, and a link that
// goes and comes again changes neither.
func TestQueuesAreWoken(t *testing.T) {
	eachKind(t, func(t *testing.T, k kind) {
		r := newRand(t)
		client, server, _ := newPair(t, pairConfig{zero: k.zero})
		for range 3 {
			for _, x := range []struct{ from, to *side }{{server, client}, {client, server}} {
				q := x.to.queues[0]
				x.from.send(t, 0, frame(r, 60))
				require.Len(t, x.to.receive(t, 0, 1), 1)
				require.False(t, readable(t, q, 0), "nobody has armed it")
				q.Arm(true)
				require.Empty(t, x.to.take(0))
				require.False(t, readable(t, q, 0), "nothing has come")
				x.from.send(t, 0, frame(r, 60))
				require.True(t, readable(t, q, int(patience.Milliseconds())))
				q.Arm(false)
				require.Len(t, x.to.receive(t, 0, 1), 1)
				require.False(t, readable(t, q, 0), "and is over")
			}
		}
	})
}

// A queue that was armed while there was no peer is woken by the first frame.
func TestWokenByTheFirstFrame(t *testing.T) {
	l := listen(t, ListenConfig{})
	server := bind(t, l, BindConfig{}, 64)
	server.queues[0].Arm(true)
	require.Empty(t, server.take(0))
	for range 2 {
		client := dialSide(t, Config{Socket: l.cfg.Socket}, false, 256)
		joined(t, client, server)
		client.send(t, 0, frame(newRand(t), 60))
		require.True(t, readable(t, server.queues[0], int(patience.Milliseconds())))
		require.Len(t, server.receive(t, 0, 1), 1)
		client.closed(t)
		require.NoError(t, server.port.AwaitLink(within(t), false))
		server.left(t)
		server.queues[0].Arm(false)
		server.queues[0].Arm(true)
	}
	server.closed(t)
}
