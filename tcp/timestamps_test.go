package tcp

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func stamped(t *testing.T) *script {
	t.Helper()
	cfg := sackOnly()
	cfg.NoTimestamps = false
	s := accepted(t, cfg, "sackOK ts 100,0")
	s.ts = true
	return s
}

// In a gap that lasts, what timestamps are compared with is never more than 2^30 octets old.
func TestPAWSGuardFollows(t *testing.T) {
	var p paws
	p.start(0, 100)
	const step = 1 << 20
	for at := uint64(step); at < 1<<34; at += step {
		ts := 100 + uint32(at/step)
		p.advance(int64(at), ts, at, true)
		require.True(t, uint64(ts-p.guard)*step <= 1<<30, "%v", at)
	}
	if p.guard == 100 || !p.old(1<<34, 100) || p.old(1<<34, p.guard) {
		t.Errorf("%+v", p)
	}
	p.advance(1<<34, 1<<20, 1<<34, false)
	require.EqualValues(t, 1<<20, p.guard, "no gap, and yet the guard is")
}
