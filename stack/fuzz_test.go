package stack

import (
	"bytes"
	"encoding/binary"
	"testing"

	"github.com/rnicd/rnicd/internal/inet"
	"github.com/rnicd/rnicd/tcp"
)

// FuzzFrames gives a Poller with a listener and an open connection any two frames. Nothing may
// panic, and in the end every Buf is back. With fix the checksums are made right, so that what is
// after them is reached.
func FuzzFrames(f *testing.F) {
	l := newLab(f, nil)
	for _, flags := range []tcp.Flags{tcp.SYN, tcp.ACK, tcp.FIN | tcp.ACK, tcp.RST} {
		tr := stranger(flags, 2000)
		f.Add(between(l.a, l.b, tr, []byte("octets")), between(l.a, l.b, tr, nil), true)
	}
	f.Fuzz(func(t *testing.T, first, second []byte, fix bool) {
		l := newLab(t, nil)
		l.listen(l.b, 2000, 4)
		u, v := l.open()
		u.unchecked, v.unchecked = true, true
		for _, frame := range [][]byte{first, second} {
			if len(frame) < 14 || len(frame) > 1514 {
				continue
			}
			frame = bytes.Clone(frame)
			if fix {
				mend(l, frame, v.conn, u.conn.tcp.ISS())
			}
			l.answers(l.a, l.b, frame)
			l.pass(50 * ms)
		}
		l.stop()
	})
}

// mend addresses a frame to host b and makes its checksums right; an odd source port becomes that
// of the connection.
func mend(l *lab, f []byte, c *Conn, irs tcp.Seq) {
	copy(f, l.b.mac[:])
	copy(f[6:], l.a.mac[:])
	if len(f) < tcpAt+20 || f[12] != 8 || f[13] != 0 {
		return
	}
	ip := f[14:]
	ip[0] = 0x45
	ip[2], ip[3] = byte(len(ip)>>8), byte(len(ip))
	ip[6], ip[7] = 0, 0
	ip[9] = []byte{6, 6, 6, 1}[ip[9]%4]
	copy(ip[12:], []byte{10, 0, 0, 1, 10, 0, 0, 2})
	ip[10], ip[11] = 0, 0
	binary.BigEndian.PutUint16(ip[10:], inet.Checksum(ip[:20], 0))
	b := ip[20:]
	if ip[9] == 1 {
		b[2], b[3] = 0, 0
		binary.BigEndian.PutUint16(b[2:], inet.Checksum(b, 0))
		return
	}
	if b[1]&1 == 1 {
		binary.BigEndian.PutUint16(b, c.tcp.ID().RemotePort)
		binary.BigEndian.PutUint16(b[2:], c.tcp.ID().LocalPort)
		b[4], b[5] = byte(irs>>24), byte(irs>>16) // near the window
	}
	b[16], b[17] = 0, 0
	binary.BigEndian.PutUint16(b[16:],
		inet.Checksum(b, naivePseudo(c.tcp.ID().Remote, c.tcp.ID().Local, len(b))))
}
