/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * BoostTCP, paper 000, the reading that tells losses apart. What it does and why is told in
 * crates/cc/src/controllers/boost: mod.rs (window), learning.rs, monitor.rs and round_trip.rs. The names are the same.
 * It owns window and pace in every state of the connection, so it needs the hook cong_control, and its events differ
 * from those of law.h. Lost segments are sent again when the kernel says so: nothing here can make that sooner.
 *
 * Windows count 2^-16 segments, rates segments per microsecond in 2^-24, times microseconds, shares 2^-20.
 */
#ifndef SKY_LAW_BOOST_H
#define SKY_LAW_BOOST_H

#include "law.h"

struct boost_heard {
	__u64 now_us;        /* of any clock that never goes back, not zero */
	__u64 sent_us;       /* when the newest acknowledged segment left */
	__u64 rate;          /* delivery rate; 0: none */
	__u32 rtt_us;        /* newest sample */
	__u32 srtt_us;
	__u32 min_rtt_us;
	__u32 acked;         /* segments newly acknowledged */
	__u32 round;         /* 1: the answer begins a packet-timed round */
	__u32 app_limited;   /* 1: the rate is the application's */
};

struct boost_lost {
	__u64 now_us;
	__u64 sent_us;       /* when the newest lost segment left */
	__u32 lost;          /* segments */
	__u32 rtt_us;
	__u32 min_rtt_us;
	__u32 signal;        /* enum law_signal */
	__u32 new_episode;   /* 1: sent after the last cut */
};

enum boost_growth { BOOST_EXPONENTIAL, BOOST_LINEAR, BOOST_TERMINATION };

/* Rounds whose greatest values count, and room for them: the verifier likes powers of two. */
#define BOOST_ROUNDS 10
#define BOOST_SLOTS 16
#define BOOST_SLOT(i) ((i) & (BOOST_SLOTS - 1))
/* The memory of the least round trip: steps of a sixteenth share an entry, see crates/cc/src/parts/extreme.rs. */
#define BOOST_ENTRIES 32
#define BOOST_MEMORY_US 15000000ULL
#define BOOST_STEP_US (BOOST_MEMORY_US / 16)

struct law_boost {
	__u64 window;
	__u64 cut_us;        /* 0: none */
	__u64 seen_us;
	__u64 probe_until;   /* 0: none */
	__u64 settled;
	__u64 fallen;        /* 0: not */
	/* learning */
	__u64 rate;          /* B in 2^-32; 0: none */
	__u64 previous;      /* B'; 0: none */
	__u32 falls;
	__u32 growth;        /* enum boost_growth */
	/* monitor */
	__u32 usual;
	__u32 limit;         /* 0: none */
	__u32 acked;
	__u32 lost;
	__u32 events;
	/* round trip; 0 is none everywhere */
	__u32 least;
	__u32 values[BOOST_ENTRIES]; /* a queue of values that rise, and when each was seen */
	__u64 times[BOOST_ENTRIES];
	__u32 front;
	__u32 entries;
	__u32 recent[8];
	__u32 next;
	__u32 steps;
	__u32 last_round;
	__u64 steps_sum;
	__u32 spread;
	__u32 round;
	__u32 long_rounds;
	__u32 replacing;     /* 0xffffffff: nothing seen yet */
	__u32 room;
	/* the rest */
	__u32 best_now;
	__u32 best[BOOST_SLOTS];
	__u32 bundle_now;
	__u32 bundles[BOOST_SLOTS];
	__u32 rounds;
	__u32 slot;          /* rounds modulo BOOST_ROUNDS */
	__u32 overflow_round;
	__u32 flat;
	__u32 empty;
	__u32 velocity;      /* its logarithm */
	__u32 srtt_us;
	__u32 mss;
	__u32 known_rate;    /* 0: none */
	__u32 known_least;
	__u8 filling;
	__u8 draining;
	__u8 competing;
	__u8 long_lived;
};

