package bench

import (
	"bytes"
	"context"
	crand "crypto/rand"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rnicd/rnicd/internal/fault"
	"github.com/rnicd/rnicd/mpa"
	"github.com/rnicd/rnicd/pmd/wire"
	"github.com/rnicd/rnicd/rnic"
)

// A benchmark fails when the work that it times was not done. Octets are new in every round, so
// that memory left by the round before does not match. They are compared while the clock stands, or
// by the receiving application. Each benchmark also sees a damaged FPDU refused, on a connection of
// its own.

// patience bounds a benchmark that waits for what does not come.
const patience = 2 * time.Minute

// lateness is set when patience has run out.
func lateness(b testing.TB) *atomic.Bool {
	late := &atomic.Bool{}
	timer := time.AfterFunc(patience, func() { late.Store(true) })
	b.Cleanup(func() { timer.Stop() })
	return late
}

// noise draws octets that no run before had.
type noise struct{ source *rand.ChaCha8 }

func newNoise(b testing.TB) noise {
	var seed [32]byte
	must(crand.Read(seed[:]))(b)
	return noise{rand.NewChaCha8(seed)}
}

func (n noise) fill(p []byte) { _, _ = n.source.Read(p) } // never fails

// requireSame fails the benchmark when what arrived is not what was sent, and says where.
func requireSame(b testing.TB, sent, arrived []byte) {
	b.Helper()
	if bytes.Equal(sent, arrived) {
		return
	}
	require.Len(b, arrived, len(sent))
	for i := range sent {
		if sent[i] != arrived[i] {
			b.Fatalf("octet %d of %d is not what was sent", i, len(sent))
		}
	}
}

// requireCRC sends octets with two words swapped, which TCP's checksum cannot see, over a
// connection like the one that is measured: the CRC must end it before any of them is placed.
func requireCRC(b *testing.B, mtu int, opt opts) {
	b.Helper()
	link := newLink(b, wire.Config{MTU: mtu})
	var faulty *fault.Queue
	server := newHost(b, link.Port(0), "10.9.0.1/24", mtu)
	client := faultyHost(b, link.Port(1), "10.9.0.2/24", mtu, &faulty)
	s, c := connect(b, server, client, 4096, opt)
	newNoise(b).fill(c.region.Bytes())
	damaged := make(chan error, 1)
	require.NoError(b, client.poller.Submit(func() {
		damaged <- faulty.Set(fault.Faults{}, fault.Faults{Swap: 1})
	}))
	require.NoError(b, <-damaged)
	require.NoError(b, errOf(c.qp.PostSend(rnic.WorkRequest{Op: rnic.OpWrite,
		Local: c.region.Slice(0, 4096), Signaled: true, RemoteSTag: s.region.STag(),
		RemoteOffset: s.region.Base()})))
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	select {
	case <-s.qp.Done():
	case <-ctx.Done():
		b.Fatal("a damaged FPDU did not end its connection")
	}
	var e *mpa.Error
	require.ErrorAs(b, s.qp.Err(), &e)
	require.Equal(b, mpa.ErrCRC, e.Code)
	requireSame(b, make([]byte, 4096), s.region.Bytes())
}
