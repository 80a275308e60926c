/* NVML, cuBLAS and nvidia-smi for the paper cards: -DNVML, -DBLAS, -DLT, -DSMI. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
typedef int E;
#if defined(NVML) || defined(SMI)
int paper_cards(void), paper_major(void), paper_minor(void), paper_owner(int, int *, long *);
long paper_total(int), paper_used(int);
const char *paper_name(void);
#define UUID "GPU-11000000-0000-0000-0000-00000000000%ld"
#endif
#ifdef NVML
static long card[] = {0, 1, 2, 3, 4, 5, 6, 7};
E nvmlInit(void) { return 0; } E nvmlInit_v2(void) { return 0; } E nvmlInitWithFlags(unsigned f) { return 0; } E nvmlShutdown(void) { return 0; }
const char *nvmlErrorString(E e) { return "not in the stand-in"; }
E nvmlSystemGetDriverVersion(char *s, unsigned n) { snprintf(s, n, "580.95.05"); return 0; }
E nvmlSystemGetCudaDriverVersion(int *v) { *v = 13000; return 0; } E nvmlSystemGetCudaDriverVersion_v2(int *v) { *v = 13000; return 0; }
E nvmlDeviceGetCount(unsigned *n) { *n = paper_cards(); return 0; } E nvmlDeviceGetCount_v2(unsigned *n) { *n = paper_cards(); return 0; }
E nvmlDeviceGetHandleByIndex_v2(unsigned i, void **h) { *h = &card[i & 7]; return i < (unsigned)paper_cards() ? 0 : 2; }
E nvmlDeviceGetHandleByIndex(unsigned i, void **h) { return nvmlDeviceGetHandleByIndex_v2(i, h); }
E nvmlDeviceGetHandleByUUID(const char *u, void **h) { *h = &card[(u[strlen(u) - 1] - '0') & 7]; return 0; }
E nvmlDeviceGetHandleByPciBusId_v2(const char *u, void **h) { *h = &card[(strtol(strchr(u, ':') + 1, 0, 16) - 1) & 7]; return 0; }
E nvmlDeviceGetIndex(long *h, unsigned *i) { *i = *h; return 0; } E nvmlDeviceGetMinorNumber(long *h, unsigned *i) { *i = *h; return 0; }
E nvmlDeviceGetName(void *h, char *s, unsigned n) { snprintf(s, n, "%s", paper_name()); return 0; }
E nvmlDeviceGetUUID(long *h, char *s, unsigned n) { snprintf(s, n, UUID, *h); return 0; }
E nvmlDeviceGetMemoryInfo(long *h, unsigned long long *m) { m[0] = paper_total(*h), m[2] = paper_used(*h), m[1] = m[0] - m[2]; return 0; }
E nvmlDeviceGetMemoryInfo_v2(long *h, unsigned long long *m) { m[1] = paper_total(*h), m[2] = 0, m[4] = paper_used(*h), m[3] = m[1] - m[4]; return 0; }
E nvmlDeviceGetCudaComputeCapability(void *h, int *a, int *b) { *a = paper_major(), *b = paper_minor(); return 0; }
E nvmlDeviceGetP2PStatus(void *a, void *b, int w, int *s) { *s = 0; return 0; }
E nvmlDeviceGetMigMode(void *h, unsigned *a, unsigned *b) { *a = *b = 0; return 0; }
E nvmlDeviceGetUtilizationRates(void *h, unsigned *u) { u[0] = u[1] = 0; return 0; }
struct process { unsigned pid; unsigned long long bytes; };
E nvmlDeviceGetComputeRunningProcesses(long *h, unsigned *n, struct process *out) {
    unsigned most = *n;
    long bytes;
    *n = 0;
    for (int i = 0, pid, c; (pid = paper_owner(i, &c, &bytes)) >= 0; i++)
        if (pid && bytes && c == *h && (*n)++ < most) out[*n - 1] = (struct process){pid, bytes};
    return *n > most ? 7 : 0;
}
E nvmlDeviceGetComputeRunningProcesses_v3(void *h, unsigned *n, void *p) { *n = 0; return 0; }
E nvmlDeviceGetGraphicsRunningProcesses_v3(void *h, unsigned *n, void *p) { *n = 0; return 0; }
E nvmlDeviceGetPciInfo_v3(long *h, char *p) { memset(p, 0, 68); snprintf(p, 16, "0000:%02lx:00.0", *h + 1); snprintf(p + 36, 32, "00000000:%02lX:00.0", *h + 1); return 0; }
E nvmlDeviceGetNumaNodeId(void *h, unsigned *n) { *n = 0; return 3; }
#elif defined(LT) /* handles that exist, products that are not computed: operators.py computes them */
E cublasLtCreate(void **h) { *h = malloc(64); return 0; }
E cublasLtMatmulDescCreate(void **h, int c, int t) { *h = calloc(1, 256); return 0; }
E cublasLtMatrixLayoutCreate(void **h, int t, unsigned long r, unsigned long c, long l) { *h = calloc(1, 256); return 0; }
E cublasLtMatmulPreferenceCreate(void **h) { *h = calloc(1, 256); return 0; }
E cublasLtMatmulAlgoGetHeuristic(void *h, void *d, void *a, void *b, void *c, void *e, void *p, int n, void *r, int *found) { *found = 1; return 0; }
unsigned long cublasLtGetVersion(void) { return 130101; }
#elif defined(BLAS)
static int mode; static void *stream;
E cublasCreate_v2(void **h) { *h = malloc(64); return 0; }
E cublasGetStream_v2(void *h, void **s) { *s = stream; return 0; }
E cublasSetStream_v2(void *h, void *s) { stream = s; return 0; }
E cublasGetPointerMode_v2(void *h, int *m) { *m = mode; return 0; }
E cublasSetPointerMode_v2(void *h, int m) { mode = m; return 0; }
E cublasGetMathMode(void *h, int *m) { *m = 0; return 0; }
E cublasGetVersion_v2(void *h, int *v) { *v = 130101; return 0; }
#elif defined(SMI)
int main(int count, char **words) { /* what the project asks of it */
    const char *asked = count > 1 ? words[1] : "";
    int has_units = !(count > 2 && strstr(words[count - 1], "nounits"));
    if (strstr(asked, "compute-apps")) {
        int pid, card; long bytes;
        for (int i = 0; (pid = paper_owner(i, &card, &bytes)) >= 0; i++)
            if (pid && bytes) {
                char row[200] = "", *at = asked ? strchr(asked, '=') : 0, *save = 0;
                for (char *w = strtok_r(strdup(at + 1), ",", &save); w; w = strtok_r(0, ",", &save)) {
                    if (*row) strcat(row, ", ");
                    char *end = row + strlen(row);
                    if (!strcmp(w, "pid")) sprintf(end, "%d", pid);
                    else if (!strcmp(w, "gpu_uuid")) sprintf(end, UUID, (long)card);
                    else if (strstr(w, "memory")) sprintf(end, "%ld%s", bytes >> 20, has_units ? " MiB" : "");
                    else sprintf(end, "python");
                }
                puts(row);
            }
        return 0;
    }
    if (count < 2) return puts("| NVIDIA-SMI 580.95.05    Driver Version: 580.95.05    CUDA Version: 13.0 |") < 0;
    for (long i = 0; i < paper_cards(); i++)
        if (!strcmp(asked, "-L")) printf("GPU %ld: %s (UUID: " UUID ")\n", i, paper_name(), i);
        else {
            char *at = strchr(asked, '='), *save = 0;
            int first = 1;
            if (!at) continue;
            for (char *w = strtok_r(strdup(at + 1), ",", &save); w; w = strtok_r(0, ",", &save), first = 0) {
                if (!first) printf(", ");
                if (!strcmp(w, "index")) printf("%ld", i);
                else if (!strcmp(w, "name")) printf("%s", paper_name());
                else if (!strcmp(w, "uuid")) printf(UUID, i);
                else if (!strcmp(w, "driver_version")) printf("580.95.05");
                else if (!strcmp(w, "compute_cap")) printf("%d.%d", paper_major(), paper_minor());
                else if (!strncmp(w, "memory.", 7)) {
                    long all = paper_total(i), used = paper_used(i);
                    printf("%ld%s", (w[7] == 't' ? all : w[7] == 'u' ? used : all - used) >> 20, has_units ? " MiB" : "");
                } else printf("[N/A]");
            }
            puts("");
        }
    return 0;
}
#endif