#define BOOST_SEGMENT (1ULL << 16)
#define BOOST_MOST (1ULL << 40)
#define BOOST_ONE (1ULL << 20)
#define BOOST_SHARE(x) ((__u32)((x)*1048576.0 + 0.5))
#define BOOST_TIME_MOST (1U << 26)
#define BOOST_RATE_MOST 0xffffffffULL
#define BOOST_LEAST (10 * BOOST_SEGMENT)
#define BOOST_BUNDLE_MOST 100000ULL
#define BOOST_PROBE_AFTER_US 10000000ULL
#define BOOST_FALLEN_US 30000000ULL
#define BOOST_FULL_LEAST 1000
#define BOOST_FULL_MOST 16000
/* The queue wanted is 5 % at 200 Mbit/s: its square times bytes per second. */
#define BOOST_QUEUE 62500ULL

#ifdef __bpf__
#define BOOST_FUNCTION __attribute__((noinline))
#else
#define BOOST_FUNCTION static __attribute__((unused))
#endif

LAW_INLINE void boost_set(struct law_boost *s, __u64 window)
{
	s->window = fix_lower(fix_upper(window, 2 * BOOST_SEGMENT), BOOST_MOST);
}

/* B RTTmin; zero before the first sample. */
LAW_INLINE __u64 boost_pipe(const struct law_boost *s)
{
	return ((__u64)s->best_now * s->least) >> 8;
}

/* Segments that are acknowledged at once, twice: they are in flight although no queue holds them. */
LAW_INLINE __u64 boost_bundle(const struct law_boost *s)
{
	__u64 most = (s->best_now * BOOST_BUNDLE_MOST) >> 8;

	return fix_upper(fix_lower(2 * s->bundle_now * BOOST_SEGMENT, most), BOOST_SEGMENT);
}

/* q: the queue to hold, as a share of the least round trip. */
BOOST_FUNCTION __u32 boost_queue_share(const struct law_boost *s)
{
	__u64 bytes, share;

	if (!s)
		return 0;
	bytes = (((s->rate >> 8) * s->mss >> 12) * 1000000) >> 12;
	share = fix_root(fix_upper(fix_div(BOOST_QUEUE << 40, fix_upper(bytes, 1)), 1));
	share = fix_lower(share, s->room);
	return (__u32)fix_lower(fix_upper(share, BOOST_SHARE(0.01)), BOOST_SHARE(0.25));
}

/* What the path and the wanted queue hold; the window before the first sample. */
LAW_INLINE __u64 boost_full(const struct law_boost *s)
{
	__u64 pipe = boost_pipe(s);

	if (!pipe)
		return s->window;
	return pipe + ((pipe * boost_queue_share(s)) >> 20) + boost_bundle(s);
}

LAW_INLINE void boost_restart_learning(struct law_boost *s)
{
	s->rate = 0;
	s->previous = 0;
	s->falls = 0;
	s->growth = BOOST_EXPONENTIAL;
}

LAW_INLINE void boost_learn(struct law_boost *s, __u64 rate)
{
	rate <<= 8;
	s->rate = s->rate ? s->rate - s->rate / 8 + rate / 8 : rate;
}

LAW_INLINE void boost_learn_round(struct law_boost *s, int calm)
{
	if (!s->rate)
		return;
	if (s->previous) {
		s->falls = s->rate < s->previous ? (__u32)fix_lower(s->falls + 1, 255) : 0;
		if (s->rate > s->previous + s->previous / 50)
			s->growth = BOOST_EXPONENTIAL;
		else
			s->growth = s->falls < 3 || calm ? BOOST_LINEAR : BOOST_TERMINATION;
	}
	s->previous = s->rate;
}

/* A window of so many segments of `mss` bytes. */
LAW_INLINE void law_boost_init(struct law_boost *s, __u32 segments, __u32 mss)
{
	__builtin_memset(s, 0, sizeof(*s));
	boost_set(s, segments * BOOST_SEGMENT);
	s->mss = mss;
	s->room = BOOST_ONE;
	s->filling = 1;
}

