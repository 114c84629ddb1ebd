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

// sysError is err of the stack as package net would wrap it: os.SyscallError of call.
func sysError(call string, err error) error {
	if errors.Is(err, stack.ErrBusy) {
		return os.NewSyscallError(call, syscall.EAGAIN)
	}
	var own interface{ Errno() syscall.Errno }
	if errors.As(err, &own) {
		return os.NewSyscallError(call, own.Errno())
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
