/* What the watch makes of steps, told to it one by one: the ledger, all trackers that
 * write files, TESSERA_NOTIFY, and a line where it sees nothing. */
#include <fcntl.h>
#include <stdarg.h>
#include <sys/stat.h>

#include "src/base/clock.h"
#include "src/base/log.h"
#include "src/comm/comm_impl.h"
#include "src/comm/comm_tensors_impl.h"
#include "src/control/slow.h"
#include "src/parallel/replica_impl.h"
#include "src/tracking/tracking_sink.h"
#include "src/train/run/run.h"
#include "tests/tap.h"

#define RANKS 4
#define VICTIM 2
#define WINDOW 4
#define SETTLES 5
#define STEP_S 1.0 /* what steps say that they took */
#define WORK_S (STEP_S / 3.5)
#define WAIT_S 0.02 /* before each step, as a plug-in's */
#define TENSORBOARD "tensorboard/events.out.tfevents.*"

extern const struct listener_ops on_watch_ops;

static struct run run;
static struct step_record record;
static struct step_rank of_rank[RANKS];
static char hosts[RANKS][COMM_HOST_BYTES] = { "n0", "n1", "n2", "n3" };
static const struct comm_tensors_way nccl = { .name = "nccl" };
static struct comm comm = { .size = RANKS, .hosts = hosts };
static struct comm_tensors tensors = { .comm = &comm, .way = &nccl };
static struct replica replica = { .tensors = &tensors };
static struct tracking_options options;
static const struct tracking_sink_ops *const sinks[] = {
    &tracking_prometheus_ops, &tracking_mlflow_file_ops,
    &tracking_tensorboard_ops
};
#define SINKS (int)(sizeof sinks / sizeof sinks[0])
static void *sink_selves[SINKS];

/* What a command says; "" where it fails. In the run's folder. */
static const char *said(const char *format, ...)
{
    static char text[8192];
    char command[FSIO_PATH_MAX + 512];
    va_list arguments;
    int used =
        snprintf(command, sizeof command, "cd %s && ", run.settings.run.dir);
    va_start(arguments, format);
    vsnprintf(command + used, sizeof command - (size_t)used, format, arguments);
    va_end(arguments);
    FILE *file = popen(command, "r");
    text[fread(text, 1, sizeof text - 1, file)] = '\0';
    pclose(file);
    text[strcspn(text, "\n")] = '\0';
    return text;
}

/* A run of four ranks on as many nodes, in a folder of its own. */
static void *begin(void)
{
    struct train_settings *s = &run.settings;
    void *watch = calloc(1, on_watch_ops.bytes);
    char path[FSIO_PATH_MAX];
    snprintf(s->run.dir, sizeof s->run.dir, "%s", tap_folder());
    snprintf(path, sizeof path, "%.900s/log", s->run.dir);
    int log = open(path, O_CREAT | O_WRONLY | O_APPEND, 0600);
    dup2(log, STDERR_FILENO);
    close(log);
    record = (struct step_record){ .ranks = RANKS, .log_interval = 1 };
    record.scalars = run.now.record.scalars;
    record.of_rank = of_rank;
    if (tap_is_int(on_watch_ops.create(watch, &run), ERR_OK, "begun"))
        return watch;
    free(watch);
    return NULL;
}

static void set_settings(void)
{
    struct train_settings *s = &run.settings;
    s->watch.on_straggler = WATCH_WARN;
    s->watch.window = WINDOW;
    s->watch.cooldown_s = 1800;
    s->parallel.slots = 2 * RANKS;
    s->parallel.expert_degree = s->parallel.sequence_degree = 1;
    s->train.global_batch = 8;
    run.now.samples = 8;
    run.now.seq_len = 64;
    run.engine.devices[0] = '\0';
    run.engine.replica = &replica;
}

static void end(void *watch)
{
    on_watch_ops.destroy(watch);
    free(watch);
}

/* One step, of which VICTIM is slow by `kind` (SLOW_KINDS: nobody is). */
static void step(void *watch, int kind)
{
    struct asks asks = { 0 };
    const double step_s = STEP_S;
    for (int r = 0; r < RANKS; r++) {
        bool victim = r == VICTIM;
        double work_s = victim && kind == SLOW_RANK ? 3 * WORK_S : WORK_S;
        double loader_s = victim && kind == SLOW_LOADER ? step_s / 2 : 0.0;
        of_rank[r] = (struct step_rank){ .step_s = step_s,
                                         .loader_s = loader_s,
                                         .wait_s = step_s - work_s - loader_s };
    }
    record.step++;
    record.step_s = step_s;
    record.tokens_per_s = kind == SLOW_RATE ? 500.0 : 1000.0;
    tracking_list_clear(record.scalars);
    tap_check(on_watch_ops.handle(watch, EVENT_BATCH_END, &record, &asks) ==
                  ERR_OK,
              __FILE__, __LINE__, "step %d", (int)record.step);
}

