// Package ddp is Direct Data Placement: headers, message to segments, Placement, Delivery, error codes.
package ddp

import "github.com/rnicd/rnicd/mem"

const (
	TaggedLen   = 14
	UntaggedLen = 18
)

// Header of a DDP segment, both models.
type Header struct {
	Tagged, Last bool
	Version      uint8  // DV
	ULP          uint8  // first octet of RsvdULP (RDMAP's control octet)
	ULP32        uint32 // rest of RsvdULP, untagged only (RDMAP: Invalidate STag)
	STag         mem.STag
	TO           uint64
	QN, MSN, MO  uint32
}

func (h *Header) Len() int     { panic("skeleton") }
func (h *Header) Put(b []byte) { panic("skeleton") }

// Parse decodes a header. false: too short.
func Parse(b []byte) (h Header, n int, ok bool) { panic("skeleton") }

// Error is a DDP error of section 9.2 with the header it was found in.
type Error struct {
	Type, Code uint8
	Header     Header
	SegmentLen int
}

func (e *Error) Error() string { panic("skeleton") }

// Message is one ULP message to send. Exactly one of tagged or untagged by Header.Tagged; Segmenter fills Last, TO and MO, MSN.
type Message struct {
	Header Header // template: STag and first TO, or QN; ULP, ULP32, Version
	Len    uint32
}

// Segmenter cuts one message after another; MSNs are counted per queue.
type Segmenter struct{}

func (s *Segmenter) Init(version uint8) { panic("skeleton") }
func (s *Segmenter) Start(m Message)    { panic("skeleton") } // programmer error while Active
func (s *Segmenter) Active() bool       { panic("skeleton") }

// NextLen is the ULPDU length (header included) the next segment will have under mulpdu.
func (s *Segmenter) NextLen(mulpdu int) int { panic("skeleton") }

// Next returns the header of the next segment and the payload's range in the message; the message ends when Header.Last.
func (s *Segmenter) Next(mulpdu int) (h Header, off uint32, n int) { panic("skeleton") }

// RecvBuffer is a posted untagged buffer: one local range.
type RecvBuffer struct {
	ID   uint64
	STag mem.STag
	TO   uint64
	Len  uint32
}

// Queue is the receive side of one QN: posted buffers by MSN.
type Queue struct{}

func (q *Queue) Init(buffersMax int)    { panic("skeleton") } // a power of two
func (q *Queue) Post(b RecvBuffer) bool { panic("skeleton") } // false when full
func (q *Queue) Posted() int            { panic("skeleton") }

// Flush removes and returns the oldest posted buffer that was not delivered.
func (q *Queue) Flush() (RecvBuffer, bool) { panic("skeleton") }

type StreamConfig struct {
	Table      *mem.Table
	Domain     mem.ProtectionDomain
	Stream     mem.StreamID
	Version    uint8
	Queues     []*Queue // by QN; nil entry: that QN is invalid
	PendingMax int      // messages complete in placement that wait for delivery
}

// Delivered is one message, in order.
type Delivered struct {
	Header Header     // of its last segment
	Len    uint32     // untagged: message length; tagged: length of the last segment's payload
	Buffer RecvBuffer // untagged
	End    uint64     // stream position behind its last segment
}

// Stream is the Data Sink of one DDP stream.
type Stream struct{}

func (s *Stream) Init(cfg StreamConfig) { panic("skeleton") }

// Place validates (sections 9.1, 9.2) and copies one segment into its buffer. start and end are its place in the stream: the order. After an error all
// further segments are dropped silently. The caller brackets bursts with the Table's Reader.
func (s *Stream) Place(start, end uint64, n int, pieces [][]byte) *Error { panic("skeleton") }

// Deliver returns the next message that is complete below edge, in order; false when none.
func (s *Stream) Deliver(edge uint64, d *Delivered) bool { panic("skeleton") }

func (s *Stream) Err() *Error { panic("skeleton") }
