package rnic

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/rnicd/rnicd/mpa"
)

const (
	pauseLimit = 500 * time.Millisecond // of start-up, instead of 10 s
	pausePart  = "RNIC_PAUSE_PART"
)

// A process that is stopped until start-up should have been over takes what its peer has sent
// meanwhile, over a kernel's socket, and goes on with it. So does one that waits in vain: its time
// has not passed, and only then its limit is over.
func TestPause(t *testing.T) {
	if part := os.Getenv(pausePart); part != "" {
		pausedPart(t, part)
		return
	}
	asks := request(mpa.Frame{Rev: 1, CRC: true})
	begins, rest := asks[:1], asks[1:] // the first octet says when the Responder waits for the rest
	for part, frame := range map[string][]byte{
		"responder": rest,
		"initiator": (&mpa.Frame{Kind: mpa.Reply, Rev: 1, CRC: true}).Append(nil),
	} {
		for name, said := range map[string][]byte{"speaks": frame, "is silent": nil} {
			t.Run(part+"'s peer "+name, func(t *testing.T) {
				t.Parallel()
				l, err := net.Listen("tcp", "127.0.0.1:0")
				require.NoError(t, err)
				defer l.Close()
				p := startPaused(t, part, l.Addr().String())
				var nc net.Conn
				if part == "responder" {
					nc = must(net.Dial("tcp", p.says("at ")))
					_, err = nc.Write(begins)
				} else {
					nc, err = l.Accept()
				}
				require.NoError(t, err)
				defer nc.Close()
				p.says("armed")
				p.stop()
				must(nc.Write(said))
				<-time.After(2 * pauseLimit)
				require.NoError(t, p.cmd.Process.Signal(syscall.SIGCONT))
				if said == nil {
					p.says("nothing came")
				} else {
					require.Equal(t, "<nil>", p.says("in service: "))
				}
			})
		}
	}
}

// pausedProcess is a process that is to be stopped.
type pausedProcess struct {
	t   *testing.T
	cmd *exec.Cmd
	out *bufio.Reader
}

func startPaused(t *testing.T, part, addr string) *pausedProcess {
	cmd := exec.Command(os.Args[0], "-test.run=^TestPause$")
	cmd.Env = append(os.Environ(), pausePart+"="+part+" "+addr)
	cmd.Stderr = os.Stderr
	out := must(cmd.StdoutPipe())
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	return &pausedProcess{t, cmd, bufio.NewReader(out)}
}

// says expects a line, and returns what is after its beginning.
func (p *pausedProcess) says(begin string) string {
	line, err := p.out.ReadString('\n')
	require.True(p.t, err == nil || err == io.EOF, err)
	require.True(p.t, strings.HasPrefix(line, begin), "%q instead of %q", line, begin)
	return strings.TrimSpace(line[len(begin):])
}

// stop returns when the process has stopped.
func (p *pausedProcess) stop() {
	require.NoError(p.t, p.cmd.Process.Signal(syscall.SIGSTOP))
	var status unix.WaitStatus
	must(unix.Wait4(p.cmd.Process.Pid, &status, unix.WUNTRACED, nil))
	require.True(p.t, status.Stopped())
}

// pausedPart is the process that is stopped while it waits for its peer's start-up frame.
func pausedPart(t *testing.T, part string) {
	part, addr, _ := strings.Cut(part, " ")
	r := newRig(t, sockets, rigConfig{})
	a, begun := r.server, make(chan error, 1)
	if part == "responder" {
		fmt.Println("at " + r.addr())
	} else {
		a = r.client
		c := r.newEnd(a, unmarked)
		go func() { begun <- c.qp.Connect(r.ctx, addr, c.conn) }()
	}
	var arms atomic.Bool // the loop's goroutine writes it
	r.until("start-up", func() bool {
		for _, l := range a.host.Live() {
			_ = l.Transport.Submit(func() {
				if l.Transport.Progress() > 0 {
					l.Transport.SetTimer(l.Transport.Now() + int64(pauseLimit))
					arms.Store(true)
				}
			})
		}
		return arms.Load()
	})
	fmt.Println("armed")
	if part == "responder" {
		r.until("a Request, or its failure", func() bool {
			if req := r.listener.Poll(); req != nil {
				s := r.newEnd(r.server, unmarked)
				begun <- req.Accept(r.ctx, s.qp, s.conn)
				return true
			}
			select {
			case f := <-r.listener.failures:
				begun <- f.Err
				return true
			default:
				return false
			}
		})
	}
	switch err := <-begun; {
	case errors.Is(err, ErrStartupTimeout):
		fmt.Println("nothing came")
	default:
		fmt.Println("in service:", err)
	}
}
