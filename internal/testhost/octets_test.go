package testhost

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// What was sent arrives in other pieces and is good; what is left out, or not written into the
// reader's buffer, is not.
func TestOctets(t *testing.T) {
	o := NewOctets(t, 100_000)
	var stream []byte
	for _, n := range []int{1, 100_000, 0, 65_600, 99_999, 7} {
		stream = append(stream, o.Next(n)...)
	}
	for rest := stream; len(rest) > 0; {
		n := min(30_001, len(rest))
		require.NoError(t, o.Arrived(rest[:n]))
		rest = rest[n:]
	}
	require.Equal(t, len(stream), o.Got())
	require.NotEqual(t, stream[:1000], NewOctets(t, 1000).Next(1000))

	again := NewOctets(t, 1<<16)
	buf := make([]byte, 1<<18)
	for range 4 {
		copy(buf[again.sent:], again.Next(1<<16))
	}
	n, err := again.Write(buf)
	require.NoError(t, err)
	require.Equal(t, len(buf), n)
	_, err = again.Write(buf) // as it was left by the read before
	require.ErrorContains(t, err, "is not what was sent")
}
