package daemon

import (
	"io"
	"log/slog"
	"net/netip"
	"os"
	"time"

	"github.com/rnicd/rnicd/hugepages"
	"github.com/rnicd/rnicd/internal/inet"
	"github.com/rnicd/rnicd/internal/lossy"
	"github.com/rnicd/rnicd/internal/port"
	"github.com/rnicd/rnicd/pmd"
	"github.com/rnicd/rnicd/pmd/dpdk"
)

// NewLogger makes a logger with the format of a configuration's [log] and a level, which never
// waits for the reader of w: lines that it does not take are lost and counted by the Writer, and
// told when it takes lines again. To systemd's journal it writes the priority of each record, its
// attributes as fields RNICD_KEY, and no time, which the journal has. The caller closes the Writer.
func NewLogger(w io.Writer, format string,
	level slog.Leveler) (out *lossy.Writer, log *slog.Logger) {
	return newLoggerAt(journalSocket, w, format, level)
}

func newLoggerAt(socket string, w io.Writer, format string,
	level slog.Leveler) (out *lossy.Writer, log *slog.Logger) {
	ready, toJournal := make(chan struct{}), ToJournal(w)
	var entries *entryWriter
	if toJournal {
		if entries = newEntryWriter(socket, lossy.File{File: w.(*os.File)}); entries != nil {
			w = entries
		}
	}
	out = lossy.New(w, func(lines uint64) {
		<-ready
		log.Warn("lines of the log were lost: its reader was gone or stood still", "lines", lines)
	})
	log = newLogger(out, toJournal, entries != nil, format, level)
	close(ready)
	return out, log
}

func newLogger(w io.Writer, toJournal, entries bool, format string,
	level slog.Leveler) *slog.Logger {
	opt := &slog.HandlerOptions{Level: level}
	opt.ReplaceAttr = func(groups []string, a slog.Attr) slog.Attr {
		if toJournal && len(groups) == 0 && a.Key == slog.TimeKey {
			return slog.Attr{}
		}
		if format == "json" {
			return withUnit(a)
		}
		return a
	}
	if !toJournal {
		return slog.New(handler(w, format, opt))
	}
	to := &composer{w: w, entries: entries}
	return slog.New(journal{Handler: handler(to, format, opt), to: to})
}

// withUnit makes of a duration, for a program that reads it, a number of milliseconds whose key
// says so: took_ms.
func withUnit(a slog.Attr) slog.Attr {
	if a.Value.Kind() == slog.KindDuration {
		return slog.Float64(a.Key+"_ms", float64(a.Value.Duration())/float64(time.Millisecond))
	}
	return a
}

func handler(w io.Writer, format string, opt *slog.HandlerOptions) slog.Handler {
	if format == "json" {
		return slog.NewJSONHandler(w, opt)
	}
	return slog.NewTextHandler(w, opt)
}

// MemoryAttrs say what memory an arena has become.
func MemoryAttrs(a *hugepages.Arena) []any {
	attrs := []any{"memory_octets", len(a.Bytes()), "pages", a.PageSize().String()}
	if why := a.Fallback(); why != "" {
		attrs = append(attrs, "fallback", why)
	}
	return attrs
}

// WarnUnlocked says that memory may be swapped out, if it may.
func WarnUnlocked(log *slog.Logger, a *hugepages.Arena) {
	if err := a.LockErr(); err != nil {
		log.Warn("memory is not locked", "error", err)
	}
}

// WarnChecksums says that no TCP or UDP can come to a device.
func WarnChecksums(log *slog.Logger, c *port.Config) {
	for _, left := range c.ChecksumsLeft() {
		log.Warn("TCP and UDP may not arrive", "why", left.String(), "fix", left.Fix())
	}
}

// DeviceConditions writes what becomes of a device.
type DeviceConditions struct{ Log *slog.Logger }

var _ port.DeviceReporter = DeviceConditions{}

func (c DeviceConditions) Link(link dpdk.Link) { c.Log.Info("link", "link", link.String()) }

func (c DeviceConditions) Stuck(queue int, stuck bool, link dpdk.Link) {
	if stuck {
		c.Log.Error("a queue of the device takes no frames", "queue", queue, "link", link.String())
		return
	}
	c.Log.Info("a queue of the device takes frames again", "queue", queue)
}

func (c DeviceConditions) Trouble(was, is pmd.Trouble) {
	switch {
	case is.Stops():
		c.Log.Error("the device takes no frames", "trouble", is.Text)
	case was.Stops():
		c.Log.Info("the device takes frames again")
	}
	if is.Kind == pmd.TroubleBridge {
		c.Log.Warn("the device leaves its bridge at a restart", "trouble", is.Text)
	}
}

func (c DeviceConditions) Offences(n uint64) {
	c.Log.Warn("connections of a memif peer were ended: its memory went away, or was slow",
		"connections", n)
}

// conditions writes what becomes of a port.
type conditions struct{ DeviceConditions }

func (c conditions) Conflict(addr netip.Addr, rival inet.MAC, lost bool) {
	if lost {
		c.Log.Error("another host on the link has this address; we do not use it any more", "address",
			addr, "mac", rival.String())
		return
	}
	c.Log.Warn("another host on the link uses this address, too: take it from that host; we defend it",
		"address", addr, "mac", rival.String())
}

func (c conditions) Full(segments uint64) {
	c.Log.Warn("segments that open a connection were not answered: their address has as many as "+
		"peer_connections of the port allows", "segments", segments)
}

func (c conditions) ChecksumsLeft(packets uint64) {
	c.Log.Warn(port.NoChecksums, "packets", packets)
}

func (c conditions) Capture(err error) {
	c.Log.Error("the capture has ended; the port is served on", "error", err)
}
