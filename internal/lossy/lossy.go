// Package lossy passes lines on to a reader that may be slow, stand still or be gone, as a log's
// reader is, without ever waiting for it: lines for which there is no room, and those that cannot
// be written, are lost and counted. Nothing else becomes of the process: a broken pipe ends it
// neither by an error nor by SIGPIPE.
//
// Its limits: lines that wait are lost if the process is killed; a write of more than QueueMax
// octets is lost always.
package lossy

import (
	"bytes"
	"errors"
	"io"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// QueueMax is how many octets may wait for the reader.
	QueueMax = 1 << 20
	// CloseWithin is how long an orderly end waits for a reader that stands still.
	CloseWithin = time.Second

	tellEvery  = time.Second // from one call of onLoss to the next, at least
	noticeRoom = 4 << 10     // beyond QueueMax, for what onLoss writes
)

// Writer is an io.Writer that neither blocks nor fails. Any goroutine may call its methods.
//
//	Write ──► queue, QueueMax octets ──► a goroutine ──► the reader
//	   └──► lost: there is no room          └──► lost: it cannot be written
type Writer struct {
	to     io.Writer
	onLoss func(lines uint64)
	more   chan struct{} // has a place for "there is something to do"
	ended  chan struct{}

	mu      sync.Mutex
	queue   [][]byte
	octets  int // in queue, and being written
	lost    uint64
	telling bool // onLoss is being called
	closed  bool
}

// New makes a Writer that owns nothing of to. onLoss, if not nil, is called by a goroutine of the
// Writer's when the reader takes lines again after some were lost, at most once a second, with the
// number of those not told yet; it may Write a line.
func New(to io.Writer, onLoss func(lines uint64)) *Writer {
	w := &Writer{to: to, onLoss: onLoss, more: make(chan struct{}, 1), ended: make(chan struct{})}
	go w.run()
	return w
}

// To is what the Writer writes to.
func (w *Writer) To() io.Writer { return w.to }

// Write copies b, which are whole lines, and returns. It never fails.
func (w *Writer) Write(b []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	room := QueueMax - w.octets
	if w.telling {
		room += noticeRoom
	}
	if w.closed || len(b) > room {
		w.lost += w.linesIn(b)
		return len(b), nil
	}
	w.queue = append(w.queue, bytes.Clone(b))
	w.octets += len(b)
	w.wake()
	return len(b), nil
}

func (w *Writer) wake() {
	select {
	case w.more <- struct{}{}:
	default:
	}
}

// linesIn counts the end of a line that was cut as one. A reader of other things than lines counts
// these itself, by a method Lines.
func (w *Writer) linesIn(b []byte) uint64 {
	if to, ok := w.to.(interface{ Lines(b []byte) uint64 }); ok {
		return to.Lines(b)
	}
	return uint64(max(bytes.Count(b, []byte{'\n'}), 1))
}

// Lost is how many lines were lost so far.
func (w *Writer) Lost() uint64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.lost
}

// Close takes no more lines, and returns when those that wait are written, or after within: what is
// left then is lost, and a write under way is left alone. Once.
func (w *Writer) Close(within time.Duration) {
	w.mu.Lock()
	w.closed = true
	w.wake()
	w.mu.Unlock()
	late := time.NewTimer(within)
	defer late.Stop()
	select {
	case <-w.ended:
	case <-late.C:
		w.mu.Lock()
		defer w.mu.Unlock()
		for _, line := range w.queue {
			w.lost += w.linesIn(line)
		}
		w.queue = nil
	}
}

func (w *Writer) run() {
	defer close(w.ended)
	var told uint64
	var tellAt time.Time // not before
	takes := false       // the reader did, the last time
	for {
		untold := takes && w.Lost() > told
		if untold && !time.Now().Before(tellAt) {
			told += w.tell(told)
			tellAt = time.Now().Add(tellEvery)
			continue
		}
		line, over := w.next()
		switch {
		case over:
			return
		case line == nil && untold:
			w.await(time.Until(tellAt))
		case line == nil:
			<-w.more
		default:
			takes = w.pass(line)
		}
	}
}

// tell reports the lines that were lost after the first told ones, and returns how many.
func (w *Writer) tell(told uint64) (lines uint64) {
	w.mu.Lock()
	lines, w.telling = w.lost-told, true
	w.mu.Unlock()
	if w.onLoss != nil {
		w.onLoss(lines)
	}
	w.mu.Lock()
	w.telling = false
	w.mu.Unlock()
	return lines
}

// await waits until there is something to do, for so long at most.
func (w *Writer) await(most time.Duration) {
	t := time.NewTimer(most)
	defer t.Stop()
	select {
	case <-w.more:
	case <-t.C:
	}
}

// pass writes a line; false: it is lost.
func (w *Writer) pass(line []byte) bool {
	err := write(w.to, line)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.octets -= len(line)
	if err != nil {
		w.lost += w.linesIn(line)
	}
	return err == nil
}

// next is the first line that waits; over: the Writer is closed, and none does.
func (w *Writer) next() (line []byte, over bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.queue) == 0 {
		return nil, w.closed
	}
	line = w.queue[0]
	w.queue = w.queue[1:]
	return line, false
}

// File is an io.Writer by Write.
type File struct{ *os.File }

// Write implements io.Writer.
func (f File) Write(b []byte) (int, error) {
	if err := Write(f.File, b); err != nil {
		return 0, err
	}
	return len(b), nil
}

func write(to io.Writer, b []byte) error {
	if f, ok := to.(*os.File); ok {
		return Write(f, b)
	}
	_, err := to.Write(b)
	return err
}

// Write writes all of b to a file, below package os, which makes of a broken standard output or
// standard error a SIGPIPE that ends the process. A file that somebody else has made non-blocking
// is waited for.
func Write(f *os.File, b []byte) error {
	raw, err := f.SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	if err := raw.Control(func(fd uintptr) { failed = writeAll(int(fd), b) }); err != nil {
		return err
	}
	return failed
}

func writeAll(fd int, b []byte) error {
	for len(b) > 0 {
		n, err := unix.Write(fd, b)
		switch {
		case errors.Is(err, unix.EINTR):
		case errors.Is(err, unix.EAGAIN):
			_, err = unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLOUT}}, -1)
			if err != nil && !errors.Is(err, unix.EINTR) {
				return err
			}
		case err != nil:
			return err
		default:
			b = b[n:]
		}
	}
	return nil
}

// Line writes one text as a Writer would, and waits for its reader for CloseWithin: for
// the last word of a process.
func Line(to io.Writer, text string) {
	w := New(to, nil)
	_, _ = w.Write([]byte(text + "\n")) // it never fails
	w.Close(CloseWithin)
}
