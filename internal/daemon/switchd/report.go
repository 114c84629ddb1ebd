package switchd

import (
	"fmt"
	"io"
	"strings"

	"github.com/rnicd/rnicd/internal/vswitch"
)

// Write writes counters that are not 0, a line for each core, uplink queue and program.
func Write(w io.Writer, st *vswitch.Stats) {
	for i := range st.Cores {
		c := &st.Cores[i]
		fmt.Fprintf(w, "thread %d frames=%d lookups=%d copies=%d answers=%d turns=%d busy=%d "+
			"buffers=%d/%d%s\n", i, c.Frames, c.Lookups, c.Copies,
			c.Answers, c.Turns, c.Busy, c.Bufs-c.Free, c.Bufs, drops(&c.Drops))
	}
	for i := range st.Ports {
		p := &st.Ports[i]
		what := "program " + p.Name
		if p.Uplink {
			what = fmt.Sprintf("uplink %s#%d", p.Name, p.Queue)
		}
		fmt.Fprintf(w, "%s attached=%v received=%d octets=%d sent=%d octets=%d waiting=%d "+
			"throttled=%d%s%s\n", what, p.Attached, p.Received,
			p.ReceivedOctets, p.Sent, p.SentOctets, p.Waiting, p.Throttled, drops(&p.Drops), ring(p))
	}
}

func drops(d *[vswitch.Reasons]uint64) string {
	var b strings.Builder
	for r, n := range d {
		if n > 0 {
			fmt.Fprintf(&b, " %v=%d", vswitch.Reason(r), n)
		}
	}
	return b.String()
}

// ring is what was wrong with a program's rings.
func ring(p *vswitch.PortStats) string {
	var b strings.Builder
	for _, x := range []struct {
		name string
		n    uint64
	}{{"bad-descriptors", p.Ring.Descriptor}, {"bad-indices", p.Ring.Index}, {"faults", p.Ring.Fault},
		{"slow-memory", p.Ring.Slow}, {"bad-lengths", p.Ring.Length}, {"no-buffers", p.Device.RxNoBuf}} {
		if x.n > 0 {
			fmt.Fprintf(&b, " %s=%d", x.name, x.n)
		}
	}
	return b.String()
}
