//go:build cgo

package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"net/url"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/rnicd/rnicd/internal/awake"
	"github.com/rnicd/rnicd/internal/lossy"
	"github.com/rnicd/rnicd/internal/port"
	"github.com/rnicd/rnicd/internal/port/portfile"
	"github.com/rnicd/rnicd/internal/printable"
	"github.com/rnicd/rnicd/internal/programs"
	"github.com/rnicd/rnicd/internal/report"
	"github.com/rnicd/rnicd/internal/status"
	"github.com/rnicd/rnicd/rnic"
	"github.com/rnicd/rnicd/verbs/internal/engine"
)

// program answers on the control socket of this process what a daemon answers on its own
// (docs/adr/0051-programs.md).
type program struct {
	port    *port.Port
	dev     *rnic.Adapter
	engine  *engine.Engine
	flights *report.Recorder
	looks   string
	started time.Time

	mu     sync.Mutex
	socket *programs.Socket // nil: there is none
	left   bool             // the program ends
}

// fellWaiting are connections that have ended and are still to be recorded.
const fellWaiting = 16

// deviceName is the RDMA device, which programs know as well.
const deviceName = "rnicd0"

// serve makes the socket, and answers on it as long as the process lives. That there is none is
// told if a directory was asked for, or the user has asked for more than that.
func (p *program) serve(e *engine.Engine, dir string, log io.Writer) {
	p.engine = e
	if e.RoCE() {
		p.looks = portfile.Looks[1]
	}
	p.mu.Lock()
	var err error
	if !p.left {
		p.socket, err = programs.Listen(dir)
	}
	s := p.socket
	p.mu.Unlock()
	if err != nil && dir != "" {
		lossy.Line(os.Stderr, "rnicd: no control socket: "+printable.Text(err.Error()))
	} else if err != nil && log != nil {
		fmt.Fprintf(log, "rnicd: no control socket: %s\n", printable.Text(err.Error()))
	}
	if s == nil {
		return
	}
	s.Serve(map[string]programs.Answer{
		"/v1/status":      p.answerStatus,
		"/v1/connections": p.answerConnections,
		"/v1/events":      p.answerEvents,
		"/v1/capture": func(context.Context, url.Values, io.Writer) error {
			return &programs.QuestionError{Err: errors.New("a program's frames are written to a file from " +
				"its start: rnicd run --capture FILE")}
		},
	})
}

// leave is the end of the program.
func (p *program) leave() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.left = true
	if p.socket != nil {
		p.socket.Remove()
	}
}

func (p *program) answerStatus(ctx context.Context, _ url.Values, w io.Writer) error {
	return json.NewEncoder(w).Encode(p.status(ctx))
}

func (p *program) status(ctx context.Context) *status.Daemon {
	ctx, cancel := awake.Timeout(ctx, report.Within, nil)
	defer cancel()
	v := p.engine.View()
	s := &status.Daemon{Kind: status.KindProgram, Version: version, PID: os.Getpid(),
		Started: p.started, At: time.Now(), State: status.Running, Healthy: true, CPU: report.CPU(),
		Services: []status.Service{},
		Program: &status.Program{Command: command(), Looks: p.looks, QueuePairs: v.QueuePairs,
			Datagrams: len(v.Datagrams), Connections: len(v.Connections), Listeners: v.Listeners,
			Regions: v.Regions, RegionOctets: v.RegionOctets}}
	one := report.Port(deviceName, p.port, p.dev)
	pollers := p.port.Pollers()
	if len(pollers) == 0 {
		one.KernelConnections = len(v.Connections)
	}
	answers := make([]func(context.Context, *status.Queue), len(pollers))
	for i, poller := range pollers {
		answers[i] = report.AskQueue(p.dev, poller)
	}
	for i, answer := range answers {
		q := status.Queue{Queue: i, Core: p.port.Config().Core(i)}
		answer(ctx, &q)
		s.Healthy = s.Healthy && q.Error == ""
		one.Queues = append(one.Queues, q)
	}
	if len(pollers) == 0 {
		one.KernelConnections = len(v.Connections)
	}
	one.SumRefused()
	s.Ports = []status.Port{one}
	return s
}

// command is the program's command line, as ps shows it.
func command() string {
	const octetsMax = 4096
	line := make([]byte, octetsMax)
	f, err := os.Open("/proc/self/cmdline")
	if err != nil {
		return strings.Join(os.Args, " ")
	}
	defer f.Close()
	n, _ := io.ReadFull(f, line) // most are shorter
	return string(bytes.ReplaceAll(bytes.TrimRight(line[:n], "\x00"), []byte{0}, []byte{' '}))
}

func (p *program) answerConnections(ctx context.Context, query url.Values, w io.Writer) error {
	look, err := report.ParseLook(query)
	if err != nil {
		return &programs.QuestionError{Err: err}
	}
	return look.Write(ctx, w, p.eachConnection)
}

