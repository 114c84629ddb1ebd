package interop

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rnicd/rnicd/rnic"
)

// What rdma-core's ucmatose is told: so many messages of so many octets each way.
const (
	cmMessages = 10
	cmOctets   = 300
)

// ucmatose as our client waits for the server's messages before it says anything. RFC 5044 has the
// Responder wait for it: without Quirks.SendFirst neither would send, which holds as soon as the
// request is accepted.
func TestSiwUcmatoseClient(t *testing.T) {
	for _, noCRC := range []bool{false, true} {
		t.Run(fmt.Sprintf("without CRC %v", noCRC), func(t *testing.T) {
			over(t, func(r *rig) {
				r.siw("std")
				l := r.listen()
				job := r.start("exec ucmatose -s %s -p %d -C %d -S %d", r.host, r.port, cmMessages, cmOctets)
				e := r.newEnd(
					rnic.ConnParam{NoMarkers: true, NoCRC: noCRC, Quirks: rnic.Quirks{SendFirst: true}})
				require.NoError(t, r.accept(l).Accept(r.ctx, e.qp, e.conn))
				for range cmMessages {
					e.send(make([]byte, cmOctets))
				}
				for range cmMessages {
					require.Len(t, e.receive(), cmOctets)
				}
				e.qp.Disconnect() // the client waits for it
				require.NoError(t, e.over())
				r.ends(job)
				require.Contains(t, job.String(), "return status 0")
			})
		})
	}
}

// ucmatose as our server speaks first, too.
func TestSiwUcmatoseServer(t *testing.T) {
	over(t, func(r *rig) {
		r.siw("std")
		job, addr := r.serve(fmt.Sprintf("exec ucmatose -p $port -C %d -S %d", cmMessages, cmOctets))
		e := r.newEnd(rnic.ConnParam{NoMarkers: true, NoCRC: true})
		require.NoError(t, e.qp.Connect(r.ctx, addr, e.conn))
		for range cmMessages {
			require.Len(t, e.receive(), cmOctets)
		}
		for range cmMessages {
			e.send(make([]byte, cmOctets))
		}
		_ = e.over()
		r.ends(job)
		require.Contains(t, job.String(), "return status 0")
	})
}
