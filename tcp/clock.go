package tcp

// Times that a Conn keeps for long have 32 bits. They wrap, and only differences between two mean
// anything: those of seconds for 136 years, those of milliseconds for 49 days.
type (
	seconds      uint32
	milliseconds uint32
)

func secondsOf(now int64) seconds { return seconds(now / 1_000_000_000) }

func millisecondsOf(now int64) milliseconds { return milliseconds(now / 1_000_000) }
