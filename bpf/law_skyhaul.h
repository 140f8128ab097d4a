/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * Our own controller in its plain form, for hosts that know round trips and delivery rates only. What it does and why
 * is told in crates/cc/src/controllers/skyhaul/plain.rs; law.rs beside it is the same as this line by line, names and
 * all, and a test holds the two to equal windows. It owns window and pace in every state of the connection, so it
 * needs the hook cong_control, and its events differ from those of law.h.
 *
 * Windows count 1/256 segments, rates segments per microsecond in 2^-24, times microseconds. Every product stays
 * below 2^63 because rates, round trips and windows are bounded where they come in.
 */
#ifndef SKY_LAW_SKYHAUL_H
#define SKY_LAW_SKYHAUL_H

#include "law.h"

struct skyhaul_heard {
	__u64 rate;          /* delivery rate; 0: none */
	__u32 now_ms;        /* of any clock; wraps */
	__u32 rtt;           /* 0: none */
	__u32 acked;         /* segments newly acknowledged */
	__u32 flight;        /* segments in flight before this answer */
	__u32 round;         /* 1: the answer begins a packet-timed round */
	__u32 app_limited;   /* 1: the rate is the application's */
};

enum skyhaul_stage {
	SKYHAUL_START,       /* the window grows by a factor per round trip */
	SKYHAUL_DRAIN,       /* the queue of the start drains */
	SKYHAUL_CRUISE,      /* a small queue is kept */
};

struct law_skyhaul {
	__u32 window;
	__u32 previous;      /* the window of the round before: what is answered now was sent under it */
	__u32 rate;          /* greatest delivery rates of this round, of the one before and of long ago, fading */
	__u32 last;
	__u32 peak;
	__u32 least;         /* D, the least round trip, and the least one of this round; 0: none */
	__u32 round;
	__u32 queue;         /* of the round before */
	__u32 room;          /* the greatest queue that is known to fit; 0: unknown */
	__u32 acked;         /* of this round, as the next three: segments acknowledged and lost, most in flight, ... */
	__u32 lost;
	__u32 flight;
	__u32 bundle;        /* ... most in one answer */
	__u32 sum;           /* of the round trips above D, in 64 us */
	__u32 spread;        /* jitter: by how much the mean of the round before was above its least */
	__u32 seen_ms;       /* when D was last seen */
	__u32 replacing;     /* what may replace D; 0: nothing */
	__u16 noise;         /* share of packets that the path loses without a queue, in 2^-16 */
	__u16 growth;        /* of the last round, in 2^-12 */
	__u16 samples;       /* answers of this round and of the one before */
	__u16 before;
	__u16 hot_ms;        /* when the answers with a queue began, and the longest of their round trips in 64 us */
	__u16 hot_rtt;
	__u8 stage;          /* enum skyhaul_stage */
	__u8 hot;            /* answers in a row with a queue */
	__u8 flat;           /* rounds without growth of the rate, with no queue, with a long one, in this stage */
	__u8 empty;
	__u8 longs;
	__u8 rounds;
	__u8 skip;           /* rounds until the window is judged again, without acceleration, of a dip */
	__u8 hold;
	__u8 dip;
	__u8 others;         /* 1 after the queue has stayed although we gave way */
	__u8 gave;           /* bits: the window shrank, grew at the ends of the last rounds; bit 0 is the newest */
	__u8 grown;
	__u8 idle;           /* 1: in this round the application was the limit */
	__u8 silent;         /* bit 0: silent since a timeout; bit 1: nothing was heard between the last two */
};

