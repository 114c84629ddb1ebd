package report

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rnicd/rnicd/internal/status"
	"github.com/rnicd/rnicd/rnic"
	"github.com/rnicd/rnicd/stack"
)

const (
	// FellWaiting are connections that have ended and are still to be told of, in a daemon.
	FellWaiting = 256

	fellKept = 64 // the last ones, for those who ask later
)

// Recorder keeps the last connections that have ended with an error, each with its last events.
// Pollers give them to it, and do not wait.
type Recorder struct {
	tell  func(*Fallen) // of each; nil: nobody
	in    chan Fallen
	lost  atomic.Uint64 // there was no room in in
	over  chan struct{}
	ended sync.WaitGroup

	mu   sync.Mutex
	last []Fallen // oldest first
}

// Fallen is a connection that has ended with an error, as its Poller gives it.
type Fallen struct {
	Port  string
	Ended time.Time
	rnic.FlightRecord
}

// NewRecorder makes one, until Stop. It calls tell, if that is not nil, on a goroutine of its own.
// More connections than waiting that end meanwhile are lost.
func NewRecorder(waiting int, tell func(*Fallen)) *Recorder {
	r := &Recorder{tell: tell, in: make(chan Fallen, waiting), over: make(chan struct{})}
	r.ended.Go(r.run)
	return r
}

// Of is rnic.Config.Fell of a port.
func (r *Recorder) Of(port string) func(rnic.FlightRecord) {
	return func(f rnic.FlightRecord) {
		select {
		case r.in <- Fallen{port, time.Now(), f}:
		default:
			r.lost.Add(1)
		}
	}
}

func (r *Recorder) run() {
	for {
		select {
		case f := <-r.in:
			r.take(f)
		case <-r.over:
			for {
				select {
				case f := <-r.in:
					r.take(f)
				default:
					return
				}
			}
		}
	}
}

// take keeps a record.
func (r *Recorder) take(one Fallen) {
	r.mu.Lock()
	if len(r.last) == fellKept {
		r.last = slices.Delete(r.last, 0, 1)
	}
	r.last = append(r.last, one)
	r.mu.Unlock()
	if r.tell != nil {
		r.tell(&one)
	}
}

// Lost is how many there was no room for since it was last called.
func (r *Recorder) Lost() uint64 { return r.lost.Swap(0) }

// Stop returns when all were told of.
func (r *Recorder) Stop() {
	close(r.over)
	r.ended.Wait()
}

// About are the records of connections with a peer; of the zero AddrPort: all. Port 0 is any.
func (r *Recorder) About(remote netip.AddrPort) (all []status.Flight) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := range r.last {
		if f := &r.last[i]; !remote.IsValid() || With(f.Remote, remote) {
			all = append(all, f.Text())
		}
	}
	return all
}

// With says whether a connection's peer is the one that was asked for, which may have no port.
func With(peer, asked netip.AddrPort) bool {
	return status.SameAddr(peer.Addr(), asked.Addr()) &&
		(asked.Port() == 0 || peer.Port() == asked.Port())
}

// Text is the record as it is shown.
func (f *Fallen) Text() status.Flight {
	one := Flight(f.Port, &f.FlightRecord)
	one.Error, one.Ended = f.Err.Error(), f.Ended
	return one
}

// Flight is a record of a connection of a port, as it is shown.
func Flight(port string, r *rnic.FlightRecord) status.Flight {
	f := status.Flight{Port: port, Local: r.Local, Remote: r.Remote, Before: r.Before}
	for _, e := range r.Events {
		f.Events = append(f.Events,
			status.FlightEvent{Ago: float64(r.Now-e.At) / 1e9, Kind: e.Kind.String(), A: e.A, B: e.B,
				Text: e.String()})
	}
	return f
}

// OfPollers are the records of connections of a port with a peer.
func OfPollers(ctx context.Context, port string, pollers []*stack.Poller,
	remote netip.AddrPort) (all []status.Flight, err error) {
	for _, poller := range pollers {
		there, err := poller.FlightRecords(ctx, remote)
		if err != nil {
			return nil, fmt.Errorf("port %q: %w", port, err)
		}
		for _, f := range there {
			all = append(all, Flight(port, &rnic.FlightRecord{Local: f.Local, Remote: f.Remote, Now: f.Now,
				Before: f.Before, Events: f.Events}))
		}
	}
	return all, nil
}

// Peer reads whom events are asked about: an address with or without a port; of no text the zero
// AddrPort.
func Peer(text string) (netip.AddrPort, error) {
	if text == "" {
		return netip.AddrPort{}, nil
	}
	a, err := netip.ParseAddr(text)
	remote := netip.AddrPortFrom(a, 0)
	if err != nil {
		remote, err = netip.ParseAddrPort(text)
	}
	if err != nil {
		return remote, fmt.Errorf("remote: %q is no address, as 10.9.0.2 or 10.9.0.2:33000", text)
	}
	return remote, nil
}
