package transport

import (
	"bytes"
	"errors"
	"io"
	"net"
	"testing"

	"github.com/stretchr/testify/require"
)

// socketPair is two ends of a TCP connection of the kernel's.
func socketPair(t *testing.T) (a, b *net.TCPConn) {
	t.Helper()
	l, err := net.ListenTCP("tcp4", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
	require.NoError(t, err)
	defer l.Close()
	a = must(net.DialTCP("tcp4", nil, l.Addr().(*net.TCPAddr)))(t)
	b = must(l.AcceptTCP())(t)
	t.Cleanup(func() {
		a.Close()
		b.Close()
	})
	return a, b
}

// takes is a writer of so many octets, and then of an error or of less than it was given.
type takes struct {
	bytes.Buffer
	left int
	err  error
}

func (w *takes) Write(p []byte) (int, error) {
	n := min(len(p), w.left)
	w.left -= n
	w.Buffer.Write(p[:n])
	if n < len(p) {
		return n, w.err
	}
	return n, nil
}

// Octets that were read already come first, each once, whether they are read, copied or taken.
func TestBufferedConn(t *testing.T) {
	ours, peer := socketPair(t)
	must(peer.Write([]byte("socket")))(t)
	require.NoError(t, peer.CloseWrite())
	c := &BufferedConn{TCPConn: ours, rest: []byte("front,")}

	two := make([]byte, 2)
	n, err := c.Read(two)
	require.NoError(t, err)
	require.Equal(t, "fr", string(two[:n]))
	c.PutBack([]byte("f"))
	require.Equal(t, "font,", string(c.TakeRest()))
	require.Empty(t, c.TakeRest())
	c.PutBack([]byte("front,"))

	broken := errors.New("broken")
	short := &takes{left: 2, err: broken}
	w, err := c.WriteTo(short)
	require.ErrorIs(t, err, broken)
	require.EqualValues(t, 2, w)
	short = &takes{left: 1}
	w, err = c.WriteTo(short)
	require.ErrorIs(t, err, io.ErrShortWrite)
	require.EqualValues(t, 1, w)

	var all bytes.Buffer
	w = must(io.Copy(&all, c))(t)
	require.Equal(t, "nt,socket", all.String())
	require.EqualValues(t, all.Len(), w)
	n, err = c.Read(two)
	require.Zero(t, n)
	require.ErrorIs(t, err, io.EOF)
}

// Several goroutines may read a net.Conn: no octet of the front is read twice.
func TestBufferedConnReadByMany(t *testing.T) {
	ours, peer := socketPair(t)
	require.NoError(t, peer.CloseWrite())
	front := make([]byte, 1<<20)
	c := &BufferedConn{TCPConn: ours, rest: bytes.Clone(front)}
	octets := make(chan int)
	for range 4 {
		go func() {
			b, n := make([]byte, 1), 0
			for {
				if _, err := c.Read(b); err != nil {
					octets <- n
					return
				}
				n++
			}
		}()
	}
	sum := 0
	for range 4 {
		sum += <-octets
	}
	require.Equal(t, len(front), sum)
}
