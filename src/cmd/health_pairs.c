/* tessera-health --pairs: tests ranks against each other. It is left out of
 * node-health, which needs no MPI (health_args.h). A slow link has two ends, and
 * one measurement does not say which; members of a suspicious pair meet
 * others, and the one that is suspicious with all of them is the sick one (healthcheck/health_pair.h). */
#include "healthcheck/health_pair.h"
#include "healthcheck/health_probe.h"
#include "healthcheck/health_same.h"

#include "src/base/clock.h"
#include "src/base/log.h"
#include "src/cmd/health_args.h"
#include "src/comm/comm.h"

#define HEALTH_PAIRS_BUDGET_S 60.0
#define HEALTH_PAIRS_BYTES_MIN ((size_t)1 << 20)
#define HEALTH_PAIRS_BYTES_MAX ((size_t)64 << 20) /* of which a rank has two */
#define HEALTH_PAIRS_GPU_BYTES_MAX ((size_t)1 << 30)

/* Over NCCL where all ranks have it and a GPU; collective. The library stays open
 * while the options are used. */
static enum err pairs_gpus(struct comm *comm, const struct health_env *env,
                           struct comm_nccl_library *nccl,
                           struct health_pair_options *options)
{
    int count = 0;
    struct health_probe probe;
    enum err rc = health_probe_default(env, &probe);
    if (rc == ERR_OK)
        rc = probe.gpus->count(&count);
    int64_t seen = rc == ERR_OK && count > 0;
    int64_t usable = seen && comm_nccl_library_open(nccl) == ERR_OK;
    if (seen && !usable)
        log_warn("%s: GPUs are not measured, their hosts' memory is",
                 err_text());
    TRY(comm_all_reduce_i64(comm, &usable, 1, COMM_MIN));
    if (usable == 0)
        return ERR_OK;
    options->gpus = probe.gpus;
    options->nccl = nccl;
    options->bytes_max = HEALTH_PAIRS_GPU_BYTES_MAX;
    return ERR_OK;
}

int health_pairs(const struct health_args *arguments,
                 const struct health_env *env, int argc, char **argv)
{
    enum err rc = ERR_OK;
    enum health_state state = HEALTH_UNKNOWN;
    struct comm *comm = NULL;
    struct health_pairs *pairs = NULL;
    struct health_same *same = NULL;
    struct health_versions versions;
    struct comm_nccl_library nccl = { 0 };
    double budget_s =
        arguments->budget_s > 0 ? arguments->budget_s : HEALTH_PAIRS_BUDGET_S;
    struct health_pair_options options = {
        .bytes_min = HEALTH_PAIRS_BYTES_MIN,
        .bytes_max = HEALTH_PAIRS_BYTES_MAX,
        .repeats = 4,
        .timeout_s = budget_s / 4,
        .budget_s = budget_s,
        .min_gbps = env->limits.pair_min_gbps,
        .ratio_min = env->limits.pair_ratio_min,
        .inject = env->inject,
    };
    health_versions_find(env, &versions);
    TRY_OUT(comm_create("auto", &argc, &argv, budget_s / 4, &comm));
    TRY_OUT(pairs_gpus(comm, env, &nccl, &options));
    TRY_OUT(health_pair_run(comm, &options, &pairs));
    TRY_OUT(health_same_run(comm, &versions, env->limits.clock_skew_max_ms,
                            env->inject, &same));
    state = health_worse(health_pair_state(pairs), health_same_state(same));
    if (comm_rank(comm) == 0) {
        if (!arguments->json && !arguments->words)
            health_pair_print(pairs, stdout);
        if (!arguments->json && !arguments->words)
            health_same_print(same, stdout);
        json_t *verdicts = health_pair_json(pairs);
        health_same_tell(same, verdicts);
        TRY_OUT(health_publish(arguments, verdicts));
    }
out:
    if (rc != ERR_OK) {
        log_error("%s", err_text());
        state = state == HEALTH_BAD ? state : HEALTH_UNKNOWN;
    }
    health_same_destroy(same);
    health_pair_destroy(pairs);
    if (rc == ERR_COMM && comm != NULL) {
        /* Let every rank say whom it missed before the first one leaves. */
        clock_sleep(1);
        comm_abort(comm, HEALTH_UNKNOWN);
    }
    comm_destroy(comm);
    if (nccl.opened != NULL)
        comm_nccl_library_close(&nccl);
    return (int)state;
}