/* What another connection has left of the path. */
LAW_INLINE void law_boost_know(struct law_boost *s, __u64 rate, __u32 least)
{
	__u64 pipe;

	rate = fix_lower(rate, BOOST_RATE_MOST);
	least = (__u32)fix_lower(least, BOOST_TIME_MOST);
	pipe = (rate * least) >> 8;
	boost_set(s, fix_upper(s->window, pipe / 100 * 95));
	s->known_rate = (__u32)rate;
	s->known_least = least;
	s->filling = 0;
}

LAW_INLINE __u32 boost_latest(const struct law_boost *s)
{
	return s->recent[(s->next + 7) & 7];
}

/* The least of the newest samples, of as many as the last round had in an eighth, eight at most. */
BOOST_FUNCTION __u32 boost_recent(const struct law_boost *s)
{
	__u64 count, least = ~0U;

	if (!s)
		return 0;
	count = fix_lower(fix_upper(s->last_round / 8, 1), 8);
	for (__u32 back = 1; back <= 8; back++) {
		if (back > count)
			break;
		least = fix_lower(least, s->recent[(s->next + 8 - back) & 7]);
	}
	return (__u32)least;
}

#define BOOST_AT(i) ((i) & (BOOST_ENTRIES - 1))

/* Takes a value into the memory of the least round trip. */
BOOST_FUNCTION int boost_update_least(struct law_boost *s, __u64 now_us, __u32 sample)
{
	__u32 back;

	if (!s)
		return 0;
	for (int i = 0; i < BOOST_ENTRIES; i++) {
		if (!s->entries || now_us < s->times[BOOST_AT(s->front)] + BOOST_MEMORY_US + BOOST_STEP_US)
			break;
		s->front++;
		s->entries--;
	}
	for (int i = 0; i < BOOST_ENTRIES; i++) {
		if (!s->entries || sample > s->values[BOOST_AT(s->front + s->entries - 1)])
			break;
		s->entries--;
	}
	back = s->front + s->entries - 1;
	if (!s->entries || now_us >= s->times[BOOST_AT(back)] + BOOST_STEP_US) {
		s->values[BOOST_AT(back + 1)] = sample;
		s->times[BOOST_AT(back + 1)] = now_us;
		s->entries++;
	}
	s->least = s->values[BOOST_AT(s->front)];
	return 0;
}

LAW_INLINE void boost_forget_least(struct law_boost *s)
{
	s->entries = 0;
	s->least = 0;
}

/* Takes a sample. At a round's end the answer is 1 + the standing queue of that round, else 0. */
BOOST_FUNCTION __u32 boost_take_sample(struct law_boost *s, const struct boost_heard *heard)
{
	__u64 elapsed, sample, standing;
	__u32 before, latest;

	if (!s || !heard)
		return 0;
	sample = fix_lower(fix_upper(heard->rtt_us, 1), BOOST_TIME_MOST);
	elapsed = fix_less(heard->now_us, heard->sent_us);
	/* In a long recovery the newest sample is old and the queue it tells of is gone. */
	if (s->least && elapsed >= s->least && elapsed < sample)
		sample = elapsed;
	latest = boost_latest(s);
	if (latest) {
		s->steps_sum += fix_upper(latest, sample) - fix_lower(latest, sample);
		s->steps++;
	}
	s->recent[s->next & 7] = (__u32)sample;
	s->next = (s->next + 1) & 7;
	if (!s->least || sample <= s->least + ((s->least * 5ULL) >> 10))
		s->seen_us = heard->now_us;
	before = s->least;
	boost_update_least(s, heard->now_us, (__u32)sample);
	if (before && s->long_lived && sample * 10 < (__u64)before * 9)
		s->fallen = heard->now_us;
	if (s->least > before)
		s->spread = 0;
	if (s->probe_until && heard->now_us >= s->probe_until)
		s->probe_until = 0;
	if (s->replacing) {
		s->replacing = (__u32)fix_lower(s->replacing, sample);
		if (heard->now_us >= s->settled) {
			boost_forget_least(s);
			boost_update_least(s, heard->now_us, s->replacing);
			s->spread = 0;
			s->replacing = 0;
		}
	}
	if (!heard->round) {
		s->round = s->round ? (__u32)fix_lower(s->round, sample) : (__u32)sample;
		return 0;
	}
	standing = s->round;
	s->round = (__u32)sample;
	if (!standing || !s->least)
		return 0;
	standing = fix_above(standing, s->least);
	return 1 + (__u32)fix_lower(fix_div(fix_above(standing, s->spread) << 20, s->least), 1U << 30);
}

