package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rnicd/rnicd/internal/tools/xfer"
	"github.com/rnicd/rnicd/rnic"
)

// gate is a source whose octets come as far as it is open.
type gate struct {
	data []byte
	open chan int
	left int
}

func (g *gate) Read(b []byte) (int, error) {
	for g.left == 0 {
		n, ok := <-g.open
		if !ok {
			n = len(g.data)
		}
		g.left = n
	}
	if len(g.data) == 0 {
		return 0, io.EOF
	}
	n := copy(b[:min(len(b), g.left)], g.data)
	g.data, g.left = g.data[n:], g.left-n
	return n, nil
}

// bystander is a put that runs while others misbehave: the rest of it is sent when finish is
// called.
type bystander struct {
	gate   *gate
	result chan error
}

func newBystander(t testing.TB, ns *namespace) *bystander {
	t.Helper()
	// more than the client keeps in flight, or it would not report progress
	data := make([]byte, 12<<20)
	_, _ = rand.NewChaCha8([32]byte{9}).Read(data)
	want := sha256.Sum256(data)
	b := &bystander{gate: &gate{data: data, open: make(chan int)}, result: make(chan error, 1)}
	begun := make(chan struct{})
	var once sync.Once
	go ns.Do(func() {
		dev, err := rnic.Open(rnic.Config{})
		if err == nil {
			var res xfer.Result
			res, err = xfer.Put(context.Background(), xfer.PutConfig{
				Adapter: dev, Addr: serverAddr, Source: b.gate, Length: uint64(len(data)),
				Progress: func(uint64) { once.Do(func() { close(begun) }) },
			})
			if err == nil && res.Digest != want {
				err = fmt.Errorf("the server holds %x, not %x", res.Digest, want)
			}
		}
		b.result <- err
	})
	b.gate.open <- 10 << 20
	select {
	case <-begun:
	case err := <-b.result:
		require.FailNow(t, "the bystander ended early", "%v", err)
	case <-time.After(patience):
		require.FailNow(t, "the bystander does not get on")
	}
	return b
}

func (b *bystander) finish(t testing.TB) {
	t.Helper()
	close(b.gate.open)
	select {
	case err := <-b.result:
		require.NoError(t, err, "a transfer that ran meanwhile was touched")
	case <-time.After(patience):
		require.FailNow(t, "the bystander does not end")
	}
}

func garbage(seed byte, n int) []byte {
	b := make([]byte, n)
	_, _ = rand.NewChaCha8([32]byte{seed}).Read(b)
	return b
}

const (
	granted = 8192 // octets each hostile client asks for
	canary  = 0xA5 // what is in memory beforehand, and what they may write
)

// attack is something that a peer does wrong.
type attack struct {
	name string
	do   func(c *raw)
	want string // a pattern: the server's line about it
}

// run does it on a connection of its own, made on this thread, and returns the peer's address when
// all is over.
func (a attack) run(t *testing.T) (peer string) {
	c := dialRaw(t)
	defer c.close()
	a.do(c)
	if a.name != "reset" {
		_ = c.conn.CloseWrite() // the server may have been first
		c.drained()
	}
	return c.local()
}

// says sends octets instead of a start-up frame; asks awaits the reply to its private data.
func says(octets []byte) func(*raw) { return func(c *raw) { c.send(octets) } }

func asks(private []byte) func(*raw) {
	return func(c *raw) {
		c.send(startupFrame(keyRequest, flagC, 1, private))
		c.reply()
	}
}

// begun does what it does after start-up.
func begun(do func(c *raw)) func(*raw) {
	return func(c *raw) {
		c.start(granted)
		do(c)
	}
}

// writes is a Write to another STag, or beside what was granted, with octets of its header changed.
func writes(stag uint32, offset int, header map[int]byte) func(*raw) {
	return begun(func(c *raw) {
		b := write(c.stag^stag, c.to+uint64(offset), make([]byte, 100))
		for at, octet := range header {
			b[at] = octet
		}
		c.send(c.fpdu(b))
	})
}

func sends(msn uint32, payload []byte) func(*raw) {
	return begun(func(c *raw) { c.send(c.fpdu(sendULPDU(0, msn, 0, payload))) })
}

