/* tessera-job, which is called as `tessera submit`, `status`, `logs` and `stop`: the
 * jobs of a run by the run's name. What is submitted is a script that stays in the
 * run directory, RUN/job.sbatch, where its output comes, too; its number is in
 * RUN/job. What is not a run's configuration is a program of ours, as one task.
 *
 * Only submit asks for settings, by the way of tessera-train, so that what would end
 * the job at its start ends here. */
#include <dirent.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "src/base/clean.h"
#include "src/base/fsio.h"
#include "src/base/log.h"
#include "src/cmd/cmd_main.h"
#include "src/cmd/job_cmd.h"
#include "src/job/slurm.h"
#include "src/job/slurm_run.h"
#include "src/report/run_history.h"

#define COUNT_MAX 65536
#define SCANCEL_S 20.0

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

long job_of(const char *run_dir)
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

bool job_queued(long number, char *state, size_t bytes)
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
    char state[JOB_ANSWER_BYTES], program[FSIO_PATH_MAX + 16];
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
    ssize_t length = readlink("/proc/self/exe", program, FSIO_PATH_MAX);
    if (length < 0)
        return err_errno("/proc/self/exe");
    program[length] = '\0';
    strcpy(strrchr(program, '/'), "/tessera-ls");
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
        return job_submit(job, line);
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
