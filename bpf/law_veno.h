/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * Veno: C. P. Fu and S. C. Liew, IEEE Journal on Selected Areas in Communications 21(2) (2003). NewReno with Vegas's
 * measure of the queue: a loss at an empty queue is taken for random and costs a fifth of the window. Rules, symbols
 * and readings: crates/cc/src/controllers/veno.rs.
 */
#ifndef SKY_LAW_VENO_H
#define SKY_LAW_VENO_H

#include "law.h"

/* beta, in 1/128 segments. */
#define VENO_QUEUED_Q7 (3U << 7)
/* Shares of the window that stay after a random loss and after one from congestion. */
#define VENO_KEPT_RANDOM FIX_Q16(0.8)
#define VENO_KEPT FIX_Q16(0.5)

struct law_veno {
	struct law_base base;
};

LAW_INLINE void law_veno_init(struct law_veno *s, const struct law_setup *setup)
{
	law_begin(&s->base, setup);
}

LAW_INLINE void law_veno_sample(struct law_veno *s, const struct law_ack *ack)
{
	law_round(&s->base, ack);
}

LAW_INLINE int law_veno_queued(__u64 window, __u32 rtt_us, __u32 min_rtt_us)
{
	return law_backlog_q7(window, rtt_us, min_rtt_us) >= VENO_QUEUED_Q7;
}

LAW_INLINE void law_veno_grow(struct law_veno *s, struct law_ack *ack)
{
	__u64 window = law_now(&s->base, ack), limit = law_limit(&s->base);
	__u64 top = law_top(&s->base, ack), acked_q8 = law_acked_q8(ack);

	if (window < top) {
		__u64 rest = law_grow_to(&window, fix_min(top, limit), acked_q8 << 8);

		acked_q8 = window < top ? 0 : rest >> 8;
	}
	law_grow_to(&window, limit,
		    law_avoid(window, law_veno_queued(window, ack->rtt_us, ack->min_rtt_us) ? FIX_ONE / 2 : FIX_ONE,
			      acked_q8));
	ack->cwnd = law_store(&s->base, window);
}

LAW_INLINE __u32 law_veno_loss(struct law_veno *s, const struct law_loss *loss)
{
	__u64 window = law_window(loss->cwnd, s->base.frac);
	int random = loss->signal == LAW_GAP && !law_veno_queued(window, loss->rtt_us, loss->min_rtt_us);

	return law_cut(&s->base, window, random ? VENO_KEPT_RANDOM : VENO_KEPT);
}

LAW_INLINE void law_veno_timeout(struct law_veno *s)
{
	s->base.frac = 0;
}

LAW_INLINE void law_veno_undo(struct law_veno *s)
{
	(void)s;
}

#endif
