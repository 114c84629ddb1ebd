package interop

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/rnicd/rnicd/rnic"
	"github.com/rnicd/rnicd/rsocket"
)

// rstreamRun is one way to run rstream or riostream: iterations of so many transfers there and
// back.
type rstreamRun struct {
	name                        string
	size, transfers, iterations int
	how                         string // -T: how the program waits
	opt                         rsocket.Options
}

var rstreamRuns = []rstreamRun{
	{"short transfers", 100, 300, 3, "block",
		rsocket.Options{Conn: rnic.ConnParam{NoMarkers: true, NoCRC: true}}},
	{"long transfers, CRC", 300000, 3, 3, "block",
		rsocket.Options{Conn: rnic.ConnParam{NoMarkers: true}}},
	{"there and back, polling", 64, 1, 200, "async",
		rsocket.Options{Conn: rnic.ConnParam{NoMarkers: true}}},
	{"small buffers", 10000, 5, 3, "block", rsocket.Options{
		Conn: rnic.ConnParam{NoMarkers: true}, SendBuffer: rsocket.BufferMin,
		ReceiveBuffer: rsocket.BufferMin, Credits: rsocket.CreditsMin}},
}

// overRstream runs a test over both transports, each way.
func overRstream(t *testing.T, runs []rstreamRun, f func(r *rig, run rstreamRun)) {
	for _, run := range runs {
		t.Run(run.name, func(t *testing.T) {
			over(t, func(r *rig) {
				r.siw("std")
				f(r, run)
			})
		})
	}
}

// flags are those of the program, with $port for its port.
func (run rstreamRun) flags() string {
	return fmt.Sprintf("-p $port -S %d -C %d -I %d -T verify -T %s", run.size, run.transfers,
		run.iterations, run.how)
}

// printed: the program has printed its line.
func (run rstreamRun) printed(t *testing.T, out string) {
	t.Helper()
	require.Regexp(t, `(?m)^custom +[0-9.km]+ +[0-9]+ +[0-9]+ +[0-9.km]+ +[0-9.]+s +[0-9.]+ +[0-9.]+`,
		out)
	require.NotContains(t, out, "verification failed")
}

// siwConnects is our end of the connection of a program in the guest.
func (run rstreamRun) siwConnects(r *rig, program string, talk func(*rstreamEnd)) {
	r.t.Helper()
	l := must(rsocket.NewListener(r.adapter, r.listen(), rsocket.ListenOptions{Options: run.opt}))(r.t)
	defer l.Close()
	job := r.start("port=%d; exec %s -s %s %s", r.port, program, r.host, run.flags())
	c, err := l.Accept()
	require.NoError(r.t, err)
	e := &rstreamEnd{r: r, run: run, Conn: c.(*rsocket.Conn)}
	talk(e)
	// The last word is the client's: one that polls takes a goodbye for an error while it has octets
	// to read.
	require.ErrorIs(r.t, errOf(c.Read(make([]byte, 1))), io.EOF)
	require.NoError(r.t, c.Close())
	r.ends(job)
	run.printed(r.t, job.String())
}

// siwListens is the same with a program that listens.
func (run rstreamRun) siwListens(r *rig, program string, talk func(*rstreamEnd)) {
	r.t.Helper()
	job, addr := r.serve("exec " + program + " " + run.flags())
	opt := run.opt
	opt.Conn.Quirks.WakeUp = rnic.WakeUpDefault
	opt.LateGrants = true // it closes after the last octets
	c, err := rsocket.Dial(r.ctx, r.adapter, addr, opt)
	require.NoError(r.t, err, "%s", job)
	talk(&rstreamEnd{r: r, run: run, Conn: c, client: true})
	require.NoError(r.t, c.Close())
	r.ends(job)
	run.printed(r.t, job.String())
}

// rstreamEnd is our end of rstream's test or of riostream's. Octets that are sent count up, in each
// direction for itself.
type rstreamEnd struct {
	r   *rig
	run rstreamRun
	*rsocket.Conn
	client    bool
	sent, got byte
}

// turns lets the client send first.
func (e *rstreamEnd) turns(send, receive func()) {
	if !e.client {
		send, receive = receive, send
	}
	send()
	receive()
}

// count is n octets that count up from *from.
func count(from *byte, n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = *from
		*from++
	}
	return b
}

// syncOctets go each way before all else.
const syncOctets = 16

func (e *rstreamEnd) send(n int) {
	e.r.t.Helper()
	must(e.Write(count(&e.sent, n)))(e.r.t)
}

func (e *rstreamEnd) receive(n int) {
	e.r.t.Helper()
	b := make([]byte, n)
	must(io.ReadFull(e, b))(e.r.t)
	require.True(e.r.t, bytes.Equal(count(&e.got, n), b))
}

// stream is rstream's test.
func (e *rstreamEnd) stream() {
	require.NoError(e.r.t, e.SetDeadline(time.Now().Add(patience)))
	e.turns(func() { e.send(syncOctets) }, func() { e.receive(syncOctets) })
	for range e.run.iterations {
		e.turns(
			func() {
				for range e.run.transfers {
					e.send(e.run.size)
				}
			},
			func() { e.receive(e.run.transfers * e.run.size) },
		)
	}
}

