/* Log lines for people, on stderr. Metrics are JSON lines of their own
 * (src/train/listeners/on_metrics.c).
 *
 * One line, one write: lines of several ranks on one terminal do not mix. */
#include "src/base/log.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "src/base/clean.h"
#include "src/base/err.h"

#define LOG_LINE_BYTES 1024
/* How long a reader may keep a line waiting before lines are dropped. */
#define LOG_WAIT_MS 1000

static struct {
    char module[16];
    char host[64];
    int rank;
    enum log_level level;
    bool colours;       /* stderr is a terminal that has some */
    atomic_int dropped; /* lines since the last one that was written */
} log_sink = { .module = "tessera", .rank = -1, .level = LOG_INFO };

/* Where stdin, stdout or stderr is closed, the next file that is opened would
 * get its number, and log lines would go into a checkpoint. */
static void log_fill_standard(void)
{
    int fd = 0;
    while (fd >= 0 && fd <= STDERR_FILENO) {
        fd = open("/dev/null", O_RDWR);
        if (fd != STDOUT_FILENO)
            continue;
        close(fd); /* what is printed there is to fail */
        fd = open("/dev/null", O_RDONLY);
    }
    if (fd > STDERR_FILENO)
        close(fd);
}

/* At the end of any program: what it has printed is out, or it has failed. */
static void log_check_output(int status, void *unused)
{
    (void)unused;
    errno = 0;
    if ((fflush(stdout) == 0 && !ferror(stdout)) || status != 0)
        return;
    if (errno == 0) /* it was a while ago */
        errno = EIO;
    enum err rc = err_errno("standard output");
    fprintf(stderr, "tessera-%s: %s\n", log_sink.module, err_text());
    _exit(err_exit_code(rc));
}

void log_init(const char *module, int rank, enum log_level level)
{
    static bool checks;
    log_fill_standard();
    if (!checks)
        checks = on_exit(log_check_output, NULL) == 0;
    snprintf(log_sink.module, sizeof log_sink.module, "%s", module);
    log_sink.rank = rank;
    log_sink.level = level;
    const char *term = getenv("TERM");
    log_sink.colours = isatty(STDERR_FILENO) && term != NULL &&
                       strcmp(term, "dumb") != 0 && getenv("NO_COLOR") == NULL;
    if (gethostname(log_sink.host, sizeof log_sink.host - 1) != 0)
        snprintf(log_sink.host, sizeof log_sink.host, "?");
    char *dot = strchr(log_sink.host, '.');
    if (dot != NULL)
        *dot = '\0';
}

void log_set_level(enum log_level level)
{
    log_sink.level = level;
}

/* Whether a write would wait: of a pipe that nobody empties, or of a terminal
 * that Ctrl-S has stopped. After the first such line none waits. */
static bool log_is_stuck(void)
{
    struct pollfd sink = { .fd = STDERR_FILENO, .events = POLLOUT };
    int wait_ms = atomic_load(&log_sink.dropped) > 0 ? 0 : LOG_WAIT_MS;
    int ready = poll(&sink, 1, wait_ms);
    if (ready < 0 && errno == EINTR)
        ready = poll(&sink, 1, 0);
    return ready == 0;
}

static void log_line(enum log_level level, const char *format, va_list args)
{
    static const char *const marks[] = { "error: ", "warning: ", "", "" };
    static const char *const colours[] = { "\x1b[31m", "\x1b[33m", "", "" };
    if (level > log_sink.level)
        return;
    int saved = errno;
    if (log_is_stuck()) {
        atomic_fetch_add(&log_sink.dropped, 1);
        errno = saved;
        return;
    }
    char text[LOG_LINE_BYTES];
    int length = vsnprintf(text, sizeof text, format, args);
    clean_paths(text, sizeof text);
    if (length >= 0)
        clean_text(text, false);
    int dropped = atomic_exchange(&log_sink.dropped, 0);
    if (dropped > 0 && length >= 0 && length < LOG_LINE_BYTES)
        snprintf(text + length, sizeof text - (size_t)length,
                 " (%d lines before this one were dropped: nobody read them)",
                 dropped);

    char stamp[32];
    time_t now = time(NULL);
    struct tm local;
    localtime_r(&now, &local);
    strftime(stamp, sizeof stamp, "%m-%d %H:%M:%S", &local);
    const char *colour = log_sink.colours ? colours[level] : "";
    const char *plain = colour[0] != '\0' ? "\x1b[0m" : "";

    char line[LOG_LINE_BYTES + 160];
    int n;
    if (log_sink.rank >= 0)
        n = snprintf(line, sizeof line, "%s r%d %s %s: %s%s%s%s\n", stamp,
                     log_sink.rank, log_sink.host, log_sink.module, colour,
                     marks[level], plain, text);
    else
        n = snprintf(line, sizeof line, "%s %s: %s%s%s%s\n", stamp,
                     log_sink.module, colour, marks[level], plain, text);
    if (n >= (int)sizeof line)
        n = (int)sizeof line - 1;
    /* nothing useful can be done when stderr itself fails: lines are dropped */
    ssize_t written = write(STDERR_FILENO, line, (size_t)n);
    (void)written;
    errno = saved;
}

#define LOG_BODY(level)                                                        \
    va_list args;                                                              \
    va_start(args, format);                                                    \
    log_line(level, format, args);                                             \
    va_end(args)

void log_error(const char *format, ...)
{
    LOG_BODY(LOG_ERROR);
}

void log_warn(const char *format, ...)
{
    LOG_BODY(LOG_WARN);
}

void log_info(const char *format, ...)
{
    LOG_BODY(LOG_INFO);
}

void log_debug(const char *format, ...)
{
    LOG_BODY(LOG_DEBUG);
}
