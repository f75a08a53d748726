/* Interposed by tests/name_culprit: a signal makes the main thread of a rank, wherever it
 * is, go round for ever. */
#include <signal.h>

static void spin(int number)
{
    (void)number;
    for (volatile unsigned i = 0;; i++)
        continue;
}

__attribute__((constructor)) static void begin(void)
{
    signal(SIGPWR, spin);
}
