package tcp

// SYN cookies (RFC 4987 section 3.6, after D. J. Bernstein, 1996): a listener under a flood keeps
// nothing of a SYN. What it must know when the last ACK of the handshake comes stands in the
// initial sequence number and, if the peer sends timestamps, in the low bits of the one it will
// echo.
//
//	 31     30      28 27                         0        timestamp   31               6   5    4   3     0
//	┌──────┬──────────┬────────────────────────────┐      ┌──────────────────────────────┬─────┬────┬───────┐
//	│ slot │ MSS class│ MAC of 4-tuple, IRS, slot, │      │ clock                        │ ECN │SACK│ scale │
//	│      │          │ class                      │      │                              │     │    │       │
//	└──────┴──────────┴────────────────────────────┘      └──────────────────────────────┴─────┴────┴───────┘
//
// The bits in the timestamp are laid out as Linux does it (net/ipv4/syncookies.c). Without
// timestamps window scale, SACK and ECN are off, and the SYN,ACK does not offer them. The MAC is
// the caller's: a keyed function that no peer can compute. A cookie is good for one to two
// slots; one guess in 2^28 hits.

const (
	cookieSlotNs    = 64_000_000_000
	cookieMACBits   = 28
	cookieClassBits = 3
	cookieTSBits    = 6
	cookieNoScale   = 15
	cookieSACK      = 1 << 4
	cookieECN       = 1 << 5
)

// CookieLifeNs is how long after it was made a cookie may still be good.
const CookieLifeNs = 2 * cookieSlotNs

// cookieMSS are the classes: the peer's MSS is rounded down to one of them. They are what paths
// have today, and the least there is.
var cookieMSS = [1 << cookieClassBits]uint16{mssFloor, mssAbsent, 1220, 1360, 1440,
	1460, 4036, 8940}

// CookieSlot is the number of the present slot.
func CookieSlot(now int64) uint32 { return uint32(now / cookieSlotNs) }

// Cookie takes from h what a cookie cannot say, so that h need not be kept. class goes into the
// caller's MAC; SetCookie follows.
func (h *Half) Cookie(cfg *Config) (class uint8) {
	mss := h.mss
	if mss == 0 {
		mss = mssAbsent
	}
	for class = 1<<cookieClassBits - 1; class > 0 && cookieMSS[class] > mss; class-- {
	}
	if h.ts = h.ts && !cfg.NoTimestamps; !h.ts {
		h.sack, h.scale = false, -1
		h.flags &^= ECE | CWR
	}
	h.sack = h.sack && !cfg.NoSACK
	return class
}

// SetCookie makes the initial sequence number a cookie of slot and class.
func (h *Half) SetCookie(slot uint32, class uint8, mac uint32) {
	h.iss = cookie(slot, class, mac)
}

func cookie(slot uint32, class uint8, mac uint32) Seq {
	return Seq(slot<<31 | uint32(class)<<cookieMACBits | mac&(1<<cookieMACBits-1))
}

// CookieSynAck makes h's SYN,ACK after SetCookie.
func (h *Half) CookieSynAck(now int64, id ID, template *Conn, t *Transmit) {
	h.make(now, id, template, t)
	if !t.Options.HasTimestamps {
		return
	}
	bits := uint32(cookieNoScale)
	if h.scale >= 0 {
		bits = uint32(h.scale)
	}
	if h.sack {
		bits |= cookieSACK
	}
	if h.flags&(ECE|CWR) == ECE|CWR {
		bits |= cookieECN
	}
	clock := t.Options.TSval
	val := clock&^(1<<cookieTSBits-1) | bits
	if int32(val-clock) > 0 {
		val -= 1 << cookieTSBits // never ahead of what the connection will send
	}
	t.Options.TSval = val
}

// CookieOf takes what ack acknowledges for a cookie, and says in which slot (the present one or the
// one before) and with which class it was made. Whether it is a cookie at all, CookieMatches says.
func CookieOf(now int64, ack *Segment) (slot uint32, class uint8) {
	iss := uint32(ack.Ack - 1)
	slot = CookieSlot(now)
	if slot&1 != iss>>31 {
		slot--
	}
	return slot, uint8(iss >> cookieMACBits & (1<<cookieClassBits - 1))
}

// CookieMatches says whether ack acknowledges the cookie of slot, class and mac.
func CookieMatches(ack *Segment, slot uint32, class uint8, mac uint32) bool {
	return ack.Flags&(SYN|RST|ACK) == ACK && ack.Ack == cookie(slot, class, mac)+1
}

// FromCookie is the Half that was not kept, from the segment whose cookie matches; Resume follows.
func FromCookie(tsOffset uint32, ack *Segment, class uint8) Half {
	h := Half{
		iss: ack.Ack - 1, irs: ack.Seq - 1, tsOffset: tsOffset, mss: cookieMSS[class], window: ack.Window,
		scale: -1, flags: SYN,
	}
	if ack.Options.HasTimestamps {
		bits := ack.Options.TSecr
		h.ts, h.tsVal = true, ack.Options.TSval
		h.sack = bits&cookieSACK != 0
		if scale := bits & cookieNoScale; scale != cookieNoScale {
			h.scale = int8(scale)
		}
		if bits&cookieECN != 0 {
			h.flags |= ECE | CWR
		}
	}
	return h
}
