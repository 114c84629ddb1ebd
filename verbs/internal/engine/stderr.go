package engine

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"

	"github.com/rnicd/rnicd/internal/lossy"
)

// StandardError is standard error as it was when the engine was loaded. A program that has closed
// it, or has opened something else in its place, gets no line there.
type StandardError struct{ was unix.Stat_t }

// NewStandardError is it as it is now.
func NewStandardError() *StandardError {
	s := &StandardError{}
	if unix.Fstat(unix.Stderr, &s.was) != nil {
		s.was = unix.Stat_t{} // like no file
	}
	return s
}

func (s *StandardError) Write(b []byte) (int, error) {
	var is unix.Stat_t
	if err := unix.Fstat(unix.Stderr, &is); err != nil {
		return 0, err
	}
	if is.Dev != s.was.Dev || is.Ino != s.was.Ino {
		return 0, errors.New("standard error is another file")
	}
	return len(b), lossy.Write(os.Stderr, b)
}
