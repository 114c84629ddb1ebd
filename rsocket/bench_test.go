package rsocket

import (
	"fmt"
	"io"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rnicd/rnicd/internal/testnic"
)

// Octets in one direction, by our TCP back to back in memory, CRC32C and markers on. Four goroutines poll or wait, on whatever cores there
// are.
func BenchmarkStream(b *testing.B) {
	for _, late := range []bool{false, true} {
		for _, size := range []int{64, 64 << 10, 1 << 20} {
			b.Run(fmt.Sprintf("late=%v/write=%d", late, size), func(b *testing.B) {
				c := pair(b, testnic.Wired(b), Options{SendBuffer: 512 << 10, ReceiveBuffer: 512 << 10, LateGrants: late})
				for _, c := range c {
					require.NoError(b, c.SetDeadline(time.Time{}))
				}
				got := make(chan int64, 1)
				go func() { n, _ := io.Copy(io.Discard, c[1]); got <- n }()
				p := make([]byte, size)
				b.SetBytes(int64(size))
				for b.Loop() {
					_, err := c[0].Write(p)
					require.NoError(b, err)
				}
				require.NoError(b, c[0].CloseWrite())
				require.EqualValues(b, b.N*size, <-got)
			})
		}
	}
}

// There and back.
func BenchmarkRoundTrip(b *testing.B) {
	c := pair(b, testnic.Wired(b), Options{})
	for _, c := range c {
		require.NoError(b, c.SetDeadline(time.Time{}))
	}
	go func() { _, _ = io.Copy(c[1], c[1]) }()
	p := make([]byte, 64)
	for b.Loop() {
		_, err := c[0].Write(p)
		require.NoError(b, err)
		_, err = io.ReadFull(c[0], p)
		require.NoError(b, err)
	}
}
