/* The files are written before syslog is: a log daemon that stands still is the more
 * frequent of the two. */
#include "src/node/node_words.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <syslog.h>
#include <time.h>
#include <unistd.h>

#include "src/base/clock.h"
#include "src/node/node_child.h"
#include "src/node/node_events.h"

#define FILE_S 3.0
#define SYSLOG_S 2.0
#define NOTIFY_S 5.0
#define DECISION_S 4.0
/* A log becomes FILE.old at the first size, but once a day only and, where much
 * is written, at the second. */
#define LOG_BYTES (1 << 20)
#define LOG_BYTES_MAX (16 << 20)
#define DAY_S (24 * 3600)
#define STATE "/run/tessera/state"
#define PATH_BYTES (NODE_SITE_TEXT + 128)

struct line {
    const char *path;
    const char *text;
};

static void rotate(const char *path)
{
    char old[PATH_BYTES];
    struct stat log, before;
    snprintf(old, sizeof old, "%s.old", path);
    if (stat(path, &log) != 0 || log.st_size < LOG_BYTES)
        return;
    if (log.st_size < LOG_BYTES_MAX && stat(old, &before) == 0 &&
        before.st_mtime > time(NULL) - DAY_S)
        return;
    (void)rename(path, old);
}

static int append_line(void *arg)
{
    const struct line *line = arg;
    rotate(line->path);
    int fd = open(line->path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0644);
    size_t bytes = strlen(line->text);
    if (fd < 0 || write(fd, line->text, bytes) != (ssize_t)bytes) {
        printf("%s: %s\n", line->path, strerror(errno));
        return 1;
    }
    return 0;
}

/* For who reads it at any moment: the file is there whole. */
static int replace_file(void *arg)
{
    struct line new = *(const struct line *)arg;
    char path[PATH_BYTES];
    snprintf(path, sizeof path, "%s.%d", new.path, (int)getpid());
    (void)unlink(path);
    struct line part = { path, new.text };
    if (append_line(&part) == 0 && rename(path, new.path) == 0)
        return 0;
    printf("%s: %s\n", new.path, strerror(errno));
    (void)unlink(path);
    return 1;
}

static int write_syslog(void *arg)
{
    openlog("tessera", 0, LOG_USER);
    syslog(LOG_NOTICE, "%s", (const char *)arg);
    return 0;
}

static double at_most(double seconds, double most)
{
    return seconds < most ? seconds : most;
}

/* By a child, unless it has once not answered, in the time that words have. False:
 * it is not written, and stderr says why. */
static bool write_line(struct node *node, int (*write)(void *arg),
                       const char *path, const char *text, bool *hangs)
{
    struct buffer said = { 0 };
    struct line line = { path, text };
    double begin_s = clock_now();
    struct node_child child = { NODE_CHILD(at_most(node->words_left_s, FILE_S),
                                           write, &line) };
    if (*hangs || child.seconds <= 0)
        return true;
    int code = node_child(&child, &said);
    *hangs = code == NODE_NO_ANSWER;
    if (*hangs)
        fprintf(stderr, "%s does not answer\n", path);
    else if (code != 0)
        fprintf(stderr, "%s\n", (char *)said.data);
    buffer_free(&said);
    /* on a busy node all take longer: that is no word less */
    node->words_left_s -= at_most(clock_now() - begin_s, child.seconds);
    return code == 0;
}

/* The node's own file in a folder of the site's, which nodes may share. */
static void write_event(struct node *node, const char *outcome,
                        const char *reason, const char *text)
{
    char path[PATH_BYTES], line[NODE_EVENT_BYTES];
    struct timespec now;
    if (node->site.events[0] == '\0')
        return;
    clock_gettime(CLOCK_REALTIME, &now);
    node_event_line(node, (double)now.tv_sec + 1e-9 * (double)now.tv_nsec,
                    outcome, reason, text, line);
    snprintf(path, sizeof path, "%s/%s.jsonl", node->site.events, node->name);
    if (!write_line(node, append_line, path, line, &node->events_hang))
        node_say(node, "TESSERA_EVENTS: %s cannot be written", path);
}

