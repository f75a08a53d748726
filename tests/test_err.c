#include "src/base/err.h"

#include <errno.h>
#include <pthread.h>

#include "tests/tap.h"

static enum err inner(enum err code)
{
    return code == ERR_OK ? ERR_OK : err_set(code, "inner failed");
}

/* Counts the steps taken, so that a jump can be told from a run through. */
static enum err outer(enum err code, int *steps)
{
    TRY(inner(ERR_OK));
    ++*steps;
    TRY(inner(code));
    ++*steps;
    return ERR_OK;
}

static void test_try(void)
{
    int steps = 0;
    tap_is_int(outer(ERR_OK, &steps), ERR_OK, "TRY passes success");
    tap_is_int(steps, 2, "TRY goes on after success");
    steps = 0;
    tap_is_int(outer(ERR_DATA, &steps), ERR_DATA, "TRY returns the code");
    tap_is_int(steps, 1, "TRY jumps at the failure");
    tap_is_str(err_text(), "inner failed", "the text stays");
}

static void test_kept(void)
{
    struct err_kept kept;
    err_keep(&kept, err_set(ERR_DATA, "the first failure"));
    err_set(ERR_IO, "another one");
    tap_is_int(err_again(&kept), ERR_DATA, "a kept failure has its code");
    tap_is_str(err_text(), "the first failure", "and its text");
    err_keep(&kept, ERR_OK);
    tap_is_str(kept.text, "", "success keeps no text");
    tap_is_int(err_again(&kept), ERR_OK, "success is success again");
    tap_is_str(err_text(), "the first failure", "and stores nothing");
}

static void test_texts(void)
{
    tap_is_int(err_set(ERR_IO, "file %d: %s", 7, "gone"), ERR_IO,
               "err_set returns its code");
    tap_is_str(err_text(), "file 7: gone", "err_set formats");
    tap_is_int(err_prefix(ERR_COMM, "rank %d", 3), ERR_COMM,
               "err_prefix returns its code");
    tap_is_str(err_text(), "rank 3: file 7: gone", "err_prefix goes before");
    tap_ok(err_prefix(ERR_OK, "all") == ERR_OK &&
               strncmp(err_text(), "rank 3", 6) == 0,
           "but for success");
    err_set(ERR_IO, "again: %s", err_text());
    tap_is_str(err_text(), "again: rank 3: file 7: gone",
               "the stored text may be an argument");
    err_set(ERR_DATA, "two\nlines\r\n");
    tap_is_str(err_text(), "two lines  ", "one line only");

    char longer[2000];
    memset(longer, 'x', sizeof longer);
    longer[sizeof longer - 1] = '\0';
    err_set(ERR_DATA, "%s", longer);
    tap_is_int((long long)strlen(err_text()), 511, "a long text is cut");
    err_prefix(ERR_DATA, "%s", longer);
    tap_is_int((long long)strlen(err_text()), 511, "a long prefix is cut");
}

static void test_errno(void)
{
    static const struct {
        int number;
        enum err want;
    } cases[] = {
        { ENOSPC, ERR_FULL },  { EDQUOT, ERR_FULL },  { EROFS, ERR_SPACE },
        { EACCES, ERR_SPACE }, { EPERM, ERR_SPACE },  { ENOMEM, ERR_MEMORY },
        { EIO, ERR_IO },       { ETIMEDOUT, ERR_IO }, { ESTALE, ERR_IO },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        errno = cases[i].number;
        tap_is_int(err_errno("write %d", 5), cases[i].want, "code of %s",
                   strerror(cases[i].number));
        tap_ok(strncmp(err_text(), "write 5: ", 9) == 0 &&
                   strstr(err_text(), strerror(cases[i].number)) != NULL,
               "text of %s", strerror(cases[i].number));
    }
}

static void test_codes(void)
{
    static const struct {
        enum err code;
        const char *name;
        int exit_code;
    } cases[] = {
        { ERR_OK, "ok", 0 },
        { ERR_USAGE, "usage", 64 },
        { ERR_DATA, "data", 93 },
        { ERR_CHECKPOINT, "checkpoint", 93 },
        { ERR_SPACE, "space", 93 },
        { ERR_FULL, "full", 75 },
        { ERR_IO, "io", 75 },
        { ERR_MEMORY, "memory", 93 },
        { ERR_COMM, "comm", 75 },
        { ERR_NUMERIC, "numeric", 93 },
        { ERR_BUSY, "busy", 93 },
        { ERR_UNSUPPORTED, "unsupported", 93 },
        { ERR_INTERNAL, "internal", 93 },
    };
    int count = (int)(sizeof cases / sizeof *cases);
    tap_is_int(count, ERR_COUNT, "every code has a row");
    for (int i = 0; i < count; i++) {
        tap_is_str(err_name(cases[i].code), cases[i].name, "name of %s",
                   cases[i].name);
        tap_is_int(err_exit_code(cases[i].code), cases[i].exit_code,
                   "exit code of %s", cases[i].name);
    }
}

static void *other_thread(void *fresh)
{
    *(bool *)fresh = err_text()[0] == '\0';
    err_set(ERR_IO, "from the other thread");
    return NULL;
}

static void test_threads(void)
{
    pthread_t thread;
    bool fresh = false;
    err_set(ERR_DATA, "mine");
    if (!tap_ok(pthread_create(&thread, NULL, other_thread, &fresh) == 0,
                "start a thread"))
        return;
    pthread_join(thread, NULL);
    tap_ok(fresh, "a new thread has an empty text");
    tap_is_str(err_text(), "mine", "another thread's error stays its own");
}

int main(void)
{
    tap_is_str(err_text(), "", "empty before the first error");
    test_try();
    test_kept();
    test_texts();
    test_errno();
    test_codes();
    test_threads();
    return tap_done();
}
