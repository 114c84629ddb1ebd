package testhost

import (
	"github.com/rnicd/rnicd/mem"
	"github.com/rnicd/rnicd/stack"
)

// Upper takes what comes and has nothing to say: for Uppers of tests to embed. Who dials or listens
// sets Conn.
type Upper struct{ Conn *stack.Conn }

func (*Upper) Established() {}
func (*Upper) Arrive(_ uint64, _ []mem.Buf, data [][]byte) (int, stack.Verdict) {
	return len(data), stack.Taken
}
func (*Upper) Edge(uint64)                {}
func (*Upper) Pull([][]byte) stack.Pulled { return stack.Pulled{} }
func (*Upper) Acked(uint64)               {}
func (*Upper) FinAcked()                  {}
func (*Upper) PeerClosed()                {}
func (*Upper) Held() (int, int64)         { return 0, 0 }
func (*Upper) Advice(error)               {}
func (*Upper) Woken()                     {}
func (*Upper) Timer(int64)                {}
func (*Upper) Closed(error)               {}

// Fill is Pull of an Upper that fills one segment after the other: fill returns how many octets it
// has put there, 0 where there are no more.
func Fill(dst [][]byte, fill func([]byte) int) (got stack.Pulled) {
	for got.N < len(dst) {
		n := fill(dst[got.N])
		if n == 0 {
			return got
		}
		dst[got.N] = dst[got.N][:n]
		got.N++
	}
	got.More = true
	return got
}
