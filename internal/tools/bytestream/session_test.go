package bytestream

import (
	"context"
	"errors"
	"net"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// A source's octets come back from an echo, and both ends have counted them; one that is silent is
// given up.
func TestSessions(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	echoed := make(chan *Session, 1)
	go func() {
		c, err := l.Accept()
		s := &Session{Conn: c, Length: 4096, Idle: time.Minute}
		if err == nil {
			err = s.Run(context.Background(), "echo")
			_ = c.Close()
		}
		if err != nil {
			s = nil
		}
		echoed <- s
	}()
	c, err := net.Dial("tcp", l.Addr().String())
	require.NoError(t, err)
	defer c.Close()
	s := &Session{Conn: c, Length: 10_000, Idle: time.Minute, Bytes: 123_457}
	require.NoError(t, s.Run(t.Context(), "source"))
	require.EqualValues(t, 123_457, s.Sent)
	require.Equal(t, s.Sent, s.Received)
	other := <-echoed
	require.NotNil(t, other)
	require.Equal(t, s.Sent, other.Received)

	synctest.Test(t, func(t *testing.T) {
		a, b := net.Pipe()
		defer b.Close()
		silent := &Session{Conn: a, Length: 10, Idle: 3 * time.Second}
		err := silent.Run(t.Context(), "sink")
		require.True(t, errors.Is(err, os.ErrDeadlineExceeded), "%v", err)
		require.ErrorContains(t, err, "nothing moved for 3s")
		require.Equal(t, 3*time.Second+3*time.Second/8, silent.Took)
	})
}
