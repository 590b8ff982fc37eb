/* A stand-in for libnvidia-ml.so.1: the calls that benchlab makes, answered from a text file named by FAKE_NVML.
 *
 * One device a line, words of the form key=value; a field that is not there answers NVML_ERROR_NOT_SUPPORTED:
 *   uuid=GPU-A bus=0000:01:00.0 name=Fake util=55 memutil=10 used=1024 reserved=16 total=4096 power=300000
 *   limit=700000 energy=1000,2000,500 temp=40 sm=1500 mem=2600 throttle=4 pcie=7 mig=1 memv2=0 lost=temp
 * energy may be a list: each call gives the next value, the last is kept. mig=1 makes the board a MIG parent, and
 * lines with parent=GPU-A (gi=1 ci=0) are its instances. lost=FIELD answers NVML_ERROR_GPU_IS_LOST for that field.
 * A line "init=N" makes nvmlInit answer N; "oldthrottle=1" hides the event-reasons call's support.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { OK = 0, INVALID = 2, NOT_SUPPORTED = 3, NOT_FOUND = 6, NO_FUNCTION = 13, LOST = 15, UNKNOWN = 999 };
typedef struct { char line[2048]; int board, calls; } Entry;
static Entry entries[64];
static int count = 0, init_code = 0, old_throttle = 0;

static int get(Entry *e, const char *key, char *out, size_t size) {
    size_t n = strlen(key);
    for (char *p = e->line; *p;) {
        while (*p == ' ') p++;
        char *end = p; while (*end && *end != ' ' && *end != '\n') end++;
        if ((size_t)(end - p) > n && !strncmp(p, key, n) && p[n] == '=') {
            size_t len = (size_t)(end - p) - n - 1; if (len >= size) len = size - 1;
            memcpy(out, p + n + 1, len); out[len] = 0; return 1;
        }
        p = *end ? end + 1 : end;
    }
    return 0;
}
static int number(Entry *e, const char *key, unsigned long long *out) {
    char text[512], lost[64];
    if (get(e, "lost", lost, sizeof lost) && !strcmp(lost, key)) return LOST;
    if (!get(e, key, text, sizeof text)) return NOT_SUPPORTED;
    char *p = text;
    if (strchr(text, ',')) {
        for (int i = 0; i < e->calls && strchr(p, ','); i++) p = strchr(p, ',') + 1;
        e->calls++;
    }
    *out = strtoull(p, NULL, 10); return OK;
}
static int small(Entry *e, const char *key, unsigned *out) {
    unsigned long long v; int rc = number(e, key, &v); if (!rc) *out = (unsigned)v; return rc;
}
static int is_instance(Entry *e) { char t[128]; return get(e, "parent", t, sizeof t); }
static int copy(Entry *e, const char *key, char *out, unsigned size) {
    char t[256]; if (!get(e, key, t, sizeof t)) return NOT_SUPPORTED;
    snprintf(out, size, "%s", t); return OK;
}

int nvmlInitWithFlags(unsigned flags) {
    (void)flags; count = 0;
    const char *path = getenv("FAKE_NVML"); FILE *f = path ? fopen(path, "r") : NULL;
    if (!f) return 9;
    char line[2048];
    while (fgets(line, sizeof line, f) && count < 64) {
        if (sscanf(line, "init=%d", &init_code) == 1) continue;
        if (sscanf(line, "oldthrottle=%d", &old_throttle) == 1) continue;
        if (strncmp(line, "uuid=", 5)) continue;
        memset(&entries[count], 0, sizeof(Entry)); strcpy(entries[count++].line, line);
    }
    fclose(f); return init_code;
}
int nvmlShutdown(void) { return OK; }
const char *nvmlErrorString(int code) {
    switch (code) { case NOT_SUPPORTED: return "Not Supported"; case LOST: return "GPU is lost"; case 9: return "Driver Not Loaded";
        case NOT_FOUND: return "Not Found"; default: return "Unknown Error"; }
}
int nvmlSystemGetDriverVersion(char *out, unsigned size) { snprintf(out, size, "575.51.03"); return OK; }
int nvmlSystemGetCudaDriverVersion_v2(int *out) { *out = 12090; return OK; }
int nvmlDeviceGetCount_v2(unsigned *out) {
    *out = 0; for (int i = 0; i < count; i++) if (!is_instance(&entries[i])) (*out)++;
    return OK;
}
int nvmlDeviceGetHandleByIndex_v2(unsigned index, Entry **out) {
    for (int i = 0; i < count; i++) if (!is_instance(&entries[i]) && index-- == 0) { *out = &entries[i]; return OK; }
    return INVALID;
}
int nvmlDeviceGetUUID(Entry *e, char *out, unsigned size) { return copy(e, "uuid", out, size); }
int nvmlDeviceGetName(Entry *e, char *out, unsigned size) { return copy(e, "name", out, size); }
typedef struct { char legacy[16]; unsigned domain, bus, device, id, sub; char bus_id[32]; } Pci;
int nvmlDeviceGetPciInfo_v3(Entry *e, Pci *out) { memset(out, 0, sizeof *out); return copy(e, "bus", out->bus_id, 32); }
int nvmlDeviceGetMigMode(Entry *e, unsigned *now, unsigned *pending) {
    unsigned v = 0; int rc = small(e, "mig", &v); if (!rc) *now = *pending = v; return rc;
}
int nvmlDeviceGetMaxMigDeviceCount(Entry *e, unsigned *out) { (void)e; *out = 7; return OK; }
int nvmlDeviceGetMigDeviceHandleByIndex(Entry *e, unsigned index, Entry **out) {
    char uuid[128], parent[128]; get(e, "uuid", uuid, sizeof uuid);
    for (int i = 0; i < count; i++)
        if (get(&entries[i], "parent", parent, sizeof parent) && !strcmp(parent, uuid) && index-- == 0) { *out = &entries[i]; return OK; }
    return NOT_FOUND;
}
int nvmlDeviceGetGpuInstanceId(Entry *e, unsigned *out) { return small(e, "gi", out); }
int nvmlDeviceGetComputeInstanceId(Entry *e, unsigned *out) { return small(e, "ci", out); }
int nvmlDeviceGetUtilizationRates(Entry *e, unsigned *out) {
    int rc = small(e, "util", &out[0]); if (rc) return rc;
    if (small(e, "memutil", &out[1])) out[1] = 0;
    return OK;
}
int nvmlDeviceGetMemoryInfo(Entry *e, unsigned long long *out) {
    int rc = number(e, "total", &out[0]); if (rc) return rc;
    number(e, "used", &out[2]); out[1] = out[0] - out[2]; return OK;
}
typedef struct { unsigned version; unsigned long long total, reserved, available, used; } Memory2;
int nvmlDeviceGetMemoryInfo_v2(Entry *e, Memory2 *out) {
    unsigned v2 = 1; small(e, "memv2", &v2); if (!v2) return NO_FUNCTION;
    int rc = number(e, "total", &out->total); if (rc) return rc;
    out->reserved = 0; number(e, "reserved", &out->reserved); number(e, "used", &out->used);
    out->available = out->total - out->used - out->reserved; return OK;
}
int nvmlDeviceGetPowerUsage(Entry *e, unsigned *out) { return small(e, "power", out); }
int nvmlDeviceGetEnforcedPowerLimit(Entry *e, unsigned *out) { return small(e, "limit", out); }
int nvmlDeviceGetTotalEnergyConsumption(Entry *e, unsigned long long *out) { return number(e, "energy", out); }
int nvmlDeviceGetTemperature(Entry *e, int sensor, unsigned *out) { (void)sensor; return small(e, "temp", out); }
int nvmlDeviceGetClockInfo(Entry *e, int type, unsigned *out) { return small(e, type == 1 ? "sm" : "mem", out); }
int nvmlDeviceGetMaxClockInfo(Entry *e, int type, unsigned *out) { (void)type; return small(e, "sm", out); }
int nvmlDeviceGetCurrentClocksEventReasons(Entry *e, unsigned long long *out) {
    return old_throttle ? NO_FUNCTION : number(e, "throttle", out);
}
int nvmlDeviceGetCurrentClocksThrottleReasons(Entry *e, unsigned long long *out) { return number(e, "throttle", out); }
int nvmlDeviceGetPcieThroughput(Entry *e, int counter, unsigned *out) { (void)counter; return small(e, "pcie", out); }
