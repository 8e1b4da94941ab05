/* An event simulation of services for `percentiles.py`, which compiles it: as `tests/unit/model/simulated_service.py`, 25 times as fast.

   Times of first tokens and between tokens are counted in bins of 0.2 %, 500 to a factor of e, from exp(-2048 / 500) full passes on;
   beside them requests that come to a stream, and those of them that find all of its slots taken. */
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define BINS 8192
#define RING 65536
#define STREAMS 16
#define REPLICAS 64

typedef struct { uint64_t s[4]; } Random;
static uint64_t turn(uint64_t x, int k) { return (x << k) | (x >> (64 - k)); }
static uint64_t next64(Random *r) {
    uint64_t *s = r->s, found = turn(s[1] * 5, 7) * 9, t = s[1] << 17;
    s[2] ^= s[0]; s[3] ^= s[1]; s[1] ^= s[2]; s[0] ^= s[3]; s[2] ^= t; s[3] = turn(s[3], 45);
    return found;
}
static double uniform(Random *r) { return ((next64(r) >> 11) + 0.5) * 0x1p-53; }
static double exponential(Random *r) { return -log(uniform(r)); }
static double normal(Random *r) {
    for (;;) {
        double a = 2.0 * uniform(r) - 1.0, b = 2.0 * uniform(r) - 1.0, q = a * a + b * b;
        if (q < 1.0 && q > 0.0) return a * sqrt(-2.0 * log(q) / q);
    }
}
/* mean 1, Marsaglia and Tsang */
static double gamma1(Random *r, double scv) {
    if (scv <= 0.0) return 1.0;
    if (scv == 1.0) return exponential(r);
    double a = 1.0 / scv, lift = 1.0;
    if (a < 1.0) { lift = pow(uniform(r), 1.0 / a); a += 1.0; }
    double d = a - 1.0 / 3.0, c = 1.0 / sqrt(9.0 * d);
    for (;;) {
        double x = normal(r), v = 1.0 + c * x;
        if (v <= 0.0) continue;
        v = v * v * v;
        if (log(uniform(r)) < 0.5 * x * x + d - d * v + d * log(v)) return lift * d * v * scv;
    }
}
static double between(Random *r, double rate, double scv) {
    if (scv < 1.0) return gamma1(r, scv) / rate;
    double often = 0.5 * (1.0 + sqrt((scv - 1.0) / (scv + 1.0)));
    return exponential(r) / (uniform(r) < often ? 2.0 * often * rate : 2.0 * (1.0 - often) * rate);
}
static int bin(double t, double unit) {
    int b = (int)floor(log(t / unit) * 500.0) + 2048;
    return b < 0 ? 0 : b >= BINS ? BINS - 1 : b;
}
typedef struct { double come, prompt, first, slot; int passes, next, counted; } Request;

/* p: empty pass, each sequence, prompt, slots, tokens, load; scv of arrivals, prompts, answers; streams; load of chips for prompts (0:
   prompts beside answers) and their replicas. Of `count` answers that end, requests before `skip` are not counted. */
