package tcp

import "testing"

// req: 8985-6.2-5, 8985-4-1
func TestRACKThreshold(t *testing.T) { runScenario(t, "rack_threshold") }

// req: 8985-6.2-5, 8985-6.2-8
func TestRACKReorderingTimer(t *testing.T) { runScenario(t, "rack_reordering_timer") }

// req: 8985-6.2-4, 8985-6.2-5
func TestRACKReordering(t *testing.T) { runScenario(t, "rack_reordering") }

// req: 8985-6.2-7, 5681-4.3-1, 8985-9.3-1
func TestRACKLostRetransmission(t *testing.T) { runScenario(t, "rack_lost_retransmission") }

// req: 8985-6.2-2
func TestRACKLateOriginal(t *testing.T) { runScenario(t, "rack_late_original") }

// req: 8985-6.2-2
func TestRACKEchoOfTheOriginal(t *testing.T) { runScenario(t, "rack_echo_of_the_original") }

// req: 8985-6.2-3
func TestRACKLatestOfAnAck(t *testing.T) { runScenario(t, "rack_latest_of_an_ack") }

// req: 8985-6.2-7
func TestRACKTailInRecovery(t *testing.T) { runScenario(t, "rack_tail_in_recovery") }

// req: 8985-6.2-3
func TestRACKOneTimePerBurst(t *testing.T) { runScenario(t, "rack_one_time_per_burst") }

// req: 8985-6.3-1
func TestRACKTimeout(t *testing.T) { runScenario(t, "rack_timeout") }

// req: 8985-6.2-6
func TestRACKWindowFollowsDSACK(t *testing.T) { runScenario(t, "rack_dsack") }

// req: 8985-7.2-1, 8985-7.3-1, 8985-7.3-2
func TestProbeIsADuplicate(t *testing.T) { runScenario(t, "tlp_duplicate") }

// req: 8985-7.4.2-1
func TestProbeIsADuplicateWithoutDSACK(t *testing.T) {
	runScenario(t, "tlp_duplicate_without_dsack")
}

// req: 8985-7.4.2-1, 8985-7.2-1
func TestProbeRepairs(t *testing.T) { runScenario(t, "tlp_repairs") }

func TestProbeRevealsWhatLiesBefore(t *testing.T) { runScenario(t, "tlp_general") }

// req: 8985-7.3-2
func TestProbeWithANewSegment(t *testing.T) { runScenario(t, "tlp_new_segment") }

// req: 8985-7.3-1
func TestOneProbe(t *testing.T) { runScenario(t, "tlp_once") }

// req: 8985-7.2-1, 6298-5-6
func TestProbeTimerBeforeASample(t *testing.T) { runScenario(t, "tlp_before_a_sample") }

// req: 8985-7.2-1
func TestProbeIsNotLaterThanTheTimeout(t *testing.T) { runScenario(t, "tlp_rto_sooner") }

func TestProbeOnAShortPath(t *testing.T) {
	runScenario(t, "tlp_short_path")
	runScenario(t, "tlp_short_path_pto")
}

// req: 8985-7.3-1
func TestProbeNeedsASample(t *testing.T) { runScenario(t, "tlp_needs_a_sample") }

func TestProbeInRecovery(t *testing.T) { runScenario(t, "tlp_in_recovery") }

// req: 5681-4.3-1
func TestProbeInRecoveryRepairs(t *testing.T) { runScenario(t, "tlp_in_recovery_repairs") }

// req: 6675-4-2, 6675-5-2, 6675-5-4, 5681-4.3-2, 9937-6.2-4
func TestSeveralHolesInOneWindow(t *testing.T) { runScenario(t, "prr_several_holes") }

// req: 9937-6.2-5
func TestPRRNothingDelivered(t *testing.T) { runScenario(t, "prr_nothing_delivered") }

// req: 9937-6.2-2
func TestPRRNoSafeACK(t *testing.T) { runScenario(t, "prr_no_safe_ack") }

// req: 6937-3-1, 9937-6.1-1, 9937-6.2-1, 5681-4.3-2
func TestPRRProportional(t *testing.T) { runScenario(t, "prr_proportional") }

// req: 6937-3-2, 9937-6.2-2
func TestPRRBound(t *testing.T) { runScenario(t, "prr_bound") }

