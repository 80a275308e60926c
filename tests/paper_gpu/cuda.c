/* A CUDA runtime and driver without a card. Device memory is host memory that is only reserved until it is touched,
 * copies are memcpy, kernels do nothing. This file makes libcudart.so.13 (-DRUNTIME) and libcuda.so.1 (-DDRIVER).
 * The cards' memory is counted over all processes in a shared file, so that it runs out as a card's does. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define CARDS 8
#define EXPORT __attribute__((visibility("default")))
#ifdef RUNTIME
#include <cuda_runtime_api.h>
#undef cudaGetDeviceProperties
typedef cudaError_t E; /* as an int in C */
#else
typedef int E;
#endif
enum { OUT_OF_MEMORY = 2, NO_DEVICE = 100, INVALID_DEVICE = 101, ILLEGAL_ADDRESS = 700 };
enum { HOST = 1, DEVICE, OPENED, MAPPED, RESERVED }; /* OPENED: of another process. The last two are cuMem's */
struct block { char *at; size_t size; int card, kind, fd; };

#ifdef DRIVER /* ---- the state of a process and of the machine ---- */
#define OWNERS 4096
struct machine { struct { int pid, card; long bytes; } owners[OWNERS]; };
static struct machine *machine;
static int machine_fd = -1, looked; /* looked: the process that has read its environment; a fork reads it again */
static struct block blocks[65536];
static int used_blocks;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static int visible[CARDS], count_visible;
static __thread int current;

static double number(const char *name, double otherwise) { const char *s = getenv(name); return s ? atof(s) : otherwise; }
EXPORT int paper_cards(void) { return number("PAPER_GPUS", CARDS); }
EXPORT int paper_major(void) { return number("PAPER_CC", 9); }
EXPORT int paper_minor(void) { return (int)(number("PAPER_CC", 9) * 10 + .5) % 10; }
EXPORT const char *paper_name(void) { const char *s = getenv("PAPER_NAME"); return s ? s : "NVIDIA H100 80GB HBM3"; }
EXPORT long paper_total(int card) { return number("PAPER_GB", 85.52) * 1e9; }