static void notify(struct node *node, const char *outcome, const char *text)
{
    char job[24], why[NODE_SITE_TEXT + 64];
    char *argv[] = { node->site.notify, (char *)outcome,
                     node->name,        job,
                     (char *)text,      NULL };
    struct buffer said = { 0 };
    struct node_child child = { .argv = argv };
    child.seconds = at_most(node->end_s - clock_now(), NOTIFY_S);
    snprintf(job, sizeof job, "%ld", node->job);
    if (node->site.notify[0] == '\0' || node->notify_hangs ||
        child.seconds <= 0)
        return;
    bool ours = node_child_owned(node->site.notify, why, sizeof why);
    int code = ours ? node_child(&child, &said) : 0;
    node->notify_hangs = !ours || code == NODE_NO_ANSWER;
    if (!ours)
        node_say(node, "TESSERA_NOTIFY is not called: %s", why);
    else if (code != 0)
        node_say(node, "TESSERA_NOTIFY %s: %.200s", node->site.notify,
                 said.bytes > 0 ? (char *)said.data
                                : "no answer, or it failed");
    buffer_free(&said);
}

static void say(struct node *node, const char *outcome, const char *reason,
                const char *format, va_list args)
{
    char text[4096], stamp[32];
    struct buffer said = { 0 };
    struct tm local;
    time_t now = time(NULL);
    strftime(stamp, sizeof stamp, "%FT%T", localtime_r(&now, &local));
    int head = snprintf(text, sizeof text, "%s %s %s job ", stamp, node->phase,
                        node->name[0] != '\0' ? node->name : "?");
    head += snprintf(text + head, sizeof text - (size_t)head,
                     node->job > 0 ? "%ld: " : "?: ", node->job);
    vsnprintf(text + head, sizeof text - (size_t)head - 1, format, args);
    for (char *at = text; *at != '\0'; at++)
        if (iscntrl((unsigned char)*at))
            *at = '?';
    size_t end = strlen(text);
    memcpy(text + end, "\n", 2);
    fputs(text, stderr);
    if (node->site.log[0] != '\0')
        (void)write_line(node, append_line, node->site.log, text,
                         &node->log_hangs);
    text[end] = '\0';
    if (outcome != NULL)
        write_event(node, outcome, reason, text + head);
    double begin_s = clock_now();
    struct node_child child = { .run = write_syslog,
                                .arg = text + strlen(stamp) + 1 };
    child.seconds = at_most(node->end_s - clock_now(), SYSLOG_S);
    if (!node->syslog_hangs && child.seconds > 0)
        node->syslog_hangs = node_child(&child, &said) == NODE_NO_ANSWER;
    buffer_free(&said);
    node->words_left_s -= at_most(clock_now() - begin_s, SYSLOG_S);
    if (outcome != NULL)
        notify(node, outcome, text + head);
}

void node_say(struct node *node, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    say(node, NULL, NULL, format, args);
    va_end(args);
}

void node_decide(struct node *node, const char *outcome, const char *reason,
                 const char *format, ...)
{
    va_list args;
    if (node->words_left_s < DECISION_S)
        node->words_left_s = DECISION_S;
    va_start(args, format);
    say(node, outcome, reason, format, args);
    va_end(args);
}

/* Whether the last look found the node sound; that this one does is kept. */
static bool was_sound(const struct node *node)
{
    char path[128];
    snprintf(path, sizeof path, STATE ".%.64s", node->name);
    if (node->state == NODE_OK)
        return unlink(path) != 0;
    (void)mkdir("/run/tessera", 0755);
    int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
    if (fd >= 0)
        close(fd);
    return false;
}

void node_result(struct node *node)
{
    char path[PATH_BYTES], text[4096];
    bool hangs = false;
    if (!was_sound(node) && node->name[0] != '/')
        write_event(node, NULL, node->reason,
                    node->state == NODE_OK ? "sound again" : node->reason);
    if (node->site.metrics[0] == '\0')
        return;
    node_event_metrics(node, (double)time(NULL), clock_now() - node->begin_s,
                       text, sizeof text);
    snprintf(path, sizeof path, "%s/tessera.%s.prom", node->site.metrics,
             node->name);
    if (!write_line(node, replace_file, path, text, &hangs))
        node_say(node, "TESSERA_METRICS: %s cannot be written", path);
}
