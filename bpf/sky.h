/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* From a socket to the events of law.h. For adapters; include after view.h and law.h. */
#ifndef SKY_SKY_H
#define SKY_SKY_H

#include "view.h"
#include "events.h"
#include "law.h"

/* What every adapter keeps in front of its law's state; both together have 104 bytes. */
struct sky_base {
	__u32 delivered;     /* tp->delivered and tp->lost at the last event */
	__u32 lost;
	__u32 round_end;     /* tp->delivered when the round began */
	__u32 rtt_us;        /* newest sample; 0: none */
	__u32 cut_cwnd;      /* window before the last cut, with its fraction */
	__u16 cut_frac;
	__u8 cut_pending;    /* 1: the kernel has not yet said what the cut was for */
	__u8 told;           /* time of the last event for people, in 65.5 ms */
};

/* Bytes of state that are left for a law. */
#define SKY_STATE_MOST (13 * 8 - sizeof(struct sky_base))

FIX_INLINE struct tcp_sock *sky_tcp(struct sock *sk)
{
	return (struct tcp_sock *)sk;
}

FIX_INLINE void *sky_private(struct sock *sk)
{
	return ((struct inet_connection_sock *)sk)->icsk_ca_priv;
}

/* Lets the kernel pace, without the fq queueing discipline. Where fq is in charge it stays so. */
FIX_INLINE void sky_pace(struct sock *sk)
{
	if (sk->sk_pacing_status == SK_PACING_NONE)
		sk->sk_pacing_status = SK_PACING_NEEDED;
}

/* tcp_packets_in_flight() */
FIX_INLINE __u32 sky_in_flight(const struct tcp_sock *tp)
{
	return tp->packets_out - tp->sacked_out - tp->lost_out + tp->retrans_out;
}

/* tcp_is_cwnd_limited(): whether the window, not the application, is the limit. */
FIX_INLINE __u32 sky_limited(const struct tcp_sock *tp)
{
	if (BPF_CORE_READ_BITFIELD(tp, is_cwnd_limited))
		return 1;
	return tp->snd_cwnd < tp->snd_ssthresh && tp->snd_cwnd < 2 * tp->max_packets_out;
}

FIX_INLINE __u32 sky_min_rtt_us(const struct tcp_sock *tp)
{
	__u32 least = tp->rtt_min.s[0].v;

	return least == ~0U ? 0 : least;
}

FIX_INLINE __u32 sky_srtt_us(const struct tcp_sock *tp)
{
	return tp->srtt_us >> 3;
}

/* An address; IPv4 as ::ffff:a.b.c.d whatever family the socket is of. */
FIX_INLINE void sky_address(__u32 to[4], const struct sock *sk, __be32 four, const struct in6_addr *six)
{
	if (sk->__sk_common.skc_family == AF_INET6) {
		to[0] = six->in6_u.u6_addr32[0];
		to[1] = six->in6_u.u6_addr32[1];
		to[2] = six->in6_u.u6_addr32[2];
		to[3] = six->in6_u.u6_addr32[3];
	} else {
		to[0] = 0;
		to[1] = 0;
		to[2] = 0xffff0000;
		to[3] = four;
	}
}

FIX_INLINE void sky_peer(const struct sock *sk, __u32 to[4])
{
	sky_address(to, sk, sk->__sk_common.skc_daddr, &sk->__sk_common.skc_v6_daddr);
}

FIX_INLINE void sky_local(const struct sock *sk, __u32 to[4])
{
	sky_address(to, sk, sk->__sk_common.skc_rcv_saddr, &sk->__sk_common.skc_v6_rcv_saddr);
}

FIX_INLINE void sky_setup(const struct tcp_sock *tp, struct law_setup *setup)
{
	setup->cwnd = tp->snd_cwnd;
	setup->ssthresh = tp->snd_ssthresh;
	setup->mss = tp->mss_cache;
	setup->reference_us = tun.reference_us;
	setup->step_q8 = tun.step_q8;
}

