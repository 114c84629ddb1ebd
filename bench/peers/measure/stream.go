package measure

import (
	"errors"
	"fmt"
	"io"
	"net"
	"time"
)

// Direction of a stream as one end sees it.
type Direction string

const (
	Sink   Direction = "sink"
	Source Direction = "source"
)

// Check says whether d is one of the two.
func (d Direction) Check() error {
	if d != Sink && d != Source {
		return fmt.Errorf("--role %q: want %s or %s", string(d), Sink, Source)
	}
	return nil
}

// Move moves one stream over c: a Source writes for the given time, half-closes and waits until the
// peer has closed too; a Sink reads to the end and closes.
func Move(c net.Conn, d Direction, length time.Duration) (Result, error) {
	defer c.Close()
	// An end that hangs is an error, not a wait without end.
	if err := c.SetDeadline(time.Now().Add(length + 20*time.Second)); err != nil {
		return Result{}, err
	}
	clock := Start()
	buf := make([]byte, ChunkBytes)
	if d == Sink {
		n, err := drain(c, buf)
		return clock.Stop(n), err
	}
	var n uint64
	for end := time.Now().Add(length); time.Now().Before(end); {
		w, err := c.Write(buf)
		n += uint64(w)
		if err != nil {
			return clock.Stop(n), err
		}
	}
	half, ok := c.(interface{ CloseWrite() error })
	if !ok {
		return clock.Stop(n), fmt.Errorf("measure: %T cannot close one half", c)
	}
	if err := half.CloseWrite(); err != nil {
		return clock.Stop(n), err
	}
	_, err := drain(c, buf)
	return clock.Stop(n), err
}

// drain reads to the end of the stream and returns how much there was.
func drain(c net.Conn, buf []byte) (uint64, error) {
	var n uint64
	for {
		got, err := c.Read(buf)
		n += uint64(got)
		switch {
		case errors.Is(err, io.EOF):
			return n, nil
		case err != nil:
			return n, err
		}
	}
}
