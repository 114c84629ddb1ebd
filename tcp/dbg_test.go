package tcp
import "testing"
func TestDbg(t *testing.T) {
	s := simOf(uint64(*simSeed))
	err := s.run(2_000_000)
	t.Logf("%v", err)
	for _, h := range []*simHost{s.a, s.b} {
		c := h.c
		t.Logf("%s total %d events %b state %v edge %d got %d una %d nxt %d pushed %d finq %v hasFin %v finTaken %v rel %d/%d pause %d now %d room %d\n%+v cong %+v unsent %v free %d wnd %d phase %v lost %d\n%+v", h.name, h.total, h.events, h.c.state, h.c.edge, len(h.got), h.c.sndUna, h.c.sndNxt, h.c.pushed, h.c.finQueued, h.c.hasFin, h.c.finTaken, h.released, len(h.handles), h.pauseTill, s.now, c.Room(s.now), c.timers, c.cong, c.sent.unsent(), c.sent.free(), c.sndWnd, c.recovery.phase, c.sent.lost, h.c.stats)
	}
}
