package tcp

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

// The proportion is of octets, rounded up to the segment that would go next: not to SMSS, while
// small segments would be several.
//
// req: 9937-6.2-1, 9937-6.2-3
func TestPRRCountsOctets(t *testing.T) {
	const smss, recoverFS, ssthresh = 8948, 20_000, 14_000
	for _, next := range []int{100, 101, 1000, 8000, smss} {
		p := prr{recoverFS: recoverFS}
		inflight := recoverFS - next
		require.Equal(t, smss, p.sndCnt(0, inflight, ssthresh, smss, next, false))
		p.out += next
		inflight += next
		for delivered := 100; inflight-100 > ssthresh; delivered += 100 {
			inflight -= 100
			n := p.sndCnt(100, inflight, ssthresh, smss, next, false)
			exact := max(0, (delivered*ssthresh+recoverFS-1)/recoverFS-p.out)
			if n < exact || n >= exact+next || n%next != 0 {
				t.Fatalf("after %d octets: %d in segments of %d, the formula has %d", delivered, n, next, exact)
			}
			p.out += n
			inflight += n
		}
	}
}

// Small segments that were lost are sent again in the proportion of the reduction, however large
// SMSS is.
//
// req: 9937-6.2-1
func TestPRRSmallSegments(t *testing.T) {
	const size, segments, lost = 100, 400, 100
	cfg := sackOnly()
	cfg.InitialWindow = segments*size/1000 + 1
	s := opened(t, cfg, "mss 1000 sackOK", 10*ms)
	for range segments {
		s.push(size)
	}
	s.sent()
	s.advance(10 * ms)
	var (
		delivered, sent int
		ssthresh, fs    int
	)
	for i := lost; i < segments; i++ {
		s.advance(us)
		s.in(fmt.Sprintf(". 1 ack 1 sack %d:%d", lost*size+1, (i+1)*size+1))
		st := s.c.Stats()
		out := 0
		for _, x := range s.sent() {
			out += x.Len
		}
		if ssthresh == 0 {
			if out == 0 {
				continue
			}
			ssthresh, fs = st.Ssthresh, segments*size-(i-lost)*size
		}
		sent += out
		delivered += size
		if st.Flight-st.Sacked-st.Lost <= ssthresh {
			break
		}
		require.LessOrEqual(t, sent, (delivered*ssthresh+fs-1)/fs+size, "after %d octets", delivered)
	}
	require.GreaterOrEqual(t, sent, lost*size/4)
}

// What would go next: a lost segment, one that is queued, or whatever the layer above makes.
func TestNextLen(t *testing.T) {
	cfg := sackOnly()
	cfg.NoDelay = false
	s := opened(t, cfg, "mss 1000 sackOK", 10*ms)
	want := func(n int) {
		t.Helper()
		require.Equal(t, n, s.c.nextLen())
	}
	want(1000)
	s.push(1000, 1000, 300) // Nagle's algorithm keeps the last
	want(300)
	s.c.lose(s.c.sent.una)
	want(1000)
}
