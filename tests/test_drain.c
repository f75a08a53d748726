/* What Slurm prints is read, or is not known; and the ways from a bad verdict to
 * a drained node, one row each. Histories of many nodes are tests/simulate's. */

#include "src/base/fsio.h"
#include "src/control/drain.h"
#include "src/control/undrain.h"
#include "tests/tap.h"

static void test_node(void)
{
    static const struct {
        const char *state, *reason;
        bool out;
    } rows[] = {
        { "idle", "none", false },
        { "mixed-", "none", false },
        { "planned", "none", false },
        { "idle~", "none", false },
        { "powering_down", "none", false },
        { "idle*", "none", false },
        { "drained", "Kill task failed", true },
        { "draining@", "tessera: GPU_HANG | [x] y", true },
        { "down*", "Not responding", true },
        { "drained*", "none", true },
        { "failing", "none", true },
    };
    struct cluster_node node;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char text[512];
        snprintf(text, sizeof text, "n3|%s|all|%s\nn3|%s|low|%s\n",
                 rows[i].state, rows[i].reason, rows[i].state, rows[i].reason);
        tap_ok(cluster_node_parse(text, "n3", &node) == ERR_OK &&
                   node.out == rows[i].out,
               "%s is %s", rows[i].state, rows[i].out ? "out" : "in service");
        tap_is_str(node.reason, rows[i].reason, "its reason");
        tap_ok(node.partition_count == 2 &&
                   strcmp(node.partitions[1], "low") == 0,
               "its partitions");
    }
    static const char *const none[] = {
        "", "sinfo: error: Unable to contact slurm controller",
        "n33|idle|all|none", "n3|idle|all", "n3||all|none"
    };
    for (size_t i = 0; i < sizeof none / sizeof *none; i++)
        tap_is_int(cluster_node_parse(none[i], "n3", &node), ERR_DATA,
                   "no state: row %zu", i);
}

