/* A stand-in for NVIDIA's library: answers what a scenario file says.

   The file is named by NVML_SCENARIO, or else /etc/nvml-scenario, and holds `key = value` lines; `#` starts a comment.
   What belongs to one GPU is `gpu.INDEX.key`, with `gpu.key` for those that say nothing else.
   A value is what the call answers (numbers of one call are separated by blanks), or
       !15     the call fails with NVML's code 15; so does a key that isn't there, with 3
       hang    the call never returns
       linger  the call never returns, and a process that can't be killed with us keeps our pipes
       crash   the call dies of a signal
   What belongs to one slice (MIG) is `gpu.INDEX.slice.NUMBER.key`, else `gpu.slice.NUMBER.key`; there is one if it
   has a uuid. What a slice doesn't say is not supported for it, whatever its card says.
   `gpu.INDEX.any` holds for every call on that GPU. Signatures: NVML API reference. */

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef unsigned long long u64;
enum { LINE = 256, LINES = 512 };
static char keys[LINES][LINE], values[LINES][LINE];
static int lines = -1;

static void read_scenario(void) {
  const char *path = getenv("NVML_SCENARIO");
  FILE *file = fopen(path ? path : "/etc/nvml-scenario", "r");
  char line[LINE];
  lines = 0;
  while (file && lines < LINES && fgets(line, sizeof line, file))
    if (line[0] != '#' && sscanf(line, " %255[^= ] = %255[^\n]", keys[lines], values[lines]) == 2)
      lines++;
  if (file) fclose(file);
}

static const char *find(const char *key) {
  if (lines < 0) read_scenario();
  for (int i = lines - 1; i >= 0; i--) /* the last one holds */
    if (!strcmp(keys[i], key)) return values[i];
  return NULL;
}

/* Handles are the index plus one, so that none is NULL; a slice's adds its number plus one, times SLICE. */
enum { SLICE = 1024 };
static const char *find_for(void *gpu, const char *own) {
  char name[2 * LINE], key[LINE + 32];
  const char *value;
  int slice = (int)((size_t)gpu / SLICE) - 1;
  if (slice < 0) snprintf(key, sizeof key, "%s", own);
  else snprintf(key, sizeof key, "slice.%d.%s", slice, own);
  gpu = (void *)((size_t)gpu % SLICE);
  snprintf(name, sizeof name, "gpu.%d.any", (int)(size_t)gpu - 1);
  if ((value = find(name))) return value;
  snprintf(name, sizeof name, "gpu.%d.%s", (int)(size_t)gpu - 1, key);
  if ((value = find(name))) return value;
  snprintf(name, sizeof name, "gpu.%s", key);
  return find(name);
}

static void linger(void) {
  if (fork() == 0) {
    setsid();
    sleep(20);
    _exit(0);
  }
}

/* NVML's code for a value: 0 unless it tells of a failure. */
static int outcome(const char *value) {
  if (!value) return 3;
  if (!strcmp(value, "linger")) linger();
  if (!strcmp(value, "hang") || !strcmp(value, "linger"))
    for (;;) pause();
  if (!strcmp(value, "crash")) raise(SIGSEGV);
  return value[0] == '!' ? atoi(value + 1) : 0;
}

static int text(const char *value, char *to, unsigned size) {
  int code = outcome(value);
  if (!code) snprintf(to, size, "%s", value);
  return code;
}

/* Up to five numbers of a value; those it lacks are 0. */
static int numbers(const char *value, u64 n[5]) {
  int code = outcome(value);
  memset(n, 0, 5 * sizeof n[0]);
  if (!code) sscanf(value, "%lli %lli %lli %lli %lli", &n[0], &n[1], &n[2], &n[3], &n[4]);
  return code;
}

static int one(const char *value, unsigned *to) {
  u64 n[5];
  int code = numbers(value, n);
  if (!code) *to = (unsigned)n[0];
  return code;
}

static int wide(const char *value, u64 *to) {
  u64 n[5];
  int code = numbers(value, n);
  if (!code) *to = n[0];
  return code;
}

