/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * Hybla: C. Caini and R. Firrincieli, International Journal of Satellite Communications and Networking 22 (2004).
 * A long round trip grows its window as fast in bytes per second as a reference connection of 25 ms would. Rules,
 * symbols and readings: crates/cc/src/controllers/hybla.rs. Beyond those, growth stays within LAW_FLIGHTS flights
 * also where a threshold is known.
 */
#ifndef SKY_LAW_HYBLA_H
#define SKY_LAW_HYBLA_H

#include "law.h"

/* RTT0. */
#define HYBLA_REFERENCE_US 25000U
/* Share of the window that stays after a loss. */
#define HYBLA_KEPT FIX_Q16(0.5)

struct law_hybla {
	struct law_base base;
	__u32 reference_us;
};

LAW_INLINE void law_hybla_init(struct law_hybla *s, const struct law_setup *setup)
{
	law_begin(&s->base, setup);
	s->reference_us = setup->reference_us ? setup->reference_us : HYBLA_REFERENCE_US;
}

LAW_INLINE void law_hybla_sample(struct law_hybla *s, const struct law_ack *ack)
{
	law_round(&s->base, ack);
}

LAW_INLINE void law_hybla_grow(struct law_hybla *s, struct law_ack *ack)
{
	__u64 window = law_now(&s->base, ack), limit = law_limit(&s->base);
	__u64 rho = law_rho(ack->min_rtt_us, s->reference_us), acked_q8 = law_acked_q8(ack);
	__u64 top = law_top(&s->base, ack);

	if (window < top) {
		__u64 leap = law_leap(rho);
		__u64 rest = law_grow_to(&window, fix_min(top, limit), leap * (acked_q8 >> 8));

		/* What the threshold left over grows as beyond it; what the limit left over is not earned. */
		acked_q8 = window < top ? 0 : fix_div(rest << 8, leap);
	}
	law_grow_to(&window, limit, law_avoid(window, rho * rho >> 16, acked_q8));
	ack->cwnd = law_store(&s->base, window);
}

LAW_INLINE __u32 law_hybla_loss(struct law_hybla *s, const struct law_loss *loss)
{
	return law_cut(&s->base, law_window(loss->cwnd, s->base.frac), HYBLA_KEPT);
}

LAW_INLINE void law_hybla_timeout(struct law_hybla *s)
{
	s->base.frac = 0;
}

LAW_INLINE void law_hybla_undo(struct law_hybla *s)
{
	(void)s;
}

#endif
