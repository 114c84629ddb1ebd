package rnic

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/rnicd/rnicd/rdmap"
)

const (
	lostPages = 32
	lostBytes = lostPages * 4096
	lostFrom  = 8 * 4096 // the first octet that goes
)

// losses are ways in which memory goes that was registered, from lostFrom on.
var losses = map[string]func(t *testing.T, fd int, b []byte){
	"ftruncate": func(t *testing.T, fd int, _ []byte) {
		require.NoError(t, unix.Ftruncate(fd, lostFrom))
	},
	"mprotect": func(t *testing.T, _ int, b []byte) {
		require.NoError(t, unix.Mprotect(b[lostFrom:], unix.PROT_NONE))
	},
}

// lost is a region of e's over a memfd, and what takes its memory away.
func (e *end) lost(t *testing.T, how string) (m *MemoryRegion, lose func()) {
	t.Helper()
	fd := must(unix.MemfdCreate("lost", unix.MFD_CLOEXEC))
	t.Cleanup(func() { require.NoError(t, unix.Close(fd)) })
	require.NoError(t, unix.Ftruncate(fd, lostBytes))
	b := must(unix.Mmap(fd, 0, lostBytes, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED))
	t.Cleanup(func() { require.NoError(t, unix.Munmap(b)) })
	copy(b, randomBytes(uint64(e.qp.Number()), lostBytes))
	m = must(e.pd.Register(b, RemoteWrite|RemoteRead|LocalWrite))
	t.Cleanup(m.Deregister)
	return m, func() { losses[how](t, fd, b) }
}

// writeTo is a Write of n octets of e's source to off of m.
func (e *end) writeTo(m *MemoryRegion, off, n int) WorkRequest {
	return WorkRequest{Op: OpWrite, Local: e.source.Slice(0, n), RemoteSTag: m.STag(),
		RemoteOffset: m.Base() + uint64(off), Signaled: true}
}

// fromLost is a request with n octets of m at off, of this host's memory.
func fromLost(op Opcode, m *MemoryRegion, off, n int, s *end) WorkRequest {
	return WorkRequest{
		Op: op, Local: m.Slice(off, n), RemoteSTag: s.region.STag(), RemoteOffset: s.region.Base(),
		Signaled: true}
}

// usesOfLost are all ways to touch registered memory, of n octets at off: c's connection ends, with
// this status at c. The region is the server's, or c's own.
var usesOfLost = []struct {
	name   string
	own    bool
	word   bool // of 8 octets
	use    func(s, c *end, m *MemoryRegion, off, n int)
	status Status // of c's request
	recv   Status // of s's receive buffer, if there is one
	cause  rdmap.Cause
}{
	{name: "peer's Write", use: func(s, c *end, m *MemoryRegion, off, n int) {
		c.post(c.writeTo(m, off, n))
	}, status: Success, cause: 0x1000},
	{name: "peer's Send", use: func(s, c *end, m *MemoryRegion, off, n int) {
		s.postRecv(WorkRequest{ID: 5, Local: m.Slice(off, n)})
		c.post(WorkRequest{Op: OpSend, Local: c.source.Slice(0, n), Signaled: true})
	}, status: Success, recv: LocalProtection, cause: 0x1000},
	{name: "peer's Read", use: func(s, c *end, m *MemoryRegion, off, n int) {
		wr := c.readFrom(m, 0, 0, n)
		wr.RemoteOffset += uint64(off)
		c.post(wr)
	}, status: RemoteOperation, cause: rdmap.CauseStream},
	{name: "peer's atomic", word: true, use: func(s, c *end, m *MemoryRegion, off, _ int) {
		c.post(fetchAdd(c.wordOf(m, 0, off), 1))
	}, status: RemoteOperation, cause: rdmap.CauseOperation},
	{name: "Write", own: true, use: func(s, c *end, m *MemoryRegion, off, n int) {
		c.post(fromLost(OpWrite, m, off, n, s))
	}, status: LocalProtection},
	{name: "Send", own: true, use: func(s, c *end, m *MemoryRegion, off, n int) {
		s.postRecv(s.recvAt(5, 0, n))
		c.post(fromLost(OpSend, m, off, n, s))
	}, status: LocalProtection, recv: Flushed},
	{name: "Read", own: true, use: func(s, c *end, m *MemoryRegion, off, n int) {
		wr := fromLost(OpRead, m, off, n, s)
		readable := must(s.pd.Register(randomBytes(9, n), RemoteRead))
		wr.RemoteSTag, wr.RemoteOffset = readable.STag(), readable.Base()
		c.post(wr)
	}, status: LocalProtection, cause: 0x1000},
	{name: "word before", own: true, word: true, use: func(s, c *end, m *MemoryRegion, off, _ int) {
		words := must(s.pd.Register(randomBytes(9, 64), RemoteRead|RemoteWrite))
		wr := fetchAdd(c.wordOf(words, 0, 0), 1)
		wr.Local = m.Slice(off, 8)
		c.post(wr)
	}, status: LocalProtection, cause: rdmap.CauseLocal},
}

// Registered memory that goes away costs the connections that use it, and nothing else: neither the
// process nor the connection beside it. What was placed or read before it is there. In one segment,
// and in the middle of a long message.
func TestUnreachableMemory(t *testing.T) {
	for how := range losses {
		for _, u := range usesOfLost {
			t.Run(how+"/"+u.name, func(t *testing.T) {
				over(t, all, rigConfig{}, func(t *testing.T, r *rig) {
					beside := r.newBystander(opts{})
					for _, at := range [][2]int{{lostFrom, 8}, {lostFrom + 100, 1000}, {0, 60000}} {
						if u.word && at[1] != 8 {
							continue
						}
						s, c := r.connect(serving(4), asking(4))
						owner := s
						if u.own {
							owner = c
						}
						m, lose := owner.lost(t, how)
						before := bytes.Clone(m.Bytes()[:lostFrom])
						lose()
						u.use(s, c, m, at[0], at[1])
						got := c.await(1)[0].Status
						if got == Flushed && at[1] > 10000 && u.status == Success {
							got = Success // the peer's Terminate came before all was cut
						}
						require.Equal(t, u.status, got, "%v", at)
						if u.recv != 0 {
							require.Equal(t, u.recv, s.await(1)[0].Status)
						}
						c.qp.Disconnect() // the Write's end has nothing more to say
						awaitClosed(s, c)
						r.causeIs(u.own, u.cause, s, c)
						if at[0] > 0 {
							require.Equal(t, before, m.Bytes()[:lostFrom])
						}
						beside.goesOn()
					}
				})
			})
		}
	}
}

// causeIs looks for the Terminate that the end whose memory it was has sent.
func (r *rig) causeIs(own bool, cause rdmap.Cause, s, c *end) {
	r.t.Helper()
	owner, other := s, c
	if own {
		owner, other = c, s
	}
	require.ErrorContains(r.t, owner.qp.Err(), "unmapped, protected, or its file cut shorter")
	if cause == 0 && own {
		return // reset
	}
	other.expectToldOf(cause)
}