static int two(const char *value, unsigned *a, unsigned *b) {
  u64 n[5];
  int code = numbers(value, n);
  if (!code) *a = (unsigned)n[0], *b = (unsigned)n[1];
  return code;
}

int nvmlInitWithFlags(unsigned flags) {
  const char *value = find("init");
  (void)flags;
  return value ? outcome(value) : 0;
}
int nvmlInit_v2(void) { return nvmlInitWithFlags(0); }
int nvmlShutdown(void) { return 0; }
const char *nvmlErrorString(int code) { (void)code; return "scenario"; }
int nvmlSystemGetDriverVersion(char *to, unsigned size) { return text(find("driver"), to, size); }
int nvmlSystemGetCudaDriverVersion_v2(int *to) { return one(find("cuda"), (unsigned *)to); }
int nvmlDeviceGetCount_v2(unsigned *to) { return one(find("count"), to); }

int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **to) {
  const char *value;
  *to = (void *)(size_t)(index + 1);
  value = find_for(*to, "handle");
  return value ? outcome(value) : 0;
}
int nvmlDeviceGetName(void *gpu, char *to, unsigned size) {
  return text(find_for(gpu, "name"), to, size);
}
int nvmlDeviceGetUUID(void *gpu, char *to, unsigned size) {
  return text(find_for(gpu, "uuid"), to, size);
}
int nvmlDeviceGetCudaComputeCapability(void *gpu, int *major, int *minor) {
  return two(find_for(gpu, "capability"), (unsigned *)major, (unsigned *)minor);
}

/* memory is "total used" in MiB; memory_v2, where given, is the answer of the newer call. */
static int memory(void *gpu, const char *key, u64 *total, u64 *free, u64 *used) {
  u64 n[5];
  int code = numbers(find_for(gpu, key), n);
  if (!code) *total = n[0] << 20, *used = n[1] << 20, *free = *total - *used;
  return code;
}
int nvmlDeviceGetMemoryInfo(void *gpu, u64 *to) {
  return memory(gpu, "memory", &to[0], &to[1], &to[2]);
}
struct memory_v2 { unsigned version; u64 total, reserved, free, used; };
int nvmlDeviceGetMemoryInfo_v2(void *gpu, struct memory_v2 *to) {
  if (to->version != 0x2000028) return 25;
  return memory(gpu, find_for(gpu, "memory_v2") ? "memory_v2" : "memory", &to->total, &to->free,
                &to->used);
}

int nvmlDeviceGetEccMode(void *gpu, unsigned *now, unsigned *next) {
  return two(find_for(gpu, "ecc_mode"), now, next);
}
int nvmlDeviceGetTotalEccErrors(void *gpu, int kind, int counter, u64 *to) {
  if (kind != 1) return 2; /* only uncorrected errors are of interest */
  return wide(find_for(gpu, counter ? "ecc_ever" : "ecc_now"), to);
}
int nvmlDeviceGetRemappedRows(void *gpu, unsigned *corrected, unsigned *uncorrected,
                              unsigned *pending, unsigned *failed) {
  u64 n[5];
  int code = numbers(find_for(gpu, "remapped"), n);
  if (code) return code;
  *corrected = (unsigned)n[0], *uncorrected = (unsigned)n[1];
  *pending = (unsigned)n[2], *failed = (unsigned)n[3];
  return 0;
}
int nvmlDeviceGetMigMode(void *gpu, unsigned *now, unsigned *next) {
  return two(find_for(gpu, "mig"), now, next);
}
/* The most slices that the card may have: 0 where MIG isn't on. */
int nvmlDeviceGetMaxMigDeviceCount(void *gpu, unsigned *to) {
  unsigned next, on = 0;
  const char *value = find_for(gpu, "max_slices");
  *to = 0;
  if (two(find_for(gpu, "mig"), &on, &next) || !on) return 0;
  return value ? one(value, to) : (*to = 7, 0);
}
int nvmlDeviceGetMigDeviceHandleByIndex(void *gpu, unsigned index, void **to) {
  unsigned most;
  const char *value;
  if (nvmlDeviceGetMaxMigDeviceCount(gpu, &most) || !most) return 3;
  if (index >= most) return 2;
  *to = (void *)((size_t)gpu + (index + 1) * SLICE);
  if ((value = find_for(*to, "handle"))) return outcome(value);
  return find_for(*to, "uuid") ? 0 : 6; /* not found */
}
int nvmlDeviceGetTemperature(void *gpu, int sensor, unsigned *to) {
  return sensor ? 2 : one(find_for(gpu, "temperature"), to);
}
int nvmlDeviceGetTemperatureThreshold(void *gpu, int kind, unsigned *to) {
  return kind == 1 ? one(find_for(gpu, "slowdown_at"), to) : 3;
}
struct margin { unsigned version; int margin; };
int nvmlDeviceGetMarginTemperature(void *gpu, struct margin *to) {
  return one(find_for(gpu, "margin"), (unsigned *)&to->margin);
}
int nvmlDeviceGetUtilizationRates(void *gpu, unsigned to[2]) {
  return two(find_for(gpu, "load"), &to[0], &to[1]);
}
/* nvlink is the state of each link, as "1111": a link more is not supported. */
int nvmlDeviceGetNvLinkState(void *gpu, unsigned link, unsigned *to) {
  const char *value = find_for(gpu, "nvlink");
  int code = outcome(value);
  if (code) return code;
  if (link >= strlen(value)) return 2;
  *to = value[link] == '1';
  return 0;
}