#define SKYHAUL_SEGMENT 256ULL
#define SKYHAUL_WINDOW_MOST 0xffffffffULL
#define SKYHAUL_WINDOW_LEAST (2 * SKYHAUL_SEGMENT)
#define SKYHAUL_TEN (10 * SKYHAUL_SEGMENT)
#define SKYHAUL_TIME_MOST (1U << 26)
#define SKYHAUL_RATE_MOST 0xffffffffULL
#define SKYHAUL_TRIPLE (1024 * SKYHAUL_SEGMENT)
#define SKYHAUL_PACE_TRIPLE 422
#define SKYHAUL_PACE_DOUBLE 355
#define SKYHAUL_PACE 261
#define SKYHAUL_START_MOST 7
#define SKYHAUL_FLAT 3
#define SKYHAUL_HOT_LEAST 4000
#define SKYHAUL_HOT_MOST 16000
#define SKYHAUL_HOT_FEW 2
#define SKYHAUL_HOT_MANY 8
#define SKYHAUL_TARGET 1200000ULL
#define SKYHAUL_TARGET_LEAST 1000
#define SKYHAUL_TARGET_MOST 2000
#define SKYHAUL_LOST_SHIFT 5
#define SKYHAUL_LOST_FEW 8
#define SKYHAUL_EMPTY 3
#define SKYHAUL_GROWTH_MOST (1ULL << 11)
#define SKYHAUL_HOLD 8
#define SKYHAUL_GROWN 7
#define SKYHAUL_CRUISE_MOST 3
#define SKYHAUL_UNSEEN_MS 10000
#define SKYHAUL_LONG 4
#define SKYHAUL_DIP 3
#define SKYHAUL_QUIET 16
#define SKYHAUL_SPREAD_MOST 20000
#define SKYHAUL_BUNDLE_MOST 100000ULL

/*
 * The verifier follows every path, so the kernel gets the long functions as ones of their own, each verified once for
 * any state. What they are given may be nothing as far as it knows.
 */
#ifdef __bpf__
#define SKYHAUL_FUNCTION __attribute__((noinline))
#else
#define SKYHAUL_FUNCTION static __attribute__((unused))
#endif

LAW_INLINE __u64 skyhaul_clamp(__u64 x, __u64 least, __u64 most)
{
	return fix_lower(fix_upper(x, least), most);
}

/* One more on a counter of 8 bits that stays at its end. */
LAW_INLINE __u8 skyhaul_count(__u8 n)
{
	return (__u8)(n + (n < 255));
}

LAW_INLINE __u32 skyhaul_sum(__u32 a, __u32 b)
{
	return (__u32)fix_lower((__u64)a + b, 0xffffffffULL);
}

/* A round trip in 64 us, up to 4 s. */
LAW_INLINE __u32 skyhaul_coarse(__u32 rtt)
{
	return (__u32)fix_lower(rtt >> 6, 0xffff);
}

LAW_INLINE void skyhaul_set(struct law_skyhaul *s, __u64 window)
{
	s->window = (__u32)skyhaul_clamp(window, SKYHAUL_WINDOW_LEAST, SKYHAUL_WINDOW_MOST);
}

LAW_INLINE __u64 skyhaul_through(const struct law_skyhaul *s)
{
	return fix_upper(s->rate, s->last);
}

/* Segments that a path of this rate and round trip holds, random loss put back. */
LAW_INLINE __u64 skyhaul_pipe(const struct law_skyhaul *s, __u64 rate, __u32 time)
{
	__u64 pipe = (rate * time) >> 16;

	return s->noise ? (pipe << 16) / (65536 - s->noise) : pipe;
}

/* Answers come in bundles: twice the greatest is in flight although no queue holds it. */
LAW_INLINE __u64 skyhaul_bundles(const struct law_skyhaul *s)
{
	return fix_lower(2 * s->bundle * SKYHAUL_SEGMENT, (skyhaul_through(s) * SKYHAUL_BUNDLE_MOST) >> 16);
}

/* The greatest queue that is known to fit, half of D as long as nothing is known. */
LAW_INLINE __u32 skyhaul_fits(const struct law_skyhaul *s)
{
	return s->room ? s->room : (__u32)fix_upper(s->least / 2, SKYHAUL_TARGET_MOST);
}

