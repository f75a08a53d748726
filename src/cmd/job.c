/* tessera-job, which is called as `tessera submit`, `status`, `logs` and `stop`: the
 * jobs of a run by the run's name. What is submitted is a script that stays in the
 * run directory, RUN/job.sbatch, where its output comes, too; its number is in
 * RUN/job. What is not a run's configuration is a program of ours, as one task.
 *
 * Only submit asks for settings, by the way of tessera-train, so that what would end
 * the job at its start ends here. */
#include <dirent.h>
#include <fcntl.h>
#include <libgen.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "src/base/array.h"
#include "src/base/clean.h"
#include "src/base/fsio.h"
#include "src/base/log.h"
#include "src/base/new.h"
#include "src/base/output.h"
#include "src/cmd/cmd_main.h"
#include "src/job/job_script.h"
#include "src/job/slurm.h"
#include "src/job/slurm_run.h"
#include "src/mirror/home.h"
#include "src/report/run_history.h"
#include "src/train/plan/train_memory.h"
#include "src/train/start/start_settings.h"

#define JOB_ANSWER_BYTES 4096
#define COUNT_MAX 65536
#define SCANCEL_S 20.0
#define SBATCH_S 60.0

struct job {
    struct job_script script;
    const char *options[65]; /* of sbatch; NULL ends them */
    int chain;
    bool dry, follow;
    bool secret; /* settings that nobody else may read */
};

static const struct options_row rows[] = {
    OPTION_WHOLE(struct job, script.nodes, "nodes", "N", 1, COUNT_MAX,
                 "nodes to train on (1)"),
    OPTION_WHOLE(struct job, script.spares, "spares", "N", 0, COUNT_MAX,
                 "nodes in reserve beside them (0)"),
    OPTION_WHOLE(struct job, script.gpus, "gpus", "N", 1, 64,
                 "GPUs of a node, a rank each"),
    OPTION_WHOLE(struct job, script.ranks, "ranks", "N", 1, 1024,
                 "ranks of a node (its GPUs; 1)"),
    OPTION_PATH(struct job, script.time, "time", "TIME",
                "as sbatch has it: 24:00:00 (the partition's)"),
    OPTION_PATH(struct job, script.name, "name", "NAME",
                "of the job (the run directory's)"),
    OPTION_PATH(struct job, script.partition, "partition", "NAME", "sbatch's"),
    OPTION_PATH(struct job, script.account, "account", "NAME", "sbatch's"),
    OPTION_TEXTS(struct job, options, "sbatch", "OPTION",
                 "any other of sbatch, with its dashes; may be repeated"),
    OPTION_WHOLE(struct job, chain, "chain", "N", 1, 1000,
                 "jobs, each of which goes on from the one before (1)"),
    OPTION_FLAG(struct job, dry, "dry-run", "print the script, and do nothing"),
    OPTION_FLAG(struct job, follow, "follow", "go on with what comes"),
    { 0 },
};

/* The newest job of a run: that of RUN/job, or of the newest attempt; 0: none. */
static long job_of(const char *run_dir)
{
    char path[FSIO_PATH_MAX], *text = NULL;
    size_t bytes;
    struct run_history *run = NULL;
    long submitted = 0, started = 0;
    if (fsio_path(path, "%s/job", run_dir) == ERR_OK &&
        fsio_read_file(path, 32, &text, &bytes) == ERR_OK)
        submitted = strtol(text, NULL, 10);
    free(text);
    if (run_history_create_newest(run_dir, JOB_ANSWER_BYTES, &run) == ERR_OK) {
        if (run->attempt_count > 0)
            started = run->attempts[run->attempt_count - 1].job;
        run_history_destroy(run);
    }
    return submitted > started ? submitted : started;
}

/* Whether it may still train, and its state with the reason. */
static bool job_queued(long number, char *state, size_t bytes)
{
    if (number <= 0 || slurm_ask_job(number, "%T (%r)", state, bytes) != 0)
        return false;
    return strncmp(state, "PENDING", 7) == 0 ||
           strncmp(state, "RUNNING", 7) == 0 ||
           strncmp(state, "SUSPENDED", 9) == 0 ||
           strncmp(state, "REQUEUE", 7) == 0 ||
           strncmp(state, "CONFIGURING", 11) == 0;
}

