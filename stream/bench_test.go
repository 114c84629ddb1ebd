package stream

import (
	"io"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// BenchmarkThroughput writes and reads large pieces over two running Pollers. With the test's two goroutines that is
// four which want a core.
func BenchmarkThroughput(b *testing.B) {
	for _, x := range []struct {
		name string
		mtu  int
	}{{"mtu1500", 1500}, {"mtu9000", 9000}} {
		b.Run(x.name, func(b *testing.B) {
			l := newLab(b, labConfig{mtu: x.mtu})
			c, s := l.pair(Options{}, Options{})
			piece := make([]byte, 64<<10)
			b.SetBytes(int64(len(piece)))
			b.ReportAllocs()
			var wg sync.WaitGroup
			wg.Go(func() {
				buf := make([]byte, 256<<10)
				for {
					if _, err := s.Read(buf); err != nil {
						return
					}
				}
			})
			for b.Loop() {
				if _, err := c.Write(piece); err != nil {
					b.Fatal(err)
				}
			}
			require.NoError(b, c.CloseWrite())
			wg.Wait()
		})
	}
}

// BenchmarkRequestResponse is one octet there and one back: four goroutines waken one another in turn.
func BenchmarkRequestResponse(b *testing.B) {
	l := newLab(b, labConfig{})
	c, s := l.pair(Options{}, Options{})
	var wg sync.WaitGroup
	wg.Go(func() { _, _ = io.CopyBuffer(onlyWriter{s}, onlyReader{s}, make([]byte, 64)) })
	one := make([]byte, 1)
	b.ReportAllocs()
	for b.Loop() {
		pingPong(b, c, one)
	}
	require.NoError(b, c.CloseWrite())
	wg.Wait()
}

type onlyReader struct{ io.Reader }
type onlyWriter struct{ io.Writer }

func pingPong(t testing.TB, c *Conn, one []byte) {
	if _, err := c.Write(one); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Read(one); err != nil {
		t.Fatal(err)
	}
}

// Read, Write and everything below them take no memory once a connection is in use.
func TestNothingIsAllocatedPerMessage(t *testing.T) {
	l := newLab(t, labConfig{})
	c, s := l.pair(Options{}, Options{})
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
	require.Zero(t, testing.AllocsPerRun(500, exchange))
	require.NoError(t, c.CloseWrite())
	wg.Wait()
}