/* The wanted queue. */
SKYHAUL_FUNCTION __u32 skyhaul_target(const struct law_skyhaul *s)
{
	__u64 per_second, wanted;

	if (!s)
		return 0;
	per_second = (skyhaul_through(s) * 1000000) >> 24;
	wanted = SKYHAUL_TARGET * 16 / fix_upper(fix_root(fix_upper(per_second, 1) * 256), 1);
	wanted = fix_lower(wanted, SKYHAUL_TIME_MOST);
	wanted = fix_upper(fix_upper(wanted, s->least / 64), SKYHAUL_TARGET_LEAST);
	wanted = fix_lower(fix_lower(wanted, fix_upper(s->least / 8, SKYHAUL_TARGET_MOST)), skyhaul_fits(s));
	return (__u32)(wanted + fix_lower(s->spread, s->least / 4));
}

/* What path, wanted queue and bundles hold. */
SKYHAUL_FUNCTION __u64 skyhaul_full(const struct law_skyhaul *s)
{
	if (!s)
		return 0;
	return skyhaul_pipe(s, skyhaul_through(s), skyhaul_sum(s->least, skyhaul_target(s))) + skyhaul_bundles(s);
}

/* A dip gives up one in so many: four times the queue, a sixteenth at least, a quarter at most. */
LAW_INLINE __u64 skyhaul_depth(const struct law_skyhaul *s)
{
	return skyhaul_clamp(s->least / (4 * (__u64)s->queue + 1), 4, 16);
}

/* A window of so many segments. */
LAW_INLINE void law_skyhaul_init(struct law_skyhaul *s, __u64 segments)
{
	*s = (struct law_skyhaul){};
	skyhaul_set(s, fix_lower(segments, 1 << 24) * SKYHAUL_SEGMENT);
}

/* What is known before the first answer: a window of so many segments for a path of this round trip. */
LAW_INLINE void law_skyhaul_know(struct law_skyhaul *s, __u64 segments, __u32 least)
{
	skyhaul_set(s, fix_lower(segments, 1 << 24) * SKYHAUL_SEGMENT);
	s->replacing = (__u32)skyhaul_clamp(least, 1, SKYHAUL_TIME_MOST);
	s->stage = SKYHAUL_DRAIN;
}

/* Segments were lost. */
LAW_INLINE void law_skyhaul_lose(struct law_skyhaul *s, __u32 lost)
{
	s->lost = skyhaul_sum(s->lost, lost);
}

/* A mark (ECN), once per round trip: seven eighths remain. */
LAW_INLINE void law_skyhaul_mark(struct law_skyhaul *s)
{
	skyhaul_set(s, s->window - s->window / 8);
	s->growth = 0;
	s->hold = SKYHAUL_HOLD;
}

/* Nothing was heard for a timeout. What is known stays unless nothing was heard since the last one either. */
LAW_INLINE void law_skyhaul_timeout(struct law_skyhaul *s)
{
	if (s->silent & 2) {
		skyhaul_set(s, s->window / 2);
	} else if (s->least) {
		__u64 pipe = skyhaul_pipe(s, skyhaul_through(s), s->least);

		if (pipe)
			skyhaul_set(s, fix_lower(s->window, fix_upper(pipe, SKYHAUL_TEN)));
	}
	s->silent = 3;
	s->growth = 0;
	s->others = 0;
	s->dip = 0;
}

/* Nothing was in flight for ten minutes: what is known is old. */
LAW_INLINE void law_skyhaul_grow_old(struct law_skyhaul *s)
{
	skyhaul_set(s, s->window / 2);
}

/* Segments that may be in flight, in 1/256. */
LAW_INLINE __u64 law_skyhaul_window(const struct law_skyhaul *s)
{
	__u64 window = s->window;

	if (s->silent & 1)
		return fix_lower(window, 2 * SKYHAUL_WINDOW_LEAST);
	if (s->dip == SKYHAUL_DIP)
		return fix_upper(window - fix_div(window, skyhaul_depth(s)), fix_lower(window, SKYHAUL_TEN));
	return window;
}

