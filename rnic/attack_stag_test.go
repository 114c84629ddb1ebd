package rnic

import (
	"bytes"
	"cmp"
	"math"
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
	a.p.leave(a.s)
	a.bystander.goesOn()
}

const (
	preyLen  = 64
	preyBase = 0x1000
)

// prey is memory that a peer shall not reach, and where it tries.
type prey struct {
	octets []byte
	m      *MemoryRegion
	stag   mem.STag
	to     uint64
}

// prey registers octets with pd.
func (a *assault) prey(pd *ProtectionDomain, opt RegisterOptions) *prey {
	a.t.Helper()
	opt.Base = cmp.Or(opt.Base, preyBase)
	p := &prey{octets: randomBytes(3, preyLen)}
	p.m = must(pd.RegisterWith(p.octets, opt))
	p.stag, p.to = p.m.STag(), p.m.Base()
	return p
}

// windowed is prey that only a window grants.
func (a *assault) windowed() (*prey, *Window) {
	a.t.Helper()
	p := a.prey(a.s.pd, RegisterOptions{Access: LocalWrite, Windows: remoteBoth})
	w := must(a.s.pd.NewWindow())
	p.stag = must(w.Bind(p.m, WindowOptions{Len: preyLen, Base: preyBase, Access: remoteBoth}))
	return p, w
}

const remoteBoth = RemoteRead | RemoteWrite

// stagAttacks are ways to use an STag that does not grant it, and RDMAP's cause for it. p is
// granted to the attacker, until it is changed.
var stagAttacks = []struct {
	name  string
	cause rdmap.Cause
	aim   func(a *assault, p *prey)
}{
	{"another stream's", rdmap.CauseNotAssociated, func(a *assault, p *prey) {
		other := a.newEnd(a.server, qpOpts(QPOptions{PD: a.s.pd}))
		*p = *a.prey(a.s.pd, RegisterOptions{Access: remoteBoth, For: other.qp})
	}},
	{"the bystander's domain's", rdmap.CauseNotAssociated, func(a *assault, p *prey) {
		*p = *a.prey(a.bystander.s.pd, RegisterOptions{Access: remoteBoth})
	}},
	{"of no remote right", rdmap.CauseAccess, func(a *assault, p *prey) {
		*p = *a.prey(a.s.pd, RegisterOptions{Access: LocalWrite})
	}},
	{"never given out", rdmap.CauseInvalidSTag, func(_ *assault, p *prey) { p.stag ^= 1 << 8 }},
	{"with the next key", rdmap.CauseInvalidSTag, func(_ *assault, p *prey) { p.stag++ }},
	{"one octet beyond", rdmap.CauseBounds, func(_ *assault, p *prey) {
		p.to += preyLen - qp.AtomicLen + 1
	}},
	{"one octet before", rdmap.CauseBounds, func(_ *assault, p *prey) { p.to-- }},
	{"offset wraps", rdmap.CauseWrap, func(_ *assault, p *prey) { p.to = math.MaxUint64 - 2 }},
	{"offset wraps in the last region there can be", rdmap.CauseWrap, func(a *assault, p *prey) {
		*p = *a.prey(a.s.pd, RegisterOptions{Access: remoteBoth, Base: math.MaxUint64 - preyLen})
		p.to = math.MaxUint64 - 2
	}},
	{"after Revoke", rdmap.CauseInvalidSTag, func(_ *assault, p *prey) { p.m.Revoke() }},
	{"of before Revalidate", rdmap.CauseInvalidSTag, func(a *assault, p *prey) {
		p.m.Revoke()
		require.NotEqual(a.t, p.stag, p.m.Revalidate())
	}},
	{"after Deregister", rdmap.CauseInvalidSTag, func(_ *assault, p *prey) { p.m.Deregister() }},
	{"after a window's Unbind", rdmap.CauseInvalidSTag, func(a *assault, p *prey) {
		of, w := a.windowed()
		w.Unbind()
		*p = *of
	}},
	{"of a window whose region was revoked", rdmap.CauseInvalidSTag, func(a *assault, p *prey) {
		of, _ := a.windowed()
		of.m.Revoke()
		*p = *of
	}},
	{"that it invalidated itself", rdmap.CauseInvalidSTag, func(a *assault, p *prey) {
		*p = *a.prey(a.s.pd, RegisterOptions{Access: remoteBoth, For: a.s.qp})
		a.s.postRecv(a.s.recvAt(1, 0, 8))
		f := messageFPDU(rdmap.OpSendInv, 1, "")
		f.ULP32 = uint32(p.stag)
		a.p.inject(f)
		require.Equal(a.t, p.stag, a.s.await(1)[0].Invalidated)
		require.False(a.t, p.m.Valid())
	}},
}

