package stream

import (
	"context"
	"net"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rnicd/rnicd/internal/inet"
	"github.com/rnicd/rnicd/mem"
	"github.com/rnicd/rnicd/stack"
)

// newTentative is a virtual whose host 0 has addresses that it still checks.
func newTentative(t *testing.T) *virtual {
	return newVirtual(t, 0, func(i int, cfg *stack.Config) { cfg.QuickDAD = i == 0 })
}

// begin has a call wait for host 0: it returns when the host has heard of it.
func (v *virtual) begin(f func() error) <-chan error {
	controls := func() uint64 {
		var n stack.Counters
		v.hosts[0].Snapshot(&n)
		return n.Controls
	}
	for v.turn() > 0 {
	}
	done, was := in(f), controls()
	for controls() == was {
		v.turn()
	}
	return done
}

// A dial waits until our address is found to be free, as its context allows.
func TestDialWaitsForOurAddress(t *testing.T) {
	v := newTentative(t)
	var ln *Listener
	v.during(func() {
		ln = must(Listen(v.hosts[1].mine, 80, Options{}))(t)
	})
	d := &Dialer{Pollers: v.hosts[0].mine}
	dialed := v.begin(func() error {
		c, err := d.Dial("tcp", "10.0.0.2:80")
		if err == nil {
			err = c.Close()
		}
		return err
	})
	took := v.until("an end", func() bool { return len(dialed) == 1 || v.conns(1) == 1 })
	require.Greater(t, took, 100*time.Millisecond, "probed")
	require.Less(t, took, 500*time.Millisecond)
	v.during(func() { require.NoError(t, <-dialed) })
	v.during(func() { require.NoError(t, ln.Close()) })
}

// The context ends first: its error says what was waited for, and nothing is dialled later.
func TestDialGivesUpOnATentativeAddress(t *testing.T) {
	v := newTentative(t)
	for _, local := range []net.Addr{nil, &net.TCPAddr{IP: net.IPv4(10, 0, 0, 1)}} {
		for _, why := range []error{context.Canceled, context.DeadlineExceeded} {
			ctx, cancel := context.WithCancelCause(context.Background())
			d := &Dialer{Pollers: v.hosts[0].mine, LocalAddr: local}
			dialed := v.begin(func() error {
				_, err := d.DialContext(ctx, "tcp", "10.0.0.2:80")
				return err
			})
			cancel(why)
			err := <-dialed
			wantOp(t, err, "dial", why)
			require.ErrorIs(t, err, stack.ErrTentative)
			require.ErrorContains(t, err, stack.ErrTentative.Error()+": "+why.Error())
			var ne net.Error
			require.ErrorAs(t, err, &ne)
			require.Equal(t, why == context.DeadlineExceeded, ne.Timeout())
		}
	}
	v.pass(10 * time.Second)
	for _, f := range v.hosts[0].nic.sent {
		t.Errorf("sent %+v", f)
	}
	require.Zero(t, v.conns(0))
}

// Those that wait are told what came of it: another host has the address; the Poller has ended; too
// many wait.
func TestDialWhoseAddressIsNotFree(t *testing.T) {
	dial := func(v *virtual) func() error {
		return func() error {
			_, err := (&Dialer{Pollers: v.hosts[0].mine}).Dial("tcp", "10.0.0.2:80")
			return err
		}
	}
	v := newTentative(t)
	stopped := v.begin(dial(v))
	v.hosts[0].Stop()
	v.during(func() { wantOp(t, <-stopped, "dial", syscall.ENETDOWN) })

	v = newTentative(t)
	waiting := make([]<-chan error, 16) // ConnsMax
	for i := range waiting {
		waiting[i] = v.begin(dial(v))
	}
	v.during(func() { wantOp(t, dial(v)(), "dial", syscall.ENOBUFS) })

	a := inet.AnnounceARP(inet.MAC{2, 5: 0x77}, inet.AddrFrom(v.hosts[0].addr))
	frame := make([]byte, inet.EthernetLen+inet.ARPLen)
	(&inet.Ethernet{Dst: inet.Broadcast, Src: a.SenderMAC, Type: inet.EtherTypeARP}).Put(frame)
	a.Put(frame[inet.EthernetLen:])
	v.hosts[1].send(t, frame)
	v.turn()
	for _, w := range waiting {
		err := <-w
		wantOp(t, err, "dial", syscall.EHOSTUNREACH)
	}
}

// send puts a frame on the cable.
func (h *virtualHost) send(t *testing.T, frame []byte) {
	t.Helper()
	b := h.pool.Alloc()
	copy(h.pool.Slot(b), frame)
	d := h.pool.Desc(b)
	d.Off, d.Len = 0, uint32(len(frame))
	require.Equal(t, 1, h.nic.Tx([]mem.Buf{b}))
	h.pool.Free(b)
}
