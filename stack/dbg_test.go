package stack
import "testing"
func dump(b testing.TB, l *lab, src *mover) {
	for _, h := range l.hosts { n := h.last; b.Logf("%s turns %d empty %d sleeps %d rx %d tx %d txwaits %d nobuf %d txfull %d timers %d skipped %d", h.cfg.Name, n.Turns, n.EmptyTurns, n.Sleeps, n.RxFrames, n.TxFrames, n.TxWaits, n.NoBufWaits, n.Queue.TxFull, n.Timers, n.TxSkipped) }
}
