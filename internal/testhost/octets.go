package testhost

import (
	"crypto/rand"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

// octetsPeriod is a multiple of 64, so that pieces are aligned, and does not divide usual buffer
// sizes, so that octets left in a buffer by an earlier read do not match.
const octetsPeriod = 1<<16 + 64

// checkEvery is the distance between the octets that are compared: cheap enough for the timed part
// of a benchmark.
const checkEvery = 256

// Octets is an endless stream of octets, new in every run, that a benchmark sends and whose arrival
// it checks. One end sends, one checks; each belongs to one goroutine.
type Octets struct {
	repeated  []byte
	sent, got int
}

// NewOctets is a stream that is sent in pieces of n octets at most.
func NewOctets(t testing.TB, n int) *Octets {
	t.Helper()
	o := &Octets{repeated: make([]byte, octetsPeriod+n)}
	_, err := rand.Read(o.repeated[:octetsPeriod])
	require.NoError(t, err)
	for at := octetsPeriod; at < len(o.repeated); {
		at += copy(o.repeated[at:], o.repeated[:octetsPeriod])
	}
	return o
}

// Next is the next n octets to send, good for ever.
func (o *Octets) Next(n int) []byte {
	at := o.sent % octetsPeriod
	o.sent += n
	return o.repeated[at : at+n]
}

// Arrived checks p, of any length, as the next octets that arrived, by samples.
func (o *Octets) Arrived(p []byte) error {
	for i := 0; i < len(p); i += checkEvery {
		if p[i] != o.repeated[(o.got+i)%octetsPeriod] {
			return fmt.Errorf("octet %d is not what was sent", o.got+i)
		}
	}
	if n := len(p) - 1; n >= 0 && p[n] != o.repeated[(o.got+n)%octetsPeriod] {
		return fmt.Errorf("octet %d is not what was sent", o.got+n)
	}
	o.got += len(p)
	return nil
}

// Write is Arrived as an io.Writer.
func (o *Octets) Write(p []byte) (int, error) {
	if err := o.Arrived(p); err != nil {
		return 0, err
	}
	return len(p), nil
}

// Got is how many octets have arrived.
func (o *Octets) Got() int { return o.got }
