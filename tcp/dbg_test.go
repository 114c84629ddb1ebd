package tcp
import "testing"
func TestDbg(t *testing.T) {
	s := simOf(uint64(*simSeed))
	err := s.run(2_000_000)
	t.Logf("%v", err)
	for _, h := range []*simHost{s.a, s.b} {
		t.Logf("%s total %d events %b state %v edge %d got %d una %d nxt %d pushed %d finq %v hasFin %v finTaken %v rel %d/%d\n%+v", h.name, h.total, h.events, h.c.state, h.c.edge, len(h.got), h.c.sndUna, h.c.sndNxt, h.c.pushed, h.c.finQueued, h.c.hasFin, h.c.finTaken, h.released, len(h.handles), h.c.stats)
	}
}
