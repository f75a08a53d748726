/* The looks at the stop flag between microsteps, and what the ranks agree on. */
#include "src/train/loop/trainer_stop.h"

#include <math.h>

#include "src/job/stop.h"
#include "src/train/loop/trainer.h"

#define LOOK_S 1.0

static bool listens(const struct trainer *trainer)
{
    const struct algorithms *algorithms = &trainer->algorithms;
    int plugins = 0;
    if (replica_shares(trainer->replica) ||
        settings_list_count(train_settings_setting("plugins"),
                            trainer->settings.alone.plugins,
                            &plugins) != ERR_OK ||
        plugins > 0)
        return false;
    for (int i = 0; i < algorithms->count; i++)
        if (algorithms->list[i].ops->before_batch != NULL &&
            algorithms->list[i].ops->store != NULL)
            return false;
    return true;
}

void trainer_stop_begin(struct trainer *trainer, bool may)
{
    struct trainer_stop *stop = &trainer->stop;
    int microsteps = replica_microsteps_least(trainer->replica);
    double step_s = trainer->of_rank[0].step_s;
    *stop = (struct trainer_stop){ .every = 1 };
    if (!may || !listens(trainer))
        return;
    /* one rank's look costs nothing */
    if (trainer->ranks > 1 && step_s > 0)
        stop->every = (int)fmin(ceil(microsteps * LOOK_S / step_s), microsteps);
    stop->looks = stop->every < microsteps || trainer->ranks == 1
                      ? (microsteps + stop->every - 1) / stop->every
                      : 0;
}

static enum err hear(struct trainer_stop *stop)
{
    struct comm_request *request = stop->request;
    stop->request = NULL;
    if (request == NULL)
        return ERR_OK;
    TRY(comm_wait(request, 0.0));
    stop->agreed = (int)stop->asked;
    return ERR_OK;
}

enum err trainer_stop_look(struct trainer *trainer, int microstep)
{
    struct trainer_stop *stop = &trainer->stop;
    if (stop->looks == 0 || stop->agreed != 0 || microstep % stop->every != 0 ||
        microstep / stop->every >= stop->looks)
        return ERR_OK;
    if (trainer->rank == 0)
        stop_look_for_file(trainer->settings.run.dir);
    TRY(hear(stop));
    if (stop->agreed != 0)
        return ERR_OK;
    stop->asked = stop_requested();
    TRY(comm_start_all_reduce_i64(trainer->comm, &stop->asked, 1, COMM_MAX,
                                  &stop->request));
    return trainer->ranks == 1 ? hear(stop) : ERR_OK;
}

enum err trainer_stop_end(struct trainer *trainer)
{
    return hear(&trainer->stop);
}
