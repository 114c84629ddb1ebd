package engine

import (
	"context"
	"net"
	"net/netip"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rnicd/rnicd/rnic"
)

// bareService is a port that has no carrier.
func bareService() *servicePort {
	return &servicePort{engine: &Engine{}, asked: make(chan *question, 2*questionsMax),
		told: map[questionKey]*question{}, listening: true}
}

var serviceHere = netip.MustParseAddrPort("192.0.2.1:7000")

func stranger(port int) netip.AddrPort {
	return netip.AddrPortFrom(netip.MustParseAddr("192.0.2.2"), uint16(port))
}

// proves brings an ask's cookie, and returns what it is answered.
func (p *servicePort) proves(t *testing.T, from netip.AddrPort, s *service, now time.Time) []byte {
	t.Helper()
	s.cookie = [16]byte{}
	reply, ok := parseService(p.examine(serviceHere, from, s, now))
	require.True(t, ok)
	require.Equal(t, uint8(serviceProve), reply.kind)
	s.cookie = reply.cookie
	return p.examine(serviceHere, from, s, now)
}

// Who is not where it says takes no room, and has no more octets sent there than it sends: a cookie
// is of one address, one port, one ask and half a minute.
func TestServiceSpoofed(t *testing.T) {
	p := bareService()
	now := time.Unix(1e9, 0)
	s := service{transaction: 1}
	for i := range 5000 {
		s.transaction = uint64(i)
		require.LessOrEqual(t, len(p.examine(serviceHere, stranger(i+1), &s, now)), len(s.put()))
	}
	require.Empty(t, p.told)
	require.Nil(t, p.proves(t, stranger(1), &s, now))
	require.Len(t, p.asked, 1)

	unproven := func(from netip.AddrPort, s service, now time.Time) {
		t.Helper()
		reply, ok := parseService(p.examine(serviceHere, from, &s, now))
		require.True(t, ok)
		require.Equal(t, uint8(serviceProve), reply.kind)
	}
	unproven(stranger(2), s, now)
	unproven(netip.AddrPortFrom(serviceHere.Addr(), 1), s, now)
	unproven(stranger(1), service{transaction: s.transaction + 1, cookie: s.cookie}, now)
	unproven(stranger(1), s, now.Add(2*cookieFor))
	other := bareService()
	other.secret[0]++
	require.NotNil(t, other.examine(serviceHere, stranger(1), &s, now))
	require.Len(t, p.told, 1)
	p.listening = false
	no, ok := parseService(p.examine(serviceHere, stranger(7), &service{}, now))
	require.True(t, ok)
	require.Equal(t, service{kind: serviceAnswer, status: serviceUnsupported, private: []byte{}}, no)
}

// A flood of asks takes questionsMax places. One that was answered gives way, and one that is old.
func TestServiceFlood(t *testing.T) {
	p := bareService()
	now := time.Unix(1e9, 0)
	for i := range 3 * questionsMax {
		require.Nil(t, p.proves(t, stranger(1+i), &service{transaction: 9}, now))
	}
	require.Len(t, p.asked, questionsMax)
	require.Len(t, p.told, questionsMax)
	first := p.order[0]
	first.reply = []byte("answered")
	again := service{transaction: 9}
	require.Equal(t, []byte("answered"), p.proves(t, first.from, &again, now))
	require.Nil(t, p.proves(t, stranger(5000), &service{transaction: 9}, now))
	require.Len(t, p.asked, questionsMax+1)
	require.Len(t, p.told, questionsMax)
	require.NotContains(t, p.told, first.key)
	require.Nil(t, p.proves(t, stranger(5001), &service{}, now.Add(questionsFor)))
	require.Len(t, p.asked, questionsMax+1)
	require.Nil(t, p.proves(t, stranger(5001), &service{}, now.Add(questionsFor+1)))
	require.Len(t, p.asked, questionsMax+2)
	require.Len(t, p.told, 1)
}

// A program that takes nothing is asked no more than its backlog.
func TestServiceBacklog(t *testing.T) {
	p := bareService()
	p.asked = make(chan *question, 2)
	for i := range 10 {
		require.Nil(t, p.proves(t, stranger(1+i), &service{}, time.Unix(1e9, 0)))
	}
	require.Len(t, p.asked, 2)
	require.Len(t, p.told, 2)
}

// forgetful is a carrier that loses some of what is sent.
type forgetful struct {
	serviceCarrier
	sent  atomic.Uint64
	loses uint64 // a bit for each datagram
}

func (f *forgetful) send(local, remote netip.AddrPort, b []byte) {
	if n := f.sent.Add(1) - 1; f.loses>>min(n, 63)&1 == 0 {
		f.serviceCarrier.send(local, remote, b)
	}
}

// Whichever datagram is lost, the question is heard once, and its answer. What an other one
// answers, or about another ask, is not.
func TestServiceLoss(t *testing.T) {
	program := newUDProgram(t)
	at := netip.MustParseAddrPort("127.0.0.1:0")
	for _, loses := range [][2]uint64{{}, {1, 0}, {2, 0}, {0, 1}, {0, 2}, {0, 7}, {5, 5}} {
		server := must(program.engine.newServicePort(at, rnic.BindOptions{}))(t)
		client := must(program.engine.newServicePort(at, rnic.BindOptions{}))(t)
		server.carrier = &forgetful{serviceCarrier: server.carrier, loses: loses[1]}
		client.carrier = &forgetful{serviceCarrier: client.carrier, loses: loses[0]}
		server.listen()
		done := make(chan struct{})
		go func() {
			q := <-server.asked
			client.receive(q.local, server.at, (&service{kind: serviceAnswer, number: 7}).put())
			client.receive(q.local, at, (&service{kind: serviceAnswer, number: 7,
				transaction: q.key.transaction}).put())
			q.answer(service{number: uint32(len(q.private)), private: []byte("yes")})
			close(done)
		}()
		s, err := client.ask(context.Background(), client.at, server.at,
			service{private: []byte("some")})
		require.NoError(t, err, loses)
		require.Equal(t, uint32(4), s.number)
		require.Equal(t, "yes", string(s.private))
		<-done
		require.Empty(t, server.asked)
		client.close()
		server.close()
	}
}

// rsockets have a socket of the port that they bind, too; another process does not matter. Such an
// id neither asks nor answers.
func TestServiceBesideASocket(t *testing.T) {
	program := newUDProgram(t)
	c := must(net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)}))(t)
	defer c.Close()
	own := c.LocalAddr().(*net.UDPAddr).AddrPort()
	own = netip.AddrPortFrom(own.Addr().Unmap(), own.Port())
	p := must(program.engine.newServicePort(own, rnic.BindOptions{}))(t)
	require.False(t, p.usable())
	require.Equal(t, own, p.at)
	p.close()
	at := netip.MustParseAddrPort("127.0.0.1:0")
	p = must(program.engine.newServicePort(at, rnic.BindOptions{}))(t)
	_, err := program.engine.newServicePort(p.at, rnic.BindOptions{})
	require.Error(t, err, "another id's")
	p.close()
}
