package tcp

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// The answer to a SYN that has come again echoes its timestamp and not the first one's, by which
// the peer would measure how long it waited for the SYN,ACK that was lost. What is older, or no SYN
// of this connection, changes nothing.
//
// req: 7323-4.3-1
func TestSynAgainIsEchoed(t *testing.T) {
	for _, tt := range []struct {
		again string
		echo  uint32
		bare  bool // without timestamps
	}{
		{"S 0:1 win 60000 mss 1000 ts 1077,0", 1077, false},
		{"S 0:1 win 60000 mss 1000 ts 76,0", 77, false},
		{"S 0:1 win 60000 mss 1000 ts 1077,0", 77, true},
		{"S -1:0 win 60000 mss 1000 ts 1077,0", 77, false},
		{"S. 0:1 ack 1 win 60000 mss 1000 ts 1077,5", 77, false},
	} {
		s := newScript(t, Config{MSS: 1000})
		syn := s.parse("S 0:1 win 60000 mss 1000 ts 77,0")
		h := NewHalf(s.iss, 0, &syn)
		template := NewConn(Config{MSS: 1000})
		var out Transmit
		h.SynAck(s.now, simID(true), template, true, &out)
		again := s.parse(tt.again)
		again.Options.HasTimestamps = !tt.bare
		require.Equal(t, HalfAgain, h.Judge(&template.mem.cfg, &again), tt.again)
		h.SynAck(s.now, simID(true), template, false, &out)
		require.Equal(t, tt.echo, out.Options.TSecr, tt.again)
	}

}

// A peer whose first SYN was answered in vain measures the path by the second.
func TestRoundTripOfASynThatCameAgain(t *testing.T) {
	client, server := newScript(t, Config{MSS: 1000}), newScript(t, Config{MSS: 1000})
	client.connect()
	client.sent()
	server.accept("S 0:1 win 60000 mss 1000 ts 1000000,0")
	server.sent() // lost
	client.advance(sc)
	client.sent()
	server.in("S 0:1 win 60000 mss 1000 ts 1001000,0")
	client.advance(10 * ms)
	client.in("S. 0:1 ack 1 win 60000 mss 1000 ts 77," + itoa(int(server.sent()[0].Options.TSecr)))
	client.wantState(Established)
	require.Equal(t, 10*ms, client.c.Stats().SRTTNs)
}
