package tap

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/netip"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rnicd/rnicd/hugepages"
	"github.com/rnicd/rnicd/internal/netlab"
	"github.com/rnicd/rnicd/mem"
	"github.com/rnicd/rnicd/pmd"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// cable joins two kernels, each in its network namespace, by two TAP devices; it passes on
// every frame:
//
//	client's TCP - tap - [ Rx, Tx ] - tap - server's TCP
type cable struct {
	client   net.Conn
	server   net.Conn
	pool     *mem.Pool
	ports    [2]*Port
	ends     [2]*queue
	longest  int
	unsummed uint64 // frames without a checksum
	bad      uint64 // frames whose checksum could not be completed, of the first few
	stop     atomic.Bool
	done     chan struct{}
}

// inNetns runs f on a thread in a network namespace of its own, which lasts as long as what f
// opens.
func inNetns(t testing.TB, f func() error) {
	var err error
	netlab.New(t).Do(func() { err = f() })
	require.NoError(t, err)
}

func newCable(t testing.TB, offload, v6 bool) *cable {
	enterNetns(t)
	addrs := [2]string{"10.78.0.1", "10.78.0.2"}
	bits := 24
	if v6 {
		addrs, bits = [2]string{"fd78::1", "fd78::2"}, 64
	}
	at := func(i int) netip.Prefix { return netip.PrefixFrom(netip.MustParseAddr(addrs[i]), bits) }
	addr := net.JoinHostPort(addrs[1], "4791")
	c := &cable{done: make(chan struct{})}
	cfg := mem.PoolConfig{Bufs: 256, Stride: 2048}
	c.pool = must(mem.NewPool(hugepages.Heap(cfg.Bytes()), cfg))(t)

	ports := &c.ports
	var listener net.Listener
	inNetns(t, func() (err error) {
		ports[1], err = New(Config{Name: "rserver", Addr: at(1), NoOffload: !offload})
		if err == nil {
			listener, err = net.Listen("tcp", addr)
		}
		return err
	})
	ports[0] = must(New(Config{Name: "rclient", Addr: at(0), NoOffload: !offload}))(t)
	for i, p := range ports {
		require.Equal(t, offload, p.Caps().TxChecksum && p.Caps().RxChecksum && p.Caps().TxSegment)
		q := must(p.Open(0, c.pool))(t)
		c.ends[i] = q.(*queue)
	}
	go c.run()
	t.Cleanup(func() {
		c.stop.Store(true)
		<-c.done
		require.NoError(t, c.close())
	})

	dialer := net.Dialer{Timeout: 5 * time.Second}
	c.client = must(dialer.Dial("tcp", addr))(t)
	c.server = must(listener.Accept())(t)
	t.Cleanup(func() {
		_ = c.client.Close()
		_ = c.server.Close()
		_ = listener.Close()
	})
	deadline := time.Now().Add(30 * time.Second)
	require.NoError(t, c.client.SetDeadline(deadline))
	require.NoError(t, c.server.SetDeadline(deadline))
	return c
}

func (c *cable) close() error { return errors.Join(c.ports[0].Close(), c.ports[1].Close()) }

// run passes frames on until stop. What was left out on the way in is asked for on the way out.
func (c *cable) run() {
	defer close(c.done)
	bufs := make([]mem.Buf, 32)
	for !c.stop.Load() {
		moved := 0
		for i := range c.ends {
			n := c.ends[i].Rx(bufs)
			for _, b := range bufs[:n] {
				d := c.pool.Desc(b)
				if d.Flags&mem.RxChecksumGood != 0 {
					d.Flags = mem.TxChecksum
					if c.unsummed++; c.unsummed < 2000 && !verified(c.pool.Data(b), d) {
						c.bad++
					}
				}
				c.longest = max(c.longest, int(d.Len))
			}
			c.ends[1-i].Tx(bufs[:n])
			c.pool.FreeN(bufs[:n])
			moved += n
		}
		if moved == 0 {
			runtime.Gosched()
		}
	}
}

// verified completes the checksum of a copy and says whether it, and IPv4's, are right.
func verified(frame []byte, d *mem.Desc) bool {
	f := append([]byte(nil), frame...)
	if !pmd.CompleteChecksum(f, d.CsumStart, d.CsumOffset) {
		return false
	}
	h, ok := parseHeaders(f, int(d.CsumStart), int(d.CsumOffset))
	if !ok || h.udp {
		return ok
	}
	addrs := f[h.l3+8 : h.l3+40]
	if !h.v6 {
		addrs = f[h.l3+12 : h.l3+20]
		ok = sum16(f[h.l3:h.l4], 0) == 0xffff
	}
	return ok && sum16(f[h.l4:], uint32(sum16(addrs, unix.IPPROTO_TCP+uint32(len(f)-h.l4)))) == 0xffff
}

var cables = []struct {
	name        string
	offload, v6 bool
}{{"plain", false, false}, {"offload", true, false}, {"offload, IPv6", true, true}}

// Two kernels talk TCP through Rx and Tx; what arrives is what was sent, and the offloads are
// really in use.
func TestCableCarriesTCP(t *testing.T) {
	for _, k := range cables {
		t.Run(k.name, func(t *testing.T) {
			c := newCable(t, k.offload, k.v6)
			payload := make([]byte, 8<<20)
			_, _ = rand.NewChaCha8([32]byte{1}).Read(payload)
			sent := make(chan error, 1)
			go func() {
				_, err := c.client.Write(payload)
				sent <- err
			}()
			sum := sha256.New()
			must(io.CopyN(sum, c.server, int64(len(payload))))(t)
			require.NoError(t, <-sent)
			want := sha256.Sum256(payload)
			require.Equal(t, want[:], sum.Sum(nil))

			c.stop.Store(true)
			<-c.done
			require.Equal(t, k.offload, c.unsummed > 0, "frames without a checksum: %d", c.unsummed)
			require.LessOrEqual(t, c.longest, 1514)
			require.Zero(t, c.bad)
			for _, q := range c.ends {
				n := q.Counters()
				require.Zero(t, n.RxErrors+n.RxTooLong+n.TxErrors+n.TxFull, "%+v", n)
			}
			require.NoError(t, c.close())
			require.Equal(t, c.pool.Size(), c.pool.Available())
		})
	}
}

func TestOffloadNeedsHeadroom(t *testing.T) {
	enterNetns(t)
	p := newDevice(t, Config{Name: "rhead"})
	defer p.Close()
	cfg := mem.PoolConfig{Bufs: 4, Stride: 2048, Headroom: 9}
	pool := must(mem.NewPool(hugepages.Heap(cfg.Bytes()), cfg))(t)
	_, err := p.Open(0, pool)
	require.EqualError(t, err, "tap: rhead: Bufs have 9 octets of headroom; offload needs 128: use "+
		"more, or NoOffload")
}

func TestSegmentWithoutChecksumPanics(t *testing.T) {
	pool := newPool(t, 4, 1500)
	q := &queue{fd: -1, pool: pool, rxMax: 1522, txMax: 1522, vnet: true}
	b := pool.Alloc()
	pool.Desc(b).Len, pool.Desc(b).Flags = 100, mem.TxSegment
	require.PanicsWithValue(t, "tap: frame asks for an offload that the port's Caps do not claim",
		func() { q.Tx([]mem.Buf{b}) })
}

func ExampleConfig() {
	_, err := New(Config{Name: "a-name-that-is-too-long"})
	fmt.Println(err)
	// Output: tap: name "a-name-that-is-too-long" has 23 octets; a device name has at most 15: choose a shorter one
}
