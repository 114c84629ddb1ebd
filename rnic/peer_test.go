package rnic

import (
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rnicd/rnicd/mpa"
	"github.com/rnicd/rnicd/rdmap"
	"github.com/rnicd/rnicd/stack"
)

// peerStream is a TCP connection on which a test writes and reads octets of its own making.
type peerStream interface {
	write(b []byte) // a segment of its own over a Poller
	octets() []byte // all that came so far
	ended() error   // io.EOF after a FIN, stack.ErrReset after a RST, nil while the other side is open
	closeSend()
	reset()
}

// peer is a connection's other end when the test writes what it says, which need not obey any rule.
type peer struct {
	peerStream
	d  *driver
	tx mpa.Sender // of what it injects
	at int        // octets of the stream it was sent that were expected, and came
}

// start has what p injects framed so.
func (p *peer) start(mode mpa.Mode) { p.tx.Init(mode) }

// frame is FPDUs as they come next in p's stream. Who calls it must send them.
func (p *peer) frame(fpdus ...fpdu) []byte {
	var stream []byte
	for _, f := range fpdus {
		stream = append(stream, p.frameULPDU(f.ulpdu())...)
	}
	return stream
}

func (p *peer) frameULPDU(ulpdu []byte) []byte {
	b := make([]byte, p.tx.Size(len(ulpdu)))
	p.tx.Put(b, [][]byte{ulpdu})
	return b
}

// inject sends FPDUs, all at once: in one segment, if that holds them.
func (p *peer) inject(fpdus ...fpdu) { p.write(p.frame(fpdus...)) }

// expectFrame waits for a start-up frame.
func (p *peer) expectFrame(kind mpa.FrameKind) mpa.Frame {
	p.d.t.Helper()
	var f mpa.Frame
	n := 0
	p.expect(fmt.Sprintf("a start-up frame of kind %v", kind), func() (bool, error) {
		var err error
		f, n, err = mpa.ParseFrame(p.octets()[p.at:], kind, mpa.PrivateDataMax)
		return n > 0, err
	})
	p.at += n
	return f
}

// nextFPDU waits for what comes next, which is an FPDU with CRC and without markers.
func (p *peer) nextFPDU() fpdu {
	p.d.t.Helper()
	return p.awaitFPDU("an FPDU")
}

func (p *peer) awaitFPDU(what string) fpdu {
	p.d.t.Helper()
	var ulpdu []byte
	size := 0
	p.expect(what, func() (bool, error) {
		var err error
		ulpdu, size, err = cutFPDU(p.octets()[p.at:])
		return size > 0, err
	})
	f, ok := parseFPDU(ulpdu)
	if !ok {
		p.d.t.Fatalf("want %s; an FPDU too short for DDP came: %x", what, ulpdu)
	}
	p.at += size
	return f
}

// expectFPDU waits for what comes next, which is this FPDU.
func (p *peer) expectFPDU(want fpdu) {
	p.d.t.Helper()
	if got := p.awaitFPDU(want.String()); !got.equal(want) {
		p.d.t.Fatalf("want\n\t%v\nhave\n\t%v", want, got)
	}
}

// expectTerminate waits for what comes next, which is this Terminate.
func (p *peer) expectTerminate(want rdmap.Terminate) {
	p.d.t.Helper()
	if got := p.awaitTerminate(want.String()); got != want {
		p.d.t.Fatalf("want a Terminate,\n\t%v\n\t%+v\nhave\n\t%v\n\t%+v", &want, want, &got, got)
	}
}

// expectTerminateFor waits for what comes next, which is a Terminate of this cause. It returns it.
func (p *peer) expectTerminateFor(cause rdmap.Cause) rdmap.Terminate {
	p.d.t.Helper()
	got := p.awaitTerminate(cause.String())
	if got.Cause != cause {
		p.d.t.Fatalf("want a Terminate for\n\t%v\nhave\n\t%v", cause, &got)
	}
	return got
}

func (p *peer) awaitTerminate(what string) rdmap.Terminate {
	p.d.t.Helper()
	f := p.awaitFPDU("a Terminate for " + what)
	term, ok := rdmap.ParseTerminate(f.payload)
	if !ok || f.Header != terminateFPDU("").Header {
		p.d.t.Fatalf("want a Terminate for %s, have\n\t%v", what, f)
	}
	return term
}

