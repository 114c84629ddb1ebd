package memif

import (
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/rnicd/rnicd/internal/unixsock"

	"github.com/rnicd/rnicd/hugepages"
)

// rawClient speaks the protocol message by message.
type rawClient struct {
	*control
	t testing.TB
}

func rawDial(t testing.TB, socket string) *rawClient {
	t.Helper()
	addr := must(address(socket))(t)
	conn := must(net.DialUnix(addr.Net, nil, addr))(t)
	t.Cleanup(func() { _ = conn.Close() })
	c := &rawClient{&control{conn: conn}, t}
	c.deadline(patience)
	require.Equal(t, msgHello, c.next().typ())
	return c
}

func (c *rawClient) next() *message {
	c.t.Helper()
	m := new(message)
	fd := must(c.recv(m))(c.t)
	require.Equal(c.t, -1, fd)
	return m
}

func (c *rawClient) tells(m *message, fd int) { require.NoError(c.t, c.send(m, fd)) }

// does sends a message and wants it acknowledged.
func (c *rawClient) does(m *message, fd int) {
	c.t.Helper()
	c.tells(m, fd)
	require.Equal(c.t, msgACK, c.next().typ())
}

// refused wants the end of the connection, with a reason.
func (c *rawClient) refused(reason string) {
	c.t.Helper()
	m := c.next()
	require.Equal(c.t, msgDisconnect, m.typ())
	require.Contains(c.t, m.reason(), reason)
	_, err := c.recv(m)
	require.True(c.t, errors.Is(err, io.EOF) || errors.Is(err, unix.ECONNRESET), "%v", err)
}

func (c *rawClient) init() { c.does(goodInit().message(), -1) }

func goodInit() *initiate { return &initiate{version: version, id: 0} }

// region is a memfd with a ring at its front, sealed or not.
func rawRegion(t testing.TB, size int64, seals int) (fd int, memory []byte) {
	t.Helper()
	fd = must(unix.MemfdCreate("test", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING))(t)
	t.Cleanup(func() { unix.Close(fd) })
	require.NoError(t, unix.Ftruncate(fd, size))
	if seals != 0 {
		must(unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, seals))(t)
	}
	memory = must(unix.Mmap(fd, 0, int(size), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED))(t)
	t.Cleanup(func() { require.NoError(t, unix.Munmap(memory)) })
	clearRing(memory, 0, 4)
	clearRing(memory, 1024, 4)
	return fd, memory
}

func rawEventfd(t testing.TB) int {
	t.Helper()
	fd := must(unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK))(t)
	t.Cleanup(func() { unix.Close(fd) })
	return fd
}

const rawBytes = 1 << 16

// layout is what a client brings: a region with a ring each way at its front, and eventfds for
// them. Its zero values are what is usual.
type layout struct {
	id          uint32
	unsealed    bool
	waker, bell int // of frames to the server, and from it
}

// attached goes as far as regions and rings.
func (c *rawClient) attached(l layout) (memory []byte, region int) {
	c.t.Helper()
	i := goodInit()
	i.id = l.id
	c.does(i.message(), -1)
	return c.lays(l)
}

func (c *rawClient) lays(l layout) (memory []byte, region int) {
	c.t.Helper()
	seals := unix.F_SEAL_SHRINK
	if l.unsealed {
		seals = 0
	}
	region, memory = rawRegion(c.t, rawBytes, seals)
	c.does((&addRegion{0, rawBytes}).message(), region)
	for _, fd := range []*int{&l.waker, &l.bell} {
		if *fd == 0 {
			*fd = rawEventfd(c.t)
		}
	}
	c.does((&addRing{c2s: true, log2: 4}).message(), l.waker)
	c.does((&addRing{offset: 1024, log2: 4}).message(), l.bell)
	return memory, region
}

func openFiles(t testing.TB) int {
	t.Helper()
	all := must(os.ReadDir("/proc/self/fd"))(t)
	return len(all)
}