func TestTimeoutKeepsTheScoreboard(t *testing.T) { runScenario(t, "timeout_scoreboard") }

// req: 2883-5-1
func TestDSACKUndoes(t *testing.T) { runScenario(t, "dsack_undo") }

func TestDSACKOfTheNetworkUndoesNothing(t *testing.T) { runScenario(t, "dsack_of_the_network") }

func TestEifelFastRetransmit(t *testing.T) { runScenario(t, "eifel_fast_retransmit") }

func TestEifelOfAnotherHole(t *testing.T) { runScenario(t, "eifel_other_hole") }

func TestEifelTimeout(t *testing.T) { runScenario(t, "eifel_timeout") }

func TestEifelGenuineTimeout(t *testing.T) { runScenario(t, "eifel_genuine") }

func TestFRTOSpurious(t *testing.T) { runScenario(t, "frto_spurious") }

func TestFRTOGenuine(t *testing.T) { runScenario(t, "frto_genuine") }

func TestFRTODiscarded(t *testing.T) { runScenario(t, "frto_discarded") }

func TestFRTOWithNothingNew(t *testing.T) { runScenario(t, "frto_nothing_new") }

func TestFRTONotAgain(t *testing.T) { runScenario(t, "frto_again") }

func TestFRTOWithWhatNagleKeeps(t *testing.T) { runScenario(t, "frto_nagle") }

// req: 3042-2-1, 5681-3.2-5
func TestLimitedTransmitScenario(t *testing.T) { runScenario(t, "limited_transmit") }

// req: 6582-3.2-1
func TestNewRenoPartialAcks(t *testing.T) { runScenario(t, "newreno_partial_acks") }

// req: 1191-6.4-1
func TestPathMTUDecrease(t *testing.T) { runScenario(t, "pmtu_decrease") }

func TestPathMTUDecreaseWithALoss(t *testing.T) { runScenario(t, "pmtu_loss") }

// req: 9293-SHLD-15, 9293-SHLD-16, 9293-MAY-7
func TestLossUnderAShrunkenWindow(t *testing.T) { runScenario(t, "shrunken_window") }

// req: 3168-6.1.3-1, 3168-6.1.1-3, 3168-6.1.5-1, 3168-6.1.1-1
func TestECNEcho(t *testing.T) { runScenario(t, "ecn_echo") }

// req: 3168-6.1.2-1, 3168-6.1.2-3, 3168-6.1.1-3
func TestECNResponse(t *testing.T) { runScenario(t, "ecn_response") }

// req: 3168-6.1.2-1, 3168-6.1.2-3
func TestECNAfterALoss(t *testing.T) { runScenario(t, "ecn_after_loss") }

func TestDCTCPFeedback(t *testing.T) { runScenario(t, "dctcp_feedback") }

func TestDCTCPFeedbackOfALoneSegment(t *testing.T) { runScenario(t, "dctcp_lone") }

func TestDCTCPFeedbackOfABurst(t *testing.T) { runScenario(t, "dctcp_burst") }

// A recovery that the reordering timer begins is one as any: it reduces, and sends no more than PRR
// allows.
//
// req: 8985-9.3-1, 5681-4.3-2, 6675-5-2, 9937-6.2-3, 9937-5-1
func TestPRRReorderingTimerEnters(t *testing.T) { runScenario(t, "prr_timer_enters") }

// req: 6937-3-2, 9937-6.2-2
func TestPRRFollowsTheReorderingTimer(t *testing.T) { runScenario(t, "prr_timer") }

func TestPacing(t *testing.T) { runScenario(t, "pacing") }

// req: 6582-4-1, 5681-4.3-1
func TestNewRenoLostAgain(t *testing.T) { runScenario(t, "newreno_lost_again") }

// req: 6582-4-1, 6582-3.2-2
func TestNewRenoNeedless(t *testing.T) { runScenario(t, "newreno_needless") }

// req: 6582-3.2-1
func TestNewRenoPart(t *testing.T) { runScenario(t, "newreno_part") }

// req: 6582-3.2-1, 6582-4-1
func TestNewRenoPartIsNoStray(t *testing.T) { runScenario(t, "newreno_part_stray") }

func TestNewRenoWindow(t *testing.T) { runScenario(t, "newreno_window") }
