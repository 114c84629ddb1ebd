// Package ring is the memory that the C library of package verbs and its Go engine share: the heads
// of queues, control calls and events. Requests and completions in these queues are package wq's.
//
// rnicd_ring.h is generated from both packages, by `go test ./verbs/... -run TestHeader -update`;
// the test fails where it is another. The types have no hidden padding, so that C lays them out as
// Go does.
//
// All words that both sides use while the program runs are atomic. The engine takes nothing on
// trust that the other side can write: entries are copied before they are looked at, and indices
// are masked.
package ring

// Limits of a process.
const (
	QPsMax     = 4096 // queue pairs: one doorbell bit each. Their rings: vm.max_map_count
	CQsMax     = 1 << 14
	PDsMax     = 1 << 16
	MRsMax     = 1 << 15
	OwnedMax   = 1 << 16                 // descriptors in a table of the engine's
	MWsMax     = 1<<16 - MRsMax - QPsMax // a queue pair has a region of its own
	SRQsMax    = 1 << 12
	MRSizeMax  = 1 << 42
	MessageMax = 1<<31 - 1
)

// Why a datagram is dropped.
const (
	DropMalformed = iota // no datagram of ours, or its sender's port is not that of its number
	DropNumber           // no queue pair has the number, or it does not receive yet
	DropQKey
	DropNoBuffer // none was posted
	DropTooLong  // for the next buffer
	DropUnsent   // of our own, which the kernel did not take
	DropStranger // from an address that is not allowed
	Drops
)

// Limits of a queue pair and a completion queue.
const (
	WRMax        = 1 << 14 // requests, or receive buffers
	SGEMax       = 16
	SRQRangesMax = 4
	InlineMax    = 512
	CQEMax       = 1 << 20
	DatagramMax  = 4096 // octets of a message of UD
	GroupsMax    = 64   // of multicast, of a process
	GIDsMax      = 64
)

// Sizes.
const (
	Calls      = 64 // control calls under way at a time
	CallArgs   = 16
	CallData   = 1024 // octets that go along with a call, either way
	PrivateMax = 512
)

// Queue is the head of a ring of wq.WQE, a power of two of them, that C fills. The producer writes
// entries and then Tail, which counts them and wraps. Completions tell it what was taken.
type Queue struct {
	Tail uint32
	_    [15]uint32
	Over uint32 // the connection is over: what is posted from now on needs a doorbell
	// 1: of requests, after PauseQP: those that were begun have completed
	Drained uint32
	_       [14]uint32
}

// CQ is the head of a ring of wq.CQE that C empties. An entry is there when its seq is its position
// plus 1.
type CQ struct {
	Head    uint32 // the consumer's: what it has taken
	_       [15]uint32
	Armed   uint32
	Written uint32 // 1: a peer has written to memory while Armed was ArmedAny
	_       [14]uint32
}

// Waits are what the engine knows of threads that wait on a channel for completions.
type Waits struct {
	Waiting uint32 // threads that wait for an event. One that begins to looks at Written then
	Written uint32 // 1: a queue has its Written set
}

// What CQ.Armed asks for.
const (
	Disarmed       = iota
	ArmedSolicited // an event for a solicited completion or an error
	ArmedAny
)

// States of a Call.
const (
	CallFree = iota
	CallTaken
	CallPosted
	CallDone
)

// Call is a control call: a slot that one thread uses at a time.
type Call struct {
	State uint32 // a futex
	Op    uint32
	Error int32  // an errno, or 0
	Size  uint32 // octets of data
	Arg   [CallArgs]uint64
	Data  [CallData]byte
}

