package port

import (
	"slices"
	"time"

	"github.com/rnicd/rnicd/pmd"
	"github.com/rnicd/rnicd/pmd/dpdk"
)

const (
	troublePeriod = 10 * time.Second // between two troubles of one kind that are told
	// StuckAfter is how long a queue of the device takes nothing before that is told.
	StuckAfter = 5 * time.Second
)

// DeviceReporter is told what becomes of a device.
type DeviceReporter interface {
	// Link has changed.
	Link(dpdk.Link)
	// Stuck: a queue of the device has taken no frame for StuckAfter; or it does again.
	Stuck(queue int, stuck bool, link dpdk.Link)
	// Trouble has changed, or is over. A trouble of one kind is told once in 10 s at most: one that
	// comes and goes meanwhile is not.
	Trouble(was, is pmd.Trouble)
	// Offences: so many more connections ended because memory of a memif peer went away, or was slow.
	Offences(n uint64)
}

// linked is a device with a link.
type linked interface{ Link() dpdk.Link }

// monitored is a device that says how it is.
type monitored interface {
	linked
	Stuck(now time.Time, atLeast time.Duration) (queues []int)
}

// offender is a device with a peer that can do wrong.
type offender interface{ Offences() uint64 }

// TroubleOf says what is wrong with a device, as it is now. Any goroutine, not during or after
// the device's Close.
func TroubleOf(device pmd.Port) (none pmd.Trouble) {
	switch d := device.(type) {
	case pmd.Troubled:
		return d.Trouble()
	case linked:
		if !d.Link().Up {
			return pmd.Trouble{Kind: pmd.TroubleLink, Text: device.Name() + " has no link"}
		}
	}
	return none
}

// Connected says whether frames of a device can get anywhere, and whether they could ever. Any
// goroutine, not during or after the device's Close.
func Connected(device pmd.Port) (now, ever bool) {
	if d, ok := device.(interface{ LinkUps() uint64 }); ok { // memif
		now = device.(interface{ LinkUp() bool }).LinkUp()
		return now, d.LinkUps() > 0
	}
	now = !TroubleOf(device).Stops()
	return now, now
}

// OffencesOf are the connections that ended because memory of the device's peer went away, or was
// slow. Any goroutine.
func OffencesOf(device pmd.Port) uint64 {
	if d, ok := device.(offender); ok {
		return d.Offences()
	}
	return 0
}

// Health tells of a device when something about it has changed. One goroutine.
type Health struct {
	device    pmd.Port
	monitored monitored // nil: it says nothing of links and queues
	link      dpdk.Link
	stuck     []int
	trouble   pmd.Trouble          // that was told
	troubleAt map[string]time.Time // by kinds
	offences  uint64
}

// NewHealth is the Health of an open device. Its link as it is now is not told.
func NewHealth(device pmd.Port) *Health {
	h := &Health{device: device, troubleAt: map[string]time.Time{}}
	if m, ok := device.(monitored); ok {
		h.monitored, h.link = m, m.Link()
	}
	return h
}

// Look is to be called about once a second.
func (h *Health) Look(now time.Time, r DeviceReporter) {
	if h.monitored != nil {
		h.lookAtQueues(now, r)
	}
	if d, ok := h.device.(pmd.Troubled); ok {
		h.tell(d.Trouble(), now, r)
	}
	if n := OffencesOf(h.device); n > h.offences {
		r.Offences(n - h.offences)
		h.offences = n
	}
}

func (h *Health) lookAtQueues(now time.Time, r DeviceReporter) {
	if link := h.monitored.Link(); link != h.link {
		h.link = link
		r.Link(link)
	}
	stuck := h.monitored.Stuck(now, StuckAfter)
	for _, i := range stuck {
		if !slices.Contains(h.stuck, i) {
			r.Stuck(i, true, h.link)
		}
	}
	for _, i := range h.stuck {
		if !slices.Contains(stuck, i) {
			r.Stuck(i, false, h.link)
		}
	}
	h.stuck = stuck
}

// tell reports a trouble that differs from the one told last.
func (h *Health) tell(is pmd.Trouble, now time.Time, r DeviceReporter) {
	last, told := h.troubleAt[is.Kind]
	if is == h.trouble || told && now.Sub(last) < troublePeriod {
		return
	}
	r.Trouble(h.trouble, is)
	h.trouble = is
	if is.Kind != "" {
		h.troubleAt[is.Kind] = now
	}
}
