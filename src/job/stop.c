/* The stop flag and the signal handlers that set it. Ranks agree on a stop in
 * src/train/on_stop.c.
 *
 * The flag is a lock-free atomic: handlers may write it, threads may read it.
 */
#include "src/job/stop.h"

#include <assert.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>

static atomic_int stop_flag;

static_assert(ATOMIC_INT_LOCK_FREE == 2, "a handler needs a lock-free flag");

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

enum err stop_install(void)
{
    static const struct {
        int number;
        int flags;
    } handled[] = {
        { SIGUSR1, SA_RESTART },
        { SIGTERM, SA_RESTART },
        { SIGHUP, SA_RESTART },
        /* The default action is back after the first: the second ends us. */
        { SIGINT, SA_RESTART | (int)SA_RESETHAND },
    };
    for (size_t i = 0; i < sizeof handled / sizeof handled[0]; i++) {
        if (stop_is_nohup(handled[i].number))
            continue;
        enum err rc =
            stop_handle(handled[i].number, stop_request, handled[i].flags);
        if (rc != ERR_OK)
            return rc;
    }
    return ERR_OK;
}

enum err stop_outlive_readers(void)
{
    return stop_handle(SIGPIPE, stop_nothing, SA_RESTART);
}
