package rnic

import (
	"context"
	"encoding/binary"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Requests of connections that one goroutine begins one after another, over kernel sockets, are
// accepted in that order: programs that connect several queue pairs tell by it which is which.
func TestSocketsKeepTheOrderOfConnects(t *testing.T) {
	const all = 200
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	dev, err := Open(Config{})
	require.NoError(t, err)
	defer func() { require.NoError(t, dev.Close(ctx)) }()
	l, err := dev.Listen(ctx, "127.0.0.1:0", ListenOptions{Backlog: all})
	require.NoError(t, err)
	defer l.Close()
	cq, err := dev.CreateCQ(16)
	require.NoError(t, err)
	for i := range uint32(all) {
		qp, err := dev.CreateQP(QPOptions{PD: dev.AllocPD(), SendCQ: cq, RecvCQ: cq, SendDepth: 1,
			RecvDepth: 1})
		require.NoError(t, err)
		defer qp.Abort()
		require.NoError(t, qp.StartConnect(ctx, l.Addr().String(),
			ConnParam{PrivateData: binary.BigEndian.AppendUint32(nil, i)}))
	}
	for i := range uint32(all) {
		r, err := l.Accept(ctx)
		require.NoError(t, err)
		require.Equal(t, i, binary.BigEndian.Uint32(r.PrivateData()))
	}
}