// rstream in the guest as client of our server; what comes at either end is compared.
func TestSiwRstreamClient(t *testing.T) {
	overRstream(t, rstreamRuns, func(r *rig, run rstreamRun) {
		run.siwConnects(r, "rstream", (*rstreamEnd).stream)
	})
}

// rstream in the guest as our server.
func TestSiwRstreamServer(t *testing.T) {
	overRstream(t, rstreamRuns, func(r *rig, run rstreamRun) {
		run.siwListens(r, "rstream", (*rstreamEnd).stream)
	})
}

// riostreamRuns are ways to run riostream, which never sleeps: it looks at its memory.
var riostreamRuns = []rstreamRun{
	{"riostream, short transfers", 100, 20, 30, "nonblock",
		rsocket.Options{Maps: 1, Conn: rnic.ConnParam{NoMarkers: true, NoCRC: true}}},
	{"riostream, long transfers, CRC", 300000, 3, 3, "block",
		rsocket.Options{Maps: 1, Conn: rnic.ConnParam{NoMarkers: true}}},
}

// direct is riostream's test: transfers are written into memory that the other end has mapped,
// and the last of so many ends in an octet that says so, 0 for the first, and one more in each
// direction. The other octets are laid out in that last one only.
func (e *rstreamEnd) direct() {
	t, size := e.r.t, e.run.size
	const notYet = 0xff
	words := make([]uint32, size/4+1)
	b := unsafe.Slice((*byte)(unsafe.Pointer(&words[0])), size)
	last := &words[(size-1)/4]
	b[size-1] = notYet
	m := must(e.Map(b, 0))(t)
	defer m.Close()
	// A short transfer of riostream's lies in the octets that it receives here.
	hello := bytes.Repeat([]byte{notYet}, syncOctets)
	e.turns(
		func() {
			must(e.Write(hello))(t)
		},
		func() {
			must(io.ReadFull(e, make([]byte, syncOctets)))(t)
		},
	)
	require.Equal(t, size, e.Mapped(0))
	mark := byte(0)
	lastOctet := func() byte {
		w := atomic.LoadUint32(last)
		return (*[4]byte)(unsafe.Pointer(&w))[(size-1)%4]
	}
	for range e.run.iterations {
		e.turns(
			func() {
				for i := range e.run.transfers {
					if i == e.run.transfers-1 {
						copy(b, count(&e.sent, size-1))
						b[size-1] = mark
					}
					must(e.WriteAt(b, 0))(t)
				}
				mark++
			},
			func() {
				e.await(func() bool { return lastOctet() == mark })
				want := count(&e.got, size-1)
				// Where a segment was lost the last octet may have come before others.
				e.await(func() bool { return bytes.Equal(want, b[:size-1]) })
				mark++
			},
		)
	}
}

// await looks until something is so.
func (e *rstreamEnd) await(so func() bool) {
	e.r.t.Helper()
	tick := time.NewTicker(100 * time.Microsecond)
	defer tick.Stop()
	for !so() {
		select {
		case <-tick.C:
		case <-e.r.ctx.Done():
			require.FailNow(e.r.t, "it does not come", "%v", e.QueuePair().Err())
		case <-e.QueuePair().Done():
			require.True(e.r.t, so(), "the connection has ended: %v", errors.Join(e.QueuePair().Err()))
			return
		}
	}
}

// riostream in the guest as client of our server: what it writes into our memory, and we into its,
// is compared.
func TestSiwRiostreamClient(t *testing.T) {
	overRstream(t, riostreamRuns, func(r *rig, run rstreamRun) {
		run.siwConnects(r, "riostream", (*rstreamEnd).direct)
	})
}

// riostream in the guest as our server.
func TestSiwRiostreamServer(t *testing.T) {
	overRstream(t, riostreamRuns, func(r *rig, run rstreamRun) {
		run.siwListens(r, "riostream", (*rstreamEnd).direct)
	})
}

// rstream and riostream in either role, over librdmacm's own rsockets at both ends.
func TestProgramsRsockets(t *testing.T) {
	for _, program := range []string{"rstream", "riostream"} {
		line := program + " -p PORT -S 3000 -C 20 -I 10 -T verify"
		if program == "rstream" {
			line += " -T block"
		}
		x := exchange{server: line, client: strings.Replace(line, program, program+" -s HOST", 1)}
		for _, role := range []string{"our server", "our client"} {
			t.Run(program+"/"+role, func(t *testing.T) {
				overPrograms(t, "std", func(p *programEnd) {
					turn := p.serve
					if role == "our client" {
						turn = p.dial
					}
					ends := turn(x)
					for _, out := range []string{ends.server, ends.client} {
						require.Regexp(t, "(?m)^custom +2.9k +20 +10 +1.1m ", out)
						require.NotContains(t, out, "verification failed")
					}
				})
			})
		}
	}
}
