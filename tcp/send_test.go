package tcp

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// With the ring full there is no slot to cut with: the oldest goes out piece by piece as its front
// is acknowledged.
func TestEMSSShrinkWithFullRing(t *testing.T) {
	cfg := plain()
	cfg.SentMax = 16
	cfg.InitialWindow = 50
	s := accepted(t, cfg, "")
	for roomOf(s.c, s.now) > 0 {
		pushOne(s.c, s.now, s.next, s.c.EMSS(), true)
		s.next++
		s.drain()
	}
	s.sent()
	s.c.SetEMSSLimit(100)
	for i := 0; s.c.AckedOffset() < s.c.PushedOffset(); i++ {
		require.LessOrEqual(t, i, 1000, "no end")
		s.advance(70 * sc / 1000)
		for _, x := range s.sent() {
			require.LessOrEqual(t, x.Len, 100)
			require.NotZero(t, x.Flags&PSH)
			if from := int(int32(x.Seq-s.iss)) - 1; from <= int(s.c.AckedOffset()) &&
				from+x.Len > int(s.c.AckedOffset()) {
				s.in(". 1 ack " + itoa(from+x.Len+1))
			}
		}
		s.drainHandles()
	}
	s.wantState(Established)
}

func (s *script) drainHandles() {
	for {
		if _, ok := s.c.Release(); !ok {
			return
		}
	}
}

func TestPushPanics(t *testing.T) {
	for name, f := range map[string]func(s *script){
		"empty":     func(s *script) { pushOne(s.c, s.now, 0, 0, false) },
		"too large": func(s *script) { pushOne(s.c, s.now, 0, 1001, false) },
		"second": func(s *script) {
			pushOne(s.c, s.now, 0, 1, false)
			pushOne(s.c, s.now, 1, 1, false)
		},
		"closed": func(s *script) { s.c.CloseSend(s.now); pushOne(s.c, s.now, 0, 1, false) },
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s: no panic", name)
				}
			}()
			f(accepted(t, plain(), ""))
		}()
	}
}
