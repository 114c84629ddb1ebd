package transport

import (
	"errors"
	"net"
	"os"
	"syscall"
	"testing"

	"github.com/rnicd/rnicd/stack"
	"github.com/stretchr/testify/require"
)

// What the kernel says it took tells msgVec how far it is.
func TestMsgVecAdvance(t *testing.T) {
	v := newMsgVec(3)
	out := make([]byte, 60)
	for i, at := range [][2]int{{0, 10}, {10, 30}, {30, 60}} {
		v.iov[i].Base = &out[at[0]]
		v.iov[i].SetLen(at[1] - at[0])
	}
	for _, step := range []struct{ done, n, last, want int }{
		{0, 1, 4, 0},  // a part of the first
		{0, 2, 15, 1}, // its rest, and a part of the second
		{1, 2, 30, 3}, // the rest
	} {
		v.hdr[step.done+step.n-1].len = uint32(step.last)
		require.Equal(t, step.want, v.advance(step.done, step.n))
	}
	require.Same(t, &out[4], v.iov[0].Base)
	require.Same(t, &out[25], v.iov[1].Base)
	require.Equal(t, uint64(5), v.iov[1].Len)
}

func TestSocketError(t *testing.T) {
	other := errors.New("other")
	for _, tc := range []struct{ from, to error }{
		{syscall.ECONNREFUSED, stack.ErrRefused}, {syscall.ECONNRESET, stack.ErrReset}, {syscall.EPIPE, stack.ErrReset},
		{syscall.ETIMEDOUT, stack.ErrTimeout}, {os.ErrDeadlineExceeded, stack.ErrTimeout},
		{syscall.EHOSTUNREACH, stack.ErrNoRoute}, {syscall.ENETUNREACH, stack.ErrNetUnreachable}, {other, other},
	} {
		require.ErrorIs(t, SocketError(&net.OpError{Op: "read", Err: tc.from}), tc.to)
	}
}

// A kernel that does not tell its segment size: the path's MTU less headers, or else Ethernet's 1460.
//
// req: D01-3.1.1-7, C02-5.1.1-7, 5044-5.1-1
func TestLikelyEMSS(t *testing.T) {
	for _, tc := range []struct{ maxSeg, mtu, headers, want int }{
		{1448, 9000, headersIPv4, 1448}, {0, 1500, headersIPv4, 1448}, {0, 9000, headersIPv4, 8948}, {0, 1500, headersIPv6, 1428},
		{0, 0, headersIPv4, 1460}, {-1, 30, headersIPv4, 1460}, {1 << 20, 0, headersIPv4, socketWriteMax},
	} {
		require.Equal(t, tc.want, likelyEMSS(tc.maxSeg, tc.mtu, tc.headers), "%+v", tc)
	}
}
