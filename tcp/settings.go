package tcp

// Config of a connection. Zero fields take the default.
type Config struct {
	MSS            int // announced; MTU - 40 for IPv4; default 1460
	ReceiveWindow  int // octets beyond the left edge, default 1 MiB
	NoTimestamps   bool
	NoSACK         bool
	NoWindowScale  bool
	SentMax        int   // segments in flight or queued, a power of two, default 1024, at least 16
	RangesMax      int   // out-of-order ranges held, default 64
	RecordsMax     int   // records of sent segments of all connections; default: by their number
	SpansMax       int   // out-of-order ranges of all connections; default: by their number
	RTOMinNs       int64 // the least by which the RTO exceeds SRTT, default 200 ms
	RTOInitialNs   int64 // default 1 s
	RTOMaxNs       int64 // default 60 s
	DelayedAckNs   int64 // default 40 ms, at most 500 ms; every second full segment is ACKed at once
	TimeWaitNs     int64 // default 60 s
	SynRetries     int   // default 8, the last after 3 minutes (RFC 9293 section 3.8.3)
	SynAckRetries  int   // of a half-open connection in a listener's cache, default 5
	SuspectRetries int   // retransmissions in a row before the next hop is doubted, default 3
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

// UserTimeout is UserTimeoutNs or its default.
func (cfg *Config) UserTimeout() int64 {
	if cfg.UserTimeoutNs == 0 {
		return 100_000_000_000
	}
	return cfg.UserTimeoutNs
}

// ECNMode is what a connection does about ECN. A congestion control that lives on marks asks for it
// whatever the mode.
type ECNMode uint8

const (
	ECNOff     ECNMode = iota // neither ask nor accept
	ECNPassive                // accept when the peer's SYN asks
	ECNActive                 // ask as well
)
