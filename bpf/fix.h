/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * Integer mathematics for the kernel's TCP: no floats, no signed division, no branch inside a loop
 * (the verifier walks every path through a loop). The same text compiles for BPF and for the host.
 *
 * "Qn" is a number times 2^n. Every function says for which inputs it holds; outside it saturates,
 * never overflows into nonsense, and a division by zero is zero, as in BPF.
 */
#ifndef SKY_FIX_H
#define SKY_FIX_H

typedef unsigned char __u8;
typedef unsigned short __u16;
typedef unsigned int __u32;
typedef unsigned long long __u64;
typedef int __s32;

#define FIX_INLINE static inline __attribute__((always_inline, unused))

/* One in Q16. */
#define FIX_ONE (1ULL << 16)
/* A share or factor known when compiling, in Q16, to the nearest. */
#define FIX_Q16(x) ((__u64)((x)*65536.0 + 0.5))

FIX_INLINE __u64 fix_min(__u64 a, __u64 b)
{
	return a < b ? a : b;
}

FIX_INLINE __u64 fix_max(__u64 a, __u64 b)
{
	return a > b ? a : b;
}

/*
 * The smaller and the greater of two numbers whose difference is below 2^63, without a branch: the verifier follows
 * each, so laws with many steps take these.
 */
FIX_INLINE __u64 fix_lower(__u64 a, __u64 b)
{
	__u64 less = a - b;

	return b + (less & -(less >> 63));
}

FIX_INLINE __u64 fix_upper(__u64 a, __u64 b)
{
	__u64 less = a - b;

	return a - (less & -(less >> 63));
}

/* a - b, at least zero, as fix_lower(). */
FIX_INLINE __u64 fix_above(__u64 a, __u64 b)
{
	return fix_upper(a, b) - b;
}

/* a - b, at least zero. */
FIX_INLINE __u64 fix_less(__u64 a, __u64 b)
{
	return a > b ? a - b : 0;
}

FIX_INLINE __u64 fix_div(__u64 a, __u64 b)
{
	return b ? a / b : 0;
}

/* Whether `a` comes after `b` on a counter of 32 bits that wraps. */
FIX_INLINE int fix_after(__u32 a, __u32 b)
{
	return (b - a) >> 31;
}

/* Position of the highest bit of x, x > 0; zero for zero. No branch: BPF has no "count leading zeros". */
FIX_INLINE __u32 fix_ilog2(__u64 x)
{
	x |= x >> 1;
	x |= x >> 2;
	x |= x >> 4;
	x |= x >> 8;
	x |= x >> 16;
	x |= x >> 32;
	/* Count the bits of (x >> 1), all ones below the highest bit. */
	x >>= 1;
	x -= (x >> 1) & 0x5555555555555555ULL;
	x = (x & 0x3333333333333333ULL) + ((x >> 2) & 0x3333333333333333ULL);
	x = (x + (x >> 4)) & 0x0f0f0f0f0f0f0f0fULL;
	return (__u32)((x * 0x0101010101010101ULL) >> 56);
}

/*
 * 2^x for x in Q16, below 32; the answer in Q16. A polynomial through five Chebyshev points on [0, 1),
 * relative error below 3e-7 (at small x the Q16 answer is coarser: 2^-17).
 */
FIX_INLINE __u64 fix_exp2(__u64 x)
{
	__u64 f = x & 0xffff, n = fix_min(x >> 16, 31), sum = 1920246;

	sum = 9877767 + ((sum * f) >> 16);
	sum = 59761307 + ((sum * f) >> 16);
	sum = 257920511 + ((sum * f) >> 16);
	sum = 744261533 + ((sum * f) >> 16);
	sum = (1ULL << 30) + ((sum * f) >> 16);
	return ((sum << n) + (1ULL << 13)) >> 14;
}

/* log2(x) in Q16 for a whole x > 0, rounded down; zero for zero. Sixteen squarings, one bit each. */
FIX_INLINE __u64 fix_log2(__u64 x)
{
	__u32 n = fix_ilog2(x);
	__u64 m = (x << (63 - n)) >> 32, bits = 0, carry;

#pragma GCC unroll 16
	for (int i = 0; i < 16; i++) {
		m = (m * m) >> 31;
		carry = m >> 32;
		m >>= carry;
		bits = (bits << 1) | carry;
	}
	return ((__u64)n << 16) | (x ? bits : 0);
}

/* The square root of x > 0, below 2^60, within one. Five Newton steps from a power of two above it. */
FIX_INLINE __u64 fix_root(__u64 x)
{
	__u64 root = 2ULL << (fix_ilog2(x) >> 1);

#pragma GCC unroll 5
	for (int i = 0; i < 5; i++)
		root = (root + fix_div(x, root)) >> 1;
	return root;
}

/*
 * Cube root of x < 2^63, within one of the true root. Six Newton steps from a power of two above the root: the
 * first halves the distance, each later one squares the relative error (1.42, 1.11, 1.011, 1 + 1e-4, 1 + 1e-8).
 */
FIX_INLINE __u64 fix_cbrt(__u64 x)
{
	__u64 y = 1ULL << ((fix_ilog2(x) + 3) * 43 >> 7);

#pragma GCC unroll 6
	for (int i = 0; i < 6; i++)
		y = (2 * y + fix_div(x, y * y)) / 3;
	return x ? y : 0;
}

#endif
