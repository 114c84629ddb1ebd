package engine

import (
	"net"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rnicd/rnicd/internal/netlab"
	"github.com/rnicd/rnicd/rnic"
)

// A slot whose port another program has, of TCP or of UDP, is passed over; so is one of another
// process.
func TestSlots(t *testing.T) {
	netlab.New(t).Do(func() {
		const start = slotsMax - 2
		tcp := must(net.Listen("tcp", ":32766"))(t)
		defer tcp.Close()
		udp := must(net.ListenPacket("udp", "127.0.0.1:32767"))(t)
		defer udp.Close()
		for want := range uint32(2) {
			s := must(claimSlot(must(rnic.Open(Limits()))(t), false, start, nil))(t)
			defer s.close()
			require.Equal(t, want, s.index)
			require.EqualValues(t, slotPort+want, s.listener.Addr().Port())
			require.EqualValues(t, slotPort+want, s.datagram.LocalAddr().(*net.UDPAddr).Port)
		}
	})
}

// Numbers are given out in turn, are of the slot, never 0 or 1 in all, and are as many as there
// are.
func TestNumbers(t *testing.T) {
	s := &slot{index: 7, all: map[uint32]any{}, last: numberFirst - 1}
	for i := range uint32(numbersMax - numberFirst) {
		n := must(s.enter(i))(t)
		require.Equal(t, 7<<numberBits|(i+numberFirst), n)
		require.EqualValues(t, slotPort+7, portOf(n))
		require.Equal(t, i, s.find(n))
	}
	_, err := s.enter("one more")
	require.Equal(t, syscall.ENOMEM, err)
	for _, n := range []uint32{7<<numberBits | 9, 7<<numberBits | 5} {
		s.leave(n)
		require.Nil(t, s.find(n))
	}
	for _, want := range []uint32{5, 9} {
		n := must(s.enter("again"))(t)
		require.Equal(t, 7<<numberBits|want, n)
	}
}
