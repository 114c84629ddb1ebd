package engine

import (
	"context"
	"errors"
	"syscall"

	"github.com/rnicd/rnicd/mem"
	"github.com/rnicd/rnicd/rnic"
	"github.com/rnicd/rnicd/stack"
)

// errnos are errors of rnic as C has them; the first that fits counts.
var errnos = []struct {
	err   error
	errno syscall.Errno
}{
	{stack.ErrPortUsed, syscall.EADDRINUSE},
	{stack.ErrNotLocal, syscall.EADDRNOTAVAIL},
	{stack.ErrRefused, syscall.ECONNREFUSED},
	{stack.ErrReset, syscall.ECONNRESET},
	{stack.ErrTimeout, syscall.ETIMEDOUT},
	{rnic.ErrStartupTimeout, syscall.ETIMEDOUT},
	{context.DeadlineExceeded, syscall.ETIMEDOUT},
	{stack.ErrNoRoute, syscall.EHOSTUNREACH},
	{stack.ErrNetUnreachable, syscall.ENETUNREACH},
	{stack.ErrConnMax, syscall.EMFILE},
	{rnic.ErrPeerClosed, syscall.ECONNRESET},
	{rnic.ErrClosed, syscall.ECONNABORTED},
	{rnic.ErrState, syscall.EINVAL},
}

// errnoOf is err as C has it.
func errnoOf(err error) syscall.Errno {
	if err == nil {
		return 0
	}
	var access *mem.AccessError
	var full *mem.TableFullError
	var region *mem.RegionError
	var rejected *rnic.RejectedError
	var errno syscall.Errno
	switch {
	case errors.As(err, &access):
		return syscall.EFAULT
	case errors.As(err, &full):
		return syscall.ENOMEM
	case errors.As(err, &region):
		return syscall.EINVAL
	case errors.As(err, &rejected):
		return syscall.ECONNREFUSED
	}
	for _, e := range errnos {
		if errors.Is(err, e.err) {
			return e.errno
		}
	}
	if errors.As(err, &errno) {
		return errno
	}
	return syscall.EINVAL
}