/* Pace; zero before the first round trip. */
LAW_INLINE __u64 law_skyhaul_pace(const struct law_skyhaul *s)
{
	__u64 gain = SKYHAUL_PACE, queue = 0;

	if (!s->least)
		return 0;
	if (s->stage == SKYHAUL_START)
		gain = s->window < SKYHAUL_TRIPLE ? SKYHAUL_PACE_TRIPLE : SKYHAUL_PACE_DOUBLE;
	if (s->stage == SKYHAUL_CRUISE)
		queue = s->round ? fix_lower(s->queue, fix_above(s->round, s->least)) : s->queue;
	return fix_upper(fix_div(law_skyhaul_window(s) << 16, s->least + queue) * gain / 256, 1);
}

/* The first round trip of a path that was known: a quarter more or less is another path. */
LAW_INLINE void skyhaul_confirm(struct law_skyhaul *s, __u32 rtt)
{
	__u32 known = s->replacing;

	if (s->least || s->stage != SKYHAUL_DRAIN)
		return;
	s->replacing = 0;
	if (rtt > known + known / 4 || known > rtt + rtt / 4) {
		s->stage = SKYHAUL_START;
		skyhaul_set(s, fix_lower(s->window, SKYHAUL_TEN));
	}
}

LAW_INLINE void skyhaul_take_round_trip(struct law_skyhaul *s, const struct skyhaul_heard *heard)
{
	__u32 rtt = (__u32)fix_lower(heard->rtt, SKYHAUL_TIME_MOST), hot;

	if (!rtt)
		return;
	if (!s->least || rtt <= s->least + s->least / 128 + 250)
		s->seen_ms = heard->now_ms;
	if (!s->least || rtt < s->least) {
		skyhaul_confirm(s, rtt);
		s->least = rtt;
	}
	s->round = s->round ? (__u32)fix_lower(s->round, rtt) : rtt;
	if (s->dip)
		s->replacing = s->replacing ? (__u32)fix_lower(s->replacing, rtt) : rtt;
	s->samples += s->samples < 0xffff;
	s->sum = skyhaul_sum(s->sum, (rtt - s->least) >> 6);
	if (s->stage != SKYHAUL_START)
		return;
	hot = (__u32)skyhaul_clamp(s->least / 16, SKYHAUL_HOT_LEAST, SKYHAUL_HOT_MOST) + s->spread;
	if (rtt <= s->least + hot) {
		s->hot = 0;
		return;
	}
	if (!s->hot) {
		s->hot_ms = (__u16)heard->now_ms;
		s->hot_rtt = 0;
	}
	s->hot_rtt = (__u16)fix_upper(s->hot_rtt, skyhaul_coarse(rtt));
	s->hot = skyhaul_count(s->hot);
}

LAW_INLINE void skyhaul_end_start(struct law_skyhaul *s)
{
	s->stage = SKYHAUL_DRAIN;
	s->rounds = 0;
	s->flat = 0;
	if (s->least && skyhaul_through(s))
		skyhaul_set(s, fix_lower(s->window, fix_upper(skyhaul_full(s), SKYHAUL_TEN)));
}

SKYHAUL_FUNCTION int skyhaul_start(struct law_skyhaul *s, const struct skyhaul_heard *heard)
{
	__u64 rate, grown, most;
	__u32 lasted;

	if (!s || !heard)
		return 0;
	lasted = (__u16)(heard->now_ms - s->hot_ms);
	if (s->hot >= skyhaul_clamp(s->before / 8, SKYHAUL_HOT_FEW, SKYHAUL_HOT_MANY) &&
	    lasted >= (s->least / 16) >> 10) {
		if (skyhaul_coarse(heard->rtt) + (s->least >> 12) >= s->hot_rtt) {
			skyhaul_end_start(s);
			return 0;
		}
		s->hot = 0;
	}
	if (heard->app_limited || heard->flight * 2 * SKYHAUL_SEGMENT < s->window)
		return 0;
	grown = s->window + heard->acked * (s->window < SKYHAUL_TRIPLE ? 2 : 1) * SKYHAUL_SEGMENT;
	rate = skyhaul_through(s);
	if (rate && s->least) {
		most = skyhaul_pipe(s, rate, s->least) * SKYHAUL_START_MOST / 2 + skyhaul_bundles(s);
		grown = fix_lower(grown, fix_upper(most, s->window));
	}
	skyhaul_set(s, grown);
	return 0;
}

