package rsocket

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rnicd/rnicd/internal/testhost"
	"github.com/rnicd/rnicd/internal/testnic"
)

// Octets in one direction, by our TCP back to back in memory, CRC32C and markers on. Four
// goroutines poll or wait, on whatever cores there are. The reader looks at samples of what it
// reads.
func BenchmarkStream(b *testing.B) {
	for _, late := range []bool{false, true} {
		for _, size := range []int{64, 64 << 10, 1 << 20} {
			b.Run(fmt.Sprintf("late=%v/write=%d", late, size), func(b *testing.B) {
				c := pair(b, testnic.Wired(b), Options{SendBuffer: 512 << 10, ReceiveBuffer: 512 << 10,
					LateGrants: late})
				for _, c := range c {
					require.NoError(b, c.SetDeadline(time.Time{}))
				}
				octets := testhost.NewOctets(b, size)
				read := make(chan error, 1)
				go func() {
					_, err := io.Copy(octets, c[1])
					if err != nil {
						_ = c[1].Close() // the writer need not wait
					}
					read <- err
				}()
				b.SetBytes(int64(size))
				for b.Loop() {
					_, err := c[0].Write(octets.Next(size))
					require.NoError(b, err)
				}
				require.NoError(b, c[0].CloseWrite())
				require.NoError(b, <-read)
				require.Equal(b, b.N*size, octets.Got())
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
	p, back := make([]byte, 64), make([]byte, 64)
	for i := uint64(1); b.Loop(); i++ {
		binary.NativeEndian.PutUint64(p[56:], i)
		_, err := c[0].Write(p)
		require.NoError(b, err)
		_, err = io.ReadFull(c[0], back)
		require.NoError(b, err)
		if !bytes.Equal(p, back) {
			b.Fatalf("%x came back, %x was sent", back, p)
		}
	}
}
