package rnic

import (
	"time"

	"github.com/rnicd/rnicd/rnic/internal/connect"
	"github.com/rnicd/rnicd/rnic/internal/qp"
)

// Limits, and the defaults of what is 0; docs/reference/limits.md says where each is met.
const (
	RegionsMaxDefault = 4096 // Config
	connsMaxDefault   = 1024
	eventsDefault     = 256
	BacklogDefault    = 128 // ListenOptions
	BacklogMax        = 1 << 16
	CQDepthMax        = 1 << 20
	SRQDepthMax       = 1 << 20

	queueDepthDefault = 128 // QPOptions.SendDepth and RecvDepth, SRQOptions.Depth
	QueueDepthMax     = 1 << 14
	sgeMaxDefault     = 4
	SGEMaxLimit       = qp.SGEMaxLimit
	SharedSGEMax      = qp.SharedSGEMax // ranges of a receive buffer of a SharedReceiveQueue
	InlineMaxDefault  = 64
	InlineMaxLimit    = qp.InlineMaxLimit
	NoInline          = -1 // QPOptions.InlineMax: inline data is not wanted

	ReadDepthMax     = 1<<14 - 2           // ConnParam.IRD and ORD
	ReadDepthULP     = 1<<14 - 1           // likewise: the ULPs settle it, not start-up
	ReadDepthDefault = qp.ReadDepthDefault // what there is room for where a depth is ReadDepthULP

	WakeUpDefault = 200 * time.Millisecond // a good Quirks.WakeUp for peers that are Linux siw
	// how long after its Reply a Responder sends first that knows nothing more of the Initiator
	SendFirstPause = connect.SendFirstPause
)