// Control calls, with what they take. "->" is what comes back in Arg, from 0 on. Handles are the
// engine's numbers; channels are file descriptors of sockets that the engine writes events to and
// closes when told.
const (
	Open     = iota + 1 // async channel, cookie -> context
	Close               // context
	AllocPD             // -> pd
	FreePD              // pd
	RegMR               // pd, address, length, iova, access -> mr, key
	PermitMR            // mr, access: with the same key
	DeregMR             // mr
	// depth, channel or -1, cookie, context, address of its Waits or 0, which stays, 1: completions
	// say when they were published, by CLOCK_MONOTONIC -> cq, address of its CQ, entries
	CreateCQ
	DestroyCQ // cq
	// pd, depth, ranges, cookie, context -> srq, address of its Queue, entries, address of a bit
	// for each id: the buffer is free again, and no completion says so
	CreateSRQ
	ArmSRQ     // srq, limit
	QuerySRQ   // srq -> limit, 0 after its event
	DestroySRQ // srq
	// pd, send cq, receive cq, srq or 0, send depth, receive depth, ranges, inline, cookie,
	// context -> qp, number, doorbell bit, address of the send queue, entries, of the receive
	// queue, entries
	CreateQP
	PermitQP  // qp, access: what the peer may do
	AbortQP   // qp
	DestroyQP // qp
	CMCreate  // channel, cookie, 1: of RDMA_PS_UDP -> id
	// id, channel, the program's end of the old one: nobody reads there meanwhile
	CMMigrate
	CMDestroy // id
	// id, IPv6 only, shared; data: address -> ; data: address. No data: so from now on
	CMBind
	// id, octets of the source's address, shared; data: source, destination -> ; data: source
	CMResolve
	CMRoute  // id
	CMListen // id, backlog
	// id, qp, responder resources, initiator depth, rnr_retry_count + 1; data: private data. Of
	// RDMA_PS_UDP: id, the number of the queue pair, its Q_Key
	CMConnect
	CMAccept     // the same
	CMReject     // id; data: private data
	CMDisconnect // id
	AllocMW      // pd -> mw, key
	BindMW       // mw, mr, address, length, access -> key
	FreeMW       // mw
	CloseChannel // channel
	// id of a connection request, channel, cookie: events about it go there from now on
	Adopt
	Leave // the program ends: what still goes on has a moment to end in order
	// qp -> Reads and atomics of its own that may be outstanding, of the peer's; 0 before it is
	// connected
	QueryQP
	// cq, entries; nobody polls meanwhile -> address of the first entry from now on, entries. The
	// head stays
	ResizeCQ
	// channel, the program's end of it, cookie of an object that is gone: takes events about it
	// away. Nobody reads there meanwhile
	Forget
	RevokeMR // mr: nothing is reached by its key any more
	// -> MTU, MAC (its first octet first in memory), 0 over the kernel's sockets; data: addresses,
	// of 16 octets each, that connections are bound to. None: all of the host's
	Addresses
	// qp, the peer's number, Reads and atomics of the peer's that may be outstanding; data: GID of
	// this end, of the peer. It begins to connect, by number
	ConnectQP
	// qp, timeout, retry_cnt, rnr_retry, min_rnr_timer, 1: it is in RTS
	TimeQP
	ResetQP  // qp: what was posted is forgotten, nobody posts or polls meanwhile
	CreateUD // as CreateQP, for datagrams
	// qp, enum ibv_qp_state, Q_Key, 1: to SQD, with an event when it is drained. To RESET: its rings
	// are empty, and nothing of it completes any more
	ModifyUD
	DestroyUD // qp
	// qp, 1: attach, 0: detach; data: the group's GID, that of the interface it is joined at
	AttachUD
	// id of RDMA_PS_UDP, qp or 0, what comes back in CMEvent.Request, Q_Key; data: address of the
	// group. It attaches the queue pair, and tells
	CMJoin
	// Data: the name of the interface that the device is at, or nothing. From now on PortDown and
	// Changes are right, and events tell of it
	WatchPort
	// qp, 1: requests that were begun complete, and no more are begun; 0: they are again, 1: with an
	// event when they have
	PauseQP
	Tell // data: a line for an operator who looks at what the program does
	// key, address within a region, as its peers have it, length -> address; EFAULT: it has none, or
	// not for access flags of the fourth
	FindMR
)

// CMEvent is an event of the connection manager, one datagram.
type CMEvent struct {
	Cookie             uint64 // of the id that it is about; of a request the listener's
	Request            uint64 // of a request: the new id; of a group: CMJoin's
	Type               uint32 // enum rdma_cm_event_type
	Status             int32
	ResponderResources uint8
	InitiatorDepth     uint8
	PrivateSize        uint16
	Number, QKey       uint32 // of RDMA_PS_UDP: where datagrams go
	_                  uint32
	Local, Peer        [28]byte // sockaddr_in or sockaddr_in6
	Private            [PrivateMax]byte
}

// AsyncEvent is an asynchronous event, one datagram.
type AsyncEvent struct {
	Cookie uint64 // of the queue pair, completion queue or shared receive queue
	Type   uint32 // enum ibv_event_type
	_      uint32
}

// Area is what a process and its engine share beside the rings.
type Area struct {
	Sleeping uint32 // who serves calls waits for WakeFD to be written
	WakeFD   int32  // an eventfd
	_        [14]uint32
	Dozing   uint32 // who looks at doorbells does: swap it for 0, then write BellFD
	BellFD   int32  // an eventfd, there before the first queue pair
	_        [14]uint32
	Crowded  uint32 // 1: who looks at doorbells shares its processor with threads that run
	// 1: a thread that finds nothing, or has posted something, may carry on the engine by itself
	Drives uint32
	_      [14]uint32
	// Who looks at doorbells leaves the rest to threads that do: swap it for 0, then write BellFD,
	// for one that begins to wait, once Waits is 1.
	Resting uint32
	Waits   uint32
	// polls that found work for the engine, but nothing for the program, as the poll before: about as
	// many, for threads count them without a lock
	Polls    uint64
	_        [12]uint32
	Progress uint32 // a futex: counted for completions, somewhere; woken if Waiting is not 0
	Waiting  uint32 // threads of the program that wait for it
	Process  uint32 // the number of this process: the upper 24 bits of its handles
	Looks    uint32 // 1: the device looks like one of RoCE (Host.RoCE); there before the engine is
	// address of a table with a bit for each descriptor below OwnedMax: it is the engine's, and not
	// the program's to close; 0: there is none yet
	Owned uint64
	// how often the addresses in use have changed, perhaps; and 1: the port is down (WatchPort)
	Changes  uint32
	PortDown uint32
	_        [8]uint32
	// GIDs of address handles, by the index in the table: two words each, as C has the octets
	Sources [2 * GIDsMax]uint64
	// datagrams that were dropped, by DropMalformed and those after it. The engine writes them
	Drops     [Drops]uint64
	_         [8 - Drops]uint64
	Summary   uint64 // one bit for each word of Doorbells
	_         [7]uint64
	Doorbells [QPsMax / 64]uint64
	Calls     [Calls]Call
}