// Writes, Reads and atomics with an STag that does not grant them: none changes or shows an
// octet, and each is the end of the peer that tried.
//
// req: 5042-6.1.1-2, 5042-6.1.1-3, 5042-6.1.1-5, 5042-6.2.1-1, 5042-6.2.2-2, 5042-2.2.4-1, 5042-3-2
// req: 5041-8.3.2-2
func TestAttackSTags(t *testing.T) {
	for _, at := range stagAttacks {
		t.Run(at.name, func(t *testing.T) {
			a := newRig(t, turned, rigConfig{}).assault(connOpts(ConnParam{IRD: 4}))
			for _, op := range []string{"Write", "Read", "atomic"} {
				t.Log(op)
				p := a.prey(a.s.pd, RegisterOptions{Access: remoteBoth})
				at.aim(a, p)
				a.use(op, p, at.cause)
				a.again(connOpts(ConnParam{IRD: 4}))
			}
		})
	}
}

// use has the attacker touch 8 octets of p. DDP finds it in a Write, and has a code for it; RDMAP
// in what a Read or an atomic is about, and has a cause.
func (a *assault) use(op string, p *prey, cause rdmap.Cause) {
	a.t.Helper()
	before := bytes.Clone(p.octets)
	switch op {
	case "Write":
		cause = rdmap.NewCause(rdmap.LayerDDP, ddp.TypeTagged, map[rdmap.Cause]uint8{
			rdmap.CauseInvalidSTag: ddp.CodeInvalidSTag, rdmap.CauseAccess: ddp.CodeInvalidSTag,
			rdmap.CauseNotAssociated: ddp.CodeNotAssociated, rdmap.CauseBounds: ddp.CodeBounds,
			rdmap.CauseWrap: ddp.CodeWrap}[cause])
		a.p.inject(writeFPDU(p.stag, p.to, make([]byte, qp.AtomicLen)))
	case "Read":
		a.p.inject(readFPDU(readOf(1, p.stag, p.to, qp.AtomicLen)))
	case "atomic":
		a.p.inject(
			atomicFPDU(1, rdmap.AtomicRequest{Code: rdmap.FetchAdd, STag: p.stag, TO: p.to, Data: 1}))
	}
	a.repelled(cause)
	require.Equal(a.t, before, p.octets)
}

// Rights that were given do not serve for what was not: each of the three needs its own, and
// atomics need both.
//
// req: 5042-6.3.5-1
func TestAttackRights(t *testing.T) {
	a := newRig(t, turned, rigConfig{}).assault(connOpts(ConnParam{IRD: 1}))
	use := func(access Access, op string) {
		t.Logf("%s with %v", op, access)
		a.use(op, a.prey(a.s.pd, RegisterOptions{Access: access}), rdmap.CauseAccess)
		a.again(connOpts(ConnParam{IRD: 1}))
	}
	use(RemoteRead, "Write")
	use(RemoteWrite, "Read")
	use(RemoteWrite, "atomic")
	use(RemoteRead, "atomic")
}
