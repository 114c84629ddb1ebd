package inet

// Protocol numbers.
const (
	ProtoICMP = 1
	ProtoTCP  = 6
)

const (
	EtherTypeIPv4 = 0x0800
	EtherTypeARP  = 0x0806
	EtherTypeVLAN = 0x8100
	EtherTypeIPv6 = 0x86dd

	EthernetLen = 14
	IPv4Len     = 20
	ARPLen      = 28
)

// Drop says why a packet was not accepted. Every package of the receive path has such a list; the Poller counts
// by it and /metrics names it.
type Drop uint8

const (
	DropNone Drop = iota
	DropShort
	DropEtherType
	DropNotOurs
	DropVersion
	DropHeaderLen
	DropTotalLen
	DropChecksum
	DropFragment
	DropProto
	DropBadARP
	DropBadICMP
	DropSource // source address impossible (multicast, broadcast, our own)
	DropMax
)

func (d Drop) String() string { panic("skeleton") }

// Ethernet is a parsed Ethernet II header.
type Ethernet struct {
	Dst, Src MAC
	Type     uint16
}

func ParseEthernet(b []byte) (h Ethernet, payload []byte, d Drop) { panic("skeleton") }
func (h *Ethernet) Put(b []byte)                                  { panic("skeleton") } // EthernetLen octets

// IPv4 is a parsed IPv4 header.
type IPv4 struct {
	TOS      uint8
	ID       uint16
	DF, MF   bool
	FragOff  int // octets
	TTL      uint8
	Proto    uint8
	Src, Dst Addr
	HdrLen   int // options included
	TotalLen int
}

// ParseIPv4 checks version, lengths and, unless checksumGood, the header checksum; payload ends at TotalLen (Ethernet padding cut).
func ParseIPv4(b []byte, checksumGood bool) (h IPv4, payload []byte, d Drop) { panic("skeleton") }

// Put writes a 20-octet header (no options) with its checksum; TotalLen must be set.
func (h *IPv4) Put(b []byte) { panic("skeleton") }

// Sum adds b, as big-endian 16-bit words, to a ones-complement sum; Fold makes 16 bits of it. The odd last octet is padded, so only the last part may be odd.
func Sum(b []byte, s uint64) uint64                           { panic("skeleton") }
func Fold(s uint64) uint16                                    { panic("skeleton") } // folded, not complemented
func PseudoSum(src, dst Addr, proto uint8, length int) uint64 { panic("skeleton") }

// Checksum is ^Fold(Sum(b, s)).
func Checksum(b []byte, s uint64) uint16 { panic("skeleton") }

// ARP is a parsed Ethernet/IPv4 ARP packet.
type ARP struct {
	Op                   uint16 // 1 request, 2 reply
	SenderMAC, TargetMAC MAC
	SenderIP, TargetIP   Addr
}

func ParseARP(b []byte) (ARP, Drop) { panic("skeleton") }
func (a *ARP) Put(b []byte)         { panic("skeleton") }

// EchoReply turns an ICMPv4 echo request (the ICMP part, b) into its reply in place. False: not a valid echo request.
func EchoReply(b []byte, checksumGood bool) bool { panic("skeleton") }

// ICMPError is the part of a received ICMP error a transport needs.
type ICMPError struct {
	Type, Code uint8
	MTU        uint16 // type 3 code 4
	Src, Dst   Addr   // of the quoted packet
	Proto      uint8
	Quoted     []byte // the quoted transport octets, at least 8
}

func ParseICMPError(b []byte) (ICMPError, bool) { panic("skeleton") }

// NeighbourConfig bounds a table.
type NeighbourConfig struct {
	EntriesMax  int   // default 1024
	QueueMax    int   // frames waiting per unresolved entry, default 16
	ReachableNs int64 // default 30 s: then stale, refreshed by a unicast request
	RetryNs     int64 // default 1 s between requests
	RetriesMax  int   // default 3, then unreachable: queued frames are dropped, entry removed
}

// Neighbours is the ARP cache with its resolution queue. T is the caller's frame handle (mem.Buf).
// It never does I/O: Lookup queues, Tick says what to ask, Learn gives back what waited.
type Neighbours[T any] struct{ zero T }

func NewNeighbours[T any](cfg NeighbourConfig) *Neighbours[T] { panic("skeleton") }

// Lookup returns the MAC when known. Else frame is queued (queued = true) or, with a full queue or table, not, and the caller drops it.
// ask is true when a request should be sent now.
func (n *Neighbours[T]) Lookup(now int64, ip Addr, frame T) (mac MAC, known, queued, ask bool) {
	panic("skeleton")
}

// Learn records ip at mac. When asked is false (gratuitous or a request's sender) only existing entries are updated
// unless create. ready receives the frames that waited, in order, via Take.
func (n *Neighbours[T]) Learn(now int64, ip Addr, mac MAC, create bool) { panic("skeleton") }

// Take returns the next frame whose neighbour has become known (ok) with its MAC.
func (n *Neighbours[T]) Take() (frame T, mac MAC, ok bool) { panic("skeleton") }

// TakeDropped returns the next frame whose neighbour was given up.
func (n *Neighbours[T]) TakeDropped() (frame T, ok bool) { panic("skeleton") }

// Deadline is when Tick is next due (math.MaxInt64: never).
func (n *Neighbours[T]) Deadline() int64 { panic("skeleton") }

// Tick expires entries; each call returns one address to ask for (unicast to mac unless it is Broadcast), until ok is false.
func (n *Neighbours[T]) Tick(now int64) (ip Addr, mac MAC, ok bool) { panic("skeleton") }
