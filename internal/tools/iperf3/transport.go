package iperf3

import (
	"net"
	"time"

	"golang.org/x/sys/unix"
)

// Transport is what a test wants of data connections beyond net.Conn.
type Transport interface {
	// Prepare applies what the parameters ask of a connection before its first octet: NoDelay,
	// Window, TOS, Congestion. An error ends the test.
	Prepare(c net.Conn, p Params) error
	// Info is called before a connection is closed.
	Info(c net.Conn) Info
}

// Info is what a TCP knows of a connection.
type Info struct {
	Retransmits int64  // segments sent again; -1: not known
	Unacked     int    // octets written and not acknowledged; 0 if that is not known
	Congestion  string // name of the congestion control in use, empty: not known
}

// Defaults of Config.
const (
	messageTimeout = 10 * time.Second
	idleTimeout    = 30 * time.Second
	// looks is how many times in a row nothing has moved until that is an error. They are counted, and
	// not the time between them, in which this process may have been stopped.
	looks        = 16
	drainTimeout = 5 * time.Second
)

// timeouts are the same for both sides; 0 is the default.
type timeouts struct {
	// each message of the control connection, each cookie, each missing data connection
	message time.Duration
	idle    time.Duration // data connections on which nothing moves
	drain   time.Duration // reading what is still under way after the test
}

func (t timeouts) orDefault() timeouts {
	def := func(v *time.Duration, d time.Duration) {
		if *v == 0 {
			*v = d
		}
	}
	def(&t.message, messageTimeout)
	def(&t.idle, idleTimeout)
	def(&t.drain, drainTimeout)
	return t
}

// cpuMeter measures the process's CPU time.
type cpuMeter struct {
	begin time.Time
	usage unix.Rusage
}

func newCPUMeter() cpuMeter {
	m := cpuMeter{begin: time.Now()}
	_ = unix.Getrusage(unix.RUSAGE_SELF, &m.usage) // fails for a bad argument only
	return m
}

func (m *cpuMeter) read() CPU {
	now := newCPUMeter()
	wall := max(float64(now.begin.Sub(m.begin)), 1)
	user := float64(now.usage.Utime.Nano()-m.usage.Utime.Nano()) / wall * 100
	system := float64(now.usage.Stime.Nano()-m.usage.Stime.Nano()) / wall * 100
	return CPU{Total: user + system, User: user, System: system}
}

// results are our side's, once all streams are done.
func (t *transfer) results(cpu CPU) *wireResults {
	w := &wireResults{
		CPUTotal: number(cpu.Total), CPUUser: number(cpu.User), CPUSystem: number(cpu.System),
		HasRetransmits: unknown,
		Streams:        make([]wireStream, 0, len(t.streams)),
	}
	for _, s := range t.streams {
		info := s.info
		if info.Congestion != "" {
			w.Congestion = info.Congestion
		}
		if !s.sends {
			info.Retransmits = unknown
		} else if info.Retransmits >= 0 {
			w.HasRetransmits = 1
		} else if w.HasRetransmits < 0 {
			w.HasRetransmits = 0
		}
		w.Streams = append(w.Streams, wireStream{
			ID: s.id, Bytes: number(s.counted()), Retransmits: number(info.Retransmits),
			End: number(t.seconds(s)),
		})
	}
	return w
}

func prepare(tr Transport, conns []net.Conn, p Params) error {
	if tr == nil {
		return nil
	}
	for _, c := range conns {
		if err := tr.Prepare(c, p); err != nil {
			return &ProtocolError{Code: CodeCongestion,
				Reason: "a data connection cannot be set up as wanted", Err: err}
		}
	}
	return nil
}

func closeAll(conns []net.Conn) {
	for _, c := range conns {
		if c != nil {
			_ = c.Close()
		}
	}
}
