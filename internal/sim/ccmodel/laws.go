package ccmodel

import "math"

// infinite is ssthresh before anything has set it.
const infinite = math.MaxFloat64

// reno is RFC 5681, with RFC 9406's end of slow start when hystart.
type reno struct {
	w, thresh float64
	hystart   bool
	delay     delay
}

func (r *reno) start(iw float64) { r.w, r.thresh = iw, infinite }
func (r *reno) window() float64  { return r.w }
func (r *reno) slowStart() bool  { return r.w < r.thresh }

func (r *reno) acked(a ack) {
	if a.recovering || !a.limited {
		return
	}
	if r.slowStart() {
		r.rise(a)
		return
	}
	r.w += 1 / r.w
}

// rise is slow start, for one segment.
func (r *reno) rise(a ack) {
	if !r.hystart || r.thresh != infinite {
		r.w = min(r.w+1, max(r.thresh, r.w))
		return
	}
	if r.delay.rounds > 0 {
		r.w += 0.25
	} else {
		r.w++
	}
	if r.delay.over(a) {
		r.thresh = r.w
	}
}

func (r *reno) reduce(_, flight float64, mark bool) {
	r.thresh = max(min(flight, r.w)/2, least(mark))
	r.w = r.thresh
}

func (r *reno) timeout(_, flight float64) {
	r.thresh = max(flight/2, 2)
	r.w = 1
}

// least is the smallest window that a reduction leaves.
func least(mark bool) float64 {
	if mark {
		return 1
	}
	return 2
}

// delay is RFC 9406 sections 4.2 and 4.3.
type delay struct {
	end             int
	last, current   float64 // 0: none
	samples, rounds int
	baseline        float64
}

func (d *delay) over(a ack) bool {
	if d.current == 0 || a.rtt < d.current {
		d.current = a.rtt
	}
	d.samples++
	if d.samples >= 8 {
		eta := math.Min(math.Max(d.last/8, 0.004), 0.016)
		switch {
		case d.rounds > 0 && d.current < d.baseline:
			d.rounds = 0
		case d.rounds == 0 && d.last > 0 && d.current >= d.last+eta:
			d.baseline, d.rounds = d.current, 1
		}
	}
	if a.una < d.end {
		return false
	}
	if d.rounds == 5 {
		return true
	}
	if d.rounds > 0 {
		d.rounds++
	}
	d.end, d.last, d.current, d.samples = a.nxt, d.current, 0, 0
	return false
}

// cubic is RFC 9438 with fast convergence, in its own variables.
type cubic struct {
	reno
	wMax, k, est, prior, epoch float64
	running                    bool
}

const (
	cubicC    = 0.4
	cubicBeta = 0.7
)

func (c *cubic) start(iw float64) {
	c.reno.start(iw)
	c.hystart = true
}

func (c *cubic) acked(a ack) {
	if a.recovering {
		return
	}
	if !a.limited {
		c.epoch += a.srtt / c.w // about the time between two acknowledgments
		return
	}
	if c.slowStart() {
		c.running = false
		c.rise(a)
		return
	}
	if !c.running {
		c.running = true
		c.epoch, c.est, c.k = a.now, c.w, 0
		if c.wMax > c.w {
			c.k = math.Cbrt((c.wMax - c.w) / cubicC)
		} else {
			c.wMax = c.w
		}
	}
	alpha := 3 * (1 - cubicBeta) / (1 + cubicBeta)
	if c.est >= c.prior {
		alpha = 1
	}
	c.est += alpha / c.w
	at := func(t float64) float64 { return cubicC*math.Pow(t-c.k, 3) + c.wMax }
	t := a.now - c.epoch
	if at(t) < c.est {
		c.w = max(c.w, c.est)
		return
	}
	target := min(max(at(t+a.srtt), c.w), 1.5*c.w)
	c.w += (target - c.w) / c.w
}

func (c *cubic) reduce(_, _ float64, mark bool) {
	c.prior, c.running = c.w, false
	if c.w < c.wMax {
		c.wMax = c.w * (1 + cubicBeta) / 2
	} else {
		c.wMax = c.w
	}
	c.thresh = max(c.w*cubicBeta, least(mark))
	c.w = c.thresh
}

func (c *cubic) timeout(_, _ float64) {
	c.prior, c.wMax, c.running = c.w, 0, false
	c.thresh = max(c.w*cubicBeta, 2)
	c.w = 1
}

// dctcp is RFC 8257; slow start ends by a mark.
type dctcp struct {
	reno
	alpha        float64
	end          int
	acks, marked float64
}

func (d *dctcp) acked(a ack) {
	d.acks++
	if a.marked {
		d.marked++
	}
	if a.una > d.end {
		d.alpha += (d.marked/d.acks - d.alpha) / 16
		d.end, d.acks, d.marked = a.nxt, 0, 0
	}
	d.reno.acked(a)
}

func (d *dctcp) reduce(now, flight float64, mark bool) {
	if !mark {
		d.reno.reduce(now, flight, false)
		return
	}
	d.thresh = max(d.w*(1-d.alpha/2), 2)
	d.w = d.thresh
}
