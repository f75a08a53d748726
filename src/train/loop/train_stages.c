/* A thread looks at what the main one does, since that may hang anywhere: waiting for
 * ranks, in a file system. It owns the stages, so that nobody waits for it. */
#include "src/train/loop/train_stages.h"

#include <assert.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/clean.h"
#include "src/base/clock.h"
#include "src/base/log.h"
#include "src/base/new.h"
#include "src/base/process.h"

#define STAGES_MAX 10
#define SLOW_S 5.0 /* then it is told, and after twice that again */
#define LOOK_S 0.25
#define STACK_BYTES ((size_t)512 << 10)

struct train_stages {
    atomic_int count; /* the last one is at work; -1: none any more */
    const char *names[STAGES_MAX];
    double begin_s[STAGES_MAX];
};

static void *stages_look(void *arg)
{
    struct train_stages *stages = arg;
    int before = 0;
    double limit_s = SLOW_S;
    for (int count; (count = atomic_load(&stages->count)) >= 0;
         before = count) {
        if (count != before)
            limit_s = SLOW_S;
        if (count > 0 && clock_now() - stages->begin_s[count - 1] >= limit_s) {
            log_info("start: at %s for %.0f s now", stages->names[count - 1],
                     limit_s);
            limit_s *= 2;
        }
        clock_sleep(LOOK_S);
    }
    free(stages);
    return NULL;
}

struct train_stages *train_stages_create(void)
{
    pthread_t thread;
    struct train_stages *stages = NULL;
    const char *rank = getenv("PMIX_RANK");
    if (rank == NULL)
        rank = getenv("PMI_RANK");
    if ((rank != NULL && strcmp(rank, "0") != 0) ||
        new_zeroed(&stages, 1) != ERR_OK)
        return NULL;
    if (process_thread(&thread, STACK_BYTES, stages_look, stages) != 0) {
        free(stages);
        return NULL;
    }
    pthread_detach(thread);
    return stages;
}

void train_stages_next(struct train_stages *stages, const char *name)
{
    if (stages == NULL)
        return;
    int count = atomic_load(&stages->count);
    assert(count < STAGES_MAX);
    stages->names[count] = name;
    stages->begin_s[count] = clock_now();
    atomic_store(&stages->count, name == NULL ? -1 : count + 1);
}

json_t *train_stages_end(struct train_stages *stages)
{
    char text[256] = "";
    if (stages == NULL)
        return NULL;
    json_t *parts = json_object();
    int count = atomic_load(&stages->count);
    double now = clock_now();
    for (int i = 0; i < count; i++) {
        double end_s = i + 1 < count ? stages->begin_s[i + 1] : now;
        double s = end_s - stages->begin_s[i];
        json_object_set_new(parts, stages->names[i], json_real(s));
        clean_join(text, sizeof text, ", ", "%s %.1f", stages->names[i], s);
    }
    log_info("start: %.1f s: %s", now - stages->begin_s[0], text);
    train_stages_next(stages, NULL);
    return parts;
}