/* See learn_noise() in law.rs. */
LAW_INLINE void skyhaul_learn_noise(struct law_skyhaul *s, __u64 lost, __u64 sent)
{
	__u64 share = fix_lower(fix_div(lost << 16, sent), 16384), noise = s->noise, shift = 4;

	if (sent < 64)
		shift = 6;
	else if (s->stage == SKYHAUL_START)
		shift = 3;
	else if (share < noise)
		shift = 2;
	s->noise = (__u16)(noise + (share >> shift) - (noise >> shift));
}

/* Sets the window, but beside others not below a third of what was ours, unless the queue is flooded. */
LAW_INLINE void skyhaul_give_way(struct law_skyhaul *s, __u64 window, __u32 queue, int flooded)
{
	__u64 least = fix_lower(s->window, SKYHAUL_TEN), held;

	if (s->others && !flooded) {
		held = skyhaul_pipe(s, s->peak / 3, skyhaul_sum(s->least, queue));
		least = fix_upper(least, fix_lower(held, s->window));
	}
	window = fix_upper(window, least);
	s->gave |= window < s->window - s->window / 16;
	skyhaul_set(s, window);
}

/* More was lost than the path loses: what goes through, and a queue of half of what overflowed. */
SKYHAUL_FUNCTION int skyhaul_congested(struct law_skyhaul *s, __u32 queue, __u32 top, __u32 is_long)
{
	__u32 target;
	__u64 pipe;

	if (!s)
		return 0;
	if (top < s->least / 2)
		s->room = (__u32)fix_lower(fix_upper(top / 2, 500), skyhaul_fits(s));
	target = skyhaul_target(s);
	pipe = skyhaul_pipe(s, s->rate ? s->rate : s->last, skyhaul_sum(s->least, (__u32)fix_lower(queue, target)));
	if (is_long)
		pipe = fix_lower(pipe, fix_div(s->previous * ((__u64)s->least + target), (__u64)s->least + queue));
	skyhaul_set(s, fix_lower(s->window, fix_upper(pipe, SKYHAUL_TEN)));
	s->skip = 1;
	s->hold = SKYHAUL_HOLD;
	s->growth = 0;
	s->empty = 0;
	return 0;
}

/*
 * A queue of ours shrinks by what a dip holds back, or is gone. One that does not is somebody else's, or no queue, and
 * then the path is as long as it seems.
 */
LAW_INLINE void skyhaul_end_dip(struct law_skyhaul *s)
{
	__u32 before = s->least + s->queue;
	__u32 expected = (__u32)fix_lower(fix_div(before, skyhaul_depth(s)), s->queue);
	__u32 ours = fix_above(before, s->replacing) >= expected / 2;

	if (s->queue > skyhaul_target(s) / 2)
		s->others = !ours;
	if (!ours || s->queue <= expected)
		s->least = s->replacing;
}

