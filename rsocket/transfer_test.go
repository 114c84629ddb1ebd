package rsocket

import (
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rnicd/rnicd/internal/testnic"
	"github.com/rnicd/rnicd/rnic"
)

// Octets come as they were, both ways at once, in Writes and Reads of any size, through buffers
// of any size: rings wrap, grants are waited for, of memory and of messages, whose counters begin
// again on the way.
func TestTransfer(t *testing.T) {
	small := Options{SendBuffer: BufferMin, ReceiveBuffer: BufferMin, Credits: CreditsMin}
	odd := Options{SendBuffer: 5001, ReceiveBuffer: 7003, Credits: 17,
		Conn: rnic.ConnParam{NoMarkers: true, NoCRC: true}}
	for _, tc := range []struct {
		name          string
		opt           Options
		octets        int
		writes, reads int // the longest
	}{
		{"usual", Options{}, 4 << 20, 200 << 10, 200 << 10},
		{"small", small, 300 << 10, 5000, 5000},
		{"odd", odd, 300 << 10, 9000, 3},
		{"single octets", small, 10 << 10, 1, 1 << 10},
		{"late", Options{LateGrants: true}, 4 << 20, 200 << 10, 200 << 10},
		{"late, small", Options{SendBuffer: BufferMin, ReceiveBuffer: BufferMin, Credits: CreditsMin,
			LateGrants: true}, 300 << 10, 5000, 5000},
		{"late, single octets", Options{Credits: CreditsMin, LateGrants: true}, 10 << 10, 1, 1 << 10},
	} {
		t.Run(tc.name, func(t *testing.T) {
			testnic.Over(t, func(t *testing.T, devs [2]*rnic.Adapter) {
				c := pair(t, devs, tc.opt)
				skip(t, c, 1<<16-50)
				var both sync.WaitGroup
				for i := range c {
					rng := rand.New(rand.NewPCG(uint64(i), 7))
					data := make([]byte, tc.octets)
					for j := range data {
						data[j] = byte(rng.Uint32())
					}
					both.Go(func() { t.Log(i, write(c[i], data, tc.writes)) })
					both.Go(func() {
						got, err := read(c[1-i], tc.reads)
						if err != nil || !bytes.Equal(data, got) {
							t.Errorf("end %d got %d octets of %d, or others (%v)", 1-i, len(got), len(data), err)
						}
					})
				}
				both.Wait()
				for _, c := range c {
					require.NoError(t, c.Close())
				}
			})
		})
	}
}

// write writes data in pieces of every size up to most, and says that this was all.
func write(c *Conn, data []byte, most int) error {
	rng := rand.New(rand.NewPCG(uint64(len(data)), 3))
	for len(data) > 0 {
		n := min(len(data), 1+rng.IntN(most))
		if k, err := c.Write(data[:n]); err != nil || k != n {
			return fmt.Errorf("%d of %d octets: %w", k, n, err)
		}
		data = data[n:]
	}
	return c.CloseWrite()
}

// read reads to the end.
func read(c *Conn, most int) (got []byte, err error) {
	b := make([]byte, most)
	for {
		n, err := c.Read(b)
		got = append(got, b[:n]...)
		if err == io.EOF {
			return got, nil
		} else if err != nil {
			return got, err
		}
	}
}

// Writes of several goroutines come one after the other, each in one piece.
func TestWritesAreWhole(t *testing.T) {
	const size, each = 5000, 50
	c := pair(t, testnic.Wired(t), Options{SendBuffer: BufferMin, ReceiveBuffer: BufferMin,
		Credits: CreditsMin})
	n, err := c[1].Read(nil) // waits for nothing
	require.NoError(t, err)
	require.Zero(t, n)
	var writers sync.WaitGroup
	for i := range 3 {
		writers.Go(func() {
			for range each {
				if _, err := c[0].Write(bytes.Repeat([]byte{byte(i)}, size)); err != nil {
					t.Error(err)
				}
			}
		})
	}
	b := make([]byte, size)
	for range 3 * each {
		must(io.ReadFull(c[1], b))(t)
		require.Equal(t, size, bytes.Count(b, b[:1]))
	}
	writers.Wait()
}

// skip has both ends count as if so many messages had been sent and read already, either way.
func skip(t *testing.T, c [2]*Conn, messages uint16) {
	t.Helper()
	for i := range c { // what start-up leaves to be granted comes in front of it
		must(c[i].Write([]byte("x")))(t)
		must(c[1-i].Read(make([]byte, 1)))(t)
	}
	for _, c := range c {
		c.mu.Lock()
		defer c.mu.Unlock()
	}
	for i := range c {
		s, r := &c[i].out, &c[1-i].in
		for _, v := range []*uint16{&s.sent, &s.credit, &s.fills[0], &s.fills[1], &r.come,
			&r.done, &r.told} {
			*v += messages
		}
	}
}
