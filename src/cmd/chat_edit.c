/* libedit around bytes that somebody else reads, since he waits for signals, too. The
 * past is kept after each line; of two programs the one that writes last is right. */
#include "src/cmd/chat_edit.h"

#if TESSERA_WITH_EDIT
#include <histedit.h>
#include <locale.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <wchar.h>

#include "src/base/fsio.h"
#include "src/base/log.h"
#include "src/base/new.h"

#define PAST_LINES 1000
#define PAST_LINE_BYTES 4096 /* longer ones are not kept */

struct chat_edit {
    EditLine *el;
    History *past;
    int (*byte)(void *arg);
    void *arg;
    bool at_line;
    char prompt[16];
    char path[FSIO_PATH_MAX]; /* "": the past ends with the program */
};

static struct chat_edit *edit_of(EditLine *el)
{
    struct chat_edit *edit = NULL;
    el_get(el, EL_CLIENTDATA, &edit);
    return edit;
}

static char *edit_prompt(EditLine *el)
{
    return edit_of(el)->prompt;
}

static int edit_char(EditLine *el, wchar_t *out)
{
    struct chat_edit *edit = edit_of(el);
    mbstate_t state = { 0 };
    for (int byte; (byte = edit->byte(edit->arg)) >= 0;) {
        bool first = mbsinit(&state) != 0;
        size_t n = mbrtowc(out, &(char){ (char)byte }, 1, &state);
        if (n ==
            (size_t)-1) { /* what went before was no letter, or this is none */
            state = (mbstate_t){ 0 };
            n = first ? (size_t)-1
                      : mbrtowc(out, &(char){ (char)byte }, 1, &state);
            if (n == (size_t)-1)
                state = (mbstate_t){ 0 };
        }
        if (n <= 1)
            return 1;
    }
    return 0;
}

/* In the user's folder of states; nothing where there is none. */
static enum err past_find(struct chat_edit *edit)
{
    char folder[FSIO_PATH_MAX];
    const char *state = getenv("XDG_STATE_HOME"), *home = getenv("HOME");
    bool own = state == NULL || state[0] != '/';
    if (own && (home == NULL || home[0] != '/'))
        return ERR_OK;
    TRY(fsio_path(folder, "%s%s/tessera", own ? home : state,
                  own ? "/.local/state" : ""));
    struct stat status;
    TRY(fsio_mkdirs(folder));
    if (lstat(folder, &status) != 0 || status.st_uid != geteuid())
        return err_set(ERR_USAGE, "%s is not yours", folder);
    TRY(fsio_path(edit->path, "%s/chat_history", folder));
    return fsio_check_replaceable(edit->path);
}

static void past_add(struct chat_edit *edit, const char *line)
{
    char whole[FSIO_PATH_MAX];
    HistEvent event;
    history(edit->past, &event, H_ENTER, line);
    if (edit->path[0] == '\0')
        return;
    event.str = "its name is too long";
    if (fsio_path(whole, "%s.%ld", edit->path, (long)getpid()) == ERR_OK &&
        history(edit->past, &event, H_SAVE, whole) >= 0) {
        event.str = "it cannot be replaced";
        if (rename(whole, edit->path) == 0)
            return;
        unlink(whole);
    }
    log_warn("%s: what is typed is not kept: %s", edit->path, event.str);
    edit->path[0] = '\0';
}

bool chat_edit_can(void)
{
    const char *terminal = getenv("TERM");
    return isatty(STDIN_FILENO) == 1 && isatty(STDOUT_FILENO) == 1 &&
           terminal != NULL && strcmp(terminal, "dumb") != 0;
}

void chat_edit_signal(struct chat_edit *edit, int signal)
{
    sigset_t set;
    bool at_line = edit != NULL && edit->at_line;
    if (signal == SIGWINCH) {
        if (edit != NULL)
            el_resize(edit->el);
        return;
    }
    if (at_line)
        el_set(edit->el, EL_PREP_TERM, 0);
    sigemptyset(&set);
    sigaddset(&set, signal);
    raise(signal);
    pthread_sigmask(SIG_UNBLOCK, &set, NULL);
    pthread_sigmask(SIG_BLOCK, &set, NULL);
    if (at_line) {
        el_set(edit->el, EL_PREP_TERM, 1);
        el_set(edit->el, EL_REFRESH);
    }
}

struct chat_edit *chat_edit_create(int (*byte)(void *arg), void *arg)
{
    HistEvent event;
    struct chat_edit *edit = NULL;
    if (!chat_edit_can() || setlocale(LC_CTYPE, "C.UTF-8") == NULL ||
        new_zeroed(&edit, 1) != ERR_OK)
        return NULL;
    edit->byte = byte;
    edit->arg = arg;
    edit->el = el_init("tessera-chat", stdin, stdout, stderr);
    edit->past = history_init();
    if (edit->el == NULL || edit->past == NULL) {
        chat_edit_destroy(edit);
        return NULL;
    }
    history(edit->past, &event, H_SETSIZE, PAST_LINES);
    history(edit->past, &event, H_SETUNIQUE, 1);
    el_set(edit->el, EL_CLIENTDATA, edit);
    el_set(edit->el, EL_PROMPT, edit_prompt);
    el_set(edit->el, EL_GETCFN, edit_char);
    el_set(edit->el, EL_HIST, history, edit->past);
    el_set(edit->el, EL_EDITOR, "emacs");
    el_source(edit->el, NULL); /* ~/.editrc */
    if (past_find(edit) != ERR_OK) {
        log_warn("what is typed is not kept: %s", err_text());
        edit->path[0] = '\0';
    } else if (edit->path[0] != '\0')
        history(edit->past, &event, H_LOAD, edit->path);
    return edit;
}

void chat_edit_destroy(struct chat_edit *edit)
{
    if (edit == NULL)
        return;
    if (edit->past != NULL)
        history_end(edit->past);
    if (edit->el != NULL)
        el_end(edit->el);
    free(edit);
}

const char *chat_edit_line(struct chat_edit *edit, const char *prompt,
                           size_t *bytes)
{
    int count = 0;
    snprintf(edit->prompt, sizeof edit->prompt, "%s", prompt);
    edit->at_line = true;
    const char *line = el_gets(edit->el, &count);
    edit->at_line = false;
    if (line == NULL)
        return NULL;
    *bytes = (size_t)count - (count > 0 && line[count - 1] == '\n');
    if (*bytes > 0 && *bytes < PAST_LINE_BYTES)
        past_add(edit, line);
    return line;
}
#endif