static void open_sinks(void)
{
    struct tracking_settings *s = &options.settings;
    const char *dir = run.settings.run.dir;
    options = (struct tracking_options){ .run_name = "run" };
    snprintf(options.run_dir, sizeof options.run_dir, "%s", dir);
    snprintf(s->prometheus, sizeof s->prometheus, "%.900s/run.prom", dir);
    snprintf(s->mlflow, sizeof s->mlflow, "file://%.900s/mlruns", dir);
    strcpy(s->experiment, "first");
    bool good = true;
    for (int i = 0; i < SINKS; i++) {
        sink_selves[i] = calloc(1, sinks[i]->bytes);
        good = sinks[i]->open(sink_selves[i], &options) == ERR_OK &&
               sinks[i]->begin(sink_selves[i], 0) == ERR_OK && good;
    }
    tap_ok(good, "trackers are there");
}

/* As every run does with a step that has figures. */
static void send(void)
{
    struct tracking_record sent = *tracking_list_record(record.scalars);
    const struct tracking_record *const list[] = { &sent };
    sent.step = record.step;
    sent.time_s = 1000.0 + (double)record.step;
    for (int i = 0; i < SINKS; i++)
        if (sent.count > 0 &&
            sinks[i]->write(sink_selves[i], list, 1) != ERR_OK)
            tap_ok(false, "%s: %s", sinks[i]->name, err_text());
}

static void close_sinks(void)
{
    for (int i = 0; i < SINKS; i++) {
        sinks[i]->close(sink_selves[i]);
        free(sink_selves[i]);
    }
}

static void steps(void *watch, int count, int kind)
{
    for (int i = 0; i < count; i++) {
        clock_sleep(WAIT_S);
        step(watch, kind);
        send();
    }
}

static void shown(const char *figure, const char *value, const char *when)
{
    char name[64];
    snprintf(name, sizeof name, "tessera_watch_%s", figure);
    tap_is_str(said("sed -n 's/^%s{.*} //p' run.prom", name), value,
               "prometheus, %s: %s", when, figure);
    tap_is_str(
        said("tail -qn 1 mlruns/*/*/metrics/watch/%s | cut -d' ' -f2", figure),
        value, "mlflow, %s: %s", when, figure);
    tap_is_str(said("grep -qa watch/%s " TENSORBOARD " && echo yes", figure),
               "yes", "tensorboard has it");
}

/* Each kind comes and goes, in steps that all have a wait before them. */
static void test_kinds(void)
{
    static const struct {
        const char *kind, *rank, *figure, *slow, *usual;
    } rows[SLOW_KINDS] = {
        [SLOW_RANK] = { "straggler", "2", "straggler_rank", "2", "-1" },
        [SLOW_LOADER] = { "loader", "2", "loader", "0.5", "0" },
        [SLOW_RATE] = { "rate", "-1", "rate", "0.5", "1" },
    };
    char want[64];
    for (int i = 0; i < SLOW_KINDS; i++) {
        void *watch = begin();
        if (watch == NULL)
            return;
        tap_note("%s", rows[i].kind);
        open_sinks();
        steps(watch, SETTLES + 2 * WINDOW, SLOW_KINDS);
        shown(rows[i].figure, rows[i].usual, "before");
        steps(watch, 2 * WINDOW, i);
        shown(rows[i].figure, rows[i].slow, "slow");
        steps(watch, 2 * WINDOW, SLOW_KINDS);
        shown(rows[i].figure, rows[i].usual, "over");
        if (i == SLOW_RANK)
            shown("slowdown", "1", "over");
        close_sinks();
        end(watch);
        snprintf(want, sizeof want, "[%s,%s,false][%s,%s,true]", rows[i].kind,
                 rows[i].rank, rows[i].kind, rows[i].rank);
        tap_is_str(said("jq -c '[.kind, .rank, .over]' ledger.jsonl | "
                        "tr -d '\"\\n'"),
                   want, "told, and that it is over");
    }
}

