package stack

import (
	"runtime"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestBellsAreHeardInOrder(t *testing.T) {
	conns := make([]Conn, 5)
	for i := range conns {
		conns[i].index = connIndex(i)
	}
	var b doorbells
	require.Zero(t, b.takeAll(conns))
	for _, i := range []int{3, 0, 4} {
		b.ring(&conns[i])
	}
	var got []uint32
	for i := b.takeAll(conns); i != 0; i = conns[i-1].rungNext {
		got = append(got, i-1)
	}
	require.Equal(t, []uint32{3, 0, 4}, got)
	require.Zero(t, b.takeAll(conns))
}

// Many ring at once, as Wake does, while one listens: each ring is heard, and as often as its
// doorbell was set.
func TestBellsFromManyGoroutines(t *testing.T) {
	const conns, ringers, rounds = 16, 4, 2000
	all := make([]Conn, conns)
	for i := range all {
		all[i].index = connIndex(i)
	}
	var b doorbells
	var rung [ringers]int
	var ringing sync.WaitGroup
	for g := range ringers {
		ringing.Go(func() {
			for i := range rounds {
				if c := &all[(i*7+g)%conns]; !c.rung.Swap(true) {
					rung[g]++
					b.ring(c)
				}
				if i%64 == 0 {
					runtime.Gosched()
				}
			}
		})
	}
	heard := 0
	listen := func() {
		for i := b.takeAll(all); i != 0; {
			c := &all[i-1]
			i = c.rungNext
			c.rung.Store(false)
			heard++
		}
	}
	done := make(chan struct{})
	go func() { ringing.Wait(); close(done) }()
	for over := false; !over; {
		select {
		case <-done:
			over = true
		default:
		}
		listen()
	}
	total := 0
	for _, n := range rung {
		total += n
	}
	require.Equal(t, total, heard)
}
