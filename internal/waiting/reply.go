package waiting

// reply says whether to poll for the peer's answer before a sleep.
//
// Where a program that looks at memory shares the Poller's core, a Poller that sleeps is woken by
// the device in some 15 us, most of them an interrupt between processors. One that polls has the
// answer at once, but keeps the core. So it polls where the last answer came soon, for twice as
// long as that one took. The idea is KVM's halt polling (Linux, virt/kvm/kvm_main.c, halt_poll_ns),
// which grows and shrinks such a time by whether the last poll was long enough. Where the program
// posts again before the peer has answered there is no answer to wait for, and what it needs is the
// core.
type reply struct {
	arrivals, asked uint64 // the Poller's, when the last Turn ended
	sentAt          int64  // the last Turn that sent, if nothing has arrived since; else 0
	within          int64  // how long to poll after that
}

// turned is called after each Turn, which was at now. arrivals and asked count what has come and
// gone with octets for the ULP: an acknowledgement alone is no answer, and asks for none.
func (r *reply) turned(now int64, arrivals, asked uint64, most int64) {
	if arrivals != r.arrivals {
		if r.sentAt != 0 {
			r.took(now-r.sentAt, most)
		}
		r.sentAt = 0
	} else if asked != r.asked {
		if r.sentAt != 0 {
			r.within = 0
		}
		r.sentAt = now
	}
	r.arrivals, r.asked = arrivals, asked
}

func (r *reply) took(ns, most int64) {
	r.within = 0
	if ns <= most {
		r.within = min(2*ns, most)
	}
}

// soon says that the answer is to be polled for.
func (r *reply) soon(now int64) bool { return r.sentAt != 0 && now-r.sentAt < r.within }