/* Who is told by TESSERA_NOTIFY, and how often: two spells of one kind. */
static void test_notify(void)
{
    static const struct {
        double cooldown_s;
        const char *calls;
    } rows[] = { { 1800, "1" }, { 0, "2" } };
    char tell[FSIO_PATH_MAX];
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        run.settings.watch.cooldown_s = rows[i].cooldown_s;
        snprintf(tell, sizeof tell, "%s/tell", tap_folder());
        FILE *file = fopen(tell, "w");
        fprintf(file, "#!/bin/sh\necho \"$#: $*\" >>\"$2/told\"\n");
        fchmod(fileno(file), 0700);
        fclose(file);
        setenv("TESSERA_NOTIFY", tell, 1);
        void *watch = begin();
        for (int n = 0; n < SETTLES; n++)
            step(watch, SLOW_KINDS);
        for (int n = 0; n < 8 * WINDOW; n++) {
            if (n ==
                3 * WINDOW) /* or the second call took the first one's place */
                clock_sleep(0.5);
            step(watch, n / WINDOW % 4 == 0 ? SLOW_RANK : SLOW_KINDS);
        }
        end(watch);
        unsetenv("TESSERA_NOTIFY");
        tap_is_str(said("wc -l <told"), rows[i].calls,
                   "called so often, with a cool-down of %g s",
                   rows[i].cooldown_s);
        char want[FSIO_PATH_MAX + 64];
        snprintf(want, sizeof want,
                 "4: straggler %s 7 step 8: rank 2 (n2) takes 3.00 times",
                 run.settings.run.dir);
        tap_is_str(said("head -n 1 told | cut -c 1-%zu", strlen(want)), want,
                   "with four words");
    }
    set_settings();
}

/* A line where ranks are not compared, and why; none where they are. */
static void test_start(void)
{
    static const struct {
        const char *what, *says;
        int experts, sequences, slots;
        bool nccl;
    } rows[] = {
        { "even ranks", "", 1, 1, 8, false },
        { "experts", "parallel.expert_degree is above 1", 2, 1, 8, false },
        { "sequences", "parallel.sequence_degree is above 1", 1, 2, 8, false },
        { "uneven ranks", "they have other numbers of leaves", 1, 1, 6, false },
        { "NCCL", "a GPU's wait for others within NCCL looks like work", 1, 1,
          8, true },
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        run.settings.parallel.expert_degree = rows[i].experts;
        run.settings.parallel.sequence_degree = rows[i].sequences;
        run.settings.parallel.slots = rows[i].slots;
        strcpy(run.engine.devices, rows[i].nccl ? "4 GPUs for 4 ranks" : "");
        void *watch = begin();
        end(watch);
        tap_is_str(
            said("sed -n 's/.* no rank .*, since \\(.*\\); .*/\\1/p' log"),
            rows[i].says, "%s", rows[i].what);
        set_settings();
    }
}

/* A line, once, where nothing can be told for long. */
static void test_blind(void)
{
    static const struct {
        const char *what, *says;
        bool skipped, shapes, saves; /* saves: a second before each third */
    } rows[] = {
        { "steps", "", false, false, false },
        { "updates left out", "their updates were left out", true, false,
          false },
        { "other lengths", "they have other numbers of tokens", false, true,
          false },
        { "saves", "", false, false, true },
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        void *watch = begin();
        for (int n = 0; n < 2 * SETTLES + 4 * WINDOW; n++) {
            record.skipped = rows[i].skipped;
            run.now.seq_len = 64 + (rows[i].shapes ? n : 0);
            if (rows[i].saves && n % 3 == 0)
                clock_sleep(0.3);
            step(watch, SLOW_KINDS);
        }
        end(watch);
        tap_is_str(said("sed -n 's/.* nobody was looked for .*, since \\(.*\\) "
                        "(watch.*/\\1/p' log | tr '\\n' ' ' | sed 's/ $//'"),
                   rows[i].says, "%s", rows[i].what);
        set_settings();
    }
}

int main(void)
{
    log_init("test", 0, LOG_INFO);
    setenv("SLURM_JOB_ID", "7", 1);
    unsetenv("TESSERA_NOTIFY");
    run.comm = &comm;
    run.ranks = RANKS;
    run.attempt = 1;
    if (tracking_list_create(&run.now.record.scalars) != ERR_OK)
        return 1;
    set_settings();
    test_start();
    test_blind();
    test_notify();
    test_kinds();
    tracking_list_destroy(run.now.record.scalars);
    return tap_done();
}