/* A program takes this one's place. */
static enum err become(char **words)
{
    execvp(words[0], words);
    return err_errno("%s", words[0]);
}

/* What Slurm says of the run's job, and the line of tessera-ls. */
static enum err status(struct job *job, char *run_dir)
{
    char state[JOB_ANSWER_BYTES], folder[FSIO_PATH_MAX], program[FSIO_PATH_MAX];
    long number = job_of(run_dir);
    (void)job;
    if (number == 0)
        printf("no job of this run is known\n");
    else if (slurm_ask_job(number, "%T (%r) %N", state, sizeof state) != 0)
        printf("job %ld: Slurm does not know, or does not answer\n", number);
    else
        clean_printf("job %ld: %s\n", number,
                     state[0] != '\0' ? state : "over");
    fflush(stdout);
    TRY(fsio_own_folder(folder));
    TRY(fsio_path(program, "%s/tessera-ls", folder));
    return become((char *[]){ program, run_dir, NULL });
}

static int is_output(const struct dirent *entry)
{
    return strncmp(entry->d_name, "job-", 4) == 0 &&
           strstr(entry->d_name, ".out") != NULL;
}

/* What the newest of the run's jobs has said. */
static enum err logs(struct job *job, char *run_dir)
{
    struct dirent **entries = NULL;
    char path[FSIO_PATH_MAX];
    enum err rc = ERR_OK;
    int count = scandir(run_dir, &entries, is_output, versionsort);
    if (count <= 0)
        rc = err_set(ERR_USAGE,
                     "%s has no job-*.out: no job that tessera submit made has "
                     "begun",
                     run_dir);
    else
        rc = fsio_path(path, "%s/%s", run_dir, entries[count - 1]->d_name);
    for (int i = 0; i < count; i++)
        free(entries[i]);
    free(entries);
    if (rc != ERR_OK)
        return rc;
    char tail[] = "tail", from[] = "--lines=+1", last[] = "--lines=50",
         follow[] = "--follow=name";
    return become((char *[]){ tail, job->follow ? last : from, path,
                              job->follow ? follow : NULL, NULL });
}

/* A job that has not begun goes at once; one that trains saves, and ends. */
static enum err stop(struct job *job, char *run_dir)
{
    char path[FSIO_PATH_MAX], number[32], state[JOB_ANSWER_BYTES];
    char scancel[] = "scancel", pending[] = "--state=PENDING";
    char *argv[] = { scancel, pending, number, NULL };
    struct buffer text = { 0 };
    long job_number = job_of(run_dir);
    (void)job;
    TRY(fsio_path(path, "%s/STOP", run_dir));
    int fd = open(
        path, O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0666);
    if (fd < 0)
        return err_errno("%s", path);
    close(fd);
    if (!job_queued(job_number, state, sizeof state)) {
        log_info("%s is made; no job of the run is queued", path);
        return ERR_OK;
    }
    snprintf(number, sizeof number, "%ld", job_number);
    (void)slurm_run(argv, SCANCEL_S, JOB_ANSWER_BYTES, &text);
    buffer_free(&text);
    log_info("%s is made: job %ld (%s) saves the last finished step and ends; "
             "tessera submit goes on",
             path, job_number, state);
    return ERR_OK;
}

/* --- submit --- */

/* The module that this program came by, if any. */
static void find_module(char module[FSIO_PATH_MAX], struct job_script *script)
{
    for (const char *at = getenv("LOADEDMODULES"); at != NULL && *at != '\0';
         at += strcspn(at, ":"), at += *at == ':')
        if (strncmp(at, "tessera", 7) == 0 && strchr("/:", at[7]) != NULL) {
            snprintf(module, FSIO_PATH_MAX, "%.*s", (int)strcspn(at, ":"), at);
            script->module = module;
        }
}

