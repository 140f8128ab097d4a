/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * What adapters with an own pace share: the path's memory (paths.h) and pacing rates. Include after sky.h.
 */
#ifndef SKY_LEARN_H
#define SKY_LEARN_H

#include "paths.h"

/* What a connection that used its window for less than so many segments has seen is not remembered. */
#define LEARN_LEAST 200
/* Share of a remembered rate to begin with, in per cent: up to ten minutes old, and up to a day. */
#define LEARN_FRESH 85
#define LEARN_OLD 50
#define LEARN_FRESH_NS (600ULL * 1000000000)
#define LEARN_OLD_NS (86400ULL * 1000000000)
/* Windows for which the send buffer should have room, and what a segment takes in it besides its payload. */
#define LEARN_ROOM 4
#define LEARN_BESIDES 768

/* The peer's network: /24 of IPv4, /48 of IPv6. */
FIX_INLINE void learn_key(const struct sock *sk, struct path_key *key)
{
	__u32 address[4];

	sky_peer(sk, address);
	if (address[0] == 0 && address[1] == 0 && address[2] == 0xffff0000) {
		address[3] &= 0x00ffffff;
	} else {
		address[1] &= 0x0000ffff;
		address[2] = 0;
		address[3] = 0;
	}
	__builtin_memcpy(key->addr, address, sizeof(address));
}

/*
 * A path that is known and whose round trip the handshake has confirmed within a quarter: its rate in bytes per second,
 * reduced by its age, or zero.
 */
FIX_INLINE __u64 learn_known(const struct sock *sk, __u32 srtt_us, __u32 *min_rtt_us)
{
	struct path_key key;
	struct path *path;
	__u64 age, least;

	learn_key(sk, &key);
	path = bpf_map_lookup_elem(&sky_paths, &key);
	if (!path)
		return 0;
	age = bpf_ktime_get_ns() - path->updated_ns;
	least = path->min_rtt_us;
	if (age > LEARN_OLD_NS || srtt_us == 0 || srtt_us > least + least / 4 || least > srtt_us + srtt_us / 4)
		return 0;
	*min_rtt_us = (__u32)least;
	return path->rate_bytes_per_s / 100 * (age > LEARN_FRESH_NS ? LEARN_OLD : LEARN_FRESH);
}

FIX_INLINE void learn_store(struct sock *sk, __u64 rate_bytes_per_s, __u32 min_rtt_us, __u32 loss_ppm)
{
	struct tcp_sock *tp = sky_tcp(sk);
	struct path_key key;
	struct path path = {}, *before;

	if (!rate_bytes_per_s || tp->delivered < LEARN_LEAST)
		return;
	learn_key(sk, &key);
	before = bpf_map_lookup_elem(&sky_paths, &key);
	path.uses = before ? before->uses + 1 : 1;
	path.rate_bytes_per_s = rate_bytes_per_s;
	path.updated_ns = bpf_ktime_get_ns();
	path.min_rtt_us = min_rtt_us;
	path.loss_ppm = loss_ppm;
	path.cwnd = tp->snd_cwnd;
	bpf_map_update_elem(&sky_paths, &key, &path, 0);
}

/* Segments per microsecond in 2^-24, at most 2^34, as bytes per second; and back. */
FIX_INLINE __u64 learn_bytes(__u64 rate, __u32 mss)
{
	return (((fix_min(rate, 1ULL << 34) * fix_min(mss, 65535)) >> 12) * 1000000) >> 12;
}

FIX_INLINE __u64 learn_rate(__u64 bytes_per_s, __u32 mss)
{
	return fix_div((fix_min(bytes_per_s, 1ULL << 39) << 24) / 1000000, mss);
}

/*
 * The sample of cong_control. The verifier allows only fixed offsets, so the compiler must not make one load of two:
 * written as assembly. What the constant rules out is never verified.
 */
FIX_INLINE const struct rate_sample *learn_sample(unsigned long long *ctx)
{
	const struct rate_sample *rs;

	if (tun.abi4)
		asm volatile("%0 = *(u64 *)(%1 + 24)" : "=r"(rs) : "r"(ctx));
	else
		asm volatile("%0 = *(u64 *)(%1 + 8)" : "=r"(rs) : "r"(ctx));
	return rs;
}

/*
 * Once per round, after the window was set. The kernel gives the send buffer room for two windows. What was sent behind
 * a hole stays there until the hole is filled: for a round trip, for two or three where the repetition is lost, too. On
 * a noisy path such a buffer holds nothing else, and the link stands idle. There, and until the buffer has its room, one
 * answer in a round trip shows the kernel twice the window; the pace bounds what leaves before the next.
 */
FIX_INLINE void learn_room(struct sock *sk)
{
	struct tcp_sock *tp = sky_tcp(sk);
	__u64 room = (__u64)tp->snd_cwnd * LEARN_ROOM * (tp->mss_cache + LEARN_BESIDES);

	if (tp->sacked_out && (__u64)(__u32)sk->sk_sndbuf < room)
		tp->snd_cwnd = (__u32)fix_min(tp->snd_cwnd * 2ULL, tp->snd_cwnd_clamp);
}

FIX_INLINE void learn_pace(struct sock *sk, __u64 bytes_per_s)
{
	sk->sk_pacing_rate = fix_min(fix_max(bytes_per_s, 1000), sk->sk_max_pacing_rate);
}

#endif
