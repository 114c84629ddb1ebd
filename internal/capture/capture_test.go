package capture

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gopacket/gopacket/pcapgo"
	"github.com/rnicd/rnicd/hugepages"
	"github.com/rnicd/rnicd/internal/fault"
	"github.com/rnicd/rnicd/internal/skip"
	"github.com/rnicd/rnicd/mem"
	"github.com/rnicd/rnicd/pmd"
	"github.com/rnicd/rnicd/pmd/wire"
	"github.com/stretchr/testify/require"
)

// epoch is a time with nanoseconds that a float or a microsecond stamp would lose.
const epoch = int64(1_700_000_000_123_456_789)

type side struct {
	t    testing.TB
	q    pmd.Queue
	pool *mem.Pool
}

func newPool(t testing.TB, bufs int) *mem.Pool {
	cfg := mem.PoolConfig{Bufs: bufs, Stride: 2048}
	return must(mem.NewPool(hugepages.Heap(cfg.Bytes()), cfg))(t)
}

// newCapture is one that does what cfg says, newFiles likewise.
func newCapture(t testing.TB, out io.Writer, cfg Config) *Capture {
	t.Helper()
	return must(New(out, cfg))(t)
}

func newFiles(t testing.TB, cfg FilesConfig) *Files {
	t.Helper()
	return must(NewFiles(cfg))(t)
}

// opened is the queue of a port, over a pool of its own.
func opened(t testing.TB, p pmd.Port) side {
	t.Helper()
	s := side{t: t, pool: newPool(t, 64)}
	var err error
	s.q, err = p.Open(0, s.pool)
	require.NoError(t, err)
	return s
}

// newSides makes a link whose port 0 is captured, and opens both of its ports.
func newSides(t testing.TB, c *Capture, link wire.Config) (captured, peer side) {
	l := must(wire.New(link))(t)
	p := must(c.Port(l.Port(0)))(t)
	require.Equal(t, l.Port(0).MAC(), p.MAC())
	require.Equal(t, l.Port(0).Caps(), p.Caps())
	return opened(t, p), opened(t, l.Port(1))
}

func (s side) send(frames ...[]byte) int {
	var bufs []mem.Buf
	for _, f := range frames {
		b := s.pool.Alloc()
		s.pool.Desc(b).Len = uint32(len(f))
		copy(s.pool.Data(b), f)
		bufs = append(bufs, b)
	}
	n := s.q.Tx(bufs)
	s.pool.FreeN(bufs)
	return n
}

func (s side) recv() int {
	bufs := make([]mem.Buf, 64)
	n := s.q.Rx(bufs)
	s.pool.FreeN(bufs[:n])
	return n
}

func frame(tag byte, n int) []byte {
	f := make([]byte, n)
	copy(f, []byte{2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 0x88, 0xb5})
	for i := 14; i < n; i++ {
		f[i] = tag + byte(i)
	}
	return f
}

type packet struct {
	at   int64
	intf string
	len  int
	data []byte
}

// read reads a file back with gopacket.
func read(t testing.TB, file []byte) (packets []packet, r *pcapgo.NgReader) {
	r = must(pcapgo.NewNgReader(bytes.NewReader(file), pcapgo.DefaultNgReaderOptions))(t)
	for {
		data, ci, err := r.ReadPacketData()
		if errors.Is(err, io.EOF) {
			return packets, r
		}
		require.NoError(t, err)
		intf := must(r.Interface(ci.InterfaceIndex))(t)
		packets = append(packets, packet{ci.Timestamp.UnixNano(), intf.Name, ci.Length, data})
	}
}

func TestBothDirections(t *testing.T) {
	var file bytes.Buffer
	now := epoch
	c := newCapture(t, &file, Config{Clock: func() int64 { return now }})
	captured, peer := newSides(t, c, wire.Config{Names: []string{"left", "right"}})

	require.Equal(t, 2, captured.send(frame(1, 60), frame(2, 1514)))
	now++
	require.Equal(t, 1, peer.send(frame(3, 61)))
	require.Equal(t, 1, captured.recv())
	require.Equal(t, 0, captured.recv())
	require.Equal(t, 2, peer.recv())
	require.NoError(t, c.Close())
	require.NoError(t, c.Close(), "a second time")

	packets, r := read(t, file.Bytes())
	require.Equal(t, []packet{
		{epoch, "left", 60, frame(1, 60)},
		{epoch, "left", 1514, frame(2, 1514)},
		{epoch + 1, "left", 61, frame(3, 61)},
	}, packets)
	intf := interfaceOf(t, r)
	require.EqualValues(t, 3, intf.Statistics.PacketsReceived)
	require.EqualValues(t, 0, intf.Statistics.PacketsDropped)
	require.Equal(t, Counters{Written: 3}, c.Counters())
	require.Equal(t, []pcapgo.NgEpbFlag{pcapgo.NgEpbFlagDirectionOutbound,
		pcapgo.NgEpbFlagDirectionOutbound, pcapgo.NgEpbFlagDirectionInbound}, directions(t, file.Bytes()))
}