static void test_shares(void)
{
    struct cluster_node node = { .partitions = { "low", "all" },
                                 .partition_count = 2 };
    struct cluster_shares shares;
    const char *text = "n1|idle|low\nn1|idle|all\nn2|mixed*|all\nn3|drained|"
                       "low\nn3|drained|all\nn3|drained|urgent\nn4|future|all\n"
                       "n5|draining|urgent\nn6|idle~|all\nn7|maint|all\n";
    tap_is_int(cluster_shares_parse(text, &node, "n1", &shares), ERR_OK,
               "a list of nodes");
    static const struct {
        const char *name;
        int nodes, out;
    } rows[] = { { "-", 6, 4 }, { "low", 2, 1 }, { "all", 5, 3 } };
    for (int i = 0; i < 3; i++)
        tap_ok(strcmp(shares.list[i].name, rows[i].name) == 0 &&
                   shares.list[i].nodes == rows[i].nodes &&
                   shares.list[i].out == rows[i].out,
               "share %s: %d of %d out", rows[i].name, shares.list[i].out,
               shares.list[i].nodes);
    tap_ok(!shares.here_out, "the node itself serves");
    tap_ok(cluster_shares_parse(text, &node, "n3", &shares) == ERR_OK &&
               shares.here_out,
           "another does not");
    static const char *const wrong[] = {
        "",          "n2|idle|low\n", "n1\n",
        "n1|idle\n", "|idle|low\n",   "sinfo: error: no\n"
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        tap_is_int(cluster_shares_parse(wrong[i], &node, "n1", &shares),
                   ERR_DATA, "not known: list %zu", i);
}

#define MARK(name, start)                                                      \
    "ReservationName=" name " StartTime=" start " EndTime=2026-11-25T00:53:12" \
    " Duration=00:01:00 Nodes=n2 Flags=OVERLAP State=ACTIVE\n"

static void test_marks(void)
{
    static struct cluster_marks marks;
    tap_is_int(cluster_marks_parse(
                   MARK("tessera-drained.1764030000.GPU_HANG.n2.x",
                        "2035-02-11T00:52:25") MARK("maintenance",
                                                    "2026-11-25T00:52:11")
                       MARK("tessera-latched.NCCL_BW", "2035-02-11T00:52:25")
                           MARK("tessera-refused.-", "2026-11-25T00:52:11")
                               MARK("tessera-drain", "2026-11-25T00:52:12"),
                   &marks),
               ERR_OK, "a list of reservations");
    tap_ok(marks.locked && marks.lock_time == 1795567932.0,
           "the lock and its time: %.0f", marks.lock_time);
    tap_ok(marks.drained_count == 1 && marks.drained[0].time == 1764030000.0,
           "a drain and its time");
    tap_is_str(marks.drained[0].code, "GPU_HANG", "its code");
    tap_is_str(marks.drained[0].mark,
               "tessera-drained.1764030000.GPU_HANG.n2.x", "its mark");
    tap_ok(marks.latched_count == 1 && marks.refused_count == 1, "the others");
    tap_is_str(marks.latched[0], "NCCL_BW", "what is latched");
    tap_is_int(cluster_marks_parse("No reservations in the system\n", &marks),
               ERR_OK, "none");
    tap_ok(!marks.locked && marks.drained_count == 0, "and none is left over");
    tap_is_int(cluster_marks_parse("slurm_load_reservations error", &marks),
               ERR_DATA, "no answer is no list");
    tap_is_int(cluster_marks_parse("", &marks), ERR_DATA, "nor is nothing");
}

/* What versions of Slurm print of one cluster: n2 is reserved, n3 to n5 are
 * drained, n6 is down, n7 fails, n8 is under maintenance. */
static char *recorded(const char *version, const char *what)
{
    char path[64], *text = NULL;
    size_t bytes;
    snprintf(path, sizeof path, "tests/data/slurm/%s/%s", version, what);
    tap_ok(fsio_read_file(path, 1 << 20, &text, &bytes) == ERR_OK, "%s", path);
    return text;
}

static void test_version(const char *version)
{
    static struct cluster_marks marks;
    struct cluster_node node = { 0 };
    struct cluster_shares shares;
    char *text = recorded(version, "sinfo");
    tap_ok(cluster_shares_parse(text, &node, "n3", &shares) == ERR_OK &&
               shares.list[0].nodes == 9 && shares.list[0].out == 6 &&
               shares.here_out,
           "Slurm %s: 6 of 9 nodes are out", version);
    free(text);
    text = recorded(version, "reservations");
    tap_ok(cluster_marks_parse(text, &marks) == ERR_OK && marks.locked &&
               marks.lock_time > 0 && marks.drained_count == 1 &&
               marks.refused_count == 1,
           "its marks");
    free(text);
}

/* --- ways --- */

/* What a way meets: letters for what is answered in turn. */
struct way {
    const char *what;
    bool enforce;
    const char *state; /* the node's */
    int lock_tries;    /* that somebody else has the lock */
    int out, part_out; /* of 40 nodes, and of 4 of the partition */
    int same, old;     /* marks of the code, within the window and before */
    bool latched, update_fails, silent, mark_fails;
    const char *did;  /* actions that change something, a letter each */
    const char *said; /* the decision begins so */
    bool drained;
};

static const struct way ways[] = {
    { "a sick node", true, "idle", 0, 3, 0, 0, 0, false, false, false, false,
      "LMUSR", "drained: tessera: GPU_HANG no answer", true },
    { "while others decide", true, "idle", 3, 0, 0, 0, 0, false, false, false,
      false, "LLLLMUSR", "drained", true },
    { "while others never end", true, "idle", 99, 0, 0, 0, 0, false, false,
      false, false, NULL, "not drained: other nodes are being drained", false },
    { "a dry run", false, "idle", 0, 39, 4, 9, 0, true, false, false, false,
      "S", "dry run, would drain: tessera: GPU_HANG", false },
    { "out already", true, "drained", 0, 0, 0, 0, 0, false, false, false, false,
      "S", "is drained already (broken), left so", true },
    { "out already, in a dry run", false, "down*", 0, 0, 0, 0, 0, false, false,
      false, false, "S", "is down* already", false },
    { "the cluster's floor", true, "idle", 0, 4, 0, 0, 0, false, false, false,
      false, "LSNR",
      "not drained: 4 of 40 nodes are out of service, the limit is 4", false },
    { "the partition's floor", true, "idle", 0, 3, 1, 0, 0, false, false, false,
      false, "LSNR", "not drained: 1 of 4 nodes of p are out of service",
      false },
    { "a storm", true, "idle", 0, 0, 0, 5, 0, false, false, false, false,
      "LMSR", "not drained: 5 nodes were drained for the same within 600 s",
      false },
    { "no storm yet", true, "idle", 0, 0, 0, 4, 2, false, false, false, false,
      "LMUSRRR", "drained", true },
    { "latched", true, "idle", 0, 0, 0, 0, 0, true, false, false, false, "LSR",
      "not drained: too many nodes were drained for the same", false },
    { "latched, heard while others decide", true, "idle", 1, 0, 0, 0, 0, true,
      false, false, false, "LS", "not drained: too many", false },
    { "Slurm refuses", true, "idle", 0, 0, 0, 0, 0, false, true, false, false,
      "LMUSR", "scontrol failed, not drained", false },
    { "Slurm is silent about the drain", true, "idle", 0, 0, 0, 0, 0, false,
      false, true, false, "LMUS", "no answer, perhaps drained", false },
    { "the mark fails", true, "idle", 0, 0, 0, 0, 0, false, false, false, true,
      "LMSR", "not drained: its mark cannot be made", false },
    { "nothing is known of the node", true, NULL, 0, 0, 0, 0, 0, false, false,
      false, false, "S", "state unknown, not drained", false },
};

static struct cluster_marks told_marks;

/* One answer of the way's Slurm. */
static void answer(const struct way *way, const struct drain_action *action,
                   int *tries, struct cluster_node *node,
                   struct cluster_shares *shares, struct drain_event *event)
{
    *event = (struct drain_event){ .answered = true, .done = true };
    switch (action->what) {
    case DRAIN_NODE:
        *node = (struct cluster_node){ .partitions = { "p" },
                                       .partition_count = 1,
                                       .reason = "broken" };
        if (way->state == NULL)
            break;
        snprintf(node->state, sizeof node->state, "%s", way->state);
        node->out = strcmp(way->state, "idle") != 0;
        event->node = node;
        break;
    case DRAIN_LOCK:
        event->done = (*tries)++ >= way->lock_tries;
        break;
    case DRAIN_MARKS:
        told_marks =
            (struct cluster_marks){ .locked = true, .lock_time = 10000 };
        for (int i = 0; i < way->same + way->old; i++) {
            struct cluster_drained *drained =
                &told_marks.drained[told_marks.drained_count++];
            drained->time = i < way->same ? 9500 : 9000;
            snprintf(drained->code, sizeof drained->code, "GPU_HANG");
            snprintf(drained->mark, sizeof drained->mark, "mark%d", i);
        }
        if (way->latched)
            snprintf(told_marks.latched[told_marks.latched_count++],
                     CLUSTER_NAME_BYTES, "GPU_HANG");
        event->marks = &told_marks;
        break;
    case DRAIN_SHARES:
        *shares =
            (struct cluster_shares){ .list = { { "-", 40, way->out },
                                               { "p", 4, way->part_out } },
                                     .count = 2 };
        event->shares = shares;
        break;
    case DRAIN_MARK:
        event->done = !way->mark_fails;
        break;
    case DRAIN_UPDATE:
        event->done = !way->update_fails && !way->silent;
        event->answered = !way->silent;
        break;
    default:
        break;
    }
}

static void test_way(const struct way *way)
{
    static const char letters[] = {
        [DRAIN_LOCK] = 'L',   [DRAIN_MARK] = 'M',   [DRAIN_MARK_NOW] = 'N',
        [DRAIN_UPDATE] = 'U', [DRAIN_REMOVE] = 'R', [DRAIN_SAY] = 'S',
        [DRAIN_END] = 0
    };
    struct drain_request request = { .node = "n1",
                                     .reason = "GPU_HANG no answer",
                                     .enforce = way->enforce,
                                     .percent = 10,
                                     .storm_nodes = 5,
                                     .storm_s = 600,
                                     .end_s = 45,
                                     .seed = 7 };
    struct drain drain;
    struct cluster_node node;
    struct cluster_shares shares;
    char did[128] = "", said[320] = "";
    int tries = 0, steps = 0;
    double now_s = 0;
    drain_begin(&drain, &request);
    struct drain_event event = { 0 };
    for (;;) {
        event.now_s = now_s;
        struct drain_action action = drain_next(&drain, &event);
        size_t n = strlen(did);
        if (letters[action.what] != 0 && n + 1 < sizeof did)
            did[n] = letters[action.what];
        if (action.what == DRAIN_SAY)
            memcpy(said, action.text, sizeof said);
        if (action.what == DRAIN_END || ++steps > 200)
            break;
        now_s += action.what == DRAIN_PAUSE ? action.seconds : 0.05;
        answer(way, &action, &tries, &node, &shares, &event);
    }
    tap_ok(steps <= 200 && now_s <= 45, "%s: ends, after %d steps and %.1f s",
           way->what, steps, now_s);
    if (way->did != NULL)
        tap_is_str(did, way->did, "%s: what is done", way->what);
    tap_ok(strncmp(said, way->said, strlen(way->said)) == 0, "%s: '%s'",
           way->what, said);
    tap_ok(drain.out == way->drained, "%s: %s", way->what,
           way->drained ? "takes no jobs" : "takes jobs");
}

/* --- the way back --- */

struct back {
    const char *what;
    bool enforce;
    const char *state, *reason,
        *after; /* the reason at the end; NULL: silent */
    int sound;  /* looks that find it so */
    bool fails;
    const char *did; /* N node, L look, P pause, R resume, S say */
    const char *outcome, *said;
    bool back;
};

#define OURS "tessera: SHM_FULL shm"
static const struct back backs[] = {
    { "a sound node", true, "drained", OURS, OURS, 9, false, "NLPLNRS",
      "undrained", "undrained, sound at 2 looks; was: " OURS, true },
    { "one that still runs a job", true, "draining", OURS, OURS, 9, false,
      "NLPLNRS", "undrained", "undrained", true },
    { "a dry run", false, "drained", OURS, OURS, 9, false, "NLPLNS",
      "would-undrain", "sound at 2 looks, would undrain: " OURS, false },
    { "sick at once", true, "drained", OURS, OURS, 0, false, "NLS", "kept",
      "not sound, stays drained: " OURS, false },
    { "sick at the second look", true, "drained", OURS, OURS, 1, false, "NLPLS",
      "kept", "not sound", false },
    { "somebody else's drain", true, "drained", "Kill task failed", OURS, 9,
      false, "NS", "kept", "drained by somebody else (Kill task failed)",
      false },
    { "an administrator comes meanwhile", true, "drained", OURS, "fan", 9,
      false, "NLPLNS", "kept", "drained by somebody else (fan)", false },
    { "another fault meanwhile", true, "drained", OURS, "tessera: XID_79", 9,
      false, "NLPLNS", "kept", "drained for another reason meanwhile", false },
    { "a node that serves", true, "idle", "none", OURS, 9, false, "NS", "kept",
      "is idle, not drained", false },
    { "a node that is down", true, "down*", OURS, OURS, 9, false, "NS", "kept",
      "is down*, not drained", false },
    { "Slurm is silent", true, "drained", NULL, OURS, 9, false, "NS",
      "no-answer", "state unknown, left as it is", false },
    { "Slurm is silent later", true, "drained", OURS, NULL, 9, false, "NLPLNS",
      "no-answer", "state unknown", false },
    { "Slurm refuses", true, "drained", OURS, OURS, 9, true, "NLPLNRS",
      "failed", "scontrol did not undrain", false },
};

static void test_back(const struct back *way)
{
    static const char letters[] = {
        [DRAIN_NODE] = 'N',  [DRAIN_LOOK] = 'L',   [DRAIN_SAY] = 'S',
        [DRAIN_PAUSE] = 'P', [DRAIN_RESUME] = 'R',
    };
    struct undrain_request request = { .node = "n1",
                                       .enforce = way->enforce,
                                       .pause_s = 3 };
    struct undrain undrain;
    struct cluster_node node;
    struct drain_action action, said = { .outcome = "" };
    struct drain_event event = { 0 };
    char did[32] = "";
    int looks = 0;
    undrain_begin(&undrain, &request);
    while ((action = undrain_next(&undrain, &event)).what != DRAIN_END &&
           strlen(did) < sizeof did - 1) {
        did[strlen(did)] = letters[action.what];
        event = (struct drain_event){ .answered = true, .done = !way->fails };
        const char *reason = looks > 0 ? way->after : way->reason;
        if (action.what == DRAIN_SAY)
            said = action;
        if (action.what == DRAIN_LOOK)
            event.sound = looks++ < way->sound;
        if (action.what != DRAIN_NODE || reason == NULL)
            continue;
        node = (struct cluster_node){ .partition_count = 0 };
        snprintf(node.state, sizeof node.state, "%s", way->state);
        snprintf(node.reason, sizeof node.reason, "%s", reason);
        event.node = &node;
    }
    tap_is_str(did, way->did, "%s: the way", way->what);
    tap_is_str(said.outcome, way->outcome, "%s: the outcome", way->what);
    tap_ok(strncmp(said.text, way->said, strlen(way->said)) == 0, "%s: '%s'",
           way->what, said.text);
    tap_is_int(undrain.back, way->back, "%s: whether it serves", way->what);
}

static void test_reason(void)
{
    struct drain_request request = { .node = "n1",
                                     .reason = "tessera: XID_79 \"GPU\"'s\n "
                                               "gone\x01",
                                     .percent = 10 };
    struct drain drain;
    drain_begin(&drain, &request);
    tap_is_str(drain.reason, "tessera: XID_79 GPUs gone",
               "a reason has nothing that Slurm or a log takes amiss");
    tap_is_str(drain.code, "XID_79", "and begins with its code");
    request.wrong = " TESSERA_X=1: there is no such setting;";
    drain_begin(&drain, &request);
    struct drain_event event = { 0 };
    struct drain_action action = drain_next(&drain, &event);
    tap_ok(action.what == DRAIN_SAY &&
               strstr(action.text, "not drained, because of wrong settings") !=
                   NULL,
           "wrong settings drain nothing: %s", action.text);
    action = drain_next(&drain, &event);
    tap_is_int(action.what, DRAIN_END, "and ask Slurm nothing");
}

int main(void)
{
    test_node();
    test_shares();
    test_marks();
    test_version("20.11");
    test_version("22.05");
    test_version("24.11");
    test_reason();
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++)
        test_way(&ways[i]);
    for (size_t i = 0; i < sizeof backs / sizeof *backs; i++)
        test_back(&backs[i]);
    return tap_done();
}
