/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * What controllers tell `skyhaul kernel watch`: one event per connection and round, or once a second. Rust's side:
 * crates/live/src/kernel/watch.rs.
 *
 * Include it after the declarations of __u8 to __u64.
 */
#ifndef SKYHAUL_EVENTS_H
#define SKYHAUL_EVENTS_H

/* event.kind */
#define EVENT_START 0 /* a connection has come to use the controller */
#define EVENT_ROUND 1
#define EVENT_LOSS  2 /* the window was cut */
#define EVENT_END   3 /* the connection is closed or uses another controller */

struct event {
	__u64 at_ns;                   /* by the clock that bpf_ktime_get_ns reads */
	__u64 pacing_bytes_per_s;      /* sk_pacing_rate */
	__u64 delivered;               /* segments since the connection began */
	__u8  local[16];               /* addresses, an IPv4 one as ::ffff:a.b.c.d */
	__u8  remote[16];
	char  law[16];                 /* the registered name */
	__u16 local_port;              /* in the order of this machine's bytes */
	__u16 remote_port;
	__u32 kind;
	__u32 cwnd;                    /* segments, as the next two */
	__u32 ssthresh;
	__u32 in_flight;
	__u32 srtt_us;
	__u32 min_rtt_us;
	__u32 mss;                     /* bytes */
	__u32 lost;                    /* segments since the connection began */
	__u32 netns;                   /* number of the network namespace, as in /proc/PID/ns/net */
};

#ifdef __bpf__
/* The loader gives every controller the same two maps and pins them. */
struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 256 * 1024);
} sky_events SEC(".maps");

/* Until when somebody watches. Who does moves it on every second, so a reader that was killed costs nothing. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} sky_watched SEC(".maps");

/* Room for an event, or nothing when nobody wants it. Fill all of it, then event_end(). */
static __always_inline struct event *event_begin(__u64 now_ns)
{
	__u32 first = 0;
	__u64 *until = bpf_map_lookup_elem(&sky_watched, &first);

	if (!until || *until <= now_ns)
		return 0;
	return bpf_ringbuf_reserve(&sky_events, sizeof(struct event), 0);
}

static __always_inline void event_end(struct event *event)
{
	bpf_ringbuf_submit(event, 0);
}
#endif

#endif
