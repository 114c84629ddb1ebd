package tcp

import "github.com/rnicd/rnicd/internal/cc"

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
func withDefaults(cfg Config) Config {
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

func defaultTo[T int | int64](v *T, d T) {
	if *v == 0 {
		*v = d
	}
}
