package qp

// Effects are what calls into the engine mean for the connection, which takes them after each.
type Effects uint16

const (
	EffectSend      Effects = 1 << iota // there are octets to pull
	EffectOpened                        // a Responder may send now
	EffectCloseHalf                     // nothing more will be sent: close our half
	EffectNeedBufs                      // the next octets in order were refused because Bufs are short
	EffectWantBufs                      // octets beyond a gap were
	// an error ended the stream: close our half when the Terminate has been pulled
	EffectLeave
	EffectFail // reset the connection
	// there are acknowledgements: call SendAcknowledgements unless octets are pulled before
	EffectSendLater
	EffectNotReady // call Resume after NotReadyTime
)

// HasEffects says whether there is something for TakeEffects to return.
func (q *Engine) HasEffects() bool { return q.effects != 0 }

// TakeEffects returns, and clears, the effects of all calls since the last TakeEffects. err is the
// reason for EffectLeave or EffectFail; with both, for the one that came first.
func (q *Engine) TakeEffects() (fx Effects, err error) {
	fx, err = q.effects, q.effectError
	q.effects, q.effectError = 0, nil
	return fx, err
}

// affect notes an end of the stream. The first reason is kept.
func (q *Engine) affect(fx Effects, err error) {
	q.effects |= fx
	if q.effectError == nil {
		q.effectError = err
	}
}