int simulate(const double *p, int64_t count, int64_t skip, uint64_t seed, int64_t *first_bins, int64_t *token_bins, int64_t *come_and_wait) {
    double empty = p[0], each = p[1], prompt = p[2];
    int slots = (int)p[3], k = (int)p[9], replicas = (int)p[11], two = p[10] > 0.0;
    double left = p[4] - 1.0, full = empty + each * slots + (two ? 0.0 : prompt * slots / left);
    double rate = p[5] * k * slots / (left * full);
    if (two) prompt = p[10] * replicas / rate;
    Random r; uint64_t z = seed * 0x9E3779B97F4A7C15ull + 1;
    for (int i = 0; i < 4; i++) { z += 0x9E3779B97F4A7C15ull; uint64_t x = z; x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ull; x = (x ^ (x >> 27)) * 0x94D049BB133111EBull; r.s[i] = x ^ (x >> 31); }
    int cap = 1 << 20, free_ = 0;
    Request *q = malloc(sizeof(Request) * cap);
    for (int i = 0; i < cap; i++) q[i].next = i + 1;
    int *ring[STREAMS], *ends[STREAMS], head[STREAMS], tail[STREAMS], running[STREAMS], idle[STREAMS], held[STREAMS], taken[STREAMS];
    int64_t number[STREAMS]; double due[STREAMS];
    for (int s = 0; s < k; s++) {
        ring[s] = malloc(sizeof(int) * RING); ends[s] = calloc(RING, sizeof(int));
        for (int i = 0; i < RING; i++) ring[s][i] = -1;
        head[s] = tail[s] = taken[s] = -1; running[s] = held[s] = 0; idle[s] = 1; number[s] = 0; due[s] = INFINITY;
    }
    double busy_until[REPLICAS]; int with[REPLICAS]; int phead = -1, ptail = -1;
    for (int i = 0; i < replicas; i++) { busy_until[i] = INFINITY; with[i] = -1; }
    memset(first_bins, 0, sizeof(int64_t) * BINS); memset(token_bins, 0, sizeof(int64_t) * BINS);
    double arrives = between(&r, rate, p[6]), now = 0.0;
    int64_t come = 0, done = 0;
    come_and_wait[0] = come_and_wait[1] = 0;
    while (done < count) {
        double t = arrives; int what = 0, which = 0;
        for (int s = 0; s < k; s++) if (due[s] <= t) { t = due[s]; what = 1; which = s; }
        if (two) for (int i = 0; i < replicas; i++) if (busy_until[i] < t) { t = busy_until[i]; what = 2; which = i; }
        now = t;
        int id = -1, begin = -1;
        if (what == 0) {
            id = free_; if (id >= cap - 1) return 1;
            free_ = q[id].next;
            q[id].come = now; q[id].prompt = prompt * gamma1(&r, p[7]); q[id].next = -1; q[id].counted = come >= skip;
            q[id].passes = (int)fmax(0.0, rint(left * gamma1(&r, p[8])));
            come++;
            arrives = now + between(&r, rate, p[6]);
            if (two) {
                if (ptail >= 0) q[ptail].next = id; else phead = id;
                ptail = id; id = -1;
                for (int i = 0; i < replicas && phead >= 0; i++) if (with[i] < 0) {
                    with[i] = phead; busy_until[i] = now + q[phead].prompt; phead = q[phead].next; if (phead < 0) ptail = -1; break;
                }
            }
        } else if (what == 2) {
            id = with[which]; with[which] = -1; busy_until[which] = INFINITY; q[id].next = -1;
            if (phead >= 0) { with[which] = phead; busy_until[which] = now + q[phead].prompt; phead = q[phead].next; if (phead < 0) ptail = -1; }
        }
        if (id >= 0) { /* joins a stream */
            int s = 0, best = 1 << 30, turnof = 1 << 30;
            for (int j = 0; j < k; j++) { int o = (int)(((j - come) % k + k) % k); if (held[j] < best || (held[j] == best && o < turnof)) { best = held[j]; turnof = o; s = j; } }
            held[s]++;
            if (q[id].counted) { come_and_wait[0]++; come_and_wait[1] += held[s] > slots; }
            if (two && held[s] <= slots) { q[id].slot = now; q[id].next = taken[s]; taken[s] = id; if (q[id].counted) { first_bins[bin(now - q[id].come, full)]++; } }
            else { if (tail[s] >= 0) q[tail[s]].next = id; else head[s] = id; tail[s] = id; }
            if (idle[s]) begin = s;
        } else if (what == 1) {
            int s = which; number[s]++;
            int slot = number[s] & (RING - 1), i = ring[s][slot], over = 0;
            ring[s][slot] = -1;
            while (i >= 0) {
                int after = q[i].next;
                if (q[i].counted && q[i].passes) token_bins[bin((now - (two ? q[i].slot : q[i].first)) / fmax(q[i].passes, 1), full)]++;
                q[i].next = free_; free_ = i; i = after; held[s]--; running[s]--; done++; over++;
            }
            if (two) {
                while (over-- && head[s] >= 0) {
                    int j = head[s]; head[s] = q[j].next; if (head[s] < 0) tail[s] = -1;
                    q[j].slot = now; q[j].next = taken[s]; taken[s] = j;
                    if (q[j].counted) { first_bins[bin(now - q[j].come, full)]++; }
                }
            } else {
                int j = taken[s]; taken[s] = -1;
                while (j >= 0) {
                    int after = q[j].next; q[j].first = now;
                    if (q[j].counted) { first_bins[bin(now - q[j].come, full)]++; }
                    if (q[j].passes) {
                        if (q[j].passes >= RING) return 2;
                        int e = (number[s] + q[j].passes) & (RING - 1);
                        q[j].next = ring[s][e]; ring[s][e] = j; running[s]++; ends[s][e]++;
                    } else { held[s]--; done++; q[j].next = free_; free_ = j; }
                    j = after;
                }
            }
            begin = s;
        }
        if (begin >= 0) {
            int s = begin; double time;
            if (two) {
                int j = taken[s]; taken[s] = -1;
                while (j >= 0) {
                    int after = q[j].next, n = q[j].passes < 1 ? 1 : q[j].passes;
                    if (n >= RING) return 2;
                    int e = (number[s] + n) & (RING - 1);
                    q[j].next = ring[s][e]; ring[s][e] = j; running[s]++; j = after;
                }
                time = empty + each * running[s];
                idle[s] = running[s] == 0;
            } else {
                int e = (number[s] + 1) & (RING - 1), room = slots - running[s] + ends[s][e];
                ends[s][e] = 0; time = empty + each * running[s];
                int any = running[s] > 0;
                while (room-- > 0 && head[s] >= 0) {
                    int j = head[s]; head[s] = q[j].next; if (head[s] < 0) tail[s] = -1;
                    q[j].next = taken[s]; taken[s] = j; time += q[j].prompt; any = 1;
                }
                idle[s] = !any;
            }
            due[s] = idle[s] ? INFINITY : now + time;
        }
    }
    for (int s = 0; s < k; s++) { free(ring[s]); free(ends[s]); }
    free(q);
    return 0;
}
