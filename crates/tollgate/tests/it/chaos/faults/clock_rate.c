// Clocks that count time run CLOCK_OFF_PPM parts per million fast, counted from the first reading of each; the wall
// clock is left alone. Loaded with LD_PRELOAD by tests only.
#define _GNU_SOURCE
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static long long off_ppm;
static struct timespec first[16];

__attribute__((constructor)) static void begin(void) {
    const char *text = getenv("CLOCK_OFF_PPM");
    off_ppm = text ? atoll(text) : 0;
    for (int id = 0; id < 16; id++) syscall(SYS_clock_gettime, id, &first[id]);
}

int clock_gettime(clockid_t id, struct timespec *now) {
    long failed = syscall(SYS_clock_gettime, id, now);
    if (failed || (id != CLOCK_MONOTONIC && id != CLOCK_MONOTONIC_RAW && id != CLOCK_BOOTTIME)) return (int)failed;
    long long ns = (now->tv_sec - first[id].tv_sec) * 1000000000LL + now->tv_nsec - first[id].tv_nsec;
    // In one product, or the clock would step back at every whole millisecond.
    ns += ns * off_ppm / 1000000 + first[id].tv_nsec;
    now->tv_sec = first[id].tv_sec + ns / 1000000000LL;
    now->tv_nsec = ns % 1000000000LL;
    return 0;
}
