package rnic

import (
	"bytes"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rnicd/rnicd/ddp"
	"github.com/rnicd/rnicd/mem"
	"github.com/rnicd/rnicd/rdmap"
	"github.com/rnicd/rnicd/rnic/internal/qp"
)

// The attacks of RFC 5042 that a peer that was let in can try: those on memory here, those on
// queues and time in attack_queue_test.go. docs/reference/attacks.md lists them beside what
// bounds each. In every one two things are looked at: what becomes of the attacker's stream, and
// that a connection of the same Adapter beside it is as it was.

// assault is a QueuePair that a peer attacks, and a bystander.
type assault struct {
	*rig
	s         *end
	p         *peer
	bystander *bystander
}

// assault connects both. opt is the attacked QueuePair's.
func (r *rig) assault(opt opts) *assault {
	r.t.Helper()
	a := &assault{rig: r, bystander: r.newBystander(opts{})}
	a.again(opt)
	return a
}

// again makes a new connection to attack.
func (a *assault) again(opt opts) {
	a.t.Helper()
	a.s = a.newEnd(a.server, opt)
	a.p, _ = a.peerConnects(a.s, false)
}

// repelled: the attacker is told why, and its stream ends; nobody else's does.
func (a *assault) repelled(cause rdmap.Cause) {
	a.t.Helper()
	a.p.expectTerminateFor(cause)
	a.p.closeSend()
	a.s.awaitClosed()
	a.bystander.goesOn()
}

const (
	preyLen  = 64
	preyBase = 0x1000
)

// prey is memory that a peer shall not reach, and where it tries.
type prey struct {
	octets []byte
	stag   mem.STag
	to     uint64
}

// prey registers octets with pd.
func (a *assault) prey(pd *ProtectionDomain, opt RegisterOptions) (*prey, *MemoryRegion) {
	a.t.Helper()
	if opt.Base == 0 {
		opt.Base = preyBase
	}
	p := &prey{octets: randomBytes(3, preyLen)}
	m, err := pd.RegisterWith(p.octets, opt)
	require.NoError(a.t, err)
	p.stag, p.to = m.STag(), m.Base()
	return p, m
}

const remoteBoth = RemoteRead | RemoteWrite

// stagAttack is a way to use an STag that does not grant it. DDP finds it in a Write, and has a
// code for it; RDMAP in what a Read or an atomic is about, and has a cause.
type stagAttack struct {
	name  string
	code  uint8
	cause rdmap.Cause
	aim   func(a *assault) *prey
}

