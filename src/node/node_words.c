/* The file is written before syslog is: a log daemon that stands still is the more
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

#define FILE_S 3.0
#define SYSLOG_S 2.0
#define DECISION_S 4.0
/* The log becomes FILE.old at the first size, but once a day only and, where much
 * is written, at the second. */
#define LOG_BYTES (1 << 20)
#define LOG_BYTES_MAX (16 << 20)
#define DAY_S (24 * 3600)

struct line {
    const struct node *node;
    const char *text;
};

static void rotate(const char *path)
{
    char old[NODE_SITE_TEXT + 8];
    struct stat log, before;
    snprintf(old, sizeof old, "%s.old", path);
    if (stat(path, &log) != 0 || log.st_size < LOG_BYTES)
        return;
    if (log.st_size < LOG_BYTES_MAX && stat(old, &before) == 0 &&
        before.st_mtime > time(NULL) - DAY_S)
        return;
    (void)rename(path, old);
}

static int write_file(void *arg)
{
    const struct line *line = arg;
    const char *path = line->node->site.log;
    if (!line->node->log_written)
        rotate(path);
    int fd = open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0644);
    size_t bytes = strlen(line->text);
    if (fd < 0 || write(fd, line->text, bytes) != (ssize_t)bytes) {
        printf("TESSERA_LOG %s: %s\n", path, strerror(errno));
        return 1;
    }
    return 0;
}

static int write_syslog(void *arg)
{
    const struct line *line = arg;
    openlog("tessera", 0, LOG_USER);
    syslog(LOG_NOTICE, "%s", line->text);
    return 0;
}

static double at_most(double seconds, double most)
{
    return seconds < most ? seconds : most;
}

static void say(struct node *node, const char *format, va_list args)
{
    char text[4096], stamp[32];
    struct buffer said = { 0 };
    struct tm local;
    time_t now = time(NULL);
    double begin_s = clock_now();
    strftime(stamp, sizeof stamp, "%FT%T", localtime_r(&now, &local));
    int head = snprintf(text, sizeof text, "%s %s %s job ", stamp, node->phase,
                        node->name[0] != '\0' ? node->name : "?");
    head += snprintf(text + head, sizeof text - (size_t)head,
                     node->job > 0 ? "%ld: " : "?: ", node->job);
    vsnprintf(text + head, sizeof text - (size_t)head - 1, format, args);
    for (char *at = text; *at != '\0'; at++)
        if (iscntrl((unsigned char)*at))
            *at = '?';
    strcat(text, "\n");
    fputs(text, stderr);
    struct line line = { node, text };
    struct node_child child = { .run = write_file, .arg = &line };
    child.seconds = at_most(node->words_left_s, FILE_S);
    if (node->site.log[0] != '\0' && !node->log_hangs && child.seconds > 0) {
        int code = node_child(&child, &said);
        node->log_hangs = code == NODE_NO_ANSWER;
        node->log_written = true;
        if (node->log_hangs)
            fprintf(stderr, "TESSERA_LOG %s does not answer\n", node->site.log);
        else if (code != 0)
            fprintf(stderr, "%s\n", (char *)said.data);
    }
    child.run = write_syslog;
    child.seconds = at_most(node->end_s - clock_now(), SYSLOG_S);
    line.text = text + strlen(stamp) + 1;
    if (!node->syslog_hangs && child.seconds > 0)
        node->syslog_hangs = node_child(&child, &said) == NODE_NO_ANSWER;
    buffer_free(&said);
    node->words_left_s -= clock_now() - begin_s;
}

void node_say(struct node *node, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    say(node, format, args);
    va_end(args);
}

void node_decide(struct node *node, const char *format, ...)
{
    va_list args;
    if (node->words_left_s < DECISION_S)
        node->words_left_s = DECISION_S;
    va_start(args, format);
    say(node, format, args);
    va_end(args);
}