static enum err check_run(struct job *job, char *const *words, int count,
                          char *run_dir)
{
    enum err rc = ERR_OK;
    struct train_settings *s = NULL;
    int ranks = job->script.nodes * job->script.ranks;
    TRY(new_zeroed(&s, 1));
    TRY_OUT(start_settings_read(words[0], words + 1, count - 1, false, s));
    if (!start_settings_asks(s) || !home_is(train_settings_from(s).path))
        TRY_OUT(start_settings_complete(s)); /* else the run will */
    if (ranks > train_memory_ranks_max(s))
        TRY_OUT(err_set(ERR_USAGE,
                        "%d nodes with %d ranks each, but the run can have at "
                        "most %d ranks: set parallel.slots before its first "
                        "start",
                        job->script.nodes, job->script.ranks,
                        train_memory_ranks_max(s)));
    job->secret = train_settings_any_secret(s);
    if (!job->dry)
        TRY_OUT(fsio_mkdirs(s->run.dir));
    if (realpath(s->run.dir, run_dir) == NULL)
        snprintf(run_dir, FSIO_PATH_MAX, "%s", s->run.dir);
out:
    free(s);
    return rc;
}

static enum err free_to_go(const char *run_dir)
{
    char state[JOB_ANSWER_BYTES], path[FSIO_PATH_MAX];
    long number = job_of(run_dir);
    if (job_queued(number, state, sizeof state))
        return err_set(ERR_USAGE,
                       "job %ld of this run is %s: tessera stop %s ends it",
                       number, state, run_dir);
    TRY(fsio_path(path, "%s/STOP", run_dir));
    if (unlink(path) == 0)
        log_info("%s is removed, so that the run goes on", path);
    return ERR_OK;
}

static enum err sbatch(const char *script, long *number)
{
    char name[] = "sbatch", option[] = "--parsable", path[FSIO_PATH_MAX];
    char *argv[] = { name, option, path, NULL };
    struct buffer text = { 0 };
    enum err rc = ERR_OK;
    snprintf(path, sizeof path, "%s", script);
    int status = slurm_run(argv, SBATCH_S, JOB_ANSWER_BYTES, &text);
    const char *said = text.data != NULL ? (const char *)text.data : "";
    const char *last = said;
    for (const char *at = said; *at != '\0'; at++)
        if (*at == '\n' && at[1] != '\0')
            last = at + 1;
    *number = strtol(last, NULL, 10);
    if (status < 0)
        rc = err_set(ERR_SPACE,
                     "sbatch does not run, or did not answer in "
                     "%.0f s: is Slurm here?",
                     SBATCH_S);
    else if (status != 0 || *number <= 0)
        rc = err_set(ERR_USAGE, "sbatch %s: %s", script, said);
    buffer_free(&text);
    return rc;
}

static enum err write_script(const struct job *job, const char *path)
{
    struct output out;
    if (job->dry)
        return job_script_write(&job->script, stdout);
    TRY(output_begin(path, NULL, 0, &out));
    enum err rc = job_script_write(&job->script, out.file);
    if (rc == ERR_OK && job->secret && fchmod(fileno(out.file), 0600) != 0)
        rc = err_errno("%s", path);
    if (rc == ERR_OK)
        return output_end(&out, false);
    output_drop(&out);
    return rc;
}

static enum err submit_all(const struct job *job, const char *path,
                           const char *run_dir)
{
    char number_path[FSIO_PATH_MAX], text[32];
    TRY(write_script(job, path));
    for (int i = 0; i < job->chain && !job->dry; i++) {
        long number = 0;
        TRY(sbatch(path, &number));
        printf("job %ld: %s\n", number, path);
        if (run_dir == NULL)
            continue;
        TRY(fsio_path(number_path, "%s/job", run_dir));
        int bytes = snprintf(text, sizeof text, "%ld\n", number);
        TRY(fsio_write_atomic(number_path, text, (size_t)bytes));
    }
    return ERR_OK;
}

static bool is_program(const char *folder, const char *name)
{
    char path[FSIO_PATH_MAX];
    return strpbrk(name, "/.=") == NULL &&
           fsio_path(path, "%s/tessera-%s", folder, name) == ERR_OK &&
           access(path, X_OK) == 0;
}

/* PATH of the script; the words become those of the command. */
static enum err take_program(struct job *job, char *name, char *path)
{
    struct job_script *script = &job->script;
    static char output[FSIO_PATH_MAX];
    if (script->name == NULL)
        script->name = name;
    if (script->nodes + script->spares > 1 || script->ranks > 1)
        return err_set(ERR_USAGE, "%s is one task on one node", name);
    TRY(fsio_path(path, "%s.sbatch", script->name));
    TRY(fsio_path(output, "%s-%%j.out", script->name));
    script->output = output;
    return ERR_OK;
}

