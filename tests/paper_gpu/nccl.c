/* NCCL between processes of one machine, over shared memory. Every collective waits for all ranks and compares what they
 * ask for: an order that differs between ranks, for which cards would wait for ever, is named and fails. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>
typedef int E;
enum { OTHER_ORDER = 5, UNSUPPORTED = 4, MOST = 16 };
#define CHUNK (1ul << 20)
enum { ALL_REDUCE, BROADCAST, ALL_GATHER, REDUCE_SCATTER, REDUCE };
static const char *const names[] = {"all_reduce", "broadcast", "all_gather", "reduce_scatter", "reduce"};
static const char *const types[] = {"int8", "uint8", "int32", "uint32", "int64", "uint64", "fp16", "fp32", "fp64", "bf16", "fp8", "fp8"};
static const size_t width[] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1};
struct uid { char b[128]; };
struct asked { int what, type, op, root; size_t count; };
struct room { volatile int failed; volatile long came[MOST], left[MOST]; struct asked asked[MOST]; char data[]; };
struct comm { int n, rank; long turn; int splits; struct uid id; struct room *room; };
static char message[600];

static struct comm *join(int n, int rank, struct uid id) {
    struct comm *c = calloc(1, sizeof *c);
    c->n = n, c->rank = rank, c->id = id;
    if (n == 1 || getenv("PAPER_ALONE")) return c;
    size_t size = sizeof(struct room) + n * CHUNK;
    int fd = open(id.b, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (ftruncate(fd, size)) {}
    c->room = mmap(0, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    return c;
}
static E fail(struct comm *c) { c->room->failed = 1; fprintf(stderr, "paper NCCL: %s\n", message); return OTHER_ORDER; }
static void say(char *out, int rank, struct asked a) {
    sprintf(out, "rank %d: %s of %zu %s, operation %d, root %d", rank, names[a.what], a.count, types[a.type], a.op, a.root);
}
static E wait_for(struct comm *c, volatile long *numbers, struct asked a) { /* until all have this turn's number */
    double most = getenv("PAPER_WAIT") ? atof(getenv("PAPER_WAIT")) : 600;
    for (int k = 0, naps = 0; k < c->n;) {
        if (numbers[k] >= c->turn) { k++; continue; }
        if (c->room->failed) return OTHER_ORDER;
        if (naps++ < 50) { sched_yield(); continue; }
        usleep(200);
        if ((naps * 200e-6) < most) continue;
        char mine[200];
        say(mine, c->rank, a);
        sprintf(message, "%s, and rank %d did not come in %.0f s", mine, k, most);
        return fail(c);
    }
    __sync_synchronize();
    return 0;
}
static E meet(struct comm *c, struct asked a) {
    c->room->asked[c->rank] = a;
    __sync_synchronize();
    c->room->came[c->rank] = ++c->turn;
    E e = wait_for(c, c->room->came, a);
    for (int k = 0; !e && k < c->n; k++)
        if (memcmp(&c->room->asked[k], &a, sizeof a)) {
            char mine[200], other[200];
            say(mine, c->rank, a), say(other, k, c->room->asked[k]);
            sprintf(message, "collective %ld differs. %s; %s", c->turn, mine, other);
            return fail(c);
        }
    return e;
}
static E leave(struct comm *c, struct asked a) {
    __sync_synchronize();
    c->room->left[c->rank] = c->turn;
    return wait_for(c, c->room->left, a);
}
E ncclGetVersion(int *v) { *v = 22907; return 0; }
E ncclGetUniqueId(struct uid *id) {
    unsigned long r = 0;
    int fd = open("/dev/urandom", O_RDONLY);
    if (read(fd, &r, sizeof r)) {}
    close(fd);
    memset(id, 0, sizeof *id), snprintf(id->b, 100, "/dev/shm/paper_nccl_%016lx", r);
    return 0;
}
const char *ncclGetErrorString(E e) { return e == OTHER_ORDER ? "ranks ask for different collectives" : "not in the stand-in"; }
const char *ncclGetLastError(void *c) { return message; }
E ncclCommInitRank(struct comm **out, int n, struct uid id, int rank) {
    *out = join(n, rank, id);
    if (!(*out)->room) return 0;
    E e = meet(*out, (struct asked){0}) || leave(*out, (struct asked){0});
    if (rank == 0) unlink(id.b);
    return e;
}
E ncclCommInitRankConfig(struct comm **c, int n, struct uid id, int rank, void *cfg) { return ncclCommInitRank(c, n, id, rank); }
E ncclCommInitRankScalable(struct comm **c, int n, int rank, int k, struct uid *ids, void *cfg) { return ncclCommInitRank(c, n, ids[0], rank); }
E ncclCommCount(struct comm *c, int *n) { *n = c->n; return 0; }
E ncclCommUserRank(struct comm *c, int *n) { *n = c->rank; return 0; }
E ncclCommGetAsyncError(struct comm *c, E *e) { *e = c->room && c->room->failed ? OTHER_ORDER : 0; return 0; }
E ncclCommDestroy(void *c) { return 0; } E ncclCommAbort(struct comm *c) { if (c->room) c->room->failed = 1; return 0; }
E ncclCommFinalize(void *c) { return 0; } E ncclGroupStart(void) { return 0; } E ncclGroupEnd(void) { return 0; }

