// Package ring is the memory that the C library of package verbs and its Go engine share: the layout of
// queues, completions and control calls in memory that both see. rnicd_ring.h is the same in C;
// verbs/cshared compares the two when it is compiled.
//
// It stands beside rnic and knows nothing of it. The engine takes nothing on trust that the other
// side can write: entries are copied before they are looked at, and indices are masked.
package ring

// Sizes.
const (
	QPsMax     = 4096 // queue pairs of a process: one doorbell bit each
	Calls      = 64   // control calls under way at a time
	CallArgs   = 16
	CallData   = 1024
	PrivateMax = 512
	SGEsPer    = 4  // ranges in an entry after a work request's
	EntryLen   = 64 // octets of an entry

	// What ibv_query_device and ibv_query_port tell of a process and its messages.
	// with the rings of queue pairs fewer than the mappings of a process (vm.max_map_count)
	CQsMax     = 1 << 14
	PDsMax     = 1 << 16
	MRsMax     = 1 << 15
	MWsMax     = 1<<16 - MRsMax - QPsMax // a queue pair has a region of its own
	SRQsMax    = 1 << 12
	MRSizeMax  = 1 << 42
	MessageMax = 1<<31 - 1
)

// SGE is a range of registered memory.
type SGE struct {
	Addr   uint64
	Length uint32
	LKey   uint32
}

// Operations.
const (
	OpSend = iota + 1
	OpWrite
	OpRecv
	OpSendInvalidate
	OpRead
	OpFetchAdd
	OpCompareSwap
	OpImmediate
	OpLocalInvalidate
	OpWriteImmediate
)

// Flags of a WQE.
const (
	Signaled = 1 << iota
	Solicited
	Fence
	Inline
)

// WQE is a work request; ranges or inline octets that do not fit are in the entries after it.
type WQE struct {
	ID         uint64
	Local      SGE
	RemoteAddr uint64
	RKey       uint32
	Op, Flags  uint8
	More       uint8
	_          uint8
	Operand    [3]uint64
}

// Queue is the head of a ring of entries that C fills.
type Queue struct {
	Tail uint32
	_    [15]uint32
	Head uint32
	Over uint32
	_    [14]uint32
}

// CQE is a completion.
type CQE struct {
	ID          uint64
	QPNum       uint32
	Length      uint32
	Op, Status  uint8
	Flags       uint8
	_           uint8
	Invalidated uint32
	Immediate   [8]byte
	Seq         uint32
	_           [7]uint32
}

// Flags of a CQE.
const (
	CQESolicited = 1 << iota
	CQEImmediate
)

// CQ is the head of a ring of completions that C empties.
type CQ struct {
	Head    uint32
	_       [15]uint32
	Armed   uint32
	Written uint32
	_       [14]uint32
}

// Waits is what the engine knows of threads that wait on a channel for completions.
type Waits struct{ Waiting, Written uint32 }

// What CQ.Armed asks for.
const (
	Disarmed = iota
	ArmedSolicited
	ArmedAny
)

// States of a Call.
const (
	CallFree = iota
	CallTaken
	CallPosted
	CallDone
)

// Call is a control call.
type Call struct {
	State uint32
	Op    uint32
	Error int32
	Size  uint32
	Arg   [CallArgs]uint64
	Data  [CallData]byte
}

// Control calls; rnicd_ring.h says what they take and return.
const (
	Open = iota + 1
	Close
	AllocPD
	FreePD
	RegMR
	PermitMR
	DeregMR
	CreateCQ
	DestroyCQ
	CreateSRQ
	ArmSRQ
	QuerySRQ
	DestroySRQ
	CreateQP
	PermitQP
	AbortQP
	DestroyQP
	CMCreate
	CMMigrate
	CMDestroy
	CMBind
	CMResolve
	CMRoute
	CMListen
	CMConnect
	CMAccept
	CMReject
	CMDisconnect
	AllocMW
	BindMW
	FreeMW
	CloseChannel
	Adopt
	Leave
	QueryQP
	ResizeCQ
	Forget
	RevokeMR
)

// CMEvent is an event of the connection manager.
type CMEvent struct {
	Cookie             uint64
	Request            uint64
	Type               uint32
	Status             int32
	ResponderResources uint8
	InitiatorDepth     uint8
	PrivateSize        uint16
	_                  uint32
	Local, Peer        [28]byte
	Private            [PrivateMax]byte
}

// AsyncEvent is an asynchronous event.
type AsyncEvent struct {
	Cookie uint64
	Type   uint32
	_      uint32
}

// Area is what a process and its engine share beside the rings.
type Area struct {
	Sleeping  uint32
	WakeFD    int32
	_         [14]uint32
	Dozing    uint32
	BellFD    int32
	_         [14]uint32
	Crowded   uint32
	_         [15]uint32
	Progress  uint32
	Waiting   uint32
	Process   uint32
	_         [13]uint32
	Summary   uint64
	_         [7]uint64
	Doorbells [QPsMax / 64]uint64
	Calls     [Calls]Call
}