static enum err take_run(struct job *job, const struct options *line,
                         char *run_dir, char *path)
{
    struct job_script *script = &job->script;
    static char output[FSIO_PATH_MAX], name[FSIO_PATH_MAX];
    char requeue[16];
    if (script->ranks == 0)
        script->ranks = script->gpus > 0 ? script->gpus : 1;
    TRY(check_run(job, line->operands, line->operand_count, run_dir));
    snprintf(name, sizeof name, "%s", run_dir);
    if (script->name == NULL)
        script->name = basename(name);
    TRY(fsio_path(path, "%s/job.sbatch", run_dir));
    TRY(fsio_path(output, "%s/job-%%j.out", run_dir));
    script->output = output;
    script->kept = true;
    slurm_ask_config("JobRequeue", requeue, sizeof requeue);
    script->requeue = job->chain == 1 && strcmp(requeue, "0") != 0;
    if (job->chain == 1 && !script->requeue)
        log_warn("this Slurm lets no job be requeued (JobRequeue=0): --chain N "
                 "submits N jobs, of which each goes on from the one before");
    return job->dry ? ERR_OK : free_to_go(run_dir);
}

static enum err submit(struct job *job, const struct options *line)
{
    struct job_script *script = &job->script;
    char programs[FSIO_PATH_MAX], module[FSIO_PATH_MAX], folder[FSIO_PATH_MAX];
    char run_dir[FSIO_PATH_MAX], path[FSIO_PATH_MAX], program[FSIO_PATH_MAX];
    char **words = NULL;
    enum err rc = ERR_OK;
    TRY(fsio_own_folder(programs));
    script->programs = programs;
    find_module(module, script);
    if (getcwd(folder, sizeof folder) == NULL)
        return err_errno("the working directory");
    bool other = is_program(script->programs, line->operands[0]);
    if (other)
        TRY(take_program(job, line->operands[0], path));
    else
        TRY(take_run(job, line, run_dir, path));
    TRY(fsio_path(program, "tessera-%s", other ? line->operands[0] : "launch"));
    TRY(new_zeroed(&words, (size_t)line->operand_count + 2));
    words[0] = program;
    for (int i = other; i < line->operand_count; i++)
        words[i + !other] = line->operands[i];
    script->folder = folder;
    script->command = words;
    script->options = job->options;
    script->ranks = script->ranks > 0 ? script->ranks : 1;
    TRY_OUT(submit_all(job, path, other ? NULL : run_dir));
out:
    free(words);
    return rc;
}

static const struct command {
    struct options_command command;
    enum err (*run)(struct job *job, char *run_dir);
} commands[] = {
    { { "submit", "RUN.cfg|PROGRAM ...",
        "a job that trains, with settings behind RUN.cfg; or that runs another "
        "program: `eval RUN -- ...`",
        rows,
        "nodes spares gpus ranks time name partition account sbatch chain "
        "dry-run",
        1, -1 },
      NULL },
    { { "status", "RUN", "what Slurm says of its job, and how far it is", rows,
        "", 1, 1 },
      status },
    { { "logs", "RUN", "what its newest job has said", rows, "follow", 1, 1 },
      logs },
    { { "stop", "RUN", "save, and end; a job that waits goes", rows, "", 1, 1 },
      stop },
};

static enum err run(const struct options *line, int *exit_code)
{
    const struct command *command = (const struct command *)line->command;
    struct job *job = line->into;
    (void)exit_code;
    if (command->run == NULL)
        return submit(job, line);
    if (!fsio_exists(line->operands[0]))
        return err_set(ERR_USAGE, "%s: no such run", line->operands[0]);
    return command->run(job, line->operands[0]);
}

int main(int argc, char **argv)
{
    static const struct options_program program = {
        .name = "job",
        .about = "The jobs of a run by its folder, as tessera submit, status, "
                 "logs and stop. The script\nthat is submitted, "
                 "RUN/job.sbatch, and its output, RUN/job-NUMBER.out, stay "
                 "there.\n",
        .end = "exit codes: 0; 64 usage, configuration, or Slurm refuses; 93 a "
               "place that cannot be\nwritten\n",
        OPTIONS_COMMANDS(commands),
    };
    struct job job = { .script.nodes = 1, .chain = 1 };
    return cmd_main(&(struct cmd_main){ &program, &job, run }, argc, argv);
}
