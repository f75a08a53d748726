#include "tests/tap.h"

#include <ftw.h>
#include <stdarg.h>
#include <sys/stat.h>

static int tap_count;
static int tap_failed;
static bool tap_silent;

static bool tap_point(bool pass, const char *format, va_list args)
{
    tap_count++;
    if (!pass)
        tap_failed++;
    if (!tap_silent) {
        printf("%sok %d - ", pass ? "" : "not ", tap_count);
        vprintf(format, args);
        putchar('\n');
        fflush(stdout);
    }
    return pass;
}

#define TAP_POINT(pass)                                                        \
    va_list args;                                                              \
    va_start(args, format);                                                    \
    tap_point((pass), format, args);                                           \
    va_end(args)

bool tap_check(bool pass, const char *file, int line, const char *format, ...)
{
    TAP_POINT(pass);
    if (!pass)
        tap_note("failed at %s:%d", file, line);
    return pass;
}

bool tap_is_int(long long got, long long want, const char *format, ...)
{
    TAP_POINT(got == want);
    if (got != want)
        tap_note("got %lld, want %lld", got, want);
    return got == want;
}

bool tap_is_str(const char *got, const char *want, const char *format, ...)
{
    bool pass = got != NULL && want != NULL && strcmp(got, want) == 0;
    TAP_POINT(pass);
    if (!pass)
        tap_note("got '%s', want '%s'", got ? got : "(null)",
                 want ? want : "(null)");
    return pass;
}

bool tap_is_close(double got, double want, double tolerance, const char *format,
                  ...)
{
    double bound = tolerance * fmax(1.0, fabs(want));
    bool pass = fabs(got - want) <= bound;
    TAP_POINT(pass);
    if (!pass)
        tap_note("got %.9g, want %.9g, tolerance %.3g", got, want, bound);
    return pass;
}

void tap_note(const char *format, ...)
{
    if (tap_silent)
        return;
    va_list args;
    va_start(args, format);
    printf("# ");
    vprintf(format, args);
    putchar('\n');
    va_end(args);
    fflush(stdout);
}

void tap_skip(const char *format, ...)
{
    tap_count++;
    if (tap_silent)
        return;
    va_list args;
    va_start(args, format);
    printf("ok %d # SKIP ", tap_count);
    vprintf(format, args);
    putchar('\n');
    va_end(args);
    fflush(stdout);
}

void tap_silence(void)
{
    tap_silent = true;
}

static char tap_path[1024]; /* which all folders are in */
static pid_t tap_owner;

const char *tap_folder(void)
{
    static char folders[8][1100];
    static size_t count;
    const char *base = getenv("TMPDIR");
    char *folder = folders[count % 8];
    if (count == 0) {
        tap_owner = getpid();
        snprintf(tap_path, sizeof tap_path, "%.900s/tessera-test.XXXXXX",
                 base != NULL && base[0] != '\0' ? base : "/tmp");
    }
    /* other users may reach what is in it, where a test lets them */
    if (count == 0 &&
        (mkdtemp(tap_path) == NULL || chmod(tap_path, 0711) != 0)) {
        perror(tap_path);
        exit(1);
    }
    snprintf(folder, sizeof folders[0], "%s/%zu", tap_path, count++);
    if (mkdir(folder, 0700) != 0) {
        perror(folder);
        exit(1);
    }
    return folder;
}

static int tap_remove(const char *path, const struct stat *status, int kind,
                      struct FTW *level)
{
    (void)status;
    (void)kind;
    (void)level;
    (void)remove(path);
    return 0;
}

int tap_done(void)
{
    if (tap_owner == getpid()) /* no child's */
        (void)nftw(tap_path, tap_remove, 16, FTW_DEPTH | FTW_MOUNT | FTW_PHYS);
    if (!tap_silent)
        printf("1..%d\n", tap_count);
    fflush(stdout);
    return tap_failed == 0 ? 0 : 1;
}
