package cc

import "math/bits"

// Cubic is CUBIC, RFC 9438 (which obsoletes RFC 8312), with fast convergence and the slow start
// of RFC 9406. Octets and nanoseconds take the place of the RFC's segments and seconds.
type Cubic struct{}

// cubic is what CUBIC keeps of a connection.
type cubic struct {
	at int64 // the latest acknowledgment
	curve
	estCredit int // octets times octets, towards the next quarter of an SMSS of wEst, times 17
}

// curve is one congestion avoidance stage, and what Undo restores of it.
type curve struct {
	epoch     int64 // t_epoch, moved on by what t must not include
	wMax      int32 // W_max; 0: none since the start or a timeout
	wEst      int32 // W_est, the window Reno would have; 0: the stage has not begun
	cwndPrior int32 // Cwnd when Ssthresh was last set
	k         int32 // K in units of 2^-20 s
}

// running says that a stage has begun.
func (c *curve) running() bool { return c.wEst != 0 }

// beta_cubic = 0.7, and C = 0.4 = 2/5 segments per second cubed. alpha_cubic = 3 (1 - 0.7) / (1 +
// 0.7) = 9/17.
const (
	betaNum, betaDen    = 7, 10
	alphaNum, alphaDen  = 9, 17
	unitBits            = 20      // t - K is in units of 2^-20 s, its cube keeps 20 bits of fraction
	elapsedMaxNs        = 1 << 38 // 275 s: no curve is longer, and no product below overflows
	segmentsMax         = 1 << 20 // of W_max - cwnd_epoch, for K: 138 s
	smssMax             = 1 << 16
	idleRoundTrips      = 2 // a longer silence between acknowledgments is no ACK clock
	nanosecondsOfSecond = 1_000_000_000
)

func (Cubic) Name() string { return "cubic" }

func (Cubic) Start(w *State, iw int) { *w = State{Cwnd: iw, Ssthresh: CwndMax} }

func (Cubic) Acked(w *State, a Sample) {
	c := &w.cubic
	gap := a.Now - c.at
	c.at = a.Now
	if a.Recovering {
		return
	}
	// Section 4.2: t does not include what the application held back (5.8 of RFC 8312: nor idle
	// periods).
	if !a.Limited {
		c.epoch += gap
		return
	}
	if idle := gap - idleRoundTrips*a.SRTT; idle > 0 {
		c.epoch += idle
	}
	if w.Cwnd < w.Ssthresh {
		c.wEst = 0 // another stage begins after slow start
	}
	octets := slowStart(w, &a, true)
	if w.Cwnd < w.Ssthresh || a.AfterTimeout {
		return
	}
	smss := min(a.SMSS, smssMax)
	if !c.running() {
		c.begin(w.Cwnd, a.Now, smss)
		w.credit = 0
	}
	octets = min(octets, w.Cwnd)
	c.grow(w.Cwnd, octets, smss)
	t := a.Now - c.epoch
	var more int
	if est := int(c.wEst); c.window(t, smss) < est { // section 4.3, the Reno-friendly region
		more = est - w.Cwnd
	} else if target := c.window(t+a.SRTT, smss); target > w.Cwnd { // 4.4 and 4.5
		credit := int(w.credit) + (target-w.Cwnd)*octets
		if credit >= w.Cwnd {
			more = credit / w.Cwnd
			credit -= more * w.Cwnd
		}
		w.credit = int32(credit)
	}
	// Section 4.2 bounds the target by 1.5 cwnd, which is half of what is acknowledged. The same
	// bound keeps W_est from pulling cwnd up at once after it was lowered without a congestion event
	// (RFC 5681 section 4.1).
	w.Cwnd = min(w.Cwnd+min(max(more, 0), octets/2), CwndMax)
}

// begin is the first acknowledgment of a congestion avoidance stage (equation 2). After a timeout,
// and after a slow start that no congestion ended, W_max is cwnd and K is 0 (sections 4.8 and
// 4.10).
func (c *cubic) begin(cwnd int, now int64, smss int) {
	c.epoch = now
	c.wEst = int32(cwnd)
	c.estCredit, c.k = 0, 0
	if int(c.wMax) > cwnd {
		c.k = riseTime(int(c.wMax)-cwnd, smss)
	} else {
		c.wMax = int32(cwnd)
	}
}

