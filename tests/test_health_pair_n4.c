/* Pairing rounds between four ranks. Speeds of a busy test machine mean
 * nothing: only wrong data, and what takes a million times as long, are judged.
 */
#include "healthcheck/health_pair.h"

#include "src/base/log.h"
#include "tests/tap.h"

struct outcome {
    enum health_state state;
    int meetings;
    char code[32];
    char *text; /* for people, which the caller frees */
};

static double ratio_min;
static int rails;
static size_t bytes_max = 65536;

static enum err play(struct comm *comm, const char *inject, double min_gbps,
                     struct outcome *out)
{
    struct health_pair_options options = {
        .bytes_min = 65536,
        .bytes_max = bytes_max,
        .repeats = 3,
        .timeout_s = 60,
        .budget_s = 240,
        .min_gbps = min_gbps,
        .ratio_min = ratio_min,
        .inject = inject,
        .rails = rails,
    };
    struct health_pairs *pairs;
    size_t bytes;
    memset(out, 0, sizeof *out);
    enum err rc = health_pair_run(comm, &options, &pairs);
    if (rc != ERR_OK)
        return rc;
    out->state = health_pair_state(pairs);
    FILE *file = open_memstream(&out->text, &bytes);
    health_pair_print(pairs, file);
    fclose(file);
    json_t *all = health_pair_json(pairs);
    const json_t *host = json_array_get(all, 0);
    out->meetings = (int)json_array_size(json_object_get(host, "pairs"));
    const char *code = json_string_value(json_object_get(host, "code"));
    snprintf(out->code, sizeof out->code, "%s", code != NULL ? code : "(null)");
    json_decref(all);
    health_pair_destroy(pairs);
    return rc;
}

