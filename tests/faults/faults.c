/* Loaded before the C library (LD_PRELOAD): a wall clock that jumps, and blobs that cannot be written.
 * While they fail with ENOSPC, their file system has no free block.
 *
 * What is wrong is read at every call from the file FAULTS_FILE names, which all processes of a
 * service map: the test changes it while they run.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/statvfs.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

struct faults {
    int64_t clock_seconds; /* added to the wall clock */
    int32_t error;         /* what a write to a blob fails with; 0: it does not */
    int32_t spared;        /* writes that succeed before the first that fails */
};

static struct faults *faults;

/* Called again by a process that was forked and has got the variable afterwards. */
__attribute__((constructor)) void map_faults(void)
{
    if (faults)
        return;
    const char *path = getenv("FAULTS_FILE");
    int file = path ? open(path, O_RDWR | O_CLOEXEC) : -1;
    if (file < 0)
        return;
    void *mapped = mmap(NULL, sizeof *faults, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (mapped != MAP_FAILED)
        faults = mapped;
    close(file);
}

int clock_gettime(clockid_t clock, struct timespec *now)
{
    static int (*real)(clockid_t, struct timespec *);
    if (!real)
        real = dlsym(RTLD_NEXT, "clock_gettime");
    int result = real(clock, now);
    if (faults && result == 0 && clock == CLOCK_REALTIME)
        now->tv_sec += faults->clock_seconds;
    return result;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone)
{
    static int (*real)(struct timeval *, void *);
    if (!real)
        real = dlsym(RTLD_NEXT, "gettimeofday");
    int result = real(now, zone);
    if (faults && result == 0)
        now->tv_sec += faults->clock_seconds;
    return result;
}

time_t time(time_t *told)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (told)
        *told = now.tv_sec;
    return now.tv_sec;
}

static int fails(int file)
{
    char link[32], path[4096];
    if (!faults || !faults->error)
        return 0;
    snprintf(link, sizeof link, "/proc/self/fd/%d", file);
    ssize_t length = readlink(link, path, sizeof path - 1);
    if (length < 0)
        return 0;
    path[length] = 0;
    if (!strstr(path, "/blobs/"))
        return 0;
    if (__atomic_fetch_sub(&faults->spared, 1, __ATOMIC_RELAXED) > 0)
        return 0;
    errno = faults->error;
    return 1;
}

#define FAILING(result, name, parameters, arguments)        \
    result name parameters                                  \
    {                                                       \
        static result(*real) parameters;                    \
        if (!real)                                          \
            real = dlsym(RTLD_NEXT, #name);                 \
        return fails(file) ? -1 : real arguments;           \
    }

FAILING(ssize_t, write, (int file, const void *data, size_t size), (file, data, size))
FAILING(ssize_t, writev, (int file, const struct iovec *parts, int count), (file, parts, count))
FAILING(int, fsync, (int file), (file))

#define FULL(name, type)                                            \
    int name(const char *path, struct type *status)                 \
    {                                                               \
        static int (*real)(const char *, struct type *);            \
        if (!real)                                                  \
            real = dlsym(RTLD_NEXT, #name);                         \
        int result = real(path, status);                            \
        if (faults && faults->error == ENOSPC && strstr(path, "/blobs")) \
            status->f_bavail = 0;                                   \
        return result;                                              \
    }

FULL(statvfs, statvfs)
FULL(statvfs64, statvfs64)
