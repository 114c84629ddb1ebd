package cc

import (
	"fmt"
	"testing"

	"pgregory.net/rapid"
)

// machine calls an Algorithm as tcp does, and checks what holds whatever comes.
type machine struct {
	alg      Algorithm
	w        State
	now      int64
	una      uint64
	smss     int
	answered bool // Undo would take something back
}

func newMachine(alg Algorithm, smss, iw int) *machine {
	m := &machine{alg: alg, smss: smss, una: 1}
	alg.Start(&m.w, iw*smss)
	return m
}

type ack struct {
	wait, rtt, srtt int64
	octets, marked  int
	limited         bool
	recovering      bool
	afterTimeout    bool
}

func (m *machine) ack(a ack) error {
	m.now += a.wait
	m.una += uint64(a.octets)
	before := m.w
	m.alg.Acked(&m.w, Sample{Now: m.now, Acked: a.octets, Delivered: a.octets, Marked: a.marked,
		Flight: before.Cwnd, SMSS: m.smss, RTT: a.rtt, SRTT: a.srtt, MinRTT: a.srtt, Una: m.una,
		Nxt: m.una + uint64(before.Cwnd), Limited: a.limited, Recovering: a.recovering,
		AfterTimeout: a.afterTimeout})
	grown := m.w.Cwnd - before.Cwnd
	switch {
	case grown < 0:
		return fmt.Errorf("an ACK lowered cwnd: %+v to %+v", before, m.w)
	case grown > 0 && (!a.limited || a.recovering):
		return fmt.Errorf("cwnd grew by %d: %+v", grown, a)
	case grown > max(slowStartSegmentsMax*m.smss, slowStartOctetsMax)+max(a.octets/2, m.smss):
		return fmt.Errorf("cwnd grew by %d for %d octets", grown, a.octets)
	case before.Cwnd >= before.Ssthresh && grown > max(a.octets/2, m.smss):
		return fmt.Errorf("cwnd grew by %d for %d octets in congestion avoidance", grown, a.octets)
	case m.w.Ssthresh != before.Ssthresh && m.w.Ssthresh != m.w.Cwnd:
		return fmt.Errorf("ssthresh %d to %d, cwnd %d", before.Ssthresh, m.w.Ssthresh, m.w.Cwnd)
	}
	return m.check()
}

func (m *machine) reduce(why Cause, flight int) error {
	before := m.w
	m.alg.Reduce(&m.w, why, m.now, flight, m.smss)
	if m.w.Cwnd != before.Cwnd {
		return fmt.Errorf("Reduce moved cwnd from %d to %d", before.Cwnd, m.w.Cwnd)
	}
	if m.w.Ssthresh > max(before.Cwnd, 2*m.smss) {
		return fmt.Errorf("ssthresh %d above cwnd %d", m.w.Ssthresh, before.Cwnd)
	}
	m.w.Cwnd = m.w.Ssthresh
	m.answered = true
	return m.check()
}

func (m *machine) timeout(flight int, first bool) error {
	before := m.w
	m.alg.Timeout(&m.w, m.now, flight, m.smss, first)
	if m.w.Cwnd != m.smss {
		return fmt.Errorf("cwnd %d after a timeout", m.w.Cwnd)
	}
	if !first && m.w.Ssthresh != before.Ssthresh {
		return fmt.Errorf("second timeout: ssthresh %d to %d", before.Ssthresh, m.w.Ssthresh)
	}
	m.answered = m.answered || first
	return m.check()
}

func (m *machine) undo() error {
	before := m.w
	m.alg.Undo(&m.w)
	if m.w.Cwnd != max(before.Cwnd, int(before.prior.cwnd)) {
		return fmt.Errorf("undone: cwnd %d, was %d and %d before the reduction", m.w.Cwnd, before.Cwnd,
			before.prior.cwnd)
	}
	m.answered = false
	return m.check()
}

