package memif

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rnicd/rnicd/internal/awake"
)

const (
	handshakeMax = 5 * time.Second // from the first octet to CONNECTED
	goodbyeMax   = time.Second     // for a last message, and for the peer to leave our memory
	fdsMax       = 253             // that one message can bring (SCM_MAX_FD); one is meant
)

// control is the socket of a connection. One goroutine reads it; any may interrupt that one.
//
// Descriptors that the peer sends are not closed as they come: that may block for as long as the
// peer likes, as with a file of its own file system (close asks it), or a TCP socket with
// SO_LINGER. They are unwanted until close, which is for a goroutine that no other waits for.
type control struct {
	conn     *net.UnixConn
	oob      []byte
	unwanted []int

	strange bool // the Listener's

	lock  sync.Mutex
	why   string       // it was interrupted
	limit *awake.Timer // of deadline
}

// errOurs is an end that we chose: the peer is told why.
type errOurs struct{ why string }

func (e *errOurs) Error() string { return e.why }

func ours(format string, args ...any) error { return &errOurs{fmt.Sprintf(format, args...)} }

// peerError is an end that the peer chose.
type peerError struct{ reason string }

func (e *peerError) Error() string {
	if e.reason == "" {
		return "the peer has disconnected"
	}
	return "the peer has disconnected: " + e.reason
}

// address is what the net package calls a socket: a path, or a name in the abstract namespace after
// an @.
func address(socket string) (*net.UnixAddr, error) {
	const pathMax = 107 // sockaddr_un, less a zero
	switch {
	case socket == "" || socket == "@":
		return nil, errors.New("memif: no socket given: want a path, or @ and a name in the abstract " +
			"namespace")
	case len(socket) > pathMax || strings.ContainsRune(socket, 0):
		return nil, fmt.Errorf("memif: socket %q: want up to %d octets without zeros", socket, pathMax)
	}
	return &net.UnixAddr{Name: socket, Net: "unixpacket"}, nil
}

// deadline bounds what follows; zero: nothing does.
func (c *control) deadline(d time.Duration) {
	c.lock.Lock()
	defer c.lock.Unlock()
	if c.why != "" {
		return
	}
	if c.limit != nil {
		c.limit.Stop()
	}
	_ = c.conn.SetDeadline(time.Time{})
	if d == 0 {
		return
	}
	var t *awake.Timer
	t = awake.AfterFunc(d, func() {
		c.lock.Lock()
		defer c.lock.Unlock()
		if c.limit == t { // and not replaced meanwhile
			_ = c.conn.SetDeadline(passed)
		}
	})
	c.limit = t
}

var passed = time.Unix(1, 0)

// interrupt has recv end, now or later, with an error that says why.
func (c *control) interrupt(why string) {
	c.lock.Lock()
	defer c.lock.Unlock()
	if c.why == "" {
		c.why = why
		_ = c.conn.SetReadDeadline(passed)
	}
}

func (c *control) interrupted() string {
	c.lock.Lock()
	defer c.lock.Unlock()
	return c.why
}

// atOnce is for what needs no waiting: whether the deadline has passed, as it has for a process
// that was stopped for a while, does not matter then. EAGAIN: it would have to wait.
func (c *control) atOnce(do func(fd int) error) error {
	raw, err := c.conn.SyscallConn()
	if err == nil {
		if closed := raw.Control(func(fd uintptr) { err = do(int(fd)) }); closed != nil {
			err = closed
		}
	}
	return err
}

// send sends a message, and with it a copy of fd unless that is -1.
func (c *control) send(m *message, fd int) error {
	var rights []byte
	if fd >= 0 {
		rights = unix.UnixRights(fd)
	}
	n := 0
	err := c.atOnce(func(socket int) (err error) {
		n, err = unix.SendmsgN(socket, m[:], rights, nil, unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL)
		return err
	})
	if errors.Is(err, unix.EAGAIN) {
		n, _, err = c.conn.WriteMsgUnix(m[:], rights, nil)
	}
	if err == nil && n != msgLen {
		err = fmt.Errorf("%d of %d octets sent", n, msgLen)
	}
	if err != nil {
		return fmt.Errorf("sending %v: %w", m.typ(), err)
	}
	return nil
}

