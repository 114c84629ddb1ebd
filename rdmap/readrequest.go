package rdmap

import (
	"encoding/binary"

	"github.com/rnicd/rnicd/ddp"
)

// ReadRequestLen is the length of the Read Request header and of the whole message, for it has no
// payload.
const ReadRequestLen = 28

// ReadRequest is the RDMA Read Request header, RFC 5040 section 4.4. SinkSTag and SinkTO go
// uninterpreted into the Read Response.
type ReadRequest struct {
	SinkSTag ddp.STag
	SinkTO   uint64
	Size     uint32 // RDMARDSZ, octets
	SrcSTag  ddp.STag
	SrcTO    uint64
}

// Put encodes into the first ReadRequestLen octets of b, which must be there.
func (r *ReadRequest) Put(b []byte) {
	p := (*[ReadRequestLen]byte)(b)
	binary.BigEndian.PutUint32(p[0:4], uint32(r.SinkSTag))
	binary.BigEndian.PutUint64(p[4:12], r.SinkTO)
	binary.BigEndian.PutUint32(p[12:16], r.Size)
	binary.BigEndian.PutUint32(p[16:20], uint32(r.SrcSTag))
	binary.BigEndian.PutUint64(p[20:28], r.SrcTO)
}

// ParseReadRequest decodes a message. false: it is not ReadRequestLen octets long, for which RFC
// 5040 has no code of its own: terminate with CauseOperation.
func ParseReadRequest(b []byte) (r ReadRequest, ok bool) {
	if len(b) != ReadRequestLen {
		return ReadRequest{}, false
	}
	p := (*[ReadRequestLen]byte)(b)
	return ReadRequest{
		SinkSTag: ddp.STag(binary.BigEndian.Uint32(p[0:4])),
		SinkTO:   binary.BigEndian.Uint64(p[4:12]),
		Size:     binary.BigEndian.Uint32(p[12:16]),
		SrcSTag:  ddp.STag(binary.BigEndian.Uint32(p[16:20])),
		SrcTO:    binary.BigEndian.Uint64(p[20:28]),
	}, true
}

// Advance moves the request past n octets that were sent already, at most Size: a Terminate carries
// the current location of the Read, not the original one (section 4.8).
func (r *ReadRequest) Advance(n uint32) {
	if n > r.Size {
		panic("rdmap: ReadRequest.Advance beyond its size")
	}
	r.SinkTO += uint64(n)
	r.SrcTO += uint64(n)
	r.Size -= n
}