// ends are the two addresses of a connection.
type ends struct{ local, remote netip.AddrPort }

// eachConnection tells of listeners, queue pairs for datagrams and connections: over our own TCP of
// all that the Pollers have, over the kernel's sockets of those of queue pairs.
func (p *program) eachConnection(ctx context.Context, f status.Filter,
	tell func(*status.Connection) error) error {
	v, line := p.engine.View(), command()
	told := func(c *status.Connection) error {
		c.Port, c.PID, c.Command = deviceName, os.Getpid(), line
		if !f.Takes(c) {
			return nil
		}
		return tell(c)
	}
	for _, at := range v.Listeners {
		c := &status.Connection{Kind: status.Listener}
		c.Conn.Local, c.Conn.State = at, "LISTEN"
		if err := told(c); err != nil {
			return err
		}
	}
	for _, n := range v.Datagrams {
		c := &status.Connection{Kind: status.Datagrams, QP: n}
		c.Conn.Local, c.Conn.State = v.Numbered, "UNCONN"
		if err := told(c); err != nil {
			return err
		}
	}
	if len(p.port.Pollers()) == 0 {
		for _, one := range v.Connections {
			c := overKernel(ctx, one)
			if err := cmp.Or(ctx.Err(), told(c)); err != nil {
				return err
			}
		}
		return nil
	}
	numbers := map[ends]uint32{}
	for _, one := range v.Connections {
		numbers[ends{one.RNIC.LocalAddr(), one.RNIC.RemoteAddr()}] = one.Number
	}
	for i, poller := range p.port.Pollers() {
		if err := report.EachOf(ctx, poller, func(c *status.Connection) error {
			c.Queue, c.QP = i, numbers[ends{c.Conn.Local, c.Conn.Remote}]
			return told(c)
		}); err != nil {
			return err
		}
	}
	return nil
}

// overKernel is a connection over the kernel's sockets.
func overKernel(ctx context.Context, one engine.ViewedConnection) *status.Connection {
	r := one.RNIC
	c := &status.Connection{Kind: status.RDMA, QP: one.Number}
	c.Conn.Local, c.Conn.Remote = r.LocalAddr(), r.RemoteAddr()
	if !c.Conn.Remote.IsValid() {
		c.Conn.Remote = one.Peer
	}
	ctx, cancel := awake.Timeout(ctx, report.Within, nil)
	defer cancel()
	stats, _ := r.Stats(ctx) // of one that does not answer in time there are none
	is := r.State()
	stats.TCP.Kernel = true
	c.RDMA = &rnic.ConnInfo{State: is.String(), Stats: stats}
	k, in := &c.Conn.TCP, &stats.Receive
	k.BytesIn, k.BytesOut = in.BytesDirect+in.BytesReassembled, stats.PayloadSent
	k.SegsIn, k.SegsOut, k.Retransmits = stats.TCP.SegmentsIn, stats.TCP.SegmentsOut,
		stats.TCP.Retransmits
	c.Conn.State = map[rnic.State]string{rnic.Connecting: "CONNECTING", rnic.Closed: "CLOSED",
		rnic.Error: "CLOSED"}[is]
	if c.Conn.State == "" {
		c.Conn.State = "ESTABLISHED"
	}
	if s := r.Startup(); c.Conn.Local.IsValid() {
		framing := r.Framing()
		c.RDMA.Dialect, c.RDMA.CRC = s.Dialect.String(), framing.CRC
		c.RDMA.MarkersIn, c.RDMA.MarkersOut = framing.MarkersReceived, framing.MarkersSent
	}
	return c
}

func (p *program) answerEvents(ctx context.Context, query url.Values, w io.Writer) error {
	remote, err := report.Peer(query.Get("remote"))
	if err != nil {
		return &programs.QuestionError{Err: err}
	}
	all := p.flights.About(remote)
	if remote.IsValid() {
		ctx, cancel := awake.Timeout(ctx, report.Within, nil)
		defer cancel()
		there, err := p.open(ctx, remote)
		if err != nil {
			return err
		}
		all = append(all, there...)
	}
	return json.NewEncoder(w).Encode(status.Flights{Records: all})
}

// open are the records of connections that there are.
func (p *program) open(ctx context.Context, remote netip.AddrPort) (all []status.Flight,
	err error) {
	if pollers := p.port.Pollers(); len(pollers) > 0 {
		return report.OfPollers(ctx, deviceName, pollers, remote)
	}
	for _, one := range p.engine.View().Connections {
		if !report.With(one.RNIC.RemoteAddr(), remote) {
			continue
		}
		select {
		case <-one.RNIC.Done():
			continue // it is told of among those that have ended
		default:
		}
		f, err := one.RNIC.FlightRecord(ctx)
		if errors.Is(err, rnic.ErrState) {
			continue
		}
		if err != nil {
			return nil, err
		}
		all = append(all, report.Flight(deviceName, &f))
	}
	return all, nil
}