// mappings are those of shared memory, of either end.
func mappings(t testing.TB) int {
	t.Helper()
	all := must(os.ReadFile("/proc/self/maps"))(t)
	return strings.Count(string(all), "/memfd:") + strings.Count(string(all), "hugepage")
}

// settled waits until no more than so many descriptors and mappings are left: a connection that
// has ended gives back its own on a goroutine that is not waited for.
func settled(t testing.TB, files, maps int) {
	t.Helper()
	for ctx := within(t); openFiles(t) > files || mappings(t) > maps; yield() {
		require.NoError(t, ctx.Err(), "descriptors: %d of %d, mappings: %d of %d", openFiles(t), files,
			mappings(t), maps)
	}
}

// Whatever a client does, when all is closed no descriptor and no mapping is left.
func TestNothingIsLeft(t *testing.T) {
	files, maps := openFiles(t), mappings(t)
	l := listen(t, ListenConfig{RegionBytesMax: 8 << 20})
	bound := must(l.Bind(BindConfig{}))(t)
	t.Run("clients", func(t *testing.T) {
		for range 5 {
			raw := rawDial(t, l.cfg.Socket)
			raw.attached(layout{})
			raw.connect()
			require.NoError(t, raw.conn.Close())
			raw = rawDial(t, l.cfg.Socket)
			raw.attached(layout{}) // and no further
			require.NoError(t, raw.conn.Close())
		}
	})
	require.NoError(t, bound.Close())
	require.NoError(t, l.Close())
	settled(t, files+3, maps) // of the runtime: epoll and its like
}

// What a message says is what was put into it, at the offsets of the protocol.
func TestMessages(t *testing.T) {
	h := hello{"DPDK 22.11", version, version, 255, 7, 6, 14}
	require.Equal(t, h, h.message().hello())
	i := initiate{version, 0x01020304, 2, secretOf("twenty-four octets here!"), "name"}
	require.Equal(t, i, i.message().initiate())
	r := addRegion{3, 1 << 40}
	require.Equal(t, r, r.message().addRegion())
	g := addRing{true, 3, 2, 0x01020304, 10}
	require.Equal(t, g, g.message().addRing())
	require.Equal(t, "if", interfaceMessage(msgConnect, "if").interfaceName())
	require.Equal(t, strings.Repeat("x", reasonLen-1),
		disconnectMessage(strings.Repeat("x", 200)).reason())

	for golden, m := range map[string]*message{
		"\x05\x00\x01\x00\x03\x00\x02\x00\x04\x03\x02\x01\x0a":             g.message(),
		"\x03\x00\x00\x02\x04\x03\x02\x01\x02twenty-four octets here!name": i.message(),
		"\x04\x00\x03\x00\x00\x00\x00\x00\x00\x01\x00\x00":                 r.message(),
		"\x02\x00DPDK 22.11" + strings.Repeat("\x00", 22) +
			"\x00\x02\x00\x02\xff\x00\x07\x00\x06\x00\x0e": h.message(),
	} {
		require.Equal(t, golden+strings.Repeat("\x00", msgLen-len(golden)), string(m[:]))
	}
}