// attacks are what a peer may do wrong.
var attacks = []attack{
	{"wrong key", says(startupFrame("MPA ID Bad Frame", flagC, 1, putRequest(granted))),
		`failed .*start-up frame has the wrong Key`},
	{"HTTP", says([]byte("GET / HTTP/1.1\r\nHost: " + serverHost + "\r\n\r\n")),
		`failed .*start-up frame has the wrong Key`},
	{"too much private data", says(startupFrame(keyRequest, flagC, 1, make([]byte, 513))),
		`failed .*PD_Length is above the limit of private data`},
	{"revision", says(startupFrame(keyRequest, flagC, 77, putRequest(granted))),
		`failed .*MPA revision 77`},
	{"closed in the start-up frame", says([]byte(keyRequest)),
		`failed .*peer closed the connection during MPA start-up`},
	{"no transfer request", asks([]byte("hello")),
		`refused .*the private data \(5 octets\) is not a transfer request`},
	{"larger than the region", asks(putRequest(1 << 62)),
		`refused .*4611686018427387904 octets offered, the region holds 16777216`},
	// more than any ULPDU_Length announces
	{"garbage FPDU", begun(says(garbage(2, 70_000))), `failed .*stream terminated: mpa: `},
	{"FPDU with a bad CRC", begun(func(c *raw) {
		b := c.fpdu(write(c.stag, c.to, make([]byte, 100)))
		b[len(b)-1] ^= 1
		c.send(b)
	}), `failed .*CRC`},
	{"bad STag", writes(0x100, 0, nil), `failed .*invalid STag`},
	{"offset past the region", writes(0, granted, nil), `failed .*base or bounds violation`},
	{"no buffer", sends(2, make([]byte, 48)), `failed .*no buffer available`},
	{"closing message too long", sends(1, make([]byte, 49)), `failed .*too long`},
	{"closing message that is none", sends(1, make([]byte, 48)), `failed .*closing message`},
	{"opcode", writes(0, 0, map[int]byte{1: 0x4F}), `failed .*opcode`},
	{"nothing written", sends(1, finishMessage(granted, [32]byte{1})),
		`failed .*wrote 0 and closed with a length of`},
	{"wrong hash", func(c *raw) {
		c.start(100)
		c.send(c.fpdu(write(c.stag, c.to, bytes.Repeat([]byte{canary}, 100))))
		c.send(c.fpdu(sendULPDU(0, 1, 0, finishMessage(100, [32]byte{1}))))
	}, `failed .*SHA-256 mismatch`},
	{"closed early", begun(func(*raw) {}),
		`failed .*the client closed the connection before its closing message`},
	{"closed in an FPDU", begun(func(c *raw) {
		c.send(c.fpdu(write(c.stag, c.to, make([]byte, 100)))[:50])
	}), `failed .*peer closed the connection in the middle of a frame`},
	{"reset", begun(func(c *raw) { require.NoError(c.t, c.conn.SetLinger(0)) }), `failed .*reset`},
}

// The hand-made octets are right: a transfer made of them succeeds. Without this the others would
// prove little.
func TestRawClientIsRight(t *testing.T) {
	for _, args := range [][]string{nil, {"--no-markers"}} {
		ns := newNamespace(t)
		server := ns.serving(t, args...)
		ns.Do(func() {
			c := dialRaw(t)
			defer c.close()
			c.start(0)
			require.Equal(t, args == nil, c.markers)
			c.send(c.fpdu(sendULPDU(0, 1, 0, finishMessage(0, sha256.Sum256(nil)))))
			answer := make([]byte, 2+18+128+4)
			must(io.ReadFull(c.conn, answer))(t)
			require.Equal(t, "RNCA\x01", string(answer[20:25]))
			require.NoError(t, c.conn.CloseWrite())
			require.Empty(t, c.drained())
		})
		server.Expect(t, 1, `^received +0 B`)
		require.Empty(t, server.Lines("^(failed|refused)"), "%s", server)
		ns.stop(t, server)
	}
}

