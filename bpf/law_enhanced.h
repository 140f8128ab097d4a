/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * The "enhanced" controller of paper 002: Hybla's growth with a reference round trip of 75 ms, a slow start in three
 * phases, and cuts in three steps after Veno's measure of the queue. Rules, symbols and readings:
 * crates/cc/src/controllers/enhanced.rs (the resolved reading). Beyond those, growth stays within LAW_FLIGHTS flights
 * also where a threshold is known.
 */
#ifndef SKY_LAW_ENHANCED_H
#define SKY_LAW_ENHANCED_H

#include "law.h"

/* RTT0. */
#define ENHANCED_REFERENCE_US 75000U
/* Backlogs below which a loss leaves 4/5 and 3/5 of the window, in 1/128 segments. */
#define ENHANCED_FEW_Q7 (3U << 7)
#define ENHANCED_MANY_Q7 (6U << 7)

struct law_enhanced {
	struct law_base base;
	__u32 reference_us;
};

LAW_INLINE void law_enhanced_init(struct law_enhanced *s, const struct law_setup *setup)
{
	law_begin(&s->base, setup);
	s->reference_us = setup->reference_us ? setup->reference_us : ENHANCED_REFERENCE_US;
}

LAW_INLINE void law_enhanced_sample(struct law_enhanced *s, const struct law_ack *ack)
{
	law_round(&s->base, ack);
}

/* Half segments per acknowledged segment in slow start, over 2^rho - 1: 4, 2 or 1. */
LAW_INLINE __u64 law_enhanced_phase(__u64 window, __u64 threshold, const struct law_ack *ack)
{
	__u64 flight = ack->flight, rwnd = ack->rwnd;
	int known = ack->ssthresh < LAW_NO_SSTHRESH;

	if ((known && 4 * window >= 3 * threshold) || 4 * flight > 3 * rwnd)
		return 1;
	return (!known || 4 * window <= threshold) && 4 * flight < rwnd ? 4 : 2;
}

LAW_INLINE void law_enhanced_grow(struct law_enhanced *s, struct law_ack *ack)
{
	__u64 window = law_now(&s->base, ack), limit = law_limit(&s->base);
	__u64 rho = law_rho(ack->min_rtt_us, s->reference_us), acked_q8 = law_acked_q8(ack);
	__u64 top = law_top(&s->base, ack);

	if (window < top) {
		__u64 step = law_leap(rho) * law_enhanced_phase(window, top, ack) * (acked_q8 >> 8) / 2;

		law_grow_to(&window, fix_min(top, limit), step);
	} else {
		law_grow_to(&window, limit, law_avoid(window, rho * rho >> 16, acked_q8));
	}
	ack->cwnd = law_store(&s->base, window);
}

LAW_INLINE __u32 law_enhanced_loss(struct law_enhanced *s, const struct law_loss *loss)
{
	__u64 window = law_window(loss->cwnd, s->base.frac);
	__u64 queued = law_backlog_q7(window, loss->rtt_us, loss->min_rtt_us), kept = FIX_Q16(0.4);

	if (loss->signal == LAW_TIMEOUT)
		kept = FIX_Q16(0.5);
	else if (loss->signal == LAW_GAP && queued < ENHANCED_FEW_Q7)
		kept = FIX_Q16(0.8);
	else if (loss->signal == LAW_GAP && queued < ENHANCED_MANY_Q7)
		kept = FIX_Q16(0.6);
	return law_cut(&s->base, window, kept);
}

LAW_INLINE void law_enhanced_timeout(struct law_enhanced *s)
{
	s->base.frac = 0;
}

LAW_INLINE void law_enhanced_undo(struct law_enhanced *s)
{
	(void)s;
}

#endif
