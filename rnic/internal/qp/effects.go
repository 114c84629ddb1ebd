package qp

// Effects of a call on the connection. After each call into the engine the connection looks whether
// there are any.
type Effects uint8

const (
	EffectSend      Effects = 1 << iota // there is something to pull
	EffectOpened                        // a Responder may send from now on
	EffectCloseHalf                     // nothing more will be sent: close our half, if it is not being closed
	EffectShort                         // octets were refused, for want of packet buffers perhaps
	EffectLeave                         // the stream is at its end for effectError: close our half after its Terminate
	EffectFail                          // reset the connection for effectError
)

// HasEffects says whether there is something for TakeEffects to return.
func (q *Engine) HasEffects() bool { return q.effects != 0 }

// TakeEffects returns what the calls since the last time mean for the connection. err is
// EffectLeave's or EffectFail's.
func (q *Engine) TakeEffects() (fx Effects, err error) {
	fx, err = q.effects, q.effectError
	q.effects, q.effectError = 0, nil
	return fx, err
}

// affect notes an end of the stream. The first reason stays.
func (q *Engine) affect(fx Effects, err error) {
	q.effects |= fx
	if q.effectError == nil {
		q.effectError = err
	}
}