#define NUMBERS(X) X(0, int8_t) X(1, uint8_t) X(2, int32_t) X(3, uint32_t) X(4, int64_t) X(5, uint64_t) X(6, _Float16) X(7, float) X(8, double)
#define READ(number, type) case number: return *(type *)p;
#define WRITE(number, type) case number: *(type *)p = v; break;
static double get(const char *p, int t) {
    uint32_t wide = (uint32_t) * (uint16_t *)p << 16; /* bf16 */
    switch (t) { NUMBERS(READ) default: return *(float *)&wide; }
}
static void set(char *p, int t, double v) {
    float f = v;
    uint32_t wide = *(uint32_t *)&f;
    switch (t) { NUMBERS(WRITE) default: *(uint16_t *)p = (wide + 0x7fff + (wide >> 16 & 1)) >> 16; }
}
static E together(int what, const char *s, char *r, size_t count, int t, int op, int root, struct comm *c) {
    size_t w = width[t], each = count * w, sent = what == REDUCE_SCATTER ? each * c->n : each;
    if (!c->room) { /* of one rank, or PAPER_ALONE: one of several, as if the others sent the same */
        if (getenv("PAPER_SKIP") && each >= (size_t)atol(getenv("PAPER_SKIP"))) return 0;
        for (int k = 0; k < (what == ALL_GATHER ? c->n : 1); k++)
            memmove(r + k * each, s + (what == REDUCE_SCATTER ? c->rank * each : 0), each);
        return 0;
    }
    struct asked a = {what, t, op, root, count};
    for (size_t at = 0; at < sent || !at; at += CHUNK) { /* a collective of nothing meets too */
        size_t n = sent - at < CHUNK ? sent - at : CHUNK;
        if (what != BROADCAST || c->rank == root) memcpy(c->room->data + c->rank * CHUNK, s + at, n);
        E e = meet(c, a);
        if (e) return e;
        if (what == BROADCAST) memcpy(r + at, c->room->data + root * CHUNK, n);
        else if (what == ALL_GATHER) for (int k = 0; k < c->n; k++) memcpy(r + k * each + at, c->room->data + k * CHUNK, n);
        else for (size_t i = 0; i < n; i += w) {
            size_t whole = at + i;
            if (what == REDUCE_SCATTER && whole / each != (size_t)c->rank) continue;
            if (what == REDUCE && c->rank != root) break;
            double v = get(c->room->data + i, t);
            for (int k = 1; k < c->n; k++) {
                double x = get(c->room->data + k * CHUNK + i, t);
                v = op == 2 ? (x > v ? x : v) : op == 3 ? (x < v ? x : v) : op == 1 ? v * x : v + x;
            }
            if (op == 4) v /= c->n;
            set(r + (what == REDUCE_SCATTER ? whole % each : whole), t, v);
        }
        if ((e = leave(c, a))) return e;
    }
    return 0;
}
E ncclAllReduce(const void *s, void *r, size_t n, int t, int op, void *c, void *st) { return together(ALL_REDUCE, s, r, n, t, op, 0, c); }
E ncclBroadcast(const void *s, void *r, size_t n, int t, int root, void *c, void *st) { return together(BROADCAST, s, r, n, t, 0, root, c); }
E ncclBcast(void *b, size_t n, int t, int root, void *c, void *st) { return together(BROADCAST, b, b, n, t, 0, root, c); }
E ncclReduce(const void *s, void *r, size_t n, int t, int op, int root, void *c, void *st) { return together(REDUCE, s, r, n, t, op, root, c); }
E ncclAllGather(const void *s, void *r, size_t n, int t, void *c, void *st) { return together(ALL_GATHER, s, r, n, t, 0, 0, c); }
E ncclReduceScatter(const void *s, void *r, size_t n, int t, int op, void *c, void *st) { return together(REDUCE_SCATTER, s, r, n, t, op, 0, c); }
E ncclCommSplit(struct comm *c, int color, int key, struct comm **out, void *cfg) {
    int mine[2] = {color, key}, all[2 * MOST], rank = 0, n = 0;
    *out = 0;
    E e = together(ALL_GATHER, (void *)mine, (void *)all, 2, 2, 0, 0, c);
    if (e || color < 0) return e;
    for (int k = 0; k < c->n; k++) {
        if (all[2 * k] != color) continue;
        n++, rank += all[2 * k + 1] < key || (all[2 * k + 1] == key && k < c->rank);
    }
    struct uid id = c->id;
    sprintf(id.b + strlen(id.b), "_%d_%d", ++c->splits, color);
    return ncclCommInitRank(out, n, id, rank);
}
