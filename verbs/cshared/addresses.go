package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/rnicd/rnicd/internal/awake"
	"github.com/rnicd/rnicd/internal/port"
	"github.com/rnicd/rnicd/internal/printable"
	"github.com/rnicd/rnicd/internal/report"
	"github.com/rnicd/rnicd/stack"
)

// addresses tells once if another host on the link has an address of ours, or a switch does not
// give it to this program: nothing that the program does would work. It
// tells once of packets without checksums, as come through a switch with a veth as its uplink.
type addresses struct {
	port     *port.Port
	log      io.Writer
	once     sync.Once
	unsummed sync.Once
}

// watch waits until the addresses have been checked, then for the first packet without checksums.
func (a *addresses) watch() {
	var taken *port.AddrTakenError
	if errors.As(a.port.AwaitAddrs(context.Background()), &taken) {
		a.tell(taken)
	}
	for range time.Tick(checksumsEvery) {
		ctx, cancel := awake.Timeout(context.Background(), report.Within, nil)
		told := a.lookAtChecksums(ctx)
		cancel()
		if told {
			return
		}
	}
}

func (a *addresses) tell(taken *port.AddrTakenError) {
	a.once.Do(func() { fmt.Fprintf(a.log, "rnicd: %s\n", printable.Text(taken.Error())) })
}

// leave is the end of the program, which may be because of that.
func (a *addresses) leave() {
	ctx, cancel := awake.Timeout(context.Background(), report.Within, nil)
	defer cancel()
	all, _ := a.port.Pollers()[0].Addrs(ctx) // without an answer nothing is known
	for _, is := range all {
		if is.State == stack.AddrDuplicate {
			a.tell(&port.AddrTakenError{Addr: is.Addr, MAC: is.Rival})
		}
	}
	a.lookAtChecksums(ctx)
}

// checksumsEvery is how often watch looks for packets without checksums.
const checksumsEvery = 2 * time.Second

// lookAtChecksums tells once of packets without checksums. False: none have come.
func (a *addresses) lookAtChecksums(ctx context.Context) bool {
	var unsummed uint64
	for _, p := range a.port.Pollers() {
		k, _ := p.Counters(ctx)
		unsummed += port.Unsummed(&k)
	}
	if unsummed == 0 {
		return false
	}
	a.unsummed.Do(func() { fmt.Fprintf(a.log, "rnicd: %d %s\n", unsummed, port.NoChecksums) })
	return true
}
