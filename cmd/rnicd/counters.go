package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"reflect"
	"syscall"
	"time"

	"github.com/rnicd/rnicd/internal/awake"
	"github.com/rnicd/rnicd/internal/port"
	"github.com/rnicd/rnicd/rnic"
	"github.com/rnicd/rnicd/stack"
	"github.com/rnicd/rnicd/stream"
)

// countersTimeout bounds the question to a Poller.
const countersTimeout = time.Second

// tally is what a daemon counted, all Pollers together, in the order of the structs it comes from.
// Names are those of docs/reference/limits.md: fields of stack.Counters, drops as layer/reason.
type tally struct {
	names []string
	count map[string]uint64
}

func (t *tally) add(name string, n uint64) {
	if _, known := t.count[name]; !known {
		t.names = append(t.names, name)
	}
	t.count[name] += n
}

// addFields adds every number in a struct, with the names of the fields that lead to it. Arrays
// have no names of their own.
func (t *tally) addFields(prefix string, v reflect.Value) {
	for i := range v.NumField() {
		name, f := prefix+v.Type().Field(i).Name, v.Field(i)
		switch f.Kind() {
		case reflect.Struct:
			t.addFields(name+".", f)
		case reflect.Uint64:
			t.add(name, f.Uint())
		case reflect.Int:
			t.add(name, uint64(f.Int()))
		}
	}
}

// addPoller adds what one Poller and its streams counted.
func (t *tally) addPoller(k *stack.Counters, s stream.Counters) {
	t.addFields("", reflect.ValueOf(*k))
	k.Each(func(layer, reason string, n uint64) { t.add(layer+"/"+reason, n) })
	t.addFields("stream.Counters.", reflect.ValueOf(s))
}

// collect gathers the counters of all that have some.
func collect(n *port.Port, dev *rnic.Adapter) (*tally, error) {
	ctx, cancel := awake.Timeout(context.Background(), countersTimeout, nil)
	defer cancel()
	t := &tally{count: map[string]uint64{}}
	for _, p := range pollersOf(n) {
		k, err := p.Counters(ctx)
		if err != nil {
			return nil, err
		}
		t.addPoller(&k, stream.CountersOf(p))
	}
	for _, x := range n.XStats() {
		t.add("xstats/"+x.Name, x.Value)
	}
	if dev != nil {
		t.addFields("StartupCounters.", reflect.ValueOf(dev.StartupCounters()))
	}
	return t, nil
}

// print writes the counters that are not zero, one a line.
func (t *tally) print(w io.Writer) {
	fmt.Fprintln(w, "counters    those that are not 0")
	for _, name := range t.names {
		if n := t.count[name]; n != 0 {
			fmt.Fprintf(w, "            %s %d\n", name, n)
		}
	}
}

// tellCounters prints the counters at each SIGUSR1, and with atEnd (--counters) when the function
// it returns is called, which is before the Pollers end.
func tellCounters(out *output, n *port.Port, dev *rnic.Adapter, atEnd bool) (end func()) {
	show := func() {
		t, err := collect(n, dev)
		out.do(func(w io.Writer) {
			if err != nil {
				fmt.Fprintf(w, "counters    cannot be read: %v\n", err)
				return
			}
			t.print(w)
		})
	}
	asked := make(chan os.Signal, 1)
	signal.Notify(asked, syscall.SIGUSR1)
	over, told := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(told)
		for {
			select {
			case <-asked:
				show()
			case <-over:
				return
			}
		}
	}()
	return func() {
		signal.Stop(asked)
		close(over)
		<-told
		if atEnd {
			show()
		}
	}
}

// pollersOf are a device's, none over the kernel's sockets.
func pollersOf(n *port.Port) []*stack.Poller {
	if n == nil {
		return nil
	}
	return n.Pollers()
}
