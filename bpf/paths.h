/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * What is remembered of paths: written when a connection ends, read when the next one to the same network begins.
 * `skyhaul kernel paths` shows and clears it. Rust's side: crates/live/src/kernel/paths.rs.
 *
 * Include it after the declarations of __u8 to __u64.
 */
#ifndef SKYHAUL_PATHS_H
#define SKYHAUL_PATHS_H

/* The destination's network: its address with the host part zero, an IPv4 one as ::ffff:a.b.c.d. */
struct path_key {
	__u8 addr[16];
};

struct path {
	__u64 rate_bytes_per_s; /* delivery rate, TCP payload */
	__u64 updated_ns;       /* by the clock since boot that bpf_ktime_get_ns reads */
	__u32 min_rtt_us;
	__u32 loss_ppm;         /* lost segments per million sent */
	__u32 cwnd;             /* segments */
	__u32 uses;             /* connections it was learnt from */
};

#ifdef __bpf__
/* The loader gives every controller the same map and pins it. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 4096);
	__type(key, struct path_key);
	__type(value, struct path);
} sky_paths SEC(".maps");
#endif

#endif