/* The state of the socket, but for what only the hook knows: acked, lost, round_start and flight_sent are zero. */
FIX_INLINE void sky_fill(const struct tcp_sock *tp, const struct sky_base *base, struct law_ack *ack)
{
	__u32 mss = tp->mss_cache;

	ack->now_us = tp->tcp_mstamp;
	ack->acked = 0;
	ack->lost = 0;
	ack->rtt_us = base->rtt_us;
	ack->min_rtt_us = sky_min_rtt_us(tp);
	ack->srtt_us = sky_srtt_us(tp);
	ack->flight = sky_in_flight(tp);
	ack->flight_sent = 0;
	ack->rwnd = mss ? tp->snd_wnd / mss : 0;
	ack->mss = mss;
	ack->round_start = 0;
	ack->limited = sky_limited(tp);
	ack->cwnd = tp->snd_cwnd;
	ack->ssthresh = tp->snd_ssthresh;
}

/*
 * The event of pkts_acked. The kernel's in_flight counts what was delivered since the newest acknowledged segment
 * left, so it also says how much had been delivered when it left: the round has ended if that was all of the last
 * round. A round counted so does not wait for holes to be filled, as one counted in sequence numbers would.
 */
FIX_INLINE void sky_sample(const struct tcp_sock *tp, struct sky_base *base, const struct ack_sample *sample,
			   struct law_ack *ack)
{
	__u32 delivered = tp->delivered, lost = tp->lost, sent = 0;
	__s32 rtt_us = sample->rtt_us;

	if (rtt_us > 0) {
		base->rtt_us = rtt_us;
		sent = tp->mss_cache ? sample->in_flight / tp->mss_cache : 0;
	}
	sky_fill(tp, base, ack);
	ack->rtt_us = rtt_us > 0 ? rtt_us : 0;
	ack->acked = delivered - base->delivered;
	ack->lost = lost - base->lost;
	ack->flight += ack->acked;
	ack->flight_sent = sent;
	/* Without a sample of the round trip in_flight means nothing. */
	if (rtt_us > 0 && !fix_after(base->round_end, delivered - sent)) {
		ack->round_start = 1;
		base->round_end = delivered;
	}
	base->delivered = delivered;
	base->lost = lost;
}

FIX_INLINE void sky_loss(const struct tcp_sock *tp, struct sky_base *base, __u32 signal, struct law_loss *loss)
{
	loss->now_us = tp->tcp_mstamp;
	loss->signal = signal;
	loss->lost = tp->lost - base->lost;
	loss->rtt_us = base->rtt_us;
	loss->min_rtt_us = sky_min_rtt_us(tp);
	loss->flight = sky_in_flight(tp);
	loss->cwnd = tp->snd_cwnd;
	loss->ssthresh = tp->snd_ssthresh;
	base->lost = tp->lost;
}

/* Tells whoever watches. A function of its own: most calls end at once because nobody does. */
static __attribute__((noinline, unused)) int sky_tell(struct sock *sk, __u32 kind, const char *law)
{
	struct tcp_sock *tp = sky_tcp(sk);
	__u64 now = bpf_ktime_get_ns();
	struct event *event = event_begin(now);

	if (!event)
		return 0;
	event->at_ns = now;
	event->pacing_bytes_per_s = sk->sk_pacing_rate;
	event->delivered = tp->delivered;
	sky_local(sk, (__u32 *)event->local);
	sky_peer(sk, (__u32 *)event->remote);
	__builtin_memcpy(event->law, law, sizeof(event->law));
	event->local_port = sk->__sk_common.skc_num;
	event->remote_port = bpf_ntohs(sk->__sk_common.skc_dport);
	event->kind = kind;
	event->cwnd = tp->snd_cwnd;
	event->ssthresh = tp->snd_ssthresh;
	event->in_flight = sky_in_flight(tp);
	event->srtt_us = sky_srtt_us(tp);
	event->min_rtt_us = sky_min_rtt_us(tp);
	event->mss = tp->mss_cache;
	event->lost = tp->lost;
	event->netns = sk->__sk_common.skc_net.net->ns.inum;
	event_end(event);
	return 0;
}

/* Whether a round is to be told: not more often than every 0.2 s (three units of 65.5 ms). */
FIX_INLINE int sky_told_long_ago(const struct tcp_sock *tp, struct sky_base *base)
{
	__u8 now = (__u8)(tp->tcp_mstamp >> 16);

	if ((__u8)(now - base->told) < 3)
		return 0;
	base->told = now;
	return 1;
}

#endif
