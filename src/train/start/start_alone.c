/* Runs work of rank 0, or of each, in a thread while the other ranks wait and are told
 * several times per deadline that who is at it lives.
 *
 * A wait for another rank has a deadline, so that a dead node is found; work that
 * takes minutes would look like one. A longer deadline would be a guess and find
 * the dead one late. So the rank's own thread tells "not done yet" while another works,
 * which must not use comm. It tells by a sum: so it waits for all, hears who is missing,
 * and answers when the roll is called. */
#include "src/train/start/start.h"

#include <assert.h>
#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "src/base/clock.h"

/* Signs of life are this share of a deadline apart, and at most so many seconds:
 * less than an answer at a roll call may take. */
#define SIGN_SHARE 0.1
#define SIGN_MAX_S 0.5
#define LOOK_S 2e-3

struct task {
    enum err (*work)(void *arg); /* NULL: there is none on this rank */
    void *arg;
    struct err_kept end;
    atomic_bool done;
};

static void *work_main(void *arg)
{
    struct task *task = arg;
    err_keep(&task->end, task->work(task->arg));
    atomic_store(&task->done, true);
    return NULL;
}

/* Whether the work is done, at the latest when the next sign is due. */
static bool look(const struct task *task, double sign_s)
{
    double end = clock_now() + sign_s;
    while (!atomic_load(&task->done) && clock_now() < end)
        clock_sleep(LOOK_S);
    return atomic_load(&task->done);
}

static enum err give_signs(struct comm *comm, const struct task *task)
{
    double sign_s = fmin(SIGN_SHARE * comm_timeout_s(comm), SIGN_MAX_S);
    int64_t done = 0;
    assert(sign_s > 0.0);
    while (done == 0) {
        done = task->work == NULL || look(task, sign_s);
        TRY(comm_all_reduce_i64(comm, &done, 1, COMM_MIN));
    }
    return ERR_OK;
}

enum err start_each(struct comm *comm, enum err (*work)(void *arg), void *arg)
{
    enum err rc = ERR_OK;
    struct task task = { .work = work, .arg = arg };
    pthread_t thread;
    bool begun = false;
    if (work != NULL) {
        begun = pthread_create(&thread, NULL, work_main, &task) == 0;
        if (!begun)
            rc = err_set(ERR_MEMORY, "no thread can be started");
    }
    TRY_OUT(comm_agree(comm, rc));
    rc = give_signs(comm, &task);
out:
    if (begun)
        pthread_join(thread, NULL);
    if (rc != ERR_OK)
        return rc;
    return comm_agree(comm, err_again(&task.end));
}

enum err start_alone(struct comm *comm, enum err (*work)(void *arg), void *arg)
{
    return start_each(comm, comm_rank(comm) == 0 ? work : NULL, arg);
}
