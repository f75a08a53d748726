/* Errors: one idiom for the whole project.
 *
 * A fallible function returns `enum err`, ERR_OK (0) on success. Where a
 * failure is first seen, the function stores one line of text (what, where,
 * what to do) with err_set() and returns its code; everybody above passes the
 * code on. TRY returns at once, where there is nothing to release. TRY_OUT
 * stores the code and jumps to the function's one `out:` label, where resources
 * are released in reverse order; nothing returns between the first of them and
 * the label. Only mains print and exit.
 *
 *     TRY(thing_check(path));
 *     return thing_use(path);
 *
 *     enum err rc = ERR_OK;
 *     TRY_OUT(thing_create(&thing));
 *     ...
 * out:
 *     thing_destroy(thing);
 *     return rc;
 */
#pragma once

enum err {
    ERR_OK = 0,
    ERR_USAGE,       /* command line or configuration: exit 64 */
    ERR_DATA,        /* data set missing, malformed, of another vocabulary */
    ERR_CHECKPOINT,  /* no usable checkpoint, or one of another run */
    ERR_SPACE,       /* read-only, permission, no folder */
    ERR_FULL,        /* disk or quota full: may pass, exit 75 */
    ERR_IO,          /* any other I/O failure: may pass, exit 75 */
    ERR_MEMORY,      /* does not fit in memory */
    ERR_COMM,        /* a peer is dead or silent: exit 75 */
    ERR_NUMERIC,     /* NaN or Inf in loss or gradient */
    ERR_BUSY,        /* another live process owns the run */
    ERR_UNSUPPORTED, /* not in this build, or not possible in this mode */
    ERR_INTERNAL,    /* a bug in Tessera */
    ERR_COUNT
};

#define ERR_TEXT_BYTES 512

#define TRY(call)                                                              \
    do {                                                                       \
        enum err try_rc_ = (call);                                             \
        if (try_rc_ != ERR_OK)                                                 \
            return try_rc_;                                                    \
    } while (0)

#define TRY_OUT(call)                                                          \
    do {                                                                       \
        if ((rc = (call)) != ERR_OK)                                           \
            goto out;                                                          \
    } while (0)

/* Store the thread's error text (printf format, cut to ERR_TEXT_BYTES, line
 * ends and other control characters become blanks) and return `code`. The
 * stored text may be an argument. */
enum err err_set(enum err code, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* Like err_set(), for a failed system call: appends ": strerror(errno)" and
 * chooses ERR_FULL (ENOSPC, EDQUOT), ERR_SPACE (no place to write: EROFS,
 * EACCES, EPERM, ENOTDIR, EISDIR, ENAMETOOLONG, ELOOP), ERR_MEMORY (ENOMEM) or
 * ERR_IO from errno. */
enum err err_errno(const char *format, ...)
    __attribute__((format(printf, 1, 2)));

/* Put "prefix: " before an error's text, to say where; returns `code`. ERR_OK
 * does nothing. */
enum err err_prefix(enum err code, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* The text that the calling thread stored last; never NULL. */
const char *err_text(void);

/* A failure that is kept for later, or for another thread, while other calls
 * store texts of their own. */
struct err_kept {
    enum err code;
    char text[ERR_TEXT_BYTES];
};

/* Keep `code` with the calling thread's text, "" if it is ERR_OK. */
void err_keep(struct err_kept *kept, enum err code);

/* Store the kept text; returns the kept code, and ERR_OK does nothing. */
enum err err_again(const struct err_kept *kept);

/* A short name of the code: "usage", "data", ... */
const char *err_name(enum err code);

/* The exit code that a program returns for this error: 64 (ERR_USAGE), 75
 * (ERR_IO, ERR_FULL, ERR_COMM: transient, retry), 93 (everything else: do
 * not requeue). */
int err_exit_code(enum err code);
