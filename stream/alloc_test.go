package stream

import (
	"io"
	"net"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rnicd/rnicd/internal/testhost"
)

// over runs f on connections over two running Pollers and, to compare with, over the kernel's
// loopback.
func over(b *testing.B, f func(b *testing.B, c, s halfCloser)) {
	for _, x := range []struct {
		name string
		mtu  int
	}{{"mtu1500", 1500}, {"mtu9000", 9000}} {
		b.Run(x.name, func(b *testing.B) {
			c, s := newLab(b, labConfig{mtu: x.mtu}).pair(Options{}, Options{})
			f(b, c, s)
		})
	}
	b.Run("kernel", func(b *testing.B) {
		ln := must(net.ListenTCP("tcp4", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)}))(b)
		defer ln.Close()
		c := must(net.DialTCP("tcp4", nil, ln.Addr().(*net.TCPAddr)))(b)
		defer c.Close()
		s := must(ln.AcceptTCP())(b)
		defer s.Close()
		f(b, c, s)
	})
}

type halfCloser interface {
	net.Conn
	CloseWrite() error
}

// BenchmarkThroughput writes and reads large pieces. The reader looks at samples of what it reads,
// all of which must arrive. With the test's two goroutines and two Pollers that is four which want
// a core.
func BenchmarkThroughput(b *testing.B) {
	over(b, func(b *testing.B, c, s halfCloser) {
		const piece = 64 << 10
		octets := testhost.NewOctets(b, piece)
		b.SetBytes(piece)
		b.ReportAllocs()
		var wg sync.WaitGroup
		wg.Go(func() {
			buf := make([]byte, 256<<10)
			for {
				n, err := s.Read(buf)
				if bad := octets.Arrived(buf[:n]); bad != nil {
					b.Error(bad)
					_ = c.Close() // the writer need not wait
				}
				if err != nil {
					return
				}
			}
		})
		for b.Loop() {
			if _, err := c.Write(octets.Next(piece)); err != nil {
				b.Fatal(err)
			}
		}
		require.NoError(b, c.CloseWrite())
		wg.Wait()
		require.Equal(b, b.N*piece, octets.Got())
	})
}

// BenchmarkRequestResponse is one octet there and one back: four goroutines wake one another in
// turn.
func BenchmarkRequestResponse(b *testing.B) {
	over(b, func(b *testing.B, c, s halfCloser) {
		var wg sync.WaitGroup
		wg.Go(func() { _, _ = io.CopyBuffer(onlyWriter{s}, onlyReader{s}, make([]byte, 64)) })
		one := make([]byte, 1)
		b.ReportAllocs()
		for b.Loop() {
			said := one[0] + 1
			one[0] = said
			if _, err := c.Write(one); err != nil {
				b.Fatal(err)
			}
			one[0] = 0
			if _, err := c.Read(one); err != nil || one[0] != said {
				b.Fatalf("%d came back, %d was sent; %v", one[0], said, err)
			}
		}
		require.NoError(b, c.CloseWrite())
		wg.Wait()
	})
}

type onlyReader struct{ io.Reader }
type onlyWriter struct{ io.Writer }

// Read, Write and everything below them take no memory once a connection is in use.
func TestNothingIsAllocatedPerMessage(t *testing.T) {
	_, c, s := newPair(t, labConfig{})
	var wg sync.WaitGroup
	wg.Go(func() { _, _ = io.CopyBuffer(onlyWriter{s}, onlyReader{s}, make([]byte, 32<<10)) })
	piece := make([]byte, 10_000)
	exchange := func() {
		_, err := c.Write(piece)
		if err == nil {
			_, err = io.ReadFull(c, piece)
		}
		if err != nil {
			t.Error(err)
		}
	}
	for range 100 {
		exchange()
	}
	// on one processor, where each way is a time slice
	require.Zero(t, testing.AllocsPerRun(50, exchange))
	require.NoError(t, c.CloseWrite())
	wg.Wait()
}
