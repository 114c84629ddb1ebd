package mpa

// Preferences of one end.
type Preferences struct {
	Markers bool // we want markers in what we receive
	CRC     bool // we want CRC; on unless the administrator says otherwise
	Rev     uint8
}

// Frame is the start-up frame that states p. At Rev 0 it asks for markers and CRC whatever p says:
// an RDMA Consortium peer knows nothing else (RFC 5044 section C.1, DECISIONS 7).
func (p Preferences) Frame(kind FrameKind, privateData []byte) Frame {
	return Frame{
		Kind:        kind,
		Markers:     p.Markers || p.Rev == 0,
		CRC:         p.CRC || p.Rev == 0,
		Rev:         p.Rev,
		PrivateData: privateData,
	}
}

// Agreement is the result of start-up for one end.
type Agreement struct {
	Send, Receive Mode
	Rev           uint8
	Version       uint8 // of DDP and RDMAP: 0 for Rev 0, else 1 (DECISIONS 6)
}

// agree computes one end's modes from both frames (local is what we sent or will send). It takes
// both Revs as served: an end that does not serve the other's closes instead (RFC 5044 section
// 7.1.1).
//
// The lower Rev governs. CRC is used in both directions if either frame asks for it; the M bit we
// receive governs what we send, the one we send governs what we receive (RFC 5044 section 7.1.1,
// DECISIONS 12).
func agree(local, remote Frame) Agreement {
	crc := local.CRC || remote.CRC
	a := Agreement{
		Send:    Mode{Markers: remote.Markers, CRC: crc},
		Receive: Mode{Markers: local.Markers, CRC: crc},
		Rev:     min(local.Rev, remote.Rev),
		Version: 1,
	}
	if a.Rev == 0 {
		a.Version = 0
	}
	// RFC 5044 section C.2.5: a Rev 0 Reply with M set to our Request of a later Rev comes from an
	// RDMA Consortium RNIC, which sends markers whatever our Request said.
	if remote.Rev == 0 && local.Rev > 0 && remote.Markers {
		a.Receive.Markers = true
	}
	return a
}
