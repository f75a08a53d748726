/* The heartbeat of a run lock: the thread that writes it, and the look of
 * another process at it. Who may take a lock over is decided in lock.c.
 *
 * A beat is a change of the file's contents, a counter. Contents and not the
 * time of change, because clocks of hosts differ, and some file systems show
 * times late; the watcher needs no clock but his own to see that five periods
 * have gone by and the number is the same. Only where the file is old already,
 * by the clock of the file system itself (that of a file which the watcher has
 * just touched there), is a shorter look enough.
 *
 * An owner that was suspended beats again when it wakes. So it reads the lock
 * before each beat, and where that is another's it stops for good. */
#include "src/job/lock_beat.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "src/base/clock.h"
#include "src/base/fsio.h"
#include "src/base/new.h"
#include "src/base/process.h"

#define BEAT_BYTES 64
#define BEAT_LOOKS 4.0   /* a period */
#define BEAT_STOPPED 5.0 /* periods without a change */
#define BEAT_GLANCE 1.5  /* periods, where the file is old */
#define NANOSECONDS 1000000000L

struct lock_beat {
    char path[FSIO_PATH_MAX];
    double beat_s;
    bool (*may_beat)(void *);
    void *arg;
    long count;
    bool stop;
    pthread_t thread;
    pthread_mutex_t mutex;
    pthread_cond_t wake;
};

/* Opened and closed each time: that is when file systems show it to others. */
void lock_beat_once(const char *path, long count)
{
    char text[BEAT_BYTES];
    int n =
        snprintf(text, sizeof text, "%020ld %012ld\n", count, (long)getpid());
    assert(n > 0 && n < BEAT_BYTES);
    int fd = open(
        path, O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0666);
    if (fd < 0)
        return;
    ssize_t done = pwrite(fd, text, (size_t)n, 0);
    (void)done;
    close(fd);
}

static struct timespec later(double seconds)
{
    struct timespec at;
    clock_gettime(CLOCK_MONOTONIC, &at);
    long nanoseconds =
        at.tv_nsec + (long)((seconds - (double)(long)seconds) * NANOSECONDS);
    at.tv_sec += (time_t)seconds + nanoseconds / NANOSECONDS;
    at.tv_nsec = nanoseconds % NANOSECONDS;
    return at;
}

static void *beat_main(void *arg)
{
    struct lock_beat *beat = arg;
    pthread_mutex_lock(&beat->mutex);
    while (!beat->stop) {
        struct timespec next = later(beat->beat_s);
        while (!beat->stop && pthread_cond_timedwait(&beat->wake, &beat->mutex,
                                                     &next) != ETIMEDOUT)
            ;
        if (beat->stop)
            break;
        pthread_mutex_unlock(&beat->mutex);
        bool goes_on = beat->may_beat(beat->arg);
        if (goes_on)
            lock_beat_once(beat->path, ++beat->count);
        pthread_mutex_lock(&beat->mutex);
        beat->stop |= !goes_on;
    }
    pthread_mutex_unlock(&beat->mutex);
    return NULL;
}

/* Waits by the monotonic clock: a lock must not look dead, nor beat for an hour in a
 * row, when a node's clock is set. */
static int start_thread(struct lock_beat *beat)
{
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_mutex_init(&beat->mutex, NULL);
    pthread_cond_init(&beat->wake, &monotonic);
    pthread_condattr_destroy(&monotonic);
    return process_thread(&beat->thread, 0, beat_main, beat);
}

enum err lock_beat_start(const char *path, double beat_s,
                         bool (*may_beat)(void *), void *arg,
                         struct lock_beat **out)
{
    assert(beat_s > 0.0 && strlen(path) < FSIO_PATH_MAX);
    *out = NULL;
    struct lock_beat *beat = NULL;
    TRY(new_zeroed(&beat, 1));
    snprintf(beat->path, sizeof beat->path, "%s", path);
    beat->beat_s = beat_s;
    beat->may_beat = may_beat;
    beat->arg = arg;
    int failed = start_thread(beat);
    if (failed != 0) {
        free(beat);
        return err_set(ERR_MEMORY, "lock: no thread: %s", strerror(failed));
    }
    *out = beat;
    return ERR_OK;
}

void lock_beat_stop(struct lock_beat *beat)
{
    if (beat == NULL)
        return;
    pthread_mutex_lock(&beat->mutex);
    beat->stop = true;
    pthread_cond_signal(&beat->wake);
    pthread_mutex_unlock(&beat->mutex);
    pthread_join(beat->thread, NULL);
    pthread_cond_destroy(&beat->wake);
    pthread_mutex_destroy(&beat->mutex);
    free(beat);
}

static double seconds_of(struct timespec time)
{
    return (double)time.tv_sec + (double)time.tv_nsec / NANOSECONDS;
}

/* What a beat changes; "" if there is none. false: that cannot be seen just
 * now. */
static bool beat_read(const char *path, char text[BEAT_BYTES], double *at)
{
    struct stat status;
    ssize_t bytes = -1;
    *at = -1;
    text[0] = '\0';
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd < 0)
        return errno == ENOENT;
    if (fstat(fd, &status) == 0) {
        bytes = pread(fd, text, BEAT_BYTES - 1, 0);
        *at = seconds_of(status.st_mtim);
    }
    text[bytes > 0 ? bytes : 0] = '\0';
    close(fd);
    return bytes >= 0;
}

bool lock_beat_stopped(const char *path, double beat_s, int clock_fd,
                       double *age_s)
{
    char first[BEAT_BYTES], now[BEAT_BYTES];
    struct stat status;
    assert(beat_s >= 0.0 && clock_fd >= 0);
    double begin = clock_now();
    double at;
    bool seen = beat_read(path, first, &at);
    /* the file system's time, which need not be this host's */
    bool dated = futimens(clock_fd, NULL) == 0 && fstat(clock_fd, &status) == 0;
    *age_s = dated && at >= 0 ? seconds_of(status.st_mtim) - at : -1;
    bool old = dated && (at < 0 || *age_s >= BEAT_STOPPED * beat_s);
    double enough_s = (old ? BEAT_GLANCE : BEAT_STOPPED) * beat_s;
    while (seen && clock_now() - begin < enough_s) {
        clock_sleep(beat_s / BEAT_LOOKS);
        seen = beat_read(path, now, &at);
        if (seen && strcmp(first, now) != 0) {
            *age_s = 0;
            return false;
        }
    }
    return seen;
}
