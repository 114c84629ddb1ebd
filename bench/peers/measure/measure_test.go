package measure

import (
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestLineRoundTrip(t *testing.T) {
	want := Result{Octets: 1 << 40, Seconds: 2.5, CPU: 0.125}
	got, ok, err := Parse(want.Line())
	require.NoError(t, err)
	require.True(t, ok)
	require.Equal(t, want, got)
}

func TestParseTellsOtherLinesFromBadOnes(t *testing.T) {
	_, ok, err := Parse("ready")
	require.False(t, ok)
	require.NoError(t, err)
	_, ok, err = Parse("result {\"octets\":-1}")
	require.True(t, ok)
	require.ErrorContains(t, err, "result line")
}

func TestRates(t *testing.T) {
	r := Result{Octets: 1 << 30, Seconds: 2, CPU: 0.5}
	require.InDelta(t, 4.294967296, r.Gbps(), 1e-9)
	require.InDelta(t, 0.5, r.CPUPerGiB(), 1e-9)
	require.Zero(t, Result{}.Gbps())
	require.Zero(t, Result{CPU: 1}.CPUPerGiB())
}

// Both ends count the same octets, and a source's time is over when the sink has everything.
func TestMove(t *testing.T) {
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	const length = 50 * time.Millisecond
	got := make(chan Result, 1)
	go func() {
		defer close(got)
		c, err := l.Accept()
		if err != nil {
			return
		}
		if r, err := Move(c, Sink, 0); err == nil {
			got <- r
		}
	}()
	c, err := net.Dial("tcp4", l.Addr().String())
	require.NoError(t, err)
	sent, err := Move(c, Source, length)
	require.NoError(t, err)
	received, ok := <-got
	require.True(t, ok, "the sink failed")
	require.Equal(t, sent.Octets, received.Octets)
	require.Positive(t, received.Octets)
	require.GreaterOrEqual(t, sent.Seconds, length.Seconds())
	require.Positive(t, sent.CPU)
}

func TestDirectionCheck(t *testing.T) {
	require.NoError(t, Sink.Check())
	require.NoError(t, Source.Check())
	require.ErrorContains(t, Direction("drain").Check(), "want sink or source")
}