// interfaceOf is the first interface of a file.
func interfaceOf(t testing.TB, r *pcapgo.NgReader) pcapgo.NgInterface {
	t.Helper()
	return must(r.Interface(0))(t)
}

// directions are those of the frames of a file.
func directions(t testing.TB, file []byte) (all []pcapgo.NgEpbFlag) {
	r := must(pcapgo.NewNgReader(bytes.NewReader(file), pcapgo.DefaultNgReaderOptions))(t)
	for {
		_, _, opts, err := r.ReadPacketDataWithOptions()
		if errors.Is(err, io.EOF) {
			return all
		}
		require.NoError(t, err)
		all = append(all, opts.Flags.Direction)
	}
}

func TestFlushBeforeClose(t *testing.T) {
	var file bytes.Buffer
	c := newCapture(t, &file, Config{})
	captured, _ := newSides(t, c, wire.Config{})
	before := time.Now().UnixNano()
	captured.send(frame(1, 60))
	require.NoError(t, c.Flush())
	packets, _ := read(t, bytes.Clone(file.Bytes()))
	require.Len(t, packets, 1)
	require.GreaterOrEqual(t, packets[0].at, before)
	require.LessOrEqual(t, packets[0].at, time.Now().UnixNano())
	require.NoError(t, c.Close())
}

// A queue in virtual time is one still when it is captured.
func TestDeadlinePassesThrough(t *testing.T) {
	c := newCapture(t, io.Discard, Config{})
	l := must(wire.New(wire.Config{}))(t)
	bad, err := fault.NewPort(l.Port(0), fault.Spec{Tx: fault.Faults{Delay: 5}}, func() int64 {
		return 100
	})
	require.NoError(t, err)
	p := must(c.Port(bad))(t)
	s := opened(t, p)
	require.EqualValues(t, math.MaxInt64, pmd.Deadline(s.q))
	s.send(frame(1, 60))
	require.EqualValues(t, 105, pmd.Deadline(s.q))
	sound := must(l.Port(1).Open(0, newPool(t, 4)))(t)
	require.EqualValues(t, math.MaxInt64, pmd.Deadline(sound))
	require.NoError(t, c.Close())
}

// What the device did not take did not happen.
func TestUntakenFramesAreNotCaptured(t *testing.T) {
	var file bytes.Buffer
	c := newCapture(t, &file, Config{})
	captured, _ := newSides(t, c, wire.Config{Slots: 2})
	require.Equal(t, 2, captured.send(frame(1, 60), frame(2, 60), frame(3, 60)))
	require.NoError(t, c.Close())
	packets, _ := read(t, file.Bytes())
	require.Len(t, packets, 2)
}

func TestSnapLen(t *testing.T) {
	var file bytes.Buffer
	c := newCapture(t, &file, Config{SnapLen: 20})
	captured, _ := newSides(t, c, wire.Config{})
	captured.send(frame(1, 100), frame(2, 15))
	require.NoError(t, c.Close())
	packets, r := read(t, file.Bytes())
	require.Equal(t, 100, packets[0].len)
	require.Equal(t, frame(1, 100)[:20], packets[0].data)
	require.Equal(t, frame(2, 15), packets[1].data)
	intf := interfaceOf(t, r)
	require.EqualValues(t, 20, intf.SnapLength)
}

// blocked is a writer that does not return until it is let go.
type blocked struct {
	entered, release chan struct{}
	once             sync.Once
}

func (b *blocked) Write(p []byte) (int, error) {
	b.once.Do(func() { close(b.entered); <-b.release })
	return len(p), nil
}