/* `signs`: bit 0, the queue overflowed; bit 1, more than a quarter was lost. */
SKYHAUL_FUNCTION int skyhaul_cruise(struct law_skyhaul *s, __u32 queue, __u32 signs, __u32 top, __u32 now_ms)
{
	__u64 window, least, wanted, longer, balanced, step, growth, most, grown;
	__u32 target, is_long, ours, used, flooded = signs >> 1;

	if (!s)
		return 0;
	if (s->dip) {
		s->dip--;
		if (!s->dip) {
			if (s->replacing)
				skyhaul_end_dip(s);
			s->replacing = 0;
			s->seen_ms = now_ms;
		}
		return 0;
	}
	target = skyhaul_target(s);
	is_long = queue > 4 * target + 2000;
	s->longs = is_long ? skyhaul_count(s->longs) : 0;
	/* What we gave away two rounds ago shows now, if the queue was ours. */
	ours = !(s->gave & 2) || (__u64)queue * 8 < (__u64)s->queue * 7;
	if (is_long && !ours)
		s->others = 1;
	else if (s->empty > SKYHAUL_QUIET)
		s->others = 0;
	s->gave <<= 1;
	if (signs & 1) {
		skyhaul_congested(s, queue, top, is_long);
		return 0;
	}
	if (s->skip) {
		s->skip--;
		return 0;
	}
	if (s->longs >= SKYHAUL_LONG || now_ms - s->seen_ms > SKYHAUL_UNSEEN_MS) {
		s->dip = SKYHAUL_DIP;
		s->replacing = 0;
		s->longs = 0;
		return 0;
	}
	window = s->window;
	least = s->least;
	wanted = least + target;
	longer = least + queue;
	s->hold -= s->hold > 0;
	used = !s->idle && s->flight * 4 * SKYHAUL_SEGMENT >= window * 3;
	/* What was sent under the window before shows this queue, so that window tells what the path holds. */
	balanced = fix_div(s->previous * wanted, longer);
	s->empty = queue >= target / 2 ? 0 : skyhaul_count(s->empty);
	if (s->empty <= SKYHAUL_EMPTY || s->hold) {
		s->growth = 0;
		if (used && s->others && skyhaul_through(s) * 2 < s->peak && !flooded)
			skyhaul_set(s, window + fix_upper(window / 64, SKYHAUL_SEGMENT));
		else if (is_long && !ours)
			; /* It stays for whatever reason; less from us would not help. */
		else if (is_long)
			skyhaul_give_way(s, fix_lower(balanced, window), queue, flooded);
		else if (balanced <= window || used)
			skyhaul_give_way(s, (window + balanced) / 2 + SKYHAUL_SEGMENT / 2, queue, flooded);
		return 0;
	}
	if (!used)
		return 0;
	step = skyhaul_clamp(fix_div(target * 4096ULL, least), 64, SKYHAUL_GROWTH_MOST);
	growth = 2 * s->growth;
	most = fix_upper(fix_lower(fix_div(skyhaul_fits(s) * 4096ULL, least), SKYHAUL_GROWTH_MOST), step);
	s->growth = (__u16)skyhaul_clamp(growth, step, most);
	if (s->room) {
		s->room += s->room / 8 + 1;
		if (s->room > s->least / 2)
			s->room = 0;
	}
	grown = window + ((window * s->growth) >> 12) + SKYHAUL_SEGMENT;
	most = skyhaul_full(s) * SKYHAUL_CRUISE_MOST / 2 + skyhaul_bundles(s);
	skyhaul_set(s, fix_lower(grown, fix_upper(most, window)));
	return 0;
}

