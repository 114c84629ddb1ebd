package stream

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"syscall"

	"github.com/rnicd/rnicd/stack"
)

// ErrDetached is what calls on a Conn return after Detach.
var ErrDetached = errors.New("stream: connection was handed over to another upper layer")

// errnos maps the stack's errors to what the kernel would say, so that errors.Is works as with
// package net.
var errnos = []struct {
	err   error
	errno syscall.Errno
}{
	{stack.ErrReset, syscall.ECONNRESET},
	{stack.ErrRefused, syscall.ECONNREFUSED},
	{stack.ErrTimeout, syscall.ETIMEDOUT},
	{stack.ErrNoRoute, syscall.EHOSTUNREACH},
	{stack.ErrNetUnreachable, syscall.ENETUNREACH},
	{stack.ErrNotLocal, syscall.EADDRNOTAVAIL},
	{stack.ErrOtherMember, syscall.EADDRNOTAVAIL},
	{stack.ErrAborted, syscall.ECONNABORTED},
	{stack.ErrHoarding, syscall.ETIMEDOUT},
	{stack.ErrConnMax, syscall.ENOBUFS},
	{stack.ErrPortUsed, syscall.EADDRINUSE},
	{stack.ErrBusy, syscall.EAGAIN},
	{stack.ErrStopped, syscall.ENETDOWN},
}

// sysError is err as package net would wrap it: os.SyscallError of call.
func sysError(call string, err error) error {
	for _, e := range errnos {
		if errors.Is(err, e.err) {
			return os.NewSyscallError(call, e.errno)
		}
	}
	return err
}

// opError is the *net.OpError of an operation on c; io.EOF stays bare, as net.Conn promises.
func (c *Conn) opError(op string, err error) error {
	if err == nil || err == io.EOF {
		return err
	}
	return &net.OpError{Op: op, Net: network, Source: c.local, Addr: c.remote, Err: sysError(op, err)}
}

// giveUp is why ctx ended.
func giveUp(ctx context.Context) error {
	if err := context.Cause(ctx); err != nil {
		return err
	}
	return ctx.Err()
}

// tentativeError is why ctx ended while a dial had no address to dial from.
type tentativeError struct{ ctx error }

func (e *tentativeError) Error() string {
	return stack.ErrTentative.Error() + ": " + e.ctx.Error()
}
func (e *tentativeError) Unwrap() []error { return []error{e.ctx, stack.ErrTentative} }

// Timeout is for net.OpError's, which looks at what it wraps.
func (e *tentativeError) Timeout() bool { return errors.Is(e.ctx, context.DeadlineExceeded) }