/* What happens to monitor and jitter at a round's end. */
LAW_INLINE void boost_end_round(struct law_boost *s, __u32 standing)
{
	__u64 all = (__u64)s->acked + s->lost, share = fix_div((__u64)s->lost << 20, all);
	int empty = standing < BOOST_SHARE(0.01);

	if (s->limit && standing > s->limit + s->limit / 4)
		s->limit = 0;
	if (empty)
		s->usual = (__u32)(s->usual - s->usual / 8 + share / 8);
	s->acked = 0;
	s->lost = 0;
	s->events = 0;
	if (s->filling && empty && s->steps >= 8) {
		share = fix_upper(s->spread, fix_div(s->steps_sum, s->steps) * 3);
		s->spread = (__u32)fix_lower(share, s->least / 8);
	}
	s->last_round = s->steps;
	s->steps = 0;
	s->steps_sum = 0;
}

BOOST_FUNCTION int boost_end_filling(struct law_boost *s, __u64 now_us)
{
	if (!s)
		return 0;
	s->filling = 0;
	s->draining = 1;
	s->long_lived = 1;
	s->flat = 0;
	s->cut_us = now_us;
	boost_set(s, fix_lower(s->window, boost_full(s)));
	return 0;
}

BOOST_FUNCTION int boost_fill(struct law_boost *s, const struct boost_heard *heard)
{
	__u64 shown;

	if (!s || !heard || heard->app_limited)
		return 0;
	if (heard->round)
		s->flat = s->growth == BOOST_EXPONENTIAL ? 0 : s->flat + 1;
	shown = fix_lower(fix_upper(s->least / 32, BOOST_FULL_LEAST), BOOST_FULL_MOST);
	if (fix_above(boost_recent(s), s->least) > shown + s->spread || s->flat >= 3)
		boost_end_filling(s, heard->now_us);
	else
		boost_set(s, s->window + 2 * heard->acked * BOOST_SEGMENT);
	return 0;
}

/* Others keep the queue long until it overflows; whoever made room would get none. `standing` as from take_sample(). */
BOOST_FUNCTION int boost_compete(struct law_boost *s, const struct boost_heard *heard, __u32 standing, __u32 before_cut)
{
	__u64 step;

	if (!s || !heard)
		return 0;
	boost_update_least(s, heard->now_us, s->least);
	s->seen_us = heard->now_us;
	if (standing && standing - 1 < boost_queue_share(s)) {
		s->competing = 0;
		s->empty = 0;
		s->velocity = 0;
	} else if (!before_cut && !heard->app_limited) {
		/* The root of a number in 2^-16 is in 2^-8. */
		step = fix_lower(fix_root(s->window) << 7, s->window / 80);
		step = fix_upper(step, BOOST_SEGMENT);
		boost_set(s, s->window + fix_div(step * heard->acked, s->window >> 16));
	}
	return 0;
}

/* One step towards the wanted queue. */
BOOST_FUNCTION int boost_balance(struct law_boost *s, __u32 standing)
{
	__u64 share, window, pipe, step, room, next, most, floor;

	if (!s)
		return 0;
	share = boost_queue_share(s);
	s->empty = standing < share / 2 ? (__u32)fix_lower(s->empty + 1, 255) : 0;
	s->velocity = s->empty > 3 ? (__u32)fix_lower(s->velocity + 1, 20) : 0;
	if (s->empty > 3)
		s->room = (__u32)fix_lower(s->room + s->room / 4, BOOST_ONE);
	if (s->empty > 16) {
		s->filling = 1;
		s->empty = 0;
		s->flat = 0;
	}
	window = s->window;
	pipe = fix_div(window << 20, BOOST_ONE + standing);
	room = fix_upper(fix_lower(BOOST_SHARE(0.25), s->room), share);
	step = fix_lower(share << (s->velocity & 31), room);
	next = (window + pipe + ((pipe * step) >> 20) + BOOST_SEGMENT) / 2;
	pipe = boost_pipe(s);
	if (pipe) {
		/* Above what arrives by no more than a step; and not below half of it for a queue of others. */
		most = pipe + ((pipe * share) >> 20);
		most += most / 4;
		most = fix_div(most << 20, BOOST_ONE - fix_lower(s->usual, BOOST_SHARE(0.25)));
		floor = fix_lower(pipe / 2, window);
		next = fix_upper(fix_lower(next, most + boost_bundle(s)), floor);
	}
	boost_set(s, fix_upper(next, fix_lower(window, BOOST_LEAST)));
	return 0;
}