// grow adds alpha_cubic segments per window to W_est, one where Reno would have been before
// (equation 4), in quarters of a segment: whole ones come half a segment late on average, which
// is 7 % of goodput at windows of a dozen.
func (c *cubic) grow(cwnd, octets, smss int) {
	alpha := alphaNum
	if c.wEst >= c.cwndPrior {
		alpha = alphaDen
	}
	c.estCredit += 4 * alpha * octets
	if whole := alphaDen * cwnd; c.estCredit >= whole {
		quarters := c.estCredit / whole
		c.estCredit -= quarters * whole
		c.wEst = int32(min(int(c.wEst)+quarters*smss/4, CwndMax))
	}
}

// window is W_cubic(t), equation 1, for t in nanoseconds.
func (c *curve) window(t int64, smss int) int {
	t = min(max(t, 0), elapsedMaxNs)
	d := t<<unitBits/nanosecondsOfSecond - int64(c.k)
	abs := uint64(max(d, -d))
	hi, lo := bits.Mul64(abs*abs, abs)
	cube := hi<<(64-2*unitBits) | lo>>(2*unitBits)
	delta := int(cube * uint64(smss) * 2 / 5 >> unitBits)
	if d < 0 {
		return max(int(c.wMax)-delta, 0)
	}
	return min(int(c.wMax)+delta, CwndMax)
}

// riseTime is K, equation 2: the cube root of octets/(C SMSS).
func riseTime(octets, smss int) int32 {
	const bitsOfCube = 42 // the root then has 14 bits of fraction
	octets = min(octets, smss*segmentsMax)
	hi, lo := bits.Mul64(uint64(octets), 5<<(bitsOfCube-1))
	cube, _ := bits.Div64(hi, lo, uint64(smss))
	return int32(cubeRoot(cube) << (unitBits - bitsOfCube/3))
}

// cubeRoot rounds down, one bit of the root at a time (H. S. Warren, Hacker's Delight, icbrt).
func cubeRoot(x uint64) uint64 {
	var root uint64
	for s := 63; s >= 0; s -= 3 {
		root <<= 1
		b := 3*root*(root+1) + 1
		if x>>s >= b {
			x -= b << s
			root++
		}
	}
	return root
}

func (Cubic) Reduce(w *State, why Cause, _ int64, flight, smss int) {
	w.save()
	c := &w.cubic
	from := c.reduce(w, flight, floor(why, smss))
	if from < int(c.wMax) { // section 4.7: make room for others
		from = from * (betaDen + betaNum) / (2 * betaDen)
	}
	c.wMax = int32(from)
}

// reduce sets Ssthresh by beta_cubic and returns from what: from cwnd, which section 4.6 allows
// where cwnd does not grow while less is in flight. A Poller takes in a burst of ACKs before it
// sends again, and FlightSize then lacks what the burst acknowledged: over short paths most of
// the window. Only where tcp holds cwnd below ssthresh, in a recovery with little left in flight
// or after a timeout, the smaller of ssthresh and what is outstanding stands for it.
func (c *cubic) reduce(w *State, flight, least int) int {
	from := min(max(w.Cwnd, min(flight, w.Ssthresh)), CwndMax)
	c.cwndPrior = int32(from)
	c.wEst = 0
	w.Ssthresh = max(from*betaNum/betaDen, least)
	return from
}

func (Cubic) Timeout(w *State, _ int64, flight, smss int, first bool) {
	if first {
		w.save()
		w.cubic.reduce(w, flight, 2*smss)
	}
	w.cubic.wMax, w.cubic.wEst = 0, 0
	w.Cwnd = smss // RFC 5681 section 3.1
}

// Undo is section 4.9.2: when cwnd is back where it was, the present curve is the better one.
func (Cubic) Undo(w *State) {
	if w.Cwnd >= int(w.prior.cwnd) {
		return
	}
	w.Cwnd, w.Ssthresh = int(w.prior.cwnd), int(w.prior.ssthresh)
	w.cubic.curve = w.prior.curve
	w.credit, w.cubic.estCredit = 0, 0
}
