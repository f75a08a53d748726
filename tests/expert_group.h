/* A group of ranks for tests of shared experts, ranks being threads. It watches
 * how the model uses its exchanges, and delivers as late as it may. */
#pragma once

#include <pthread.h>
#include <time.h>

#include "src/base/digest.h"
#include "tests/model_fixture.h"

/* More than GROUP_SLOTS. */
#define DEGREE_MAX 16
#define LAYERS 2
#define DEADLINE_S 120

/* --- the group --- */

struct letter {
    const void *data; /* NULL: none is under way */
    size_t bytes;
    uint32_t checksum;
};

struct world {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    int size;
    int fail_rank, fail_at; /* this rank's call of this number fails; 0: none */
    bool failed;
    bool misused; /* a buffer changed under way, sizes differ, a slot in use */
    struct letter letters[DEGREE_MAX][DEGREE_MAX][GROUP_SLOTS]; /* from, to */
};

/* One rank: what it has, what it started, what came out. */
struct member {
    struct world *world;
    struct group_access group;
    struct model_fixture *f;
    struct {
        bool started;
        int to, from;
        bool sends;
        void *recv; /* NULL: nothing comes */
        size_t recv_bytes;
    } slots[GROUP_SLOTS];
    int calls;
    const struct kernels *kernels;
    struct model_options options;
    enum err rc;
    struct leaf_loss train, eval;
    int64_t counts[2][LAYERS * DEGREE_MAX]; /* of training, of evaluation */
};

static inline enum err may_fail(struct member *m)
{
    struct world *world = m->world;
    if (m->group.rank == world->fail_rank && ++m->calls == world->fail_at) {
        world->failed = true;
        pthread_cond_broadcast(&world->changed);
    }
    return world->failed ? err_set(ERR_COMM, "the exchange that fails")
                         : ERR_OK;
}

/* What is received is spoiled until it is there. */
static inline enum err world_start(void *arg, int slot, int to,
                                   const void *send, size_t send_bytes,
                                   int from, void *recv, size_t recv_bytes)
{
    struct member *m = arg;
    struct world *world = m->world;
    int self = m->group.rank;
    pthread_mutex_lock(&world->lock);
    enum err rc = may_fail(m);
    struct letter *letter = &world->letters[self][to][slot];
    world->misused |= m->slots[slot].started || letter->data != NULL;
    world->misused |= to == self || from == self;
    world->misused |= (send == NULL) != (send_bytes == 0) ||
                      (recv == NULL) != (recv_bytes == 0);
    m->slots[slot].started = true;
    m->slots[slot].to = to;
    m->slots[slot].from = from;
    m->slots[slot].sends = send != NULL;
    m->slots[slot].recv = recv;
    m->slots[slot].recv_bytes = recv_bytes;
    if (recv != NULL)
        memset(recv, 0xff, recv_bytes);
    if (send != NULL)
        *letter =
            (struct letter){ send, send_bytes, crc32c(0, send, send_bytes) };
    pthread_cond_broadcast(&world->changed);
    pthread_mutex_unlock(&world->lock);
    return rc;
}

/* Until the letter is there, or taken; with the lock. */
static inline enum err wait_for(struct world *world,
                                const struct letter *letter, bool there)
{
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += DEADLINE_S;
    while (!world->failed && (letter->data != NULL) != there)
        if (pthread_cond_timedwait(&world->changed, &world->lock, &until) != 0)
            world->failed = world->misused = true;
    return world->failed ? err_set(ERR_COMM, "the other rank does not come")
                         : ERR_OK;
}

/* A letter is taken as late as possible. */
static inline enum err world_wait(void *arg, int slot)
{
    struct member *m = arg;
    struct world *world = m->world;
    int self = m->group.rank;
    pthread_mutex_lock(&world->lock);
    enum err rc = may_fail(m);
    world->misused |= !m->slots[slot].started;
    m->slots[slot].started = false;
    struct letter *in = &world->letters[m->slots[slot].from][self][slot];
    if (rc == ERR_OK && m->slots[slot].recv != NULL &&
        (rc = wait_for(world, in, true)) == ERR_OK) {
        world->misused |= in->bytes != m->slots[slot].recv_bytes ||
                          in->checksum != crc32c(0, in->data, in->bytes);
        memcpy(m->slots[slot].recv, in->data,
               in->bytes < m->slots[slot].recv_bytes
                   ? in->bytes
                   : m->slots[slot].recv_bytes);
        in->data = NULL;
        pthread_cond_broadcast(&world->changed);
    }
    if (rc == ERR_OK && m->slots[slot].sends)
        rc = wait_for(world, &world->letters[self][m->slots[slot].to][slot],
                      false);
    pthread_mutex_unlock(&world->lock);
    return rc;
}

static inline bool all_delivered(const struct world *world)
{
    bool fine = !world->misused;
    for (int from = 0; from < world->size; from++)
        for (int to = 0; to < world->size; to++)
            for (int slot = 0; slot < GROUP_SLOTS; slot++)
                fine &= world->letters[from][to][slot].data == NULL;
    return fine;
}

/* --- the parameters of a rank --- */

static inline bool is_experts(const struct model_fixture *f, int block)
{
    return f->params->blocks[block].kind == PARAM_BLOCK_EXPERTS;
}

/* Elements of a rank's experts of one kind. */
static inline int64_t piece(const struct model_config *config, int degree)
{
    return config->experts / degree * config->ffn_width * config->d_model;
}

static inline enum err member_gather(void *arg, int block, const void **weights)
{
    struct member *m = arg;
    enum err rc = fixture_gather(m->f, block, weights);
    if (is_experts(m->f, block))
        *weights = (const float *)*weights +
                   m->group.rank * piece(&m->f->config, m->group.size);
    return rc;
}

static inline enum err member_release(void *arg, int block)
{
    return fixture_release(((struct member *)arg)->f, block);
}

/* The gradients of a rank's experts, one for each source, are together as large
 * as one of all experts: they fill the block's part of the flat gradient. */
static inline enum err member_gradient(void *arg, int block, float **gradient)
{
    return fixture_gradient(((struct member *)arg)->f, block, gradient);
}

static inline enum err member_done(void *arg, int block)
{
    return fixture_done(((struct member *)arg)->f, block);
}