LAW_INLINE void boost_start_probe(struct law_boost *s, const struct boost_heard *heard, int replacing)
{
	if (replacing)
		s->replacing = ~0U;
	s->long_rounds = 0;
	s->seen_us = heard->now_us;
	s->probe_until = heard->now_us + heard->rtt_us;
	s->settled = heard->now_us + heard->rtt_us * 5ULL / 2;
}

/* An answer. */
BOOST_FUNCTION int law_boost_hear(struct law_boost *s, const struct boost_heard *heard)
{
	__u64 rate;
	__u32 standing, before_cut, is_long, comes_and_goes;

	if (!s || !heard)
		return 0;
	rate = fix_lower(heard->rate, BOOST_RATE_MOST);
	s->srtt_us = (__u32)fix_upper(heard->srtt_us, 1);
	if (s->known_rate) {
		__u64 least = s->known_least, found = heard->rtt_us, known = s->known_rate;

		s->known_rate = 0;
		if (found > least + least / 4 || found + found / 4 < least) {
			boost_set(s, fix_lower(s->window, BOOST_LEAST));
			s->filling = 1;
		} else {
			boost_learn(s, known);
			s->best[0] = (__u32)known;
			s->best_now = (__u32)known;
		}
	}
	s->acked = (__u32)fix_lower((__u64)s->acked + heard->acked, ~0U);
	if (heard->round) {
		s->rounds++;
		s->slot = s->slot >= BOOST_ROUNDS - 1 ? 0 : s->slot + 1;
		s->best[BOOST_SLOT(s->slot)] = 0;
		s->bundles[BOOST_SLOT(s->slot)] = 0;
		s->best_now = 0;
		s->bundle_now = 0;
#pragma GCC unroll 10
		for (int i = 0; i < BOOST_ROUNDS; i++) {
			s->best_now = (__u32)fix_upper(s->best_now, s->best[i]);
			s->bundle_now = (__u32)fix_upper(s->bundle_now, s->bundles[i]);
		}
	}
	s->bundles[BOOST_SLOT(s->slot)] = (__u32)fix_upper(s->bundles[BOOST_SLOT(s->slot)], heard->acked);
	s->bundle_now = (__u32)fix_upper(s->bundle_now, heard->acked);
	if (rate && (!heard->app_limited || rate >= s->best_now)) {
		s->best[BOOST_SLOT(s->slot)] = (__u32)fix_upper(s->best[BOOST_SLOT(s->slot)], rate);
		s->best_now = (__u32)fix_upper(s->best_now, rate);
		boost_learn(s, rate);
	}
	if (heard->round && !heard->app_limited)
		boost_learn_round(s, heard->srtt_us <= heard->min_rtt_us + heard->min_rtt_us / 4);
	standing = boost_take_sample(s, heard);
	if (standing)
		boost_end_round(s, standing - 1);
	before_cut = s->cut_us && heard->sent_us <= s->cut_us;
	if (s->filling) {
		/* Answers to what left before a timeout tell of the silence, not of a queue. */
		if (!before_cut)
			boost_fill(s, heard);
		return 0;
	}
	if (before_cut && s->draining)
		/* What is acknowledged now was sent while the path filled; it arrives at the path's rate. */
		boost_set(s, fix_upper(s->window, boost_full(s)));
	s->draining &= before_cut;
	if (s->competing) {
		boost_compete(s, heard, standing, before_cut);
		return 0;
	}
	if (!standing || heard->app_limited || heard->now_us < s->settled)
		return 0;
	s->long_rounds = standing - 1 > BOOST_SHARE(0.25) ? s->long_rounds + 1 : 0;
	is_long = s->long_rounds >= 4;
	comes_and_goes = s->fallen && heard->now_us - s->fallen < BOOST_FALLEN_US;
	if (is_long && comes_and_goes)
		s->competing = 1;
	else if (is_long || heard->now_us - s->seen_us > BOOST_PROBE_AFTER_US)
		boost_start_probe(s, heard, is_long);
	if (!before_cut)
		boost_balance(s, standing - 1);
	return 0;
}