// A server that does not keep to the protocol, or cannot do what is wanted, is told so, and the
// client goes on trying.
func TestMalformedServers(t *testing.T) {
	good := hello{"test", version, version, 1, 0, 0, 14}
	old, few, small, one := good, good, good, good
	old.maxVersion, old.minVersion = 1<<8, 1<<8
	few.maxC2S = 0
	small.maxLog2 = 0
	one.maxRegion = 0
	for name, c := range map[string]struct {
		first  *message
		then   *message // instead of the first ACK
		reason string
		cfg    Config
		zero   bool
	}{
		"no hello":    {first: newMessage(msgACK), reason: "ACK where HELLO is due"},
		"old version": {first: old.message(), reason: "version"},
		"few queues": {first: few.message(), reason: "2 queues are wanted, the server takes 1",
			cfg: Config{Queues: 2}},
		"small rings": {first: small.message(), reason: "too small", cfg: Config{BufferBytes: 128}},
		"one region":  {first: one.message(), reason: "Two regions", zero: true},
		"no ACK": {first: good.message(), then: newMessage(msgConnected),
			reason: "CONNECTED where ACK is due"},
		"disconnect":    {first: good.message(), then: disconnectMessage("go away"), reason: "go away"},
		"unknown":       {first: good.message(), then: newMessage(99), reason: "message 99"},
		"hello and bye": {first: disconnectMessage("full"), reason: "full"},
	} {
		t.Run(name, func(t *testing.T) {
			c.cfg.Socket = socketPath(t)
			addr := must(address(c.cfg.Socket))(t)
			l := must(unixsock.Listen(addr, 0o600))(t)
			defer l.Close()
			if c.zero {
				c.cfg.Arena = memfdArena(t, 1<<16)
			}
			p := must(Dial(c.cfg))(t)
			defer p.Close()
			for range 2 {
				conn := must(l.AcceptUnix())(t)
				s := &rawClient{&control{conn: conn}, t}
				s.deadline(patience)
				s.tells(c.first, -1)
				if c.then != nil {
					require.Equal(t, msgInit, s.next().typ())
					s.tells(c.then, -1)
				}
				if !strings.Contains(name, "bye") && name != "disconnect" {
					s.refused(c.reason)
				}
				require.NoError(t, conn.Close())
			}
			require.False(t, p.LinkUp())
			require.ErrorContains(t, p.Err(), c.reason)
		})
	}
}

// Config's, Open's and Bind's refusals name what is wrong.
func TestRefusedConfigs(t *testing.T) {
	heap := hugepages.Heap(4096)
	for want, cfg := range map[string]Config{
		"no socket":             {},
		"without zeros":         {Socket: "a\x00b"},
		"up to 107":             {Socket: strings.Repeat("x", 108)},
		"secret of 25":          {Socket: "x", Secret: strings.Repeat("x", 25)},
		"rings of 2^15":         {Socket: "x", RingLog2: 15},
		"buffers of 100":        {Socket: "x", BufferBytes: 100},
		"do not hold a frame":   {Socket: "x", BufferBytes: 64, RingLog2: 4},
		"MTU 67":                {Socket: "x", MTU: 67},
		"65 queues":             {Socket: "x", Queues: 65},
		"group address":         {Socket: "x", MAC: [6]byte{1}},
		"up to 31 octets":       {Socket: "x", Name: strings.Repeat("x", 32)},
		"and a memfd":           {Socket: "x", Arena: heap},
		"choose smaller rings":  {Socket: "x", RingLog2: 14, Queues: 64, MTU: 9000},
		"buffers of -64 octets": {Socket: "x", BufferBytes: -64},
	} {
		require.ErrorContains(t, errOf(Dial(cfg)), want)
	}
	l := listen(t, ListenConfig{})
	p := must(l.Bind(BindConfig{}))(t)
	_, err := l.Bind(BindConfig{})
	require.ErrorContains(t, err, "in use")
	_, err = l.Bind(BindConfig{ID: 1, Secret: strings.Repeat("x", 25)})
	require.ErrorContains(t, err, "secret of 25")
	_, err = Listen(ListenConfig{Socket: l.cfg.Socket})
	require.ErrorContains(t, err, "another server's")
	require.NoError(t, p.Close())
	again := must(l.Bind(BindConfig{}))(t)
	require.NoError(t, again.Close())
	_, err = again.Open(0, nil)
	require.ErrorIs(t, err, ErrClosed)

	info := must(os.Stat(l.cfg.Socket))(t)
	require.EqualValues(t, 0o600, info.Mode().Perm())
	group := listen(t, ListenConfig{Mode: 0o666})
	info = must(os.Stat(group.cfg.Socket))(t)
	require.EqualValues(t, 0o666, info.Mode().Perm(), "whatever the umask")
	require.NoError(t, l.Close())
	require.NoFileExists(t, l.cfg.Socket)

	file := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(file, []byte("precious"), 0o600))
	require.ErrorContains(t, errOf(Listen(ListenConfig{Socket: file})), "is no socket")
	left := must(os.ReadFile(file))(t)
	require.Equal(t, "precious", string(left))
}
