package tcp

import "github.com/rnicd/rnicd/internal/cc"

// Config of a connection. Zero fields take the default.
type Config struct {
	MSS            int // announced; MTU - 40 for IPv4; default 1460
	ReceiveWindow  int // octets beyond the left edge, default 1 MiB
	NoTimestamps   bool
	NoSACK         bool
	NoWindowScale  bool
	SentMax        int   // segments in flight or queued, a power of two, default 1024, at least 16
	RangesMax      int   // out-of-order ranges held, default 64
	RecordsMax     int   // records of sent segments of all Conns of a Memory; default: NewMemory
	SpansMax       int   // out-of-order ranges of all Conns of a Memory; default: NewMemory
	RTOMinNs       int64 // the least by which the RTO exceeds SRTT, default 200 ms
	RTOInitialNs   int64 // default 1 s
	RTOMaxNs       int64 // default 60 s
	DelayedAckNs   int64 // default 40 ms, at most 500 ms; every second full segment is ACKed at once
	TimeWaitNs     int64 // default 60 s
	SynRetries     int   // default 8, the last after 3 minutes (RFC 9293 section 3.8.3)
	SynAckRetries  int   // of a half-open connection in a listener's cache, default 5
	SuspectRetries int   // retransmissions in a row before EvSuspect, default 3
	FinWait2Ns     int64 // how long an orphan waits for the peer's FIN, default 60 s
	UserTimeoutNs  int64 // unacknowledged data or probes for this long: timed out; default 100 s
	DataRetries    int   // of data before it times out; default 7, 0 if UserTimeoutNs is set
	// segments, default what RFC 6928 says: 10, or with a large MSS 14600 octets, at least 2
	InitialWindow int
	// drop segments without timestamps once they were agreed on; Linux takes them
	StrictTimestamps bool
	NoDelay          bool // no Nagle
	NoIdleRestart    bool // keep cwnd over an idle time (against the advice of RFC 5681 section 4.1)

	Congestion  Congestion // of CongestionByName; nil: cubic
	ECN         ECNMode
	TOS         uint8 // DS field of all segments; the low two bits are not taken. SetTOS changes it
	Pacing      bool
	PacingBurst int // segments that may go at once, default 10
	// how long a peer may hold the ACK of a lone segment (TLP.max_ack_delay), default 50 ms: 40 and
	// a timer tick
	PeerAckDelayNs int64
	// least time before a tail loss probe, default 1 ms; between two that poll, 100 us mends losses
	// sooner
	PTOMinNs int64

	ChallengeAckMax      int   // challenge ACKs per period, default 10 (RFC 5961 section 7)
	ChallengeAckPeriodNs int64 // default 5 s
}

const (
	mssDefault = 1460
	mssAbsent  = 536 // RFC 9293 section 3.7.1, MUST-15
	mssAbsent6 = 1220
	// a smaller one offered by a peer is taken as this: below it headers outweigh data
	mssFloor          = 64
	receiveWindowMax  = 1<<30 - 1
	sentMin           = 16
	delayedAckMaxNs   = 499_000_000   // RFC 9293 section 3.8.6.3, MUST-40: below 0.5 s
	overrideNs        = 200_000_000   // RFC 9293 section 3.8.6.2.1: 0.1 to 1.0 s
	paws24DaysS       = 24 * 86400    // RFC 7323 section 5.5
	timestampTickNs   = 1_000_000     // RFC 7323 section 5.4
	redialNs          = 1_000_000_000 // one tick of the slowest timestamp clock
	rtoAfterSynLossNs = 3_000_000_000 // RFC 6298 section 5.7
)

// withDefaults fills zero fields. It panics on values no TCP can work with: they are the embedder's
// mistake.
func (cfg Config) withDefaults() Config {
	defaultTo(&cfg.MSS, mssDefault)
	defaultTo(&cfg.ReceiveWindow, 1<<20)
	defaultTo(&cfg.SentMax, 1024)
	defaultTo(&cfg.RangesMax, 64)
	defaultTo(&cfg.RTOMinNs, 200_000_000)
	defaultTo(&cfg.RTOInitialNs, 1_000_000_000)
	defaultTo(&cfg.RTOMaxNs, 60_000_000_000)
	defaultTo(&cfg.DelayedAckNs, 40_000_000)
	defaultTo(&cfg.TimeWaitNs, 60_000_000_000)
	defaultTo(&cfg.SynRetries, 8)
	defaultTo(&cfg.SynAckRetries, 5)
	if cfg.UserTimeoutNs == 0 {
		cfg.UserTimeoutNs = cfg.UserTimeout()
		defaultTo(&cfg.DataRetries, 7)
	}
	defaultTo(&cfg.SuspectRetries, 3)
	defaultTo(&cfg.FinWait2Ns, 60_000_000_000)
	defaultTo(&cfg.PacingBurst, 10)
	defaultTo(&cfg.PeerAckDelayNs, 50_000_000)
	defaultTo(&cfg.PTOMinNs, 1_000_000)
	if cfg.Congestion == nil {
		cfg.Congestion = cc.Cubic{}
	}
	defaultTo(&cfg.ChallengeAckMax, 10)
	defaultTo(&cfg.ChallengeAckPeriodNs, 5_000_000_000)
	cfg.DelayedAckNs = min(cfg.DelayedAckNs, delayedAckMaxNs)
	cfg.SentMax = max(cfg.SentMax, sentMin)
	if cfg.SentMax&(cfg.SentMax-1) != 0 {
		panic("tcp: Config.SentMax is not a power of two")
	}
	if cfg.MSS < mssFloor || cfg.MSS > 65535-40 {
		panic("tcp: Config.MSS outside 64..65495")
	}
	if cfg.ReceiveWindow < 0 || cfg.ReceiveWindow > receiveWindowMax {
		panic("tcp: Config.ReceiveWindow outside 0..2^30-1 (RFC 7323 section 2.2)")
	}
	return cfg
}

// UserTimeout is UserTimeoutNs or its default.
func (cfg *Config) UserTimeout() int64 {
	if cfg.UserTimeoutNs == 0 {
		return 100_000_000_000
	}
	return cfg.UserTimeoutNs
}

func defaultTo[T int | int64](v *T, d T) {
	if *v == 0 {
		*v = d
	}
}