var stagAttacks = []stagAttack{
	{"another stream's", ddp.CodeNotAssociated, rdmap.CauseNotAssociated, func(a *assault) *prey {
		other := a.newEnd(a.server, opts{QPOptions: QPOptions{PD: a.s.pd}})
		p, _ := a.prey(a.s.pd, RegisterOptions{Access: remoteBoth, For: other.qp})
		return p
	}},
	{"the bystander's domain's", ddp.CodeNotAssociated, rdmap.CauseNotAssociated,
		func(a *assault) *prey {
			p, _ := a.prey(a.bystander.s.pd, RegisterOptions{Access: remoteBoth})
			return p
		}},
	{"of no remote right", ddp.CodeInvalidSTag, rdmap.CauseAccess, func(a *assault) *prey {
		p, _ := a.prey(a.s.pd, RegisterOptions{Access: LocalWrite})
		return p
	}},
	{"never given out", ddp.CodeInvalidSTag, rdmap.CauseInvalidSTag, func(a *assault) *prey {
		p, _ := a.prey(a.s.pd, RegisterOptions{Access: remoteBoth})
		p.stag ^= 1 << 8
		return p
	}},
	{"with the next key", ddp.CodeInvalidSTag, rdmap.CauseInvalidSTag, func(a *assault) *prey {
		p, _ := a.prey(a.s.pd, RegisterOptions{Access: remoteBoth})
		p.stag++
		return p
	}},
	{"one octet beyond", ddp.CodeBounds, rdmap.CauseBounds, func(a *assault) *prey {
		p, _ := a.prey(a.s.pd, RegisterOptions{Access: remoteBoth})
		p.to += preyLen - qp.AtomicLen + 1
		return p
	}},
	{"one octet before", ddp.CodeBounds, rdmap.CauseBounds, func(a *assault) *prey {
		p, _ := a.prey(a.s.pd, RegisterOptions{Access: remoteBoth})
		p.to--
		return p
	}},
	{"offset wraps", ddp.CodeWrap, rdmap.CauseWrap, func(a *assault) *prey {
		p, _ := a.prey(a.s.pd, RegisterOptions{Access: remoteBoth})
		p.to = math.MaxUint64 - 2
		return p
	}},
	{"offset wraps in the last region there can be", ddp.CodeWrap, rdmap.CauseWrap,
		func(a *assault) *prey {
			p, _ := a.prey(a.s.pd, RegisterOptions{Access: remoteBoth, Base: math.MaxUint64 - preyLen})
			p.to = math.MaxUint64 - 2
			return p
		}},
	{"after Revoke", ddp.CodeInvalidSTag, rdmap.CauseInvalidSTag, func(a *assault) *prey {
		p, m := a.prey(a.s.pd, RegisterOptions{Access: remoteBoth})
		m.Revoke()
		return p
	}},
	{"of before Revalidate", ddp.CodeInvalidSTag, rdmap.CauseInvalidSTag, func(a *assault) *prey {
		p, m := a.prey(a.s.pd, RegisterOptions{Access: remoteBoth})
		m.Revoke()
		require.NotEqual(a.t, p.stag, m.Revalidate())
		return p
	}},
	{"after Deregister", ddp.CodeInvalidSTag, rdmap.CauseInvalidSTag, func(a *assault) *prey {
		p, m := a.prey(a.s.pd, RegisterOptions{Access: remoteBoth})
		m.Deregister()
		return p
	}},
	{"after a window's Unbind", ddp.CodeInvalidSTag, rdmap.CauseInvalidSTag, func(a *assault) *prey {
		p, w, _ := a.windowed()
		w.Unbind()
		return p
	}},
	{"of a window whose region was revoked", ddp.CodeInvalidSTag, rdmap.CauseInvalidSTag,
		func(a *assault) *prey {
			p, _, m := a.windowed()
			m.Revoke()
			return p
		}},
	{"that it invalidated itself", ddp.CodeInvalidSTag, rdmap.CauseInvalidSTag,
		func(a *assault) *prey {
			p, m := a.prey(a.s.pd, RegisterOptions{Access: remoteBoth, For: a.s.qp})
			a.s.postRecv(a.s.recvAt(1, 0, 8))
			h := sendOf(1)
			h.ULP, h.ULP32 = rdmap.Control(1, rdmap.OpSendInv), uint32(p.stag)
			a.p.inject(fpdu{h, nil})
			require.Equal(a.t, p.stag, a.s.await(1)[0].Invalidated)
			require.False(a.t, m.Valid())
			return p
		}},
}

// windowed is memory that only a window grants.
func (a *assault) windowed() (*prey, *Window, *MemoryRegion) {
	a.t.Helper()
	p, m := a.prey(a.s.pd, RegisterOptions{Access: LocalWrite, Windows: remoteBoth})
	w, err := a.s.pd.NewWindow()
	require.NoError(a.t, err)
	p.stag, err = w.Bind(m, WindowOptions{Len: preyLen, Base: preyBase, Access: remoteBoth})
	require.NoError(a.t, err)
	return p, w, m
}

// Writes, Reads and atomics with an STag that does not grant them: none changes or shows an
// octet, and each is the end of the peer that tried.
//
// req: 5042-6.1.1-2, 5042-6.1.1-3, 5042-6.1.1-5, 5042-6.2.1-1, 5042-6.2.2-2, 5042-2.2.4-1, 5042-3-2
// req: 5041-8.3.2-2
func TestAttackSTags(t *testing.T) {
	for _, at := range stagAttacks {
		t.Run(at.name, func(t *testing.T) {
			for _, kind := range []kind{turned, sockets} {
				a := newRig(t, kind, rigConfig{}).assault(opts{ConnParam: ConnParam{IRD: 4}})
				for i, op := range []string{"Write", "Read", "atomic"} {
					if i > 0 {
						a.again(opts{ConnParam: ConnParam{IRD: 4}})
					}
					t.Logf("%s over %v", op, kind)
					p := at.aim(a)
					a.use(op, p, &at)
				}
			}
		})
	}
}

