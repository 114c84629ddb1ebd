package main

import (
	"encoding/binary"
	"hash/crc32"
	"io"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// raw is a client that writes octets of its own making: start-up frames and FPDUs are put together
// here by hand from RFC 5044 and 5041, not by the packages under test.
type raw struct {
	t    testing.TB
	conn *net.TCPConn

	markers bool // the server asked for them
	begun   bool // an FPDU has been made
	stag    uint32
	to      uint64
}

// dialRaw connects; call it inside the namespace.
func dialRaw(t testing.TB) *raw {
	t.Helper()
	conn := must(net.DialTimeout("tcp4", serverAddr, patience))(t)
	require.NoError(t, conn.SetDeadline(time.Now().Add(patience)))
	return &raw{t: t, conn: conn.(*net.TCPConn)}
}

func (c *raw) close() { _ = c.conn.Close() }

func (c *raw) local() string { return c.conn.LocalAddr().String() }

// send writes; a server that has seen enough may close in the middle of it, so errors show in what
// is read afterwards.
func (c *raw) send(b []byte) { _, _ = c.conn.Write(b) }

const (
	keyRequest = "MPA ID Req Frame"
	keyReply   = "MPA ID Rep Frame"
	flagM      = 0x80
	flagC      = 0x40
	flagR      = 0x20
)

// startupFrame is a frame of RFC 5044 section 7.1.1.
func startupFrame(key string, flags, rev byte, private []byte) []byte {
	b := append([]byte(key), flags, rev)
	b = binary.BigEndian.AppendUint16(b, uint16(len(private)))
	return append(b, private...)
}

// putRequest is the private data of a request to put n octets.
func putRequest(n int) []byte {
	b := []byte{'R', 'N', 'C', 'P', 1, 1, 0, 0}
	return binary.BigEndian.AppendUint64(b, uint64(n))
}

// reply reads a start-up frame and returns its flags and private data.
func (c *raw) reply() (flags byte, private []byte) {
	c.t.Helper()
	head := make([]byte, 20)
	must(io.ReadFull(c.conn, head))(c.t)
	require.Equal(c.t, keyReply, string(head[:16]))
	private = make([]byte, binary.BigEndian.Uint16(head[18:]))
	must(io.ReadFull(c.conn, private))(c.t)
	return head[16], private
}

// start is a valid start-up for a transfer of n octets.
func (c *raw) start(n int) {
	c.t.Helper()
	c.send(startupFrame(keyRequest, flagC, 1, putRequest(n)))
	flags, grant := c.reply()
	require.Zero(c.t, flags&flagR, "refused: %q", grant)
	require.NotZero(c.t, flags&flagC)
	require.Len(c.t, grant, 28)
	require.Equal(c.t, uint64(n), binary.BigEndian.Uint64(grant[20:]))
	c.markers = flags&flagM != 0
	c.stag, c.to = binary.BigEndian.Uint32(grant[8:]), binary.BigEndian.Uint64(grant[12:])
}

// fpdu puts a ULPDU into an FPDU. Only the first two of a connection, small ones: they end before
// the second marker at octet 512 of the stream.
func (c *raw) fpdu(ulpdu []byte) []byte {
	var b []byte
	// RFC 5044 section 4.3: the first stands at the very beginning, with FPDUPTR 0
	if c.markers && !c.begun {
		b = make([]byte, 4)
	}
	b = binary.BigEndian.AppendUint16(b, uint16(len(ulpdu)))
	b = append(b, ulpdu...)
	for len(b)%4 != 0 { // PAD; the marker is four octets and does not matter
		b = append(b, 0)
	}
	c.begun = true
	require.Less(c.t, len(b)+4, 256)
	return binary.LittleEndian.AppendUint32(b, crc32.Checksum(b, crc32.MakeTable(crc32.Castagnoli)))
}

// write is the ULPDU of an RDMA Write.
func write(stag uint32, to uint64, payload []byte) []byte {
	b := []byte{0xC1, 0x40} // tagged, last, DV 1; RV 1, opcode 0
	b = binary.BigEndian.AppendUint32(b, stag)
	b = binary.BigEndian.AppendUint64(b, to)
	return append(b, payload...)
}

// sendULPDU is the ULPDU of a Send.
func sendULPDU(qn, msn, mo uint32, payload []byte) []byte {
	b := []byte{0x41, 0x43, 0, 0, 0, 0} // untagged, last, DV 1; RV 1, opcode 3; reserved for the ULP
	b = binary.BigEndian.AppendUint32(b, qn)
	b = binary.BigEndian.AppendUint32(b, msn)
	b = binary.BigEndian.AppendUint32(b, mo)
	return append(b, payload...)
}

// finishMessage closes a transfer.
func finishMessage(n int, digest [32]byte) []byte {
	b := []byte{'R', 'N', 'C', 'F', 0, 0, 0, 0}
	b = binary.BigEndian.AppendUint64(b, uint64(n))
	return append(b, digest[:]...)
}

// drained reads to the end of the connection and says what came.
func (c *raw) drained() []byte {
	b, _ := io.ReadAll(c.conn)
	return b
}
