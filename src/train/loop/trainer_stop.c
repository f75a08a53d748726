/* The looks at the stop flag between microsteps, and what the ranks agree on.
 *
 * A look is an all-reduce that is started and not waited for: the look after it
 * hears what all ranks had to say, so on several ranks a stop is heard one look
 * late, and on the same microstep everywhere. How many microsteps lie between two
 * looks follows from rank 0's time of the last step, which all ranks have from its
 * exchange, and not from a clock of their own. */
#include "src/train/loop/trainer.h"

#include <assert.h>
#include <math.h>

#include "src/job/stop.h"

#define LOOK_S 1.0

static bool listens(const struct run *run)
{
    const struct algorithms *algorithms = &run->algorithms;
    int plugins = 0;
    if (replica_shares(run->engine.replica) ||
        settings_list_count(train_settings_setting("plugins"),
                            run->settings.alone.plugins, &plugins) != ERR_OK ||
        plugins > 0)
        return false;
    for (int i = 0; i < algorithms->count; i++)
        if (algorithms->list[i].ops->before_batch != NULL &&
            algorithms->list[i].ops->store != NULL)
            return false;
    return true;
}

void trainer_stop_begin(struct run *run, bool may)
{
    struct run_stop *stop = &run->now.stop;
    int microsteps = replica_microsteps_least(run->engine.replica);
    double step_s = run->now.of_rank[0].step_s;
    assert(stop->request == NULL); /* the last batch's was heard */
    *stop = (struct run_stop){ .every = 1 };
    if (!may || !listens(run))
        return;
    /* one rank's look costs nothing */
    if (run->ranks > 1 && step_s > 0)
        stop->every = (int)fmin(ceil(microsteps * LOOK_S / step_s), microsteps);
    stop->looks = stop->every < microsteps || run->ranks == 1
                      ? (microsteps + stop->every - 1) / stop->every
                      : 0;
}

static enum err hear(struct run_stop *stop)
{
    struct comm_request *request = stop->request;
    stop->request = NULL;
    if (request == NULL)
        return ERR_OK;
    TRY(comm_wait(request, 0.0));
    stop->agreed = (int)stop->asked;
    return ERR_OK;
}

enum err trainer_stop_look(struct run *run, int microstep)
{
    struct run_stop *stop = &run->now.stop;
    if (stop->looks == 0 || stop->agreed != 0 || microstep % stop->every != 0 ||
        microstep / stop->every >= stop->looks)
        return ERR_OK;
    if (run->rank == 0)
        stop_look_for_file(run->settings.run.dir);
    TRY(hear(stop));
    if (stop->agreed != 0)
        return ERR_OK;
    stop->asked = stop_requested();
    TRY(comm_start_all_reduce_i64(run->comm, &stop->asked, 1, COMM_MAX,
                                  &stop->request));
    return run->ranks == 1 ? hear(stop) : ERR_OK;
}

enum err trainer_stop_end(struct run *run)
{
    return hear(&run->now.stop);
}