func (m *machine) check() error {
	w := &m.w
	if w.Cwnd < m.smss || w.Cwnd > CwndMax || w.Ssthresh < m.smss || w.Ssthresh > CwndMax {
		return fmt.Errorf("cwnd %d, ssthresh %d, SMSS %d", w.Cwnd, w.Ssthresh, m.smss)
	}
	c := &w.cubic
	if c.wMax < 0 || c.wEst < 0 || c.k < 0 || c.estCredit < 0 || w.credit < 0 {
		return fmt.Errorf("%+v", c)
	}
	if d := &w.dctcp; d.alpha < 0 || d.alpha > alphaOne || d.acked < 0 || d.marked < 0 ||
		d.marked > d.acked {
		return fmt.Errorf("%+v", d)
	}
	if h := &w.hystart; h.rounds > cssRounds || h.samples > hystartSamples {
		return fmt.Errorf("%+v", h)
	}
	return nil
}

func TestInvariants(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := newMachine(rapid.SampledFrom(algorithms[:]).Draw(t, "algorithm"),
			rapid.SampledFrom([]int{1, 64, 536, 1448, 8948, 65_495}).Draw(t, "SMSS"),
			rapid.IntRange(1, 10).Draw(t, "IW"))
		try := func(err error) {
			if err != nil {
				t.Fatal(err)
			}
		}
		t.Repeat(map[string]func(*rapid.T){
			"ack": func(t *rapid.T) {
				octets := rapid.OneOf(rapid.IntRange(1, m.w.Cwnd+10*m.smss),
					rapid.IntRange(1, 1<<30)).Draw(t, "octets") // the latter no peer can cause
				try(m.ack(ack{
					wait: rapid.Int64Range(0, 40*3600*second).Draw(t, "wait"),
					rtt:  rapid.Int64Range(-1, 500*second).Draw(t, "rtt"),
					srtt: rapid.Int64Range(0, 500*second).Draw(t, "srtt"), octets: octets,
					marked: rapid.IntRange(0, octets).Draw(t, "marked"), limited: rapid.Bool().Draw(t, "limited"),
					recovering:   rapid.Bool().Draw(t, "recovering"),
					afterTimeout: rapid.Bool().Draw(t, "after timeout"),
				}))
			},
			"window": func(t *rapid.T) { // a round trip of a sender that is held back
				rtt := rapid.Int64Range(1000, second).Draw(t, "rtt")
				for left := min(m.w.Cwnd, 100*m.smss); left > 0; left -= m.smss {
					try(m.ack(ack{wait: rtt / 100, rtt: rtt, srtt: rtt, octets: m.smss, limited: true}))
				}
			},
			"loss": func(t *rapid.T) { try(m.reduce(Loss, rapid.IntRange(0, m.w.Cwnd).Draw(t, "flight"))) },
			"mark": func(t *rapid.T) { try(m.reduce(Mark, rapid.IntRange(0, m.w.Cwnd).Draw(t, "flight"))) },
			"timeout": func(t *rapid.T) {
				try(m.timeout(rapid.IntRange(0, m.w.Cwnd).Draw(t, "flight"), rapid.Bool().Draw(t, "first")))
			},
			"undo": func(t *rapid.T) {
				if m.answered {
					try(m.undo())
				}
			},
			"": func(t *rapid.T) { try(m.check()) },
		})
	})
}

// In slow start every new octet that is acknowledged, up to the bound, grows cwnd by as much;
// recovery takes nothing.
// req: 9293-MUST-19
func TestSlowStartIsExponential(t *testing.T) {
	for _, alg := range algorithms {
		c := &clock{alg: alg, rtt: ms}
		alg.Start(&c.w, 10*testSMSS)
		for round, want := 1, 10*testSMSS; round <= 10; round++ {
			c.round()
			want *= 2
			if c.w.Cwnd != want {
				t.Fatalf("%s, round %d: cwnd %d, want %d", alg.Name(), round, c.w.Cwnd, want)
			}
		}
	}
}

func TestNothingIsAllocated(t *testing.T) {
	for _, alg := range algorithms {
		w := State{Cwnd: 100 * testSMSS, Ssthresh: 50 * testSMSS}
		var now int64
		if n := testing.AllocsPerRun(100, func() {
			now += ms
			alg.Acked(&w, Sample{Now: now, Acked: testSMSS, SMSS: testSMSS, RTT: ms, SRTT: ms,
				Limited: true})
			alg.Reduce(&w, Loss, now, w.Cwnd, testSMSS)
			alg.Undo(&w)
		}); n != 0 {
			t.Errorf("%s: %v allocations", alg.Name(), n)
		}
	}
}