// recv waits for a message. fd is what came with it, the caller's to close, or -1.
func (c *control) recv(m *message) (fd int, err error) {
	if c.oob == nil {
		c.oob = make([]byte, unix.CmsgSpace(4*fdsMax)+unix.CmsgSpace(unix.SizeofUcred))
	}
	n, oobn, flags, _, err := c.conn.ReadMsgUnix(m[:], c.oob)
	if errors.Is(err, io.EOF) || errors.Is(err, os.ErrDeadlineExceeded) && c.interrupted() == "" {
		// A message may be there all the same. Linux tells of an end although one came between two
		// looks of its own (__unix_dgram_recvmsg: the queue was empty, then the peer was gone).
		n, oobn, flags, err = c.recvAtOnce(m, err)
	}
	fds := received(c.oob[:max(oobn, 0)])
	defer func() { c.unwanted = append(c.unwanted, fds...) }()
	if err != nil {
		if why := c.interrupted(); why != "" && errors.Is(err, os.ErrDeadlineExceeded) {
			return -1, &errOurs{why}
		}
		if errors.Is(err, os.ErrDeadlineExceeded) {
			return -1, ours("Timeout")
		}
		return -1, err
	}
	switch {
	case n != msgLen || flags&unix.MSG_TRUNC != 0:
		return -1, ours("Invalid message size")
	case len(fds) > 1 || flags&unix.MSG_CTRUNC != 0:
		return -1, ours("Too many file descriptors")
	case len(fds) == 1:
		fd, fds = fds[0], nil
		return fd, nil
	}
	return -1, nil
}

// recvAtOnce takes a message that is there; without one the error is otherwise.
func (c *control) recvAtOnce(m *message, otherwise error) (n, oobn, flags int, err error) {
	err = c.atOnce(func(socket int) (err error) {
		n, oobn, flags, _, err = unix.Recvmsg(socket, m[:], c.oob,
			unix.MSG_DONTWAIT|unix.MSG_CMSG_CLOEXEC)
		return err
	})
	if err != nil || n == 0 && oobn == 0 {
		return 0, 0, 0, otherwise
	}
	return n, oobn, flags, nil
}

// close closes the socket and what came over it.
func (c *control) close() {
	c.lock.Lock()
	if c.limit != nil {
		c.limit.Stop()
	}
	c.lock.Unlock()
	_ = c.conn.Close() // with descriptors in it that were not received
	closeAll(c.unwanted)
}

// received are the descriptors that control messages brought.
func received(oob []byte) (fds []int) {
	messages, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return nil
	}
	for i := range messages {
		if rights, err := unix.ParseUnixRights(&messages[i]); err == nil {
			fds = append(fds, rights...)
		}
	}
	return fds
}

// attend is for an established connection; it returns why that ended. What the queues find wrong
// with the peer ends it, too.
func (c *control) attend(s *session) error {
	over := make(chan struct{})
	defer close(over)
	go func() {
		select {
		case why := <-s.failed:
			c.interrupt(why)
		case <-over:
		}
	}()
	c.deadline(0)
	m := new(message)
	fd, err := c.recv(m)
	if err != nil {
		return err
	}
	if fd >= 0 {
		c.unwanted = append(c.unwanted, fd)
	}
	if m.typ() == msgDisconnect {
		return &peerError{m.reason()}
	}
	return ours("Unexpected message")
}

// tell sends the reason of an end that was ours.
func (c *control) tell(err error) {
	var mine *errOurs
	if errors.As(err, &mine) {
		_ = c.conn.SetWriteDeadline(time.Now().Add(goodbyeMax)) // it is not waited for
		_ = c.send(disconnectMessage(mine.why), -1)
	}
}

// awaitEnd returns when the peer has closed its socket, and so has left memory of ours, or does not
// do so in time.
func (c *control) awaitEnd() {
	_ = c.conn.CloseWrite()
	_ = c.conn.SetReadDeadline(time.Time{})
	defer awake.Deadline(goodbyeMax, c.conn.SetReadDeadline).Stop()
	for m := new(message); ; {
		n, oobn, _, _, err := c.conn.ReadMsgUnix(m[:], c.oob)
		c.unwanted = append(c.unwanted, received(c.oob[:max(oobn, 0)])...)
		if err != nil || n == 0 || len(c.unwanted) > fdsMax {
			return
		}
	}
}