/* Losses, a mark or a timeout. */
BOOST_FUNCTION int law_boost_lose(struct law_boost *s, const struct boost_lost *loss)
{
	__u64 least, latest, queue, all, chance, kept, floor;
	int many, congestion;

	if (!s || !loss)
		return 0;
	least = s->least ? s->least : fix_upper(loss->min_rtt_us, 1);
	latest = boost_latest(s);
	latest = latest ? latest : loss->rtt_us;
	queue = fix_lower(fix_div(fix_above(latest, least) << 20, least), 1U << 30);
	/* The monitor's judgement. */
	s->lost = (__u32)fix_lower((__u64)s->lost + loss->lost, ~0U);
	s->events++;
	all = (__u64)s->acked + s->lost;
	chance = all * (s->usual + BOOST_SHARE(0.05)) + 5 * BOOST_ONE;
	many = s->events > 5 && (__u64)s->lost << 20 > chance;
	if (many && queue > BOOST_SHARE(0.01) && s->usual < BOOST_SHARE(0.01))
		s->limit = s->limit ? (__u32)fix_lower(s->limit, queue) : (__u32)queue;
	congestion = loss->signal == LAW_MARK || queue > BOOST_SHARE(0.25) || many ||
		     (s->limit && queue * 5 >= s->limit * 4ULL);
	if (loss->signal == LAW_TIMEOUT) {
		boost_set(s, 0);
		boost_restart_learning(s);
		s->filling = 1;
		s->flat = 0;
		s->cut_us = loss->now_us;
		return 0;
	}
	if (!loss->new_episode || !congestion || (s->cut_us && loss->sent_us <= s->cut_us))
		return 0;
	if (s->competing && s->rounds - s->overflow_round < 8)
		return 0;
	/* Half of the queue that overflowed fits. */
	s->room = (__u32)fix_upper(fix_lower(s->room, queue / 2), BOOST_SHARE(0.01));
	s->overflow_round = s->rounds;
	if (s->filling)
		boost_end_filling(s, loss->now_us);
	floor = fix_lower(s->window, BOOST_LEAST);
	kept = s->competing ? BOOST_SHARE(0.9) : BOOST_SHARE(0.8);
	/* Emptying a short queue twice is enough. */
	kept = fix_upper(kept, fix_lower(fix_div(BOOST_ONE << 20, BOOST_ONE + 2 * queue), BOOST_SHARE(0.9)));
	boost_set(s, fix_upper((s->window * kept) >> 20, floor));
	s->empty = 0;
	s->velocity = 0;
	s->cut_us = loss->now_us;
	return 0;
}

/* The window now, in 2^-16 segments. */
LAW_INLINE __u64 law_boost_window(const struct law_boost *s)
{
	__u64 pipe = boost_pipe(s);

	if (s->probe_until && pipe)
		return fix_upper(fix_lower(s->window, pipe / 10 * 7), 2 * BOOST_SEGMENT);
	return s->window;
}

/* Pace; zero before the first round trip. */
BOOST_FUNCTION __u64 law_boost_pace(const struct law_boost *s)
{
	__u64 time, recent;

	if (!s || !s->srtt_us)
		return 0;
	recent = boost_recent(s);
	time = recent ? fix_lower(recent, s->srtt_us) : s->srtt_us;
	return fix_upper(fix_div(law_boost_window(s) << 8, time) * (s->filling ? 1688 : 1034) >> 10, 1);
}

#endif
