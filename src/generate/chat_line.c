/* Reads lines and signals at the same time: SIGINT is blocked and read from a
 * descriptor, so that there is no handler and no global. poll() waits for both;
 * while the model computes nobody waits, and whoever computes asks between two
 * calls (chat_line_interrupted). The mask is inherited, so it is set before the
 * threads of the kernels are there, or one of them would get the signal and end
 * the program. */
#include "src/generate/chat_line.h"

#include <assert.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "src/base/array.h"
#include "src/base/new.h"

#define LINE_READ_BYTES 65536
#define LINE_BYTES_MAX ((size_t)64 << 20)

struct chat_line {
    int signals;
    bool terminal, ended;
    struct buffer read; /* not taken yet */
    struct buffer line; /* what was lent */
};

enum err chat_line_create(struct chat_line **out)
{
    sigset_t set;
    struct chat_line *line = NULL;
    TRY(new_zeroed(&line, 1));
    sigemptyset(&set);
    sigaddset(&set, SIGINT);
    pthread_sigmask(SIG_BLOCK, &set, NULL);
    line->signals = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    if (line->signals < 0) {
        enum err rc = err_errno("signalfd");
        free(line);
        return rc;
    }
    line->terminal = isatty(STDIN_FILENO) == 1;
    *out = line;
    return ERR_OK;
}

void chat_line_destroy(struct chat_line *line)
{
    if (line == NULL)
        return;
    close(line->signals);
    buffer_free(&line->read);
    buffer_free(&line->line);
    free(line);
}

bool chat_line_interrupted(struct chat_line *line)
{
    struct signalfd_siginfo info;
    bool came = false;
    while (read(line->signals, &info, sizeof info) == (ssize_t)sizeof info)
        came = true;
    return came;
}

/* More input, or what ends it; *got stays CHAT_LINE_TEXT as long as it goes on.
 */
static enum err line_wait(struct chat_line *line, enum chat_line_got *got)
{
    struct pollfd of[2] = { { .fd = line->signals, .events = POLLIN },
                            { .fd = STDIN_FILENO, .events = POLLIN } };
    if (poll(of, 2, -1) < 0)
        return errno == EINTR ? ERR_OK : err_errno("standard input: poll");
    if (chat_line_interrupted(line)) {
        *got = CHAT_LINE_INTERRUPTED;
        return ERR_OK;
    }
    if (of[1].revents == 0)
        return ERR_OK;
    if (line->read.bytes > LINE_BYTES_MAX)
        return err_set(ERR_USAGE,
                       "standard input: a line of more than %zu bytes",
                       LINE_BYTES_MAX);
    TRY(buffer_reserve(&line->read, LINE_READ_BYTES));
    ssize_t length =
        read(STDIN_FILENO, line->read.data + line->read.bytes, LINE_READ_BYTES);
    if (length < 0)
        return errno == EINTR ? ERR_OK : err_errno("standard input");
    line->read.bytes += (size_t)length;
    line->ended = length == 0;
    return ERR_OK;
}

static void line_prompt(const struct chat_line *line, const char *prompt)
{
    if (line->terminal)
        fputs(prompt, stderr);
}

/* Takes the first line off what was read; all of it at the end of the input. */
static enum err line_take(struct chat_line *line, size_t *bytes)
{
    struct buffer *input = &line->read;
    const uint8_t *end =
        input->bytes > 0 ? memchr(input->data, '\n', input->bytes) : NULL;
    *bytes = end != NULL ? (size_t)(end - input->data) : input->bytes;
    size_t taken = *bytes + (end != NULL);
    assert(taken <= input->bytes && (end != NULL || line->ended));
    TRY(buffer_add(&line->line, input->data, *bytes));
    if (taken > 0)
        memmove(input->data, input->data + taken, input->bytes - taken);
    input->bytes -= taken;
    return ERR_OK;
}

/* Lines are put together until one does not end with a backslash, which becomes
 * the line's end that it stands for. What was typed before Ctrl-C is dropped, also
 * whole lines of the same message. */
enum err chat_line_read(struct chat_line *line, const char *prompt,
                        enum chat_line_got *got, const char **text,
                        size_t *bytes)
{
    size_t taken = 0;
    *got = CHAT_LINE_TEXT;
    line->line.bytes = 0;
    line_prompt(line, prompt);
    for (;;) {
        while (!line->ended &&
               (line->read.bytes == 0 ||
                memchr(line->read.data, '\n', line->read.bytes) == NULL)) {
            TRY(line_wait(line, got));
            if (*got != CHAT_LINE_TEXT) {
                line->read.bytes = 0;
                return ERR_OK;
            }
        }
        if (line->ended && line->read.bytes == 0 && line->line.bytes == 0) {
            *got = CHAT_LINE_END;
            return ERR_OK;
        }
        TRY(line_take(line, &taken));
        bool goes_on = taken > 0 && !line->ended &&
                       line->line.data[line->line.bytes - 1] == '\\';
        if (!goes_on)
            break;
        line->line.data[line->line.bytes - 1] = '\n';
        line_prompt(line, "... ");
    }
    TRY(buffer_add(&line->line, "", 1));
    *text = (const char *)line->line.data;
    *bytes = line->line.bytes - 1;
    return ERR_OK;
}