// expectNothing looks whether octets have come that no expectation was about.
func (p *peer) expectNothing() {
	p.d.t.Helper()
	if len(p.octets()) > p.at {
		p.d.t.Fatalf("want no octets: %s", p.state())
	}
}

// expectFIN waits for a FIN, before which no octets come that no expectation was about.
func (p *peer) expectFIN() {
	p.d.t.Helper()
	p.expectEnd(io.EOF, "a FIN")
	p.expectNothing()
}

// skipToFIN waits for a FIN, and takes all octets before it as expected.
func (p *peer) skipToFIN() {
	p.d.t.Helper()
	p.expectEnd(io.EOF, "a FIN")
	p.at = len(p.octets())
}

// expectReset waits for a RST. What came before it does not matter.
func (p *peer) expectReset() {
	p.d.t.Helper()
	p.expectEnd(stack.ErrReset, "a RST")
}

func (p *peer) expectEnd(want error, what string) {
	p.d.t.Helper()
	if err := p.awaitEnd(what); !errors.Is(err, want) {
		p.d.t.Fatalf("want %s, have %v; %s", what, err, p.state())
	}
}

// untilEnded waits for a FIN or a RST.
func (p *peer) untilEnded() error {
	p.d.t.Helper()
	return p.awaitEnd("a FIN or a RST")
}

func (p *peer) awaitEnd(what string) error {
	p.d.t.Helper()
	p.d.expect(what, func() bool { return p.ended() != nil }, p.state)
	return p.ended()
}

// expect waits for octets in which came finds what it looks for. It fails as soon as they cannot
// come any more.
func (p *peer) expect(what string, came func() (bool, error)) {
	p.d.t.Helper()
	p.d.expect(what, func() bool {
		end := p.ended() // before the octets, which may all be there then
		ok, err := came()
		if err == nil && !ok {
			err = end
		}
		if err != nil {
			p.d.t.Fatalf("want %s: %v; %s", what, err, p.state())
		}
		return ok
	}, p.state)
}

// state is what a test is told of p when something did not come.
func (p *peer) state() string {
	text := "no octets came"
	if rest := p.octets()[p.at:]; len(rest) > 0 {
		text = "what came:\n\t" + showStream(rest)
	}
	if end := p.ended(); end != nil {
		text += fmt.Sprintf("\n\tthen the end: %v", end)
	}
	return text
}

// play runs a transcript from p's side, in hex: "> octets" it writes, "< octets" it is sent, from
// the connection's first octet. Nothing more has come when it writes, nor after the last line, if
// that is not what brings it.
func (p *peer) play(lines ...string) {
	p.d.t.Helper()
	p.at = 0
	for i, line := range lines {
		octets := unhex(p.d.t, line[2:])
		if line[0] == '>' {
			if len(p.octets()) > p.at {
				p.d.t.Fatalf("line %d, %s: octets before it; %s", i, line, p.state())
			}
			p.write(octets)
			continue
		}
		p.expect(fmt.Sprintf("line %d, %s", i, line), func() (bool, error) {
			return len(p.octets()) >= p.at+len(octets), nil
		})
		require.Equal(p.d.t, line[2:], spaced(p.octets()[p.at:p.at+len(octets)], line[2:]), "line %d", i)
		p.at += len(octets)
	}
	if lines[len(lines)-1][0] == '<' {
		p.expectNothing()
	}
}

const (
	hexReq = "4d504120494420526571204672616d65"
	hexRep = "4d504120494420526570204672616d65"
	hexRtr = "4d504120494420527472204672616d65"
)

func unhex(t testing.TB, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(strings.ReplaceAll(s, " ", ""))
	require.NoError(t, err)
	return b
}

// spaced writes octets in hex with the blanks where like has them.
func spaced(b []byte, like string) string {
	digits := hex.EncodeToString(b)
	var out strings.Builder
	for _, c := range like {
		if c == ' ' {
			out.WriteByte(' ')
			continue
		}
		out.WriteByte(digits[0])
		digits = digits[1:]
	}
	return out.String()
}

// withCRC appends the CRC to an FPDU in hex.
func withCRC(t testing.TB, s string) string {
	c := crc32c(unhex(t, s))
	return fmt.Sprintf("%s %02x%02x%02x%02x", s, byte(c), byte(c>>8), byte(c>>16), byte(c>>24))
}
