/* The stop flag, the signal handlers that set it, and the thread that answers
 * SIGINT. A handler may do next to nothing: no lock, no memory, no log. So it
 * writes a number, which training looks at, and for SIGINT, where a person waits
 * for an answer while a step may take minutes, it posts a semaphore for a thread
 * that may write. Ranks agree on a stop in src/train/listeners/on_stop.c and trainer_stop.c.
 *
 * The flag is a lock-free atomic: handlers may write it, threads may read it.
 */
#include "src/job/stop.h"

#include <assert.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>
#include <unistd.h>

#include "src/base/clock.h"
#include "src/base/fsio.h"
#include "src/base/log.h"
#include "src/base/process.h"
#include "src/job/ledger.h"

/* Stack of the thread that answers: it writes lines of the log and the ledger.
 */
#define STOP_STACK_BYTES ((size_t)512 << 10)

#define FILE_LOOK_S 1.0
#define SAME_S 1.0      /* between SIGINTs that are one */
#define INTERRUPTED 130 /* as a shell names death by SIGINT */

static atomic_int stop_flag;
static struct {
    sem_t interrupts;
    pthread_mutex_t mutex;
    const char *run_dir; /* guarded, as the next */
    int attempt;
} stop_watched = { .mutex = PTHREAD_MUTEX_INITIALIZER };

static _Atomic double stop_third_at; /* by clock_now() */

static_assert(ATOMIC_INT_LOCK_FREE == 2 && ATOMIC_LLONG_LOCK_FREE == 2,
              "a handler needs a lock-free flag and time");

void stop_request(int signal_number)
{
    int none = 0;
    assert(signal_number > 0);
    atomic_compare_exchange_strong(&stop_flag, &none, signal_number);
}

int stop_requested(void)
{
    return atomic_load_explicit(&stop_flag, memory_order_relaxed);
}

bool stop_is_requested(void)
{
    return stop_requested() != 0;
}

const char *stop_text(int number)
{
    switch (number) {
    case SIGINT:
        return "SIGINT (Ctrl-C)";
    case SIGTERM:
        return "SIGTERM";
    case SIGUSR1:
        return "SIGUSR1 (time is nearly up)";
    case SIGHUP:
        return "SIGHUP (the terminal was closed)";
    case STOP_BY_FILE:
        return "the file STOP in the run directory, remove it to go on";
    case STOP_BY_TIME:
        return "the job's time limit";
    case STOP_BY_SLOW:
        return "a slow node or run, to go on from here at once";
    default:
        return "a signal";
    }
}

void stop_look_for_file(const char *run_dir)
{
    static double looked_at;
    char path[FSIO_PATH_MAX];
    double now = clock_now();
    if (stop_requested() != 0 ||
        (looked_at > 0 && now - looked_at < FILE_LOOK_S))
        return;
    looked_at = now;
    if (fsio_path(path, "%s/STOP", run_dir) == ERR_OK &&
        access(path, F_OK) == 0)
        stop_request(STOP_BY_FILE);
}

/* A handler and not SIG_IGN, which the programs that this one starts would
 * inherit. */
static void stop_nothing(int signal_number)
{
    (void)signal_number;
}

/* A closed terminal is no reason to stop for what nohup has started. */
static bool stop_is_nohup(int number)
{
    struct sigaction now;
    return number == SIGHUP && sigaction(number, NULL, &now) == 0 &&
           now.sa_handler == SIG_IGN;
}

static enum err stop_handle(int number, void (*handler)(int), int flags)
{
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_handler = handler;
    action.sa_flags = flags;
    sigemptyset(&action.sa_mask);
    if (sigaction(number, &action, NULL) != 0)
        return err_errno("sigaction %d", number);
    return ERR_OK;
}

static const struct {
    int number;
    int flags;
} stop_handled[] = {
    { SIGUSR1, SA_RESTART },
    { SIGTERM, SA_RESTART },
    { SIGHUP, SA_RESTART },
    /* The default action is back after the first: the second ends us. */
    { SIGINT, SA_RESTART | (int)SA_RESETHAND },
};
#define STOP_HANDLED (sizeof stop_handled / sizeof stop_handled[0])

enum err stop_install(void)
{
    for (size_t i = 0; i < STOP_HANDLED; i++) {
        if (!stop_is_nohup(stop_handled[i].number))
            TRY(stop_handle(stop_handled[i].number, stop_request,
                            stop_handled[i].flags));
    }
    return ERR_OK;
}

void stop_uninstall(void)
{
    for (size_t i = 0; i < STOP_HANDLED; i++) {
        if (!stop_is_nohup(stop_handled[i].number))
            (void)stop_handle(stop_handled[i].number, SIG_DFL, 0);
    }
}

enum err stop_outlive_readers(void)
{
    return stop_handle(SIGPIPE, stop_nothing, SA_RESTART);
}

/* --- the watch -------------------------------------------------------------
 */

static void stop_interrupt(int number)
{
    stop_request(number);
    sem_post(&stop_watched.interrupts);
}

/* The third may come twice, from the terminal and from mpirun; a fourth ends. */
static void stop_fourth(int number)
{
    if (clock_now() - atomic_load(&stop_third_at) < SAME_S)
        return;
    (void)stop_handle(number, SIG_DFL, 0);
    (void)raise(number);
}

/* Whatever the ledger's file system does, one more SIGINT ends the process. */
static void stop_end(void)
{
    atomic_store(&stop_third_at, clock_now());
    (void)stop_handle(SIGINT, stop_fourth, SA_RESTART);
    log_error("third Ctrl-C: ended without a checkpoint; the same command goes "
              "on from the newest one");
    pthread_mutex_lock(&stop_watched.mutex);
    if (stop_watched.run_dir != NULL)
        (void)ledger_append(stop_watched.run_dir, "stop", stop_watched.attempt,
                            json_pack("{s:i, s:s}", "code", INTERRUPTED,
                                      "reason",
                                      "a third Ctrl-C ended it without a "
                                      "checkpoint"));
    pthread_mutex_unlock(&stop_watched.mutex);
    (void)stop_handle(SIGINT, SIG_DFL, 0);
    (void)kill(getpid(), SIGINT);
}

static void *stop_answer(void *unused)
{
    double last = 0;
    for (int count = 0; count < 3;) {
        if (sem_wait(&stop_watched.interrupts) != 0 ||
            (count > 0 && clock_now() - last < SAME_S))
            continue;
        last = clock_now();
        count++;
        if (count == 1)
            log_warn("Ctrl-C: ending with a checkpoint of the last finished "
                     "step; pressed twice more it ends without one");
        else if (count == 2)
            log_warn("Ctrl-C: still at it; pressed once more it ends without a "
                     "checkpoint");
    }
    stop_end();
    return unused;
}

enum err stop_watch(void)
{
    pthread_t thread;
    if (sem_init(&stop_watched.interrupts, 0, 0) != 0)
        return err_errno("sem_init");
    int failed = process_thread(&thread, STOP_STACK_BYTES, stop_answer, NULL);
    if (failed != 0)
        return err_set(ERR_MEMORY, "no thread for signals: %s",
                       strerror(failed));
    pthread_detach(thread);
    return stop_handle(SIGINT, stop_interrupt, SA_RESTART);
}

void stop_watch_run(const char *run_dir, int attempt)
{
    pthread_mutex_lock(&stop_watched.mutex);
    stop_watched.run_dir = run_dir;
    stop_watched.attempt = attempt;
    pthread_mutex_unlock(&stop_watched.mutex);
}
