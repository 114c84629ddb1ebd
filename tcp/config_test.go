package tcp

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// Each bound of a Config is the last value that is taken.
func TestConfigBounds(t *testing.T) {
	for _, cfg := range []Config{
		{SentMax: 100}, {MSS: mssFloor - 1}, {MSS: 65535 - 40 + 1},
		{ReceiveWindow: 1 << 30}, {ReceiveWindow: -1},
	} {
		require.Panics(t, func() { NewConn(cfg) }, "%+v", cfg)
	}
	for _, cfg := range []Config{
		{MSS: mssFloor}, {MSS: 65535 - 40}, {ReceiveWindow: 1<<30 - 1},
	} {
		require.NotPanics(t, func() { NewConn(cfg) }, "%+v", cfg)
	}
	require.Equal(t, sentMin, withDefaults(Config{SentMax: 1}).SentMax)
	require.Equal(t, 2*sentMin, withDefaults(Config{SentMax: 2 * sentMin}).SentMax)
	for asked, used := range map[int64]int64{7: 7, delayedAckMaxNs + 1: delayedAckMaxNs} {
		require.Equal(t, used, withDefaults(Config{DelayedAckNs: asked}).DelayedAckNs)
	}
}

// What is zero in a Config is what its fields' comments say.
func TestConfigDefaults(t *testing.T) {
	cfg := withDefaults(Config{})
	require.Equal(t, []int64{
		1 << 20, 1024, 64, 8, 5, 7, 3, 10, 10,
		200e6, 1e9, 60e9, 40e6, 60e9, 60e9, 50e6, 1e6, 5e9, 100e9,
	}, []int64{
		int64(cfg.ReceiveWindow), int64(cfg.SentMax), int64(cfg.RangesMax), int64(cfg.SynRetries),
		int64(cfg.SynAckRetries), int64(cfg.DataRetries), int64(cfg.SuspectRetries),
		int64(cfg.PacingBurst), int64(cfg.ChallengeAckMax),
		cfg.RTOMinNs, cfg.RTOInitialNs, cfg.RTOMaxNs, cfg.DelayedAckNs, cfg.TimeWaitNs, cfg.FinWait2Ns,
		cfg.PeerAckDelayNs, cfg.PTOMinNs, cfg.ChallengeAckPeriodNs, cfg.UserTimeoutNs,
	})
	require.Equal(t, mssDefault, cfg.MSS)
	require.Zero(t, withDefaults(Config{UserTimeoutNs: 1}).DataRetries, "of a program's own time")
}