// use has the attacker touch 8 octets of p.
func (a *assault) use(op string, p *prey, at *stagAttack) {
	a.t.Helper()
	before := bytes.Clone(p.octets)
	cause := at.cause
	switch op {
	case "Write":
		cause = rdmap.NewCause(rdmap.LayerDDP, ddp.TypeTagged, at.code)
		a.p.inject(writeFPDU(p.stag, p.to, make([]byte, qp.AtomicLen)))
	case "Read":
		h, rr := readOf(1, p.stag, p.to, qp.AtomicLen)
		a.p.inject(readFPDU(h, rr))
	case "atomic":
		a.p.inject(
			atomicFPDU(1, rdmap.AtomicRequest{Code: rdmap.FetchAdd, STag: p.stag, TO: p.to, Data: 1}))
	}
	a.repelled(cause)
	require.Equal(a.t, before, p.octets)
}

// Rights that were given do not serve for what was not: each of the three needs its own, and
// atomics need both and an aligned word.
//
// req: 5042-6.3.5-1
func TestAttackRights(t *testing.T) {
	type use struct {
		access Access
		op     string
		off    uint64
		at     stagAttack
	}
	uses := []use{
		{RemoteRead, "Write", 0, stagAttack{code: ddp.CodeInvalidSTag}},
		{RemoteWrite, "Read", 0, stagAttack{cause: rdmap.CauseAccess}},
		{RemoteWrite, "atomic", 0, stagAttack{cause: rdmap.CauseAccess}},
		{RemoteRead, "atomic", 0, stagAttack{cause: rdmap.CauseAccess}},
	}
	for off := uint64(1); off < qp.AtomicLen; off++ {
		uses = append(uses, use{remoteBoth, "atomic", off, stagAttack{cause: rdmap.CauseStream}})
	}
	over(t, both, rigConfig{}, func(t *testing.T, r *rig) {
		a := r.assault(opts{ConnParam: ConnParam{IRD: 1}})
		for i, u := range uses {
			if i > 0 {
				a.again(opts{ConnParam: ConnParam{IRD: 1}})
			}
			p, _ := a.prey(a.s.pd, RegisterOptions{Access: u.access})
			p.to += u.off
			t.Logf("%s with %v at %d", u.op, u.access, u.off)
			a.use(u.op, p, &u.at)
		}
	})
}

// Who knows one STag knows no other: none of many guesses, at random or near the one known,
// reaches a region, although there are thousands; what was given back does not come again soon;
// each bit is as often set as not.
//
// req: 5042-6.1.1-4
func TestAttackGuessing(t *testing.T) {
	const regions, guesses = 3000, 200_000
	a, err := Open(Config{})
	require.NoError(t, err)
	pd := a.AllocPD()
	octets := make([]byte, 8)
	seen := map[mem.STag]bool{}
	bits := [32]int{}
	var known *MemoryRegion
	for i := range regions {
		m, err := pd.Register(octets, remoteBoth)
		require.NoError(t, err)
		require.False(t, seen[m.STag()])
		seen[m.STag()] = true
		for b := range bits {
			bits[b] += int(m.STag() >> b & 1)
		}
		if i == 0 {
			known = m
		}
	}
	for b, n := range bits {
		require.InDelta(t, regions/2, n, 6*math.Sqrt(regions)/2+1, "bit %d", b) // six standard deviations
	}
	rng := rand.New(rand.NewPCG(1, 2))
	hits := 0
	for i := range guesses {
		guess := mem.STag(rng.Uint32())
		if i%2 == 0 {
			guess = known.STag() + mem.STag(i-guesses/2) // the neighbourhood, both sides
		}
		if guess == known.STag() {
			continue
		}
		if _, res := a.table.Check(pd.id, 1, guess, 0, 8, mem.RemoteWrite); res == mem.CheckOK {
			hits++
		}
	}
	require.LessOrEqual(t, hits, 4, fmt.Sprintf("%.2f expected", float64(guesses)*regions/(1<<32)))
	for range 2000 {
		m, err := pd.Register(octets, remoteBoth)
		require.NoError(t, err)
		require.False(t, seen[m.STag()], "one that was given out comes again")
		seen[m.STag()] = true
		m.Deregister()
	}
}