static void test_faults(struct comm *comm)
{
    static const struct {
        const char *name, *inject;
        double min_gbps;
        enum health_state ranks[4];
        enum health_state state;
        int meetings;
        const char *code;
    } cases[] = {
        { "healthy", NULL, 0, TUPLE(0, 0, 0, 0), HEALTH_OK, 2, "" },
        { "rank 2 sends wrong data", "pair:rank2:wrong", 0,
          TUPLE(0, 0, HEALTH_BAD, 0), HEALTH_BAD, 5, "PAIR_WRONG" },
        { "rank 1 sends wrong data", "pair:rank1:wrong", 0,
          TUPLE(0, HEALTH_BAD, 0, 0), HEALTH_BAD, 5, "PAIR_WRONG" },
        { "rank 3 is below the floor of 64 KiB in 0.2 s", "pair:rank3:slow",
          0.0003, TUPLE(0, 0, 0, HEALTH_BAD), HEALTH_BAD, 5, "PAIR_SLOW" },
        { "everybody is below the floor", NULL, 1e9,
          TUPLE(HEALTH_WARN, HEALTH_WARN, HEALTH_WARN, HEALTH_WARN),
          HEALTH_WARN, 2, "PAIR_UNRESOLVED" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct outcome outcome;
        enum err rc = play(comm, cases[i].inject, cases[i].min_gbps, &outcome);
        tap_is_int(rc, ERR_OK, "%s: runs", cases[i].name);
        tap_is_int(outcome.state, cases[i].state, "%s: state", cases[i].name);
        tap_is_str(outcome.code, cases[i].code, "%s: code", cases[i].name);
        tap_is_int(outcome.meetings, cases[i].meetings, "%s: meetings",
                   cases[i].name);
        for (int rank = 0; rank < 4; rank++) {
            enum health_state state = cases[i].ranks[rank];
            char want[64];
            snprintf(want, sizeof want, "(rank %d): %s", rank,
                     state == HEALTH_OK ? "" : health_state_name(state));
            tap_ok((strstr(outcome.text, want) == NULL) == (state == HEALTH_OK),
                   "%s: rank %d", cases[i].name, rank);
        }
        free(outcome.text);
    }
}

/* As Slurm says it of two nodes behind each of two switches. Slow is what is a
 * thousand times slower, the square root of what is injected. */
static void test_leaves(struct comm *comm)
{
    struct outcome outcome;
    char way[64];
    int rank = comm_rank(comm);
    snprintf(way, sizeof way, "top.s%d.n%d", rank / 2, rank);
    setenv("SLURM_TOPOLOGY_ADDR", way, 1);
    ratio_min = 0.001;
    tap_is_int(play(comm, NULL, 0, &outcome), ERR_OK, "two switches");
    tap_is_int(outcome.state, HEALTH_OK, "two switches: ok");
    tap_is_int(outcome.meetings, 4, "across them all meet once");
    free(outcome.text);
    tap_is_int(play(comm, "pair:s1:slow", 0, &outcome), ERR_OK, "one is slow");
    tap_is_int(outcome.state, HEALTH_WARN, "one is slow: no node is bad");
    tap_is_str(outcome.code, "LEAF", "one is slow: a switch is");
    tap_ok(strstr(outcome.text, "LEAF switch s0") != NULL &&
               strstr(outcome.text, "LEAF switch s1") != NULL,
           "of two both are named");
    free(outcome.text);
    /* of one rank the way is not known */
    if (rank == 3)
        unsetenv("SLURM_TOPOLOGY_ADDR");
    tap_is_int(play(comm, "pair:s1:slow", 0, &outcome), ERR_OK, "not known");
    tap_is_int(outcome.meetings, 2, "what is not known of all is not used");
    free(outcome.text);
    unsetenv("SLURM_TOPOLOGY_ADDR");
    ratio_min = 0;
}

/* Small messages that come late, and vectors of three sizes. */
static void test_sizes(struct comm *comm)
{
    struct outcome outcome;
    bytes_max = (size_t)65536 * 16;
    ratio_min = 0.001;
    tap_is_int(play(comm, "pair:rank3:late", 0, &outcome), ERR_OK,
               "a late rank");
    tap_is_str(outcome.code, "PAIR_LATE", "it is named for that");
    tap_ok(strstr(outcome.text, "(rank 3): warn: tessera: PAIR_LATE rank 3") !=
               NULL,
           "and nobody else: %s", outcome.text);
    for (int bytes = 65536; bytes <= 65536 * 16; bytes *= 4) {
        char row[64];
        snprintf(row, sizeof row, " %10d ", bytes);
        tap_ok(strstr(outcome.text, row) != NULL, "%d bytes were summed",
               bytes);
    }
    free(outcome.text);
    bytes_max = 65536;
    ratio_min = 0;
}

/* Four ranks as two nodes with two rails each. */
static void test_rails(struct comm *comm)
{
    struct outcome outcome;
    rails = 2;
    ratio_min = 0.95;
    tap_is_int(play(comm, "pair:rail1:slow", 0, &outcome), ERR_OK,
               "two rails, one is slow");
    tap_is_int(outcome.meetings, 1, "two nodes meet once");
    tap_is_str(outcome.code, "RAIL", "the rail is named");
    tap_ok(strstr(outcome.text, "RAIL rail 1 of all nodes") != NULL,
           "which one");
    tap_is_int(outcome.state, HEALTH_WARN, "nobody is bad for it");
    free(outcome.text);
    tap_is_int(play(comm, "pair:rank3:wrong", 0, &outcome), ERR_OK,
               "a wrong rank of a rail");
    tap_is_int(outcome.state, HEALTH_UNKNOWN, "speaks against its node");
    free(outcome.text);
    rails = 3;
    tap_is_int(play(comm, NULL, 0, &outcome), ERR_UNSUPPORTED,
               "unequal nodes are refused");
    rails = 0;
    ratio_min = 0;
}

int main(int argc, char **argv)
{
    struct comm *comm;
    struct comm *alone;
    struct outcome outcome;
    log_init("test", -1, LOG_ERROR);
    if (comm_create("mpi", &argc, &argv, 60, &comm) != ERR_OK) {
        tap_ok(false, "communication: %s", err_text());
        return tap_done();
    }
    if (comm_rank(comm) != 0)
        tap_silence();
    if (!tap_is_int(comm_size(comm), 4, "four ranks"))
        goto out;
    test_faults(comm);
    test_leaves(comm);
    test_sizes(comm);
    test_rails(comm);
    if (tap_is_int(comm_create("self", NULL, NULL, 60, &alone), ERR_OK,
                   "one rank alone")) {
        tap_is_int(play(alone, NULL, 0, &outcome), ERR_UNSUPPORTED,
                   "one rank has nobody to meet");
        comm_destroy(alone);
    }
out:;
    int status = tap_done();
    enum err failed = status == 0 ? ERR_OK : err_set(ERR_INTERNAL, "failed");
    status = comm_agree(comm, failed) == ERR_OK ? 0 : 1;
    comm_destroy(comm);
    return status;
}
