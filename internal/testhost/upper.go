package testhost

import (
	"github.com/rnicd/rnicd/mem"
	"github.com/rnicd/rnicd/stack"
)

// Upper takes what comes and has nothing to say: for Uppers of tests to embed.
type Upper struct{}

func (Upper) Established(*stack.Conn)                                   {}
func (Upper) Arrive(*stack.Conn, uint64, mem.Buf, []byte) stack.Verdict { return stack.Taken }
func (Upper) Edge(*stack.Conn, uint64)                                  {}
func (Upper) Pull(*stack.Conn, []byte) int                              { return 0 }
func (Upper) Acked(*stack.Conn, uint64)                                 {}
func (Upper) PeerClosed(*stack.Conn)                                    {}
func (Upper) Closed(*stack.Conn, error)                                 {}
func (Upper) Woken(*stack.Conn)                                         {}
func (Upper) Timer(*stack.Conn, int64)                                  {}
