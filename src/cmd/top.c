/* tessera-top RUN: a run, live in the terminal. It only reads files: it needs no
 * connection to the job, and works on any node that sees the file system. A picture
 * is drawn whole in memory and written at once, so it does not flicker; on a
 * terminal it has a screen of its own, which is left as it was found.
 *
 * What a picture shows is src/report/top_frame.c. Where the output is no terminal,
 * as in a log, pictures follow each other without codes and it ends with the run. */
#include <assert.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "src/base/clock.h"
#include "src/cmd/cmd_main.h"
#include "src/report/top_frame.h"

#define COLUMNS 80 /* where nobody knows */
#define ROWS 24

struct top_options {
    const char *run;
    bool once, ascii;
    double interval_s;
};

static const struct options_row rows[] = {
    OPTION_FLAG(struct top_options, once, "once", "one picture, then end"),
    OPTION_REAL(struct top_options, interval_s, "interval", "SECONDS", 0.1,
                86400, "between pictures (1)"),
    OPTION_FLAG(struct top_options, ascii, "ascii",
                "plain letters, as where the output is no terminal"),
    { 0 },
};

static volatile sig_atomic_t ended;

static void on_signal(int number)
{
    ended = number;
}

static void on_resize(int number)
{
    (void)number; /* ends the pause, so that a new picture is drawn */
}

static bool is_utf8(void)
{
    static const char *const names[] = { "LC_ALL", "LC_CTYPE", "LANG" };
    for (int i = 0; i < 3; i++) {
        const char *value = getenv(names[i]);
        if (value != NULL && value[0] != '\0')
            return strcasestr(value, "utf-8") != NULL ||
                   strcasestr(value, "utf8") != NULL;
    }
    return false;
}

static struct top_frame_style style_now(const struct top_options *options)
{
    struct winsize size;
    const char *term = getenv("TERM");
    bool terminal = isatty(STDOUT_FILENO) && term != NULL && term[0] != '\0' &&
                    strcmp(term, "dumb") != 0;
    struct top_frame_style style = {
        .columns = COLUMNS,
        .rows = terminal ? ROWS : 1000,
        .ansi = terminal && !options->ascii,
        .blocks = terminal && !options->ascii && is_utf8(),
        .now_s = clock_wall(),
    };
    if (terminal && ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 &&
        size.ws_col > 0 && size.ws_row > 0) {
        style.columns = size.ws_col;
        style.rows = size.ws_row;
    }
    if (style.columns < 20)
        style.columns = 20;
    assert(style.rows > 0);
    return style;
}

/* The whole picture in one write, over the last one. */
static enum err draw(const struct run_history *run,
                     const struct top_options *options, bool over)
{
    char *text = NULL;
    size_t bytes = 0;
    struct top_frame_style style = style_now(options);
    FILE *out = open_memstream(&text, &bytes);
    if (out == NULL)
        return err_set(ERR_MEMORY, "out of memory");
    if (over)
        fputs("\x1b[H\x1b[2J", out);
    enum err rc = top_frame_draw(run, &style, out);
    if (fclose(out) != 0 && rc == ERR_OK)
        rc = err_set(ERR_MEMORY, "out of memory");
    if (rc == ERR_OK &&
        (fwrite(text, 1, bytes, stdout) != bytes || fflush(stdout) != 0))
        rc = err_errno("standard output");
    free(text);
    return rc;
}

/* Files that have become others are read anew: a run directory may be deleted and
 * made again while somebody watches. */
static enum err follow(const char *dir, struct run_history **run)
{
    assert(*run != NULL);
    enum err rc = run_history_update(*run);
    if (rc != ERR_DATA)
        return rc;
    run_history_destroy(*run);
    *run = NULL;
    return run_history_create(dir, run);
}

/* On a terminal until somebody ends it; elsewhere also when the run has. */
static enum err watch(const struct top_options *options,
                      struct run_history **run, bool over)
{
    while (ended == 0) {
        TRY(draw(*run, options, over));
        if (!over && run_history_over(*run))
            break;
        /* a signal ends the pause */
        (void)poll(NULL, 0, (int)(options->interval_s * 1000));
        if (ended == 0)
            TRY(follow(options->run, run));
        if (!over)
            puts("");
    }
    return ERR_OK;
}

static void take_signals(void)
{
    struct sigaction action = { .sa_handler = on_signal };
    sigemptyset(&action.sa_mask);
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    sigaction(SIGHUP, &action, NULL);
    action.sa_handler = on_resize;
    sigaction(SIGWINCH, &action, NULL);
}

static enum err run(const struct options *line, int *exit_code)
{
    enum err rc = ERR_OK;
    struct top_options *options = line->into;
    struct run_history *run = NULL;
    (void)exit_code;
    options->run = line->operands[0];
    TRY_OUT(run_history_create(options->run, &run));
    bool over = !options->once && style_now(options).ansi;
    if (options->once) {
        rc = draw(run, options, false);
        goto out;
    }
    take_signals();
    if (over) /* a screen of its own, without the cursor */
        fputs("\x1b[?1049h\x1b[?25l", stdout);
    rc = watch(options, &run, over);
    if (over)
        fputs("\x1b[?25h\x1b[?1049l", stdout);
    fflush(stdout);
out:
    run_history_destroy(run);
    return rc;
}

static const struct options_command commands[] = {
    { .operands = "RUN", .rows = rows, .operands_min = 1, .operands_max = 1 }
};

int main(int argc, char **argv)
{
    static const struct options_program program = {
        .name = "top",
        .about = "Follows a run directory: progress, loss, throughput, "
                 "utilization, times of ranks,\ncheckpoints, goodput, nodes "
                 "left out. Ctrl-C ends.\n",
        .end = "exit codes: 0; 64 usage, or no such folder; 75 a file could "
               "not be read; 93 no\nrun there\n",
        OPTIONS_COMMANDS(commands),
    };
    struct top_options options = { .interval_s = 1 };
    return cmd_main(&(struct cmd_main){ &program, &options, run }, argc, argv);
}
