/* The main of programs that may be started as several ranks. A file of its own, since the
 * others need no MPI: they are called often, and begin sooner without it. */
#include "src/base/exit_code.h"
#include "src/base/log.h"
#include "src/cmd/cmd_main.h"
#include "src/comm/comm.h"

#define TIMEOUT_S 86400.0 /* ranks may end at different times, ... */
#define LOST_S 20.0       /* ... but live until then */

int cmd_main_ranks(const struct cmd_main *cmd, int argc, char **argv,
                   enum err (*run)(const void *into, struct comm *comm))
{
    enum err rc = ERR_OK;
    struct comm *comm = NULL;
    TRY_OUT(comm_create("auto", &argc, &argv, TIMEOUT_S, &comm));
    TRY_OUT(comm_beat_start(comm, LOST_S));
    int rank = comm_rank(comm);
    log_init(cmd->program->name, comm_size(comm) > 1 ? rank : -1,
             rank == 0 ? LOG_INFO : LOG_ERROR);
    rc = run(cmd->into, comm);
out:;
    int code = err_exit_code(rc);
    if (comm == NULL || comm_rank(comm) == 0 || rc == ERR_COMM)
        code = cmd_main_end(cmd, rc, EXIT_DONE);
    if (rc == ERR_COMM && comm != NULL)
        comm_abort(comm, code);
    comm_destroy(comm);
    return code;
}
