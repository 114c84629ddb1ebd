package inet

import (
	"math"
	"net/netip"
)

// RoutesMax bounds a table, routes learned from routers included.
const RoutesMax = 64

// gatewayRestNs is how long a gateway that did not answer is passed over while another does.
const gatewayRestNs = 60_000_000_000

// v4Bits is how many bits of the 128-bit form are the same in all IPv4 addresses: a shorter prefix
// is one of IPv6.
const v4Bits = 96

// Route is a way to the destinations of Prefix: through Gateway, or, when that is the zero
// netip.Addr, on the link.
type Route struct {
	Prefix  netip.Prefix
	Gateway netip.Addr
}

// Routes names the next hop: the longest prefix first, among equals a gateway that is not known to
// be dead, then the order in which they were added. Dead gateways are found by what the neighbour
// table learns and the transport advises (RFC 1122, 3.3.1.4), never by pinging. Several routes with
// the same prefix are several default gateways. One goroutine.
type Routes struct {
	routes []routeEntry
}

type routeEntry struct {
	prefix  Addr
	bits    int   // in the 128-bit form
	gateway Addr  // zero: on-link
	expires int64 // math.MaxInt64: configured, for ever
	restTo  int64 // passed over until then
}

// NewRoutes makes an empty table.
func NewRoutes() *Routes { return &Routes{routes: make([]routeEntry, 0, RoutesMax)} }

// Room is how many routes can be added.
func (r *Routes) Room() int { return cap(r.routes) - len(r.routes) }

// Add puts in a configured route. False: the table is full.
func (r *Routes) Add(route Route) bool {
	bits := route.Prefix.Bits()
	if route.Prefix.Addr().Is4() {
		bits += 96
	}
	gateway := Addr{}
	if route.Gateway.IsValid() {
		gateway = AddrFrom(route.Gateway)
	}
	return r.add(AddrFrom(route.Prefix.Addr()), bits, gateway, math.MaxInt64)
}

// Remove takes a route out that leads to a's first bits, in the 128-bit form, on the link: one, of
// several that do.
func (r *Routes) Remove(a Addr, bits int) {
	for i := range r.routes {
		if e := &r.routes[i]; e.bits == bits && e.gateway == (Addr{}) && e.prefix.InPrefix(a, bits) {
			r.remove(i)
			return
		}
	}
}

// Learn puts in, or renews, what a router advertised, until expires; one in the past ends it (RFC
// 4861, 6.3.4). A configured route stays as it is. bits counts from an IPv6 address's start. False:
// the table is full.
func (r *Routes) Learn(now int64, prefix Addr, bits int, gateway Addr, expires int64) bool {
	for i := range r.routes {
		e := &r.routes[i]
		if e.bits != bits || e.gateway != gateway || !e.prefix.InPrefix(prefix, bits) {
			continue
		}
		if e.expires != math.MaxInt64 {
			e.expires = expires
			if expires <= now {
				r.remove(i)
			}
		}
		return true
	}
	return expires <= now || r.add(prefix, bits, gateway, expires)
}

func (r *Routes) add(prefix Addr, bits int, gateway Addr, expires int64) bool {
	if len(r.routes) == cap(r.routes) {
		return false
	}
	r.routes = append(r.routes, routeEntry{prefix: prefix, bits: bits, gateway: gateway,
		expires: expires})
	return true
}

func (r *Routes) remove(i int) { r.routes = append(r.routes[:i], r.routes[i+1:]...) }

// Lookup is the next hop towards dst: dst itself on the link. ok is false without a route (RFC
// 1122, 3.3.1.1, 3.3.1.2).
func (r *Routes) Lookup(now int64, dst Addr) (hop Addr, ok bool) {
	best := -1
	for i := range r.routes {
		e := &r.routes[i]
		if e.expires <= now || !dst.InPrefix(e.prefix, e.bits) || dst.Is4() && e.bits < v4Bits {
			continue
		}
		if best < 0 || e.bits > r.routes[best].bits || e.bits == r.routes[best].bits && e.restTo <= now &&
			r.routes[best].restTo > now {
			best = i
		}
	}
	switch {
	case best < 0:
		return Addr{}, false
	case r.routes[best].gateway == (Addr{}):
		return dst, true
	}
	return r.routes[best].gateway, true
}

// OnLink is true when dst is reached without a gateway.
func (r *Routes) OnLink(now int64, dst Addr) bool {
	hop, ok := r.Lookup(now, dst)
	return ok && hop == dst
}

// Dead says that hop does not answer. True: it is a gateway, and its routes rest.
func (r *Routes) Dead(now int64, hop Addr) (gateway bool) {
	for i := range r.routes {
		if e := &r.routes[i]; e.gateway == hop && hop != (Addr{}) {
			e.restTo = now + gatewayRestNs
			gateway = true
		}
	}
	return gateway
}

// IsDead says whether hop is a gateway that rests.
func (r *Routes) IsDead(now int64, hop Addr) bool {
	for i := range r.routes {
		if e := &r.routes[i]; e.gateway == hop && hop != (Addr{}) && e.restTo > now {
			return true
		}
	}
	return false
}

// Forget drops what was learned of a router that said it is none any more (RFC 4861, 7.2.5). True:
// there was something.
func (r *Routes) Forget(router Addr) (was bool) {
	for i := len(r.routes) - 1; i >= 0; i-- {
		if e := &r.routes[i]; e.gateway == router && router != (Addr{}) && e.expires != math.MaxInt64 {
			r.remove(i)
			was = true
		}
	}
	return was
}

// Deadline is when Expire is next due (math.MaxInt64: never).
func (r *Routes) Deadline() int64 {
	at := int64(math.MaxInt64)
	for i := range r.routes {
		at = min(at, r.routes[i].expires)
	}
	return at
}

// Expire drops what was learned and has outlived its time, and says whether there was any.
func (r *Routes) Expire(now int64) (was bool) {
	for i := len(r.routes) - 1; i >= 0; i-- {
		if r.routes[i].expires <= now {
			r.remove(i)
			was = true
		}
	}
	return was
}