// Whatever one peer does wrong: exactly one clear line, no other peer is touched, and the daemon
// lives on.
func TestHostilePeers(t *testing.T) {
	for _, mode := range []struct {
		name string
		args []string
	}{{"markers", nil}, {"no markers", []string{"--no-markers"}}} {
		t.Run(mode.name, func(t *testing.T) {
			ns := newNamespace(t)
			server := ns.serving(t, mode.args...)
			file := randomFile(t, 300_000)
			meanwhile := newBystander(t, ns)
			var peers []string
			for _, a := range attacks {
				t.Run(a.name, func(t *testing.T) {
					ns.Do(func() {
						local := a.run(t)
						line := server.Expect(t, 1, `^\w+ +`+regexp.QuoteMeta(local)+": ")
						require.Regexp(t, `^`+a.want, line)
						t.Log(line)
						peers = append(peers, local)
					})
				})
			}
			meanwhile.finish(t)
			ns.put(t, file)
			server.Expect(t, 1, "^sha256 +"+file.sum+"$")
			ns.stop(t, server)
			for i, p := range peers {
				require.Len(t, server.Lines(regexp.QuoteMeta(p)+":"), 1, "%s: %s", attacks[i].name, server)
			}
			require.Empty(t, server.Lines("panic|goroutine|race"), "%s", server)
		})
	}
}

// Many peers that write garbage, at every stage of a connection and all at once, harm no other. The
// seed is printed.
func TestGarbageStorm(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	if s := os.Getenv("RNICD_STORM_SEED"); s != "" {
		seed, _ = strconv.ParseUint(s, 10, 64)
	}
	t.Logf("seed %d (RNICD_STORM_SEED)", seed)
	ns := newNamespace(t)
	server := ns.serving(t)
	meanwhile := newBystander(t, ns)
	const peers, rounds = 12, 12
	var wg sync.WaitGroup
	for peer := range peers {
		wg.Go(func() {
			ns.Do(func() {
				r := rand.New(rand.NewPCG(seed, uint64(peer)))
				for range rounds {
					storm(t, r)
				}
			})
		})
	}
	wg.Wait()
	meanwhile.finish(t)
	file := randomFile(t, 300_000)
	ns.put(t, file)
	server.Expect(t, 1, "^sha256 +"+file.sum+"$")
	ns.stop(t, server)
	require.Empty(t, server.Lines("panic|goroutine|race"), "%s", server)
	told := map[string]string{}
	for _, line := range server.Lines("^(failed|refused)") {
		peer := strings.Fields(line)[1]
		require.Empty(t, told[peer], "told of twice: %s", line)
		told[peer] = line
	}
	require.NotEmpty(t, told)
}

// storm is one connection that breaks off somewhere. Errors of its own do not matter.
func storm(t testing.TB, r *rand.Rand) {
	c := dialRaw(t)
	defer c.close()
	noise := make([]byte, 1+r.IntN(5000))
	for i := range noise {
		noise[i] = byte(r.Uint32())
	}
	frame := startupFrame(keyRequest, flagC, 1, putRequest(1+r.IntN(1<<16)))
	switch r.IntN(6) {
	case 0: // nothing but noise
	case 1: // a start-up frame with an octet turned
		frame[r.IntN(len(frame))] ^= byte(1 << r.IntN(8))
		noise = append(frame, noise...)
	case 2: // a start-up frame cut short
		noise = frame[:r.IntN(len(frame))]
	case 3: // noise right after a good start-up frame, before the reply
		noise = append(frame, noise...)
	default:
		if _, err := c.conn.Write(frame); err != nil {
			return
		}
		head := make([]byte, 48)
		if _, err := io.ReadFull(c.conn, head); err != nil || head[16]&flagR != 0 {
			return
		}
		c.markers = head[16]&flagM != 0
		c.stag, c.to = binary.BigEndian.Uint32(head[28:]), binary.BigEndian.Uint64(head[32:])
		good := c.fpdu(write(c.stag, c.to, bytes.Repeat([]byte{0xEE}, 1+r.IntN(200))))
		good[r.IntN(len(good))] ^= byte(1 << r.IntN(8))
		noise = append(good, noise...)
	}
	_, _ = c.conn.Write(noise)
	switch r.IntN(3) {
	case 0:
		_ = c.conn.SetLinger(0) // RST
	case 1:
		_ = c.conn.CloseWrite()
		_ = c.conn.SetReadDeadline(time.Now().Add(200 * time.Millisecond))
		c.drained()
	}
}