SKYHAUL_FUNCTION int skyhaul_end_round(struct law_skyhaul *s, __u32 now_ms, __u32 app_limited)
{
	__u64 sent, lost, expected;
	__u32 before, queue, mean, top, target, spread;
	int excess, grew, overflow;

	if (!s)
		return 0;
	lost = s->lost;
	sent = s->acked + lost;
	before = s->window;
	if (!s->least || !s->round || !sent)
		return 0;
	queue = (__u32)fix_above(s->round, s->least);
	mean = (__u32)fix_lower(fix_div((__u64)s->sum << 6, fix_upper(s->samples, 1)), SKYHAUL_TIME_MOST);
	expected = (sent * s->noise) >> 16;
	excess = lost > expected + (sent >> SKYHAUL_LOST_SHIFT) + SKYHAUL_LOST_FEW;
	grew = (__u64)s->rate * 4 >= (__u64)s->peak * 5;
	/*
	 * The least of the round may be from before the queue grew; twice the mean less the least is its top. Without
	 * a queue, and with no more sent than before, losses are the path's however many.
	 */
	top = (__u32)fix_upper(mean, queue) * 2 - queue;
	target = skyhaul_target(s);
	s->grown = (__u8)(s->grown << 1) | (s->window > (__u64)s->previous + s->previous / 64);
	overflow = excess && ((s->grown & SKYHAUL_GROWN) || top > target / 2);
	if ((queue < target && !overflow) || (s->stage == SKYHAUL_START && grew))
		skyhaul_learn_noise(s, lost, sent);
	if (s->stage == SKYHAUL_START) {
		if (grew) {
			s->peak = s->rate;
			s->flat = 0;
		} else if (!s->idle && s->flight * 2 * SKYHAUL_SEGMENT >= s->window) {
			s->flat++;
		}
		if (s->flat >= SKYHAUL_FLAT || (excess && s->flat))
			skyhaul_end_start(s);
	} else if (s->stage == SKYHAUL_DRAIN) {
		if (lost * 4 > sent && s->rate)
			/* What was remembered of the path was too much. */
			skyhaul_set(s, fix_lower(s->window, fix_upper(skyhaul_pipe(s, s->rate, s->least), SKYHAUL_TEN)));
		s->rounds++;
		if (s->rounds >= 2) {
			s->stage = SKYHAUL_CRUISE;
			s->peak = (__u32)skyhaul_through(s);
			s->skip = 0;
			s->growth = 0;
			s->empty = 0;
		}
	} else {
		s->peak = (__u32)fix_upper(s->peak - s->peak / (s->others ? 4096 : 256), skyhaul_through(s));
		skyhaul_cruise(s, queue, overflow | (lost * 4 > sent) << 1, top, now_ms);
	}
	s->previous = before;
	if (!s->dip || s->dip == SKYHAUL_DIP)
		/* During a dip the queue before it is remembered. */
		s->queue = queue;
	s->last = s->rate;
	s->rate = 0;
	/* What the queue grew by within the round is no jitter, but shows only for a round. */
	spread = (__u32)fix_lower(fix_above(mean, queue), SKYHAUL_SPREAD_MOST);
	s->spread = (__u32)fix_lower(spread, s->spread + s->spread / 2 + 500);
	s->sum = 0;
	s->idle = (__u8)app_limited;
	s->before = s->samples;
	s->acked = 0;
	s->lost = 0;
	s->flight = 0;
	s->bundle = 0;
	s->samples = 0;
	s->round = 0;
	return 0;
}

/* What is noted of every answer. */
LAW_INLINE void skyhaul_note(struct law_skyhaul *s, const struct skyhaul_heard *heard)
{
	__u64 rate = fix_lower(heard->rate, SKYHAUL_RATE_MOST);

	skyhaul_take_round_trip(s, heard);
	if (!heard->app_limited || rate > skyhaul_through(s))
		s->rate = (__u32)fix_upper(s->rate, rate);
	s->acked = skyhaul_sum(s->acked, heard->acked);
	s->flight = (__u32)fix_upper(s->flight, heard->flight);
	s->bundle = (__u32)fix_upper(s->bundle, heard->acked);
}

/* Whether an answer is only to be noted, as most are: window and stage stay. */
LAW_INLINE int law_skyhaul_only_notes(const struct law_skyhaul *s, const struct skyhaul_heard *heard)
{
	return s->stage == SKYHAUL_CRUISE && !heard->round && !(s->silent & 1);
}

/* The same as law_skyhaul_hear() for such an answer, in a fraction of its time. */
LAW_INLINE void law_skyhaul_note(struct law_skyhaul *s, const struct skyhaul_heard *heard)
{
	s->idle |= (__u8)heard->app_limited;
	skyhaul_note(s, heard);
}

/* An answer. */
SKYHAUL_FUNCTION int law_skyhaul_hear(struct law_skyhaul *s, const struct skyhaul_heard *heard)
{
	if (!s || !heard)
		return 0;
	s->silent &= ~1;
	s->idle |= (__u8)heard->app_limited;
	if (heard->round) {
		skyhaul_end_round(s, heard->now_ms, heard->app_limited);
		s->silent = 0;
	}
	skyhaul_note(s, heard);
	if (s->stage == SKYHAUL_START)
		skyhaul_start(s, heard);
	else if (s->stage == SKYHAUL_DRAIN && !heard->app_limited)
		skyhaul_set(s, fix_upper(s->window, skyhaul_full(s)));
	return 0;
}

#endif