static void look(void) {
    if (looked == getpid()) return;
    looked = getpid(), count_visible = 0;
    const char *file = getenv("PAPER_STATE");
    machine_fd = open(file ? file : "/dev/shm/paper_gpu", O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (ftruncate(machine_fd, sizeof *machine)) {}
    machine = mmap(0, sizeof *machine, PROT_READ | PROT_WRITE, MAP_SHARED, machine_fd, 0);
    const char *list = getenv("CUDA_VISIBLE_DEVICES");
    char *copy = strdup(list ? list : "0,1,2,3,4,5,6,7"), *save = 0;
    for (char *w = strtok_r(copy, ",", &save); w; w = strtok_r(0, ",", &save)) {
        if (!strncmp(w, "GPU-", 4)) w += strlen(w) - 1; /* our UUIDs end in the number */
        if (*w < '0' || *w > '9' || atoi(w) >= paper_cards()) break;
        visible[count_visible++] = atoi(w);
    }
    free(copy);
}
static void lock(void) { /* over threads and processes; a dead process holds nothing */
    look();
    pthread_mutex_lock(&mutex);
    fcntl(machine_fd, F_SETLKW, &(struct flock){.l_type = F_WRLCK});
}
static void unlock(void) {
    fcntl(machine_fd, F_SETLK, &(struct flock){.l_type = F_UNLCK});
    pthread_mutex_unlock(&mutex);
}
static long of_the_living(int card) {
    long sum = 0;
    for (int i = 0; i < OWNERS; i++)
        if (machine->owners[i].pid && kill(machine->owners[i].pid, 0) && errno == ESRCH) machine->owners[i].pid = 0;
        else if (machine->owners[i].pid && machine->owners[i].card == card) sum += machine->owners[i].bytes;
    return sum;
}
EXPORT long paper_used(int card) { lock(); long sum = of_the_living(card); unlock(); return sum; }
EXPORT int paper_owner(int i, int *card, long *bytes) { /* the processes that have memory, for nvidia-smi */
    look();
    if (i >= OWNERS) return -1;
    *card = machine->owners[i].card, *bytes = machine->owners[i].bytes;
    return machine->owners[i].pid;
}
EXPORT int paper_charge(int card, long bytes) {
    lock();
    int mine = -1, empty = -1, full = 0;
    for (int i = 0; i < OWNERS && mine < 0; i++) {
        if (machine->owners[i].pid == looked && machine->owners[i].card == card) mine = i;
        if (!machine->owners[i].pid && empty < 0) empty = i;
    }
    long more = bytes, now = of_the_living(card);
    if (mine < 0) more += number("PAPER_CONTEXT_GB", 0.5) * 1e9; /* a process's first memory brings its context */
    /* PAPER_CAP_GB: less than the card says that it has, so that a run's plan stays and its memory runs out */
    full = bytes > 0 && now + more > number("PAPER_CAP_GB", 1e9) * 1e9 || bytes > 0 && now + more > paper_total(card);
    if (!full) {
        if (mine < 0) mine = empty, machine->owners[mine].pid = looked, machine->owners[mine].card = card, machine->owners[mine].bytes = 0;
        machine->owners[mine].bytes += more;
    }
    unlock();
    return full;
}
EXPORT int paper_count(void) { look(); return count_visible; }
EXPORT int paper_current(void) { return current; }
EXPORT void paper_choose(int n) { current = n; }
EXPORT int paper_card(int logical) { look(); return visible[logical < count_visible && logical >= 0 ? logical : 0]; }
EXPORT void paper_add(struct block block) {
    pthread_mutex_lock(&mutex);
    int i = 0;
    while (i < used_blocks && blocks[i].at) i++;
    if (i == used_blocks) used_blocks++;
    blocks[i] = block;
    pthread_mutex_unlock(&mutex);
}
EXPORT struct block paper_find(const void *at, int forget) { /* what cuMem has mapped before what it has reserved */
    struct block *found = 0, none = {0};
    pthread_mutex_lock(&mutex);
    for (int i = 0; i < used_blocks; i++)
        if (blocks[i].at && (char *)at >= blocks[i].at && (char *)at < blocks[i].at + blocks[i].size)
            if (!found || found->kind == RESERVED) found = &blocks[i];
    struct block result = found ? *found : none;
    if (found && forget == found->kind) found->at = 0;
    pthread_mutex_unlock(&mutex);
    return result;
}
EXPORT int paper_asleep(const void *at) { return paper_find(at, 0).kind == RESERVED; } /* touching it is a fault */
#else
long paper_used(int), paper_total(int);
int paper_major(void), paper_minor(void), paper_count(void), paper_current(void), paper_card(int), paper_charge(int, long);
int paper_asleep(const void *), paper_unsupported(void);
const char *paper_name(void);
void paper_choose(int), paper_add(struct block);
struct block paper_find(const void *, int);
#endif

static E attribute(int *out, int which) {
    switch (which) {
    case 1: case 2: case 3: *out = 1024; break;                 /* threads of a block */
    case 5: *out = 0x7fffffff; break;
    case 6: case 7: *out = 65535; break;
    case 8: *out = 49152; break;                                /* shared memory of a block */
    case 10: *out = 32; break;                                  /* warp */
    case 12: case 82: *out = 65536; break;                      /* registers */
    case 13: *out = 1980000; break;
    case 16: *out = 132; break;                                 /* multiprocessors */
    case 38: *out = 50 << 20; break;                            /* L2 */
    case 39: *out = 2048; break;
    case 75: *out = paper_major(); break;
    case 76: *out = paper_minor(); break;
    case 81: *out = paper_major() == 12 ? 102400 : paper_major() == 8 ? 167936 : 233472; break;
    case 97: *out = paper_major() == 12 ? 101376 : paper_major() == 8 ? 166912 : 232448; break;
    case 20: case 33: case 34: case 50: case 84: case 85: *out = 0; break; /* mode, PCI, multi-GPU board */
    default: *out = 1;
    }
    return 0;
}

#ifdef RUNTIME
static __thread E last;
#define NAMED(name) __asm__(#name) /* where the header gives the name another meaning */
EXPORT E properties(struct cudaDeviceProp *p, int dev) NAMED(cudaGetDeviceProperties);
EXPORT E properties(struct cudaDeviceProp *p, int dev) {
    int shared;
    memset(p, 0, sizeof *p);
    strcpy(p->name, paper_name());
    p->uuid.bytes[15] = paper_card(dev), p->uuid.bytes[0] = 0x11;
    p->totalGlobalMem = paper_total(paper_card(dev));
    p->major = paper_major(), p->minor = paper_minor();
    p->multiProcessorCount = 132, p->maxThreadsPerMultiProcessor = 2048, p->maxThreadsPerBlock = 1024, p->warpSize = 32;
    p->regsPerBlock = p->regsPerMultiprocessor = 65536, p->sharedMemPerBlock = 49152;
    attribute(&shared, 97), p->sharedMemPerBlockOptin = shared, attribute(&shared, 81), p->sharedMemPerMultiprocessor = shared;
    p->l2CacheSize = 50 << 20, p->totalConstMem = 65536, p->pciBusID = paper_card(dev) + 1;
    p->unifiedAddressing = p->managedMemory = p->concurrentKernels = p->concurrentManagedAccess = p->canMapHostMemory = 1;
    for (int i = 0; i < 3; i++) p->maxThreadsDim[i] = 1024, p->maxGridSize[i] = i ? 65535 : 0x7fffffff;
    return 0;
}
EXPORT E cudaGetDeviceCount(int *n) { *n = paper_count(); return *n ? 0 : (last = NO_DEVICE); }
EXPORT E cudaGetDevice(int *n) { *n = paper_current(); return 0; }
EXPORT E cudaSetDevice(int n) { if (n >= paper_count()) return last = INVALID_DEVICE; paper_choose(n); return 0; }
EXPORT E cudaDeviceGetAttribute(int *out, enum cudaDeviceAttr a, int dev) { return attribute(out, a); }
EXPORT E cudaDriverGetVersion(int *v) { *v = 13000; return 0; }
EXPORT E cudaRuntimeGetVersion(int *v) { *v = 13000; return 0; }
EXPORT E cudaMemGetInfo(size_t *available, size_t *total) {
    int c = paper_card(paper_current());
    *total = paper_total(c), *available = *total - paper_used(c);
    return 0;
}
EXPORT E cudaMalloc(void **out, size_t size) {
    size = (size + 4095) & ~4095ul;
    if (paper_charge(paper_card(paper_current()), size)) return last = OUT_OF_MEMORY;
    int fd = memfd_create("paper", MFD_CLOEXEC);
    if (ftruncate(fd, size)) {}
    *out = mmap(0, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd, 0);
    paper_add((struct block){*out, size, paper_current(), DEVICE, fd});
    return 0;
}
EXPORT E cudaFree(void *at) {
    struct block b = paper_find(at, DEVICE);
    if (!at || b.kind != DEVICE) return 0;
    munmap(b.at, b.size), close(b.fd);
    paper_charge(paper_card(b.card), -(long)b.size);
    return 0;
}
EXPORT E cudaHostAlloc(void **out, size_t size, unsigned flags) {
    *out = mmap(0, size += !size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    paper_add((struct block){*out, size, 0, HOST, -1});
    return 0;
}
EXPORT E cudaFreeHost(void *at) { struct block b = paper_find(at, HOST); if (b.kind == HOST) munmap(b.at, b.size); return 0; }
EXPORT E cudaHostGetDevicePointer(void **out, void *at, unsigned flags) { *out = at; return 0; }
EXPORT E cudaPointerGetAttributes(struct cudaPointerAttributes *a, const void *at) {
    struct block b = paper_find(at, 0);
    memset(a, 0, sizeof *a);
    a->type = !b.kind ? cudaMemoryTypeUnregistered : b.kind == HOST ? cudaMemoryTypeHost : cudaMemoryTypeDevice;
    a->device = b.kind ? b.card : -2, a->devicePointer = b.kind ? (void *)at : 0;
    a->hostPointer = b.kind == HOST || !b.kind ? (void *)at : 0;
    return 0;
}
/* with PAPER_SKIP only smaller copies are made: what is large stays as it is, and untouched memory stays free */
static size_t skip(void) { static size_t s; if (!s) s = getenv("PAPER_SKIP") ? atol(getenv("PAPER_SKIP")) : ~0ul; return s; }
static E copy(void *to, const void *from, size_t n) {
    if (n && (paper_asleep(to) || paper_asleep(from))) return last = ILLEGAL_ADDRESS;
    if (n < skip()) memmove(to, from, n);
    return 0;
}
EXPORT E cudaMemcpy(void *to, const void *from, size_t n, enum cudaMemcpyKind k) { return copy(to, from, n); }
EXPORT E cudaMemcpyAsync(void *to, const void *from, size_t n, enum cudaMemcpyKind k, cudaStream_t s) { return copy(to, from, n); }
EXPORT E cudaMemcpyPeerAsync(void *to, int a, const void *from, int b, size_t n, cudaStream_t s) { return copy(to, from, n); }
EXPORT E cudaMemcpy2DAsync(void *to, size_t tp, const void *from, size_t fp, size_t w, size_t h, enum cudaMemcpyKind k, cudaStream_t s) {
    for (size_t i = 0; i < h; i++) copy((char *)to + i * tp, (char *)from + i * fp, w);
    return 0;
}
static E fill(char *at, int value, size_t n) { /* whole pages of zeros are given back instead */
    if (n && paper_asleep(at)) return last = ILLEGAL_ADDRESS;
    if (n >= skip()) return 0;
    char *from = (char *)(((uintptr_t)at + 4095) & ~4095ul), *to = (char *)((uintptr_t)(at + n) & ~4095ul);
    int kind = paper_find(at, 0).kind, how = kind == DEVICE ? MADV_REMOVE : MADV_DONTNEED;
    if (value || n < 1 << 20 || (kind != DEVICE && kind != MAPPED) || madvise(from, to - from, how)) memset(at, value, n);
    else memset(at, 0, from - at), memset(to, 0, at + n - to);
    return 0;
}
EXPORT E cudaMemset(void *at, int value, size_t n) { return fill(at, value, n); }
EXPORT E cudaMemsetAsync(void *at, int value, size_t n, cudaStream_t s) { return fill(at, value, n); }
EXPORT E cudaStreamCreateWithPriority(cudaStream_t *s, unsigned flags, int p) { *s = malloc(64); return 0; }
EXPORT E cudaStreamCreateWithFlags(cudaStream_t *s, unsigned flags) { *s = malloc(64); return 0; }
EXPORT E cudaStreamCreate(cudaStream_t *s) { *s = malloc(64); return 0; }
EXPORT E cudaStreamGetPriority(cudaStream_t s, int *p) { *p = 0; return 0; }
EXPORT E cudaDeviceGetStreamPriorityRange(int *a, int *b) { *a = 0, *b = -5; return 0; }
EXPORT E cudaEventCreate(cudaEvent_t *e) { *e = malloc(64); return 0; }
EXPORT E cudaEventCreateWithFlags(cudaEvent_t *e, unsigned flags) { *e = malloc(64); return 0; }
EXPORT E cudaEventElapsedTime(float *ms, cudaEvent_t a, cudaEvent_t b) { *ms = 1; return 0; }
/* Graphs: what operators.py computes while a stream captures is computed again when its graph is launched. */
static int capturing, graphs; static cudaStream_t on;
static void (*replay)(int);
EXPORT E cudaStreamSynchronize(cudaStream_t s) { return capturing && s == on ? (last = 900) : 0; } /* not permitted then */
EXPORT int paper_capturing(void) { return capturing; }
EXPORT void paper_on_launch(void (*f)(int)) { replay = f; }
struct graph { int number; };
static E numbered(void **out, int number) { struct graph *g = calloc(1, 64); g->number = number, *out = g; return 0; }
EXPORT E cudaStreamBeginCapture(cudaStream_t s, enum cudaStreamCaptureMode m) { capturing = ++graphs, on = s; return 0; }
EXPORT E cudaStreamEndCapture(cudaStream_t s, cudaGraph_t *g) { int n = capturing; capturing = 0; return numbered((void **)g, n); }
EXPORT E cudaStreamIsCapturing(cudaStream_t s, enum cudaStreamCaptureStatus *st) { *st = capturing && s == on; return 0; }
EXPORT E info(cudaStream_t s, enum cudaStreamCaptureStatus *st, unsigned long long *id, cudaGraph_t *g, void *d, void *e, size_t *n) NAMED(cudaStreamGetCaptureInfo);
EXPORT E info(cudaStream_t s, enum cudaStreamCaptureStatus *st, unsigned long long *id, cudaGraph_t *g, void *d, void *e, size_t *n) {
    *st = capturing && s == on;
    if (*st && id) *id = capturing;
    return 0;
}
EXPORT E cudaGraphGetNodes(cudaGraph_t g, cudaGraphNode_t *nodes, size_t *n) { *n = 1; return 0; }
EXPORT E cudaGraphInstantiateWithFlags(cudaGraphExec_t *x, cudaGraph_t g, unsigned long long flags) { return numbered((void **)x, ((struct graph *)g)->number); }
EXPORT E cudaGraphLaunch(cudaGraphExec_t x, cudaStream_t s) { if (replay) replay(((struct graph *)x)->number); return 0; }
EXPORT E cudaFuncGetAttributes(struct cudaFuncAttributes *a, const void *f) {
    memset(a, 0, sizeof *a);
    a->maxThreadsPerBlock = 1024, a->numRegs = 32, a->ptxVersion = a->binaryVersion = 10 * paper_major(), a->maxDynamicSharedSizeBytes = 232448;
    return 0;
}
EXPORT E cudaOccupancyMaxActiveBlocksPerMultiprocessor(int *n, const void *f, int b, size_t d) { *n = 4; return 0; }
EXPORT E cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int *n, const void *f, int b, size_t d, unsigned fl) { *n = 4; return 0; }
EXPORT E cudaDeviceCanAccessPeer(int *yes, int a, int b) { *yes = 1; return 0; }
EXPORT E cudaDeviceGetPCIBusId(char *out, int n, int dev) { snprintf(out, n, "0000:%02x:00.0", paper_card(dev) + 1); return 0; }
EXPORT E cudaGetLastError(void) { E e = last; last = 0; return e; }
EXPORT E cudaPeekAtLastError(void) { return last; }
EXPORT const char *cudaGetErrorString(cudaError_t e) {
    return e == OUT_OF_MEMORY ? "out of memory" : e == NO_DEVICE ? "no CUDA-capable device is detected"
        : e == ILLEGAL_ADDRESS ? "an illegal memory access was encountered" : "invalid argument";
}
EXPORT const char *cudaGetErrorName(cudaError_t e) { return e == OUT_OF_MEMORY ? "cudaErrorMemoryAllocation" : "cudaErrorOfPaper"; }
struct passed { int pid, fd; size_t size; };
EXPORT E cudaIpcGetMemHandle(cudaIpcMemHandle_t *h, void *at) {
    struct block b = paper_find(at, 0);
    if (b.kind != DEVICE) return last = 1;
    struct passed p = {getpid(), b.fd, b.size};
    memset(h, 0, sizeof *h), memcpy(h, &p, sizeof p);
    return 0;
}
EXPORT E cudaIpcOpenMemHandle(void **out, cudaIpcMemHandle_t h, unsigned flags) {
    struct passed p; char path[64];
    memcpy(&p, &h, sizeof p);
    if (p.pid == getpid()) return last = 201; /* as CUDA: not in the process that made it */
    snprintf(path, sizeof path, "/proc/%d/fd/%d", p.pid, p.fd);
    int fd = open(path, O_RDWR | O_CLOEXEC);
    if (fd < 0) return last = 1; /* the sender has freed it, or is dead */
    *out = mmap(0, p.size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    paper_add((struct block){*out, p.size, paper_current(), OPENED, fd});
    return 0;
}
EXPORT E cudaIpcCloseMemHandle(void *at) {
    struct block b = paper_find(at, OPENED);
    if (b.kind == OPENED) munmap(b.at, b.size), close(b.fd);
    return 0;
}
EXPORT E cudaIpcGetEventHandle(cudaIpcEventHandle_t *h, cudaEvent_t e) { memset(h, 0, sizeof *h); return 0; }
EXPORT E cudaIpcOpenEventHandle(cudaEvent_t *e, cudaIpcEventHandle_t h) { *e = malloc(64); return 0; }
EXPORT E entry(const char *name, void **out, unsigned version, unsigned long long flags, int *status) NAMED(cudaGetDriverEntryPointByVersion);
EXPORT E entry(const char *name, void **out, unsigned version, unsigned long long flags, int *status) {
    *out = dlsym(RTLD_DEFAULT, name);
    if (!*out) *out = (void *)paper_unsupported;
    if (status) *status = 0;
    return 0;
}
EXPORT E cudaGetSymbolAddress(void **out, const void *s) { static char zeros[1 << 16]; *out = zeros; return 0; }
static __thread struct { dim3 g, b; size_t s; void *st; } waiting; /* <<<>>>: the configuration waits for the call */
EXPORT unsigned __cudaPushCallConfiguration(dim3 g, dim3 b, size_t s, void *st) { waiting.g = g, waiting.b = b, waiting.s = s, waiting.st = st; return 0; }
EXPORT E __cudaPopCallConfiguration(dim3 *g, dim3 *b, size_t *s, void *st) { *g = waiting.g, *b = waiting.b, *s = waiting.s, *(void **)st = waiting.st; return 0; }
#endif

#ifdef DRIVER
typedef unsigned long long P;
#define PAGE (2ul << 20)
EXPORT E cuDriverGetVersion(int *v) { *v = 13000; return 0; }
EXPORT E cuDeviceGet(int *d, int n) { *d = n; return n < paper_count() ? 0 : INVALID_DEVICE; }
EXPORT E cuDeviceGetAttribute(int *out, int a, int d) { return attribute(out, a); }
static int context[CARDS];
EXPORT E cuCtxGetCurrent(void **c) { *c = &context[current]; return 0; }
EXPORT E cuDevicePrimaryCtxGetState(int d, unsigned *f, int *active) { *f = 0, *active = 1; return 0; }
EXPORT E cuDevicePrimaryCtxRetain(void **c, int d) { *c = &context[d]; return 0; }
EXPORT E cuModuleLoadData(void **m, const void *i) { *m = malloc(8); return 0; }
EXPORT E cuModuleLoadDataEx(void **m, const void *i, unsigned n, void *o, void *v) { *m = malloc(8); return 0; }
EXPORT E cuModuleGetFunction(void **f, void *m, const char *n) { *f = strdup(n); return 0; }
EXPORT E cuFuncGetAttribute(int *v, int a, void *f) { *v = a == 0 ? 1024 : a == 4 ? 32 : 0; return 0; }
EXPORT E cuOccupancyMaxActiveClusters(int *n, void *f, void *c) { *n = 8; return 0; }
EXPORT E cuPointerGetAttribute(void *out, int a, P at) {
    struct block b = paper_find((void *)at, 0);
    if (a == 3 || a == 4) { *(P *)out = at; return 0; }
    if (a == 2) { *(unsigned *)out = b.kind == HOST ? 1 : 2; return b.kind ? 0 : 1; }
    if (a == 9) *(int *)out = b.card;
    return 0;
}
EXPORT E cuGetErrorString(E e, const char **s) { *s = e == OUT_OF_MEMORY ? "out of memory" : "invalid argument"; return 0; }
EXPORT E cuMemGetAllocationGranularity(size_t *g, const void *p, int o) { *g = PAGE; return 0; }
EXPORT E cuMemAddressReserve(P *out, size_t size, size_t align, P at, P flags) {
    char *a = mmap(0, size + PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    *out = ((P)a + PAGE - 1) & ~(P)(PAGE - 1);
    paper_add((struct block){(char *)*out, size, current, RESERVED, -1});
    return 0;
}
EXPORT E cuMemAddressFree(P at, size_t size) { paper_find((void *)at, RESERVED), munmap((void *)at, size); return 0; }
struct piece { size_t size; int card; };
EXPORT E cuMemCreate(P *h, size_t size, const int *prop, P flags) {
    int c = paper_card(prop[3]); /* type, handle types, location: type and id */
    if (paper_charge(c, size)) return OUT_OF_MEMORY;
    struct piece *p = malloc(sizeof *p);
    p->size = size, p->card = c, *h = (P)p;
    return 0;
}
EXPORT E cuMemMap(P at, size_t size, size_t offset, P h, P flags) {
    mmap((void *)at, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
    paper_add((struct block){(char *)at, size, current, MAPPED, -1});
    return 0;
}
EXPORT E cuMemUnmap(P at, size_t size) {
    paper_find((void *)at, MAPPED);
    mmap((void *)at, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
    return 0;
}
EXPORT E cuMemRelease(P h) { struct piece *p = (void *)h; paper_charge(p->card, -(long)p->size); free(p); return 0; }
EXPORT E paper_unsupported(void) { return 801; } /* what is asked for by a name that nobody has */
EXPORT E cuGetProcAddress_v2(const char *name, void **out, int version, P flags, int *status) {
    char v2[256];
    snprintf(v2, sizeof v2, "%s_v2", name);
    void *me = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
    *out = dlsym(me ? me : RTLD_DEFAULT, v2);
    if (!*out) *out = dlsym(me ? me : RTLD_DEFAULT, name);
    if (!*out) *out = paper_unsupported;
    if (status) *status = 0;
    return 0;
}
#endif
