package daemon

import (
	"io"
	"log/slog"
	"net/netip"
	"sync"
	"time"

	"github.com/rnicd/rnicd/inet"
	"github.com/rnicd/rnicd/pmd/dpdk"
)

// NewLogger makes a logger with the format of a configuration's [log] and a level.
func NewLogger(w io.Writer, format string, level slog.Leveler) *slog.Logger {
	opt := &slog.HandlerOptions{Level: level}
	if format == "json" {
		return slog.New(slog.NewJSONHandler(w, opt))
	}
	return slog.New(slog.NewTextHandler(w, opt))
}

// Lines of one kind that any peer can bring about: rationMax are written at once, and one more each
// rationEvery. What was not written is counted in the next one that is.
const (
	rationMax   = 64
	rationEvery = time.Second
)

type ration struct {
	mu    sync.Mutex
	spare int
	since time.Time // zero: none was written yet
	left  uint64    // out
}

// take says whether a line may be written, and how many were not before it.
func (r *ration) take(now time.Time) (leftOut uint64, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.since.IsZero() {
		r.spare, r.since = rationMax, now
	}
	earned := now.Sub(r.since) / rationEvery
	r.since = r.since.Add(earned * rationEvery)
	if r.spare = int(min(time.Duration(r.spare)+earned, rationMax)); r.spare == 0 {
		r.left++
		return 0, false
	}
	r.spare--
	leftOut, r.left = r.left, 0
	return leftOut, true
}

func (r *ration) warn(log *slog.Logger, text string, attrs ...any) {
	leftOut, ok := r.take(time.Now())
	if !ok {
		return
	}
	if leftOut > 0 {
		attrs = append(attrs, "more_before", leftOut)
	}
	log.Warn(text, attrs...)
}

// conditions writes what becomes of a port.
type conditions struct{ log *slog.Logger }

func (c conditions) Conflict(addr netip.Addr, rival inet.MAC, lost bool) {
	if lost {
		c.log.Error("another host on the link has this address; we do not use it any more", "address", addr, "mac", rival.String())
		return
	}
	c.log.Warn("another host on the link uses this address, too: take it from that host; we defend it", "address", addr, "mac", rival.String())
}

func (c conditions) Full(segments uint64) {
	c.log.Warn("segments that open a connection were not answered: their address has as many as peer_connections of the port allows", "segments", segments)
}

func (c conditions) Link(link dpdk.Link) { c.log.Info("link", "link", link.String()) }

func (c conditions) Stuck(queue int, stuck bool, link dpdk.Link) {
	if stuck {
		c.log.Error("a queue of the device takes no frames", "queue", queue, "link", link.String())
		return
	}
	c.log.Info("a queue of the device takes frames again", "queue", queue)
}
