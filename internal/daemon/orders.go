package daemon

import (
	"os"
	"os/signal"
	"sync"
	"syscall"
)

// Orders are the signals of a daemon's or a switch's process. One goroutine takes them that does
// nothing else: it is never held up by what they lead to.
//
//	SIGHUP            Reload has one order, however many signals came since the last was taken
//	SIGUSR1           Show, likewise
//	SIGTERM, SIGINT   the first closes End, the second Cut; the third kills
type Orders struct {
	Reload, Show chan struct{}
	End, Cut     chan struct{}

	signals chan os.Signal
	over    chan struct{}
	ended   sync.WaitGroup

	mu   sync.Mutex
	last os.Signal // that told to end
}

// TakeOrders takes the signals until Stop. shows: SIGUSR1 is one of them.
func TakeOrders(shows bool) *Orders {
	o := &Orders{
		Reload: make(chan struct{}, 1), Show: make(chan struct{}, 1), End: make(chan struct{}),
		Cut:     make(chan struct{}),
		signals: make(chan os.Signal, 16), over: make(chan struct{}),
	}
	taken := []os.Signal{syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP}
	if shows {
		taken = append(taken, syscall.SIGUSR1)
	}
	signal.Notify(o.signals, taken...)
	o.ended.Go(o.run)
	return o
}

// Stop takes no more signals: they do what they do to any process.
func (o *Orders) Stop() {
	signal.Stop(o.signals)
	close(o.over)
	o.ended.Wait()
}

// Last is the signal that told to end last.
func (o *Orders) Last() os.Signal {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.last
}

func (o *Orders) run() {
	for ends := 0; ; {
		select {
		case s := <-o.signals:
			switch s {
			case syscall.SIGHUP:
				order(o.Reload)
			case syscall.SIGUSR1:
				order(o.Show)
			default:
				o.mu.Lock()
				o.last = s
				o.mu.Unlock()
				switch ends++; ends {
				case 1:
					close(o.End)
				case 2:
					signal.Stop(o.signals)
					close(o.Cut)
				}
			}
		case <-o.over:
			return
		}
	}
}

func order(to chan struct{}) {
	select {
	case to <- struct{}{}:
	default: // there is one that was not taken
	}
}
