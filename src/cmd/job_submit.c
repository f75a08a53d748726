/* Writes a job's script and hands it to sbatch. Settings are read by the way of
 * tessera-train, so that what would end the job at its start ends here. */
#include <libgen.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "src/base/array.h"
#include "src/base/log.h"
#include "src/base/new.h"
#include "src/base/output.h"
#include "src/cmd/job_cmd.h"
#include "src/job/slurm.h"
#include "src/job/slurm_run.h"
#include "src/train/plan/train_memory.h"
#include "src/train/start/start_settings.h"

#define SBATCH_S 60.0

/* The folder of this program, and the module that it came by, if any. */
static enum err find_programs(char *programs, char *module, size_t bytes,
                              struct job_script *script)
{
    const char *loaded = getenv("LOADEDMODULES");
    ssize_t length = readlink("/proc/self/exe", programs, bytes - 1);
    if (length < 0)
        return err_errno("/proc/self/exe");
    programs[length] = '\0';
    script->programs = dirname(programs);
    for (const char *at = loaded; at != NULL && *at != '\0';
         at += strcspn(at, ":"), at += *at == ':')
        if (strncmp(at, "tessera", 7) == 0 && strchr("/:", at[7]) != NULL) {
            snprintf(module, bytes, "%.*s", (int)strcspn(at, ":"), at);
            script->module = module;
        }
    return ERR_OK;
}

static enum err check_run(struct job *job, char *const *words, int count,
                          char *run_dir)
{
    enum err rc = ERR_OK;
    struct train_settings *s = NULL;
    int ranks = job->script.nodes * job->script.ranks;
    TRY(new_zeroed(&s, 1));
    TRY_OUT(start_settings_read(words[0], words + 1, count - 1, false, s));
    TRY_OUT(start_settings_complete(s));
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

enum err job_submit(struct job *job, const struct options *line)
{
    struct job_script *script = &job->script;
    char programs[FSIO_PATH_MAX], module[FSIO_PATH_MAX], folder[FSIO_PATH_MAX];
    char run_dir[FSIO_PATH_MAX], path[FSIO_PATH_MAX], program[FSIO_PATH_MAX];
    char **words = NULL;
    enum err rc = ERR_OK;
    TRY(find_programs(programs, module, sizeof programs, script));
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
