/* A thread that calls MPI while messages between nodes are in flight and this process
 * computes. MPI moves a large message only while it is called: over sockets each piece of
 * it, over a network that moves memory by itself its beginning. Without the thread that is
 * when the next exchange is started or waited for, and a step takes as long as its
 * arithmetic and its messages together. Within a node there is nothing to gain: whoever
 * copies needs a processor. */
#include <stdatomic.h>
#include <time.h>

#include "src/base/clock.h"
#include "src/base/log.h"
#include "src/base/process.h"
#include "src/comm/comm_mpi_impl.h"

#define PAUSE_S 100e-6
#define STACK_BYTES ((size_t)256 << 10) /* as the thread of the signs of life */
#define FAR_BYTES 65536                 /* below, MPI sends at once */

static struct {
    pthread_t thread;
    pthread_mutex_t mutex; /* of what follows */
    pthread_cond_t begins;
    atomic_int messages; /* in flight; changed without the mutex but from 0 */
    atomic_bool ends;
    bool runs;
    MPI_Comm words; /* where MPI may look for some */
} progress = { .mutex = PTHREAD_MUTEX_INITIALIZER,
               .begins = PTHREAD_COND_INITIALIZER };

/* Any call will do. */
static void call(void)
{
    int found;
    if (!comm_mpi_try())
        return; /* who has it calls it */
    MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, progress.words, &found,
               MPI_STATUS_IGNORE);
    comm_mpi_leave();
}

static void *run(void *arg)
{
    (void)arg;
    while (!progress.ends) {
        pthread_mutex_lock(&progress.mutex);
        while (progress.messages == 0 && !progress.ends)
            pthread_cond_wait(&progress.begins, &progress.mutex);
        pthread_mutex_unlock(&progress.mutex);
        while (progress.messages > 0 && !progress.ends) {
            call();
            clock_sleep(PAUSE_S);
        }
    }
    return NULL;
}

void comm_mpi_progress_begin(const struct comm *comm, MPI_Comm words)
{
    if (comm->nodes[comm->size - 1] == comm->nodes[0]) /* node by node */
        return;
    progress.words = words;
    progress.ends = false;
    int failed = process_thread(&progress.thread, STACK_BYTES, run, NULL);
    progress.runs = failed == 0;
    if (failed != 0)
        log_warn("no thread for messages between nodes: they do not go on "
                 "while this rank computes");
}

void comm_mpi_progress_end(void)
{
    if (!progress.runs)
        return;
    pthread_mutex_lock(&progress.mutex);
    progress.ends = true;
    pthread_cond_signal(&progress.begins);
    pthread_mutex_unlock(&progress.mutex);
    progress.runs = false;
    if (!comm_mpi_enter(NOBODY))
        return; /* it may be the one that does not come back */
    comm_mpi_leave();
    pthread_join(progress.thread, NULL);
}

/* A fragment that MPI must be called again for, before it has arrived. */
static bool is_far(const struct comm_request *request, int index)
{
    const struct comm *comm = request->comm;
    const struct comm_transfer *transfer = &request->transfers[index];
    return comm->nodes[transfer->peer] != comm->nodes[comm->rank] &&
           comm_request_fragment_bytes(transfer) >= FAR_BYTES;
}

void comm_mpi_progress_add(const struct comm_request *request, int index,
                           int messages)
{
    if (!is_far(request, index) ||
        atomic_fetch_add(&progress.messages, messages) != 0)
        return;
    pthread_mutex_lock(&progress.mutex);
    pthread_cond_signal(&progress.begins);
    pthread_mutex_unlock(&progress.mutex);
}
