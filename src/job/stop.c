/* The flag is a lock-free atomic: handlers may write it, threads may read it.
 */
#include "src/job/stop.h"

#include <assert.h>
#include <signal.h>
#include <stdatomic.h>
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

enum err stop_install(void)
{
    static const struct {
        int number;
        int flags;
    } handled[] = {
        { SIGUSR1, SA_RESTART },
        { SIGTERM, SA_RESTART },
        /* The default action is back after the first: the second ends us. */
        { SIGINT, SA_RESTART | (int)SA_RESETHAND },
    };
    for (size_t i = 0; i < sizeof handled / sizeof handled[0]; i++) {
        struct sigaction action;
        memset(&action, 0, sizeof action);
        action.sa_handler = stop_request;
        action.sa_flags = handled[i].flags;
        sigemptyset(&action.sa_mask);
        if (sigaction(handled[i].number, &action, NULL) != 0)
            return err_errno("sigaction %d", handled[i].number);
    }
    return ERR_OK;
}
