package inet

// delayNs is DELAY_FIRST_PROBE_TIME, solicitMax MAX_MULTICAST_SOLICIT and MAX_UNICAST_SOLICIT (RFC
// 4861, 10).
const (
	delayNs    = 5_000_000_000
	solicitMax = 3

	arpRequestsMax = 4 // ours: RFC 1122 section 2.3.2.1 bounds their rate, not their number
)

// Solicit takes the source of a sound message that says its link-layer address but not that we
// reach it: a Neighbour or Router Solicitation, or a Router Advertisement (RFC 4861, 7.2.3, 6.3.4).
// A new address makes the entry Stale and lets go what waited; a known one changes nothing.
func (n *Neighbours[T]) Solicit(now int64, ip Addr, mac MAC) {
	if mac.IsGroup() || mac.IsZero() || !ip.IsStation() {
		return
	}
	i := n.table.find(&ip)
	if i < 0 {
		if i = n.insert(ip); i < 0 {
			return
		}
	}
	e := &n.table.entries[i]
	if e.state != neighbourIncomplete && e.mac == mac {
		return
	}
	n.stale(now, i, mac)
}

// Advertise applies a Neighbour Advertisement by RFC 4861, 7.2.5: no entry is made; S confirms, O
// lets another address take over, and without O another address only makes what was Reachable
// Stale.
func (n *Neighbours[T]) Advertise(now int64, nd *ND) {
	i := n.table.find(&nd.Target)
	if i < 0 {
		return
	}
	e := &n.table.entries[i]
	mac := e.mac
	if nd.HasMAC {
		mac = nd.MAC
	}
	switch {
	case e.state == neighbourIncomplete:
		if !nd.HasMAC {
			return
		}
	case mac != e.mac && !nd.Override:
		if e.state == neighbourReachable {
			n.stale(now, i, e.mac)
		}
		return
	}
	switch {
	case nd.Solicited:
		n.Learn(now, nd.Target, mac, false)
	case e.state == neighbourIncomplete || mac != e.mac:
		n.stale(now, i, mac)
	}
}

// stale gives entry i the address mac, unconfirmed.
func (n *Neighbours[T]) stale(now int64, i int32, mac MAC) {
	e := &n.table.entries[i]
	if e.state != neighbourIncomplete && e.mac != mac {
		n.stats.Moved++
	}
	used := e.waiting.count > 0 || e.state == neighbourProbing || e.state == neighbourDelay
	if e.waiting.count > 0 {
		e.usedNs = now
		n.frames.release(&e.waiting, mac)
	}
	e.mac, e.asks = mac, 0
	e.state = neighbourStale
	n.table.setTimer(i, now+n.cfg.ReachableNs)
	if used { // what was just let go is a packet sent to a Stale entry
		e.state = neighbourDelay
		n.table.setTimer(i, now+delayNs)
	}
}

// Confirm takes the transport's word that ip was heard from a moment ago because of what we sent
// (RFC 4861, 7.3.1): the entry is Reachable, and nothing is asked. It does not wake one whose
// address is unknown.
func (n *Neighbours[T]) Confirm(now int64, ip Addr) {
	i := n.table.find(&ip)
	if i < 0 {
		return
	}
	e := &n.table.entries[i]
	if e.state == neighbourIncomplete {
		return
	}
	e.state, e.asks, e.confirmedNs = neighbourReachable, 0, now
	n.table.setTimer(i, now+n.reachable(&ip))
}

// Suspect takes the transport's word that ip may be gone (RFC 1122, 3.3.1.4; RFC 9293, 3.8.3, R1):
// it is asked at once. What is being asked for or unknown stays as it is.
func (n *Neighbours[T]) Suspect(now int64, ip Addr) {
	i := n.table.find(&ip)
	if i < 0 {
		return
	}
	switch e := &n.table.entries[i]; e.state {
	case neighbourReachable, neighbourStale, neighbourDelay:
		e.state, e.asks = neighbourProbing, 0
		n.table.setTimer(i, now)
	}
}

// TakeLost returns the next address that was given up because it does not answer.
func (n *Neighbours[T]) TakeLost() (ip Addr, ok bool) {
	if len(n.lost) == 0 {
		return Addr{}, false
	}
	ip = n.lost[len(n.lost)-1]
	n.lost = n.lost[:len(n.lost)-1]
	return ip, true
}

// SetTimes takes ReachableTime and RetransTimer for IPv6 from a router; 0 leaves one as it is (RFC
// 4861, 6.3.4). What a router may say is bounded: an hour (its own maximum) and a tenth of a second
// to ten.
func (n *Neighbours[T]) SetTimes(reachableNs, retryNs int64) {
	const second = 1_000_000_000
	if reachableNs > 0 && reachableNs <= 3600*second {
		n.reachable6Ns = max(reachableNs, second)
	}
	if retryNs > 0 {
		n.retry6Ns = min(max(retryNs, second/10), 10*second)
	}
}

// RetransNs is RetransTimer of IPv6, by default or as a router says.
func (n *Neighbours[T]) RetransNs() int64 { return n.retry6Ns }

// reachable is how long a confirmation lasts: of IPv6 half to one and a half of ReachableTime at
// random (RFC 4861, 6.3.2).
func (n *Neighbours[T]) reachable(ip *Addr) int64 {
	if ip.Is4() {
		return n.cfg.ReachableNs
	}
	n.rng ^= n.rng << 13
	n.rng ^= n.rng >> 7
	n.rng ^= n.rng << 17
	return n.reachable6Ns/2 + int64(n.rng%uint64(n.reachable6Ns))
}

// retry is the time between requests.
func (n *Neighbours[T]) retry(ip *Addr) int64 {
	if ip.Is4() {
		return n.cfg.RetryNs
	}
	return n.retry6Ns
}

// asksMax is how many unanswered requests are sent.
func (n *Neighbours[T]) asksMax(ip *Addr) int {
	switch {
	case n.cfg.RetriesMax > 0:
		return 1 + n.cfg.RetriesMax
	case ip.Is4():
		return arpRequestsMax
	}
	return solicitMax
}
