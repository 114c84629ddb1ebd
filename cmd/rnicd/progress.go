package main

import (
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// progress shows how far a transfer is: a bar on a terminal; elsewhere a plain line per tenth, but
// none while less than lineEvery has passed since the last, so that a short transfer has none at
// all.
type progress struct {
	w        io.Writer
	terminal bool
	total    uint64
	begin    time.Time
	drawn    time.Time
	tenth    uint64
	receives bool
}

const (
	barWidth    = 32
	redrawEvery = 50 * time.Millisecond
	lineEvery   = time.Second
)

func newProgress(f *os.File, total uint64) *progress {
	_, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
	now := time.Now()
	p := &progress{w: f, terminal: err == nil, total: total, begin: now}
	if !p.terminal {
		p.drawn = now
	}
	return p
}

// update is called with the octets done so far, by one goroutine.
func (p *progress) update(done uint64) { p.show(done, time.Now()) }

func (p *progress) show(done uint64, now time.Time) {
	rate := bitrate(float64(done) * 8 / max(now.Sub(p.begin).Seconds(), 1e-9))
	if p.terminal {
		if now.Sub(p.drawn) < redrawEvery && done < p.total {
			return
		}
		p.drawn = now
		full := int(done * barWidth / max(p.total, 1))
		fmt.Fprintf(p.w, "\r[%s%s] %3d %%  %s  %s\x1b[K", strings.Repeat("#", full),
			strings.Repeat(".", barWidth-full),
			done*100/max(p.total, 1), octets(done), rate)
		return
	}
	if t := done * 10 / max(p.total, 1); t > p.tenth && now.Sub(p.drawn) >= lineEvery {
		p.tenth, p.drawn = t, now
		verb := "sent"
		if p.receives {
			verb = "got "
		}
		fmt.Fprintf(p.w, "%s %3d %%  %s  %s\n", verb, t*10, octets(done), rate)
	}
}

// end leaves the bar's line.
func (p *progress) end() {
	if p.terminal && !p.drawn.IsZero() {
		fmt.Fprintln(p.w)
	}
}
