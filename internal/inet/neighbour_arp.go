package inet

// Input is RFC 826's packet reception for the station ip at mac, its only address on the link. a
// comes from ParseARP.
//
//  1. An existing entry of the sender is updated before target or operation are looked at (the
//     merge).
//  2. A new one is made only if the packet is a request to us. RFC 826 would take a reply too;
//     but a reply to us that we asked for finds its entry, so any other was not asked for.
//  3. A request to us gets reply, to be sent to its TargetMAC; answer says so. No other address
//     is answered for.
//
// DropSource: the sender claims our own address, an error of configuration or an echo of ours;
// nothing is learned.
func (n *Neighbours[T]) Input(now int64, a *ARP, ip Addr,
	mac MAC) (reply ARP, answer bool, d Drop) {
	if a.SenderIP == ip {
		return ARP{}, false, DropSource
	}
	asked := a.Op == ARPRequest && a.TargetIP == ip
	n.Learn(now, a.SenderIP, a.SenderMAC, asked)
	if !asked {
		return ARP{}, false, DropNone
	}
	return a.Reply(mac), true, DropNone
}

// doubt says whether entry i keeps its station although another claims the address. RFC 826
// believes the last one that speaks, so any station on the link can have anybody's traffic for one
// packet. Here the station we know is asked first, by unicast, and only when it has let one
// question go unanswered is another believed; one that has just answered, not at all. A station
// that really took over announces itself again, or is found by broadcast when the old one has been
// given up (RFC 5227 section 2.4 gives the owner of an address as much to say).
func (n *Neighbours[T]) doubt(now int64, i int32) bool {
	e := &n.table.entries[i]
	switch e.state {
	case neighbourReachable:
		if now-e.confirmedNs >= n.cfg.RetryNs {
			e.state, e.asks = neighbourProbing, 0
			n.table.setTimer(i, now)
		}
		return true
	case neighbourProbing:
		return e.asks < 2
	}
	return false
}
