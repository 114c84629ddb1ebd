package rping

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/rnicd/rnicd/internal/awake"
	"github.com/rnicd/rnicd/internal/tools/peer"
	"github.com/rnicd/rnicd/rnic"
)

// ClientConfig of one Run.
type ClientConfig struct {
	Adapter *rnic.Adapter
	Addr    string         // host:port
	Count   int            // of pings; 0: until ctx ends
	Size    int            // octets of each, SizeMin to SizeMax
	Verify  bool           // what came back is what was there
	Conn    rnic.ConnParam // Dialect, PeerToPeer, NoMarkers, NoCRC, Quirks; the rest is Run's
	// Connected and OnPing, if set, are called when the connection stands and when a ping is over.
	Connected func(*rnic.QueuePair)
	OnPing    func(Ping)
}

const closeTimeout = 5 * time.Second

// Run connects to a server, pings it, and closes. It returns how many pings were whole; that ctx
// has ended is an error unless Count is 0. Other errors are QueuePair.Connect's, the connection's
// end, ErrVanished, and *MismatchError.
func Run(ctx context.Context, cfg ClientConfig) (int, error) {
	if cfg.Size < SizeMin || cfg.Size > SizeMax || cfg.Count < 0 {
		return 0, fmt.Errorf("rping: %d pings of %d octets: want 0 or more, of %d to %d", cfg.Count,
			cfg.Size, SizeMin, SizeMax)
	}
	e, err := newEnd(cfg.Adapter)
	if err != nil {
		return 0, err
	}
	defer e.release()
	source, err := e.register(cfg.Size, rnic.RemoteRead)
	if err != nil {
		return 0, err
	}
	sink, err := e.register(cfg.Size, rnic.RemoteWrite)
	if err != nil {
		return 0, err
	}
	if err := e.qp.Connect(ctx, cfg.Addr, connParam(cfg.Conn)); err != nil {
		return 0, peer.Refusal("rping", err)
	}
	if cfg.Connected != nil {
		cfg.Connected(e.qp)
	}
	work, cancel := lasting(ctx, cfg.Count == 0)
	defer cancel()
	n := 0
	for ; cfg.Count == 0 && ctx.Err() == nil || n < cfg.Count; n++ {
		err := e.ping(work, &cfg, n, source, sink)
		if errors.Is(err, errClosed) {
			err = ErrVanished
		}
		if err != nil {
			return n, err
		}
	}
	closing, cancelClose := awake.Timeout(context.WithoutCancel(ctx), closeTimeout, nil)
	defer cancelClose()
	return n, e.qp.Close(closing)
}

// lasting is ctx, or, for a client that goes on until it is interrupted, one that leaves it the
// time to end its ping.
func lasting(ctx context.Context, endless bool) (context.Context, context.CancelFunc) {
	if !endless {
		return context.WithCancel(ctx)
	}
	work, cancel := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() { awake.AfterFunc(closeTimeout, cancel) })
	return work, func() { stop(); cancel() }
}

// ping is one, from the announcement to the comparison.
func (e *end) ping(ctx context.Context, cfg *ClientConfig, n int, source,
	sink *rnic.MemoryRegion) error {
	Data(source.Bytes(), n)
	clear(sink.Bytes())
	begin := time.Now()
	for _, m := range []*rnic.MemoryRegion{source, sink} { // to be read, to be written
		if err := e.send(ctx, place{m.Base(), m.STag(), uint32(cfg.Size)}); err != nil {
			return err
		}
		if _, err := e.receive(ctx); err != nil {
			return err
		}
	}
	took := time.Since(begin)
	if cfg.Verify && !bytes.Equal(source.Bytes(), sink.Bytes()) {
		return &MismatchError{Ping: n, At: firstDifference(source.Bytes(), sink.Bytes())}
	}
	if cfg.OnPing != nil {
		cfg.OnPing(Ping{Number: n, Data: sink.Bytes(), Took: took})
	}
	return nil
}

// MismatchError is data that did not come back as it was.
type MismatchError struct {
	Ping int // from 0
	At   int // the first octet that differs
}

func (e *MismatchError) Error() string {
	return fmt.Sprintf("rping: ping %d came back with another octet %d", e.Ping, e.At)
}

func firstDifference(a, b []byte) int {
	for i := range a {
		if a[i] != b[i] {
			return i
		}
	}
	return len(a)
}
