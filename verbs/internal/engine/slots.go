package engine

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"sync"
	"syscall"

	"github.com/rnicd/rnicd/rnic"
	"github.com/rnicd/rnicd/stack"
)

// The number of a queue pair says where its owner listens (docs/adr/0046-queue-pairs-by-number.md):
// 12 bits of a slot, which is a port, and 12 bits of a queue pair of the process that has claimed
// it.
const (
	slotPort    = 28672 // of slot 0
	slotsMax    = 1 << 12
	numberBits  = 12
	numbersMax  = 1 << numberBits
	numberFirst = 2 // 0 and 1 are the management's (IBTA), so none ends in them
)

// portOf is where the owner of a number listens.
func portOf(number uint32) uint16 { return slotPort + uint16(number>>numberBits%slotsMax) }

// slot is what this process has claimed: the port of the slot, of TCP and of UDP, on all addresses
// of the device. Any goroutine.
type slot struct {
	index    uint32
	listener *rnic.Listener
	datagram *net.UDPConn // over the kernel's sockets; nil: over our own stack

	mu   sync.RWMutex
	last uint32 // number that was given out
	all  map[uint32]any
}

// claim is the process's slot, which its first queue pair claims.
func (e *Engine) claim() (*slot, error) {
	e.slotting.Lock()
	defer e.slotting.Unlock()
	if e.slot == nil {
		var start [4]byte // of math/rand all children of a process would draw the same
		_, _ = rand.Read(start[:])
		s, err := claimSlot(e.adapter, e.ownTCP, binary.NativeEndian.Uint32(start[:]),
			e.takes())
		if err != nil {
			e.tellError("%v", err)
			return nil, err
		}
		e.slot = s
		go e.serveSlot(s)
		e.tellLog("queue pairs are numbered from 0x%x on: port %d", s.index<<numberBits, s.port())
	}
	return e.slot, nil
}

// claimSlot claims the first slot from start on whose port nobody has.
func claimSlot(a *rnic.Adapter, ownTCP bool, start uint32,
	allow func(netip.AddrPort) bool) (*slot, error) {
	for i := range uint32(slotsMax) {
		s := &slot{index: (start + i) % slotsMax, all: map[uint32]any{}, last: numberFirst - 1}
		err := s.open(a, ownTCP, allow)
		if err == nil {
			return s, nil
		}
		if !errors.Is(err, syscall.EADDRINUSE) && !errors.Is(err, stack.ErrPortUsed) {
			return nil, err
		}
	}
	return nil, fmt.Errorf("all ports from %d to %d are taken: %w", slotPort, slotPort+slotsMax-1,
		syscall.EADDRINUSE)
}

// open takes the port.
func (s *slot) open(a *rnic.Adapter, ownTCP bool, allow func(netip.AddrPort) bool) (err error) {
	at := ":" + strconv.Itoa(int(s.port()))
	if !ownTCP {
		c, err := net.ListenPacket("udp", at)
		if err != nil {
			return err
		}
		s.datagram = c.(*net.UDPConn)
	}
	s.listener, err = a.Listen(context.Background(), at, rnic.ListenOptions{
		Backlog: backlogMax, Dialects: []rnic.Dialect{rnic.RFC6581}, Allow: allow})
	if err != nil {
		s.close()
	}
	return err
}

func (s *slot) close() {
	if s.listener != nil {
		s.listener.Close()
	}
	if s.datagram != nil {
		_ = s.datagram.Close() // nothing was sent
	}
}

func (s *slot) port() uint16 { return slotPort + uint16(s.index) }

// enter numbers a queue pair. Numbers are given out in turn, so that one that was given back is not
// met again soon. ENOMEM: there are as many as there are numbers.
func (s *slot) enter(q any) (uint32, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for range numbersMax {
		if s.last++; s.last == numbersMax {
			s.last = numberFirst
		}
		n := s.index<<numberBits | s.last
		if _, taken := s.all[n]; !taken && n != groupNumber {
			s.all[n] = q
			return n, nil
		}
	}
	return 0, syscall.ENOMEM
}

// leave gives a number back.
func (s *slot) leave(number uint32) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.all, number)
}

// find is the queue pair of a number; nil: there is none.
func (s *slot) find(number uint32) any {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.all[number]
}
