package stream

import (
	"fmt"
	"net"
	"time"
)

// Options of a connection, or of all that a Listener accepts. The zero value takes the defaults.
type Options struct {
	// octets written and not yet in a segment; default 256 KiB, at least 4 KiB
	SendBuffer int
	// octets, the first window; default 65535, which is what a SYN can say
	ReceiveWindow    int
	ReceiveWindowMax int // octets the window grows to; default 1 MiB
	// coalesce small writes (RFC 9293 section 3.7.4); off, as with package net
	Nagle bool
	// after Close, while octets or the FIN are unacknowledged, without progress; default 60 s
	FlushTimeout time.Duration
	KeepAlive    net.KeepAliveConfig
	UserTimeout  time.Duration // SetUserTimeout, from the SYN on
	// SetTOS, from the SYN on; of a Listener, from its first segment after the handshake on
	TOS uint8

	Backlog  int // of a Listener: established connections that wait for Accept; default 128
	HalfOpen int // of a Listener: handshakes under way, on each Poller; default 256
}

const (
	sendBufferDefault    = 256 << 10
	sendBufferMin        = 4 << 10
	windowDefault        = 65535
	windowMaxDefault     = 1 << 20
	windowMaxMax         = 1<<30 - 1 // RFC 7323 section 2.2
	flushTimeoutDefault  = 60 * time.Second
	backlogDefault       = 128
	backlogMax           = 1 << 16
	halfOpenDefault      = 256
	bufferMax            = 1 << 30
	keepIdleDefault      = 15 * time.Second // package net's
	keepIntervalDefault  = 15 * time.Second
	keepCountDefault     = 9
	controlRetry         = 100 * time.Microsecond // between tries when a Poller's control ring is full
	controlRetryMax      = 10 * time.Millisecond
	portsTriedMax        = 64
	portFirst, portCount = 49152, 16384 // RFC 6335 section 6
)

func (o Options) filled() (Options, error) {
	for _, v := range []struct {
		name      string
		given, to int
	}{
		{"SendBuffer", o.SendBuffer, bufferMax}, {"ReceiveWindow", o.ReceiveWindow, bufferMax},
		{"ReceiveWindowMax", o.ReceiveWindowMax, bufferMax}, {"Backlog", o.Backlog, backlogMax},
		{"HalfOpen", o.HalfOpen, bufferMax},
	} {
		if v.given < 0 || v.given > v.to {
			return o, fmt.Errorf("stream: Options.%s %d, 1 to %d possible, or 0 for the default", v.name,
				v.given, v.to)
		}
	}
	if o.FlushTimeout < 0 {
		return o, fmt.Errorf("stream: FlushTimeout %v is negative", o.FlushTimeout)
	}
	fill(&o.SendBuffer, sendBufferDefault)
	fill(&o.ReceiveWindow, windowDefault)
	fill(&o.ReceiveWindowMax, max(windowMaxDefault, o.ReceiveWindow))
	fill(&o.FlushTimeout, flushTimeoutDefault)
	fill(&o.Backlog, backlogDefault)
	fill(&o.HalfOpen, halfOpenDefault)
	o.SendBuffer = max(o.SendBuffer, sendBufferMin)
	o.ReceiveWindowMax = min(o.ReceiveWindowMax, windowMaxMax)
	o.ReceiveWindow = min(o.ReceiveWindow, o.ReceiveWindowMax)
	return o, nil
}

func fill[T int | time.Duration](v *T, def T) {
	if *v == 0 {
		*v = def
	}
}

func powerOfTwo(n int) int {
	p := 1
	for p < n {
		p *= 2
	}
	return p
}