// A writer that hangs costs frames in the file, counted, and not the Poller's time.
func TestSlowWriterDrops(t *testing.T) {
	out := &blocked{entered: make(chan struct{}), release: make(chan struct{})}
	c := newCapture(t, out, Config{Slots: 4})
	captured, peer := newSides(t, c, wire.Config{})
	// pcapgo buffers 4 KiB: fill that, until the writer goroutine hangs in out.
	for hung := false; !hung; runtime.Gosched() {
		captured.send(frame(1, 1514))
		peer.recv()
		select {
		case <-out.entered:
			hung = true
		default:
		}
	}
	for range 100 {
		require.Equal(t, 1, captured.send(frame(1, 60)))
		require.Equal(t, 1, peer.recv())
	}
	close(out.release)
	require.NoError(t, c.Close())
	n := c.Counters()
	require.GreaterOrEqual(t, n.Dropped, uint64(92), "of 100, at most two rings' worth found room")
	require.Equal(t, captured.q.Counters().TxFrames, n.Written+n.Dropped)
}

type broken struct{ room int }

var errDisk = errors.New("no space left on device")

func (b *broken) Write(p []byte) (int, error) {
	if len(p) > b.room {
		return 0, errDisk
	}
	b.room -= len(p)
	return len(p), nil
}

func TestBrokenFile(t *testing.T) {
	c := newCapture(t, &broken{room: 5000}, Config{})
	captured, peer := newSides(t, c, wire.Config{})
	for range 50 {
		require.Equal(t, 1, captured.send(frame(1, 1514)))
		require.Equal(t, 1, peer.recv())
	}
	err := c.Close()
	require.ErrorIs(t, err, errDisk)
	require.EqualError(t, err, "capture: no space left on device: the file is incomplete")
	n := c.Counters()
	require.NotZero(t, n.Failed)
	require.EqualValues(t, 50, n.Written+n.Failed)
}

// Two ports, each with its goroutine, into one file.
func TestTwoPortsAtOnce(t *testing.T) {
	const each = 3000
	var file bytes.Buffer
	c := newCapture(t, &file, Config{Slots: 1 << 13, SnapLen: 64})
	l := must(wire.New(wire.Config{Slots: 64}))(t)
	var sides [2]side
	for i := range sides { // both before either sends: what is sent to a port that is not open is lost
		p := must(c.Port(l.Port(i)))(t)
		sides[i] = opened(t, p)
	}
	var wg sync.WaitGroup
	for _, s := range sides {
		wg.Go(func() {
			f := frame(0, 60)
			for sent, got := 0, 0; sent < each || got < each; runtime.Gosched() {
				if sent < each {
					binary.BigEndian.PutUint32(f[14:], uint32(sent))
					sent += s.send(f)
				}
				got += s.recv()
			}
		})
	}
	wg.Wait()
	require.NoError(t, c.Close())
	packets, r := read(t, file.Bytes())
	require.Equal(t, 2, r.NInterfaces())
	require.Len(t, packets, 4*each)
	count := map[string]int{}
	last := map[string]int64{}
	for _, p := range packets {
		count[p.intf]++
		require.GreaterOrEqual(t, p.at, last[p.intf])
		last[p.intf] = p.at
	}
	require.Equal(t, map[string]int{"wire0": 2 * each, "wire1": 2 * each}, count)
}

func TestIncompleteChecksumIsCompletedInTheFile(t *testing.T) {
	var file bytes.Buffer
	c := newCapture(t, &file, Config{})
	captured, peer := newSides(t, c, wire.Config{ChecksumOffload: true})
	plain := frame(1, 100)
	plain[50], plain[51] = 0x12, 0x34
	want := bytes.Clone(plain)
	require.True(t, pmd.CompleteChecksum(want, 34, 16))
	for _, s := range []side{captured, peer} { // once sent, once received
		b := s.pool.Alloc()
		d := s.pool.Desc(b)
		d.Len, d.Flags, d.CsumStart, d.CsumOffset = 100, mem.TxChecksum, 34, 16
		copy(s.pool.Data(b), plain)
		require.Equal(t, 1, s.q.Tx([]mem.Buf{b}))
		require.Equal(t, plain, s.pool.Data(b), "only the file's copy")
		s.pool.Free(b)
	}
	require.Equal(t, 1, captured.recv())
	require.NoError(t, c.Close())
	packets, _ := read(t, file.Bytes())
	require.Len(t, packets, 2)
	require.Equal(t, want, packets[0].data)
	require.Equal(t, want, packets[1].data)
}

