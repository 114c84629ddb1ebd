package inet

// Input is RFC 826's packet reception for the station ip at mac, its only address on the link. a comes from ParseARP.
//
//  1. An existing entry of the sender is updated before target or operation are looked at (the merge).
//  2. A new one is made only if the packet is a request to us. RFC 826 would take a reply too; but a reply to us that
//     we asked for finds its entry, so any other was not asked for.
//  3. A request to us gets reply, to be sent to its TargetMAC; answer says so. Nobody else is answered for.
//
// DropSource: the sender claims our own address, an error of configuration or an echo of ours; nothing is learned.
func (n *Neighbours[T]) Input(now int64, a *ARP, ip Addr, mac MAC) (reply ARP, answer bool, d Drop) {
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