/* clock is "now highest" in MHz, of the streaming multiprocessors. */
static int clock_of(void *gpu, int kind, int which, unsigned *to) {
  u64 n[5];
  int code = numbers(find_for(gpu, "clock"), n);
  if (kind != 1) return 2;
  if (!code) *to = (unsigned)n[which];
  return code;
}
int nvmlDeviceGetClockInfo(void *gpu, int kind, unsigned *to) { return clock_of(gpu, kind, 0, to); }
int nvmlDeviceGetMaxClockInfo(void *gpu, int kind, unsigned *to) {
  return clock_of(gpu, kind, 1, to);
}
/* process is "pid memory" in MiB: the one that computes. */
struct process { unsigned pid; u64 memory; unsigned instance, slice; };
int nvmlDeviceGetComputeRunningProcesses_v3(void *gpu, unsigned *count, struct process *to) {
  u64 n[5];
  const char *value = find_for(gpu, "process");
  int code = value ? numbers(value, n) : 0;
  unsigned room = *count;
  *count = value && !code;
  if (code || !*count) return code;
  if (room < 1) return 7; /* insufficient size */
  memset(to, 0, sizeof *to);
  to->pid = (unsigned)n[0], to->memory = n[1] << 20;
  return 0;
}

#define NUMBER(function, key) \
  int function(void *gpu, unsigned *to) { return one(find_for(gpu, key), to); }
#define WIDE(function, key) \
  int function(void *gpu, u64 *to) { return wide(find_for(gpu, key), to); }
NUMBER(nvmlDeviceGetRetiredPagesPendingStatus, "retired")
NUMBER(nvmlDeviceGetComputeMode, "compute_mode")
NUMBER(nvmlDeviceGetPowerUsage, "power")
NUMBER(nvmlDeviceGetPowerManagementLimit, "power_limit")
NUMBER(nvmlDeviceGetPowerManagementDefaultLimit, "power_default")
NUMBER(nvmlDeviceGetCurrPcieLinkWidth, "pcie_width")
NUMBER(nvmlDeviceGetMaxPcieLinkWidth, "pcie_max_width")
NUMBER(nvmlDeviceGetCurrPcieLinkGeneration, "pcie_gen")
NUMBER(nvmlDeviceGetMaxPcieLinkGeneration, "pcie_max_gen")
NUMBER(nvmlDeviceGetPersistenceMode, "persistence")
WIDE(nvmlDeviceGetCurrentClocksEventReasons, "throttle")
WIDE(nvmlDeviceGetCurrentClocksThrottleReasons, "throttle_old")