func TestCreateAndTshark(t *testing.T) {
	path := filepath.Join(t.TempDir(), "out.pcapng")
	c := must(Create(path, Config{Clock: func() int64 { return epoch }}))(t)
	captured, _ := newSides(t, c, wire.Config{Names: []string{"rnic0", "peer"}})
	captured.send(frame(1, 60), frame(2, 1513))
	require.NoError(t, c.Close())
	info := must(os.Stat(path))(t)
	require.Equal(t, os.FileMode(0o600), info.Mode())

	tshark, err := exec.LookPath("tshark")
	if err != nil {
		skip.Missing(t, "needs tshark for the rest")
	}
	out, err := exec.Command(tshark, "-r", path, "-T", "fields", "-e", "frame.interface_name", "-e",
		"frame.len", "-e", "frame.time_epoch", "-e", "eth.src").Output()
	require.NoError(t, err)
	require.Equal(
		t,
		"rnic0\t60\t1700000000.123456789\t02:00:00:00:00:01\nrnic0\t1513\t1700000000.123456789\t02:00:00:00:00:01\n", string(out))

	capinfos, err := exec.LookPath("capinfos")
	if err != nil {
		skip.Missing(t, "needs capinfos for the rest")
	}
	text, err := exec.Command(capinfos, path).CombinedOutput()
	require.NoError(t, err, string(text))
	require.Contains(t, string(text), "Name = rnic0")
	require.Contains(t, string(text), "Number of stat entries = 1")
	require.True(t, strings.Contains(string(text), "nanoseconds"))
}

func TestErrors(t *testing.T) {
	_, err := New(nil, Config{Slots: 3})
	require.EqualError(t, err, "capture: 3 slots; must be a power of two up to 1048576")
	_, err = New(nil, Config{SnapLen: -1})
	require.EqualError(t, err, "capture: snap length -1; must be positive, or 0 for whole frames")
	_, err = Create(filepath.Join(t.TempDir(), "no", "such"), Config{})
	require.ErrorIs(t, err, os.ErrNotExist)
	require.ErrorContains(t, err, "choose a file that can be written")

	c := newCapture(t, io.Discard, Config{Slots: 1 << 20})
	l := must(wire.New(wire.Config{MTU: 9000}))(t)
	p, err := c.Port(l.Port(0))
	require.NoError(t, err)
	_, err = p.Open(1, newPool(t, 1))
	require.ErrorContains(t, err, "wire: wire0: no queue 1")
	cfg := mem.PoolConfig{Bufs: 1, Stride: 16384}
	pool, err := mem.NewPool(hugepages.Heap(cfg.Bytes()), cfg)
	require.NoError(t, err)
	_, err = p.Open(0, pool)
	require.ErrorContains(t, err,
		"capture: wire0: 1048576 slots of 9022 octets are more than 4 GiB; use fewer slots or a "+
			"snap length")
	require.NoError(t, c.Close())
	require.ErrorContains(t, errOf(c.Port(l.Port(0))), "closed before this port was added")
}

func TestNoAllocation(t *testing.T) {
	// The writer goroutine would count as well: hold it off.
	c := newCapture(t, io.Discard, Config{Slots: 64})
	captured, peer := newSides(t, c, wire.Config{})
	bufs, in := make([]mem.Buf, 16), make([]mem.Buf, 16)
	captured.pool.AllocN(bufs)
	for _, b := range bufs {
		captured.pool.Desc(b).Len = 1514
	}
	c.mu.Lock()
	allocs := testing.AllocsPerRun(100, func() {
		captured.q.Tx(bufs)
		peer.pool.FreeN(in[:peer.q.Rx(in)])
		captured.q.Rx(in)
	})
	c.mu.Unlock()
	require.Zero(t, allocs)
	require.NoError(t, c.Close())
	require.NotZero(t, c.Counters().Dropped)
}

// Direct: what a queue has sent or received is in the file when its call returns, and the file is
// whole without a frame, too.
func TestDirect(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.pcapng")
	c := must(Create(path, Config{Direct: true, Slots: 64}))(t)
	near, peer := newSides(t, c, wire.Config{})
	inFile := func() []packet {
		text := must(os.ReadFile(path))(t)
		packets, _ := read(t, text)
		return packets
	}
	require.Empty(t, inFile())
	require.Equal(t, 2, near.send(frame(1, 60), frame(2, 1500)))
	require.Len(t, inFile(), 2)
	require.Equal(t, 2, peer.recv())
	require.Equal(t, 1, peer.send(frame(3, 60)))
	require.Equal(t, 1, near.recv())
	require.Equal(t, frame(3, 60), inFile()[2].data)
	require.NoError(t, c.Close())
	require.Len(t, inFile(), 3)
}

// must is v, if there was no error.
func must[V any](v V, err error) func(require.TestingT) V {
	return func(t require.TestingT) V {
		require.NoError(t, err)
		return v
	}
}

// errOf is the error of a call whose other result does not matter.
func errOf[V any](_ V, err error) error { return err }
