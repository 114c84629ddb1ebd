package stack

import (
	"encoding/binary"
	"testing"

	"github.com/rnicd/rnicd/internal/inet"
	"github.com/rnicd/rnicd/tcp"
	"github.com/stretchr/testify/require"
)

// The DS field is in every IP header and ECT on new data only; what the network marks comes back as
// ECE, and the sender halves its window instead of repairing anything.
//
// req: 9293-MUST-48, 9293-SHLD-22, 3168-6.1.1-3, 3168-6.1.3-1, 3168-6.1.2-1
func TestMarksTravelThroughTheStack(t *testing.T) {
	l := newLab(t, func(i int, cfg *Config) {
		cfg.TCP.TOS = 0x28
		cfg.TCP.ECN = tcp.ECNActive
	})
	marked, data := 0, 0
	for _, h := range l.hosts {
		h.nic.onSend = func(f []byte) {
			s, payload, ok := segmentOf(f)
			if !ok {
				return
			}
			tos := &f[inet.EthernetLen+1]
			require.Equal(t, byte(0x28), *tos&^3)
			if *tos&3 == 0 {
				return
			}
			require.NotEmpty(t, payload)
			require.Zero(t, s.Flags&tcp.SYN)
			if data++; data%20 == 0 {
				marked++
				*tos |= 3
				header := f[inet.EthernetLen : inet.EthernetLen+inet.IPv4Len]
				binary.BigEndian.PutUint16(header[10:], 0)
				binary.BigEndian.PutUint16(header[10:], inet.Checksum(header, 0))
			}
		}
	}
	l.listen(l.b, 7, 4)
	u := l.dial(l.a, l.b, 7, 300_000)
	l.until("delivered", func() bool {
		return len(l.accepted) == 1 && l.accepted[0].edge == 300_000 && u.acked == 300_000
	})
	sender, receiver := u.conn.Stats(), l.accepted[0].conn.Stats()
	require.Positive(t, marked)
	require.Equal(t, uint64(marked), receiver.CEIn)
	require.Positive(t, sender.ECEIn)
	require.Less(t, sender.Ssthresh, 1<<30)
	require.Zero(t, sender.Retransmits, "%+v", sender)
}
